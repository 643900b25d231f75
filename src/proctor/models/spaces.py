"""Gymnasium spaces on the wire: a codec for every space, and a pydantic field that holds its values.

Rule 1: which codec a space has is a row of `CODECS`; a space without a row is a ComponentError.
Rule 2: this file joins the codecs; how each writes is said in `space_codecs` and `space_parts`, how a space itself is
    written in `space_descriptions`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from proctor.errors import ComponentError, ValidationError
from proctor.models.space_codecs import ArrayCodec, Codec, DiscreteCodec, FreeShape, Schema, TextCodec
from proctor.models.space_descriptions import described, space_from
from proctor.models.space_parts import DictCodec, GraphCodec, ItemsCodec, OneOfCodec, StackCodec, TupleCodec
from proctor.models.wire import PLAIN, Encoding

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


def _stacked_discrete(space: spaces.Discrete[Any]) -> ArrayCodec:
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
    spaces.Discrete: _stacked_discrete,
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

    def _taken(self, value: Any) -> Any:
        try:
            return self._read(value)
        except ValidationError as problem:
            try:
                said = self.codec.encode(value)
            except ComponentError:
                raise problem from None
            return self._read(said)

    def _encoded(self, value: Any, info: core_schema.SerializationInfo) -> Any:
        encoding = info.context
        return self.codec.encode(value, encoding if isinstance(encoding, Encoding) else PLAIN)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.json_or_python_schema(
            json_schema=core_schema.no_info_plain_validator_function(self.codec.decode if self.bounded else self._read),
            python_schema=core_schema.no_info_plain_validator_function(self._taken),
            serialization=core_schema.plain_serializer_function_ser_schema(
                self._encoded, info_arg=True, when_used="json"
            ),
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        return self.codec.schema()
