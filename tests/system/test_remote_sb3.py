"""Stable-Baselines3 and sb3-contrib train on what a server runs as if it were here."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from proctor.client.remote_envs import RemoteEnv, RemoteVectorEnv
from proctor.envs.plume.vector.batched_env import BatchedPlumeSearch
from proctor.integrations.sb3 import as_sb3
from tests.server.live_server import serving

pytestmark = pytest.mark.system

SAME_STEP = AutoresetMode.SAME_STEP
SMALL: dict[str, Any] = {"grid_size": [9, 9], "max_steps": 20}


def test_the_checker_has_nothing_to_say_about_a_remote_environment() -> None:
    from stable_baselines3.common.env_checker import check_env

    with serving("proctor/PlumeSearch-v0") as there:
        env = RemoteEnv(there.url)
        check_env(env, warn=True)
        env.close()


@pytest.mark.parametrize("made", ["class", "gym.make"])
def test_ppo_learns_on_a_remote_environment_unchanged(made: str) -> None:
    from stable_baselines3 import PPO
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    with serving("CartPole-v1") as there:
        env = RemoteEnv(there.url) if made == "class" else gym.make("proctor/Remote-v0", url=there.url)
        model = PPO("MlpPolicy", env, n_steps=256, batch_size=64, n_epochs=2, device="cpu", seed=0)
        model.learn(total_timesteps=512)
        mean, _ = evaluate_policy(model, Monitor(env), n_eval_episodes=2)
        env.close()

    assert model.num_timesteps == 512
    assert mean >= 8.0


def test_the_same_seed_learns_the_same_here_and_there() -> None:
    from stable_baselines3 import PPO

    def learnt(env: Any) -> Any:
        model = PPO("MlpPolicy", env, n_steps=64, batch_size=32, n_epochs=1, device="cpu", seed=0)
        model.learn(total_timesteps=64)
        return model.policy.state_dict()

    here = learnt(gym.make("CartPole-v1"))
    with serving("CartPole-v1") as there:
        env = RemoteEnv(there.url)
        remote = learnt(env)
        env.close()

    assert here.keys() == remote.keys()
    assert all(bool((here[key] == remote[key]).all()) for key in here)


def test_ppo_learns_on_a_remote_batch_and_hears_of_its_episodes() -> None:
    from stable_baselines3 import PPO

    with serving("proctor/PlumeSearch-v0", settings=SMALL) as there:
        env = as_sb3(RemoteVectorEnv(4, there.url, autoreset_mode=SAME_STEP))
        model = PPO("MlpPolicy", env, n_steps=64, batch_size=32, n_epochs=1, device="cpu", seed=0)
        model.learn(total_timesteps=256)
        env.close()

    assert model.num_timesteps == 256
    assert len(model.ep_info_buffer) >= 12


def test_an_adapted_remote_batch_says_what_the_adapted_local_one_says() -> None:
    local = as_sb3(BatchedPlumeSearch(3, autoreset_mode=SAME_STEP, grid_size=(9, 9), max_steps=20), clock=lambda: 0.0)
    with serving("proctor/PlumeSearch-v0", settings=SMALL) as there:
        remote = as_sb3(RemoteVectorEnv(3, there.url, autoreset_mode=SAME_STEP), clock=lambda: 0.0)
        for env in (local, remote):
            env.seed(5)
        rng = np.random.default_rng(0)
        assert np.array_equal(local.reset(), remote.reset())
        ended = 0
        for _ in range(80):
            actions = rng.integers(0, local.action_space.n, 3)
            one, other = local.step(actions), remote.step(actions)
            assert all(np.array_equal(one[part], other[part]) for part in range(3))
            for mine, yours in zip(one[3], other[3], strict=True):
                assert mine.keys() == yours.keys()
                ended += bool(mine)
                for key in mine:
                    assert np.array_equal(mine[key], yours[key]) or mine[key] == yours[key]
        remote.close()

    assert ended > 6


def test_masked_ppo_never_takes_a_masked_action_remotely() -> None:
    from sb3_contrib import MaskablePPO
    from sb3_contrib.common.maskable.utils import is_masking_supported

    masked = []

    def watch(step: dict[str, Any], _: dict[str, Any]) -> bool:
        taken, masks = step["actions"], step["action_masks"]
        masked.extend(taken[masks[np.arange(len(taken)), taken] == 0])
        return True

    with serving("proctor/ColumnPopper-v0", settings={"height": 4}) as there:
        env = as_sb3(RemoteVectorEnv(4, there.url, autoreset_mode=SAME_STEP, infos=True))
        model = MaskablePPO("MultiInputPolicy", env, n_steps=64, batch_size=64, n_epochs=1, device="cpu", seed=0)
        model.learn(total_timesteps=256, callback=watch)
        supported = is_masking_supported(env)
        env.close()

    assert supported
    assert masked == []
