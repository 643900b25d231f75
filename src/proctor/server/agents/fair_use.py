"""How the agent plane is shared: what each grant has open and may send, and whose request is served next.

The agent plane shares an event loop with those who drive the environments. Whatever runs there holds up everybody, so what
many requests of agents need together is spread: one of them begins, then the loop looks at its sockets, then the next begins.

Rule 1: an MCP session belongs to the grant that opened it; to everybody else it does not exist.
Rule 2: a grant's sessions are few. Who opens one too many loses the one that was used least lately: a client that comes
    back again and again without goodbye finds room, and takes it from nobody but itself.
Rule 3: the bodies of all grants together are bounded. Where there is no more room, a grant that holds no body may still bring
    one, to its end: whoever holds much is refused before whoever holds nothing.
Rule 4: a party that asks for much waits for itself. Every party that waits gets a turn before another gets its second.
Rule 5: a party that asks for the next turn while nobody else does lets the loop rest first, `REST` times as long as its turn took. So one
    agent with many requests at once leaves the loop to the others most of the time; one that waits for its replies never rests.
Rule 6: a turn is for work, not for waiting: it ends when a call is handed over to its environment, or when a reply is sent. One
    that lasts longer than `HOLD_SECONDS` is over for the others.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from proctor.access.limits import KIB, MIB, LogBudget, RequestLimits, TokenBucket
from proctor.server.agents.mcp_messages import ENVELOPE_BYTES, ToolCatalogue
from proctor.server.net.connections import make_refusal_pace

MOST_SESSIONS: Final = 16
MOST_REQUESTS: Final = 64
"""Of one grant at once, the streams that a client listens on included."""
OTHERS_PER_SECOND, OTHERS_AT_ONCE = 100.0, 500
"""Requests that are no calls: handshakes, lists, pings. Calls have the rate that the grant was given."""
REQUEST_BYTES: Final = KIB
"""What a request costs of the bytes that its grant may send, besides its body."""
HELD_BYTES: Final = MIB
"""Bodies of one grant at once, unless it is a single one."""
ALL_HELD_BYTES: Final = 64 * MIB
"""Bodies of all grants at once."""


class HeldBodies:
    """The bytes of bodies that are held, of all grants together."""

    count = 0


class GrantUsage:
    """One grant; `sessions` holds how many messages each one answers just now, the least lately used first.

    `quiet` is set while none of them has anything to answer; `gone` says that the grant has died. `largest` is how large a body
    may be, whichever tool it calls.
    """

    def __init__(
        self,
        grant: str,
        catalogue: ToolCatalogue,
        clock: Callable[[], float],
        limits: RequestLimits,
        all_held: HeldBodies,
    ) -> None:
        self.grant: Final = grant
        self.catalogue: Final = catalogue
        self.bucket: Final = TokenBucket(OTHERS_PER_SECOND, OTHERS_AT_ONCE, clock)
        self.sessions: Final[dict[str, int]] = {}
        self.quiet: Final = asyncio.Event()
        self.quiet.set()
        self.refusals: Final = make_refusal_pace(clock)
        self.requests = 0
        self.gone = False
        self.log: Final = LogBudget(clock=clock)
        most = max((limits.max_arguments_bytes, *catalogue.argument_limits.values()))
        self.largest: Final = min(most + ENVELOPE_BYTES, limits.max_body_bytes)
        rate = limits.agent_bytes_per_second
        self._bytes = TokenBucket(rate, max(rate, self.largest) + REQUEST_BYTES, clock)
        self._held: dict[object, int] = {}
        """Bytes by the body that they belong to, the oldest first."""
        self._all_held = all_held

    def take_request(self, length: int) -> float:
        """Take a request with a body of this length from what the grant may send and return 0.0, or return the seconds to wait."""
        return self._bytes.take(REQUEST_BYTES + length)

    def take_bytes(self, count: int) -> float:
        """The same for a part of a body whose length was not told."""
        return self._bytes.take(count)

    def hold(self, body: object, count: int) -> bool:
        """Note that so many bytes more of a body are held; False if there is no room. For the oldest body there always is."""
        if not count:
            return True  # a stream that a client listens on is no body
        is_oldest = next(iter(self._held), body) is body
        mine, everybodys = sum(self._held.values()) + count, self._all_held.count + count
        if not is_oldest and (mine > HELD_BYTES or everybodys > ALL_HELD_BYTES):
            return False
        self._held[body] = self._held.get(body, 0) + count
        self._all_held.count += count
        return True

    def release(self, body: object) -> None:
        """Note that a body is held no more."""
        self._all_held.count -= self._held.pop(body, 0)

    def open_session(self, session: str) -> str | None:
        """Note a new session; return the one that has to go for it, if any: itself, if it comes too late."""
        if self.gone:
            return session
        surplus = None
        if len(self.sessions) >= MOST_SESSIONS:
            idle = (each for each, answering in self.sessions.items() if not answering)
            surplus = next(idle, next(iter(self.sessions)))
            self.close_session(surplus)
        self.sessions[session] = 0
        return surplus

    def start_message(self, session: str) -> None:
        """Note a message to a session."""
        self.sessions[session] = self.sessions.pop(session) + 1
        self.quiet.clear()

    def finish_message(self, session: str) -> None:
        """Note the end of a message; a session that has gone meanwhile stays gone."""
        if session in self.sessions:
            self.sessions[session] -= 1
        self._update_quiet()

    def close_session(self, session: str) -> None:
        """Note that a session is over."""
        self.sessions.pop(session, None)
        self._update_quiet()

    def _update_quiet(self) -> None:
        if not any(self.sessions.values()):
            self.quiet.set()


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
