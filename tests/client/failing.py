"""An environment that fails when it is told to."""

from typing import Any

import gymnasium as gym
import numpy as np


class Failing(gym.Env[Any, Any]):
    """Action 1 raises."""

    action_space = gym.spaces.Discrete(2)
    observation_space = gym.spaces.Box(0, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if action == 1:
            raise RuntimeError("as told")
        return np.zeros(1, np.float32), 0.0, False, False, {}
