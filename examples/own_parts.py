"""A sensor and a reward of one's own, injected; and what the contract says of them."""

import numpy as np
from gymnasium import spaces

from proctor import PlumeSearchEnv


class SmellAndStep:
    """The concentration, and how much of the episode is over."""

    def __init__(self, max_steps: int = 100) -> None:
        self.max_steps = max_steps
        self._space = spaces.Box(0.0, 1.0, (2,), np.float32)

    @property
    def observation_space(self) -> spaces.Box:
        return self._space

    def get_observation(self, env_state):
        smell = env_state["plume_field"].sample(env_state["agent_state"].position)
        return np.array([smell, min(env_state["time_step"] / self.max_steps, 1.0)], np.float32)

    def get_metadata(self):
        return {"type": "smell_and_step", "parameters": {"max_steps": self.max_steps}}


class SmellReward:
    """The concentration where the agent has come to."""

    def compute_reward(self, prev_state, action, next_state, plume_field):
        return plume_field.sample(next_state.position)

    def get_metadata(self):
        return {"type": "smell", "parameters": {}}


env = PlumeSearchEnv(observation_model=SmellAndStep(), reward_fn=SmellReward(), max_steps=100)
print(env.reset(seed=1))
print(env.step(3))
