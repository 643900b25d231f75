"""What whoever called a tool is told if the arguments do not fit: readable, short, and nothing from inside."""

import json
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from proctor.access.limits import has_more_values, is_too_deep
from proctor.contracts.toolboxes import toolbox_from_methods
from proctor.contracts.tools import (
    LONGEST_NAME,
    MOST_PROBLEMS,
    Toolbox,
    ToolPlan,
    ToolSafety,
    max_argument_bytes,
    max_argument_depth,
    max_argument_values,
    tool,
)
from proctor.errors import ValidationError
from proctor.models.wire import Action, Observation
from tests.models.space_strategies import json_values


class Corner(BaseModel):
    x: int
    y: int = 0


class Many:
    """Arguments of many kinds."""

    @tool(ToolSafety.READ)
    def ask(
        self,
        count: Annotated[int, Field(ge=1, le=20)],
        share: float = 0.5,
        name: Annotated[str, Field(max_length=5)] = "",
        flag: bool = False,
        corners: list[Corner] | None = None,
        weights: dict[str, float] | None = None,
        pair: tuple[int, str] = (1, "a"),
    ) -> int:
        """Ask."""
        return count

    @tool(ToolSafety.READ)
    def look(self) -> int:
        """Look."""
        return 1


BOX = toolbox_from_methods(Many(), Action, Observation) or Toolbox([])
SCHEMA = Draft202012Validator(BOX.tools[0].input_schema)
GOOD: dict[str, Any] = {
    "count": 3, "share": 1, "name": "ab", "flag": True,
    "corners": [{"x": 1}, {"x": 2, "y": 3}], "weights": {"a": 0.5}, "pair": [2, "b"],
}  # fmt: skip


NO_COUNTS: list[Any] = ["3", 3.0, True, None]
NO_OBJECTS: list[Any] = [[], 3, None]


def refusal(arguments: Any, name: str = "ask") -> ValidationError:
    text = arguments if isinstance(arguments, bytes) else json.dumps(arguments).encode()
    with pytest.raises(ValidationError) as caught:
        BOX.plan(name, text)
    return caught.value


def test_arguments_that_fit_are_taken() -> None:
    assert BOX.plan("ask", json.dumps(GOOD).encode()) == ToolPlan(value={"result": 3})
    assert SCHEMA.is_valid(GOOD)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({}, "count: is missing"),
        ({"count": 0}, "count: should be greater than or equal to 1"),
        ({"count": 21}, "count: should be less than or equal to 20"),
        *(({"count": wrong}, "count: should be a valid integer") for wrong in NO_COUNTS),
        ({"count": 1, "share": "1"}, "share: should be a valid number"),
        ({"count": 1, "flag": 1}, "flag: should be a valid boolean"),
        ({"count": 1, "flag": "yes"}, "flag: should be a valid boolean"),
        ({"count": 1, "name": "abcdef"}, "name: String should have at most 5 characters"),
        ({"count": 1, "corners": [{"x": 1}, {"y": 1}]}, "corners.1.x: is missing"),
        ({"count": 1, "pair": [1]}, "pair.1: is missing"),
        ({"count": 1, "more": 1}, "more: is unknown"),
        *((wrong, "this is no JSON object") for wrong in NO_OBJECTS),
        *((wrong, "this is no JSON") for wrong in (b"", b"{", b'{"count": 1', b"\xff", b"[" * 100_000)),
        (b'{"count": 1, "name": "\\ud800"}', "this is no JSON"),
        (b'{"count": 1, "share": NaN}', "share: should be a finite number"),
        (b'{"count": 1, "share": 1e999}', "share: should be a finite number"),
    ],
)
def test_what_is_wrong_is_said_with_its_place_and_what_is_right(wrong: Any, reason: str) -> None:
    problem = refusal(wrong)

    assert problem.message == f"these are no arguments of ask: {reason}"
    assert problem.expected is not None
    assert problem.expected.startswith("count (an integer from 1 to 20), share (a number; 0.5 if left out), name (text")


def test_a_tool_without_arguments_takes_none() -> None:
    problem = refusal({"a": 1}, "look")

    assert (problem.message, problem.expected) == ("these are no arguments of look: a: is unknown", "no arguments")


def test_only_a_few_problems_are_listed_and_of_very_many_only_the_number() -> None:
    problem = refusal({"count": 1, **{f"wrong_{place}": 1 for place in range(30)}})

    assert problem.message.count(": is unknown") == MOST_PROBLEMS
    assert problem.message.endswith("; and 25 more")
    assert refusal({"count": 1, "corners": [0] * 100_000}).message.endswith("ask: 100000 problems")


def test_no_more_of_the_input_is_repeated_than_the_beginning_of_a_name() -> None:
    problem = refusal({"count": 1, "secret" * 1000: 1, "name": "hidden" * 1000})

    assert len(str(problem)) < 1000
    assert "hidden" not in str(problem)
    assert str(problem).count("secret") <= LONGEST_NAME // len("secret")


def test_what_cannot_be_printed_is_escaped() -> None:
    assert "\x1b" not in refusal({"count": 1, "\x1b[31m\n": 1}).message


@st.composite
def bent_arguments(draw: st.DrawFn) -> Any:
    """Draw arguments that nearly fit, or anything else."""
    names = draw(st.lists(st.sampled_from([*GOOD, "more", ""]), unique=True))
    values = {name: draw(json_values()) if draw(st.booleans()) else GOOD.get(name) for name in names}
    return draw(st.sampled_from([values, {**GOOD, **values}, draw(json_values())]))


@given(arguments=bent_arguments())
def test_what_is_taken_fits_the_schema_and_all_else_is_refused_in_words(arguments: Any) -> None:
    try:
        BOX.plan("ask", json.dumps(arguments).encode())
    except ValidationError as problem:
        told = str(problem)
    else:
        told = ""

    assert len(told) < 3000
    assert told or SCHEMA.is_valid(arguments)


@given(text=st.binary(max_size=50))
def test_no_bytes_raise_anything_else(text: bytes) -> None:
    with pytest.raises(ValidationError):
        BOX.plan("ask", text)


NUMBER = {"type": "number"}
FIXED = {"type": "array", "items": NUMBER, "minItems": 3, "maxItems": 3}
ITSELF = {"$ref": "#/$defs/me"}


def taking(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "depth", "is_bounded"),
    [
        (taking(), 1, True),
        (taking(a=NUMBER), 1, True),
        (taking(a={"type": "string", "maxLength": 5}), 1, True),
        (taking(a={"type": "string"}), 1, False),
        (taking(a=FIXED), 2, True),
        (taking(a={"type": "array", "items": NUMBER}), 2, False),
        (taking(a={"type": "array", "prefixItems": [NUMBER, FIXED], "maxItems": 2}), 3, True),
        (taking(a={"type": "array", "prefixItems": [NUMBER], "items": {"type": "string"}}), 2, False),
        (taking(a={"type": "array"}), None, False),
        (taking(a={}), None, False),
        (taking(a=True), None, False),
        (taking(a={"enum": ["x", "yy"]}), 1, True),
        (taking(a={"const": 3}), 1, True),
        (taking(a={"const": [3]}), None, False),
        (taking(a={"anyOf": [NUMBER, FIXED]}), 2, True),
        (taking(a={"type": ["number", "null"]}), 1, True),
        (taking(a={"type": "object"}), None, False),
        (taking(a={"type": "object", "additionalProperties": NUMBER}), 2, False),
        (taking(a={"$ref": "#/$defs/one"}) | {"$defs": {"one": FIXED}}, 2, True),
        (taking(a={"$ref": "#/$defs/none"}), None, False),
        (taking(a=ITSELF) | {"$defs": {"me": {"anyOf": [NUMBER, ITSELF]}}}, None, False),
    ],
)
def test_a_schema_says_how_long_and_how_deep_arguments_can_be(
    schema: dict[str, Any], depth: int | None, is_bounded: bool
) -> None:
    assert max_argument_depth(schema) == depth
    assert (max_argument_bytes(schema) is not None) is is_bounded


@pytest.mark.parametrize(
    ("schema", "most"),
    [
        (taking(), 1),
        (taking(a=NUMBER, b={"type": "string"}), 5),
        (taking(a=FIXED), 7),
        (taking(a={"type": "array", "items": FIXED, "maxItems": 10}), 3 + 1 + 10 * 5),
        (taking(a={"anyOf": [NUMBER, FIXED]}), 7),
        (taking(a={"type": "array", "items": NUMBER}), None),
        (taking(a={}), None),
        ({"type": "object"}, None),
    ],
)
def test_a_schema_says_how_many_values_arguments_can_have(schema: dict[str, Any], most: int | None) -> None:
    assert max_argument_values(schema) == most


def test_text_gets_the_room_of_its_plain_characters() -> None:
    assert 1000 < (max_argument_bytes(taking(a={"type": "string", "maxLength": 1000})) or 0) < 1200


def test_the_longest_arguments_have_room_for_every_number_in_full() -> None:
    schema = taking(a={"type": "array", "items": FIXED, "minItems": 9, "maxItems": 9})
    longest = json.dumps({"a": [[-1.2345678901234567e-300] * 3] * 9}, indent=1)

    assert len(longest) < (max_argument_bytes(schema) or 0) < 10 * len(longest)


PLAIN = st.text(st.characters(codec="ascii", exclude_characters='"\\\x7f', min_codepoint=32), max_size=9)


@given(st.lists(st.integers(-(10**20), 10**20) | PLAIN, max_size=4) | st.floats(allow_nan=False))
def test_what_fits_a_schema_is_neither_longer_nor_deeper_than_it_says(value: Any) -> None:
    items = {"type": ["integer", "string"], "maxLength": 9}
    schema = taking(a={"anyOf": [{"type": "array", "items": items, "maxItems": 4}, NUMBER]})
    text = json.dumps({"a": value}).encode()

    assert not is_too_deep(text, max_argument_depth(schema) or 0)
    assert len(text) <= (max_argument_bytes(schema) or 0)
    assert not has_more_values(text, max_argument_values(schema) or 0)
