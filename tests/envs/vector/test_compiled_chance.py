"""The compiled hash agrees with the Python one, bit for bit."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from proctor.contracts import chance
from proctor.envs.vector import compiled_chance

COUNTERS = st.integers(0, 2**32 - 1)
WORDS = st.integers(0, 2**64 - 1)


@given(seed=st.integers(0, 2**31 - 1), stream=COUNTERS, step=COUNTERS, index=COUNTERS)
def test_a_draw_has_the_same_bits(seed: int, stream: int, step: int, index: int) -> None:
    assert int(compiled_chance.draw(seed, stream, step, index)) == chance.draw(seed, stream, step, index)


@given(word=WORDS)
def test_the_scrambling_has_the_same_bits(word: int) -> None:
    assert int(compiled_chance.mix(np.uint64(word))) == chance.mix(word)


@given(bits=WORDS, limit=st.integers(1, 10**8))
def test_numbers_made_of_bits_are_the_same(bits: int, limit: int) -> None:
    assert compiled_chance.uniform_from_bits(np.uint64(bits)) == chance.uniform_from_bits(bits)
    assert compiled_chance.normal_from_bits(np.uint64(bits)) == chance.normal_from_bits(bits)
    assert compiled_chance.integer_from_bits(np.uint64(bits), limit) == chance.integer_from_bits(bits, limit)


@given(root=st.integers(0, 2**31 - 1), episode=COUNTERS)
def test_the_seeds_of_later_episodes_are_the_same(root: int, episode: int) -> None:
    assert compiled_chance.next_seed(root, episode) == chance.next_seed(root, episode)
