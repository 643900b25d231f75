"""A remote environment is the local one, step for step."""

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import msgspec
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

from proctor.client.connection import ConnectionSettings
from proctor.client.remote_envs import RemoteEnv, encode_reset, encode_value, without_credential
from proctor.errors import ConnectionFailed, EpisodeLost, StateError, ValidationError
from proctor.models.spaces import codec_of
from proctor.models.wire import Encoding
from tests.client.conftest import QUICK
from tests.models.space_strategies import identical, members, spaces
from tests.server.live_server import Served, serving

SECRET = "a-secret-that-nobody-may-read"


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray) and one.dtype != other.dtype:
        return False
    return bool(np.array_equal(one, other))


@pytest.fixture(scope="module")
def cartpole() -> Iterator[Served]:
    with serving("CartPole-v1") as there:
        yield there


@pytest.mark.parametrize(
    "target",
    [
        "CartPole-v1",
        "FrozenLake-v1",
        "Blackjack-v1",
        "Pendulum-v1",
        "proctor/PlumeSearch-v0",
        "proctor/ColumnPopper-v0",
    ],
)
def test_a_remote_environment_says_what_the_local_one_says(target: str) -> None:
    local = gym.make(target)
    with serving(target) as there:
        remote = RemoteEnv(there.url)
        try:
            assert remote.action_space == local.action_space
            assert remote.observation_space == local.observation_space
            assert same(remote.reset(seed=4)[0], local.reset(seed=4)[0])
            local.action_space.seed(1)
            for _ in range(60):
                action = local.action_space.sample()
                one, other = remote.step(action), local.step(action)
                assert same(one[0], other[0])
                assert one[1:4] == pytest.approx(other[1:4])
                if one[2] or one[3]:
                    assert same(remote.reset(seed=5)[0], local.reset(seed=5)[0])
        finally:
            remote.close()
            local.close()


@pytest.mark.parametrize("target", ["FrozenLake-v1", "proctor/PlumeSearch-v0", "proctor/ColumnPopper-v0"])
def test_gymnasium_s_own_check_has_nothing_to_say(target: str) -> None:
    with serving(target) as there:
        env = gym.make("proctor/Remote-v0", url=there.url)
        check_env(env, skip_render_check=True)
        env.close()


def test_info_is_the_metadata_and_options_reach_the_environment() -> None:
    with serving("proctor/PlumeSearch-v0") as there:
        env = RemoteEnv(there.url)
        _, info = env.reset(seed=3, options={"start": (5, 6)})
        state = env.state()
        env.close()

    assert info["seed"] == 3
    assert info["agent_xy"] == [5, 6]
    assert state["step_count"] == 0


def test_a_refused_option_or_action_changes_nothing(cartpole: Served) -> None:
    env = RemoteEnv(cartpole.url)
    first, _ = env.reset(seed=1)
    for action in (7, -1, "left", None, 0.5):
        with pytest.raises(ValidationError):
            env.step(action)
    with pytest.raises(ValidationError):
        env.reset(options={"x": object()})
    local = gym.make("CartPole-v1")
    local.reset(seed=1)

    assert same(env.step(np.int64(1))[0], local.step(1)[0])
    assert same(first, local.reset(seed=1)[0])
    env.close()


def test_the_lifecycle_holds(cartpole: Served) -> None:
    env = RemoteEnv(cartpole.url)
    with pytest.raises(StateError, match="created"):
        env.step(0)
    env.close()
    env.close()
    with pytest.raises(StateError):
        env.reset()


def test_a_server_that_goes_away_is_a_lost_episode_and_never_another() -> None:
    with serving("CartPole-v1", grace_seconds=0.0) as there:
        env = RemoteEnv(there.url, settings=ConnectionSettings(connect_timeout=2.0))
        env.reset(seed=1)
    with pytest.raises(EpisodeLost):
        env.step(0)
    with pytest.raises(ConnectionFailed):
        env.reset()
    with pytest.raises(EpisodeLost):
        env.step(0)
    env.close()


def test_nothing_shows_the_credential() -> None:
    with serving("CartPole-v1", secret=SECRET) as there:
        env = gym.make("proctor/Remote-v0", url=there.url, token=SECRET)
        shown = f"{env} {env.unwrapped!r} {env.spec} {env.unwrapped.spec}"
        env.reset()
        env.close()
        with pytest.raises(ConnectionFailed) as refusal:
            gym.make("proctor/Remote-v0", url=there.url, token=f"{SECRET}-not")

    assert SECRET not in shown + str(refusal.value)
    assert env.spec is not None
    assert env.spec.id == "proctor/Remote-v0"


def test_a_remote_environment_is_neither_pickled_nor_copied(cartpole: Served) -> None:
    env = RemoteEnv(cartpole.url)
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(StateError, match="pickled or copied"):
            attempt(env)
    env.close()


def test_it_does_not_render(cartpole: Served) -> None:
    env = RemoteEnv(cartpole.url)
    env.reset()

    assert env.render() is None  # type: ignore[func-returns-value]
    with pytest.raises(ValidationError):
        RemoteEnv(cartpole.url, render_mode="human")
    env.close()


def test_a_server_that_refuses_leaves_no_connection_behind() -> None:
    with serving("CartPole-v1", max_sessions=1, max_waiting=0) as there:
        first = RemoteEnv(there.url)
        with pytest.raises(Exception, match="CAPACITY_REACHED"):
            RemoteEnv(there.url)
        first.close()
        second = RemoteEnv(there.url)
        second.close()


def test_an_observation_without_a_value_is_refused() -> None:
    from msgspec import Raw

    from proctor.models.control import ObservationReply

    with serving("CartPole-v1") as there:
        env = RemoteEnv(there.url)
        for inside in (b"{}", b"[]", b"{", b'{"observation":[1]}'):
            with pytest.raises(ValidationError):
                env._read_observation(ObservationReply(Raw(inside), None, False))
        env.close()


SECRET = "a-secret-that-nobody-may-read"


@given(st.data())
def test_every_value_of_a_space_is_said_exactly(data: st.DataObject) -> None:
    space = data.draw(spaces())
    value = data.draw(members(space))
    codec = codec_of(space)
    text = encode_value(codec, "action", value, Encoding(packed=True))

    assert identical(codec.decode(msgspec.json.decode(text)["action"]), value)


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
