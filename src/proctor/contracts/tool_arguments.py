"""What a tool takes and answers, as models, and what whoever called is told if the arguments do not fit.

Rule 1: a model is made once for a method or an action model, never for a call.
Rule 2: JSON is read strictly: what a model's JSON Schema refuses is refused. "3" is no 3, and no number is NaN.
Rule 3: how long and how deep arguments can be, and of how many values, is read from their JSON Schema, once for a tool; what it
    leaves open is None.
Rule 4: an error says where, what is wrong and what would be right, for a few problems. It repeats no input but the
    beginning of a name, and no text of an exception that was not written for a caller.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pydantic import ConfigDict, create_model
from pydantic import ValidationError as ModelError
from pydantic.errors import PydanticUserError

from proctor.contracts.tools import Tool
from proctor.errors import ComponentError, ProctorError, ValidationError
from proctor.models.descriptions import describe_arguments, tidy_schema
from proctor.models.wire import WireModel

MOST_PROBLEMS: Final = 5
MOST_COUNTED: Final = 1000
"""With more of them none is told: to list them all takes pydantic longer than to find them."""
LONGEST_NAME: Final = 40
LONGEST_PROBLEM: Final = 200
EMPTY_SCHEMA: Final[dict[str, Any]] = {"type": "object", "properties": {}, "additionalProperties": False}
"""The JSON Schema of a call without arguments."""


class ToolMessage(WireModel):
    """What a call carries, or what a tool answers with; without fields: nothing."""

    model_config = ConfigDict(allow_inf_nan=False)


def make_message_model(name: str, fields: dict[str, Any], where: str) -> type[ToolMessage]:
    """Return a model of these fields (name -> type and default), or raise a ComponentError about `where`."""
    try:
        return create_model(name, __base__=ToolMessage, **fields)
    except (ComponentError, PydanticUserError) as problem:
        reason = problem.found if isinstance(problem, ComponentError) else problem.message.partition(". ")[0]
        raise ComponentError(
            f"{where} has a type that JSON cannot say ({reason})",
            expected="numbers, text, enums, models, lists of those ...",
        ) from problem


def make_json_schema(model: type[WireModel], *, answers: bool = False) -> dict[str, Any]:
    """Return the JSON Schema of a model without what only repeats names; of what it writes if it `answers`."""
    schema = tidy_schema(model.model_json_schema(mode="serialization" if answers else "validation"))
    schema.pop("description", None)
    return {**EMPTY_SCHEMA, **schema}


_NUMBER_BYTES: Final = 32
"""A number of 17 digits with its sign, its exponent and what stands around it."""


@dataclass(frozen=True, slots=True)
class _JsonSize:
    """How long a JSON text can be, in bytes, how deep, and how many commas, colons, lists and objects it has; or infinite."""

    length: float
    depth: float
    values: float = 0


_ANYTHING: Final = _JsonSize(math.inf, math.inf, math.inf)


def max_argument_bytes(schema: Mapping[str, Any]) -> int | None:
    """Return how many bytes arguments of this schema need: numbers in full, text in ASCII; None if the schema does not say."""
    return _finite_or_none(_measure(schema, schema.get("$defs", {}), ()).length)


def max_argument_depth(schema: Mapping[str, Any]) -> int | None:
    """Return how deep lists and objects are nested in arguments of this schema; None if the schema does not say."""
    return _finite_or_none(_measure(schema, schema.get("$defs", {}), ()).depth)


def max_argument_values(schema: Mapping[str, Any]) -> int | None:
    """Return how many commas, colons, lists and objects arguments of this schema have at most; None if it does not say."""
    return _finite_or_none(_measure(schema, schema.get("$defs", {}), ()).values)


def _finite_or_none(size: float) -> int | None:
    return None if math.isinf(size) else int(size)


def _measure(schema: Any, definitions: Mapping[str, Any], inside: tuple[str, ...]) -> _JsonSize:
    """Return the extent of what fits a schema; `inside` are the definitions that it stands in."""
    if not isinstance(schema, Mapping):
        return _ANYTHING
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if name:
        return _ANYTHING if name in inside else _measure(definitions.get(name), definitions, (*inside, name))
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        return _largest(_measure(each, definitions, inside) for each in choices)
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if values is not None:
        return _largest(
            _ANYTHING if isinstance(each, list | dict) else _JsonSize(len(json.dumps(each)) + _NUMBER_BYTES, 0)
            for each in values
        )
    kinds = schema.get("type")
    measure = partial(_measure, definitions=definitions, inside=inside)
    return _largest(
        _measure_type(each, schema, measure) for each in ([kinds] if isinstance(kinds, str) else kinds or [""])
    )


def _measure_type(kind: str, schema: Mapping[str, Any], measure: Callable[[Any], _JsonSize]) -> _JsonSize:
    if kind in ("number", "integer", "boolean", "null"):
        return _JsonSize(_NUMBER_BYTES, 0)
    if kind == "string":
        return _JsonSize(schema.get("maxLength", math.inf) + _NUMBER_BYTES, 0)
    if kind == "array":
        return _measure_array(schema, measure)
    return _measure_object(schema, measure) if kind == "object" else _ANYTHING


def _measure_array(schema: Mapping[str, Any], measure: Callable[[Any], _JsonSize]) -> _JsonSize:
    parts = [(measure(each), 1.0) for each in schema.get("prefixItems", ())]
    more = max(0, schema.get("maxItems", math.inf) - len(parts))
    if more:
        parts.append((measure(schema.get("items")), more))
    length = sum(count * part.length for part, count in parts)
    values = sum(count * (1 + part.values) for part, count in parts)
    return _JsonSize(length + _NUMBER_BYTES, 1 + max((part.depth for part, _ in parts), default=0), 1 + values)


def _measure_object(schema: Mapping[str, Any], measure: Callable[[Any], _JsonSize]) -> _JsonSize:
    parts = {name: measure(each) for name, each in schema.get("properties", {}).items()}
    length = sum(len(name) + part.length for name, part in parts.items()) + _NUMBER_BYTES
    values = sum(2 + part.values for part in parts.values())
    depths = [part.depth for part in parts.values()]
    others = schema.get("additionalProperties", True)
    if others is not False:
        length = values = math.inf
        depths.append(measure(others).depth)
    return _JsonSize(length, 1 + max(depths, default=0), 1 + values)


def _largest(extents: Iterable[_JsonSize]) -> _JsonSize:
    found = list(extents)
    return _JsonSize(
        max(each.length for each in found), max(each.depth for each in found), max(each.values for each in found)
    )


def make_refusal(tool: Tool, problem: ModelError) -> ValidationError:
    """Return what whoever called `tool` learns of arguments that do not fit."""
    return ValidationError(
        f"these are no arguments of {tool.name}: {_format_problems(problem)}",
        expected=describe_arguments(tool.input_schema),
    )


def _format_problems(problem: ModelError) -> str:
    count = problem.error_count()
    if count > MOST_COUNTED:
        return f"{count} problems"
    errors = problem.errors(include_url=False, include_input=False)
    told = [_format_problem(error) for error in errors[:MOST_PROBLEMS]]
    return "; ".join([*told, f"and {count - MOST_PROBLEMS} more"] if count > MOST_PROBLEMS else told)


def _format_problem(error: Any) -> str:
    names = (str(part)[:LONGEST_NAME] for part in error["loc"])
    where = ".".join(name if name.isprintable() else ascii(name) for name in names)
    return f"{where}: {_format_reason(error)}" if where else _format_reason(error)


def _format_reason(error: Any) -> str:
    known = REASONS.get(error["type"])
    if known is not None:
        return known
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, ProctorError):
        expected = "" if cause.expected is None else f"; expected {cause.expected}"
        return f"{cause.message}{expected}"[:LONGEST_PROBLEM]
    if isinstance(cause, Exception):
        return "the value is not acceptable"
    reason: str = error["msg"]
    return reason.replace("Input should", "should", 1)[:LONGEST_PROBLEM]


REASONS: Final = {
    "missing": "is missing",
    "extra_forbidden": "is unknown",
    "json_invalid": "this is no JSON",
    "model_type": "this is no JSON object",
}
"""What pydantic's own words would not tell as plainly, or not without the input."""
