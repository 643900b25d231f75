"""Chance by counter: a draw is a pure function of (episode seed, stream, step, index).

Rule 1: nothing is consumed. A draw can be repeated, skipped or made in any order and gives the same bits, so a
    refused step leaves no trace, and an episode replays from its seed alone.
Rule 2: `proctor.envs.vector.kernels` says the same for numba. A test compares them bit for bit; change both or none.
Rule 3: only integer operations and single IEEE operations, so that every platform agrees.
"""

from enum import IntEnum
from typing import Final

import msgspec

MASK: Final = 0xFFFF_FFFF_FFFF_FFFF
GOLDEN: Final = 0x9E37_79B9_7F4A_7C15
FIRST: Final = 0xBF58_476D_1CE4_E5B9
SECOND: Final = 0x94D0_49BB_1331_11EB

UNIT: Final = 2.0**-53
# Four 16-bit pieces added: mean 131 070, variance 4 * (65 536^2 - 1) / 12.
NORMAL_MEAN: Final = 131070.0
NORMAL_SCALE: Final = (4 * (65536**2 - 1) / 12) ** -0.5

SEED_LIMIT: Final = 2**31


class Stream(IntEnum):
    """Who draws: two streams of one episode never share a number."""

    START = 1
    NEXT_EPISODE = 2
    WIND = 3
    PUFF = 4
    SENSOR = 5
    SPAWN = 6
    POLICY = 100
    """The first of our policies' own numbers: they share their seed with the environment."""
    USER = 1000
    """The first number that is free for a user's own parts."""


def mix(word: int) -> int:
    """Return the 64-bit word scrambled (the finaliser of SplitMix64, a bijection)."""
    word = (word + GOLDEN) & MASK
    word = ((word ^ (word >> 30)) * FIRST) & MASK
    word = ((word ^ (word >> 27)) * SECOND) & MASK
    return word ^ (word >> 31)


def draw(episode_seed: int, stream: int, step: int, index: int) -> int:
    """Return the 64 random bits at this place; all four counters lie in [0, 2^32)."""
    return draw_from_key(derive_key(episode_seed, stream), step, index)


def derive_key(episode_seed: int, stream: int) -> int:
    """Return the part of a draw that stays the same for a stream of an episode."""
    return mix((episode_seed << 32) | stream)


def draw_from_key(key: int, step: int, index: int) -> int:
    """Return `draw(episode_seed, stream, step, index)`, given `derive_key(episode_seed, stream)`."""
    return mix(key ^ ((step << 32) | index))


def uniform_from_bits(bits: int) -> float:
    """Return a number in [0, 1) from the upper 53 bits."""
    return (bits >> 11) * UNIT


def integer_from_bits(bits: int, limit: int) -> int:
    """Return an integer in [0, limit)."""
    return min(int(uniform_from_bits(bits) * limit), limit - 1)


def normal_from_bits(bits: int) -> float:
    """Return a bell-shaped number of mean 0 and variance 1, within 3.47 of 0 (four uniforms added)."""
    total = (bits & 0xFFFF) + ((bits >> 16) & 0xFFFF) + ((bits >> 32) & 0xFFFF) + (bits >> 48)
    return (total - NORMAL_MEAN) * NORMAL_SCALE


class Chance(msgspec.Struct, frozen=True, gc=False):
    """The chance of one episode; what `env_state["chance"]` holds."""

    episode_seed: int

    def bits(self, stream: int, step: int, index: int = 0) -> int:
        """Return 64 random bits."""
        return draw(self.episode_seed, stream, step, index)

    def uniform(self, stream: int, step: int, index: int = 0) -> float:
        """Return a number in [0, 1)."""
        return uniform_from_bits(draw(self.episode_seed, stream, step, index))

    def below(self, limit: int, stream: int, step: int, index: int = 0) -> int:
        """Return an integer in [0, limit)."""
        return integer_from_bits(draw(self.episode_seed, stream, step, index), limit)

    def normal(self, stream: int, step: int, index: int = 0) -> float:
        """Return a bell-shaped number of mean 0 and variance 1."""
        return normal_from_bits(draw(self.episode_seed, stream, step, index))


def next_seed(root_seed: int, episode: int) -> int:
    """Return the seed of the `episode`-th episode that follows a reset with `root_seed` in a batch."""
    return draw(root_seed, Stream.NEXT_EPISODE, episode, 0) & (SEED_LIMIT - 1)
