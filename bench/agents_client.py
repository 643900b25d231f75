"""Agents as a child: `python -m bench.agents_client URL AGENTS ERA`; the MCP SDK's own client, for any server.

ERA is `legacy` (a handshake, then calls in its session) or a revision without handshake, in which each call stands for itself.
A URL with a credential is a control plane's: every agent gets an episode and a grant of its own there, before anything is
measured. Any other is an MCP server's, which gets a token of the same length.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from typing import Final

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from bench.control_client import EchoClient
from bench.control_load import MESSAGE, Step, answer_rates, rate_of_all
from proctor.client import Connection

ARGUMENTS: Final = {"message": MESSAGE}
PATIENCE: Final = 30.0
NO_TOKEN: Final = "0" * 43


async def addresses(stack: AsyncExitStack, url: str, agents: int) -> list[tuple[str, str]]:
    """Return where each agent calls, and with which token."""
    if "@" not in url:
        return [(f"{url}/mcp", NO_TOKEN)] * agents
    connection = await stack.enter_async_context(Connection(url))
    found = []
    for _ in range(agents):
        client = await stack.enter_async_context(EchoClient(connection))
        await client.reset(seed=0, grant=True)
        if client.granted is None:
            raise RuntimeError("there was no grant")
        found.append((client.granted.address, client.granted.token))
    return found


async def agent(stack: AsyncExitStack, address: str, token: str, era: str) -> Step:
    """Return one call of an agent that has connected; a call that is refused is an error."""
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=PATIENCE)
    await stack.enter_async_context(http)
    client = await stack.enter_async_context(Client(streamable_http_client(address, http_client=http), mode=era))

    async def call() -> None:
        result = await client.call_tool("act", ARGUMENTS)
        if result.is_error:
            raise RuntimeError(f"a call was refused: {result.content}")

    await call()
    return call


async def drive(url: str, agents: int, era: str) -> None:
    """Answer every `go SECONDS` with the calls a second of all agents together."""
    async with AsyncExitStack() as stack:
        calls = [await agent(stack, *where, era) for where in await addresses(stack, url, agents)]
        await answer_rates(lambda seconds: rate_of_all(calls, seconds))


def main(url: str, agents: str = "1", era: str = "legacy") -> None:
    """Measure until the input ends."""
    asyncio.run(drive(url, int(agents), era))


if __name__ == "__main__":
    main(*sys.argv[1:])
