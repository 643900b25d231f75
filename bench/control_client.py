"""Our own client as a child: `python -m bench.control_client URL SESSIONS WAY`.

WAY is `async` (a connection for each session, as OpenEnv's client has it), `shared` (all sessions on one
connection), or `sync` for the synchronous face (one session). Credentials stand in the URL.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack

from bench.control_env import EchoAction, EchoObservation
from bench.control_load import MESSAGE, Step, answer_rates, answer_rates_of, rate_of_all
from proctor.client import Connection, EnvClient
from proctor.models.wire import State

ACTION = EchoAction(message=MESSAGE)
CHUNK = 32


class EchoClient(EnvClient[EchoAction, EchoObservation, State]):
    """The echo's client."""


def stepping(client: EchoClient) -> Step:
    """Return one step of a session that is open and reset."""
    return lambda: client.step(ACTION)


async def drive(url: str, sessions: int, *, shared: bool) -> None:
    """Measure the asynchronous client."""
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(Connection(url)) if shared else url
        clients = [await stack.enter_async_context(EchoClient(connection)) for _ in range(sessions)]
        for client in clients:
            await client.reset(seed=0)
        steps = [stepping(client) for client in clients]
        await answer_rates(lambda seconds: rate_of_all(steps, seconds))


def drive_sync(url: str) -> None:
    """Measure the synchronous face."""
    with EchoClient.blocking(url) as client:
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
        asyncio.run(drive(url, int(sessions), shared=way == "shared"))


if __name__ == "__main__":
    main(*sys.argv[1:])
