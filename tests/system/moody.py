"""An environment that cannot always be done again, for tests of what becomes of its episodes when a server is killed."""

from __future__ import annotations

import os

from proctor.contracts.environment import Environment
from proctor.models.wire import Action, Observation, State

MOODY = 4
"""An episode whose seed is a multiple of this differs from process to process."""


class Nudge(Action):
    """How far to go."""

    action: int


class Place(Observation):
    """Where one is; `observation` has one number, like a sensor."""

    observation: tuple[float, ...]


class Moody(Environment[Nudge, Place, State]):
    """Walks along a line; in some episodes the line begins where the process has its number."""

    quick = True

    def __init__(self) -> None:
        self.at = 0.0
        self.steps = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Place:
        self.at = float(seed or 0) + (os.getpid() if (seed or 0) % MOODY == 0 else 0.5)
        self.steps = 0
        return Place(observation=(self.at,))

    def step(self, action: Nudge) -> Place:
        self.steps += 1
        self.at = self.at * 1.01 + action.action
        return Place(observation=(self.at,), reward=float(action.action))

    @property
    def state(self) -> State:
        return State(step_count=self.steps)
