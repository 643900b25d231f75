"""Every value of every space crosses the wire and comes back as it was."""

import json
from contextlib import suppress
from typing import Annotated, Any

import gymnasium as gym
import jsonschema_rs
import numpy as np
import pydantic
import pytest
from gymnasium.spaces import Box, Dict, Discrete, OneOf, Text
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.errors import ComponentError, ValidationError
from proctor.models.space_descriptions import READERS, WRITERS
from proctor.models.space_fields import InSpace
from proctor.models.spaces import CODECS, STACKS, codec_of, described, space_from
from proctor.models.wire import Action, Encoding, Observation
from tests.models.space_strategies import bent, identical, json_values, members, spaces

# Gymnasium's own judgement of stacked scalars warns about them.
pytestmark = pytest.mark.filterwarnings("ignore:.*Casting input x to numpy array")

ENCODINGS = (Encoding(), Encoding(packed=True), Encoding(packed=True, compress=True))


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value, allow_nan=False))


@st.composite
def spaces_with_members(draw: st.DrawFn, *, large: bool = False) -> tuple[gym.Space[Any], Any]:
    space = draw(spaces(large=large))
    return space, draw(members(space))


@settings(max_examples=120)
@given(drawn=spaces_with_members(large=True), encoding=st.sampled_from(ENCODINGS))
def test_a_value_comes_back_with_the_same_type_dtype_shape_and_bits(
    drawn: tuple[gym.Space[Any], Any], encoding: Encoding
) -> None:
    space, value = drawn
    codec = codec_of(space)

    back = codec.decode(through_json(codec.encode(value, encoding)))

    assert identical(back, value)
    assert space.contains(back)


@given(drawn=spaces_with_members(), encoding=st.sampled_from(ENCODINGS))
def test_what_is_written_validates_against_the_schema(drawn: tuple[gym.Space[Any], Any], encoding: Encoding) -> None:
    space, value = drawn
    codec = codec_of(space)
    schema = through_json(codec.schema())

    jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
    jsonschema_rs.Draft202012Validator(schema).validate(through_json(codec.encode(value, encoding)))


@settings(max_examples=100)
@given(space=spaces(large=True), seed=st.integers(0, 2**31))
def test_a_space_is_rebuilt_from_its_description(space: gym.Space[Any], seed: int) -> None:
    rebuilt = space_from(through_json(described(space)))

    assert rebuilt == space
    assert described(rebuilt) == described(space)


@pytest.mark.parametrize(
    "space",
    [
        Box(-np.inf, np.inf, (3,), np.int32),
        Box(np.array([0, -np.inf], np.float32), np.array([np.inf, 1], np.float32)),
        Discrete(5, start=-2),
        Dict({"b": Discrete(3), "a": Text(4)}, sort_keys=False),
        OneOf((Discrete(3), Box(0, 1, (2,)))),
    ],
)
def test_a_rebuilt_space_samples_like_the_original(space: gym.Space[Any]) -> None:
    rebuilt = space_from(through_json(described(space)))
    space.seed(7)
    rebuilt.seed(7)

    assert all(identical(space.sample(), rebuilt.sample()) for _ in range(5))


@settings(max_examples=100)
@given(space=spaces(), value=json_values(), bounded=st.booleans())
def test_hostile_json_is_a_member_or_a_validation_error(space: gym.Space[Any], value: Any, bounded: bool) -> None:
    with suppress(ValidationError):
        read = codec_of(space).decode(value, bounded=bounded)

        assert not bounded or space.contains(read)


@settings(max_examples=60)
@given(data=st.data(), drawn=spaces_with_members(), encoding=st.sampled_from(ENCODINGS))
def test_a_message_that_was_bent_is_a_member_or_a_validation_error(
    data: st.DataObject, drawn: tuple[gym.Space[Any], Any], encoding: Encoding
) -> None:
    space, value = drawn
    codec = codec_of(space)
    hostile = data.draw(bent(through_json(codec.encode(value, encoding))))

    with suppress(ValidationError):
        read = codec.decode(hostile)

        assert space.contains(read)


@settings(max_examples=60)
@given(data=st.data(), space=spaces())
def test_a_description_that_was_bent_is_a_space_or_a_validation_error(
    data: st.DataObject, space: gym.Space[Any]
) -> None:
    hostile = data.draw(bent(through_json(described(space))))

    with suppress(ValidationError):
        rebuilt = space_from(hostile)

        assert described(rebuilt)


class Turn(Action):
    action: Annotated[Any, InSpace(codec_of(Box(-1, 1, (2,), np.float32)))]


class Chosen(Observation):
    observation: Annotated[Any, InSpace(codec_of(Dict(at=Discrete(5), image=Box(0, 255, (64, 64), np.uint8))))]


def test_a_field_in_a_space_is_read_from_json_as_the_spaces_own_value() -> None:
    turn = Turn.model_validate_json('{"action": [0.5, -1]}')

    assert identical(turn.action, np.array([0.5, -1], np.float32))


@pytest.mark.parametrize(
    "value", [[0.5, -1], np.array([0.5, -1]), (0.5, -1), {"dtype": "<f4", "shape": [2], "data": "AAAAPwAAgL8="}]
)
def test_a_field_in_a_space_takes_both_forms_from_python(value: Any) -> None:
    assert identical(Turn(action=value).action, np.array([0.5, -1], np.float32))


@pytest.mark.parametrize("value", [[0.5], np.array([0.5, 2]), None, "x"])
def test_a_field_in_a_space_refuses_what_is_no_member(value: Any) -> None:
    with pytest.raises(pydantic.ValidationError, match=r"float32.* of shape"):
        Turn(action=value)


def test_a_field_in_a_space_is_written_as_the_encoding_says() -> None:
    seen = Chosen(observation={"at": 3, "image": np.zeros((64, 64), np.uint8)})

    plain, packed, zipped = (json.loads(seen.inside(encoding))["observation"] for encoding in ENCODINGS)

    assert plain["image"] == [[0] * 64] * 64
    assert packed["image"]["dtype"] == "|u1"
    assert zipped["image"]["zip"] == "zlib"
    assert plain["at"] == packed["at"] == zipped["at"] == 3
    assert json.loads(seen.model_dump_json())["observation"] == plain


def test_a_field_in_a_space_shows_the_spaces_schema() -> None:
    schema = Turn.model_json_schema()

    assert schema["properties"]["action"]["anyOf"][0]["minItems"] == 2


def test_every_space_that_has_a_codec_can_be_described() -> None:
    assert CODECS.keys() == WRITERS.keys() == STACKS.keys()
    assert READERS.keys() == {kind.__name__ for kind in CODECS}


def test_another_space_is_refused() -> None:
    with pytest.raises(ComponentError, match="cannot cross the wire"):
        codec_of(gym.Space())


def test_a_subclass_of_a_space_has_its_codec() -> None:
    class Special(Discrete[Any]):
        pass

    assert codec_of(Special(3)).decode(2) == 2
