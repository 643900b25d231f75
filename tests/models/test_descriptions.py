"""JSON values as short text, and JSON Schemas without noise and in words."""

from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from proctor.models.descriptions import (
    FIRST,
    LONGEST,
    LONGEST_SCHEMA,
    MOST_VALUES,
    describe_arguments,
    describe_fields,
    describe_schema,
    describe_value,
    make_untitled_schema,
    with_descriptions,
)
from proctor.models.wire import Observation
from tests.models.space_strategies import json_values


class Seen(Observation):
    celsius: float
    walls: tuple[int, ...] = (1, 2)
    note: str | None = None
    inner: dict[str, float] = {}


def test_an_observation_is_told_field_by_field_and_nothing_else_of_it() -> None:
    seen = Seen(
        celsius=20.123456789, inner={"a": 0.5}, reward=77.0, terminated=True, metadata={"seed": 99, "secret": "x"}
    )

    assert describe_fields(seen) == "celsius: 20.1235\nwalls: [1, 2]\nnote: null\ninner: {a: 0.5}"


@pytest.mark.parametrize(("sign", "mean"), [(1, "inf"), (-1, "-inf")])
def test_integers_that_no_float_can_be_are_told(sign: int, mean: str) -> None:
    assert describe_value([sign * 10**400] * (MOST_VALUES + 1)).endswith(f"mean {mean})")
    assert describe_value([0.5, *[sign * 10**400] * MOST_VALUES]).endswith(f"mean {mean})")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (1e-9, "1e-09"),
        (123456789, "123456789"),
        (True, "true"),
        (None, "null"),
        ("a\nb", "a\nb"),
        ([], "[]"),
        ([[1, 2], [3, 4]], "[[1, 2], [3, 4]]"),
        ({"a": [True, None]}, "{a: [true, null]}"),
    ],
    ids=str,
)
def test_a_value_is_told_plainly(value: Any, text: str) -> None:
    assert describe_value(value) == text


def test_a_long_list_of_numbers_is_summarised() -> None:
    assert describe_value(list(range(MOST_VALUES))) == str(list(range(MOST_VALUES)))
    assert describe_value(list(range(101))) == "[0, 1, 2, 3, 4, 5, 6, 7, ...] (101 values, min 0, max 100, mean 50)"


def test_a_long_list_of_other_things_is_counted() -> None:
    assert describe_value(["a"] * 100) == f"[{', '.join(['a'] * FIRST)}, ...] (100 values)"
    assert describe_value([[0] * 50] * 2).endswith("(2 values)")
    assert describe_value([{"a": [0] * 65}]).endswith("(1 values)")


def test_a_long_text_is_cut() -> None:
    assert describe_value("x" * (LONGEST + 1)) == f"{'x' * LONGEST} ... ({LONGEST + 1} characters)"


def test_what_is_deep_is_cut() -> None:
    lists: Any = []
    objects: Any = {}
    for _ in range(500):
        lists, objects = [lists], {"a": objects}

    assert describe_value(lists) == "[[[[[[[[[...]]]]]]]]]"
    assert describe_value(objects).endswith("{a: {...}}}}}}}}}")


@given(value=json_values())
def test_anything_can_be_told(value: Any) -> None:
    assert isinstance(describe_value(value), str)


class Colour(Enum):
    RED = "red"


class Inner(BaseModel):
    title: str
    colour: Colour = Colour.RED


class Outer(BaseModel):
    """A model."""

    inner_part: Inner
    named: Annotated[int, Field(title="How many", default=1)]
    choice: Literal["title", "b"] = "title"
    deep: list[Inner] = []


def test_titles_that_repeat_a_name_are_gone_and_others_stay() -> None:
    tidy = make_untitled_schema(Outer)

    assert "title" not in tidy
    assert "title" not in tidy["$defs"]["Inner"]
    assert "title" not in tidy["$defs"]["Colour"]
    assert tidy["properties"]["named"]["title"] == "How many"
    assert tidy["$defs"]["Inner"]["properties"]["title"] == {"type": "string"}
    assert tidy["description"] == "A model."


def test_a_schema_may_be_no_object() -> None:
    assert describe_schema({"type": "array", "items": True}) == "a list, each any value"


@given(value=json_values())
def test_any_constant_can_be_told(value: Any) -> None:
    assert isinstance(describe_schema({"const": value}), str)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "integer", "minimum": 0, "maximum": 3}, "an integer from 0 to 3"),
        ({"type": "integer", "minimum": 1}, "an integer of at least 1"),
        ({"type": "number"}, "a number"),
        ({"type": "number", "exclusiveMinimum": 0.5, "maximum": 2.0}, "a number of above 0.5 and at most 2"),
        ({"type": "number", "minimum": -0.4000000059604645, "maximum": 1}, "a number from -0.4 to 1"),
        ({"type": "boolean"}, "true or false"),
        ({"type": "null"}, "null"),
        ({"type": "string"}, "text"),
        ({"type": "string", "minLength": 1, "maxLength": 3}, "text of 1 to 3 characters"),
        ({"type": "string", "minLength": 2, "maxLength": 2}, "text of 2 characters"),
        ({"type": "string", "maxLength": 1}, "text of 0 to 1 character"),
        ({"type": "string", "minLength": 2, "pattern": "^a"}, "text of 2 or more characters that matches ^a"),
        ({"type": "string", "format": "date"}, "text (date)"),
        ({"const": "a"}, '"a"'),
        ({"enum": ["up", "down"]}, 'one of "up", "down"'),
        ({"enum": ["up"]}, '"up"'),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "an integer or null"),
        ({"anyOf": [{"type": "number"}, {"enum": ["-Infinity", "Infinity"]}]}, "a number"),
        ({"anyOf": [{"enum": [[0, 1], {}]}, {"type": "null"}]}, "one of [0, 1], {} or null"),
        ({"type": "array"}, "a list"),
        ({"type": "array", "items": {"type": "integer"}}, "a list, each an integer"),
        (
            {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
            "a list of 2 values, each an integer",
        ),
        (
            {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 1},
            "a list of 1 value: an integer",
        ),
        ({"type": "array", "maxItems": 0}, "an empty list"),
        (
            {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2},
            "a list of 2: an integer, text",
        ),
        ({"type": "object"}, "an object"),
        (
            {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"$ref": "#/$defs/B"}}},
            "an object with a (an integer), b (any value)",
        ),
        ({"$ref": "#/$defs/B", "$defs": {"B": {"type": "string"}}}, "text"),
        ({}, "any value"),
    ],
    ids=str,
)
def test_a_schema_is_told_in_words(schema: Any, words: str) -> None:
    assert describe_schema(schema) == words


def test_a_schema_that_holds_itself_is_told_as_far_as_it_is_worth() -> None:
    tree = {"type": "object", "properties": {"child": {"$ref": "#/$defs/Tree"}}}

    words = describe_schema({"$ref": "#/$defs/Tree", "$defs": {"Tree": tree}})

    assert words == "an object with child (an object)"


def test_many_choices_are_counted_and_many_words_are_cut() -> None:
    assert describe_schema({"enum": list(range(50))}).endswith("38, 39 and 10 more")
    assert len(describe_schema({"enum": ["x" * 100] * 40})) == LONGEST_SCHEMA + 4


def test_arguments_are_told_by_name() -> None:
    schema = {
        "properties": {"a": {"type": "integer"}, "b": {"type": "string", "default": "x"}, "c": {"type": "null"}},
        "required": ["a"],
    }

    assert describe_arguments(schema) == 'a (an integer), b (text; "x" if left out), c (null; may be left out)'
    assert describe_arguments({"type": "object"}) == "no arguments"


def test_a_description_is_added_where_there_is_none() -> None:
    schema = {"properties": {"a": {"type": "integer"}, "b": {"description": "Mine."}}}

    made = with_descriptions(schema, [("a", "An a."), ("b", "A b."), ("c", "A c.")])

    assert made["properties"] == {"a": {"type": "integer", "description": "An a."}, "b": {"description": "Mine."}}
    assert "description" not in schema["properties"]["a"]


@given(low=st.integers(), high=st.integers())
def test_whole_bounds_are_told_exactly(low: int, high: int) -> None:
    assert describe_schema({"type": "integer", "minimum": low, "maximum": high}) == f"an integer from {low} to {high}"
