"""Who of the agents is served next: one request at a time, and the grants in turn.

The agent plane shares an event loop with those who drive the environments. Whatever runs there holds up everybody, so what
many requests of agents need together is spread: one of them begins, then the loop looks at its sockets, then the next begins.

Rule 1: a party that asks for much waits for itself. Every party that waits gets a turn before another gets its second.
Rule 2: a turn is for work, not for waiting: it ends when a call is handed over to its environment, or when a reply is sent. One
    that lasts longer than `HOLD_SECONDS` is over for the others.
"""

import asyncio
from collections import deque
from typing import Final

HOLD_SECONDS: Final = 0.02


class Turn:
    """One request's place in the queue; to begin or to end it again does nothing."""

    __slots__ = ("_queue", "_state", "begins")

    def __init__(self, queue: "FairQueue") -> None:
        self.begins: asyncio.Future[None] | None = None
        self._queue = queue
        self._state = "new"

    async def begin(self, party: str) -> None:
        """Wait until it is this request's turn."""
        if self._state == "new":
            self._state = "begun"
            await self._queue.wait_for(self, party)

    def end(self) -> None:
        """Let the next one begin."""
        self._state = "ended"
        self._queue.finish(self)


class FairQueue:
    """The requests that wait, by party; the party whose turn is next comes first."""

    def __init__(self, hold_seconds: float = HOLD_SECONDS) -> None:
        self._hold_seconds = hold_seconds
        self._waiting: dict[str, deque[Turn]] = {}
        self._current: Turn | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_busy = False

    def turn(self) -> Turn:
        """Return a turn that has not begun."""
        return Turn(self)

    async def wait_for(self, turn: Turn, party: str) -> None:
        """Return when the turn is the one that runs."""
        if not self._is_busy:
            self._start(turn)
            return
        turn.begins = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(party, deque()).append(turn)
        await turn.begins

    def finish(self, turn: Turn) -> None:
        """End a turn if it is the one that runs; the next begins when the loop has looked at its sockets."""
        if turn is not self._current:
            return
        self._current = None
        if self._timer is not None:
            self._timer.cancel()
        asyncio.get_running_loop().call_soon(self._start_next)

    def _start(self, turn: Turn) -> None:
        self._is_busy = True
        self._current = turn
        self._timer = asyncio.get_running_loop().call_later(self._hold_seconds, self.finish, turn)

    def _start_next(self) -> None:
        while self._waiting:
            party = next(iter(self._waiting))
            turns = self._waiting.pop(party)
            turn = turns.popleft()
            if turns:
                self._waiting[party] = turns  # behind the others
            if turn.begins is not None and not turn.begins.done():  # else whoever waited was cancelled
                self._start(turn)
                turn.begins.set_result(None)
                return
        self._is_busy = False
