"""Chance by counter: the same place gives the same bits, and different places give independent ones."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.contracts.chance import (
    FIRST,
    GOLDEN,
    MASK,
    SECOND,
    SEED_LIMIT,
    Chance,
    Stream,
    draw,
    integer_from_bits,
    mix,
    next_seed,
    normal_from_bits,
    uniform_from_bits,
)

words = st.integers(0, MASK)
counters = st.integers(0, 2**32 - 1)
seeds = st.integers(0, SEED_LIMIT - 1)
LARGE = 20_000


def unmix(word: int) -> int:
    """Return the word that `mix` turns into this one."""
    word = word ^ (word >> 31) ^ (word >> 62)
    word = (word * pow(SECOND, -1, 2**64)) & MASK
    word = word ^ (word >> 27) ^ (word >> 54)
    word = (word * pow(FIRST, -1, 2**64)) & MASK
    word = word ^ (word >> 30) ^ (word >> 60)
    return (word - GOLDEN) & MASK


@given(words)
def test_mixing_is_a_bijection(word: int) -> None:
    assert 0 <= mix(word) <= MASK
    assert unmix(mix(word)) == word
    assert mix(unmix(word)) == word


def test_mixing_is_the_finaliser_of_splitmix64() -> None:
    state = 1234567
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]

    assert [mix((state + step * GOLDEN) & MASK) for step in range(3)] == published


@given(seeds, counters, counters, counters)
def test_a_draw_can_be_repeated(seed: int, stream: int, step: int, index: int) -> None:
    chance = Chance(seed)
    bits = draw(seed, stream, step, index)

    assert chance.bits(stream, step, index) == bits == draw(seed, stream, step, index)
    assert chance.uniform(stream, step, index) == uniform_from_bits(bits)
    assert chance.normal(stream, step, index) == normal_from_bits(bits)
    assert chance.below(10, stream, step, index) == integer_from_bits(bits, 10)


@given(words, st.integers(1, 2**31))
def test_numbers_stay_in_their_ranges(bits: int, limit: int) -> None:
    assert 0.0 <= uniform_from_bits(bits) < 1.0
    assert 0 <= integer_from_bits(bits, limit) < limit
    assert abs(normal_from_bits(bits)) < 3.47


def test_the_ends_of_the_ranges_are_reached() -> None:
    assert (uniform_from_bits(0), integer_from_bits(0, 7), integer_from_bits(MASK, 7)) == (0.0, 0, 6)
    assert uniform_from_bits(MASK) == 1.0 - 2.0**-53
    assert normal_from_bits(0) == -normal_from_bits(MASK)


@pytest.mark.parametrize(
    ("draw_number", "mean", "variance"), [(Chance(7).uniform, 0.5, 1 / 12), (Chance(7).normal, 0.0, 1.0)]
)
def test_numbers_have_the_mean_and_the_variance_that_they_are_said_to_have(
    draw_number: Callable[[int, int, int], float], mean: float, variance: float
) -> None:
    numbers = [draw_number(Stream.USER, step, index) for step in range(LARGE // 2) for index in range(2)]

    assert abs(statistics.fmean(numbers) - mean) < 0.02 * math.sqrt(variance)
    assert abs(statistics.pvariance(numbers) - variance) < 0.024 * variance


def test_two_axes_of_one_step_are_uncorrelated() -> None:
    pairs = [(Chance(3).normal(Stream.WIND, step, 0), Chance(3).normal(Stream.WIND, step, 1)) for step in range(LARGE)]

    assert abs(statistics.correlation(*zip(*pairs, strict=True))) < 0.02


def test_every_limit_of_a_small_range_comes_up_equally_often() -> None:
    counts = [0] * 8
    for step in range(LARGE):
        counts[Chance(1).below(8, Stream.START, step)] += 1

    assert all(abs(count - LARGE / 8) < 200 for count in counts)


@given(seeds)
def test_streams_of_one_episode_share_no_number(seed: int) -> None:
    places = itertools.product(Stream, range(8), range(4))
    numbers = [draw(seed, *place) for place in places]

    assert len(set(numbers)) == len(numbers)


@given(seeds, seeds)
def test_two_episodes_share_no_number(one: int, other: int) -> None:
    first = {draw(one, Stream.USER, step, 0) for step in range(50)}
    second = {draw(other, Stream.USER, step, 0) for step in range(50)}

    assert (first == second) if one == other else first.isdisjoint(second)


@given(seeds, st.integers(1, 1000))
def test_the_seed_of_a_later_episode_is_a_seed(root: int, episode: int) -> None:
    seed = next_seed(root, episode)

    assert 0 <= seed < SEED_LIMIT
    assert seed == next_seed(root, episode)


def test_later_episodes_of_a_batch_get_different_seeds() -> None:
    assert len({next_seed(root, episode) for root in range(50) for episode in range(50)}) == 2500
