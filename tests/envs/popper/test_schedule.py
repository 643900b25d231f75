"""Rows fall at steps that anybody can compute."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.envs.popper.schedule import LONGEST, STANDARD_CURVE, Schedule, parse_schedule
from proctor.errors import ValidationError
from tests.envs.popper.games import curves

STANDARD_FALLS = [3, 6, 9, 12, 15, 18, *range(20, 41, 2), *range(41, 61)]


def test_the_standard_falls_are_those_of_the_contract() -> None:
    seconds = [tick / 1000 for tick in Schedule().falls()]

    assert seconds == STANDARD_FALLS
    assert len(seconds) == 37


def ticked(schedule: Schedule, ticks: int) -> list[int]:
    """Return the falls of the first ticks, by an accumulator that is read at every tick."""
    falls, accumulated = [], 0
    for tick in range(1, ticks + 1):
        elapsed = tick * schedule.action_ms
        accumulated += schedule.action_ms
        if accumulated >= schedule.interval_at(elapsed)[0]:
            falls.append(elapsed)
            accumulated = 0
    return falls


@given(duration=st.integers(1, 20_000), action=st.integers(1, 900), curve=curves())
def test_computed_falls_are_those_that_ticking_finds(duration: int, action: int, curve: list[tuple[int, int]]) -> None:
    schedule = parse_schedule(duration, action, curve)

    assert list(schedule.falls()) == ticked(schedule, schedule.last_tick // action)


@given(curve=curves(), elapsed=st.integers(0, 20_000))
def test_the_interval_is_that_of_the_last_stretch_that_has_begun(curve: list[tuple[int, int]], elapsed: int) -> None:
    schedule = parse_schedule(1, 1, curve)

    interval, until = schedule.interval_at(elapsed)

    assert interval == [interval for begins, interval in curve if begins <= elapsed][-1]
    assert until == min((begins for begins, _ in curve if begins > elapsed), default=math.inf)


@given(duration=st.integers(1, 10_000), action=st.integers(1, 10_000))
def test_the_last_tick_is_the_first_at_or_after_the_duration(duration: int, action: int) -> None:
    last = Schedule(duration, action).last_tick

    assert last % action == 0
    assert last - action < duration <= last


@pytest.mark.parametrize("duration", [0, -1, 1.5, True, "60", LONGEST + 1, None])
def test_a_duration_is_whole_milliseconds(duration: Any) -> None:
    with pytest.raises(ValidationError, match="POP-INIT-P3"):
        parse_schedule(duration, 100, STANDARD_CURVE)


@pytest.mark.parametrize("action", [0, 100.0, True, LONGEST + 1])
def test_an_action_takes_whole_milliseconds(action: Any) -> None:
    with pytest.raises(ValidationError, match="POP-INIT-P3"):
        parse_schedule(60_000, action, STANDARD_CURVE)


@pytest.mark.parametrize(
    "curve",
    [
        (),
        "ab",
        None,
        5,
        [(1, 100)],
        [(0, 0)],
        [(0, 100.0)],
        [(0, 100), (0, 50)],
        [(0, 100), (50, 60), (20, 60)],
        [(0, 100, 5)],
        [0, 100],
        [(0, True)],
        ["ab"],
    ],
)
def test_a_curve_is_pairs_in_the_order_of_time(curve: Any) -> None:
    with pytest.raises(ValidationError, match="POP-INIT-P4"):
        parse_schedule(60_000, 100, curve)
