"""The settings of Column Popper, checked once (every value that is refused names its clause), and when rows fall by them.

Rule 1: time is simulated, in whole milliseconds, so that every fall comes at a step that can be computed. It moves in ticks
    of `action_ms`. A tick at time t brings a fall if t minus the last fall's time is at least the interval that holds at t;
    the wait for the next one then starts anew. So a tick brings one fall at most.
Rule 2: no floats. Seconds are for people and are made where they are shown.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Any, Final, TypeAlias

import numpy as np

from proctor.contracts.arguments import parse_count
from proctor.envs.popper.rewards import RewardTable, parse_reward_table
from proctor.errors import ValidationError

Curve: TypeAlias = tuple[tuple[int, int], ...]
"""Pairs (from this millisecond on, a fall every so many milliseconds)."""

LONGEST: Final = 1_000_000_000
STANDARD_CURVE: Final[Curve] = ((0, 3_000), (20_000, 2_000), (40_000, 1_000))


@dataclass(frozen=True, slots=True)
class Schedule:
    """The clock of a game: how long it lasts, what an action takes, and how often rows fall."""

    duration_ms: int = 60_000
    action_ms: int = 100
    curve: Curve = STANDARD_CURVE

    @property
    def last_tick(self) -> int:
        """When time is up: the first tick at or after the duration."""
        return -(-self.duration_ms // self.action_ms) * self.action_ms

    def interval_at(self, elapsed: int) -> tuple[int, float]:
        """Return the fall interval that holds at `elapsed`, and until when; the last one holds for ever."""
        stretch = bisect_right(self.curve, elapsed, key=itemgetter(0))
        return self.curve[stretch - 1][1], self.curve[stretch][0] if stretch < len(self.curve) else math.inf

    def next_fall(self, last_fall: int) -> int:
        """Return the tick of the next scheduled fall, given the tick of the last one; it may lie after time-up."""
        candidates = (
            (self._first_tick(last_fall, max(last_fall + interval, begins)), ends)
            for begins, interval, ends in self._stretches()
        )
        return next(due for due, ends in candidates if due < ends)

    def falls(self) -> Iterator[int]:
        """Yield the ticks of all scheduled falls of a game without a manual one."""
        due = self.next_fall(0)
        while due <= self.last_tick:
            yield due
            due = self.next_fall(due)

    def _first_tick(self, last_fall: int, moment: float) -> int:
        """Return the first tick at or after `moment`, which lies after `last_fall`."""
        return last_fall - int(last_fall - moment) // self.action_ms * self.action_ms

    def _stretches(self) -> Iterator[tuple[float, int, float]]:
        """Yield (begins, interval, ends) for each stretch of the curve; the last one never ends."""
        for (begins, interval), (ends, _) in pairwise((*self.curve, (math.inf, 0))):
            yield begins, interval, ends


HIGHEST: Final = 64
WIDEST: Final = 16
LARGEST_VALUE: Final = 9
CONTRACT_BOARD: Final = (12, 3)
MANUAL_FALLS: Final = ("one_row", "fast_forward")

Pool: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PopperRules:
    """All that makes a game what it is, but for its seed."""

    height: int
    columns: int
    number_pool: Pool
    strict_invalid: bool
    include_time_left_norm: bool
    schedule: Schedule
    manual_fall: str
    rewards: RewardTable

    @property
    def duration_ms(self) -> int:
        """How long a game lasts."""
        return self.schedule.duration_ms

    @property
    def action_ms(self) -> int:
        """How long an action takes."""
        return self.schedule.action_ms

    @property
    def fall_curve(self) -> Curve:
        """How often rows fall, by the time."""
        return self.schedule.curve

    @property
    def fast_forward(self) -> bool:
        """Whether a manual fall takes the clock to the next scheduled one."""
        return self.manual_fall == "fast_forward"


def parse_rules(
    *,
    height: Any,
    columns: Any,
    number_pool: Any,
    strict_invalid: Any,
    include_time_left_norm: Any,
    duration_ms: Any,
    action_ms: Any,
    fall_curve: Any,
    manual_fall: Any,
    reward_preset: Any,
) -> PopperRules:
    """Return the rules of these settings, or raise a ValidationError that names the clause."""
    if not isinstance(manual_fall, str) or manual_fall not in MANUAL_FALLS:
        raise ValidationError(
            "unknown manual fall", found=manual_fall, expected=" or ".join(MANUAL_FALLS), clause="POP-INIT-P5"
        )
    return PopperRules(
        parse_count("height", height, 1, HIGHEST, clause="POP-INIT-P7"),
        parse_count("columns", columns, 1, WIDEST, clause="POP-INIT-P7"),
        _parse_pool(number_pool),
        _parse_flag("strict_invalid", strict_invalid),
        _parse_flag("include_time_left_norm", include_time_left_norm),
        parse_schedule(duration_ms, action_ms, fall_curve),
        manual_fall,
        parse_reward_table(reward_preset),
    )


def _parse_flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise ValidationError(f"{name} is no flag", found=value, expected="True or False", clause="POP-INIT-P2")
    return bool(value)


def _parse_pool(pool: Any) -> Pool:
    # A set has no order, and the order decides which game a seed gives.
    if isinstance(pool, Sequence | np.ndarray) and not isinstance(pool, str | bytes):
        values = tuple(
            parse_count("a number of the pool", value, 1, LARGEST_VALUE, clause="POP-INIT-P1") for value in pool
        )
        if values and len(set(values)) == len(values):
            return values
    raise ValidationError(
        "not a number pool",
        found=pool,
        expected=f"a list of one or more different integers from 1 to {LARGEST_VALUE}",
        clause="POP-INIT-P1",
    )


def parse_schedule(duration_ms: Any, action_ms: Any, fall_curve: Any) -> Schedule:
    """Return the schedule of these settings, or raise a ValidationError that names the clause."""
    return Schedule(
        parse_count("duration_ms", duration_ms, 1, LONGEST, clause="POP-INIT-P3"),
        parse_count("action_ms", action_ms, 1, LONGEST, clause="POP-INIT-P3"),
        _parse_curve(fall_curve),
    )


def _parse_curve(curve: Any) -> Curve:
    pairs = isinstance(curve, Sequence) and all(isinstance(pair, Sequence) and len(pair) == 2 for pair in curve)
    if not pairs or not curve or isinstance(curve, str):
        raise _curve_error(curve)
    checked = tuple(
        (
            parse_count("the start of a fall interval", begins, 0, LONGEST, clause="POP-INIT-P4"),
            parse_count("a fall interval", interval, 1, LONGEST, clause="POP-INIT-P4"),
        )
        for begins, interval in curve
    )
    starts = [begins for begins, _ in checked]
    if starts[0] != 0 or any(one >= other for one, other in pairwise(starts)):
        raise _curve_error(curve)
    return checked


def _curve_error(curve: object) -> ValidationError:
    return ValidationError(
        "not a fall curve",
        found=curve,
        expected="pairs (from_ms, interval_ms), the first from 0, each later than the one before",
        clause="POP-INIT-P4",
    )
