"""The client of the bare echo as a child: `python -m bench.echo_client URL`; it sends what a step of ours would send."""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from websockets.asyncio.client import connect

from bench.control_load import MESSAGE, answer_rates, rate_of_all

REQUEST: Final = (
    f'{{"type":"step","id":1000,"session":"0123456789abcdef0123","epoch":1,"data":{{"message":"{MESSAGE}"}}}}'
)


async def drive(url: str) -> None:
    """Answer every `go SECONDS` with the frames a second, there and back."""
    async with connect(url.replace("http", "ws", 1), compression=None, proxy=None) as connection:

        async def step() -> None:
            await connection.send(REQUEST)
            await connection.recv()

        await answer_rates(lambda seconds: rate_of_all([step], seconds))


if __name__ == "__main__":
    asyncio.run(drive(*sys.argv[1:]))
