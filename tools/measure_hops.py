"""Count what one step and one governed tool call go through: calls, functions and files of `proctor`, on all sides together.

    python -m tools.measure_hops              # a table
    python -m tools.measure_hops --list step  # every function of one step with its calls, in the order of the first

Client and server share one process and one event loop. A call is what `sys.setprofile` reports: a Python function that begins, or
a coroutine that goes on. Each number is of the median of many calls, after some that warm up.
"""

import argparse
import asyncio
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import proctor
from bench.agents_plain import connected, governed
from bench.control_client import ACTION, EchoClient
from proctor.server.app import Keys, Listening, Server
from proctor.server.net.uvicorn_server import bind_tcp, port_of
from proctor.server.settings import parse_settings

SOURCE: Final = str(Path(proctor.__file__).parent)
TARGET: Final = "bench.control_env:quick"
WARM_UP: Final = 20
MEASURED: Final = 31
Call = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Hops:
    """What one call went through."""

    counts: Counter[CodeType]

    @property
    def calls(self) -> int:
        """How many functions began or went on."""
        return self.counts.total()

    @property
    def files(self) -> int:
        """In how many files they are."""
        return len({code.co_filename for code in self.counts})


class Profile:
    """Counts the calls of this process's threads between `reset` and `read`."""

    def __init__(self) -> None:
        self._counts: Counter[CodeType] = Counter()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Count in this thread and in those that it starts."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def reset(self) -> None:
        """Begin at nothing."""
        self._counts = Counter()

    def read(self) -> Hops:
        """Return what was counted since `reset`."""
        return Hops(self._counts)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            self._counts[frame.f_code] += 1


async def measure(call: Call, profile: Profile) -> Hops:
    """Return the hops of the median call."""
    for _ in range(WARM_UP):
        await call()
    found = []
    for _ in range(MEASURED):
        profile.reset()
        await call()
        found.append(profile.read())
    return sorted(found, key=lambda hops: hops.calls)[MEASURED // 2]


@asynccontextmanager
async def serve(folder: Path, **settings: object) -> AsyncIterator[str]:
    """Serve an echo with a ledger on this event loop; yield the address of its control plane."""
    made = parse_settings({"target": TARGET, "insecure": True, "sandbox": "none", "ledger": folder, **settings})
    listener = bind_tcp("127.0.0.1", 0)
    agents = None if made.agent_port is None else bind_tcp("127.0.0.1", 0)
    server = Server(made, Keys(None, None), Listening([listener], agents=agents))
    ready = asyncio.Event()
    serving = asyncio.create_task(server.serve(ready.set))
    try:
        await ready.wait()
        yield f"http://127.0.0.1:{port_of(listener)}"
    finally:
        server.stop()
        await serving


@asynccontextmanager
async def open_step(folder: Path) -> AsyncIterator[Call]:
    """Yield one step of a session whose server keeps a ledger."""
    async with serve(folder) as url, EchoClient(url) as client:
        await client.reset(seed=0)
        yield lambda: client.step(ACTION)


@asynccontextmanager
async def open_governed_call(folder: Path) -> AsyncIterator[Call]:
    """Yield one tool call of a governed agent that has leave for many."""
    async with (
        serve(folder, agent_port=0, governed="open") as url,
        EchoClient(url) as client,
        AsyncExitStack() as stack,
    ):
        await client.reset(seed=0, grant=True)
        if client.granted is None:
            raise RuntimeError("there was no grant")
        ask = await connected(stack, client.granted.address)
        yield governed(ask, client.granted.address, client.granted.token)


WAYS: Final = {"step": open_step, "governed": open_governed_call}


async def measure_way(way: str) -> Hops:
    """Return the hops of one of `WAYS`."""
    profile = Profile()
    with tempfile.TemporaryDirectory() as folder, profile.installed():
        async with WAYS[way](Path(folder)) as call:
            return await measure(call, profile)


def format_table(found: dict[str, Hops]) -> str:
    """Return the numbers of each way, one way a line."""
    lines = [f"{'':10}{'calls':>8}{'functions':>11}{'files':>7}"]
    lines += [f"{way:10}{hops.calls:8}{len(hops.counts):11}{hops.files:7}" for way, hops in found.items()]
    return "\n".join(lines)


def format_functions(hops: Hops) -> str:
    """Return every function with its calls, one a line."""
    return "\n".join(
        f"{count:4}  {Path(code.co_filename).relative_to(SOURCE)}:{code.co_firstlineno}  {code.co_qualname}"
        for code, count in hops.counts.items()
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table, or the functions of one way."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", choices=list(WAYS), help="print the functions of one way")
    given = parser.parse_args(arguments)
    if given.list is not None:
        print(format_functions(asyncio.run(measure_way(given.list))))
    else:
        print(format_table({way: asyncio.run(measure_way(way)) for way in WAYS}))


if __name__ == "__main__":
    main()
