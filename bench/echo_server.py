"""A bare `websockets` echo, the anchor of one request after the other: `python -m bench.echo_server PORT`.

Rule 1: what it answers is as long as a reply of ours, and nothing is parsed, checked or stepped.
Rule 2: compression is off and the event loop is asyncio's own: this is the library at its plainest.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from websockets.asyncio.server import ServerConnection, serve

from bench.control_load import MESSAGE

REPLY: Final = (
    f'{{"type":"observation","data":{{"observation":{{"echoed":"{MESSAGE}","count":1000}},"reward":1.0,"done":false,'
    '"terminated":false,"truncated":false,"step":1000,"episode_id":"0123456789abcdef0123"},'
    '"id":1000,"session":"0123456789abcdef0123","epoch":1}'
)


async def answer(connection: ServerConnection) -> None:
    """Answer every frame with the reply, as long as the connection lives."""
    async for _ in connection:
        await connection.send(REPLY)


async def serve_forever(port: int) -> None:
    """Serve until ended."""
    async with serve(answer, "127.0.0.1", port, compression=None) as running:
        await running.serve_forever()


def main(port: str) -> None:
    """Serve on a port of loopback."""
    asyncio.run(serve_forever(int(port)))


if __name__ == "__main__":
    main(*sys.argv[1:])
