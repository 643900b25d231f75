"""What each grant has open: its MCP sessions, its requests, and how often it may ask for anything but a call.

Rule 1: an MCP session belongs to the grant that opened it; to everybody else it does not exist.
Rule 2: a grant's sessions are few. Who opens one too many loses the one that was used least lately: a client that comes
    back again and again without goodbye finds room, and takes it from nobody but itself.
Rule 3: this file counts and never waits, closes or sends.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from proctor.door.limits import Bucket
from proctor.server.agents.content import Catalogue

MOST_SESSIONS: Final = 16
MOST_REQUESTS: Final = 64
"""Of one grant at once, the streams that a client listens on included."""
OTHERS_PER_SECOND, OTHERS_AT_ONCE = 100.0, 500
"""Requests that are no calls: handshakes, lists, pings. Calls have the rate that the grant was given."""


class Guest:
    """One grant; `sessions` holds how many messages each one answers just now, the least lately used first.

    `quiet` is set while none of them has anything to answer; `gone` says that the grant has died.
    """

    __slots__ = ("bucket", "catalogue", "gone", "grant", "quiet", "requests", "sessions")

    def __init__(self, grant: str, catalogue: Catalogue, clock: Callable[[], float]) -> None:
        self.grant: Final = grant
        self.catalogue: Final = catalogue
        self.bucket: Final = Bucket(OTHERS_PER_SECOND, OTHERS_AT_ONCE, clock)
        self.sessions: Final[dict[str, int]] = {}
        self.quiet: Final = asyncio.Event()
        self.quiet.set()
        self.requests = 0
        self.gone = False

    def opened(self, session: str) -> str | None:
        """Note a new session; return the one that has to go for it, if any: itself, if it comes too late."""
        if self.gone:
            return session
        surplus = self._least_used() if len(self.sessions) >= MOST_SESSIONS else None
        self.sessions[session] = 0
        if surplus is not None:
            self.closed(surplus)
        return surplus

    def began(self, session: str) -> None:
        """Note a message to a session."""
        self.sessions[session] = self.sessions.pop(session) + 1
        self.quiet.clear()

    def answered(self, session: str) -> None:
        """Note the end of a message; a session that has gone meanwhile stays gone."""
        if session in self.sessions:
            self.sessions[session] -= 1
        self._listen()

    def closed(self, session: str) -> None:
        """Note that a session is over."""
        self.sessions.pop(session, None)
        self._listen()

    def _listen(self) -> None:
        if not any(self.sessions.values()):
            self.quiet.set()

    def _least_used(self) -> str:
        idle = (each for each, answering in self.sessions.items() if not answering)
        return next(idle, next(iter(self.sessions)))
