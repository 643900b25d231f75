"""Kernels of every batch: the compiled hash is the Python one bit for bit, illegal actions are found, and seeds follow from roots."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.contracts import chance
from proctor.envs.vector import kernels

COUNTERS = st.integers(0, 2**32 - 1)
WORDS = st.integers(0, 2**64 - 1)


@given(seed=st.integers(0, 2**31 - 1), stream=COUNTERS, step=COUNTERS, index=COUNTERS)
def test_a_draw_has_the_same_bits(seed: int, stream: int, step: int, index: int) -> None:
    assert int(kernels.draw(seed, stream, step, index)) == chance.draw(seed, stream, step, index)


@given(word=WORDS)
def test_the_scrambling_has_the_same_bits(word: int) -> None:
    assert int(kernels.mix(np.uint64(word))) == chance.mix(word)


@given(bits=WORDS, limit=st.integers(1, 10**8))
def test_numbers_made_of_bits_are_the_same(bits: int, limit: int) -> None:
    assert kernels.uniform_from_bits(np.uint64(bits)) == chance.uniform_from_bits(bits)
    assert kernels.normal_from_bits(np.uint64(bits)) == chance.normal_from_bits(bits)
    assert kernels.integer_from_bits(np.uint64(bits), limit) == chance.integer_from_bits(bits, limit)


@given(root=st.integers(0, 2**31 - 1), episode=COUNTERS)
def test_the_seeds_of_later_episodes_are_the_same(root: int, episode: int) -> None:
    assert kernels.next_seed(root, episode) == chance.next_seed(root, episode)


FORMS = [pytest.param(lambda kernel: kernel, id="compiled"), pytest.param(lambda kernel: kernel.py_func, id="plain")]


@pytest.mark.parametrize("form", FORMS)
@given(actions=st.lists(st.integers(-2, 5) | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=9))
def test_the_first_action_out_of_range_is_found(form: Any, actions: list[int]) -> None:
    expected = next((i for i, action in enumerate(actions) if not 0 <= action < 4), -1)

    assert form(kernels.first_illegal)(np.array(actions, np.int64), np.int32(4)) == expected


@pytest.mark.parametrize("form", FORMS)
@given(root=st.integers(0, chance.SEED_LIMIT - 1), since=st.integers(0, 2**31), count=st.integers(1, 2**31))
def test_a_next_episode_is_counted_and_has_the_seed_that_its_root_predicts(
    form: Any, root: int, since: int, count: int
) -> None:
    seeds = np.array([[7, root], [7, since], [7, 7], [7, count]], np.int64)

    form(kernels.next_episode)(seeds, 1)

    assert seeds[:, 1].tolist() == [root, since + 1, chance.next_seed(root, since + 1), count + 1]
    assert seeds[:, 0].tolist() == [7, 7, 7, 7]
