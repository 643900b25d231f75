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

from proctor.contracts.declared_tools import RESULT, Declared, declarations
from proctor.contracts.tool_arguments import NOTHING, Spoken, refusal_of, schema_of
from proctor.contracts.tool_returns import Meaning
from proctor.contracts.tools import Plan, Planned, Tool, Toolbox, ToolSafety
from proctor.errors import ComponentError
from proctor.models.json_schemas import arguments_in_words, in_words
from proctor.models.wire import Action, Observation, WireModel

Conclusion = Callable[[Any], Planned]
"""Turns what a method returned into what the call asks for."""

OBSERVE: Final = "Look at the latest observation again. This changes nothing and takes no step."
ACT: Final = """Carry out one action: one step of the episode. What comes back is the observation after it.

An action that does not fit is refused, and nothing happens. When the episode has ended, no action is taken any more."""


def declared_toolbox(holder: object, action_type: type[Action], observation_type: type[Observation]) -> Toolbox | None:
    """Return the tools that the methods of `holder` are decorated as, or None if none is.

    `holder` is an environment with these types, or an object that speaks for one.
    """
    declared = declarations(type(holder))
    if not declared:
        return None
    types: dict[Meaning, type[BaseModel]] = {Meaning.ACTIONS: action_type, Meaning.OBSERVATION: observation_type}
    return Toolbox((each.tool, _plan(each, getattr(holder, each.attribute), types)) for each in declared)


def _plan(declared: Declared, method: Callable[..., Any], types: Mapping[Meaning, type[BaseModel]]) -> Plan:
    read, as_told, conclude = declared.read, declared.as_told, _conclusion(declared, types)

    def plan(arguments: bytes) -> Planned:
        keywords = read(arguments)
        try:
            found = method(**keywords)
        except ModelError as problem:
            raise as_told(problem) from None
        return conclude(found)

    async def plan_later(arguments: bytes) -> Planned:
        keywords = read(arguments)
        try:
            found = await method(**keywords)
        except ModelError as problem:
            raise as_told(problem) from None
        return conclude(found)

    return plan_later if declared.later else plan


def _conclusion(declared: Declared, types: Mapping[Meaning, type[BaseModel]]) -> Conclusion:
    if declared.answer is not None:
        return _answering(declared, declared.answer)
    expected: Any = types[declared.gives.meaning]
    for kind in declared.gives.kinds:
        # A parent is as good: what is really returned is looked at in each call.
        if not issubclass(kind, expected) and not issubclass(expected, kind):
            raise _undeclared(declared.tool, kind, expected)
    return (_acting if declared.gives.meaning is Meaning.ACTIONS else _showing)(declared.tool, expected)


def _acting(tool: Tool, action_type: type[Action]) -> Conclusion:
    def conclude(found: Any) -> Planned:
        if isinstance(found, action_type):
            return Planned((found,))
        actions = tuple(found) if isinstance(found, Sequence) else (found,)
        for each in actions:
            if not isinstance(each, action_type):
                raise _undeclared(tool, type(each), action_type)
        return Planned(actions)

    return conclude


def _showing(tool: Tool, observation_type: type[Observation]) -> Conclusion:
    def conclude(found: Any) -> Planned:
        if not isinstance(found, observation_type):
            raise _undeclared(tool, type(found), observation_type)
        return Planned(seen=found)

    return conclude


def _answering(declared: Declared, answer: type[Spoken]) -> Conclusion:
    def conclude(found: Any) -> Planned:
        try:
            made = answer.__pydantic_validator__.validate_python({RESULT: found})
            said = answer.__pydantic_serializer__.to_python(made, mode="json", warnings="error")
        except (ModelError, PydanticSerializationError) as problem:
            raise ComponentError(
                f"the tool {declared.tool.name} returned something else than it declares",
                found=found,
                expected=in_words(schema_of(answer, answers=True)["properties"][RESULT]),
            ) from problem
        return Planned(value=said if declared.wrapped else said[RESULT])

    return conclude


def _undeclared(tool: Tool, found: type, expected: type) -> ComponentError:
    return ComponentError(
        f"the tool {tool.name} returns something else than the environment's own type",
        found=found.__name__,
        expected=expected.__name__,
    )


def _nothing_kept() -> None:
    """Leave it to whoever drives the environment to know the latest observation."""


def generated_toolbox(
    action_type: type[Action],
    observation_type: type[Observation],
    latest: Callable[[], Observation | None] = _nothing_kept,
) -> Toolbox:
    """Return `observe` and `act` for these types; `latest` gives the observation to show, if it is known here."""
    observe, act = generated_tools(action_type, observation_type)
    read = partial(action_type.__pydantic_validator__.validate_json, strict=True)
    return observing_and_acting(observe, act, read, latest)


def observing_and_acting(
    observe: Tool, act: Tool, read: Callable[[bytes], Action], latest: Callable[[], Observation | None]
) -> Toolbox:
    """Return a toolbox of these two; `read` turns JSON into an action, or raises pydantic's error."""

    def plan_observe(arguments: bytes) -> Planned:
        try:
            Spoken.__pydantic_validator__.validate_json(arguments, strict=True)
        except ModelError as problem:
            raise refusal_of(observe, problem) from None
        return Planned(seen=latest())

    def plan_act(arguments: bytes) -> Planned:
        try:
            return Planned((read(arguments),))
        except ModelError as problem:
            raise refusal_of(act, problem) from None

    return Toolbox(((observe, plan_observe), (act, plan_act)))


@lru_cache(maxsize=64)
def generated_tools(action_type: type[Action], observation_type: type[Observation]) -> tuple[Tool, Tool]:
    """Return what is told of `observe` and `act` for these types: their docstrings, and what an action takes."""
    schema = schema_of(action_type)
    takes = f"It takes {arguments_in_words(schema)}."
    return observe_tool(_said(observation_type)), act_tool(schema, _said(action_type), takes)


def observe_tool(*about: str) -> Tool:
    """Return what is told of `observe`, with what is to be said of observations."""
    return Tool(name="observe", description=_text(OBSERVE, *about), safety=ToolSafety.READ, input_schema=NOTHING)


def act_tool(schema: dict[str, Any], *about: str) -> Tool:
    """Return what is told of `act`, which takes what `schema` says, with what is to be said of actions."""
    return Tool(name="act", description=_text(ACT, *about), safety=ToolSafety.WRITE, input_schema=schema)


def _text(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def _said(model: type[WireModel]) -> str:
    """Return what a model's own docstring says."""
    return cleandoc(vars(model).get("__doc__") or "")
