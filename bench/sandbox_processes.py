"""Workers and whole processes, started, measured from outside and ended.

Rule 1: memory is what the system says of processes: their proportional shares (`Pss`), which add up to what they really use,
    pages that they share counted once.
Rule 2: a host that does not enforce the tier is a Gap that says why.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from statistics import median
from typing import IO, Final

from bench.measure import Gap, Probe
from bench.peers import ROOT
from bench.row import Opener
from bench.sandbox_alone import ACTION, ORDER, STEPS
from proctor.envs.targets import Target
from proctor.server.sandbox.messages import Work
from proctor.server.sandbox.pool.worker_executor import WorkerExecutor
from proctor.server.sandbox.pool.worker_pool import WorkerPool
from proctor.server.sandbox.probe import quick_report, refusal
from proctor.server.sandbox.tiers import SandboxRequest, Tier

TARGET: Final = "CartPole-v1"
WORK: Final = Work(TARGET, {}, False, False, None, None, False)
HELD: Final = 32
ALONE: Final = 4
FEWEST: Final = 3
MS: Final = 1000.0
KB: Final = 1024
PROC: Final = Path("/proc")


@cache
def gap_of(tier: Tier) -> str | None:
    """Return why this host does not enforce a tier, None if it does."""
    wish = SandboxRequest(tier)
    return refusal(wish, quick_report(wish))


def enforced(tier: Tier) -> None:
    """Raise a Gap if this host does not enforce a tier."""
    reason = gap_of(tier)
    if reason is not None:
        raise Gap(reason)


# ------------------------------------------------------------------------------------------------------------- workers
class Brood:
    """A worker pool with its event loop, used from outside of one."""

    def __init__(self, stack: ExitStack, tier: Tier) -> None:
        enforced(tier)
        self._pool = WorkerPool.start(Target(TARGET), SandboxRequest(tier), tier)
        stack.callback(self._pool.end)
        self._runner = stack.enter_context(asyncio.Runner())

    def start(self) -> WorkerExecutor:
        """Return a worker whose environment is made."""
        return self._runner.run(self._pool.start_worker(WORK))

    def stepped(self) -> WorkerExecutor:
        """Return a worker that has been reset and stepped."""
        return self._runner.run(self._stepped())

    def close(self, place: WorkerExecutor) -> None:
        """Close a worker's environment and end it."""
        self._runner.run(place.close())

    async def _stepped(self) -> WorkerExecutor:
        place = await self._pool.start_worker(WORK)
        await place.reset(ORDER)
        for _ in range(STEPS):
            await place.step(ACTION)
        return place


def worker_start(tier: Tier) -> Opener:
    """Milliseconds from the wish for a session to its made environment, the median of those that a sample has time for."""

    def opened(stack: ExitStack) -> Probe:
        brood = Brood(stack, tier)

        def once() -> float:
            begun = time.perf_counter()
            place = brood.start()
            elapsed = time.perf_counter() - begun
            brood.close(place)
            return elapsed

        return lambda seconds: MS * median_of(once, seconds)

    return opened


def worker_memory(tier: Tier) -> Opener:
    """Bytes that each of many sessions adds to what the sandbox's processes use together."""

    def opened(stack: ExitStack) -> Probe:
        brood = Brood(stack, tier)

        def probe(_seconds: float) -> float:
            before = shares()
            places = [brood.stepped() for _ in range(HELD)]
            added = shares() - before
            for place in places:
                brood.close(place)
            return added / HELD

        return probe

    return opened


# ----------------------------------------------------------------------------------------------------- whole processes
def process_start() -> Opener:
    """Milliseconds from the start of a whole process to its made environment."""

    def once() -> float:
        begun = time.perf_counter()
        with ExitStack() as stack:
            alone(stack, "made")
            return time.perf_counter() - begun

    return lambda _stack: lambda seconds: MS * median_of(once, seconds)


def process_memory() -> Opener:
    """Bytes that each of a few whole processes uses."""

    def probe(_seconds: float) -> float:
        with ExitStack() as stack:
            before = shares()
            for _ in range(ALONE):
                alone(stack, "stepped")
            return (shares() - before) / ALONE

    return lambda _stack: probe


def alone(stack: ExitStack, until: str) -> None:
    """Start a whole process, and return when it has said a word; `stack` ends it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.sandbox_alone", TARGET],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    stack.enter_context(process)
    # Killed, not asked to end: what is measured is how it begins.
    stack.callback(process.kill)
    if until not in iter(_line_of(process.stdout), ""):
        raise ChildProcessError("a whole process did not come up")


def _line_of(pipe: IO[str] | None) -> Callable[[], str]:
    return lambda: "" if pipe is None else pipe.readline().strip()


# ------------------------------------------------------------------------------------------------------------- measures
def median_of(once: Callable[[], float], seconds: float, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the median of what `once` returns, asked a few times at least and until `seconds` are over."""
    until = clock() + seconds
    found: list[float] = []
    while clock() < until or len(found) < FEWEST:
        found.append(once())
    return median(found)


def shares() -> int:
    """Return the bytes of memory that the processes below this one use together."""
    if not (PROC / "self" / "smaps_rollup").exists() or not list((PROC / "self" / "task").glob("*/children")):
        raise Gap("shares of memory and children are read from /proc, which this system lacks")
    return sum(map(share_of, descendants()))


def share_of(pid: int) -> int:
    """Return a process's share of memory in bytes; one that is gone has none."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in (PROC / str(pid) / "smaps_rollup").read_text("ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * KB
    return 0


def descendants(pid: int | str = "self") -> Iterator[int]:
    """Yield the numbers of all processes below one."""
    for task in (PROC / str(pid) / "task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            for child in map(int, task.read_text("ascii").split()):
                yield child
                yield from descendants(child)
