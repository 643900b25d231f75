"""How a toolbox is filled: by an object's decorated methods, or with `observe` and `act`, made from the wire types.

Rule 1: a call reads its arguments and asks; no model and no schema is made for it.
Rule 2: what a method returns is held against its declaration: anything else is a ComponentError, the author's mistake.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from inspect import cleandoc
from typing import Any, Final

from pydantic import BaseModel
from pydantic import ValidationError as ModelError
from pydantic_core import PydanticSerializationError

from proctor.contracts.declared_tools import RESULT, DeclaredTool, ReturnKind, find_declared_tools
from proctor.contracts.tool_arguments import EMPTY_SCHEMA, ToolMessage, make_json_schema, make_refusal
from proctor.contracts.tools import PlanFunction, Tool, Toolbox, ToolPlan, ToolSafety
from proctor.errors import ComponentError
from proctor.models.json_schemas import describe_arguments, describe_schema
from proctor.models.wire import Action, Observation, WireModel

ResultConverter = Callable[[Any], ToolPlan]
"""Turns what a method returned into what the call asks for."""

OBSERVE: Final = "Look at the latest observation again. This changes nothing and takes no step."
ACT: Final = """Carry out one action: one step of the episode. What comes back is the observation after it.

An action that does not fit is refused, and nothing happens. When the episode has ended, no action is taken any more."""


def toolbox_from_methods(
    holder: object, action_type: type[Action], observation_type: type[Observation]
) -> Toolbox | None:
    """Return the tools that the methods of `holder` are decorated as, or None if none is.

    `holder` is an environment with these types, or an object that speaks for one.
    """
    declared = find_declared_tools(type(holder))
    if not declared:
        return None
    types: dict[ReturnKind, type[BaseModel]] = {
        ReturnKind.ACTIONS: action_type,
        ReturnKind.OBSERVATION: observation_type,
    }
    return Toolbox((each.tool, _make_plan(each, getattr(holder, each.attribute), types)) for each in declared)


def _make_plan(
    declared: DeclaredTool, method: Callable[..., Any], types: Mapping[ReturnKind, type[BaseModel]]
) -> PlanFunction:
    read, as_told, conclude = declared.parse_arguments, declared.as_refusal, _make_converter(declared, types)

    def plan(arguments: bytes) -> ToolPlan:
        keywords = read(arguments)
        try:
            found = method(**keywords)
        except ModelError as problem:
            raise as_told(problem) from None
        return conclude(found)

    async def plan_later(arguments: bytes) -> ToolPlan:
        keywords = read(arguments)
        try:
            found = await method(**keywords)
        except ModelError as problem:
            raise as_told(problem) from None
        return conclude(found)

    return plan_later if declared.is_async else plan


def _make_converter(declared: DeclaredTool, types: Mapping[ReturnKind, type[BaseModel]]) -> ResultConverter:
    if declared.value_model is not None:
        return _make_value_converter(declared, declared.value_model)
    expected: Any = types[declared.returns.kind]
    for kind in declared.returns.types:
        # A parent is as good: what is really returned is looked at in each call.
        if not issubclass(kind, expected) and not issubclass(expected, kind):
            raise _wrong_type_error(declared.tool, kind, expected)
    return (_make_action_converter if declared.returns.kind is ReturnKind.ACTIONS else _make_observation_converter)(
        declared.tool, expected
    )


def _make_action_converter(tool: Tool, action_type: type[Action]) -> ResultConverter:
    def conclude(found: Any) -> ToolPlan:
        if isinstance(found, action_type):
            return ToolPlan((found,))
        actions = tuple(found) if isinstance(found, Sequence) else (found,)
        for each in actions:
            if not isinstance(each, action_type):
                raise _wrong_type_error(tool, type(each), action_type)
        return ToolPlan(actions)

    return conclude


def _make_observation_converter(tool: Tool, observation_type: type[Observation]) -> ResultConverter:
    def conclude(found: Any) -> ToolPlan:
        if not isinstance(found, observation_type):
            raise _wrong_type_error(tool, type(found), observation_type)
        return ToolPlan(seen=found)

    return conclude


def _make_value_converter(declared: DeclaredTool, answer: type[ToolMessage]) -> ResultConverter:
    def conclude(found: Any) -> ToolPlan:
        try:
            made = answer.__pydantic_validator__.validate_python({RESULT: found})
            said = answer.__pydantic_serializer__.to_python(made, mode="json", warnings="error")
        except (ModelError, PydanticSerializationError) as problem:
            raise ComponentError(
                f"the tool {declared.tool.name} returned something else than it declares",
                found=found,
                expected=describe_schema(make_json_schema(answer, answers=True)["properties"][RESULT]),
            ) from problem
        return ToolPlan(value=said if declared.is_wrapped else said[RESULT])

    return conclude


def _wrong_type_error(tool: Tool, found: type, expected: type) -> ComponentError:
    return ComponentError(
        f"the tool {tool.name} returns something else than the environment's own type",
        found=found.__name__,
        expected=expected.__name__,
    )


def _no_latest_observation() -> None:
    """Leave it to whoever drives the environment to know the latest observation."""


def toolbox_from_types(
    action_type: type[Action],
    observation_type: type[Observation],
    latest: Callable[[], Observation | None] = _no_latest_observation,
) -> Toolbox:
    """Return `observe` and `act` for these types; `latest` gives the observation to show, if it is known here."""
    observe, act = tools_from_types(action_type, observation_type)
    read = partial(action_type.__pydantic_validator__.validate_json, strict=True)
    return observe_act_toolbox(observe, act, read, latest)


def observe_act_toolbox(
    observe: Tool, act: Tool, read: Callable[[bytes], Action], latest: Callable[[], Observation | None]
) -> Toolbox:
    """Return a toolbox of these two; `read` turns JSON into an action, or raises pydantic's error."""

    def plan_observe(arguments: bytes) -> ToolPlan:
        try:
            ToolMessage.__pydantic_validator__.validate_json(arguments, strict=True)
        except ModelError as problem:
            raise make_refusal(observe, problem) from None
        return ToolPlan(seen=latest())

    def plan_act(arguments: bytes) -> ToolPlan:
        try:
            return ToolPlan((read(arguments),))
        except ModelError as problem:
            raise make_refusal(act, problem) from None

    return Toolbox(((observe, plan_observe), (act, plan_act)))


@lru_cache(maxsize=64)
def tools_from_types(action_type: type[Action], observation_type: type[Observation]) -> tuple[Tool, Tool]:
    """Return what is told of `observe` and `act` for these types: their docstrings, and what an action takes."""
    schema = make_json_schema(action_type)
    takes = f"It takes {describe_arguments(schema)}."
    return observe_tool(_read_docstring(observation_type)), act_tool(schema, _read_docstring(action_type), takes)


def observe_tool(*about: str) -> Tool:
    """Return what is told of `observe`, with what is to be said of observations."""
    return Tool(
        name="observe", description=_join_paragraphs(OBSERVE, *about), safety=ToolSafety.READ, input_schema=EMPTY_SCHEMA
    )


def act_tool(schema: dict[str, Any], *about: str) -> Tool:
    """Return what is told of `act`, which takes what `schema` says, with what is to be said of actions."""
    return Tool(name="act", description=_join_paragraphs(ACT, *about), safety=ToolSafety.WRITE, input_schema=schema)


def _join_paragraphs(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def _read_docstring(model: type[WireModel]) -> str:
    """Return what a model's own docstring says."""
    return cleandoc(vars(model).get("__doc__") or "")
