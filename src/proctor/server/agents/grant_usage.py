"""What each grant has open: its MCP sessions, its requests and their bodies, and how much it may send.

Rule 1: an MCP session belongs to the grant that opened it; to everybody else it does not exist.
Rule 2: a grant's sessions are few. Who opens one too many loses the one that was used least lately: a client that comes
    back again and again without goodbye finds room, and takes it from nobody but itself.
Rule 3: this file counts and never waits, closes or sends.
Rule 4: the bodies of all grants together are bounded. Where there is no more room, a grant that holds no body may still bring
    one, to its end: whoever holds much is refused before whoever holds nothing.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from proctor.access.limits import KIB, MIB, LogBudget, RequestLimits, TokenBucket
from proctor.server.agents.jsonrpc import ENVELOPE_BYTES
from proctor.server.agents.mcp_content import ToolCatalogue
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

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class GrantUsage:
    """One grant; `sessions` holds how many messages each one answers just now, the least lately used first.

    `quiet` is set while none of them has anything to answer; `gone` says that the grant has died. `largest` is how large a body
    may be, whichever tool it calls.
    """

    __slots__ = (
        "_all_held",
        "_bytes",
        "_held",
        "bucket",
        "catalogue",
        "gone",
        "grant",
        "largest",
        "log",
        "quiet",
        "refusals",
        "requests",
        "sessions",
    )

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
        surplus = self._find_least_active() if len(self.sessions) >= MOST_SESSIONS else None
        self.sessions[session] = 0
        if surplus is not None:
            self.close_session(surplus)
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

    def _find_least_active(self) -> str:
        idle = (each for each, answering in self.sessions.items() if not answering)
        return next(idle, next(iter(self.sessions)))
