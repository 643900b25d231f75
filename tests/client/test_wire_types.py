from typing import Any, Generic, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import create_model

from proctor.client.env_client import EnvClient, find_schema_difference
from proctor.envs.plume.models import PlumeAction, PlumeObservation, PlumeState
from proctor.envs.popper.models import PopperAction, PopperObservation, PopperState
from proctor.models.wire import Action, Observation, State
from tests.client.counting import Count, Counted, CountState

First = TypeVar("First", bound=Action)


class Half(EnvClient[First, Counted, CountState], Generic[First]):
    """Leaves its action open."""


class Whole(Half[Count]):
    """Names all three, on the way down."""


class Further(Whole):
    """Adds nothing."""


def test_types_are_found_through_all_classes_between() -> None:
    half: Any = Half
    assert not hasattr(half, "action_type")
    assert (half.observation_type, half.state_type) == (Counted, CountState)
    for cls in (Whole, Further):
        found: Any = cls
        assert (found.action_type, found.observation_type, found.state_type) == (Count, Counted, CountState)


MODELS = [PlumeAction, PlumeObservation, PlumeState, PopperAction, PopperObservation, PopperState, Counted, Count]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("other", MODELS)
def test_a_schema_agrees_with_its_own_model_and_no_other(model: type[Any], other: type[Any]) -> None:
    sent = issubclass(model, Action)
    theirs = msgspec.json.decode(
        msgspec.json.encode(other.model_json_schema(mode="validation" if sent else "serialization"))
    )

    assert (find_schema_difference(model, theirs, sent=sent) is None) == (model is other)


TYPES = st.sampled_from([int, str, bool, list[int], dict[str, float], int | None, tuple[int, int]])
FIELDS = st.dictionaries(st.sampled_from("abcde"), TYPES, max_size=4)


def made(fields: dict[str, Any], about: str) -> type[Observation]:
    parts: dict[str, Any] = {name: (kind, ...) for name, kind in fields.items()}
    model: type[Observation] = create_model("Made", __base__=Observation, __doc__=about, **parts)
    return model


@given(FIELDS, FIELDS)
def test_schemas_differ_exactly_when_the_fields_do(one: dict[str, Any], other: dict[str, Any]) -> None:
    theirs = made(other, "another title and description").model_json_schema(mode="serialization")

    assert (find_schema_difference(made(one, "words"), theirs, sent=False) is None) == (one == other)


def test_the_difference_is_named_where_it_is() -> None:
    theirs = made({"a": list[int]}, "").model_json_schema(mode="serialization")

    assert find_schema_difference(made({"a": list[str]}, ""), theirs, sent=False) == (
        "/properties/a/items/type is 'string' for the client and 'integer' for the server"
    )
    assert "unknown to the client" in str(find_schema_difference(made({}, ""), theirs, sent=False))


def test_what_travels_beside_an_observation_does_not_count() -> None:
    theirs = State.model_json_schema()
    with_reward = {**theirs, "properties": {**theirs["properties"], "reward": {"type": "number"}}}

    assert find_schema_difference(State, with_reward, sent=True) is None
