"""Agents without a client library as a child: `python -m bench.agents_plain URL AGENTS`, so that the server is what is measured.

Every agent has one kept connection, opened anew for each measurement, because servers close those that are idle. It writes the
same request again and again, of the revision in which each stands for itself; of the reply it reads the status, the length and
the body. URLs are as for `bench.agents_client`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final
from urllib.parse import urlsplit

from bench.agents_client import ARGUMENTS, addresses
from bench.control_load import Step, answer_rates, rate_of_all

REVISION: Final = "2026-07-28"
ABOUT: Final = "io.modelcontextprotocol"
META: Final = {
    f"{ABOUT}/protocolVersion": REVISION,
    f"{ABOUT}/clientInfo": {"name": "bench", "version": "1"},
    f"{ABOUT}/clientCapabilities": {},
}
PARAMS: Final = {"name": "act", "arguments": ARGUMENTS, "_meta": META}
BODY: Final = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": PARAMS})
END: Final = b"\r\n\r\n"
LENGTH: Final = b"content-length:"


def request(address: str, token: str) -> bytes:
    """Return a call as it goes over the wire."""
    url = urlsplit(address)
    lines = (
        f"POST {url.path} HTTP/1.1",
        f"Host: {url.netloc}",
        f"Authorization: Bearer {token}",
        "Accept: application/json, text/event-stream",
        "Content-Type: application/json",
        f"Mcp-Protocol-Version: {REVISION}",
        "Mcp-Method: tools/call",
        "Mcp-Name: act",
        f"Content-Length: {len(BODY)}",
    )
    return "\r\n".join((*lines, "", BODY)).encode()


def length_in(head: bytes) -> int:
    """Return how long the body is that follows; a reply of another kind than a good one with a length is an error."""
    status, *fields = head.lower().split(b"\r\n")
    length = next((field for field in fields if field.startswith(LENGTH)), None)
    if b" 200 " not in status + b" " or length is None:
        raise RuntimeError(f"a call was refused: {status!r}")
    return int(length[len(LENGTH) :])


async def agent(stack: AsyncExitStack, address: str, token: str) -> Step:
    """Return one call of an agent that has connected; a call that is refused is an error."""
    sent, url = request(address, token), urlsplit(address)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    stack.callback(writer.close)

    async def call() -> None:
        writer.write(sent)
        body = await reader.readexactly(length_in(await reader.readuntil(END)))
        if b'"error"' in body or b'"isError":true' in body:
            raise RuntimeError(f"a call was refused: {body!r}")

    await call()
    return call


async def measured(places: Sequence[tuple[str, str]], seconds: float) -> float:
    """Return the calls a second of all agents together."""
    async with AsyncExitStack() as stack:
        return await rate_of_all([await agent(stack, *where) for where in places], seconds)


async def drive(url: str, agents: int) -> None:
    """Answer every `go SECONDS` with the calls a second."""
    async with AsyncExitStack() as stack:
        places = await addresses(stack, url, agents)
        await answer_rates(lambda seconds: measured(places, seconds))


def main(url: str, agents: str = "1") -> None:
    """Measure until the input ends."""
    asyncio.run(drive(url, int(agents)))


if __name__ == "__main__":
    main(*sys.argv[1:])
