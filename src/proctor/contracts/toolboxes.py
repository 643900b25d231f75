"""How a toolbox is filled: by an object's decorated methods, or with `observe` and `act`, made from the wire types.

Rule 1: everything that can be known of a method is found out once for its class: the models, the schemas, the mistakes. A
    call reads its arguments and asks; no model and no schema is made for it.
Rule 2: a declaration that cannot work is a ComponentError that says what to do, when the first toolbox of the class is
    made. So is an answer of another type than the declared one.
Rule 3: a method that is overridden stays a tool. What it takes, returns and says is the override's; how it was decorated
    is inherited. None in its place takes the tool away.
Rule 4: the return type alone decides what a tool does (actions to carry out, an observation to show, or a value to answer
    with), and it must agree with the tool's safety. A mixture is a ComponentError, because nobody could know from the
    outside whether a call acts.
Rule 5: a docstring describes arguments in Google's style: a section `Args:` with a line or more for each name.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache, partial
from inspect import Parameter, cleandoc
from textwrap import dedent
from types import UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, Field
from pydantic import ValidationError as ModelError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError

from proctor.contracts.tools import (
    EMPTY_SCHEMA,
    MARK_ATTRIBUTE,
    PlanFunction,
    Tool,
    Toolbox,
    ToolMark,
    ToolMessage,
    ToolPlan,
    ToolSafety,
    make_json_schema,
    make_message_model,
    make_refusal,
)
from proctor.errors import ComponentError
from proctor.models.descriptions import describe_arguments, describe_schema, with_descriptions
from proctor.models.wire import Action, Observation, WireModel

ROWS: Final = (list, tuple, Sequence)
UNIONS: Final = (Union, UnionType)


class ReturnKind(StrEnum):
    """What a tool's answer is."""

    ACTIONS = "actions"
    OBSERVATION = "observation"
    VALUE = "value"


def read_return(annotation: Any, safety: ToolSafety, where: str) -> tuple[ReturnKind, tuple[type[Any], ...]]:
    """Return what a return type means, with the actions or observations that it can be; `where` names the tool."""
    if annotation is None or annotation is type(None):
        raise ComponentError(
            f"{where} does not say what it returns",
            expected="-> an Action or a list of them if it acts, else -> an Observation or a value",
        )
    kinds = tuple(_iterate_types(annotation))
    actions = [_is_subclass(each, Action) for each in kinds]
    shown = [_is_subclass(each, Observation) for each in kinds]
    acts = bool(kinds) and all(actions)
    shows = bool(kinds) and all(shown) and get_origin(_strip_annotation(annotation)) not in ROWS
    if not (acts or shows) and (any(actions) or any(shown)):
        raise ComponentError(
            f"{where} returns a mixture",
            found=annotation,
            expected="an Action, a list of them (which may be empty), an Observation, or a value without either",
        )
    if acts is (safety is ToolSafety.READ):
        returns, expected = (
            ("an Action", "WRITE or MIXED, or another return type")
            if acts
            else ("no Action", "-> an Action or a list of them, which is then carried out; or READ")
        )
        raise ComponentError(
            f"{where} is declared as {safety} and returns {returns}", found=annotation, expected=expected
        )
    if acts:
        return ReturnKind.ACTIONS, kinds
    return (ReturnKind.OBSERVATION, kinds) if shows else (ReturnKind.VALUE, ())


def _iterate_types(annotation: Any) -> Iterator[Any]:
    """Yield what a return type is made of: itself, the members of a union, what is in a row."""
    bare = _strip_annotation(annotation)
    if get_origin(bare) in (*ROWS, *UNIONS):
        for part in get_args(bare):
            if part is not Ellipsis:
                yield from _iterate_types(part)
    else:
        yield bare


def _strip_annotation(annotation: Any) -> Any:
    """Return a type without its notes; of a type variable its bound."""
    if get_origin(annotation) is Annotated:
        return get_args(annotation)[0]
    if isinstance(annotation, TypeVar) and annotation.__bound__ is not None:
        return annotation.__bound__
    return annotation


def _is_subclass(kind: Any, parent: type) -> bool:
    return isinstance(kind, type) and issubclass(kind, parent)


SECTION: Final = re.compile(r"^(?:Args|Arguments|Parameters):[ \t]*\n((?:[ \t]+\S.*\n?|[ \t]*\n)+)", re.MULTILINE)
"""The heading, and the lines below it that are indented."""
NEXT_ENTRY: Final = re.compile(r"\n(?=\*{0,2}\w+(?:[ \t]*\([^)\n]*\))?:)")
"""Where the next argument begins; any other line goes on with the description above it."""
ENTRY: Final = re.compile(r"\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s*(.*)")


def parse_argument_descriptions(doc: str) -> Iterator[tuple[str, str]]:
    """Yield each argument with its description, from a docstring that `cleandoc` has cleaned."""
    section = SECTION.search(doc)
    for text in NEXT_ENTRY.split(dedent(section[1])) if section else ():
        entry = ENTRY.fullmatch(" ".join(text.split()))
        if entry:
            yield entry[1], entry[2]


RESULT: Final = "result"
"""Under this name a value travels that is no object."""
BY_NAME: Final = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class DeclaredTool:
    """All that is known of a decorated method."""

    attribute: str
    tool: Tool
    arguments_model: type[ToolMessage]
    parameter_names: tuple[str, ...]
    """The parameters, in the order of the fields of `arguments_model`."""
    kind: ReturnKind
    types: tuple[type[Any], ...]
    """The actions or observations that it can return."""
    value_model: type[ToolMessage] | None
    """The model of a value, in its field `RESULT`; None if no value is returned."""
    is_wrapped: bool
    """Whether a value travels under that name, because it is no object itself."""
    is_async: bool
    """Whether the method has to be awaited."""

    def parse_arguments(self, arguments: bytes) -> dict[str, Any]:
        """Return the keywords of the method that this JSON text says, or raise a ValidationError."""
        try:
            made = self.arguments_model.__pydantic_validator__.validate_json(arguments, strict=True)
        except ModelError as problem:
            raise make_refusal(self.tool, problem) from None
        return dict(zip(self.parameter_names, made.__dict__.values(), strict=True))

    def as_refusal(self, problem: ModelError) -> Exception:
        """Return what the method raised, as a refusal where it says that the arguments make no action."""
        if any(problem.title == kind.__name__ for kind in self.types):
            return make_refusal(self.tool, problem)
        return problem


@lru_cache(maxsize=256)
def find_declared_tools(cls: type) -> tuple[DeclaredTool, ...]:
    """Return what is declared by the decorated methods of `cls`, in the order of their definitions."""
    found: dict[str, ToolMark] = {}
    for each in reversed(cls.__mro__):
        for name, member in vars(each).items():
            mark = vars(member).get(MARK_ATTRIBUTE) if inspect.isfunction(member) else None
            if isinstance(mark, ToolMark):
                found[name] = mark
            elif not inspect.isfunction(member):
                found.pop(name, None)
    return tuple(_declare_tool(cls, name, mark) for name, mark in found.items())


def _declare_tool(cls: type, attribute: str, mark: ToolMark) -> DeclaredTool:
    method: Callable[..., Any] = getattr(cls, attribute)
    where = f"the tool {cls.__name__}.{attribute}"
    doc = _find_docstring(cls, attribute, where)
    try:
        hints = get_type_hints(method, include_extras=True)
    except (NameError, TypeError) as problem:
        raise ComponentError(
            f"{where} has a type that cannot be found", found=str(problem), expected="types that its module knows"
        ) from problem
    name = mark.name or attribute
    takes, names = _make_arguments_model(method, name, hints, where)
    returned = hints.get("return")
    later = get_origin(returned) in (Awaitable, Coroutine)
    if later:
        returned = get_args(returned)[-1]
    kind, types = read_return(returned, mark.safety, where)
    answer = make_message_model(name, {RESULT: (returned, ...)}, where) if kind is ReturnKind.VALUE else None
    output, wrapped = (None, False) if answer is None else _output_schema(answer)
    described = Tool(
        name=name,
        description=doc,
        safety=mark.safety,
        input_schema=with_descriptions(make_json_schema(takes), parse_argument_descriptions(doc)),
        output_schema=output,
        title=mark.title,
        destructive=mark.destructive,
        max_arguments_bytes=mark.max_arguments_bytes,
    )
    is_async = later or inspect.iscoroutinefunction(method)
    return DeclaredTool(attribute, described, takes, names, kind, types, answer, wrapped, is_async)


def _find_docstring(cls: type, attribute: str, where: str) -> str:
    found = (vars(each)[attribute].__doc__ for each in cls.__mro__ if attribute in vars(each))
    doc = cleandoc(next((text for text in found if text), ""))
    if not doc:
        raise ComponentError(
            f"{where} says nothing of itself", expected="a docstring, which is all that a language model knows of it"
        )
    return doc


def _make_arguments_model(
    method: Callable[..., Any], name: str, hints: Mapping[str, Any], where: str
) -> tuple[type[ToolMessage], tuple[str, ...]]:
    """Return the model of a method's parameters, and their names."""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    for each in parameters:
        _check_parameter(each, hints, where)
    # Under names of their own, so that a parameter may be called as a member of pydantic's is; `json`, for example.
    fields: dict[str, Any] = {
        f"argument_{place}": (
            hints[each.name],
            Field(... if each.default is Parameter.empty else each.default, alias=each.name),
        )
        for place, each in enumerate(parameters)
    }
    return make_message_model(name, fields, where), tuple(each.name for each in parameters)


def _check_parameter(parameter: Parameter, hints: Mapping[str, Any], where: str) -> None:
    """Raise a ComponentError unless this parameter can be one of a JSON object's."""
    if parameter.kind not in BY_NAME:
        raise ComponentError(
            f"{where} has a parameter that cannot be given by name", found=str(parameter), expected="parameters by name"
        )
    if parameter.name not in hints:
        raise ComponentError(
            f"{where} has a parameter without a type", found=parameter.name, expected=f"{parameter.name}: its type"
        )
    if isinstance(parameter.default, FieldInfo):
        raise ComponentError(
            f"{where} has a Field as a default",
            found=parameter.name,
            expected="Annotated[its type, Field(...)] = default",
        )


def _output_schema(answer: type[ToolMessage]) -> tuple[dict[str, Any], bool]:
    """Return the JSON Schema of the object that says a value, and whether the value is wrapped in it."""
    wrapped = make_json_schema(answer, answers=True)
    definitions = wrapped.get("$defs", {})
    inner = wrapped["properties"][RESULT]
    if set(inner) == {"$ref"}:
        inner = definitions[inner["$ref"].removeprefix("#/$defs/")]
    if inner.get("type") != "object":
        return wrapped, True
    return ({**inner, "$defs": definitions} if definitions else dict(inner)), False


# ------------------------------------------------------------------------------------------------------- toolboxes
OBSERVE: Final = "Look at the latest observation again. This changes nothing and takes no step."
ACT: Final = """Carry out one action: one step of the episode. What comes back is the observation after it.

An action that does not fit is refused, and nothing happens. When the episode has ended, no action is taken any more."""


def toolbox_from_methods(holder: Any, action_type: type[Action], observation_type: type[Observation]) -> Toolbox | None:
    """Return the tools that the methods of `holder` are decorated as, or None if none is.

    `holder` is an environment with these types, or an object that speaks for one.
    """
    declared = find_declared_tools(holder.__class__)
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
    expected: Any = types.get(declared.kind)
    for kind in declared.types:
        # A parent is as good: what is really returned is looked at in each call.
        if not issubclass(kind, expected) and not issubclass(expected, kind):
            raise _wrong_type_error(declared.tool, kind, expected)
    read, as_told = declared.parse_arguments, declared.as_refusal

    def plan(arguments: bytes) -> ToolPlan:
        keywords = read(arguments)
        try:
            found = method(**keywords)
        except ModelError as problem:
            raise as_told(problem) from None
        return _convert_answer(declared, expected, found)

    async def plan_later(arguments: bytes) -> ToolPlan:
        keywords = read(arguments)
        try:
            found = await method(**keywords)
        except ModelError as problem:
            raise as_told(problem) from None
        return _convert_answer(declared, expected, found)

    return plan_later if declared.is_async else plan


def _convert_answer(declared: DeclaredTool, expected: Any, found: Any) -> ToolPlan:
    """Return what a method's answer asks for; `expected` is the type of its actions or its observation."""
    answer = declared.value_model
    if answer is not None:
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
    acts = declared.kind is ReturnKind.ACTIONS
    row = tuple(found) if acts and isinstance(found, Sequence) else (found,)
    for each in row:
        if not isinstance(each, expected):
            raise _wrong_type_error(declared.tool, type(each), expected)
    return ToolPlan(row) if acts else ToolPlan(seen=found)


def _wrong_type_error(tool: Tool, found: type, expected: type) -> ComponentError:
    return ComponentError(
        f"the tool {tool.name} returns something else than the environment's own type",
        found=found.__name__,
        expected=expected.__name__,
    )


def toolbox_from_types(
    action_type: type[Action], observation_type: type[Observation], latest: Callable[[], Observation] | None = None
) -> Toolbox:
    """Return `observe` and `act` for these types; `latest` gives the observation to show, if it is known here.

    Without it, whoever drives the environment knows the latest one.
    """
    observe, act = tools_from_types(action_type, observation_type)
    read = partial(action_type.__pydantic_validator__.validate_json, strict=True)
    return observe_act_toolbox(observe, act, read, latest)


def observe_act_toolbox(
    observe: Tool, act: Tool, read: Callable[[bytes], Action], latest: Callable[[], Observation] | None
) -> Toolbox:
    """Return a toolbox of these two; `read` turns JSON into an action, or raises pydantic's error."""

    def plan_observe(arguments: bytes) -> ToolPlan:
        try:
            ToolMessage.__pydantic_validator__.validate_json(arguments, strict=True)
        except ModelError as problem:
            raise make_refusal(observe, problem) from None
        return ToolPlan(seen=None if latest is None else latest())

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
    said = "\n\n".join(filter(None, (OBSERVE, *about)))
    return Tool(name="observe", description=said, safety=ToolSafety.READ, input_schema=EMPTY_SCHEMA)


def act_tool(schema: dict[str, Any], *about: str) -> Tool:
    """Return what is told of `act`, which takes what `schema` says, with what is to be said of actions."""
    said = "\n\n".join(filter(None, (ACT, *about)))
    return Tool(name="act", description=said, safety=ToolSafety.WRITE, input_schema=schema)


def _read_docstring(model: type[WireModel]) -> str:
    """Return what a model's own docstring says."""
    return cleandoc(vars(model).get("__doc__") or "")
