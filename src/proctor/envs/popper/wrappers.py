"""Column Popper's observation as one row of numbers, for learners that take no dictionaries."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from proctor.errors import ValidationError

Flat = NDArray[np.float32]


class FlattenBoard(gym.ObservationWrapper[Flat, Any, dict[str, NDArray[Any]]], RecordConstructorArgs):
    """An environment whose observation is the board, row by row from the top, then the selection, then the time left.

    The observation is a fresh `Box` of one dimension, float32 with the bounds of its parts; the time is there if the
    environment tells it. The numbers are not changed: an empty cell is 0.0, a block its value.
    """

    def __init__(self, env: gym.Env[dict[str, NDArray[Any]], Any]) -> None:
        RecordConstructorArgs.__init__(self)
        gym.ObservationWrapper.__init__(self, env)
        space = env.observation_space
        if not isinstance(space, spaces.Dict) or not all(isinstance(part, spaces.Box) for part in space.values()):
            raise ValidationError("nothing to flatten", found=space, expected="Column Popper's Dict of Boxes")
        self._parts: tuple[str, ...] = tuple(space)
        low, high = (
            np.concatenate([np.ravel(getattr(space[part], bound)) for part in self._parts]).astype(np.float32)
            for bound in ("low", "high")
        )
        self.observation_space = spaces.Box(low, high, dtype=np.float32)

    def observation(self, observation: dict[str, NDArray[Any]]) -> Flat:
        """Return the parts of `observation`, one after the other."""
        return np.concatenate([observation[part].ravel() for part in self._parts]).astype(np.float32)
