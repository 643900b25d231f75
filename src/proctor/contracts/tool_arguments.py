"""What a tool takes and answers, as models, and what whoever called is told if the arguments do not fit.

Rule 1: a model is made once for a method or an action model, never for a call.
Rule 2: JSON is read strictly: what a model's JSON Schema refuses is refused. "3" is no 3, and no number is NaN.
Rule 3: an error says where, what is wrong and what would be right, for a few problems. It repeats no input but the
    beginning of a name, and no text of an exception that was not written for a caller.
"""

from typing import Any, Final

from pydantic import ConfigDict, create_model
from pydantic import ValidationError as ModelError
from pydantic.errors import PydanticUserError

from proctor.contracts.tools import Tool
from proctor.errors import ComponentError, ProctorError, ValidationError
from proctor.models.json_schemas import arguments_in_words, tidied
from proctor.models.wire import WireModel

MOST_PROBLEMS: Final = 5
MOST_COUNTED: Final = 1000
"""With more of them none is told: to list them all takes pydantic longer than to find them."""
LONGEST_NAME: Final = 40
LONGEST_PROBLEM: Final = 200
NOTHING: Final[dict[str, Any]] = {"type": "object", "properties": {}, "additionalProperties": False}
"""The JSON Schema of a call without arguments."""


class Spoken(WireModel):
    """What a call carries, or what a tool answers with; without fields: nothing."""

    model_config = ConfigDict(allow_inf_nan=False)


def spoken_model(name: str, fields: dict[str, Any], where: str) -> type[Spoken]:
    """Return a model of these fields (name -> type and default), or raise a ComponentError about `where`."""
    try:
        return create_model(name, __base__=Spoken, **fields)
    except ComponentError as problem:
        raise _unspeakable(where, str(problem.found)) from problem
    except PydanticUserError as problem:
        raise _unspeakable(where, problem.message.partition(". ")[0]) from problem


def _unspeakable(where: str, reason: str) -> ComponentError:
    return ComponentError(
        f"{where} has a type that JSON cannot say ({reason})",
        expected="numbers, text, enums, models, lists of those ...",
    )


def schema_of(model: type[WireModel], *, answers: bool = False) -> dict[str, Any]:
    """Return the JSON Schema of a model without what only repeats names; of what it writes if it `answers`."""
    schema = tidied(model.model_json_schema(mode="serialization" if answers else "validation"))
    schema.pop("description", None)
    return {**NOTHING, **schema}


def refusal_of(tool: Tool, problem: ModelError) -> ValidationError:
    """Return what whoever called `tool` learns of arguments that do not fit."""
    return ValidationError(
        f"these are no arguments of {tool.name}: {_problems(problem)}", expected=arguments_in_words(tool.input_schema)
    )


def _problems(problem: ModelError) -> str:
    count = problem.error_count()
    if count > MOST_COUNTED:
        return f"{count} problems"
    errors = problem.errors(include_url=False, include_input=False)
    told = [_told(error) for error in errors[:MOST_PROBLEMS]]
    return "; ".join([*told, f"and {count - MOST_PROBLEMS} more"] if count > MOST_PROBLEMS else told)


def _told(error: Any) -> str:
    where = ".".join(_shown(str(part)[:LONGEST_NAME]) for part in error["loc"])
    return f"{where}: {_reason(error)}" if where else _reason(error)


def _shown(part: str) -> str:
    return part if part.isprintable() else ascii(part)


def _reason(error: Any) -> str:
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
