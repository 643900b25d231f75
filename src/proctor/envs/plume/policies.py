"""Policies to compare with: random, gradient greedy, run and tumble, surge and cast.

Rule 1: a policy sees observations only, never `info` or the source; what it knows besides is which actions and which
    sensor it was built for.
Rule 2: memory is the policy's own and begins anew at `reset`; chance is a function of the seed and the count of moves.
Rule 3: a policy that steers chooses headings; `steering` turns them into actions.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import gymnasium as gym

from proctor.contracts.chance import SEED_LIMIT, Chance, Stream
from proctor.envs.plume.steering import Action, Nose, Reading, Steering, Vector, dot, nose_of, steering_of
from proctor.errors import ValidationError

RANDOM, GREEDY, TUMBLING, CASTING = (Stream.USER + k for k in range(4))


class Policy(Protocol):
    """Chooses actions from observations; the same seed and observations give the same actions."""

    def reset(self, seed: int) -> None:
        """Forget everything and begin an episode; needed before the first `act`."""

    def act(self, observation: Any) -> Action:
        """Return the next action."""


class RandomPolicy:
    """Every action with equal chance; for any action space."""

    def __init__(self, space: gym.Space[Any]) -> None:
        self._space = copy.deepcopy(space)

    def reset(self, seed: int) -> None:
        """Begin with a generator that is a function of `seed`."""
        self._space.seed(Chance(seed).below(SEED_LIMIT, RANDOM, 0))

    def act(self, observation: Any) -> Action:
        """Return any action."""
        return self._space.sample()


class Searcher(ABC):
    """A policy that chooses headings and has them steered; the memory of a subclass begins in `_begin`."""

    def __init__(self, steering: Steering, nose: Nose) -> None:
        self._steering = steering
        self._nose = nose

    def reset(self, seed: int) -> None:
        """Forget everything and begin an episode."""
        self._chance = Chance(seed)
        self._moves = 0
        self._facing = 0
        self._pending: list[Action] = []
        self._begin()

    def act(self, observation: Any) -> Action:
        """Return the next action; a new heading is chosen when the last move is made."""
        if not self._pending:
            wanted = self._choose(self._nose.read(observation))
            self._pending = list(reversed(self._steering.way(self._facing, wanted)))
            self._facing = wanted
            self._moves += 1
        return self._pending.pop()

    @abstractmethod
    def _begin(self) -> None:
        """Set the memory up for an episode."""

    @abstractmethod
    def _choose(self, reading: Reading) -> int:
        """Return the heading of the next move."""


class RunTumble(Searcher):
    """Runs while the odor rises, turns to any other heading when it falls, and now and then when it stays."""

    TUMBLES: Final = {1: 0.0, 0: 0.2, -1: 1.0}
    """The chance of a tumble, by the sign of the change of odor since the last move."""

    def _begin(self) -> None:
        self._odor = 0.0
        self._heading = self._chance.below(self._steering.count, TUMBLING, 0)

    def _choose(self, reading: Reading) -> int:
        change = (reading.odor > self._odor) - (reading.odor < self._odor)
        self._odor = reading.odor
        if self._chance.uniform(TUMBLING, self._moves, 1) < self.TUMBLES[change]:
            count = self._steering.count
            self._heading = (self._heading + 1 + self._chance.below(count - 1, TUMBLING, self._moves, 2)) % count
        return self._heading


class GradientGreedy(Searcher):
    """Fits a plane to its last few readings and climbs it; one move in five explores.

    Where it was it knows by counting its own moves, so walls, which it cannot see, spoil the fit for a while.
    """

    SPAN: Final = 8
    EXPLORES: Final = 0.2

    def _begin(self) -> None:
        self._at = (0.0, 0.0)
        self._past: deque[tuple[Vector, float]] = deque(maxlen=self.SPAN)

    def _choose(self, reading: Reading) -> int:
        self._past.append((self._at, reading.odor))
        slope = fitted_slope(self._past)
        flat = slope == (0.0, 0.0)
        if flat or self._chance.uniform(GREEDY, self._moves, 0) < self.EXPLORES:
            heading = self._chance.below(self._steering.count, GREEDY, self._moves, 1)
        else:
            heading = self._steering.nearest(slope)
        step = self._steering.direction(heading)
        self._at = (self._at[0] + step[0], self._at[1] + step[1])
        return heading


def fitted_slope(past):
    """Return the slope (per cell) of the plane through the readings, by least squares; zero along an axis not walked."""
    count = len(past)
    mean_x, mean_y = (sum(at[axis] for at, _ in past) / count for axis in (0, 1))
    mean = sum(odor for _, odor in past) / count
    xx = xy = yy = 1e-9
    xy = xo = yo = 0.0
    for (x, y), odor in past:
        dx, dy, rise = x - mean_x, y - mean_y, odor - mean
        xx += dx * dx
        xy += dx * dy
        yy += dy * dy
        xo += dx * rise
        yo += dy * rise
    det = xx * yy - xy * xy
    return (xo * yy - yo * xy) / det, (yo * xx - xo * xy) / det
