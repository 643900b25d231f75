"""Strategies for Gymnasium spaces of all ten kinds, nested, and for their members down to the last bit.

`spaces()` draws a space, `members(space)` a value of it, `json_values()` anything that JSON can say, and more.
"""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import (
    Box,
    Dict,
    Discrete,
    Graph,
    GraphInstance,
    MultiBinary,
    MultiDiscrete,
    OneOf,
    Sequence,
    Text,
    Tuple,
)
from gymnasium.vector.utils import concatenate, create_empty_array
from hypothesis import strategies as st
from numpy.typing import NDArray

AnySpace = gym.Space[Any]
Draw = st.DrawFn

FLOATS = ("float16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = (*FLOATS, *INTEGERS, "bool")
SHAPES: tuple[tuple[int, ...], ...] = ((), (0,), (1,), (4,), (2, 3), (0, 3), (2, 0, 3), (1, 2, 1, 2))
LARGE_SHAPE = (41, 40, 3)
"""As bytes enough to be worth compressing, whatever the dtype."""


def random_bits(rng: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return an array of random bits: with floats that means denormals, infinities and NaN, too."""
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    raw = rng.bytes(dtype.itemsize * int(np.prod(shape)))
    return np.frombuffer(raw, dtype).reshape(shape).copy()


@st.composite
def generators(draw: Draw) -> np.random.Generator:
    return np.random.default_rng(draw(st.integers(0, 2**32 - 1)))


@st.composite
def boxes(draw: Draw, *, large: bool = False) -> AnySpace:
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = draw(st.sampled_from((*SHAPES, LARGE_SHAPE) if large else SHAPES))
    kind = draw(st.sampled_from(("whole", "random", "one value", "unbounded", "half")))
    if kind == "unbounded" and dtype.kind in "fi":
        return Box(-np.inf, np.inf, shape, dtype)
    low, high = _limits(dtype)
    lows, highs = np.full(shape, low, dtype), np.full(shape, high, dtype)
    if kind != "whole":
        rng = draw(generators())
        drawn = np.sort([_finite(random_bits(rng, dtype, shape), low) for _ in range(2)], axis=0)
        lows, highs = drawn[0], drawn[0] if kind == "one value" else drawn[1]
        if kind == "half" and dtype.kind == "f":
            lows = np.where(rng.random(shape) < 0.5, dtype.type(-np.inf), lows)
            highs = np.where(rng.random(shape) < 0.5, dtype.type(np.inf), highs)
    return Box(np.asarray(lows, dtype), np.asarray(highs, dtype), shape, dtype)


def _limits(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    if dtype.kind == "b":
        return False, True
    limits: Any = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    return limits.min, limits.max


def _finite(array: NDArray[Any], otherwise: Any) -> NDArray[Any]:
    return np.where(np.isfinite(array), array, np.asarray(otherwise, array.dtype))


@st.composite
def discretes(draw: Draw) -> AnySpace:
    dtype: Any = np.dtype(draw(st.sampled_from(INTEGERS)))
    limits = np.iinfo(dtype)
    start = draw(st.sampled_from((0, 1)) | st.integers(int(limits.min), int(limits.max)))
    room = min(int(limits.max) - start + 1, int(limits.max))
    return Discrete(draw(st.integers(1, min(room, 5)) | st.just(room)), start=start, dtype=dtype.type)


@st.composite
def multi_discretes(draw: Draw) -> AnySpace:
    dtype: Any = np.dtype(draw(st.sampled_from(INTEGERS)))
    # Not (): Gymnasium takes no stacked value of such a space for a member.
    shape = draw(st.sampled_from(SHAPES[1:]))
    rng = draw(generators())
    nvec = np.asarray(rng.integers(1, 100, shape), dtype)
    least = 0 if dtype.kind == "u" else -20
    start = np.asarray(rng.integers(least, 20, shape), dtype)
    return MultiDiscrete(nvec, dtype=dtype.type, start=start)


def multi_binaries() -> st.SearchStrategy[AnySpace]:
    shapes: tuple[Any, ...] = (1, 5, (3,), (2, 3), (1, 1, 2))
    return st.sampled_from(shapes).map(MultiBinary)


@st.composite
def texts(draw: Draw) -> AnySpace:
    characters = speakable() | st.sampled_from("\\]^-[\n\t\"'$/.é猫🐈 aZ09")
    charset = draw(st.lists(characters, min_size=1, max_size=12, unique=True))
    least = draw(st.integers(0, 3))
    return Text(least + draw(st.integers(0, 4)), min_length=least, charset="".join(charset))


def speakable() -> st.SearchStrategy[str]:
    """Draw a character that UTF-8 can say."""
    return st.characters(exclude_categories=["Cs"])


def leaves(*, large: bool = False) -> st.SearchStrategy[AnySpace]:
    return st.one_of(boxes(large=large), discretes(), multi_discretes(), multi_binaries(), texts())


def spaces(depth: int = 3, *, large: bool = False) -> st.SearchStrategy[AnySpace]:
    """Draw a space of any kind whose parts nest no deeper than `depth`."""
    return _spaces(depth, large, 0)


def _spaces(depth: int, large: bool, fewest: int) -> st.SearchStrategy[AnySpace]:
    """`fewest` is 1 for what is stacked: Gymnasium cannot stack a Dict or a Tuple of no parts."""
    plain = leaves(large=large)
    if depth <= 1:
        return plain
    part = _spaces(depth - 1, large, fewest)
    stacked = _spaces(depth - 1, large, 1)
    parts = st.lists(part, min_size=fewest, max_size=3)
    return st.one_of(
        plain,
        st.dictionaries(st.text(speakable(), max_size=3), part, min_size=fewest, max_size=3).flatmap(
            lambda named: st.booleans().map(lambda sort: Dict(named, sort_keys=sort))
        ),
        parts.map(Tuple),
        st.lists(part, min_size=1, max_size=3).map(OneOf),
        part.map(Sequence),
        stacked.map(lambda space: Sequence(space, stack=True)),
        st.tuples(stacked, st.none() | stacked).map(lambda two: Graph(*two)),
    )


@st.composite
def members(draw: Draw, space: AnySpace) -> Any:
    """Draw a value of `space`, of the types that it samples itself."""
    return _member(space, draw(generators()))


def _member(space: AnySpace, rng: np.random.Generator) -> Any:
    match space:
        case Box():
            return _between(random_bits(rng, space.dtype, space.shape), space.low, space.high)
        case MultiDiscrete():
            return _between(random_bits(rng, space.dtype, space.shape), space.start, space.start + (space.nvec - 1))
        case MultiBinary():
            return rng.integers(0, 2, space.shape, np.int8)
        case Discrete():
            return space.dtype.type(int(space.start) + int(rng.random() * int(space.n)))
        case Text():
            length = int(rng.integers(space.min_length, space.max_length + 1))
            return "".join(space.character_list[i] for i in rng.integers(0, len(space.character_list), length))
        case _:
            return _compound(space, rng)


def _compound(space: AnySpace, rng: np.random.Generator) -> Any:
    match space:
        case Dict():
            return {key: _member(part, rng) for key, part in space.spaces.items()}
        case Tuple():
            return tuple(_member(part, rng) for part in space.spaces)
        case OneOf():
            index = rng.integers(0, len(space.spaces))
            return index, _member(space.spaces[index], rng)
        case Sequence():
            items = [_member(space.feature_space, rng) for _ in range(rng.integers(0, 4))]
            return stacked(space.feature_space, items) if space.stack else tuple(items)
        case Graph():
            return _graph(space, rng)
    raise AssertionError(space)


def _graph(space: Graph, rng: np.random.Generator) -> GraphInstance:
    nodes = [_member(space.node_space, rng) for _ in range(rng.integers(1, 4))]
    if space.edge_space is None or rng.random() < 0.3:
        return GraphInstance(stacked(space.node_space, nodes), None, None)
    edges = [_member(space.edge_space, rng) for _ in range(rng.integers(0, 4))]
    links = rng.integers(0, len(nodes), (len(edges), 2), np.int32)
    return GraphInstance(stacked(space.node_space, nodes), stacked(space.edge_space, edges), links)


def stacked(space: AnySpace, items: list[Any]) -> Any:
    """Return the values as Gymnasium stacks them."""
    empty = create_empty_array(space, len(items))
    return concatenate(space, items, empty) if items and empty is not None else empty


def _between(array: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> NDArray[Any]:
    """Return the array with a bound in the place of what lies beyond it, or is no number."""
    made = np.where(array < low, low, np.where(array > high, high, array))
    return np.asarray(np.where(np.isnan(made), low, made), low.dtype)


def identical(one: Any, other: Any) -> bool:
    """Return whether two values are the same in type, dtype, shape, order and bits."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray | np.generic):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    if isinstance(one, dict):
        return list(one) == list(other) and all(identical(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(identical, one, other))
    return bool(one == other)


def packed_lookalikes() -> st.SearchStrategy[Any]:
    """Draw objects that are nearly packed arrays."""
    return st.fixed_dictionaries(
        {
            "dtype": st.sampled_from(("<f4", "|b1", "<i8", "|u1", ">f4", "O", "", "<f16")) | scalars(),
            "shape": st.lists(st.integers(-1, 4), max_size=3) | st.just([2**40, 2**40]) | scalars(),
            "data": st.sampled_from(("", "AAAA", "AAAAAA==", "////", "=", "é", "eNoDAAAAAAE=")) | scalars(),
        },
        optional={"zip": st.just("zlib") | scalars(), "more": scalars()},
    )


def scalars() -> st.SearchStrategy[Any]:
    names = st.sampled_from(("NaN", "Infinity", "-Infinity"))
    return st.none() | st.booleans() | st.integers() | st.integers(-3, 3) | st.floats() | names | st.text(max_size=5)


# One instance: what Hypothesis learns of it is learnt once.
JSON = st.recursive(
    scalars() | packed_lookalikes() | st.just(10**400),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


def json_values() -> st.SearchStrategy[Any]:
    """Draw anything that a JSON text can say, and near misses of what is sent."""
    return JSON


@st.composite
def bent(draw: Draw, value: Any) -> Any:
    """Draw `value` with one place, somewhere inside, replaced by other JSON, doubled or removed."""
    if isinstance(value, list) and value and draw(st.integers(0, 3)):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], *draw(_swapped(value[place])), *value[place + 1 :]]
    if isinstance(value, dict) and value and draw(st.integers(0, 3)):
        key = draw(st.sampled_from(sorted(value)))
        kept = draw(_swapped(value[key]))
        return {each: kept[0] if each == key else part for each, part in value.items() if each != key or kept}
    return draw(json_values())


def _swapped(value: Any) -> st.SearchStrategy[list[Any]]:
    return st.one_of(bent(value).map(lambda new: [new]), st.just([]), st.just([value, value]))
