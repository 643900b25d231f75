"""What a row of the benchmark is: a subject, an anchor, and what their ratio should reach.

Adding a row is adding one `Row` to a table in `bench/rows/`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum

from bench.measure import Probe, Samples

Opener = Callable[[ExitStack], Probe]
"""Builds what is measured, leaves its closing to the stack, and returns the probe; raises a Gap if it cannot."""


class Better(StrEnum):
    """Which way a row's value should go."""

    HIGHER = "higher"
    LOWER = "lower"


class Sense(StrEnum):
    """How a number is held against its bound."""

    AT_LEAST = ">="
    BELOW = "<"


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound for the ratio or for the value itself."""

    of: str
    sense: Sense
    bound: float

    def met_by(self, samples: Samples) -> bool:
        """Return whether the samples reach the goal."""
        found = samples.ratio if self.of == "ratio" else samples.value
        return found >= self.bound if self.sense is Sense.AT_LEAST else found < self.bound

    def __str__(self) -> str:
        return f"{self.of} {self.sense} {self.bound:g}"


def ratio_at_least(bound: float) -> Goal:
    """Return the goal that the subject is `bound` times its anchor."""
    return Goal("ratio", Sense.AT_LEAST, bound)


def ratio_below(bound: float) -> Goal:
    """Return the goal that the subject costs less than `bound` times its anchor."""
    return Goal("ratio", Sense.BELOW, bound)


def value_at_least(bound: float) -> Goal:
    """Return the goal that the subject itself reaches `bound`, in the row's unit."""
    return Goal("value", Sense.AT_LEAST, bound)


def value_below(bound: float) -> Goal:
    """Return the goal that the subject itself stays below `bound`, in the row's unit."""
    return Goal("value", Sense.BELOW, bound)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `tier` and `durability` say how isolated and how recorded the subject was."""

    name: str
    subject: Opener
    anchor: Opener
    anchor_name: str
    goal: Goal | None = None
    unit: str = "steps/s"
    better: Better = Better.HIGHER
    note: str = ""
    tier: str = "in-process"
    durability: str = "none"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a row: samples, or the reason why there are none."""

    row: Row
    samples: Samples | None = None
    gap: str | None = None
    failed: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; None without a goal or without samples."""
        if self.row.goal is None or self.samples is None:
            return None
        return self.row.goal.met_by(self.samples)


def chosen(rows: tuple[Row, ...], prefix: str) -> tuple[Row, ...]:
    """Return the rows whose names start with `prefix`."""
    return tuple(row for row in rows if row.name.startswith(prefix))
