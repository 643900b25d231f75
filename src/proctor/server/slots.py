"""How many sessions there may be, and a queue for those who come when all are taken.

Rule 1: a free slot goes to the one who has waited longest.
Rule 2: the queue has a limit, and waiting has one; beyond them CAPACITY_REACHED says how full it is.
"""

import asyncio
from collections import deque

from proctor.models.control import Code, Problem
from proctor.server.answers import Refused, refused


class Slots:
    """`most` sessions at once; `most_waiting` may wait `wait_seconds` for one to end."""

    def __init__(self, most: int, most_waiting: int, wait_seconds: float) -> None:
        self.most = most
        self.taken = 0
        self._most_waiting = most_waiting
        self._wait_seconds = wait_seconds
        self._closed: Problem | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """How many wait for a slot."""
        return len(self._waiting)

    async def take(self) -> None:
        """Take a slot, now or when it is our turn, or raise a refusal."""
        if self._closed is not None:
            raise Refused(self._closed)
        if self.taken < self.most and not self._waiting:
            self.taken += 1
            return
        if len(self._waiting) >= self._most_waiting or self._wait_seconds <= 0:
            raise self._full()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        got = False
        try:
            async with asyncio.timeout(self._wait_seconds):
                await turn
            got = True
        except TimeoutError:
            raise self._full() from None
        finally:
            if not got:
                self._leave(turn)

    def close(self, problem: Problem) -> None:
        """Give out no more slots; whoever asks or waits is refused with `problem`."""
        self._closed = problem
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(Refused(problem))

    def give_back(self) -> None:
        """Give a slot back; whoever waits longest has it now."""
        self.taken -= 1
        while self._waiting and self.taken < self.most:
            turn = self._waiting.popleft()
            if not turn.done():
                self.taken += 1
                turn.set_result(None)

    def _leave(self, turn: "asyncio.Future[None]") -> None:
        if turn in self._waiting:
            self._waiting.remove(turn)
        elif turn.done() and not turn.cancelled() and turn.exception() is None:
            # It was our turn in the very moment in which we gave up.
            self.give_back()

    def _full(self) -> Refused:
        return refused(
            Code.CAPACITY_REACHED,
            "all sessions are taken",
            active_sessions=self.taken,
            max_sessions=self.most,
            retry_after_seconds=max(1.0, self._wait_seconds),
        )
