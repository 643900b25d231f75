"""Driving many sessions at once, and the pipe on which a client's process is asked for its rate.

Rule 1: only the standard library: OpenEnv's client in its own virtual environment runs this very code.
Rule 2: every session has one request under way and sends the next when the reply is there; the clock stops when the
    last reply came.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence

from bench.measure import rate

Step = Callable[[], Awaitable[object]]
"""One step of one session, reply included."""

MESSAGE = "the quick brown fox jumps over"


async def rate_of_all(steps: Sequence[Step], seconds: float, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the steps a second of all sessions together."""
    begun = clock()
    until = begun + seconds
    counts = await asyncio.gather(*(_steps_until(step, until, clock) for step in steps))
    return sum(counts) / (clock() - begun)


async def _steps_until(step: Step, until: float, clock: Callable[[], float]) -> int:
    """Return how many steps one session made; it makes one at least."""
    count = 0
    while True:
        await step()
        count += 1
        if clock() >= until:
            return count


async def answer_rates(measure: Callable[[float], Awaitable[float]]) -> None:
    """Answer every `go SECONDS` on standard input with one line, `{"rate": ...}`, until the input ends.

    Between two questions the event loop runs, so that pings are answered.
    """
    answers = _answers()
    _say(answers, {"ready": True})
    while line := await asyncio.to_thread(sys.stdin.readline):
        _say(answers, {"rate": await measure(float(line.split()[1]))})


def answer_rates_of(chunk: Callable[[], int]) -> None:
    """Answer as `answer_rates` does, for what is no coroutine; chunks are as for `measure.rate`."""
    asyncio.run(answer_rates(lambda seconds: asyncio.to_thread(rate, chunk, seconds)))


def _answers() -> int:
    """Return the file on which answers are given; whatever else a package prints goes to standard error."""
    answers = os.dup(1)
    os.dup2(2, 1)
    return answers


def _say(answers: int, what: dict[str, float]) -> None:
    os.write(answers, json.dumps(what).encode("ascii") + b"\n")
