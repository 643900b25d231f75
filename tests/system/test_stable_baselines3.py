"""Stable-Baselines3 takes every action model and sensor without a word of complaint, and learns."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest

from proctor.envs.plume.env import PlumeSearchEnv
from proctor.envs.registration import register
from tests.envs.plume import catalogue
from tests.envs.plume.catalogue import ACTIONS

pytestmark = pytest.mark.system


SENSORS: dict[str, Any] = {
    **catalogue.SENSORS,
    "history of a dict": {
        "type": "history",
        "sensor": {"type": "dict", "sensors": {"odor": "poisson_hits", "wind": "wind"}},
    },
}

register()


def config_of(action: str, sensor: str) -> dict[str, Any]:
    """Return a configuration with wind, so that every sensor has something to feel."""
    return {"plume": "advected", "action": action, "observation": SENSORS[sensor]}


@pytest.mark.parametrize("sensor", SENSORS)
@pytest.mark.parametrize("action", ACTIONS)
def test_the_checker_has_nothing_to_say(action: str, sensor: str) -> None:
    from stable_baselines3.common.env_checker import check_env

    env = PlumeSearchEnv(config=config_of(action, sensor), grid_size=(20, 20), max_steps=50)

    # Its render check is off by default, and would close the environment and then go on using it.
    check_env(env, warn=True)

    env.close()


@pytest.mark.parametrize(
    ("policy", "action", "sensor"),
    [("MlpPolicy", "discrete_grid", "history"), ("MultiInputPolicy", "continuous", "dict")],
)
def test_a_few_updates_of_ppo_go_through(policy: str, action: str, sensor: str) -> None:
    from stable_baselines3 import PPO

    env = gym.make("proctor/PlumeSearch-v0", config=config_of(action, sensor), grid_size=(12, 12), max_steps=20)
    model = PPO(policy, env, n_steps=64, batch_size=32, n_epochs=1, device="cpu", seed=0)

    model.learn(total_timesteps=128)

    assert model.num_timesteps == 128
