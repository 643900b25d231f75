"""Gymnasium spaces on the wire: a codec for every space, and a pydantic field that holds its values.

Rule 1: which codec a space has is a row of `CODECS`; a space without a row is a ComponentError.
Rule 2: this file joins the codecs; how numbers, arrays and text write is said in `space_codecs`, how a space itself is
    written in `space_descriptions`.
Rule 3: a part that cannot be read is named in the error by its key or its place, from the outermost inwards.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.spaces import GraphInstance
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from proctor.errors import ComponentError, ValidationError
from proctor.models.space_codecs import ArrayCodec, Codec, DiscreteCodec, FreeShape, ReadOptions, Schema, TextCodec
from proctor.models.space_descriptions import described, space_from
from proctor.models.wire import PLAIN, Encoding

GRAPH_KEYS: Final = {"nodes", "edges", "edge_links"}


def error_beneath(problem: ValidationError, part: object) -> ValidationError:
    """Return the error of a part as the error of the whole, with the part named first."""
    inner = problem.message
    where = f"at [{part!r}]"
    message = f"{where}{inner[3:]}" if inner.startswith("at [") else f"{where}: {inner}"
    return ValidationError(message, found=problem.found, expected=problem.expected)


class DictCodec(Codec):
    """An object with a value for every key."""

    def __init__(self, parts: Mapping[Any, Codec]) -> None:
        odd = [key for key in parts if type(key) is not str]
        if odd:
            raise ComponentError("a key that JSON cannot say", found=odd[0], expected="keys that are strings")
        self._parts = dict(parts)

    def encode(self, value: Any, encoding: Encoding = PLAIN) -> dict[str, Any]:
        """Return the object, its keys in the order of the space."""
        if not isinstance(value, Mapping) or value.keys() != self._parts.keys():
            raise ComponentError("not of its space's form", found=value, expected=self._describe_form())
        return {key: part.encode(value[key], encoding) for key, part in self._parts.items()}

    def read(self, value: Any, reading: ReadOptions) -> dict[str, Any]:
        """Return the dict, its keys in the order of the space."""
        if type(value) is not dict or value.keys() != self._parts.keys():
            raise ValidationError("not an object with these keys", found=value, expected=self._describe_form())
        made = {}
        key = None
        try:
            for key, part in self._parts.items():
                made[key] = part.read(value[key], reading)
        except ValidationError as problem:
            raise error_beneath(problem, key) from None
        return made

    def schema(self) -> Schema:
        """Return an object that has all keys and no others."""
        return {
            "type": "object",
            "properties": {key: part.schema() for key, part in self._parts.items()},
            "required": list(self._parts),
            "additionalProperties": False,
        }

    def lengths(self, value: Any) -> frozenset[int]:
        """Return the lengths of all parts."""
        return frozenset().union(*(part.lengths(value[key]) for key, part in self._parts.items()))

    def _describe_form(self) -> str:
        return f"the keys {', '.join(self._parts)}"


class TupleCodec(Codec):
    """An array with a value for every place."""

    def __init__(self, parts: Sequence[Codec]) -> None:
        self._parts = tuple(parts)

    def encode(self, value: Any, encoding: Encoding = PLAIN) -> list[Any]:
        """Return the array."""
        if not isinstance(value, tuple | list | np.ndarray) or len(value) != len(self._parts):
            raise ComponentError("not of its space's form", found=value, expected=self._describe_form())
        return [part.encode(each, encoding) for part, each in zip(self._parts, value, strict=True)]

    def read(self, value: Any, reading: ReadOptions) -> tuple[Any, ...]:
        """Return the tuple."""
        if type(value) is not list or len(value) != len(self._parts):
            raise ValidationError("not an array of this length", found=value, expected=self._describe_form())
        return read_each(self._parts, value, reading)

    def schema(self) -> Schema:
        """Return an array of exactly these places."""
        return tuple_schema([part.schema() for part in self._parts])

    def lengths(self, value: Any) -> frozenset[int]:
        """Return the lengths of all parts."""
        return frozenset().union(*(part.lengths(each) for part, each in zip(self._parts, value, strict=True)))

    def _describe_form(self) -> str:
        return f"an array of {len(self._parts)} values"


def read_each(parts: Sequence[Codec], values: Sequence[Any], reading: ReadOptions) -> tuple[Any, ...]:
    """Return each value read by its part; an error names the place."""
    made: list[Any] = []
    try:
        for part, each in zip(parts, values, strict=True):
            made.append(part.read(each, reading))
    except ValidationError as problem:
        raise error_beneath(problem, len(made)) from None
    return tuple(made)


def tuple_schema(schemas: list[Schema]) -> Schema:
    """Return the schema of an array with one schema for every place."""
    sized: Schema = {"type": "array", "minItems": len(schemas), "maxItems": len(schemas)}
    return {**sized, "prefixItems": schemas} if schemas else sized


class ItemsCodec(Codec):
    """An array of any length, all values of one space; read as a tuple."""

    def __init__(self, item: Codec) -> None:
        self._item = item

    def encode(self, value: Any, encoding: Encoding = PLAIN) -> list[Any]:
        """Return the array."""
        if not isinstance(value, tuple | list):
            raise ComponentError("not of its space's form", found=value, expected="a tuple")
        return [self._item.encode(each, encoding) for each in value]

    def read(self, value: Any, reading: ReadOptions) -> tuple[Any, ...]:
        """Return the tuple."""
        if type(value) is not list:
            raise ValidationError("not an array", found=value, expected="an array of any length")
        return read_each([self._item] * len(value), value, reading)

    def schema(self) -> Schema:
        """Return an array of any length."""
        return {"type": "array", "items": self._item.schema()}

    def lengths(self, value: Any) -> frozenset[int]:
        """Return how many values there are."""
        return frozenset({len(value)})


class StackCodec(Codec):
    """Any number of values, stacked leaf by leaf; all leaves have the same number."""

    def __init__(self, leaves: Codec) -> None:
        self._leaves = leaves

    def encode(self, value: Any, encoding: Encoding = PLAIN) -> Any:
        """Return the leaves."""
        return self._leaves.encode(value, encoding)

    def read(self, value: Any, reading: ReadOptions) -> Any:
        """Return the stacked values."""
        made = self._leaves.read(value, reading)
        lengths = self._leaves.lengths(made)
        if len(lengths) > 1:
            raise ValidationError("stacked parts differ in length", found=sorted(lengths), expected="one length")
        return made

    def schema(self) -> Schema:
        """Return the schema of the leaves."""
        return self._leaves.schema()

    def count(self, value: Any) -> int:
        """Return how many values are stacked."""
        return max(self._leaves.lengths(value), default=0)


class OneOfCodec(Codec):
    """A choice: `[index, value]`."""

    def __init__(self, parts: Sequence[Codec]) -> None:
        self._parts = tuple(parts)

    def encode(self, value: Any, encoding: Encoding = PLAIN) -> list[Any]:
        """Return the index and the value."""
        if not isinstance(value, tuple) or len(value) != 2 or not self._is_choice(value[0]):
            raise ComponentError("not of its space's form", found=value, expected=self._describe_form())
        return [int(value[0]), self._parts[value[0]].encode(value[1], encoding)]

    def _is_choice(self, choice: Any) -> bool:
        return isinstance(choice, int | np.integer) and 0 <= int(choice) < len(self._parts)

    def read(self, value: Any, reading: ReadOptions) -> tuple[Any, Any]:
        """Return the index and the value."""
        if type(value) is not list or len(value) != 2 or type(value[0]) is not int or not self._is_choice(value[0]):
            raise ValidationError("not a choice", found=value, expected=self._describe_form())
        try:
            return np.int64(value[0]), self._parts[value[0]].read(value[1], reading)
        except ValidationError as problem:
            raise error_beneath(problem, 1) from None

    def schema(self) -> Schema:
        """Return the choices."""
        return {"anyOf": [tuple_schema([{"const": i}, part.schema()]) for i, part in enumerate(self._parts)]}

    def _describe_form(self) -> str:
        return f"[index, value] with an index from 0 to {len(self._parts) - 1}"


class GraphCodec(Codec):
    """Nodes, and edges between them: `{"nodes", "edges", "edge_links"}`; without edges the last two are null."""

    def __init__(self, nodes: StackCodec, edges: StackCodec | None) -> None:
        self._nodes = nodes
        self._edges = edges
        limits = np.iinfo(np.int32)
        self._links = ArrayCodec(np.dtype(np.int32), (None, 2), np.array(0, np.int32), np.array(limits.max, np.int32))

    def encode(self, value: Any, encoding: Encoding = PLAIN) -> dict[str, Any]:
        """Return the nodes, the edges and the links."""
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
                raise ValidationError("edges do not fit", found=value["edges"], expected=self._describe_form())
            edges = self._edges.read(value["edges"], reading)
            part = "edge_links"
            links = self._links.read(value["edge_links"], reading)
            self._check_links(links, self._edges.count(edges), self._nodes.count(nodes))
        except ValidationError as problem:
            raise error_beneath(problem, part) from None
        return GraphInstance(nodes, edges, links)

    def _check_links(self, links: Any, edges: int, nodes: int) -> None:
        if len(links) != edges or (links.size and int(links.max()) >= nodes):
            raise ValidationError(
                "links do not fit", found=links.tolist(), expected=f"{edges} pairs of integers below {nodes}"
            )

    def schema(self) -> Schema:
        """Return an object of the three parts."""
        edges = [] if self._edges is None else [self._edges.schema()]
        links = [] if self._edges is None else [self._links.schema()]
        parts = {
            "nodes": self._nodes.schema(),
            "edges": {"anyOf": [*edges, {"type": "null"}]},
            "edge_links": {"anyOf": [*links, {"type": "null"}]},
        }
        return {"type": "object", "properties": parts, "required": list(parts), "additionalProperties": False}

    def _describe_form(self) -> str:
        return "null, as there is no edge space" if self._edges is None else "edges with their edge_links, or null"


__all__ = ["CODECS", "Codec", "InSpace", "codec_of", "described", "space_from"]

AnySpace = gym.Space[Any]
ANY: Final[tuple[None]] = (None,)
"""The first length of values that are stacked."""


def codec_of(space: AnySpace) -> Codec:
    """Return the codec of `space`, or raise a ComponentError."""
    return _row(CODECS, space)(space)


def _row(table: Mapping[type, Callable[[Any], Codec]], space: AnySpace) -> Callable[[Any], Codec]:
    for kind in type(space).__mro__:
        if kind in table:
            return table[kind]
    raise ComponentError(
        "this space cannot cross the wire",
        found=space,
        expected=f"one of {', '.join(kind.__name__ for kind in CODECS)}",
    )


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


def _sequence(space: spaces.Sequence) -> Codec:
    return _stack(space.feature_space) if space.stack else ItemsCodec(codec_of(space.feature_space))


def _graph(space: spaces.Graph) -> GraphCodec:
    edges = None if space.edge_space is None else _stack(space.edge_space)
    return GraphCodec(_stack(space.node_space), edges)


def _stack(space: AnySpace) -> StackCodec:
    """Return the codec of any number of values of `space`, stacked as Gymnasium stacks them."""
    return StackCodec(_leaves(space))


def _leaves(space: AnySpace) -> Codec:
    return _row(STACKS, space)(space)


def _items(space: AnySpace) -> ItemsCodec:
    return ItemsCodec(codec_of(space))


CODECS: Final[Mapping[type, Callable[[Any], Codec]]] = {
    spaces.Box: _box,
    spaces.Discrete: DiscreteCodec,
    spaces.MultiDiscrete: _multi_discrete,
    spaces.MultiBinary: _multi_binary,
    spaces.Text: TextCodec,
    spaces.Dict: lambda space: DictCodec({key: codec_of(part) for key, part in space.spaces.items()}),
    spaces.Tuple: lambda space: TupleCodec([codec_of(part) for part in space.spaces]),
    spaces.Sequence: _sequence,
    spaces.OneOf: lambda space: OneOfCodec([codec_of(part) for part in space.spaces]),
    spaces.Graph: _graph,
}
STACKS: Final[Mapping[type, Callable[[Any], Codec]]] = {
    spaces.Box: lambda space: _box(space, ANY),
    spaces.Discrete: _stack_discrete,
    spaces.MultiDiscrete: lambda space: _multi_discrete(space, ANY),
    spaces.MultiBinary: lambda space: _multi_binary(space, ANY),
    spaces.Dict: lambda space: DictCodec({key: _leaves(part) for key, part in space.spaces.items()}),
    spaces.Tuple: lambda space: TupleCodec([_leaves(part) for part in space.spaces]),
    # What Gymnasium cannot stack it keeps as a tuple.
    spaces.Text: _items,
    spaces.Sequence: _items,
    spaces.OneOf: _items,
    spaces.Graph: _items,
}


class InSpace:
    """Marks a field of a wire model as a value of a space: `observation: Annotated[Any, InSpace(codec)]`.

    JSON is read and written by the codec, so the field holds the space's own values, arrays included. From Python both
    forms are taken. Without `bounded` only the form is checked (see `Codec.decode`).
    """

    def __init__(self, codec: Codec, *, bounded: bool = True) -> None:
        self.codec = codec
        self.bounded = bounded

    def _read(self, value: Any) -> Any:
        return self.codec.decode(value, bounded=self.bounded)

    def _validate(self, value: Any) -> Any:
        try:
            return self._read(value)
        except ValidationError as problem:
            try:
                said = self.codec.encode(value)
            except ComponentError:
                raise problem from None
            return self._read(said)

    def _encode(self, value: Any, info: core_schema.SerializationInfo) -> Any:
        encoding = info.context
        return self.codec.encode(value, encoding if isinstance(encoding, Encoding) else PLAIN)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.json_or_python_schema(
            json_schema=core_schema.no_info_plain_validator_function(self.codec.decode if self.bounded else self._read),
            python_schema=core_schema.no_info_plain_validator_function(self._validate),
            serialization=core_schema.plain_serializer_function_ser_schema(
                self._encode, info_arg=True, when_used="json"
            ),
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        return self.codec.schema()
