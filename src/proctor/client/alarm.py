"""One timer for all that waits: a timer for each request would be set and cancelled with every step.

Rule 1: the timer is set anew only when it rings, or when something is due earlier; so most requests never touch it.
Rule 2: nothing is woken early, and all that is due is woken when the timer rings.
"""

import asyncio
from math import inf
from typing import Protocol


class Sleeper(Protocol):
    """What can be woken."""

    def wake(self) -> None:
        """Learn that the time is over."""


class Alarm:
    """Wakes whoever has waited for too long."""

    def __init__(self) -> None:
        self._due: dict[Sleeper, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = inf

    def watch(self, sleeper: Sleeper, seconds: float) -> None:
        """Wake `sleeper` in so many seconds, unless it is let alone before."""
        due = self._due[sleeper] = asyncio.get_running_loop().time() + seconds
        if due < self._rings_at:
            self._set(due)

    def let_alone(self, sleeper: Sleeper) -> None:
        """Do not wake `sleeper` any more."""
        self._due.pop(sleeper, None)

    def stop(self) -> None:
        """Wake nobody any more, until somebody is to be watched."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._rings_at = None, inf

    def _set(self, due: float) -> None:
        self.stop()
        self._timer, self._rings_at = asyncio.get_running_loop().call_at(due, self._ring), due

    def _ring(self) -> None:
        now = self._rings_at
        self._timer, self._rings_at = None, inf
        for sleeper in [each for each, due in self._due.items() if due <= now]:
            del self._due[sleeper]
            sleeper.wake()
        if self._due:
            self._set(min(self._due.values()))
