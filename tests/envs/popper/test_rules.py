"""Settings are checked once, every refusal names its clause, and rows fall at steps that anybody can compute."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.envs.popper.env import ColumnPopperEnv
from proctor.envs.popper.rules import LONGEST, Schedule
from proctor.errors import ValidationError
from tests.envs.popper.games import curves, settings_of_a_game

NO_CURVES: list[Any] = [
    (),
    "ab",
    "",
    None,
    5,
    [(5, 5)],
    [(0, 0)],
    [(0, 100.0)],
    [(0, 100), (0, 50)],
    [(0, 100), (50, 60), (20, 60)],
    [(0, 100, 5)],
    [0, 100],
    [(0, True)],
    ["ab"],
]
REFUSED: list[tuple[str, Any, str]] = [
    ("number_pool", (), "POP-INIT-P1"),
    ("number_pool", (0,), "POP-INIT-P1"),
    ("number_pool", (10,), "POP-INIT-P1"),
    ("number_pool", (1, 1), "POP-INIT-P1"),
    ("number_pool", (1.0,), "POP-INIT-P1"),
    ("number_pool", (True,), "POP-INIT-P1"),
    ("number_pool", "123", "POP-INIT-P1"),
    ("number_pool", 3, "POP-INIT-P1"),
    ("number_pool", {1, 2}, "POP-INIT-P1"),
    ("strict_invalid", 1, "POP-INIT-P2"),
    ("strict_invalid", None, "POP-INIT-P2"),
    ("include_time_left_norm", "yes", "POP-INIT-P2"),
    *(("duration_ms", duration, "POP-INIT-P3") for duration in (0, -1, 1.5, True, "60", LONGEST + 1, None)),
    *(("action_ms", action, "POP-INIT-P3") for action in (0, 0.5, 100.0, True, LONGEST + 1)),
    *(("fall_curve", curve, "POP-INIT-P4") for curve in NO_CURVES),
    ("manual_fall", "slow", "POP-INIT-P5"),
    ("manual_fall", [], "POP-INIT-P5"),
    ("manual_fall", np.array(["one_row", "b"]), "POP-INIT-P5"),
    ("reward_preset", "gold", "POP-INIT-P6"),
    ("height", 0, "POP-INIT-P7"),
    ("height", 65, "POP-INIT-P7"),
    ("columns", 17, "POP-INIT-P7"),
    ("columns", 2.0, "POP-INIT-P7"),
    ("render_mode", "braille", "ENV-INIT-P6"),
]


@pytest.mark.parametrize(("name", "value", "clause"), REFUSED)
def test_a_bad_value_is_refused_by_its_clause(name: str, value: Any, clause: str) -> None:
    with pytest.raises(ValidationError) as caught:
        ColumnPopperEnv(**{name: value})

    assert caught.value.clause == clause


@given(settings_of_a_game())
def test_the_rules_say_what_was_set(settings: dict[str, Any]) -> None:
    rules = ColumnPopperEnv(**settings).rules

    for name in set(settings) - {"reward_preset", "number_pool", "fall_curve"}:
        assert getattr(rules, name) == settings[name]
    assert list(rules.number_pool) == settings["number_pool"]
    assert list(rules.fall_curve) == settings["fall_curve"]


def test_numpy_values_are_as_good_as_pythons() -> None:
    settings: dict[str, Any] = {
        "number_pool": np.array([2, 5]),
        "strict_invalid": np.True_,
        "duration_ms": np.int64(900),
        "height": np.int8(4),
    }
    rules = ColumnPopperEnv(**settings).rules

    assert (rules.number_pool, rules.strict_invalid, rules.duration_ms, rules.height) == ((2, 5), True, 900, 4)


STANDARD_FALLS = [3, 6, 9, 12, 15, 18, *range(20, 41, 2), *range(41, 61)]


def test_the_standard_falls_are_those_of_the_contract() -> None:
    seconds = [tick / 1000 for tick in Schedule().falls()]

    assert seconds == STANDARD_FALLS
    assert len(seconds) == 37


def ticked(rules: Schedule) -> list[int]:
    """Return the falls, by an accumulator that is read at every tick."""
    falls, accumulated = [], 0
    for elapsed in range(rules.action_ms, rules.last_tick + 1, rules.action_ms):
        accumulated += rules.action_ms
        if accumulated >= rules.interval_at(elapsed)[0]:
            falls.append(elapsed)
            accumulated = 0
    return falls


@given(duration=st.integers(1, 20_000), action=st.integers(1, 900), curve=curves())
def test_computed_falls_are_those_that_ticking_finds(duration: int, action: int, curve: list[tuple[int, int]]) -> None:
    rules = ColumnPopperEnv(duration_ms=duration, action_ms=action, fall_curve=curve).rules

    assert list(rules.falls()) == ticked(rules)


@given(curve=curves(), elapsed=st.integers(0, 20_000))
def test_the_interval_is_that_of_the_last_stretch_that_has_begun(curve: list[tuple[int, int]], elapsed: int) -> None:
    interval, until = ColumnPopperEnv(fall_curve=curve).rules.interval_at(elapsed)

    assert interval == [interval for begins, interval in curve if begins <= elapsed][-1]
    assert until == min((begins for begins, _ in curve if begins > elapsed), default=math.inf)


@given(duration=st.integers(1, 10_000), action=st.integers(1, 10_000))
def test_the_last_tick_is_the_first_at_or_after_the_duration(duration: int, action: int) -> None:
    last = ColumnPopperEnv(duration_ms=duration, action_ms=action).rules.last_tick

    assert last % action == 0
    assert last - action < duration <= last
