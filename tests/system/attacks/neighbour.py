"""The session next door: it steps before, during and after an attack, and knows exactly what it must hear."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Final, TypeVar

from tests.server.live_server import Session
from tests.system.attacks.hostile import START, longer

Result = TypeVar("Result")
PACE: Final = 0.005
LONGEST_STEP: Final = 5.0
"""Seconds that a step of a neighbour may take, whatever happens next door."""
SEED: Final = 1_777_777_777


class Touched(AssertionError):
    """The neighbour heard something else than it had to."""


class Neighbour:
    """One session; the chain that it must hear is worked out here, as in a run that nobody disturbs."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._numbers = count(1)
        self._chain = longer(START, str(SEED))
        self._check(session.ask("reset", {"seed": SEED}), 0)
        self.steps = 0
        self.longest = 0.0

    def step(self) -> None:
        """Say one more word, or raise Touched."""
        number = next(self._numbers)
        word = f"neighbour-{number}-{number * 7919:012x}"
        self._chain = longer(self._chain, word)
        began = time.monotonic()
        reply = self._session.ask("step", {"word": word})
        self.longest = max(self.longest, time.monotonic() - began)
        self._check(reply, number)
        self.steps = number

    def during(self, work: Callable[[], Result]) -> Result:
        """Return what `work` returns; the neighbour steps meanwhile, at least once before, during and after."""
        self.step()
        over, problems = threading.Event(), list[BaseException]()
        first = self.steps
        thread = threading.Thread(target=self._go_on, args=(over, problems), daemon=True)
        thread.start()
        try:
            return work()
        finally:
            over.set()
            thread.join(300)
            self._judge(problems, first)

    def _go_on(self, over: threading.Event, problems: list[BaseException]) -> None:
        with suppress(StopIteration):
            try:
                self.step()
                while not over.wait(PACE):
                    self.step()
            except BaseException as problem:  # noqa: BLE001  # raised by whoever started the thread
                problems.append(problem)

    def _judge(self, problems: list[BaseException], first: int) -> None:
        if problems:
            raise Touched(f"the neighbour was disturbed: {problems[0]!r}") from problems[0]
        if self.steps <= first:
            raise Touched("the neighbour stood still")
        self.step()
        longest, self.longest = self.longest, 0.0
        if longest > LONGEST_STEP:
            raise Touched(f"a step of the neighbour took {longest:.1f} seconds")

    def _check(self, reply: dict[str, object], number: int) -> None:
        seen = reply.get("data", {})
        found = seen.get("observation") if isinstance(seen, dict) else None
        if found != {"count": number, "chain": self._chain, "reached": [], "denied": []}:
            raise Touched(f"the neighbour heard {str(reply)[:500]}")
