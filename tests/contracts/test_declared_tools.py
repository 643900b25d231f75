"""Methods become tools: by their signature, their docstring and their return type, or not at all, with the reason."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Generic, Literal

import pytest
from jsonschema import Draft202012Validator
from pydantic import AfterValidator, BaseModel, Field
from typing_extensions import TypedDict

from proctor.contracts.environment import ActT, Environment, ObsT, StateT
from proctor.contracts.tools import Tool, Toolbox, ToolPlan, ToolSafety, tool
from proctor.errors import ComponentError, StateError, ValidationError
from proctor.models.wire import Action, Observation, State

READ, WRITE, MIXED = ToolSafety


class Heat(Action):
    degrees: Annotated[float, Field(ge=-5.0, le=5.0)]


class Cool(Heat):
    pass


class Room(Observation):
    celsius: float


class Way(StrEnum):
    FAST = "fast"
    SLOW = "slow"


class Oven(Environment[Heat, Room, State]):
    """A room without tools of its own."""

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Room:
        return Room(celsius=5.0)

    def step(self, action: Heat) -> Room:
        return Room(celsius=action.degrees, reward=1.0)

    @property
    def state(self) -> State:
        return State()


class Forecast(BaseModel):
    celsius: float
    sunny: bool = True


class Wired(Oven):
    """A room with all kinds of tools."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    @tool(WRITE, title="Heat the room")
    def heat(self, degrees: float, steps: Annotated[int, Field(ge=1, le=3)] = 1, way: Way = Way.FAST) -> list[Heat]:
        """Heat the room for some steps.

        Args:
            degrees: By how much, each step.
            steps: Is described here.
        """
        self.calls.append((degrees, steps, way))
        return [Heat(degrees=degrees)] * steps

    @tool(MIXED, name="cool_down", destructive=True)
    def cool(self) -> Cool:
        """Cool the room."""
        return Cool(degrees=-1.0)

    @tool(READ)
    def look(self) -> Room:
        """Look at the thermometer."""
        return Room(celsius=7.0)

    @tool(READ)
    def forecast(self, days: Annotated[int, Field(description="How far ahead.", ge=1)]) -> Forecast:
        """Ask for the weather."""
        return Forecast(celsius=float(days))

    @tool(READ)
    def history(self, most: int | None = None) -> list[float]:
        """Ask for what was."""
        return [1.0, 2.0, 3.0][:most]

    @tool(READ)
    async def later(self, json: Literal["a", "b"] = "a") -> str:
        """Ask slowly."""
        return json


def box() -> Toolbox:
    return Wired().toolbox()


def told(name: str) -> Tool:
    (found,) = (each for each in box().tools if each.name == name)
    return found


def planned(name: str, arguments: bytes = b"{}") -> ToolPlan:
    plan = box().plan(name, arguments)
    assert isinstance(plan, ToolPlan)
    return plan


def test_the_decorated_methods_are_the_tools_in_their_order() -> None:
    assert [each.name for each in box().tools] == ["heat", "cool_down", "look", "forecast", "history", "later"]


def test_a_tool_says_what_its_method_says() -> None:
    heat, cool = told("heat"), told("cool_down")

    assert heat.description.startswith("Heat the room for some steps.\n\nArgs:\n    degrees: By how much")
    assert (heat.safety, heat.title, heat.destructive) == (WRITE, "Heat the room", False)
    assert (cool.safety, cool.title, cool.destructive, cool.output_schema) == (MIXED, None, True, None)


def test_the_input_schema_is_made_from_the_signature_and_the_docstring() -> None:
    assert told("heat").input_schema == {
        "type": "object",
        "properties": {
            "degrees": {"type": "number", "description": "By how much, each step."},
            "steps": {"type": "integer", "minimum": 1, "maximum": 3, "default": 1, "description": "Is described here."},
            "way": {"$ref": "#/$defs/Way", "default": "fast"},
        },
        "required": ["degrees"],
        "additionalProperties": False,
        "$defs": {"Way": {"enum": ["fast", "slow"], "type": "string"}},
    }
    assert told("forecast").input_schema["properties"]["days"]["description"] == "How far ahead."


@pytest.mark.parametrize("each", box().tools, ids=lambda each: each.name)
def test_every_schema_is_one(each: Tool) -> None:
    assert each.input_schema["additionalProperties"] is False
    for schema in filter(None, [each.input_schema, each.output_schema]):
        Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object"


def test_an_acting_tool_plans_its_actions_and_does_none() -> None:
    assert planned("heat", b'{"degrees": 2, "steps": 3}') == ToolPlan((Heat(degrees=2.0),) * 3)
    assert planned("cool_down") == ToolPlan((Cool(degrees=-1.0),))


def test_left_out_arguments_have_the_defaults_of_the_method() -> None:
    oven = Wired()

    oven.toolbox().plan("heat", b'{"degrees": 1, "way": "slow"}')
    oven.toolbox().plan("heat", b'{"degrees": 1.5}')

    assert oven.calls == [(1.0, 1, Way.SLOW), (1.5, 1, Way.FAST)]
    assert isinstance(oven.calls[0][2], Way)


def test_a_tool_that_returns_an_observation_shows_it() -> None:
    assert planned("look") == ToolPlan(seen=Room(celsius=7.0))
    assert told("look").output_schema is None


def test_a_value_is_a_json_object_and_wrapped_if_it_is_none() -> None:
    assert planned("forecast", b'{"days": 2}') == ToolPlan(value={"celsius": 2.0, "sunny": True})
    assert planned("history", b'{"most": 2}') == ToolPlan(value={"result": [1.0, 2.0]})
    assert told("history").output_schema == {
        "type": "object",
        "properties": {"result": {"type": "array", "items": {"type": "number"}}},
        "required": ["result"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(("name", "arguments"), [("forecast", b'{"days": 2}'), ("history", b"{}")])
def test_a_value_fits_its_output_schema(name: str, arguments: bytes) -> None:
    Draft202012Validator(told(name).output_schema).validate(planned(name, arguments).value)


async def awaited(plan: Any) -> Any:
    assert isinstance(plan, Awaitable)
    return await plan


def test_a_coroutine_is_planned_later_and_refuses_wrong_arguments_when_it_is_awaited() -> None:
    assert asyncio.run(awaited(box().plan("later", b'{"json": "b"}'))) == ToolPlan(value={"result": "b"})
    with pytest.raises(ValidationError, match="'a' or 'b'"):
        asyncio.run(awaited(box().plan("later", b'{"json": "c"}')))


def test_arguments_that_make_no_action_are_refused_as_the_action_says() -> None:
    with pytest.raises(ValidationError, match="degrees: should be less than or equal to 5"):
        planned("heat", b'{"degrees": 9}')


def test_a_coroutine_that_makes_no_action_refuses_as_the_action_says() -> None:
    @tool(WRITE)
    async def heat(self: Any, degrees: float) -> Heat:
        """Heat."""
        return Heat(degrees=degrees)

    with pytest.raises(ValidationError, match="degrees: should be less than or equal to 5"):
        asyncio.run(awaited(plan_of(heat, b'{"degrees": 9}')))


def with_method(method: Callable[..., Any]) -> Oven:
    made: type[Oven] = type("Made", (Oven,), {method.__name__: method})
    return made()


def plan_of(method: Callable[..., Any], arguments: bytes = b"{}") -> Any:
    return with_method(method).toolbox().plan(method.__name__, arguments)


def test_what_a_method_raises_leaves_as_it_is() -> None:
    @tool(READ)
    def ask(self: Any, is_dark: bool) -> Forecast:
        """Ask."""
        if is_dark:
            raise StateError("it is dark")
        return Forecast.model_validate({})

    with pytest.raises(StateError, match="dark"):
        plan_of(ask, b'{"is_dark": true}')
    with pytest.raises(ValueError, match="Forecast") as caught:
        plan_of(ask, b'{"is_dark": false}')
    assert not isinstance(caught.value, ValidationError)


def returning(annotation: Any, found: Any = None) -> Callable[..., Any]:
    """Return a method that says so of what it returns, and returns `found`."""

    def ask(self: Any) -> Any:
        """Ask."""
        return found

    ask.__annotations__["return"] = annotation
    return ask


NO_ACTIONS: list[Any] = [None, 3, Room(celsius=1.0), [Heat(degrees=1.0), None], "heat"]
NO_NUMBERS: list[Any] = [None, "warm", float("nan"), [1.0], {}]


def answered(safety: ToolSafety, annotation: Any, found: Any) -> Any:
    return plan_of(tool(safety)(returning(annotation, found)))


@pytest.mark.parametrize(
    ("safety", "annotation", "found", "reason"),
    [
        *((WRITE, list[Heat], found, "the tool ask returns something else") for found in NO_ACTIONS),
        *((READ, float, found, r"something else than it declares; .* expected a number") for found in NO_NUMBERS),
        (READ, Room, Observation(), r"found 'Observation'; expected Room"),
    ],
)
def test_an_answer_that_is_not_what_was_declared_is_the_authors_mistake(
    safety: ToolSafety, annotation: Any, found: Any, reason: str
) -> None:
    with pytest.raises(ComponentError, match=reason):
        answered(safety, annotation, found)


def test_an_acting_tool_may_ask_for_nothing() -> None:
    assert answered(WRITE, Sequence[Heat], ()) == ToolPlan()


class Pair(TypedDict):
    low: float
    high: float


@dataclass
class Spot:
    x: int


@pytest.mark.parametrize(
    ("returns", "found", "value"),
    [
        (dict[str, int], {"a": 1}, {"a": 1}),
        (Pair, {"low": 1.0, "high": 2.0}, {"low": 1.0, "high": 2.0}),
        (Spot, Spot(3), {"x": 3}),
        (Spot | None, Spot(3), {"result": {"x": 3}}),
        (Spot | None, None, {"result": None}),
        (Way, Way.SLOW, {"result": "slow"}),
        (tuple[int, str], (1, "a"), {"result": [1, "a"]}),
        (list[Spot], [Spot(1)], {"result": [{"x": 1}]}),
        (bool, True, {"result": True}),
    ],
    ids=str,
)
def test_values_of_many_types_can_be_answered(returns: Any, found: Any, value: Any) -> None:
    made = with_method(tool(READ)(returning(returns, found))).toolbox()

    assert made.plan("ask", b"{}") == ToolPlan(value=value)
    Draft202012Validator(made.tools[0].output_schema).validate(value)


@pytest.mark.parametrize(
    "returns",
    [Heat, Cool, Heat | Cool, list[Heat], list[Heat | Cool], Sequence[Heat], tuple[Heat, ...], tuple[Heat, Heat]],
    ids=str,
)
def test_an_action_in_any_of_these_forms_acts(returns: Any) -> None:
    assert answered(WRITE, returns, Cool(degrees=1.0)) == ToolPlan((Cool(degrees=1.0),))


def test_an_annotation_may_say_that_it_is_awaited() -> None:
    async def soon() -> Heat:
        return Heat(degrees=1.0)

    def heat(self: Any) -> Awaitable[Heat]:
        """Heat."""
        return soon()

    assert asyncio.run(awaited(plan_of(tool(WRITE)(heat)))) == ToolPlan((Heat(degrees=1.0),))


# What is wrong, and what the author is told.


class Outside(Action):
    pass


def silent(self: Any) -> Heat:
    return Heat(degrees=1.0)


def untyped(self: Any, degrees) -> Heat:  # type: ignore[no-untyped-def]
    """Heat."""
    return Heat(degrees=degrees)


def by_place(self: Any, degrees: float, /) -> Heat:
    """Heat."""
    return Heat(degrees=degrees)


def of_many(self: Any, *degrees: float) -> Heat:
    """Heat."""
    return Heat(degrees=degrees[0])


def of_all(self: Any, **degrees: float) -> Heat:
    """Heat."""
    return Heat(degrees=degrees["a"])


def by_field(self: Any, degrees: float = Field(ge=0)) -> Heat:
    """Heat."""
    return Heat(degrees=degrees)


def taking(annotation: Any) -> Callable[..., Any]:
    def heat(self: Any, degrees: Any) -> Heat:
        """Heat."""
        return Heat(degrees=1)

    heat.__annotations__["degrees"] = annotation
    return heat


def unsaid(self: Any):  # type: ignore[no-untyped-def]
    """Heat."""


MISTAKES = [
    (silent, WRITE, "says nothing of itself; expected a docstring"),
    (untyped, WRITE, "parameter without a type; found 'degrees'; expected degrees: its type"),
    (by_place, WRITE, "cannot be given by name; found 'degrees: float'"),
    (of_many, WRITE, r"cannot be given by name; found '\*degrees: float'"),
    (of_all, WRITE, r"cannot be given by name; found '\*\*degrees: float'"),
    (by_field, WRITE, "Field as a default; found 'degrees'; expected Annotated"),
    (taking(bytes), WRITE, r"cannot say \(bytes\)"),
    (taking(object), WRITE, r"cannot say \(any\)"),
    (taking(Oven), WRITE, r"cannot say \(.*Oven.*\)"),
    (taking("Nowhere"), WRITE, "type that cannot be found; found .*Nowhere"),
    (unsaid, READ, "does not say what it returns"),
    (returning(None), READ, "does not say what it returns"),
    (returning(None), WRITE, "does not say what it returns"),
    (returning(int), WRITE, "declared as WRITE and returns no Action; .* or READ"),
    (returning(int), MIXED, "declared as MIXED and returns no Action"),
    (returning(Room), WRITE, "declared as WRITE and returns no Action"),
    (returning(Heat), READ, "declared as READ and returns an Action; .* expected WRITE or MIXED"),
    (returning(list[Heat]), READ, "declared as READ and returns an Action"),
    (returning(Heat | None), WRITE, "returns a mixture; .* a list of them"),
    (returning(Heat | Room), MIXED, "returns a mixture"),
    (returning(list[Room]), READ, "returns a mixture"),
    (returning(bytes), READ, r"cannot say \(bytes\)"),
    (returning(Oven), READ, r"cannot say \(.*Oven.*\)"),
    (returning(Outside), WRITE, "the tool ask returns something else .* found 'Outside'; expected Heat"),
]


@pytest.mark.parametrize(("method", "safety", "reason"), MISTAKES, ids=lambda each: getattr(each, "__name__", ""))
def test_a_declaration_that_cannot_work_says_what_to_do(
    method: Callable[..., Any], safety: ToolSafety, reason: str
) -> None:
    made = with_method(tool(safety)(method))

    with pytest.raises(ComponentError, match=reason) as caught:
        made.toolbox()
    assert method.__name__ in str(caught.value)


def test_a_class_is_read_once() -> None:
    one, other = box(), box()

    assert all(first is second for first, second in zip(one.tools, other.tools, strict=True))


# Inheritance.


class Warmer(Wired):
    look = None  # type: ignore[assignment]  # takes the tool away

    def cool(self) -> Cool:
        return Cool(degrees=-2.0)

    @tool(READ)
    def forecast(self, days: int = 1) -> Forecast:
        """Ask for better weather."""
        return Forecast(celsius=20.0)

    @tool(READ)
    def listen(self) -> str:
        """Listen."""
        return "silence"


def test_a_subclass_inherits_replaces_removes_and_adds() -> None:
    warmer = Warmer().toolbox()

    assert [each.name for each in warmer.tools] == ["heat", "cool_down", "forecast", "history", "later", "listen"]
    assert warmer.plan("cool_down", b"{}") == ToolPlan((Cool(degrees=-2.0),))
    assert warmer.tools[1].description == "Cool the room."
    assert warmer.tools[2].description == "Ask for better weather."
    assert [each.name for each in box().tools][2] == "look"


class Any_(Environment[ActT, ObsT, StateT], Generic[ActT, ObsT, StateT]):  # noqa: N801
    """Tools whose types are parameters."""

    @tool(READ)
    def look(self) -> ObsT:
        """Look."""
        return self.observation_type.model_validate({"celsius": 1.0})

    @tool(WRITE)
    def heat(self) -> list[ActT]:
        """Heat."""
        return [self.action_type.model_validate({"degrees": 1.0})]


class Typed(Any_[Heat, Room, State]):
    reset = Oven.reset
    step = Oven.step
    state = Oven.state


def test_a_type_parameter_means_what_it_is_bound_to() -> None:
    typed = Typed().toolbox()

    assert typed.plan("look", b"{}") == ToolPlan(seen=Room(celsius=1.0))
    assert typed.plan("heat", b"{}") == ToolPlan((Heat(degrees=1.0),))


def picky(value: int) -> int:
    if value == 7:
        raise ValueError("seven is the secret of the house")
    return value


def test_the_text_of_an_authors_exception_stays_inside() -> None:
    @tool(READ)
    def ask(self: Any, number: Annotated[int, AfterValidator(picky)]) -> int:
        """Ask."""
        return number

    with pytest.raises(ValidationError) as caught:
        plan_of(ask, b'{"number": 7}')
    assert "secret" not in str(caught.value)
    assert "number: the value is not acceptable" in str(caught.value)


def test_a_parameter_may_have_any_name() -> None:
    @tool(READ)
    def ask(self: Any, json: int, model_config: int, schema: int, _x: int, copy: int = 0) -> int:
        """Ask."""
        return json + model_config + schema + _x + copy

    assert plan_of(ask, b'{"json": 1, "model_config": 2, "schema": 3, "_x": 4}') == ToolPlan(value={"result": 10})


def test_a_mutable_default_is_fresh_for_every_call() -> None:
    @tool(READ)
    def ask(self: Any, seen: list[int] = []) -> int:  # noqa: B006
        """Ask."""
        seen.append(1)
        return len(seen)

    oven = with_method(ask).toolbox()

    assert [oven.plan("ask", b"{}") for _ in range(2)] == [ToolPlan(value={"result": 1})] * 2


def test_an_author_says_how_many_bytes_of_arguments_a_tool_takes() -> None:
    wide, usual = (
        with_method(tool(READ, max_arguments_bytes=most)(returning(int))).toolbox().tools[0] for most in (200_000, None)
    )

    assert (wide.max_arguments_bytes, usual.max_arguments_bytes) == (200_000, None)
