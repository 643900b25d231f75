"""A Gymnasium space as JSON, and back: what a remote environment needs to have the same spaces as a local one.

Rule 1: `space_from(described(space)) == space`, and it samples alike from the same seed.
Rule 2: a description from a peer is not trusted: what it asks for is bounded, and nonsense is a ValidationError.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from proctor.errors import ComponentError, ValidationError
from proctor.models.arrays import (
    MOST_BYTES,
    Array,
    array_from_lists,
    array_to_lists,
    pack_array,
    unpack_array,
    wire_dtype,
)

AnySpace = gym.Space[Any]
Description = dict[str, Any]

READABLE: Final = 64
"""Arrays of up to this many numbers are written as lists."""
DEEPEST: Final = 32
"""How deep a description may nest."""


def find_row(table: Mapping[type, Any], space: AnySpace) -> tuple[type, Any]:
    """Return the kind of `space` that the table has a row for, and the row, or raise a ComponentError."""
    for kind in type(space).__mro__:
        if kind in table:
            return kind, table[kind]
    raise ComponentError(
        "this space cannot cross the wire",
        found=space,
        expected=f"one of {', '.join(kind.__name__ for kind in WRITERS)}",
    )


def described(space: AnySpace) -> Description:
    """Return `space` as JSON, or raise a ComponentError if it is of no known kind."""
    kind, write = find_row(WRITERS, space)
    return {"type": kind.__name__, **write(space)}


def space_from(description: Any) -> AnySpace:
    """Return the space that a description says, or raise a ValidationError."""
    try:
        return _space_from(description, 0)
    except ValidationError:
        raise
    except (ValueError, TypeError, KeyError, AssertionError, OverflowError, AttributeError) as problem:
        # Gymnasium's constructors judge their arguments in all these ways.
        raise ValidationError("not the description of a space", found=description) from problem


def _space_from(description: Any, depth: int) -> AnySpace:
    if depth > DEEPEST:
        raise ValidationError("a description nests too deep", expected=f"at most {DEEPEST} levels")
    kind = description["type"]
    if kind not in READERS:
        raise ValidationError("unknown space", found=kind, expected=f"one of {', '.join(READERS)}")
    return READERS[kind](description, depth + 1)


def _dtype_name(dtype: np.dtype[Any]) -> str:
    wire_dtype(dtype)
    return dtype.name if dtype.isnative else dtype.str


def _dtype_from(name: Any) -> np.dtype[Any]:
    if type(name) is not str:
        raise ValidationError("not a dtype", found=name, expected="its name")
    dtype = np.dtype(name)
    try:
        wire_dtype(dtype)
    except ComponentError as problem:
        raise ValidationError(problem.message, found=name, expected=problem.expected) from None
    return dtype


def _numbers(array: Array) -> Any:
    """Return an array as one number if all are the same, as lists if it is small, else packed."""
    if array.size and (array == array.flat[0]).all():
        return array_to_lists(array.reshape(-1)[0:1])[0]
    return array_to_lists(array) if array.size <= READABLE else pack_array(array, compress=True)


def _array(value: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    if type(value) is dict:
        array = unpack_array(value)
        if array.shape != shape or array.dtype != wire_dtype(dtype):
            found = f"{array.dtype} of shape {array.shape}"
            raise ValidationError("numbers do not fit the space", found=found, expected=f"{dtype} of shape {shape}")
        return array.astype(dtype, copy=False)
    if shape and type(value) is not list:
        return np.full(shape, array_from_lists(value, dtype, ()))
    return array_from_lists(value, dtype, shape)


def _shape(value: Any, dtype: np.dtype[Any]) -> tuple[int, ...]:
    if type(value) is not list or len(value) > 64 or not all(type(each) is int and each >= 0 for each in value):
        raise ValidationError("not a shape", found=value, expected="a list of up to 64 integers of 0 or more")
    # A first length of 0 makes an array of no bytes, and numpy checks the others all the same.
    if math.prod(each or 1 for each in value) * dtype.itemsize > MOST_BYTES:
        raise ValidationError("a space is too large", found=value, expected=f"at most {MOST_BYTES} bytes")
    return tuple(value)


def _write_box(space: spaces.Box[Any]) -> Description:
    said: Description = {
        "shape": list(space.shape),
        "dtype": _dtype_name(space.dtype),
        "low": _numbers(space.low),
        "high": _numbers(space.high),
    }
    # A float says this by its bounds; an unbounded integer has those of its dtype, and is sampled differently.
    if space.dtype.kind == "i":
        for key in ("bounded_below", "bounded_above"):
            if not getattr(space, key).all():
                said[key] = _numbers(getattr(space, key))
    return said


def _read_box(said: Description, depth: int) -> AnySpace:
    dtype = _dtype_from(said["dtype"])
    shape = _shape(said["shape"], dtype)
    box = spaces.Box(_array(said["low"], dtype, shape), _array(said["high"], dtype, shape), shape, dtype)
    for key in ("bounded_below", "bounded_above"):
        if key in said and dtype.kind == "i":
            setattr(box, key, _array(said[key], np.dtype(np.bool_), shape))
    return box


def _read_multi_discrete(said: Description, depth: int) -> AnySpace:
    dtype = _dtype_from(said["dtype"])
    shape = _shape(said["shape"], dtype)
    nvec, start = (_array(said[key], dtype, shape) for key in ("nvec", "start"))
    return spaces.MultiDiscrete(nvec, dtype=dtype, start=start)


def _read_multi_binary(said: Description, depth: int) -> AnySpace:
    n = said["n"]
    if type(n) is list:
        return spaces.MultiBinary(_shape(n, np.dtype(np.int8)))
    return spaces.MultiBinary(_shape([n], np.dtype(np.int8))[0])


def _read_text(said: Description, depth: int) -> AnySpace:
    if type(said["charset"]) is not str:
        raise ValidationError("not a charset", found=said["charset"], expected="a string")
    return spaces.Text(said["max_length"], min_length=said["min_length"], charset=said["charset"])


def _write_dict(space: spaces.Dict) -> Description:
    odd = [key for key in space.spaces if type(key) is not str]
    if odd:
        raise ComponentError("a key that JSON cannot say", found=odd[0], expected="keys that are strings")
    return {"spaces": {key: described(part) for key, part in space.spaces.items()}, "sort_keys": space.sort_keys}


def _read_dict(said: Description, depth: int) -> AnySpace:
    parts = [(key, _space_from(part, depth)) for key, part in said["spaces"].items()]
    return spaces.Dict(parts, sort_keys=bool(said["sort_keys"]))


def _read_parts(said: Description, depth: int) -> tuple[AnySpace, ...]:
    return tuple(_space_from(part, depth) for part in said["spaces"])


def _read_graph(said: Description, depth: int) -> AnySpace:
    edges = None if said["edge_space"] is None else _space_from(said["edge_space"], depth)
    return spaces.Graph(_space_from(said["node_space"], depth), edges)


WRITERS: Final[Mapping[type, Callable[[Any], Description]]] = {
    spaces.Box: _write_box,
    spaces.Discrete: lambda space: {"n": int(space.n), "start": int(space.start), "dtype": _dtype_name(space.dtype)},
    spaces.MultiDiscrete: lambda space: {
        "shape": list(space.shape),
        "dtype": _dtype_name(space.dtype),
        "nvec": _numbers(space.nvec),
        "start": _numbers(space.start),
    },
    spaces.MultiBinary: lambda space: {"n": list(space.shape) if isinstance(space.n, tuple) else int(space.n)},
    spaces.Text: lambda space: {
        "min_length": space.min_length,
        "max_length": space.max_length,
        "charset": "".join(space.character_list),
    },
    spaces.Dict: _write_dict,
    spaces.Tuple: lambda space: {"spaces": [described(part) for part in space.spaces]},
    spaces.Sequence: lambda space: {"space": described(space.feature_space), "stack": bool(space.stack)},
    spaces.OneOf: lambda space: {"spaces": [described(part) for part in space.spaces]},
    spaces.Graph: lambda space: {
        "node_space": described(space.node_space),
        "edge_space": None if space.edge_space is None else described(space.edge_space),
    },
}
READERS: Final[Mapping[str, Callable[[Description, int], AnySpace]]] = {
    "Box": _read_box,
    "Discrete": lambda said, depth: spaces.Discrete(said["n"], start=said["start"], dtype=_dtype_from(said["dtype"])),
    "MultiDiscrete": _read_multi_discrete,
    "MultiBinary": _read_multi_binary,
    "Text": _read_text,
    "Dict": _read_dict,
    "Tuple": lambda said, depth: spaces.Tuple(_read_parts(said, depth)),
    "Sequence": lambda said, depth: spaces.Sequence(_space_from(said["space"], depth), stack=bool(said["stack"])),
    "OneOf": lambda said, depth: spaces.OneOf(_read_parts(said, depth)),
    "Graph": _read_graph,
}
