"""How spaces that are made of spaces are written in JSON: objects, arrays, choices and graphs.

Rule: a part that cannot be read is named in the error by its key or its place, from the outermost inwards.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from gymnasium.spaces import GraphInstance

from proctor.errors import ComponentError, ValidationError
from proctor.models.space_codecs import ArrayCodec, Codec, Reading, Schema
from proctor.models.wire import PLAIN, Encoding

GRAPH_KEYS: Final = {"nodes", "edges", "edge_links"}


def beneath(problem: ValidationError, part: object) -> ValidationError:
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
            raise ComponentError("not of its space's form", found=value, expected=self._expected())
        return {key: part.encode(value[key], encoding) for key, part in self._parts.items()}

    def read(self, value: Any, reading: Reading) -> dict[str, Any]:
        """Return the dict, its keys in the order of the space."""
        if type(value) is not dict or value.keys() != self._parts.keys():
            raise ValidationError("not an object with these keys", found=value, expected=self._expected())
        made = {}
        key = None
        try:
            for key, part in self._parts.items():
                made[key] = part.read(value[key], reading)
        except ValidationError as problem:
            raise beneath(problem, key) from None
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

    def _expected(self) -> str:
        return f"the keys {', '.join(self._parts)}"


class TupleCodec(Codec):
    """An array with a value for every place."""

    def __init__(self, parts: Sequence[Codec]) -> None:
        self._parts = tuple(parts)

    def encode(self, value: Any, encoding: Encoding = PLAIN) -> list[Any]:
        """Return the array."""
        if not isinstance(value, tuple | list | np.ndarray) or len(value) != len(self._parts):
            raise ComponentError("not of its space's form", found=value, expected=self._expected())
        return [part.encode(each, encoding) for part, each in zip(self._parts, value, strict=True)]

    def read(self, value: Any, reading: Reading) -> tuple[Any, ...]:
        """Return the tuple."""
        if type(value) is not list or len(value) != len(self._parts):
            raise ValidationError("not an array of this length", found=value, expected=self._expected())
        return read_each(self._parts, value, reading)

    def schema(self) -> Schema:
        """Return an array of exactly these places."""
        return places([part.schema() for part in self._parts])

    def lengths(self, value: Any) -> frozenset[int]:
        """Return the lengths of all parts."""
        return frozenset().union(*(part.lengths(each) for part, each in zip(self._parts, value, strict=True)))

    def _expected(self) -> str:
        return f"an array of {len(self._parts)} values"


def read_each(parts: Sequence[Codec], values: Sequence[Any], reading: Reading) -> tuple[Any, ...]:
    """Return each value read by its part; an error names the place."""
    made: list[Any] = []
    try:
        for part, each in zip(parts, values, strict=True):
            made.append(part.read(each, reading))
    except ValidationError as problem:
        raise beneath(problem, len(made)) from None
    return tuple(made)


def places(schemas: list[Schema]) -> Schema:
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

    def read(self, value: Any, reading: Reading) -> tuple[Any, ...]:
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

    def read(self, value: Any, reading: Reading) -> Any:
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
            raise ComponentError("not of its space's form", found=value, expected=self._expected())
        return [int(value[0]), self._parts[value[0]].encode(value[1], encoding)]

    def _is_choice(self, choice: Any) -> bool:
        return isinstance(choice, int | np.integer) and 0 <= int(choice) < len(self._parts)

    def read(self, value: Any, reading: Reading) -> tuple[Any, Any]:
        """Return the index and the value."""
        if type(value) is not list or len(value) != 2 or type(value[0]) is not int or not self._is_choice(value[0]):
            raise ValidationError("not a choice", found=value, expected=self._expected())
        try:
            return np.int64(value[0]), self._parts[value[0]].read(value[1], reading)
        except ValidationError as problem:
            raise beneath(problem, 1) from None

    def schema(self) -> Schema:
        """Return the choices."""
        return {"anyOf": [places([{"const": i}, part.schema()]) for i, part in enumerate(self._parts)]}

    def _expected(self) -> str:
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

    def read(self, value: Any, reading: Reading) -> GraphInstance:
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
                raise ValidationError("edges do not fit", found=value["edges"], expected=self._expected())
            edges = self._edges.read(value["edges"], reading)
            part = "edge_links"
            links = self._links.read(value["edge_links"], reading)
            self._check_links(links, self._edges.count(edges), self._nodes.count(nodes))
        except ValidationError as problem:
            raise beneath(problem, part) from None
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

    def _expected(self) -> str:
        return "null, as there is no edge space" if self._edges is None else "edges with their edge_links, or null"
