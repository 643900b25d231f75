"""The environment that is served while it is attacked: an echo that counts, and that takes its time when told to.

Rule 1: an observation says everything about its session: what it was told, and how often. A mix-up cannot hide.
"""

from __future__ import annotations

import threading
from typing import Final

from proctor.contracts.environment import Environment
from proctor.models.wire import Action, Observation, State

SLOW: Final = "slow"
PAUSES: Final = {SLOW: 0.2, "slower": 2.0}
"""Seconds that these words take."""
BROKEN: Final = "a text from inside, 7f3a"
"""What the environment's own exception says; no peer may ever read it."""


class Word(Action):
    """What to say."""

    message: str


class Heard(Observation):
    """What was said and how often something was."""

    echoed: str = ""
    count: int = 0


class Patient(Environment[Word, Heard, State]):
    """An echo that counts; the words in `PAUSES` take their time, `break` raises."""

    def __init__(self) -> None:
        self._episode_id: str | None = None
        self._count = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Heard:
        self._episode_id, self._count = episode_id, 0
        return Heard()

    def step(self, action: Word) -> Heard:
        if action.message in PAUSES:
            threading.Event().wait(PAUSES[action.message])
        if action.message == "break":
            raise RuntimeError(BROKEN)
        self._count += 1
        return Heard(echoed=action.message, count=self._count, reward=1.0)

    @property
    def state(self) -> State:
        return State(episode_id=self._episode_id, step_count=self._count)


class Quick(Patient):
    """The same on the server's event loop."""

    quick = True
