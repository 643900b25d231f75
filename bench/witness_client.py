"""A witness as a child: `python -m bench.witness_client URL ACTION`, one session that steps while somebody else misbehaves.

It answers every `go SECONDS` with the 99th percentile of its steps' seconds in that time. Each step waits for the one before and for
a short pause: without the pause a long stall would be one late step among thousands of quick ones, and nobody would see it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from bench.control_load import Step, answer_rates
from proctor.client import GenericClient, JsonAction

PAUSE: Final = 0.001


def percentile(values: Sequence[float], hundredths: int) -> float:
    """Return the smallest of the values that at least so many hundredths of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-hundredths * len(ordered) // 100) - 1)]


async def measure_p99(
    step: Step,
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> float:
    """Return the 99th percentile of the seconds that a step takes; there is one step at least."""
    took: list[float] = []
    until = clock() + seconds
    while (begun := clock()) < until or not took:
        await step()
        took.append(clock() - begun)
        await sleep(PAUSE)
    return percentile(took, 99)


async def drive(url: str, action: str) -> None:
    """Open a session and measure it until the input ends."""
    chosen = JsonAction(**json.loads(action))
    async with GenericClient(url) as client:
        await client.reset(seed=0)
        await answer_rates(lambda seconds: measure_p99(lambda: client.step(chosen), seconds))


if __name__ == "__main__":
    asyncio.run(drive(*sys.argv[1:]))
