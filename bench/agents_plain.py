"""Agents without a client library as a child: `python -m bench.agents_plain URL AGENTS WAY`, so that the server is what is measured.

WAY is `free`, or `governed` for the agents of a governed episode, which believe, decide and ask for a token before they act, and
again when the token is used up; so many calls share it that what is measured are the acts.

Every agent has one kept connection, opened anew for each measurement, because servers close those that are idle. It writes the
same request again and again, of the revision in which each stands for itself; of the reply it reads the status, the length and
the body. URLs are as for `bench.agents_client`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
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
LEAVE: Final = (
    {"name": "believe", "arguments": {"changes": {"echo": "it answers"}}, "_meta": META},
    {"name": "decide", "arguments": {"outcome": "ACT", "summary": "let it say it again"}, "_meta": META},
    {"name": "request_token", "arguments": {"tools": ["act"], "rationale": "to be heard"}, "_meta": META},
)
"""What leads to acts in a governed episode."""
USES: Final = 1000
"""How many calls a token is good for, by the policy `open`."""
END: Final = b"\r\n\r\n"
LENGTH: Final = b"content-length:"


Ask = Callable[[bytes], Awaitable[None]]
"""Sends one request and reads its reply; a call that is refused is an error."""


def request(address: str, token: str, params: Mapping[str, object] = PARAMS) -> bytes:
    """Return a call as it goes over the wire."""
    url = urlsplit(address)
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    lines = (
        f"POST {url.path} HTTP/1.1",
        f"Host: {url.netloc}",
        f"Authorization: Bearer {token}",
        "Accept: application/json, text/event-stream",
        "Content-Type: application/json",
        f"Mcp-Protocol-Version: {REVISION}",
        "Mcp-Method: tools/call",
        f"Mcp-Name: {params['name']}",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join((*lines, "", body)).encode()


def length_in(head: bytes) -> int:
    """Return how long the body is that follows; a reply of another kind than a good one with a length is an error."""
    status, *fields = head.lower().split(b"\r\n")
    length = next((field for field in fields if field.startswith(LENGTH)), None)
    if b" 200 " not in status + b" " or length is None:
        raise RuntimeError(f"a call was refused: {status!r}")
    return int(length[len(LENGTH) :])


async def connected(stack: AsyncExitStack, address: str) -> Ask:
    """Return what asks on one kept connection, which `stack` closes."""
    url = urlsplit(address)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    stack.callback(writer.close)

    async def ask(sent: bytes) -> None:
        writer.write(sent)
        body = await reader.readexactly(length_in(await reader.readuntil(END)))
        if b'"error"' in body or b'"isError":true' in body:
            raise RuntimeError(f"a call was refused: {body!r}")

    return ask


def free(ask: Ask, address: str, token: str) -> Step:
    """Return one call of an agent."""
    return partial(ask, request(address, token))


def governed(ask: Ask, address: str, token: str) -> Step:
    """Return one call of an agent that asks for leave before the first, and when it is used up."""
    act, leave = request(address, token), [request(address, token, params) for params in LEAVE]
    left = 0

    async def call() -> None:
        nonlocal left
        if not left:
            for each in leave:
                await ask(each)
            left = USES
        await ask(act)
        left -= 1

    return call


WAYS: Final = {"free": free, "governed": governed}


async def measured(places: Sequence[tuple[str, str]], way: str, seconds: float) -> float:
    """Return the calls a second of all agents together, each of which has made one before."""
    async with AsyncExitStack() as stack:
        calls = [WAYS[way](await connected(stack, address), address, token) for address, token in places]
        for call in calls:
            await call()
        return await rate_of_all(calls, seconds)


async def drive(url: str, agents: int, way: str) -> None:
    """Answer every `go SECONDS` with the calls a second."""
    async with AsyncExitStack() as stack:
        places = await addresses(stack, url, agents)
        await answer_rates(lambda seconds: measured(places, way, seconds))


def main(url: str, agents: str = "1", way: str = "free") -> None:
    """Measure until the input ends."""
    asyncio.run(drive(url, int(agents), way))


if __name__ == "__main__":
    main(*sys.argv[1:])
