"""Gymnasium spaces on the wire: how one value of a space is written in JSON and read back.

Rule 1: which codec a space has is a row of `CODECS`, which one many stacked values have a row of `STACKS`; a space without a
    row is a ComponentError. How a space itself is written is said in `space_descriptions`.
Rule 2: `decode` gives the value that the space itself would sample: same type, dtype, shape and bits.
Rule 3: a value from an environment that is not of its space's form is a ComponentError; JSON from a peer that is not is a
    ValidationError that names the part by its key or its place, from the outermost inwards. `decode` may be told to leave the
    bounds aside, as an environment does that observes beyond its own: the form is checked all the same.
Rule 4: a codec keeps no state, so that all sessions share one for equal spaces.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import Any, Final

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.spaces import GraphInstance

from proctor.errors import ComponentError, ValidationError
from proctor.models.arrays import (
    MOST_BYTES,
    Array,
    array_from_lists,
    array_to_lists,
    pack_array,
    read_packed_form,
    unpack_array,
    wire_dtype,
)
from proctor.models.space_descriptions import described, find_row, space_from
from proctor.models.wire import PACKED, PLAIN, Encoding

__all__ = ["CODECS", "Codec", "codec_of", "described", "space_from"]

AnySpace = gym.Space[Any]
Schema = dict[str, Any]
FreeShape = tuple[int | None, ...]
"""A shape whose first length may be None: any number of values, stacked."""

MOST_PLACES: Final = 64
"""Up to this many numbers have bounds of their own in a schema for agents."""
GRAPH_KEYS: Final = {"nodes", "edges", "edge_links"}
SPECIAL: Final = frozenset("\\]^-[")
"""What a character class of a pattern must escape."""


class ReadOptions:
    """One value being read: whether bounds hold, and how many bytes may still be decompressed."""

    __slots__ = ("bounded", "left")

    def __init__(self, bounded: bool) -> None:
        self.bounded = bounded
        self.left = MOST_BYTES


class Codec(ABC):
    """Writes values of one space as JSON and reads them back; `form` says in errors what they are."""

    form: str

    @abstractmethod
    def encode(self, value: Any, encoding: Encoding = PLAIN) -> Any:
        """Return `value` as what JSON can say, or raise a ComponentError."""

    def decode(self, value: Any, *, bounded: bool = True) -> Any:
        """Return the value that JSON says, or raise a ValidationError; without `bounded` only its form is checked."""
        return self.read(value, ReadOptions(bounded))

    @abstractmethod
    def read(self, value: Any, reading: ReadOptions) -> Any:
        """Return the value that JSON says, as a part of what is being read."""

    @abstractmethod
    def schema(self, *, packing: bool = True) -> Schema:
        """Return the JSON Schema (draft 2020-12) of what `encode` writes and `decode` takes.

        Without `packing` it is for agents: lists only, and bounds place by place where they differ and the places are few.
        """

    def lengths(self, value: Any) -> frozenset[int]:
        """Return how many values are stacked in `value`, part by part; one number if all parts agree."""
        return frozenset()

    def _misfit(self, found: object, message: str = "not of its space's form") -> ComponentError:
        return ComponentError(message, found=found, expected=self.form)

    def _invalid(self, message: str, found: object) -> ValidationError:
        return ValidationError(message, found=found, expected=self.form)


def error_beneath(problem: ValidationError, part: object) -> ValidationError:
    """Return the error of a part as the error of the whole, with the part named first."""
    inner = problem.message
    where = f"at [{part!r}]"
    message = f"{where}{inner[3:]}" if inner.startswith("at [") else f"{where}: {inner}"
    return ValidationError(message, found=problem.found, expected=problem.expected)


def object_schema(parts: dict[str, Schema]) -> Schema:
    """Return the schema of an object that has all these keys and no others."""
    return {"type": "object", "properties": parts, "required": list(parts), "additionalProperties": False}


def tuple_schema(schemas: list[Schema]) -> Schema:
    """Return the schema of an array with one schema for every place."""
    sized: Schema = {"type": "array", "minItems": len(schemas), "maxItems": len(schemas)}
    return {**sized, "prefixItems": schemas} if schemas else sized


class DiscreteCodec(Codec):
    """An integer; read as a scalar of the space's dtype."""

    def __init__(self, space: spaces.Discrete[Any]) -> None:
        wire_dtype(space.dtype)
        self._type = space.dtype.type
        self._least = int(space.start)
        self._most = int(space.start) + int(space.n) - 1
        self._limits = np.iinfo(space.dtype)
        self.form = f"an integer from {self._least} to {self._most}"

    def encode(self, value: Any, encoding: Encoding = PLAIN) -> int:
        try:
            return index(value)
        except TypeError:
            raise self._misfit(value, "not an integer") from None

    def read(self, value: Any, reading: ReadOptions) -> Any:
        least, most = (self._least, self._most) if reading.bounded else (self._limits.min, self._limits.max)
        if type(value) is not int or not least <= value <= most:
            raise self._invalid("not a member of the space", value)
        return self._type(value)

    def schema(self, *, packing: bool = True) -> Schema:
        return {"type": "integer", "minimum": self._least, "maximum": self._most}


class TextCodec(Codec):
    """A string."""

    def __init__(self, space: spaces.Text) -> None:
        self._least = space.min_length
        self._most = space.max_length
        self._charset = space.character_set
        self._characters = space.characters
        self.form = f"{self._least} to {self._most} characters of {self._characters!r}"

    def encode(self, value: Any, encoding: Encoding = PLAIN) -> str:
        if not isinstance(value, str):
            raise self._misfit(value, "not text")
        return str(value)

    def read(self, value: Any, reading: ReadOptions) -> str:
        if type(value) is not str:
            raise self._invalid("not text", value)
        if reading.bounded and not (self._least <= len(value) <= self._most and self._charset.issuperset(value)):
            raise self._invalid("not a member of the space", value)
        return value

    def schema(self, *, packing: bool = True) -> Schema:
        characters = "".join(f"\\{each}" if each in SPECIAL else each for each in self._characters)
        pattern = f"^[{characters}]*$" if characters else "^$"
        return {"type": "string", "minLength": self._least, "maxLength": self._most, "pattern": pattern}


class ArrayCodec(Codec):
    """Numbers of one dtype in one shape, between bounds; the first length may be free."""

    def __init__(self, dtype: np.dtype[Any], shape: FreeShape, low: Array, high: Array) -> None:
        self._dtype = dtype
        self._wire = wire_dtype(dtype)
        self._shape = shape
        self._free = bool(shape) and shape[0] is None
        self._tail = shape[1:]
        self._low = low
        self._high = high
        bounds = f" from {low.min()} to {high.max()}" if low.size and dtype.kind != "b" else ""
        self.form = f"{dtype.name} of shape {str(shape).replace('None', 'any')}{bounds}"

    def encode(self, value: Any, encoding: Encoding = PLAIN) -> Any:
        array = value
        if type(value) is not np.ndarray or value.dtype != self._dtype or not self._fits(value.shape):
            array = self._as_array(value)
        return pack_array(array, encoding.compress) if encoding.packed else array_to_lists(array)

    def _fits(self, shape: tuple[int, ...]) -> bool:
        return bool(shape) and shape[1:] == self._tail if self._free else shape == self._shape

    def _as_array(self, value: Any) -> Array:
        """Return what an environment gave, in the space's own dtype, or raise a ComponentError."""
        try:
            found: Array = np.asarray(value)
        except (ValueError, TypeError):
            raise self._misfit(value) from None
        if not self._fits(found.shape) or found.dtype.kind not in "biuf":
            raise self._misfit(f"{found.dtype} of shape {found.shape}")
        with np.errstate(over="ignore", invalid="ignore"):
            array: Array = found.astype(self._dtype)
        # A float is rounded; an integer that would become another one is not what the environment said.
        if self._dtype.kind != "f" and not np.array_equal(array, found):
            raise self._misfit(value)
        return array

    def read(self, value: Any, reading: ReadOptions) -> Array:
        array = self._unpack(value, reading) if type(value) is dict else self._from_lists(value)
        if reading.bounded and not bool((array >= self._low).all() and (array <= self._high).all()):
            raise self._invalid("out of bounds", value)
        return array

    def _from_lists(self, value: Any) -> Array:
        shape: Any = self._shape
        if self._free:
            if type(value) is not list:
                raise self._invalid("not a list", value)
            shape = (len(value), *self._tail)
        return array_from_lists(value, self._dtype, shape)

    def _unpack(self, value: dict[str, Any], reading: ReadOptions) -> Array:
        dtype, shape = read_packed_form(value)
        if dtype != self._wire or not self._fits(shape):
            raise self._invalid("not an array of this kind", f"{dtype} of shape {shape}")
        array = unpack_array(value, most=reading.left)
        if "zip" in value:
            reading.left -= array.nbytes
        return array.astype(self._dtype, copy=False)

    def schema(self, *, packing: bool = True) -> Schema:
        if packing:
            lengths = [{"type": "integer", "minimum": 0} if n is None else {"const": n} for n in self._shape]
            packed = {**PACKED["properties"], "dtype": {"const": self._wire.str}, "shape": tuple_schema(lengths)}
            lists = self._list_schema(self._shape, self._low, self._high)
            return {"anyOf": [lists, {**PACKED, "properties": packed}]}
        if self._free or self._low.size > MOST_PLACES:
            return self._list_schema(self._shape, self._low, self._high)
        return self._place_schema(self._low, self._high)

    def _place_schema(self, low: Array, high: Array) -> Schema:
        """Return the schema of an array between these bounds: of one row after the other where they differ."""
        if all(not bound.size or (bound == bound.flat[0]).all() for bound in (low, high)):
            return self._list_schema(low.shape, low, high)
        # Not by iterating, which makes numbers of the last dimension.
        return tuple_schema([self._place_schema(low[place, ...], high[place, ...]) for place in range(len(low))])

    def _list_schema(self, shape: FreeShape, low: Array, high: Array) -> Schema:
        schema = self._number_schema(low, high)
        for length in reversed(shape):
            sized = {} if length is None else {"minItems": length, "maxItems": length}
            schema = {"type": "array", "items": schema, **sized}
        return schema

    def _number_schema(self, low: Array, high: Array) -> Schema:
        """Return one number; the bounds are those of the whole array."""
        kind = {"b": "boolean", "f": "number"}.get(self._dtype.kind, "integer")
        if not low.size or kind == "boolean":
            return {"type": kind}
        least, most = low.min().item(), high.max().item()
        bounds = {"minimum": least, "maximum": most}
        number = {"type": kind, **{name: bound for name, bound in bounds.items() if np.isfinite(bound)}}
        names = [name for name, bound in (("-Infinity", least), ("Infinity", most)) if not np.isfinite(bound)]
        return {"anyOf": [number, {"enum": names}]} if names else number

    def lengths(self, value: Any) -> frozenset[int]:
        return frozenset({len(value)})


class DictCodec(Codec):
    """An object with a value for every key, in the order of the space."""

    def __init__(self, parts: Mapping[Any, Codec]) -> None:
        odd = [key for key in parts if type(key) is not str]
        if odd:
            raise ComponentError("a key that JSON cannot say", found=odd[0], expected="keys that are strings")
        self._parts = dict(parts)
        self.form = f"the keys {', '.join(parts)}"

    def encode(self, value: Any, encoding: Encoding = PLAIN) -> dict[str, Any]:
        if not isinstance(value, Mapping) or value.keys() != self._parts.keys():
            raise self._misfit(value)
        return {key: part.encode(value[key], encoding) for key, part in self._parts.items()}

    def read(self, value: Any, reading: ReadOptions) -> dict[str, Any]:
        if type(value) is not dict or value.keys() != self._parts.keys():
            raise self._invalid("not an object with these keys", value)
        made = {}
        key = None
        try:
            for key, part in self._parts.items():
                made[key] = part.read(value[key], reading)
        except ValidationError as problem:
            raise error_beneath(problem, key) from None
        return made

    def schema(self, *, packing: bool = True) -> Schema:
        return object_schema({key: part.schema(packing=packing) for key, part in self._parts.items()})

    def lengths(self, value: Any) -> frozenset[int]:
        return frozenset().union(*(part.lengths(value[key]) for key, part in self._parts.items()))


def _read_each(parts: Sequence[Codec], values: Sequence[Any], reading: ReadOptions) -> tuple[Any, ...]:
    made: list[Any] = []
    try:
        for part, each in zip(parts, values, strict=True):
            made.append(part.read(each, reading))
    except ValidationError as problem:
        raise error_beneath(problem, len(made)) from None
    return tuple(made)


class TupleCodec(Codec):
    """An array with a value for every place; read as a tuple."""

    def __init__(self, parts: Sequence[Codec]) -> None:
        self._parts = tuple(parts)
        self.form = f"an array of {len(parts)} values"

    def encode(self, value: Any, encoding: Encoding = PLAIN) -> list[Any]:
        if not isinstance(value, tuple | list | np.ndarray) or len(value) != len(self._parts):
            raise self._misfit(value)
        return [part.encode(each, encoding) for part, each in zip(self._parts, value, strict=True)]

    def read(self, value: Any, reading: ReadOptions) -> tuple[Any, ...]:
        if type(value) is not list or len(value) != len(self._parts):
            raise self._invalid("not an array of this length", value)
        return _read_each(self._parts, value, reading)

    def schema(self, *, packing: bool = True) -> Schema:
        return tuple_schema([part.schema(packing=packing) for part in self._parts])

    def lengths(self, value: Any) -> frozenset[int]:
        return frozenset().union(*(part.lengths(each) for part, each in zip(self._parts, value, strict=True)))


class ItemsCodec(Codec):
    """An array of any length, all values of one space; read as a tuple."""

    form = "an array of any length"

    def __init__(self, item: Codec) -> None:
        self._item = item

    def encode(self, value: Any, encoding: Encoding = PLAIN) -> list[Any]:
        if not isinstance(value, tuple | list):
            raise self._misfit(value)
        return [self._item.encode(each, encoding) for each in value]

    def read(self, value: Any, reading: ReadOptions) -> tuple[Any, ...]:
        if type(value) is not list:
            raise self._invalid("not an array", value)
        return _read_each([self._item] * len(value), value, reading)

    def schema(self, *, packing: bool = True) -> Schema:
        return {"type": "array", "items": self._item.schema(packing=packing)}

    def lengths(self, value: Any) -> frozenset[int]:
        return frozenset({len(value)})


class StackCodec(Codec):
    """Any number of values, stacked leaf by leaf; all leaves have the same number."""

    form = "one length"

    def __init__(self, leaves: Codec) -> None:
        self._leaves = leaves

    def encode(self, value: Any, encoding: Encoding = PLAIN) -> Any:
        return self._leaves.encode(value, encoding)

    def read(self, value: Any, reading: ReadOptions) -> Any:
        made = self._leaves.read(value, reading)
        lengths = self._leaves.lengths(made)
        if len(lengths) > 1:
            raise self._invalid("stacked parts differ in length", sorted(lengths))
        return made

    def schema(self, *, packing: bool = True) -> Schema:
        return self._leaves.schema(packing=packing)

    def count(self, value: Any) -> int:
        """Return how many values are stacked."""
        return max(self._leaves.lengths(value), default=0)


class OneOfCodec(Codec):
    """A choice: `[index, value]`."""

    def __init__(self, parts: Sequence[Codec]) -> None:
        self._parts = tuple(parts)
        self.form = f"[index, value] with an index from 0 to {len(parts) - 1}"

    def encode(self, value: Any, encoding: Encoding = PLAIN) -> list[Any]:
        if not isinstance(value, tuple) or len(value) != 2 or not self._is_choice(value[0]):
            raise self._misfit(value)
        return [int(value[0]), self._parts[value[0]].encode(value[1], encoding)]

    def _is_choice(self, choice: Any) -> bool:
        return isinstance(choice, int | np.integer) and 0 <= int(choice) < len(self._parts)

    def read(self, value: Any, reading: ReadOptions) -> tuple[Any, Any]:
        if type(value) is not list or len(value) != 2 or type(value[0]) is not int or not self._is_choice(value[0]):
            raise self._invalid("not a choice", value)
        try:
            return np.int64(value[0]), self._parts[value[0]].read(value[1], reading)
        except ValidationError as problem:
            raise error_beneath(problem, 1) from None

    def schema(self, *, packing: bool = True) -> Schema:
        choices = (tuple_schema([{"const": i}, part.schema(packing=packing)]) for i, part in enumerate(self._parts))
        return {"anyOf": list(choices)}


class GraphCodec(Codec):
    """Nodes, and edges between them: `{"nodes", "edges", "edge_links"}`; without edges the last two are null."""

    def __init__(self, nodes: StackCodec, edges: StackCodec | None) -> None:
        self._nodes = nodes
        self._edges = edges
        most = np.array(np.iinfo(np.int32).max, np.int32)
        self._links = ArrayCodec(most.dtype, (None, 2), np.zeros_like(most), most)
        self.form = "null, as there is no edge space" if edges is None else "edges with their edge_links, or null"

    def encode(self, value: Any, encoding: Encoding = PLAIN) -> dict[str, Any]:
        if not isinstance(value, GraphInstance) or (value.edges is None) != (value.edge_links is None):
            raise ComponentError("not of its space's form", found=value, expected="a GraphInstance")
        edges = links = None
        if value.edges is not None:
            if self._edges is None:
                raise ComponentError("a graph without an edge space has edges", found=value, expected="no edges")
            edges = self._edges.encode(value.edges, encoding)
            links = self._links.encode(value.edge_links, encoding)
        return {"nodes": self._nodes.encode(value.nodes, encoding), "edges": edges, "edge_links": links}

    def read(self, value: Any, reading: ReadOptions) -> GraphInstance:
        """Return the graph; every link must lead from a node to a node."""
        if type(value) is not dict or value.keys() != GRAPH_KEYS:
            raise ValidationError("not a graph", found=value, expected="nodes, edges and edge_links")
        part = "nodes"
        try:
            nodes = self._nodes.read(value["nodes"], reading)
            if value["edges"] is None and value["edge_links"] is None:
                return GraphInstance(nodes, None, None)
            part = "edges"
            if self._edges is None or value["edges"] is None:
                raise self._invalid("edges do not fit", value["edges"])
            edges = self._edges.read(value["edges"], reading)
            part = "edge_links"
            links = self._links.read(value["edge_links"], reading)
            count, most = self._edges.count(edges), self._nodes.count(nodes)
            if len(links) != count or (links.size and int(links.max()) >= most):
                expected = f"{count} pairs of integers below {most}"
                raise ValidationError("links do not fit", found=links.tolist(), expected=expected)
        except ValidationError as problem:
            raise error_beneath(problem, part) from None
        return GraphInstance(nodes, edges, links)

    def schema(self, *, packing: bool = True) -> Schema:
        null: Schema = {"type": "null"}
        edges, links = (
            null if self._edges is None else {"anyOf": [codec.schema(packing=packing), null]}
            for codec in (self._edges or self._nodes, self._links)
        )
        return object_schema({"nodes": self._nodes.schema(packing=packing), "edges": edges, "edge_links": links})


ANY: Final[tuple[None]] = (None,)
"""The first length of values that are stacked."""


def codec_of(space: AnySpace) -> Codec:
    """Return the codec of `space`, or raise a ComponentError."""
    codec: Codec = find_row(CODECS, space)[1](space)
    return codec


def _box(space: spaces.Box[Any], first: FreeShape = ()) -> ArrayCodec:
    return ArrayCodec(space.dtype, (*first, *space.shape), space.low, space.high)


def _multi_discrete(space: spaces.MultiDiscrete[Any], first: FreeShape = ()) -> ArrayCodec:
    # Not start + nvec, which may lie beyond the dtype.
    return ArrayCodec(space.dtype, (*first, *space.shape), space.start, space.start + (space.nvec - 1))


def _multi_binary(space: spaces.MultiBinary, first: FreeShape = ()) -> ArrayCodec:
    zero, one = np.zeros(space.shape, space.dtype), np.ones(space.shape, space.dtype)
    return ArrayCodec(space.dtype, (*first, *space.shape), zero, one)


def _stack_discrete(space: spaces.Discrete[Any]) -> ArrayCodec:
    low, high = (np.array(bound, space.dtype) for bound in (space.start, space.start + (space.n - 1)))
    return ArrayCodec(space.dtype, ANY, low, high)


def _items(space: AnySpace) -> ItemsCodec:
    return ItemsCodec(codec_of(space))


def _stack(space: AnySpace) -> StackCodec:
    """Return the codec of any number of values of `space`, stacked as Gymnasium stacks them."""
    return StackCodec(_leaves(space))


def _leaves(space: AnySpace) -> Codec:
    codec: Codec = find_row(STACKS, space)[1](space)
    return codec


CODECS: Final[Mapping[type, Callable[[Any], Codec]]] = {
    spaces.Box: _box,
    spaces.Discrete: DiscreteCodec,
    spaces.MultiDiscrete: _multi_discrete,
    spaces.MultiBinary: _multi_binary,
    spaces.Text: TextCodec,
    spaces.Dict: lambda space: DictCodec({key: codec_of(part) for key, part in space.spaces.items()}),
    spaces.Tuple: lambda space: TupleCodec([codec_of(part) for part in space.spaces]),
    spaces.Sequence: lambda space: (_stack if space.stack else _items)(space.feature_space),
    spaces.OneOf: lambda space: OneOfCodec([codec_of(part) for part in space.spaces]),
    spaces.Graph: lambda space: GraphCodec(
        _stack(space.node_space), None if space.edge_space is None else _stack(space.edge_space)
    ),
}
STACKS: Final[Mapping[type, Callable[[Any], Codec]]] = {
    spaces.Box: lambda space: _box(space, ANY),
    spaces.Discrete: _stack_discrete,
    spaces.MultiDiscrete: lambda space: _multi_discrete(space, ANY),
    spaces.MultiBinary: lambda space: _multi_binary(space, ANY),
    spaces.Dict: lambda space: DictCodec({key: _leaves(part) for key, part in space.spaces.items()}),
    spaces.Tuple: lambda space: TupleCodec([_leaves(part) for part in space.spaces]),
    # What Gymnasium cannot stack it keeps as a tuple.
    **dict.fromkeys((spaces.Text, spaces.Sequence, spaces.OneOf, spaces.Graph), _items),
}
