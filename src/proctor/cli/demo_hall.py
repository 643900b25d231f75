"""Where the demo is shown: rows come from the ledger, pictures go to the screen, and an operator sits beside it.

Rule 1: rows are shown in the order in which they were written, a few with every picture, and more where it has fallen behind.
Rule 2: the operator answers what waits, but not before whoever watches has seen it.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from proctor.cli.demo_show import Show
from proctor.client import OperatorClient
from proctor.errors import ComponentError
from proctor.ledger.reader import Ledger, Row
from proctor.models.operator import Waiting

PICTURES_PER_SECOND: Final = 15.0
ROWS_PER_PICTURE: Final = 2
BACKLOG: Final = 10
"""In so many pictures whatever waits is shown."""
READING_SECONDS: Final = 2.5
"""How long a question stands before it is answered: somebody wants to read it."""
ASKING_SECONDS: Final = 0.5
"""How often the operator looks whether something waits."""
PATIENCE_SECONDS: Final = 300.0
ANSWER: Final = "proctor demo's operator"


class Tape:
    """The rows of one chain as they are written."""

    def __init__(self, ledger: Ledger, chain: str) -> None:
        self._ledger = ledger
        self._chain = chain
        self._read = 0

    def more(self) -> list[Row]:
        """Return the rows that have come since the last call."""
        rows = list(islice(self._ledger.rows(self._chain), self._read, None))
        self._read += len(rows)
        return rows


@dataclass(slots=True)
class Desk:
    """The operator: takes the first option of every question, and approves every token."""

    client: OperatorClient
    reading_seconds: float = READING_SECONDS
    clock: Callable[[], float] = time.monotonic
    _looked: float = 0.0
    _since: dict[tuple[str, int, str], float] = field(default_factory=dict)

    def work(self) -> None:
        """Answer what has waited for long enough."""
        now = self.clock()
        if now < self._looked + min(ASKING_SECONDS, self.reading_seconds):
            return
        self._looked = now
        for waiting in self.client.pending():
            question = (waiting.session, waiting.epoch, waiting.id)
            if now >= self._since.setdefault(question, now) + self.reading_seconds:
                self._decide(waiting)

    def _decide(self, waiting: Waiting) -> None:
        if waiting.kind == "token":
            self.client.approve(waiting, text=ANSWER)
        else:
            choice = waiting.options[0]
            self.client.answer(waiting, choice.option_id, text=f"({choice.description})")


@dataclass(slots=True)
class Hall:
    """One show of one chain; with `fast` nobody watches."""

    show: Show
    tape: Tape
    desk: Desk
    fast: bool = False
    _waiting: deque[Row] = field(default_factory=deque)

    def watch(self, goes_on: Callable[[], bool]) -> None:
        """Show what comes, for as long as it goes on and until all is shown."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._shown(goes_on()):
            if time.monotonic() > deadline:
                raise ComponentError(f"the agent has not come to an end within {PATIENCE_SECONDS:g} seconds")
            time.sleep(0.01 if self.fast else 1.0 / PICTURES_PER_SECOND)

    def _shown(self, goes_on: bool) -> bool:
        """Show one picture, and return whether there is more to come. Whether it goes on is asked before the rows are."""
        self._waiting.extend(self.tape.more())
        portion = self._portion()
        for _ in range(portion):
            self.show.take(self._waiting.popleft())
        if portion:
            self.show.draw()
        if not self._waiting and goes_on:
            self.desk.work()
        return goes_on or bool(self._waiting)

    def _portion(self) -> int:
        count = len(self._waiting)
        return count if self.fast else min(count, max(ROWS_PER_PICTURE, count // BACKLOG))
