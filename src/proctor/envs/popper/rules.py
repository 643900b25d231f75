"""The settings of Column Popper, checked once (every value that is refused names its clause), and when rows fall by them.

Rule 1: time is simulated, in whole milliseconds, so that every fall comes at a step that can be computed. It moves in ticks
    of `action_ms`. A tick at time t brings a fall if t minus the last fall's time is at least the interval that holds at t;
    the wait for the next one then starts anew. So a tick brings one fall at most.
Rule 2: no floats. Seconds are for people and are made where they are shown.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import itemgetter
from typing import Any, Final, TypeAlias

import numpy as np

from proctor.contracts.arguments import parse_count
from proctor.envs.popper.rewards import RewardTable, parse_reward_table
from proctor.errors import ValidationError

Curve: TypeAlias = tuple[tuple[int, int], ...]  # pairs (from this millisecond on, a fall every so many milliseconds)

LONGEST: Final = 1_000_000_000
STANDARD_CURVE: Final[Curve] = ((0, 3_000), (20_000, 2_000), (40_000, 1_000))
HIGHEST: Final = 64
WIDEST: Final = 16
LARGEST_VALUE: Final = 9
CONTRACT_BOARD: Final = (12, 3)
MANUAL_FALLS: Final = ("one_row", "fast_forward")


@dataclass(frozen=True, slots=True)
class Schedule:
    """The clock of a game: how long it lasts, what an action takes, and how often rows fall."""

    duration_ms: int = 60_000
    action_ms: int = 100
    fall_curve: Curve = STANDARD_CURVE

    @property
    def last_tick(self) -> int:
        """When time is up: the first tick at or after the duration."""
        return -(-self.duration_ms // self.action_ms) * self.action_ms

    def interval_at(self, elapsed: int) -> tuple[int, float]:
        """Return the fall interval that holds at `elapsed`, and until when; the last one holds for ever."""
        stretch = bisect_right(self.fall_curve, elapsed, key=itemgetter(0))
        until = self.fall_curve[stretch][0] if stretch < len(self.fall_curve) else math.inf
        return self.fall_curve[stretch - 1][1], until

    def next_fall(self, last_fall: int) -> int:
        """Return the tick of the next scheduled fall, given the tick of the last one; it may lie after time-up."""
        due = 0
        for stretch, (begins, interval) in enumerate(self.fall_curve, 1):
            wait = max(interval, begins - last_fall)
            due = last_fall - -wait // self.action_ms * self.action_ms
            if stretch == len(self.fall_curve) or due < self.fall_curve[stretch][0]:
                break
        return due

    def falls(self) -> Iterator[int]:
        """Yield the ticks of all scheduled falls of a game without a manual one."""
        due = self.next_fall(0)
        while due <= self.last_tick:
            yield due
            due = self.next_fall(due)


@dataclass(frozen=True, slots=True, kw_only=True)
class PopperRules(Schedule):
    """All that makes a game what it is, but for its seed."""

    height: int
    columns: int
    number_pool: tuple[int, ...]
    strict_invalid: bool
    include_time_left_norm: bool
    manual_fall: str
    rewards: RewardTable

    @property
    def fast_forward(self) -> bool:
        """Whether a manual fall takes the clock to the next scheduled one."""
        return self.manual_fall == "fast_forward"


def parse_rules(**settings: Any) -> PopperRules:
    """Return the rules of these settings, or raise a ValidationError that names the clause."""
    parsed = {name: parse(settings[name]) for name, parse in PARSERS.items()}
    return PopperRules(**parsed, rewards=parse_reward_table(settings["reward_preset"]))


def _parse_manual_fall(value: Any) -> str:
    if not isinstance(value, str) or value not in MANUAL_FALLS:
        raise ValidationError(
            "unknown manual fall", found=value, expected=" or ".join(MANUAL_FALLS), clause="POP-INIT-P5"
        )
    return value


def _parse_flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise ValidationError(f"{name} is no flag", found=value, expected="True or False", clause="POP-INIT-P2")
    return bool(value)


def _parse_pool(pool: Any) -> tuple[int, ...]:
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


def _parse_curve(curve: Any) -> Curve:
    if isinstance(curve, Sequence) and all(isinstance(pair, Sequence) and len(pair) == 2 for pair in curve):
        checked = tuple(
            (
                parse_count("the start of a fall interval", begins, 0, LONGEST, clause="POP-INIT-P4"),
                parse_count("a fall interval", interval, 1, LONGEST, clause="POP-INIT-P4"),
            )
            for begins, interval in curve
        )
        if checked and checked[0][0] == 0 and all(one < other for (one, _), (other, _) in pairwise(checked)):
            return checked
    raise ValidationError(
        "not a fall curve",
        found=curve,
        expected="pairs (from_ms, interval_ms), the first from 0, each later than the one before",
        clause="POP-INIT-P4",
    )


PARSERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "height": partial(parse_count, "height", least=1, most=HIGHEST, clause="POP-INIT-P7"),
    "columns": partial(parse_count, "columns", least=1, most=WIDEST, clause="POP-INIT-P7"),
    "number_pool": _parse_pool,
    "strict_invalid": partial(_parse_flag, "strict_invalid"),
    "include_time_left_norm": partial(_parse_flag, "include_time_left_norm"),
    "duration_ms": partial(parse_count, "duration_ms", least=1, most=LONGEST, clause="POP-INIT-P3"),
    "action_ms": partial(parse_count, "action_ms", least=1, most=LONGEST, clause="POP-INIT-P3"),
    "fall_curve": _parse_curve,
    "manual_fall": _parse_manual_fall,
}
"""How each setting is checked, but for the rewards."""
