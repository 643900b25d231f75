"""Stable-Baselines3 and sb3-contrib take an adapted vector environment for one of their own."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from proctor.envs.plume.env import PlumeSearchEnv
from proctor.envs.plume.vector.batched_env import BatchedPlumeSearch
from proctor.envs.popper.env import ColumnPopperEnv, ContractColumnPopperEnv
from proctor.envs.popper.vector.batched_env import BatchedColumnPopper
from proctor.envs.popper.wrappers import FlattenBoard
from proctor.integrations.sb3 import as_sb3

pytestmark = pytest.mark.system

SAME_STEP = AutoresetMode.SAME_STEP
MAKERS: dict[str, Any] = {
    "plume": lambda: PlumeSearchEnv(grid_size=(7, 7), max_steps=9),
    "plume, dict": lambda: PlumeSearchEnv(
        grid_size=(7, 7), max_steps=9, config={"observation": {"type": "dict", "sensors": {"odor": "antennae"}}}
    ),
    "popper": lambda: ColumnPopperEnv(duration_ms=1500),
    "popper, full columns": lambda: ColumnPopperEnv(height=4, include_time_left_norm=True),
}


def same(one: Any, other: Any) -> bool:
    """Return whether two values of observations and infos are equal, arrays by value."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(np.array_equal(one, other))


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
def test_an_adapted_vector_says_what_their_own_vector_of_the_same_environments_says(maker: Any) -> None:
    from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor

    ours = as_sb3(SyncVectorEnv([maker] * 3, autoreset_mode=SAME_STEP))
    theirs = VecMonitor(DummyVecEnv([maker] * 3))
    for env in (ours, theirs):
        env.seed(5)
    rng = np.random.default_rng(0)
    ended = 0

    assert same(ours.reset(), theirs.reset())
    for _ in range(120):
        actions = rng.integers(0, ours.action_space.n, 3)
        one, other = ours.step(actions), theirs.step(actions)
        assert all(same(one[part], other[part]) for part in range(3))
        for i in np.flatnonzero(one[2]):
            ended += 1
            mine, yours = one[3][i], other[3][i]
            assert same(mine["terminal_observation"], yours["terminal_observation"])
            assert mine["TimeLimit.truncated"] == yours["TimeLimit.truncated"]
            assert mine["episode"]["l"] == yours["episode"]["l"]
            assert mine["episode"]["r"] == pytest.approx(yours["episode"]["r"], abs=1e-4)
            assert mine.get("score") == yours.get("score")
    assert ended > 6


@pytest.mark.parametrize("num_envs", [1, 4])
def test_ppo_learns_on_the_batch_and_hears_of_its_episodes(num_envs: int) -> None:
    from stable_baselines3 import PPO
    from stable_baselines3.common.evaluation import evaluate_policy

    env = as_sb3(BatchedPlumeSearch(num_envs, autoreset_mode=SAME_STEP, grid_size=(9, 9), max_steps=20))
    model = PPO("MlpPolicy", env, n_steps=64, batch_size=32, n_epochs=1, device="cpu", seed=0)

    model.learn(total_timesteps=64 * num_envs)
    mean, _ = evaluate_policy(model, env, n_eval_episodes=3)

    assert model.num_timesteps == 64 * num_envs
    assert len(model.ep_info_buffer) >= 3 * num_envs
    assert 0.0 <= mean <= 1.0


def test_masked_ppo_never_takes_a_masked_action() -> None:
    from sb3_contrib import MaskablePPO
    from sb3_contrib.common.maskable.evaluation import evaluate_policy
    from sb3_contrib.common.maskable.utils import is_masking_supported

    masked = []

    def watch(step: dict[str, Any], _: dict[str, Any]) -> bool:
        taken, masks = step["actions"], step["action_masks"]
        masked.extend(taken[masks[np.arange(len(taken)), taken] == 0])
        return True

    env = as_sb3(BatchedColumnPopper(4, autoreset_mode=SAME_STEP, height=4))
    model = MaskablePPO("MultiInputPolicy", env, n_steps=64, batch_size=64, n_epochs=1, device="cpu", seed=0)

    model.learn(total_timesteps=256, callback=watch)
    evaluate_policy(model, env, n_eval_episodes=4)

    assert is_masking_supported(env)
    assert masked == []


def test_an_environment_without_masks_does_not_pretend() -> None:
    from sb3_contrib.common.maskable.utils import is_masking_supported

    assert not is_masking_supported(as_sb3(BatchedPlumeSearch(2, autoreset_mode=SAME_STEP)))


@pytest.mark.parametrize("keywords", [{}, {"include_time_left_norm": True}, {"reward_preset": "dense"}])
def test_the_checker_has_nothing_to_say_about_a_flat_board(keywords: dict[str, Any]) -> None:
    from stable_baselines3.common.env_checker import check_env

    check_env(FlattenBoard(ContractColumnPopperEnv(**keywords)), warn=True)


def test_the_checker_says_of_a_board_that_is_not_flat_only_that_it_is_not() -> None:
    from stable_baselines3.common.env_checker import check_env

    env: gym.Env[Any, Any] = ContractColumnPopperEnv()

    with pytest.warns(UserWarning, match="unconventional shape") as told:
        check_env(env, warn=True)
    assert len(told) == 1
