"""Environments that can or cannot be replayed; a target names a member of this file."""

import os
from itertools import count
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from proctor.contracts.environment import Environment
from proctor.errors import ValidationError
from proctor.models.wire import Action, Observation, State

_EVER = count(os.getpid())  # another process begins elsewhere
"""Goes on from one environment to the next, as nothing in an environment should."""


class Add(Action):
    action: int


class Total(Observation):
    total: float
    word: str = ""


class Adding(Environment[Add, Total, State]):
    """Adds up its actions from the seed on; counts its resets in the metadata."""

    def __init__(self, token: str = "") -> None:
        self.resets = 0
        self.total = 0.0
        self.options: dict[str, Any] = {}

    def configure(self, options: dict[str, Any]) -> None:
        self.options = dict(options)

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Total:
        self.resets += 1
        self.total = float(seed or 0) + self.options.pop("plus", 0.0)
        return Total(total=self.total, metadata={"resets": self.resets, "nothing": None})

    def step(self, action: Add) -> Total:
        self.total += action.action
        return Total(total=self.total, reward=float(action.action), terminated=self.total > 100)

    @property
    def state(self) -> State:
        return State(step_count=0)


class AddingLater(Environment[Add, Total, State]):
    """The same, of coroutines."""

    def __init__(self) -> None:
        self._inner = Adding()

    async def reset(self, seed: int | None = None, episode_id: str | None = None) -> Total:
        return self._inner.reset(seed, episode_id)

    async def step(self, action: Add) -> Total:
        return self._inner.step(action)

    async def close(self) -> None:
        self._inner.total = -1.0

    @property
    def state(self) -> State:
        return State()


class Drifting(Adding):
    """Not deterministic: from its third step on, an observation depends on how many there have ever been."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Total:
        self.steps = 0
        return super().reset(seed, episode_id)

    def step(self, action: Add) -> Total:
        seen = super().step(action)
        self.steps += 1
        return seen if self.steps < 3 else Total(total=seen.total + next(_EVER), reward=seen.reward)


class Stubborn(Adding):
    """Raises with the action 13, but for the first time that anybody asks."""

    asked = False

    def step(self, action: Add) -> Total:
        if action.action == 13:
            if Stubborn.asked:
                raise ValidationError("not that number again")
            Stubborn.asked = True
        return super().step(action)


class Drawn(gym.Env[Any, Any]):
    """Says what it draws, and never with which seed; what it draws is not finite now and then."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gym.spaces.Discrete(3)

    def _seen(self) -> tuple[Any, dict[str, Any]]:
        drawn = self.np_random.normal(size=2)
        drawn[0] = -0.0 if drawn[1] > 0.5 else np.inf if drawn[1] < -0.5 else drawn[0]
        return drawn, {"drawn": float(drawn[0]), "nothing": None}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._seen()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        seen, info = self._seen()
        return seen, float(self.np_random.normal()), bool(self.np_random.random() < 0.05), False, info


class Counted(gym.Env[Any, Any]):
    """Says how many resets it has had, and never ends."""

    observation_space = gym.spaces.Discrete(100)
    action_space = gym.spaces.Discrete(3)

    def __init__(self) -> None:
        self.resets = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.resets += 1
        return self.resets, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.resets, 0.0, False, False, {}


class Flickering(gym.Env[Any, Any]):
    """Is the same every time, but draws what nobody can repeat."""

    metadata = {"render_modes": ["rgb_array"]}
    action_space = gym.spaces.Discrete(2)
    observation_space = gym.spaces.Discrete(2)
    render_mode = "rgb_array"

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return int(action), 1.0, False, False, {}

    def render(self) -> Any:
        return np.full((4, 4, 3), next(_EVER) % 256, np.uint8)


class Seeded(gym.Env[Any, Any]):
    """Says which seed it drew, also where an option named it; ends after a few steps."""

    asked: ClassVar[list[Any]] = []
    """What the resets of all of them were asked for, in order."""
    observation_space = gym.spaces.Discrete(1000)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.asked.append((seed, options))
        if seed is None:
            seed = (options or {}).get("seed", int(self.np_random.integers(2**31)))
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(3, 6))
        return int(self.np_random.integers(1000)), {"seed": seed}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        return int(self.np_random.integers(1000)), 1.0, self.left == 0, False, {}
