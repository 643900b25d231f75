"""Ratios are made of medians of samples taken by turns."""

from __future__ import annotations

from itertools import count
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.measure import Samples, drawn_actions, interleaved, quotient, rate, stepping

POSITIVE = st.floats(min_value=1e-6, max_value=1e12)
PAIRS = st.lists(st.tuples(POSITIVE, POSITIVE), min_size=1, max_size=9)


class Countdown:
    """An environment whose episodes end after three steps, by turns terminated and truncated."""

    def __init__(self) -> None:
        self.resets = 0
        self.left = 3

    def reset(self) -> None:
        self.resets += 1
        self.left = 3

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, int]]:
        self.left -= 1
        ended = self.left <= 0
        return action, 0.0, ended and self.resets % 2 == 0, ended and self.resets % 2 == 1, {}


@given(PAIRS)
def test_the_ratio_is_that_of_the_medians_and_lies_among_plausible_ones(pairs: list[tuple[float, float]]) -> None:
    samples = Samples(tuple(a for a, _ in pairs), tuple(b for _, b in pairs))
    low, high = samples.spread

    assert samples.ratio == median(a for a, _ in pairs) / median(b for _, b in pairs)
    assert low <= high
    assert min(samples.subject) <= samples.value <= max(samples.subject)


@given(value=st.floats(0, 1e9), anchor=st.floats(0, 1e9))
def test_a_quotient_never_divides_by_zero(value: float, anchor: float) -> None:
    assert quotient(value, anchor) >= 0.0


def test_subject_and_anchor_take_turns_after_one_warm_up_each() -> None:
    calls: list[tuple[str, float]] = []

    def probe(name: str, value: float) -> float:
        calls.append((name, value))
        return float(len(calls))

    samples = interleaved(lambda s: probe("A", s), lambda s: probe("B", s), repeats=3, seconds=0.5, settle=list)

    assert [name for name, _ in calls] == list("ABABABAB")
    assert [seconds for _, seconds in calls] == [0.05] * 2 + [0.5] * 6
    assert samples == Samples((3.0, 5.0, 7.0), (4.0, 6.0, 8.0))


def test_the_same_probe_may_be_subject_and_anchor() -> None:
    ticks = count(1)
    probe = lambda _seconds: float(next(ticks))  # noqa: E731  # the point is that both are one object

    assert interleaved(probe, probe, repeats=2, seconds=1.0, settle=list) == Samples((3.0, 5.0), (4.0, 6.0))


def test_rubbish_is_collected_before_every_sample() -> None:
    settled: list[int] = []
    interleaved(lambda _s: 1.0, lambda _s: 1.0, repeats=2, seconds=1.0, settle=lambda: settled.append(1))

    assert len(settled) == 4


def test_no_repeats_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        interleaved(lambda _s: 1.0, lambda _s: 1.0, repeats=0, seconds=1.0)


@given(units=st.integers(1, 10**6), tick=st.floats(0.001, 10.0), seconds=st.floats(0.0, 20.0))
def test_a_rate_is_units_over_the_time_that_they_took(units: int, tick: float, seconds: float) -> None:
    ticks = count()
    found = rate(lambda: units, seconds, clock=lambda: next(ticks) * tick)

    assert found == pytest.approx(units / tick)


def test_a_clock_that_stands_still_is_waited_for() -> None:
    readings = iter([0.0, 0.0, 0.0, 2.0])

    assert rate(lambda: 1, 0.0, clock=lambda: next(readings)) == 1.5


def test_a_chunk_of_steps_resets_where_an_episode_ends() -> None:
    env = Countdown()
    chunk = stepping(env, [0] * 9)

    assert chunk() == 9
    assert env.resets == 3


@given(count_=st.integers(0, 50), kinds=st.integers(1, 9))
def test_drawn_actions_are_plain_ints_in_range_and_the_same_every_time(count_: int, kinds: int) -> None:
    actions = drawn_actions(count_, kinds)

    assert actions == drawn_actions(count_, kinds)
    assert all(type(action) is int and 0 <= action < kinds for action in actions)
    assert len(actions) == count_
