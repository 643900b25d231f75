"""How kernels are compiled (numba, cached on disk, strict IEEE arithmetic), and what those of every batch share.

Rule 1: this is the only file that imports numba. Kernels are annotated with Any: numba takes the types from the arrays that
    it is given, and a module's head says what those are.
Rule 2: compiled code is kept beside the source and renewed when its own file changes, but not when a kernel that it calls in
    another file does: after such a change, `make clean`.
Rule 3: the draws are `proctor.contracts.chance` again, equal bit for bit, which a test checks. Change both or none.
    Every constant and shift is a uint64: numba turns an operation between a uint64 and a plain int into float64.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from proctor.contracts import chance
from proctor.errors import MissingExtraError

try:
    import numba
    from numba.core import cgutils, types
    from numba.extending import intrinsic
except ImportError:
    raise MissingExtraError("a batched environment", package="numba", extra="vector") from None

# No fastmath: a result must not depend on how a loop was vectorised. Division by zero gives inf, as in numpy.
_OPTIONS: Final = {"cache": True, "nogil": True, "error_model": "numpy", "boundscheck": False}
compiled: Callable[[Callable[..., Any]], Any] = numba.njit(**_OPTIONS)
# For what is called in a loop with many arrays: a call would count the references to each of them.
inlined: Callable[[Callable[..., Any]], Any] = numba.njit(inline="always", **_OPTIONS)


def _move_bytes_in_python(array: Any, to: Any, origin: Any, count: Any) -> None:
    array[to : to + count] = array[origin : origin + count].copy()


@intrinsic
def _compile_memmove(context: Any, array: Any, to: Any, origin: Any, count: Any) -> Any:
    """Make a compiled function move `count` bytes of a flat int8 array from `origin` to `to`, which may overlap."""
    if not isinstance(array, types.Array) or array.ndim != 1 or array.dtype != types.int8 or array.layout != "C":
        return None  # numba then says that there is no such function for these types

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = target.make_array(signature.args[0])(target, builder, arguments[0]).data
        there, here = (builder.gep(data, [place]) for place in arguments[1:3])
        cgutils.raw_memmove(builder, there, here, arguments[3], 1)
        return target.get_dummy_value()

    return types.void(array, types.int64, types.int64, types.int64), generate


# A loop in the kernel would go byte by byte, because the two ranges overlap.
_compile_memmove.py_func = _move_bytes_in_python
move_bytes: Final[Callable[[Any, Any, Any, Any], None]] = _compile_memmove
"""Move `count` bytes of a flat int8 array from one place to another: `move_bytes(array, to, origin, count)`."""

_GOLDEN: Final = np.uint64(chance.GOLDEN)
_FIRST: Final = np.uint64(chance.FIRST)
_SECOND: Final = np.uint64(chance.SECOND)
_PIECE: Final = np.uint64(0xFFFF)
_SEED_MASK: Final = np.uint64(chance.SEED_LIMIT - 1)
_S11, _S16, _S27, _S30, _S31, _S32, _S48 = (np.uint64(shift) for shift in (11, 16, 27, 30, 31, 32, 48))
_NEXT_EPISODE: Final = int(chance.Stream.NEXT_EPISODE)


@compiled
def mix(word: Any) -> Any:
    """Return the uint64 scrambled."""
    word = word + _GOLDEN
    word = (word ^ (word >> _S30)) * _FIRST
    word = (word ^ (word >> _S27)) * _SECOND
    return word ^ (word >> _S31)


@compiled
def derive_key(episode_seed: Any, stream: Any) -> Any:
    """Return the part of a draw that stays the same for a stream of an episode."""
    return mix((np.uint64(episode_seed) << _S32) | np.uint64(stream))


@compiled
def draw_from_key(key: Any, step: Any, index: Any) -> Any:
    """Return the draw at this place, given `derive_key` of its episode and stream."""
    return mix(key ^ ((np.uint64(step) << _S32) | np.uint64(index)))


@compiled
def draw(episode_seed: Any, stream: Any, step: Any, index: Any) -> Any:
    """Return 64 random bits as a uint64; the counters are integers in [0, 2^32)."""
    return draw_from_key(derive_key(episode_seed, stream), step, index)


@compiled
def uniform_from_bits(bits: Any) -> Any:
    """Return a number in [0, 1)."""
    return np.float64(bits >> _S11) * chance.UNIT


@compiled
def integer_from_bits(bits: Any, limit: Any) -> Any:
    """Return an int64 in [0, limit)."""
    return min(np.int64(uniform_from_bits(bits) * limit), limit - 1)


@compiled
def normal_from_bits(bits: Any) -> Any:
    """Return a bell-shaped number of mean 0 and variance 1."""
    total = (bits & _PIECE) + ((bits >> _S16) & _PIECE) + ((bits >> _S32) & _PIECE) + (bits >> _S48)
    return (np.float64(total) - chance.NORMAL_MEAN) * chance.NORMAL_SCALE


@compiled
def next_seed(root_seed: Any, episode: Any) -> Any:
    """Return the seed of the `episode`-th episode after a reset with `root_seed`."""
    return np.int64(draw(root_seed, _NEXT_EPISODE, episode, 0) & _SEED_MASK)


@compiled
def first_illegal(actions: Any, n_actions: Any) -> Any:
    """Return the index of the first action outside [0, n_actions), or -1."""
    illegal = 0
    for i in range(actions.size):
        illegal |= (actions[i] < 0) | (actions[i] >= n_actions)
    if not illegal:
        return -1
    for i in range(actions.size):
        if actions[i] < 0 or actions[i] >= n_actions:
            return i
    return -1


@inlined
def next_episode(seeds: Any, i: Any) -> None:
    """Give sub-environment `i` the seed of its next episode, derived from its root, and count the episode.

    `seeds` int64, 4 x N: root seed, episodes since that root, this episode's seed, episodes in all (`BatchedEnv._seeds`).
    """
    seeds[1, i] += 1
    seeds[2, i] = next_seed(seeds[0, i], seeds[1, i])
    seeds[3, i] += 1
