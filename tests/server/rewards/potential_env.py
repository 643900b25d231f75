"""A small environment that says its potential, and a session's JSON from it, of one or of a batch."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import msgspec
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from proctor.envs.gym_adapter import GymEnvironment
from proctor.models.wire import Encoding
from proctor.server.rewards.pipeline import Moment
from proctor.server.runtime.env_adapter import BatchAdapter, EnvAdapter, ResetRequest
from proctor.server.runtime.results import BatchOutcome, EnvOutcome

SPACE = gym.spaces.Dict(
    {
        "x": gym.spaces.Box(-50.0, 50.0, (1,), np.float32),
        "pair": gym.spaces.Tuple((gym.spaces.Discrete(9), gym.spaces.Text(9, min_length=1))),
    }
)


class Walk(gym.Env[Any, Any]):
    """Steps of -1, 0 or 1 from a start that the seed says; ends at +-3, is cut after `limit` steps."""

    observation_space = SPACE
    action_space = gym.spaces.Discrete(3)

    def __init__(self, limit: int = 4) -> None:
        self.limit = limit
        self.x = self.steps = 0

    def _seen(self) -> tuple[Any, dict[str, Any]]:
        observation = {"x": np.array([self.x], np.float32), "pair": (self.steps, "abc"[: 1 + self.steps % 3])}
        return observation, {"phi": 0.5 * self.x, "deep": {"steps": self.steps}, "grid": np.array([self.x, 1.5])}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x, self.steps = int(self.np_random.integers(-2, 3)), 0
        return self._seen()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.x += int(action) - 1
        self.steps += 1
        observation, info = self._seen()
        return observation, float(self.x) / 3, abs(self.x) >= 3, self.steps >= self.limit, info


def incident() -> str:
    return "incident"


@dataclass(slots=True)
class Single:
    """A session of one walk, as its transforms see it."""

    desk: EnvAdapter

    @classmethod
    def made(cls, encoding: Encoding) -> "Single":
        return cls(EnvAdapter(GymEnvironment(Walk()), encoding, incident))

    def reset(self, seed: int | None) -> Moment:
        return self._moment(self.desk.reset(ResetRequest(seed, "e", None)))

    def step(self, action: int) -> Moment:
        return self._moment(self.desk.step(msgspec.json.encode({"action": action})))

    def _moment(self, outcome: object) -> Moment:
        assert isinstance(outcome, EnvOutcome)
        flags = np.array([outcome.terminated]), np.array([outcome.truncated])
        return Moment(np.array([outcome.reward or 0.0]), *flags, outcome.observation, outcome.metadata)


@dataclass(slots=True)
class Batch:
    """A session of several walks, as its transforms see it."""

    desk: BatchAdapter

    @classmethod
    def made(cls, count: int, mode: AutoresetMode, encoding: Encoding) -> "Batch":
        vector = SyncVectorEnv([Walk] * count, autoreset_mode=mode)
        return cls(BatchAdapter(vector, encoding, incident, infos=True))

    def reset(self, seed: int | None, mask: np.ndarray[Any, np.dtype[np.bool_]] | None = None) -> Moment:
        order = ResetRequest(seed, "e", None, None if mask is None else mask.tolist())
        return self._moment(self.desk.reset(order))

    def step(self, actions: list[int]) -> Moment:
        return self._moment(self.desk.step(msgspec.json.encode({"actions": actions})))

    def _moment(self, outcome: BatchOutcome) -> Moment:
        begins = outcome.begins
        assert begins is not None
        none = np.zeros(begins.size, np.bool_)
        return Moment(
            np.zeros(begins.size) if outcome.rewards is None else outcome.rewards,
            none if outcome.terminations is None else outcome.terminations,
            none if outcome.truncations is None else outcome.truncations,
            outcome.observations,
            outcome.infos,
            begins,
        )


class Script(gym.Env[Any, Any]):
    """Gives the rewards and the ends that it was told, for comparison with wrappers of Gymnasium."""

    observation_space = gym.spaces.Discrete(2)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, rewards: list[float], ends: list[str]) -> None:
        self._script = iter(zip(rewards, ends, strict=True))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward, end = next(self._script)
        return 0, reward, end == "terminated", end == "truncated", {}


def scripts(rewards: "np.ndarray[Any, np.dtype[np.float64]]", ends: list[list[str]]) -> Iterator[partial[Script]]:
    """Yield a maker of one script for each row."""
    for row, each in zip(rewards.tolist(), ends, strict=True):
        yield partial(Script, row, each)
