"""What an environment offers to agents: tools, what one call of a tool asks for, and how its arguments are read.

Rule 1: a tool moves nothing. One that acts returns actions, and whoever called it carries them out, one step each, in
    order. So an agent's call goes the same way as an orchestrator's step.
Rule 2: what is told of a tool (`Tool`) is a value that can cross a pipe; who made it is not trusted, so a name that is
    no name, or one of `RESERVED`, is a ComponentError wherever a Tool is made.
Rule 3: arguments that do not fit are a ValidationError that says where, what is wrong and what would be right, for a few
    problems; nothing has run. It repeats no input but the beginning of a name, and no text of an exception that was not
    written for a caller.
Rule 4: JSON is read strictly: what a model's JSON Schema refuses is refused. "3" is no 3, and no number is NaN.
Rule 5: a model is made once for a method or an action model, never for a call. How long and how deep arguments can be, and
    of how many values, is read from their JSON Schema; what it leaves open is None.
Rule 6: this file knows how a toolbox is used. How methods and action models become tools is said in `toolboxes`.
"""

import inspect
import json
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from pydantic import ConfigDict, create_model
from pydantic import ValidationError as ModelError
from pydantic.errors import PydanticUserError

from proctor.errors import ComponentError, ProctorError, ValidationError
from proctor.models.descriptions import describe_arguments, make_untitled_schema
from proctor.models.wire import Action, Observation, WireModel

NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
RESERVED: Final = frozenset({"reset", "step", "state", "close", "seed"})
"""What only an orchestrator does: no tool is called like that."""
MARK_ATTRIBUTE: Final = "__proctor_tool__"
SHORT: Final = 64
"""How much of an unknown name is repeated to whoever called it."""

MethodT = TypeVar("MethodT", bound=Callable[..., Any])


class ToolSafety(StrEnum):
    """Whether a tool only reads, or acts."""

    READ = "READ"
    WRITE = "WRITE"
    MIXED = "MIXED"
    """Acts, and is called for what it tells as much as for what it does."""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """What is told of a tool."""

    name: str
    description: str
    """For a language model: what it does, what comes back, when not to use it."""
    safety: ToolSafety
    input_schema: dict[str, Any]
    """The JSON Schema of the arguments: an object that takes no others."""
    output_schema: dict[str, Any] | None = None
    """The JSON Schema of the value that it answers with, an object; None: it answers with an observation."""
    title: str | None = None
    destructive: bool = False
    max_arguments_bytes: int | None = None
    """How long the JSON text of the arguments may be, as far as the server allows it; None: as its limits say."""

    def __post_init__(self) -> None:
        most = self.max_arguments_bytes
        if most is not None and (type(most) is not int or most < 1):
            raise ComponentError("not a number of bytes", found=most, expected="max_arguments_bytes=, at least 1")
        if not NAME.fullmatch(self.name):
            raise ComponentError(
                "not a tool's name", found=self.name, expected="1 to 64 of a-z, 0-9 and _, the first of them a letter"
            )
        if self.name in RESERVED:
            raise ComponentError(
                "a tool has a reserved name",
                found=self.name,
                expected=f"another name than {', '.join(sorted(RESERVED))}, which are the orchestrator's: tool(..., name=)",
            )


class ToolPlan(msgspec.Struct, frozen=True):
    """What a call asks for; one of the three.

    `actions` are to be carried out. `value` is a JSON object, the answer. `seen` is the observation to show. Nothing of
    the three: the latest observation is to be shown, which whoever drives the environment remembers.
    """

    actions: tuple[Action, ...] = ()
    value: Any = None
    seen: Observation | None = None


PlanFunction: TypeAlias = Callable[[bytes], ToolPlan | Awaitable[ToolPlan]]
"""Reads a call's arguments, a JSON object, and returns what the call asks for."""


class Toolbox:
    """The tools of one environment, in a fixed order."""

    def __init__(self, plans: Iterable[tuple[Tool, PlanFunction]]) -> None:
        pairs = tuple(plans)
        self.tools: tuple[Tool, ...] = tuple(tool for tool, _ in pairs)
        self._plans = {tool.name: plan for tool, plan in pairs}
        if len(self._plans) < len(self.tools):
            names = [tool.name for tool in self.tools]
            raise ComponentError(
                "two tools have the same name",
                found=next(name for name in names if names.count(name) > 1),
                expected="a name of its own for every tool: tool(..., name=)",
            )

    def plan(self, name: str, arguments: bytes) -> ToolPlan | Awaitable[ToolPlan]:
        """Return what a call of the tool `name` asks for, or raise a ValidationError; nothing is carried out.

        It is awaitable where the tool's method is a coroutine. What the method itself raises leaves as it is.
        """
        plan = self._plans.get(name)
        if plan is None:
            known = f"one of {', '.join(self._plans)}" if self._plans else "nothing: there are no tools"
            raise ValidationError("there is no such tool", found=name[:SHORT], expected=known)
        return plan(arguments)

    def with_note(self, note: str) -> "Toolbox":
        """Return a toolbox whose tools all say `note` besides: what holds for this environment and not for its class."""
        return Toolbox(
            (msgspec.structs.replace(tool, description=f"{tool.description}\n\n{note}"), self._plans[tool.name])
            for tool in self.tools
        )


@dataclass(frozen=True, slots=True)
class ToolMark:
    """What the decorator was told."""

    safety: ToolSafety
    name: str | None
    title: str | None
    destructive: bool
    max_arguments_bytes: int | None = None


def tool(
    safety: ToolSafety,
    *,
    name: str | None = None,
    title: str | None = None,
    destructive: bool = False,
    max_arguments_bytes: int | None = None,
) -> Callable[[MethodT], MethodT]:
    """Make a method of an Environment a tool for agents; the method itself stays what it is.

    Its parameters are typed, and JSON can say them; its docstring, all of it, is what a language model reads. What it
    returns decides what it is. An Action, or a list or tuple of them: it acts (WRITE or MIXED). An Observation: it
    shows that one (READ). Anything else: it answers with the value (READ). `max_arguments_bytes` is for a tool that takes
    more than the 64 KiB of arguments that a server allows by default, or wants less.
    """
    if not isinstance(safety, ToolSafety):
        raise ComponentError(
            "a tool is not said to read or to act", found=safety, expected="@tool(ToolSafety.READ), ..."
        )

    def mark_method(method: MethodT) -> MethodT:
        if not inspect.isfunction(method):
            raise ComponentError(
                "only methods can be tools", found=method, expected="@tool(...) directly above a method that takes self"
            )
        setattr(method, MARK_ATTRIBUTE, ToolMark(safety, name, title, destructive, max_arguments_bytes))
        return method

    return mark_method


# ------------------------------------------------------------------------------------------------------- arguments
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
    schema = make_untitled_schema(model, "serialization" if answers else "validation")
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
