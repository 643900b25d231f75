"""Measuring two things side by side: interleaved repeats, medians, their ratio.

Rule 1: a ratio is made of numbers of one run only, subject and anchor by turns, so that both see the same machine.
Rule 2: only the standard library: a peer's process in its own virtual environment runs this very code.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

Probe = Callable[[float], float]
"""Measures for about so many seconds and returns one number in the row's unit."""


class Gap(Exception):
    """Something that a row needs is not there; the message says what, and stands in the table in place of numbers."""


@dataclass(frozen=True, slots=True)
class Samples:
    """What subject and anchor measured; `subject[k]` and `anchor[k]` were measured one after the other."""

    subject: tuple[float, ...]
    anchor: tuple[float, ...]

    @property
    def value(self) -> float:
        """The subject's median."""
        return median(self.subject)

    @property
    def anchor_value(self) -> float:
        """The anchor's median."""
        return median(self.anchor)

    @property
    def ratio(self) -> float:
        """The subject's median over the anchor's."""
        return quotient(self.value, self.anchor_value)

    @property
    def spread(self) -> tuple[float, float]:
        """The lowest and the highest ratio of neighbours."""
        ratios = [quotient(value, anchor) for value, anchor in zip(self.subject, self.anchor, strict=True)]
        return min(ratios), max(ratios)


def quotient(value: float, anchor: float) -> float:
    """Return value / anchor; by an anchor of 0, which a coarse clock can give, infinity, and 0 / 0 is 1."""
    if anchor:
        return value / anchor
    return float("inf") if value else 1.0


def interleaved(
    subject: Probe, anchor: Probe, repeats: int, seconds: float, settle: Callable[[], object] = gc.collect
) -> Samples:
    """Return `repeats` samples of each, taken by turns; both are warmed up once before."""
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, not {repeats}")
    for probe in (subject, anchor):
        probe(min(seconds, 0.05))
    pairs = [tuple(_settled(probe, seconds, settle) for probe in (subject, anchor)) for _ in range(repeats)]
    return Samples(tuple(first for first, _ in pairs), tuple(second for _, second in pairs))


def _settled(probe: Probe, seconds: float, settle: Callable[[], object]) -> float:
    settle()
    return probe(seconds)


def rate(chunk: Callable[[], int], seconds: float, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return how many units a second `chunk` does; it is called until `seconds` are over and returns its units."""
    units = 0
    begun = clock()
    while True:
        units += chunk()
        elapsed = clock() - begun
        if elapsed >= seconds and elapsed > 0.0:
            return units / elapsed


def rate_of(chunk: Callable[[], int]) -> Probe:
    """Return the probe that measures the rate of `chunk`."""
    return lambda seconds: rate(chunk, seconds)


def drawn_actions(count: int, kinds: int, seed: int = 0) -> list[int]:
    """Return `count` random actions of a `Discrete(kinds)` space, drawn before anything is timed."""
    return random.Random(seed).choices(range(kinds), k=count)


def stepping(env: object, actions: Sequence[object]) -> Callable[[], int]:
    """Return a chunk that makes one step with each action, and resets where an episode ends."""
    step = env.step  # type: ignore[attr-defined]  # any Gymnasium environment, of any version
    reset = env.reset  # type: ignore[attr-defined]

    def chunk() -> int:
        for action in actions:
            _, _, terminated, truncated, _ = step(action)
            if terminated or truncated:
                reset()
        return len(actions)

    return chunk
