"""Spaces as agents are told of them: what their schemas take is what the spaces have."""

import json
from typing import Annotated, Any

import gymnasium as gym
import jsonschema_rs
import numpy as np
import pydantic
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, OneOf, Sequence, Text, Tuple
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from proctor.errors import ComponentError
from proctor.models.space_fields import SpaceArgument, describe_space_argument, space_schema
from proctor.models.spaces import MOST_PLACES, codec_of
from proctor.models.wire import Encoding
from tests.models.space_strategies import bent, identical, json_values, members, spaces

# Gymnasium's own judgement of stacked scalars warns about them.
pytestmark = pytest.mark.filterwarnings("ignore:.*Casting input x to numpy array")


def reader(space: gym.Space[Any], names: tuple[str, ...] | None = None) -> pydantic.TypeAdapter[Any]:
    return pydantic.TypeAdapter(Annotated[Any, SpaceArgument(space, names)])


@st.composite
def spaces_with_members(draw: st.DrawFn) -> tuple[gym.Space[Any], Any]:
    space = draw(spaces())
    return space, draw(members(space))


@settings(max_examples=80)
@given(drawn=spaces_with_members())
def test_a_member_is_taken_as_it_is_said_and_fits_the_schema(drawn: tuple[gym.Space[Any], Any]) -> None:
    space, value = drawn
    said = json.dumps(codec_of(space).encode(value), allow_nan=False)

    assert identical(reader(space).validate_json(said), value)
    assert Draft202012Validator(space_schema(space)).is_valid(json.loads(said))


@settings(max_examples=40)
@given(space=spaces())
def test_the_schema_is_one_and_is_what_the_field_says(space: gym.Space[Any]) -> None:
    schema = json.loads(json.dumps(space_schema(space), allow_nan=False))

    jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
    assert reader(space).json_schema() == space_schema(space)
    assert "contentEncoding" not in json.dumps(schema)
    assert describe_space_argument(space)


@settings(max_examples=80)
@given(data=st.data())
def test_what_is_taken_fits_the_schema_and_all_else_is_refused(data: st.DataObject) -> None:
    space, value = data.draw(spaces_with_members())
    said = codec_of(space).encode(value)
    near = data.draw(bent(said) | json_values())

    try:
        reader(space).validate_json(json.dumps(near))
    except pydantic.ValidationError:
        return
    assert Draft202012Validator(space_schema(space)).is_valid(near)


def test_a_packed_array_is_not_taken() -> None:
    space = Box(0, 1, (2,), np.float32)
    packed = codec_of(space).encode(np.zeros(2, np.float32), Encoding(packed=True))

    with pytest.raises(pydantic.ValidationError):
        reader(space).validate_json(json.dumps(packed))


@pytest.mark.parametrize("number", ["1.00000001", "-1e-12", "NaN", "true", '"1"', '"Infinity"'])
def test_what_only_rounding_would_make_a_member_is_none(number: str) -> None:
    with pytest.raises(pydantic.ValidationError):
        reader(Box(0, 1, (1,), np.float32)).validate_json(f"[{number}]")


def test_an_unbounded_number_may_be_infinite_by_its_name() -> None:
    space = Box(-np.inf, np.inf, (1,), np.float32)

    assert reader(space).validate_json('["-Infinity"]')[0] == -np.inf
    with pytest.raises(pydantic.ValidationError, match="should be a number"):
        reader(space).validate_json('["NaN"]')


def test_bounds_that_differ_are_told_place_by_place() -> None:
    space = Box(np.array([-1, 0], np.float32), np.array([1, 10], np.float32))

    assert space_schema(space) == {
        "type": "array",
        "minItems": 2,
        "maxItems": 2,
        "prefixItems": [
            {"type": "number", "minimum": -1.0, "maximum": 1.0},
            {"type": "number", "minimum": 0.0, "maximum": 10.0},
        ],
    }
    with pytest.raises(pydantic.ValidationError) as caught:
        reader(space).validate_json("[-1, -1]")
    assert [error["loc"] for error in caught.value.errors()] == [(1,)]


def test_rows_that_are_alike_are_told_once() -> None:
    space = MultiDiscrete(np.array([[2, 2], [3, 4]]))

    first, second = space_schema(space)["prefixItems"]

    assert first["items"] == {"type": "integer", "minimum": 0, "maximum": 1}
    assert [part["maximum"] for part in second["prefixItems"]] == [2, 3]


def test_many_places_are_told_together_and_judged_one_by_one() -> None:
    highs = np.arange(1, MOST_PLACES + 2).astype(np.float32)
    space = Box(np.zeros_like(highs), highs)

    assert space_schema(space)["items"]["maximum"] == MOST_PLACES + 1
    with pytest.raises(pydantic.ValidationError, match="out of bounds"):
        reader(space).validate_json(json.dumps([2.0] * len(highs)))


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (Discrete(4), "an integer from 0 to 3"),
        (Discrete(2, start=-1), "an integer from -1 to 0"),
        (Box(-1, 1, (2,), np.float32), "a list of 2 values, each a number from -1 to 1"),
        (Box(-np.inf, np.inf, (1,)), "a list of 1 value: a number"),
        (Box(0, 9, (), np.int32), "an integer from 0 to 9"),
        (Box(0, 9, (2, 3), np.int32), "a list of 2 values, each a list of 3 values, each an integer from 0 to 9"),
        (MultiBinary(3), "a list of 3 values, each an integer from 0 to 1"),
        (MultiDiscrete([2, 3]), "a list of 2: an integer from 0 to 1, an integer from 0 to 2"),
        (Text(3, charset="ab"), "text of 1 to 3 characters that matches ^[ab]*$"),
        (Dict(go=Discrete(2), say=Text(1, charset="x")), None),
        (Tuple((Discrete(2), Discrete(3))), "a list of 2: an integer from 0 to 1, an integer from 0 to 2"),
        (Sequence(Discrete(2)), "a list, each an integer from 0 to 1"),
        (OneOf((Discrete(2), Discrete(3))), None),
    ],
    ids=str,
)
def test_a_space_is_told_in_words(space: gym.Space[Any], words: str | None) -> None:
    told = describe_space_argument(space)

    assert told == words if words else told.startswith(("an object with go (an integer", "a list of 2: 0, an integer"))


NAMES = ("left", "stay", "right")


def test_named_values_are_taken_by_their_names_only() -> None:
    space = Discrete(3, start=-1)
    named = reader(space, NAMES)

    assert space_schema(space, NAMES) == {"type": "string", "enum": list(NAMES)}
    assert [named.validate_json(f'"{name}"') for name in NAMES] == [-1, 0, 1]
    assert isinstance(named.validate_json('"left"'), np.int64)
    for wrong in ("0", '"up"', "null", "[]", "{}"):
        with pytest.raises(pydantic.ValidationError, match="'left', 'stay' or 'right'"):
            named.validate_json(wrong)


def test_an_error_says_which_number_is_wrong() -> None:
    space = Dict(go=Box(-1, 1, (3,), np.float32))

    with pytest.raises(pydantic.ValidationError) as caught:
        reader(space).validate_json('{"go": [0, 7, true]}')

    assert [(error["loc"], error["msg"]) for error in caught.value.errors()] == [
        (("go", 1), "Input should be less than or equal to 1"),
        (("go", 2), "Input should be a valid number"),
    ]


def test_a_space_that_cannot_cross_the_wire_is_refused() -> None:
    class Own(gym.Space[Any]):
        pass

    with pytest.raises(ComponentError, match="cannot cross the wire"):
        space_schema(Own())
