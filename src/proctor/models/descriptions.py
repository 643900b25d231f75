"""JSON values and JSON Schemas in short words that people and language models read well.

Rule 1: numbers are rounded to six digits, and what is deep, long or unknown is summarised or said in general: the exact values
    travel beside the text, and whoever checks a value uses its schema.
Rule 2: a schema loses what says nothing: a title that repeats its name.
Rule 3: no numpy, so that a typed environment stays light; `arrays` tells arrays.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode

from proctor.models.wire import OUTSIDE, Observation

Schema = dict[str, Any]

MOST_VALUES: Final = 64
"""Lists of up to this many values are told in full."""
FIRST: Final = 8
"""How many values of a longer list are told."""
LONGEST: Final = 2000
"""Characters of a text that is told in full."""
DEEPEST: Final = 8

_OUTSIDE: Final = set(OUTSIDE)


def describe_fields(observation: Observation) -> str:
    """Return one line for each of the observation's own fields: no reward, no flags, no metadata."""
    fields = observation.__pydantic_serializer__.to_python(observation, mode="json", exclude=_OUTSIDE)
    return "\n".join([f"{name}: {describe_value(value)}" for name, value in fields.items()])


def describe_value(value: Any, depth: int = 0) -> str:
    """Return a JSON value as text."""
    way = DESCRIBERS.get(type(value))
    return str(value) if way is None else way(value, depth)


def format_number(number: float) -> str:
    """Return a number with six digits; an integer whole."""
    return f"{number:.6g}" if type(number) is float else str(number)


def format_count(count: int, what: str) -> str:
    """Return a number of things in words."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def describe_numbers(count: int, least: float, most: float, mean: float) -> str:
    """Return what is said of many numbers."""
    return f"{count} values, min {format_number(least)}, max {format_number(most)}, mean {format_number(mean)}"


def _describe_json(value: bool | None, depth: int) -> str:
    return json.dumps(value)


def _describe_text(value: str, depth: int) -> str:
    return value if len(value) <= LONGEST else f"{value[:LONGEST]} ... ({len(value)} characters)"


def _describe_object(value: Mapping[str, Any], depth: int) -> str:
    if depth >= DEEPEST:
        return "{...}"
    return f"{{{', '.join([f'{key}: {describe_value(each, depth + 1)}' for key, each in value.items()])}}}"


def _describe_list(values: Sequence[Any], depth: int) -> str:
    if depth >= DEEPEST:
        return "[...]"
    kinds = set(map(type, values))
    short = len(values) <= MOST_VALUES
    if short and not kinds.isdisjoint({list, tuple, dict}):
        # There are few values in the lists within it, too.
        short = sum(1 for _ in _leaves(values)) <= MOST_VALUES
    if short:
        return f"[{', '.join([describe_value(each, depth + 1) for each in values])}]"
    first = ", ".join([describe_value(each, depth + 1) for each in values[:FIRST]])
    if not kinds <= {int, float}:
        return f"[{first}, ...] ({len(values)} values)"
    return f"[{first}, ...] ({describe_numbers(len(values), min(values), max(values), _mean(values))})"


def _mean(values: Sequence[float]) -> float:
    try:
        return sum(values) / len(values)
    except OverflowError:  # integers that no float can be
        return math.inf if max(values) > -min(values) else -math.inf


def _leaves(values: Any) -> Iterator[Any]:
    for each in values.values() if isinstance(values, dict) else values:
        if isinstance(each, list | tuple | dict):
            yield from _leaves(each)
        else:
            yield each


DESCRIBERS: Final[Mapping[type, Callable[[Any, int], str]]] = {
    float: lambda value, depth: f"{value:.6g}",
    bool: _describe_json,
    type(None): _describe_json,
    str: _describe_text,
    dict: _describe_object,
    list: _describe_list,
    tuple: _describe_list,
}
"""How a kind of value is told at a depth; what is not here is told as Python does."""


DEEPEST_SCHEMA: Final = 3
"""How deep objects and lists are told."""
MOST_CHOICES: Final = 40
LONGEST_SCHEMA: Final = 1000
"""Characters of a schema in words."""

_NON_FINITE: Final = frozenset({"NaN", "Infinity", "-Infinity"})
_BOUNDS: Final = (
    ("minimum", "at least "),
    ("exclusiveMinimum", "above "),
    ("maximum", "at most "),
    ("exclusiveMaximum", "below "),
)


class _UntitledSchema(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: object) -> bool:
        return False


def make_untitled_schema(model: type[BaseModel], mode: JsonSchemaMode = "validation") -> Schema:
    """Return the JSON Schema of a model without its title, and without the titles inside that repeat a name."""
    schema = model.model_json_schema(schema_generator=_UntitledSchema, mode=mode)
    for name, part in schema.get("$defs", {}).items():
        if part.get("title") == name:
            del part["title"]
    schema.pop("title", None)
    return schema


def describe_arguments(schema: Schema) -> str:
    """Return what the schema of an object takes: each name, and in parentheses what it may be."""
    properties: Mapping[str, Schema] = schema.get("properties", {})
    if not properties:
        return "no arguments"
    needed = schema.get("required", ())
    told = []
    for name, part in properties.items():
        left_out = f"; {_format_json(part['default'])} if left out" if "default" in part else "; may be left out"
        told.append(f"{name} ({_describe(part, schema, 0)}{'' if name in needed else left_out})")
    return _shorten(", ".join(told))


def describe_schema(schema: Schema) -> str:
    """Return what the schema takes, as the second half of a sentence: "an integer from 0 to 3"."""
    return _shorten(_describe(schema, schema, 0))


def _describe(part: Any, whole: Schema, depth: int) -> str:
    if not isinstance(part, dict):
        return "any value"
    if "$ref" in part:
        found = whole.get("$defs", {}).get(part["$ref"].removeprefix("#/$defs/"))
        return _describe(found, whole, depth + 1) if depth < DEEPEST_SCHEMA else "a value"
    for keyword in ("anyOf", "oneOf"):
        if keyword in part:
            told = [_describe(each, whole, depth) for each in part[keyword] if not _is_non_finite(each)]
            return " or ".join(dict.fromkeys(told))
    if "const" in part:
        return _format_json(part["const"])
    if "enum" in part:
        return _describe_choices(part["enum"])
    return _describe_type(part, whole, depth)


def _is_non_finite(part: Any) -> bool:
    """Return whether a choice is only there for numbers that JSON lacks: taken, but not worth the words."""
    values = part.get("enum", ()) if isinstance(part, dict) else ()
    return bool(values) and all(isinstance(each, str) and each in _NON_FINITE for each in values)


def _describe_choices(values: list[Any]) -> str:
    if len(values) == 1:
        return _format_json(values[0])
    more = f" and {len(values) - MOST_CHOICES} more" if len(values) > MOST_CHOICES else ""
    return f"one of {', '.join(map(_format_json, values[:MOST_CHOICES]))}{more}"


def _describe_type(part: Schema, whole: Schema, depth: int) -> str:
    match part.get("type"):
        case "integer":
            return f"an integer{_describe_bounds(part)}"
        case "number":
            return f"a number{_describe_bounds(part)}"
        case "boolean":
            return "true or false"
        case "null":
            return "null"
        case "string":
            kind = f"text ({part['format']})" if "format" in part else "text"
            pattern = f" that matches {part['pattern']}" if "pattern" in part else ""
            return f"{kind}{_describe_count(part, 'Length', 'character')}{pattern}"
        case "array":
            return _describe_list_schema(part, whole, depth)
        case "object" if depth < DEEPEST_SCHEMA and part.get("properties"):
            told = (f"{name} ({_describe(each, whole, depth + 1)})" for name, each in part["properties"].items())
            return f"an object with {', '.join(told)}"
        case "object":
            return "an object"
    return "any value"


def _describe_bounds(part: Schema) -> str:
    if "minimum" in part and "maximum" in part:
        return f" from {_format_number(part['minimum'])} to {_format_number(part['maximum'])}"
    told = [f"{words}{_format_number(part[keyword])}" for keyword, words in _BOUNDS if keyword in part]
    return f" of {' and '.join(told)}" if told else ""


def _describe_list_schema(part: Schema, whole: Schema, depth: int) -> str:
    if depth >= DEEPEST_SCHEMA:
        return "a list"
    places = part.get("prefixItems")
    if places:
        return f"a list of {len(places)}: {', '.join(_describe(each, whole, depth + 1) for each in places)}"
    most = part.get("maxItems")
    if most == 0:
        return "an empty list"
    size = _describe_count(part, "Items", "value")
    if "items" not in part:
        return f"a list{size}"
    return f"a list{size}{':' if most == 1 else ', each'} {_describe(part['items'], whole, depth + 1)}"


def _describe_count(part: Schema, what: str, noun: str) -> str:
    """Return how many there may be; nothing if that is free."""
    least, most = part.get(f"min{what}", 0), part.get(f"max{what}")
    if most is None:
        return f" of {least} or more {noun}s" if least else ""
    count = f"{most}" if least == most else f"{least} to {most}"
    return f" of {count} {noun}{'' if most == 1 else 's'}"


def _format_number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.7g}"


def _format_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _shorten(text: str) -> str:
    return text if len(text) <= LONGEST_SCHEMA else f"{text[:LONGEST_SCHEMA]} ..."


def with_descriptions(schema: Schema, descriptions: Iterable[tuple[str, str]]) -> Schema:
    """Return `schema` with descriptions for those of its properties that have none."""
    properties = dict(schema.get("properties", {}))
    for name, text in descriptions:
        if name in properties and "description" not in properties[name]:
            properties[name] = {**properties[name], "description": text}
    return {**schema, "properties": properties}
