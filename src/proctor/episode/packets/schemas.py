"""The JSON Schemas (2020-12) of everything that a line can be, told by the Structs and the table of conditions.

Rule 1: nothing is described twice: fields, types and sizes come from the Structs, descriptions from their docstrings,
    and what one field requires of another from `CONDITIONS`.
Rule 2: a schema says yes to what the reader takes, and no to all else. It differs in two points: for JSON Schema 1.0 is
    a whole number, and a date and time must be written with a T and a colon in its offset (the reader also takes a
    blank, and an offset such as +0530, but no year 0). Whether a day exists is told by a validator that asserts formats.
"""

from collections.abc import Callable, Iterable, Mapping
from inspect import cleandoc
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw, inspect

from proctor.episode.packets.enums import PacketKind, RecordKind
from proctor.episode.packets.fields import CONTENTS, PAYLOADS, Compliance, Header, RecordLine
from proctor.episode.packets.validation import FieldCondition, conditions_for

Schema: TypeAlias = dict[str, Any]
# Named parts: what `$defs` holds.
Parts: TypeAlias = dict[str, Schema]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
RECORD: Final = "Record"
LINE: Final = "Line"
# RFC 3339 with an offset; the format alone is no assertion for most validators.
MOMENT: Final = (
    "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]+)?"
    "([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"
)


def schemas() -> dict[str, Schema]:
    """Return the schemas by name: every packet by its `packet_type`, `Record`, and `Line`, which is any of them."""
    parts: Parts = {}
    wholes: Parts = {kind.value: _packet_schema(kind, parts) for kind in PacketKind}
    wholes[RECORD] = _record_schema(parts)
    found = {name: _with_definitions(whole, parts) for name, whole in wholes.items()}
    line = {
        "title": LINE,
        "description": "Any line of a stream: a packet or a record.",
        "anyOf": [_reference(name) for name in wholes],
    }
    return {**found, LINE: _with_definitions(line, {**wholes, **parts})}


# ----------------------------------------------------------------------------------------------------------- whole lines
def _packet_schema(kind: PacketKind, parts: Parts) -> Schema:
    payload = _annotation_schema(PAYLOADS[kind], parts)
    return {
        "title": kind.value,
        "description": parts[PAYLOADS[kind].__name__]["description"] if "$ref" in payload else "Neutral: any object.",
        "type": "object",
        "properties": {
            "header": {**_annotation_schema(Header, parts), "properties": {"packet_type": {"const": kind.value}}},
            "mcp": _annotation_schema(Compliance, parts),
            "payload": payload,
        },
        "patternProperties": {"^_": {}},
        "required": ["header", "mcp", "payload"],
        "additionalProperties": False,
        "allOf": [_condition_schema(condition) for condition in conditions_for(kind)],
    }


def _record_schema(parts: Parts) -> Schema:
    record = _struct_body(inspect.type_info(RecordLine), parts)
    record["properties"]["data"] = {"type": "object", "default": {}}
    contents = {kind: _annotation_schema(CONTENTS[kind], parts) for kind in RecordKind}
    return {
        "title": RECORD,
        "description": "What a line can be besides a packet: an episode is opened, closed, answered, approved or halted.",
        **record,
        "allOf": [
            {"if": _schema_at("/record", {"const": kind.value}), "then": {"properties": {"data": content}}}
            for kind, content in contents.items()
            if "$ref" in content
        ],
    }


def _condition_schema(condition: FieldCondition) -> Schema:
    return {
        "if": _schema_at(condition.given, {"enum": msgspec.to_builtins(list(condition.values))}),
        "then": _schema_at(condition.pointer, {"not": {"enum": [None, ""]}}),
        "description": condition.reason,
    }


def _schema_at(pointer: str, schema: Schema) -> Schema:
    """Return a schema of a whole that has what `schema` says at `pointer`."""
    for key in reversed(pointer.split("/")[1:]):
        schema = {"properties": {key: schema}, "required": [key]}
    return schema


# -------------------------------------------------------------------------------------------------------- parts by name
def _reference(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _with_definitions(whole: Schema, parts: Mapping[str, Schema]) -> Schema:
    """Return a schema that stands alone: with every part that it names, and those that they name."""
    needed: set[str] = set()
    waiting = [whole]
    while waiting:
        names = set(_names_in(waiting.pop())) - needed
        needed |= names
        waiting += [parts[name] for name in names]
    return {"$schema": DIALECT, **whole, "$defs": {name: parts[name] for name in parts if name in needed}}


def _names_in(schema: object) -> Iterable[str]:
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"].removeprefix("#/$defs/")
        for inner in schema.values():
            yield from _names_in(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _names_in(inner)


# -------------------------------------------------------------------------------------------------------- types, by sort
def _annotation_schema(annotation: Any, parts: Parts) -> Schema:
    return _type_schema(inspect.type_info(annotation), parts)


def _type_schema(described: inspect.Type, parts: Parts) -> Schema:
    """Return the schema of a type; Structs and enums are put among the parts, and named."""
    return SCHEMA_BUILDERS[type(described)](described, parts)


def _struct_schema(struct: inspect.StructType, parts: Parts) -> Schema:
    name = struct.cls.__name__
    if name not in parts:
        parts[name] = {**_heading(struct.cls), **_struct_body(struct, parts)}
    return _reference(name)


def _struct_body(struct: inspect.Type, parts: Parts) -> Schema:
    fields = struct.fields if isinstance(struct, inspect.StructType) else ()
    return {
        "type": "object",
        "properties": {field.encode_name: {**_type_schema(field.type, parts), **_default(field)} for field in fields},
        "required": [field.encode_name for field in fields if field.required],
        "additionalProperties": False,
    }


def _default(field: inspect.Field) -> Schema:
    if field.required:
        return {}
    raw = field.default
    return {"default": msgspec.json.decode(raw) if isinstance(raw, Raw) else msgspec.to_builtins(raw)}


def _enum_schema(words: inspect.EnumType, parts: Parts) -> Schema:
    parts[words.cls.__name__] = {**_heading(words.cls), "enum": [word.value for word in words.cls]}
    return _reference(words.cls.__name__)


def _heading(part: type) -> Schema:
    return {"title": part.__name__, "description": cleandoc(part.__doc__ or "")}


def _union_schema(union: inspect.UnionType, parts: Parts) -> Schema:
    return {"anyOf": [_type_schema(option, parts) for option in union.types]}


def _id_schema(described: inspect.Metadata, parts: Parts) -> Schema:
    return {**_type_schema(described.type, parts), **(described.extra_json_schema or {})}


def _list_schema(items: inspect.ListType, parts: Parts) -> Schema:
    return {
        "type": "array",
        "items": _type_schema(items.item_type, parts),
        **_without_none(minItems=items.min_length, maxItems=items.max_length),
    }


def _mapping_schema(described: inspect.DictType, parts: Parts) -> Schema:
    return {"type": "object", **_without_none(minProperties=described.min_length)}


def _number_schema(number: inspect.IntType | inspect.FloatType, parts: Parts) -> Schema:
    name = "integer" if isinstance(number, inspect.IntType) else "number"
    return {"type": name, **_without_none(minimum=number.ge, maximum=number.le)}


def _without_none(**limits: float | None) -> Schema:
    return {name: limit for name, limit in limits.items() if limit is not None}


def _constant_schema(schema: Schema) -> Callable[[Any, Parts], Schema]:
    return lambda _described, _parts: dict(schema)


SCHEMA_BUILDERS: Final[Mapping[type[inspect.Type], Callable[[Any, Parts], Schema]]] = {
    inspect.AnyType: _constant_schema({}),
    inspect.RawType: _constant_schema({}),
    inspect.NoneType: _constant_schema({"type": "null"}),
    inspect.BoolType: _constant_schema({"type": "boolean"}),
    inspect.IntType: _number_schema,
    inspect.FloatType: _number_schema,
    inspect.StrType: lambda text, _parts: {"type": "string", **_without_none(minLength=text.min_length)},
    inspect.Metadata: _id_schema,
    inspect.DateTimeType: _constant_schema({"type": "string", "format": "date-time", "pattern": MOMENT}),
    inspect.EnumType: _enum_schema,
    inspect.LiteralType: lambda literal, _parts: {"enum": list(literal.values)},
    inspect.ListType: _list_schema,
    inspect.DictType: _mapping_schema,
    inspect.StructType: _struct_schema,
    inspect.UnionType: _union_schema,
}
