"""Pydantic fields that hold values of a Gymnasium space: as programs say them (`InSpace`), as agents do (`SpaceArgument`).

Rule 1: agents say arrays in lists only: a packed array is nothing that a language model writes.
Rule 2: what the schema refuses is refused before the codec looks, so that an error says which number is wrong. Bounds that
    differ from place to place are told place by place, as long as the places are few.
Rule 3: where an author named the actions of a `Discrete`, the names are what is taken, and no numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import gymnasium as gym
from gymnasium import spaces
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from proctor.errors import ComponentError, ValidationError
from proctor.models.descriptions import Schema, describe_schema
from proctor.models.spaces import Codec, codec_of
from proctor.models.wire import PLAIN, Encoding

AnySpace = gym.Space[Any]


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


def describe_space_argument(space: AnySpace, names: Sequence[str] | None = None) -> str:
    """Return what a value of `space` is, as the second half of a sentence: "an integer from 0 to 3"."""
    return describe_schema(space_schema(space, names))


def space_schema(space: AnySpace, names: Sequence[str] | None = None) -> Schema:
    """Return the JSON Schema of what agents say of `space`; `names` are those of a `Discrete`'s values, first to last."""
    if names is not None:
        return {"type": "string", "enum": list(names)}
    return codec_of(space).schema(packing=False)


class SpaceArgument:
    """Marks a field of a model as a value of a space that an agent says: `Annotated[Any, SpaceArgument(space)]`.

    JSON is held against `schema` and then read by the space's codec, so that the field holds the space's own values.
    """

    def __init__(self, space: AnySpace, names: Sequence[str] | None = None) -> None:
        self.schema = space_schema(space, names)
        self._decode = codec_of(space).decode
        start = int(space.start) if isinstance(space, spaces.Discrete) else 0
        self._values = {name: start + place for place, name in enumerate(names or ())}

    def _read(self, value: Any, check: Callable[[Any], Any]) -> Any:
        check(value)
        return self._decode(self._values[value] if self._values else value)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_wrap_validator_function(self._read, _core_schema(self.schema))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        return self.schema


def _core_schema(schema: Schema) -> CoreSchema:
    """Return what checks a value against one of the schemas made here; texts are left to the codec."""
    if "anyOf" in schema:
        return core_schema.union_schema(
            [_core_schema(part) for part in schema["anyOf"]],
            custom_error_type="no_choice",
            custom_error_message=f"Input should be {describe_schema(schema)}",
        )
    if "const" in schema or "enum" in schema:
        return core_schema.literal_schema([schema["const"]] if "const" in schema else schema["enum"])
    match schema["type"]:
        case "array":
            return _rows(schema)
        case "object":
            parts = {
                key: core_schema.typed_dict_field(_core_schema(part)) for key, part in schema["properties"].items()
            }
            return core_schema.typed_dict_schema(parts, extra_behavior="forbid")
        case kind:
            return LEAVES[kind](schema)


def _rows(schema: Schema) -> CoreSchema:
    if "prefixItems" in schema:
        return core_schema.tuple_positional_schema([_core_schema(part) for part in schema["prefixItems"]])
    return core_schema.list_schema(
        _core_schema(schema["items"]) if "items" in schema else None,
        min_length=schema.get("minItems"),
        max_length=schema.get("maxItems"),
    )


def _number(make: Callable[..., CoreSchema], schema: Schema) -> CoreSchema:
    return make(ge=schema.get("minimum"), le=schema.get("maximum"), strict=True)


LEAVES: Final[Mapping[str, Callable[[Schema], CoreSchema]]] = {
    "integer": lambda schema: _number(core_schema.int_schema, schema),
    "number": lambda schema: _number(partial(core_schema.float_schema, allow_inf_nan=False), schema),
    "boolean": lambda schema: core_schema.bool_schema(strict=True),
    "null": lambda schema: core_schema.none_schema(),
    "string": lambda schema: core_schema.str_schema(strict=True),
}
