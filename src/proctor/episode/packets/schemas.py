"""The JSON Schemas (2020-12) of everything that a line can be, told by the Structs and the table of conditions.

Rule 1: nothing is described twice: fields, types and sizes come from the Structs, descriptions from their docstrings,
    and what one field requires of another from `CONDITIONS`.
Rule 2: a schema says yes to what the reader takes, and no to all else. It differs in two points: for JSON Schema 1.0 is
    a whole number, and a date and time must be written with a T and a colon in its offset (the reader also takes a
    blank, and an offset such as +0530, but no year 0). Whether a day exists is told by a validator that asserts formats.
"""

from collections.abc import Iterable, Mapping
from inspect import cleandoc
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw, inspect

from proctor.episode.packets.enums import PacketKind, RecordKind
from proctor.episode.packets.fields import CONTENTS, PAYLOADS, Compliance, Header, RecordLine
from proctor.episode.packets.validation import conditions_for

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
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in wholes],
    }
    return {**found, LINE: _with_definitions(line, {**wholes, **parts})}


def _packet_schema(kind: PacketKind, parts: Parts) -> Schema:
    payload = _type_schema(inspect.type_info(PAYLOADS[kind]), parts)
    return {
        "title": kind.value,
        "description": parts[PAYLOADS[kind].__name__]["description"] if "$ref" in payload else "Neutral: any object.",
        "type": "object",
        "properties": {
            "header": {
                **_type_schema(inspect.type_info(Header), parts),
                "properties": {"packet_type": {"const": kind.value}},
            },
            "mcp": _type_schema(inspect.type_info(Compliance), parts),
            "payload": payload,
        },
        "patternProperties": {"^_": {}},
        "required": ["header", "mcp", "payload"],
        "additionalProperties": False,
        "allOf": [
            {
                "if": _schema_at(condition.given, {"enum": msgspec.to_builtins(list(condition.values))}),
                "then": _schema_at(condition.pointer, {"not": {"enum": [None, ""]}}),
                "description": condition.reason,
            }
            for condition in conditions_for(kind)
        ],
    }


def _record_schema(parts: Parts) -> Schema:
    record = _struct_body(inspect.type_info(RecordLine), parts)
    record["properties"]["data"] = {"type": "object", "default": {}}
    contents = {kind: _type_schema(inspect.type_info(CONTENTS[kind]), parts) for kind in RecordKind}
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


def _schema_at(pointer: str, schema: Schema) -> Schema:
    """Return a schema of a whole that has what `schema` says at `pointer`."""
    for key in reversed(pointer.split("/")[1:]):
        schema = {"properties": {key: schema}, "required": [key]}
    return schema


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


_JSON_TYPES: Final[dict[type[inspect.Type], str]] = {
    inspect.NoneType: "null",
    inspect.BoolType: "boolean",
    inspect.IntType: "integer",
    inspect.FloatType: "number",
    inspect.StrType: "string",
    inspect.DateTimeType: "string",
    inspect.ListType: "array",
    inspect.DictType: "object",
}
# What JSON Schema calls a limit, by the type and by msgspec's name of it.
_LIMITS: Final[dict[type[inspect.Type], dict[str, str]]] = {
    inspect.IntType: {"ge": "minimum", "le": "maximum"},
    inspect.FloatType: {"ge": "minimum", "le": "maximum"},
    inspect.StrType: {"min_length": "minLength"},
    inspect.ListType: {"min_length": "minItems", "max_length": "maxItems"},
    inspect.DictType: {"min_length": "minProperties"},
}


def _type_schema(described: inspect.Type, parts: Parts) -> Schema:
    """Return the schema of a type; Structs and enums are put among the parts, and named."""
    match described:
        case inspect.StructType(cls=part) | inspect.EnumType(cls=part):
            return _part_schema(described, part, parts)
        case inspect.UnionType(types=options):
            return {"anyOf": [_type_schema(option, parts) for option in options]}
        case inspect.LiteralType(values=values):
            return {"enum": list(values)}
        case inspect.Metadata(type=inner, extra_json_schema=extra):
            return {**_type_schema(inner, parts), **(extra or {})}
    name = _JSON_TYPES.get(type(described))
    schema: Schema = {} if name is None else {"type": name}
    if isinstance(described, inspect.ListType):
        schema["items"] = _type_schema(described.item_type, parts)
    elif isinstance(described, inspect.DateTimeType):
        schema |= {"format": "date-time", "pattern": MOMENT}
    limits = {keyword: getattr(described, limit) for limit, keyword in _LIMITS.get(type(described), {}).items()}
    return schema | {keyword: limit for keyword, limit in limits.items() if limit is not None}


def _part_schema(described: inspect.StructType | inspect.EnumType, part: type, parts: Parts) -> Schema:
    name = part.__name__
    if name not in parts:
        body = (
            _struct_body(described, parts)
            if isinstance(described, inspect.StructType)
            else {"enum": [word.value for word in described.cls]}
        )
        parts[name] = {"title": name, "description": cleandoc(part.__doc__ or ""), **body}
    return {"$ref": f"#/$defs/{name}"}


def _struct_body(struct: inspect.Type, parts: Parts) -> Schema:
    fields = struct.fields if isinstance(struct, inspect.StructType) else ()
    properties = {field.encode_name: _type_schema(field.type, parts) for field in fields}
    for field in fields:
        if not field.required:
            raw = field.default
            default = msgspec.json.decode(raw) if isinstance(raw, Raw) else msgspec.to_builtins(raw)
            properties[field.encode_name] = {**properties[field.encode_name], "default": default}
    return {
        "type": "object",
        "properties": properties,
        "required": [field.encode_name for field in fields if field.required],
        "additionalProperties": False,
    }
