from __future__ import annotations

import gymnasium as gym
import msgspec
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from hypothesis import given
from hypothesis import strategies as st

from proctor.client.remote_envs import RemoteEnv, encode_reset, encode_value, without_credential
from proctor.errors import ValidationError
from proctor.models.spaces import codec_of
from proctor.models.wire import Encoding
from tests.client.conftest import QUICK
from tests.models.space_strategies import identical, members, spaces
from tests.server.live_server import serving

SECRET = "a-secret-that-nobody-may-read"


@given(st.data())
def test_every_value_of_a_space_is_said_exactly(data: st.DataObject) -> None:
    space = data.draw(spaces())
    value = data.draw(members(space))
    codec = codec_of(space)
    text = encode_value(codec, "action", value, Encoding(packed=True))

    assert identical(codec.decode(msgspec.json.decode(text)["action"]), value)


def test_a_value_of_another_form_is_refused() -> None:
    codec = codec_of(gym.spaces.Box(0, 1, (2,)))

    with pytest.raises(ValidationError):
        encode_value(codec, "action", "left", Encoding())


def test_a_reset_says_what_it_was_given_arrays_as_lists() -> None:
    options = {"start": np.array([1, 2]), "far": np.float64(0.5)}

    assert encode_reset({"seed": np.int64(3), "options": options}) == b'{"seed":3,"options":{"start":[1,2],"far":0.5}}'
    assert encode_reset({"seed": None, "options": None}) == b""
    with pytest.raises(ValidationError):
        encode_reset({"options": {"x": object()}})


def test_a_spec_keeps_no_credential() -> None:
    spec = EnvSpec("x/Y-v0", kwargs={"url": f"http://proctor:{SECRET}@h:1", "token": SECRET, "other": 1})
    kept = without_credential(spec)

    assert kept is not None
    assert kept.kwargs == {"url": "http://h:1", "other": 1}
    assert without_credential(None) is None


def test_an_environment_without_spaces_needs_another_client() -> None:
    with serving(QUICK) as there, pytest.raises(ValidationError, match="no Gymnasium spaces"):
        RemoteEnv(there.url)
