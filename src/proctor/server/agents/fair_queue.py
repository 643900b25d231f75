"""Who of the agents is served next: one request at a time, and the grants in turn.

The agent plane shares an event loop with those who drive the environments. Whatever runs there holds up everybody, so what
many requests of agents need together is spread: one of them begins, then the loop looks at its sockets, then the next begins.

Rule 1: a party that asks for much waits for itself. Every party that waits gets a turn before another gets its second.
Rule 2: a party that asks for the next turn while nobody else does lets the loop rest first, `REST` times as long as its turn took. So one
    agent with many requests at once leaves the loop to the others most of the time; one that waits for its replies never rests.
Rule 3: a turn is for work, not for waiting: it ends when a call is handed over to its environment, or when a reply is sent. One
    that lasts longer than `HOLD_SECONDS` is over for the others.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

HOLD_SECONDS: Final = 0.02
REST: Final = 4.0


class QueueTurn:
    """One request's place in the queue; to begin or to end it again does nothing."""

    __slots__ = ("_queue", "_state", "begins", "party")

    def __init__(self, queue: "FairQueue") -> None:
        self.begins: asyncio.Future[None] | None = None
        self.party = ""
        self._queue = queue
        self._state = "new"

    async def begin(self, party: str) -> None:
        """Wait until it is this request's turn."""
        if self._state == "new":
            self._state = "begun"
            self.party = party
            await self._queue.wait_for(self)

    def end(self) -> None:
        """Let the next one begin."""
        self._state = "ended"
        self._queue.finish(self)


class FairQueue:
    """The requests that wait, by party; the party whose turn is next comes first."""

    def __init__(
        self, hold_seconds: float = HOLD_SECONDS, rest: float = REST, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._hold_seconds = hold_seconds
        self._rest = rest
        # The event loop's own time has whole milliseconds, and most turns are shorter.
        self._clock = clock
        self._waiting: dict[str, deque[QueueTurn]] = {}
        self._current: QueueTurn | None = None
        self._timer: asyncio.TimerHandle | None = None
        """Ends the turn that runs, or the rest after it."""
        self._is_busy = False
        self._begun = 0.0
        self._last_party = ""
        self._rest_until = 0.0

    def turn(self) -> QueueTurn:
        """Return a turn that has not begun."""
        return QueueTurn(self)

    async def wait_for(self, turn: QueueTurn) -> None:
        """Return when the turn is the one that runs."""
        if not self._is_busy:
            self._start(turn)
            return
        turn.begins = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(turn.party, deque()).append(turn)
        if self._current is None and turn.party != self._last_party:
            asyncio.get_running_loop().call_soon(self._start_next)  # the rest is for the other party
        await turn.begins

    def finish(self, turn: QueueTurn) -> None:
        """End a turn if it is the one that runs; the next begins when the loop has looked at its sockets."""
        if turn is not self._current:
            return
        self._current = None
        self._stop_timer()
        self._last_party = turn.party
        now = self._clock()
        self._rest_until = now + self._rest * min(now - self._begun, self._hold_seconds)
        asyncio.get_running_loop().call_soon(self._start_next)

    def _start(self, turn: QueueTurn) -> None:
        self._stop_timer()
        self._is_busy = True
        self._current = turn
        self._begun = self._clock()
        self._timer = asyncio.get_running_loop().call_later(self._hold_seconds, self.finish, turn)

    def _start_next(self) -> None:
        while self._current is None and self._waiting:
            party = next((each for each in self._waiting if each != self._last_party), self._last_party)
            rest = self._rest_until - self._clock()
            if party == self._last_party and rest > 0:
                self._stop_timer()
                self._timer = asyncio.get_running_loop().call_later(rest, self._start_next)
                return
            turns = self._waiting.pop(party)
            turn = turns.popleft()
            if turns:
                self._waiting[party] = turns  # behind the others
            if turn.begins is not None and not turn.begins.done():  # else whoever waited was cancelled
                self._start(turn)
                turn.begins.set_result(None)
        self._is_busy = self._current is not None

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
