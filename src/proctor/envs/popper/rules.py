"""The settings of Column Popper, checked once; every value that is refused names its clause."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from proctor.contracts.arguments import parse_count
from proctor.envs.popper.rewards import RewardTable, parse_reward_table
from proctor.envs.popper.schedule import Curve, Schedule, parse_schedule
from proctor.errors import ValidationError

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
