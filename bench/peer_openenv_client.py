"""OpenEnv's own client as a child: `python -m bench.peer_openenv_client URL SESSIONS WAY`; it drives either server.

WAY is `async`, or `sync` for the client's synchronous face (one session). Credentials stand in the URL.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack

from openenv.core.generic_client import GenericEnvClient

from bench.control_load import MESSAGE, Step, answer_rates, answer_rates_of, rate_of_all

ACTION = {"message": MESSAGE}
CHUNK = 32


def stepping(client: GenericEnvClient) -> Step:
    """Return one step of a session that is open and reset."""
    return lambda: client.step(ACTION)


async def drive(url: str, sessions: int) -> None:
    """Measure the asynchronous client."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(GenericEnvClient(base_url=url)) for _ in range(sessions)]
        for client in clients:
            await client.reset(seed=0)
        steps = [stepping(client) for client in clients]
        await answer_rates(lambda seconds: rate_of_all(steps, seconds))


def drive_sync(url: str) -> None:
    """Measure the synchronous face."""
    with GenericEnvClient(base_url=url).sync() as client:
        client.reset(seed=0)

        def chunk() -> int:
            for _ in range(CHUNK):
                client.step(ACTION)
            return CHUNK

        answer_rates_of(chunk)


def main(url: str, sessions: str = "1", way: str = "async") -> None:
    """Answer every `go SECONDS` with the steps a second."""
    if way == "sync":
        drive_sync(url)
    else:
        asyncio.run(drive(url, int(sessions)))


if __name__ == "__main__":
    main(*sys.argv[1:])
