"""Callers of OpenEnv's tools as a child: `python -m bench.peer_openenv_caller URL CALLERS WAY`.

WAY is `client` (OpenEnv's own `MCPToolClient`, which posts to /mcp) or `websocket` (JSON-RPC over the WebSocket /mcp, for which
OpenEnv has no client: nothing is parsed but the reply's JSON).
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack

from websockets.asyncio.client import connect

from bench.control_load import MESSAGE, Step, answer_rates, rate_of_all

CALL = {"name": "act", "arguments": {"message": MESSAGE}}
REQUEST = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": CALL})


async def client(stack: AsyncExitStack, url: str) -> Step:
    """Return one call by OpenEnv's client; it raises what is refused."""
    from openenv.core.mcp_client import MCPToolClient  # takes seconds, which the other way need not wait for

    caller = await stack.enter_async_context(MCPToolClient(base_url=url))
    return lambda: caller.call_tool("act", message=MESSAGE)


async def websocket(stack: AsyncExitStack, url: str) -> Step:
    """Return one call over a WebSocket; one that is refused is an error."""
    address = url.replace("http", "ws", 1) + "/mcp"
    connection = await stack.enter_async_context(connect(address, compression=None, proxy=None))

    async def call() -> None:
        await connection.send(REQUEST)
        answer = json.loads(await connection.recv())
        if answer.get("error") is not None:
            raise RuntimeError(f"a call was refused: {answer['error']}")

    return call


WAYS = {"client": client, "websocket": websocket}


async def drive(url: str, callers: int, way: str) -> None:
    """Answer every `go SECONDS` with the calls a second of all callers together."""
    async with AsyncExitStack() as stack:
        calls = [await WAYS[way](stack, url) for _ in range(callers)]
        await answer_rates(lambda seconds: rate_of_all(calls, seconds))


def main(url: str, callers: str = "1", way: str = "client") -> None:
    """Measure until the input ends."""
    asyncio.run(drive(url, int(callers), way))


if __name__ == "__main__":
    main(*sys.argv[1:])
