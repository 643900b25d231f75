"""A remote batch is the local one, array for array."""

import copy
import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from proctor.client.remote_envs import RemoteVectorEnv, _read_column
from proctor.envs.plume.vector.batched_env import BatchedPlumeSearch
from proctor.envs.popper.vector.batched_env import BatchedColumnPopper
from proctor.errors import EpisodeLost, StateError, ValidationError
from proctor.integrations.sb3 import select_info
from tests.server.live_server import serving

MODES = list(AutoresetMode)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, np.ndarray) and one.dtype == object:
        return len(one) == len(other) and all(map(same, one, other))
    if one is None or other is None:
        return one is other
    if isinstance(one, np.ndarray) and one.dtype != other.dtype:
        return False
    return bool(np.array_equal(one, other))


def made(target: str, mode: AutoresetMode) -> VectorEnv[Any, Any, Any]:
    if target == "proctor/PlumeSearch-v0":
        return BatchedPlumeSearch(5, autoreset_mode=mode, grid_size=(5, 5), max_steps=7)
    if target == "proctor/ColumnPopper-v0":
        return BatchedColumnPopper(5, autoreset_mode=mode, duration_ms=900)
    return SyncVectorEnv([lambda: gym.make(target)] * 5, autoreset_mode=mode)


SETTINGS: dict[str, Any] = {
    "proctor/PlumeSearch-v0": {"grid_size": [5, 5], "max_steps": 7},
    "proctor/ColumnPopper-v0": {"duration_ms": 900},
    "FrozenLake-v1": {},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("target", SETTINGS)
def test_a_remote_batch_says_what_the_local_one_says(target: str, mode: AutoresetMode) -> None:
    local = made(target, mode)
    with serving(target, settings=SETTINGS[target]) as there:
        remote = RemoteVectorEnv(5, there.url, autoreset_mode=mode, infos=True)
        try:
            assert remote.metadata["autoreset_mode"] is mode
            assert remote.action_space == local.action_space
            assert remote.observation_space == local.observation_space
            assert same(remote.reset(seed=3)[0], local.reset(seed=3)[0])
            local.action_space.seed(2)
            ended = 0
            for _ in range(60):
                ended += play(remote, local, mode)
            assert ended > 5
        finally:
            remote.close()
            local.close()


def play(remote: Any, local: Any, mode: AutoresetMode) -> int:
    """Take one step in both, and reset those that ended where nobody else does; return how many ended."""
    actions = local.action_space.sample()
    one, other = remote.step(actions), local.step(actions)
    done = other[2] | other[3]
    for part in range(4):
        assert same(one[part], other[part]), part
    for i in np.flatnonzero(done).tolist() if mode is AutoresetMode.SAME_STEP else ():
        assert same(one[4]["final_obs"][i], other[4]["final_obs"][i])
        told, known = select_info(one[4]["final_info"], i), select_info(other[4]["final_info"], i)
        assert told.keys() == known.keys()
        assert all(np.array_equal(told[key], known[key]) for key in told)
    if mode is AutoresetMode.DISABLED and done.any():
        options = {"reset_mask": done}
        assert same(remote.reset(options=options)[0].copy(), local.reset(options=options)[0]) or isinstance(
            one[0], dict
        )
    return int(done.sum())


def test_it_is_made_by_gymnasium_and_its_spec_keeps_no_credential() -> None:
    secret = "a-secret-that-nobody-may-read"
    with serving("CartPole-v1", secret=secret) as there:
        env = gym.make_vec("proctor/Remote-v0", num_envs=3, url=there.url, token=secret, autoreset_mode="SameStep")
        observations, _ = env.reset(seed=[1, 2, 3])  # type: ignore[arg-type]  # one each, as our batches take them
        shown = f"{env} {env!r} {env.spec}"
        env.close()

    assert isinstance(env.unwrapped, RemoteVectorEnv)
    assert observations.shape == (3, 4)
    assert secret not in shown


def test_without_infos_only_what_a_learner_needs_is_sent() -> None:
    with serving("proctor/ColumnPopper-v0", settings={"duration_ms": 300}) as there:
        env = RemoteVectorEnv(2, there.url, autoreset_mode="SameStep")
        _, begun = env.reset(seed=1)
        told: list[Any] = [env.step(np.array([3, 3]))[4] for _ in range(3)]
        env.close()

    assert list(begun["seed"]) == [1, 2]
    assert told[0] == {}
    assert told[2].keys() == {"final_obs", "_final_obs", "final_info", "_final_info", "seed", "_seed"}


def test_the_lifecycle_and_the_refusals_hold() -> None:
    with serving("CartPole-v1") as there:
        env = RemoteVectorEnv(2, there.url)
        with pytest.raises(StateError):
            env.step(np.zeros(2, np.int64))
        env.reset(seed=[None, None])  # type: ignore[list-item]
        for actions in (np.zeros(3, np.int64), np.array([0, 9]), "left", None):
            with pytest.raises(ValidationError):
                env.step(actions)
        with pytest.raises(ValidationError):
            env.reset(seed=[1, None])  # type: ignore[list-item]
        with pytest.raises(ValidationError):
            env.reset(seed=[1, 2, 3])
        for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(StateError):
                attempt(env)
        env.step(np.zeros(2, np.int64))
        env.close()
        env.close()
        with pytest.raises(ValidationError):
            RemoteVectorEnv(2, there.url, render_mode="human")
        with pytest.raises(ValidationError):
            RemoteVectorEnv(2, there.url, autoreset_mode="sometimes")
        RemoteVectorEnv(2, there.url, autoreset_mode="same_step").close()


def test_a_lost_batch_begins_anew_only_by_a_reset() -> None:
    with serving("tests.client.failing:Failing") as there:
        env = RemoteVectorEnv(2, there.url)
        env.reset()
        with pytest.raises(EpisodeLost):
            env.step(np.ones(2, np.int64))
        with pytest.raises(EpisodeLost):
            env.step(np.zeros(2, np.int64))
        env.reset()
        env.step(np.zeros(2, np.int64))
        env.close()


@pytest.mark.parametrize("raw", [b"[1,2,3]", b'["a","b"]', b"{}", b"nothing", b"[[1],[2]]"])
def test_a_column_that_is_not_one_number_each_is_refused(raw: bytes) -> None:
    with pytest.raises(ValidationError):
        _read_column(raw, np.float64, 2)
