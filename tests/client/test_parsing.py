"""What a server says and what a client's models make of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from proctor.client.replies import encode_json, encode_observation, read_model
from proctor.errors import ValidationError
from proctor.models.control import ObservationReply
from tests.client.counting import Count

FIELDS: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from(["total", "reward", "terminated", "metadata", "ö", "}"]),
    st.none() | st.integers() | st.text() | st.just({}) | st.lists(st.integers(), max_size=3),
)


@given(
    FIELDS, st.none() | st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.booleans(), st.booleans()
)
def test_what_travelled_beside_an_observation_holds_and_what_is_inside_stays(
    inside: dict[str, Any], reward: float | None, terminated: bool, truncated: bool, told: bool
) -> None:
    metadata: Any = Raw(b'{"seed":1}') if told else UNSET
    seen = ObservationReply(
        Raw(msgspec.json.encode(inside)), reward, terminated or truncated, metadata, terminated, truncated
    )
    found = msgspec.json.decode(encode_observation(seen))
    beside = {"reward": reward, "terminated": terminated, "truncated": truncated}

    assert {key: found[key] for key in beside} == beside
    assert found["metadata"] == ({"seed": 1} if told else inside.get("metadata", {}))
    assert {key: found[key] for key in inside.keys() - {*beside, "metadata"}} == {
        key: inside[key] for key in inside.keys() - {*beside, "metadata"}
    }


@pytest.mark.parametrize("inside", [b"[]", b"1", b'"{}"', b""])
def test_an_observation_that_is_no_object_is_refused(inside: bytes) -> None:
    with pytest.raises(ValidationError):
        encode_observation(ObservationReply(Raw(inside), None, False))


def test_without_hello_done_means_terminated() -> None:
    found = msgspec.json.decode(encode_observation(ObservationReply(Raw(b"{}"), 0.5, True)))

    assert found == {"metadata": {}, "reward": 0.5, "terminated": True, "truncated": False}


def test_what_does_not_fit_a_model_names_the_place() -> None:
    with pytest.raises(ValidationError, match="the server's action does not fit Count: by"):
        read_model(Count, b'{"by":"x"}', "action")


def test_what_json_cannot_say_is_refused() -> None:
    with pytest.raises(ValidationError, match="JSON"):
        encode_json({"a": object()})
