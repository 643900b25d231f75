"""How many connections a listener keeps, who makes way when there are too many, and what a refusal costs at most.

Rule 1: a connection is unauthenticated until a request on it has passed the gate, or its WebSocket handshake was accepted. A
    listener keeps a bounded number of these; the oldest is cut to make room for a new one.
Rule 2: all connections of a listener together leave file descriptors for the rest of the process. When they are used up, the
    oldest unauthenticated connection is cut, even if that is the new one; an authenticated one never is.
Rule 3: one agent keeps a bounded number of connections; its own oldest makes way for its newest.
Rule 4: refusals are logged at a bounded rate, however many there are; what is left out is counted.
Rule 5: whoever is refused all the time has to wait, so that it takes little of the event loop: an agent for its replies; those
    without a credential, all of a listener together, until they are read.
"""

import asyncio
import logging
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from proctor.door.limits import Pace

LOG: Final = logging.getLogger("proctor.server")
MOST_OPEN_FILES: Final = 65536
"""The soft limit is raised to this, or to the hard limit if that is lower."""
MOST_UNAUTHENTICATED: Final = 2048
"""Of one listener. As many clients may connect in the same instant, before their first request is read."""
MOST_OF_ONE_AGENT: Final = 256
FEWEST: Final = 16
MOST_LINES: Final = 50
"""Refusals that are logged one by one in `LOG_SECONDS`; the rest of them is one line."""
LOG_SECONDS: Final = 10.0
REFUSALS_AT_ONCE: Final = 50
REFUSALS_PER_SECOND: Final = 200.0
"""So many refusals nobody waits for. One takes a quarter of a millisecond, or half of one."""
MOST_UNREAD_BYTES: Final = 4 * 2**20
"""Of those who wait until they are read, all of a listener together; whoever comes with more is cut."""
MOST_WAIT_SECONDS: Final = 2.0
"""For one refusal, however many there were; it is also how long a stranger waits who comes while others attack."""


class Transport(Protocol):
    """What is asked of a connection: that it can be cut."""

    def abort(self) -> None:
        """Close the connection at once."""


class RefusalLog:
    """Logs refusals: the first `MOST_LINES` in `LOG_SECONDS`, then how many more there were.

    `call_later` is the running event loop's unless another one is given.
    """

    def __init__(
        self, logger: logging.Logger, call_later: Callable[[float, Callable[[], None]], object] | None = None
    ) -> None:
        self._logger = logger
        self._call_later = call_later
        self._count = 0

    def write(self, message: str, *values: object, extra: Mapping[str, object] | None = None) -> None:
        """Log a refusal, or count it."""
        self._count += 1
        if self._count == 1:
            call_later = self._call_later or asyncio.get_running_loop().call_later
            call_later(LOG_SECONDS, self._start_again)
        if self._count <= MOST_LINES:
            self._logger.info(message, *values, extra=extra)

    def _start_again(self) -> None:
        more, self._count = self._count - MOST_LINES, 0
        if more > 0:
            self._logger.info("... and %d more refusals in the last %d s", more, LOG_SECONDS)


def pace_of_refusals(clock: Callable[[], float] = time.monotonic) -> Pace:
    """Return what counts the refusals of one agent, or of all who have no credential."""
    return Pace(REFUSALS_PER_SECOND, REFUSALS_AT_ONCE, MOST_WAIT_SECONDS, clock)


class Connections:
    """The open connections of one listener, the unauthenticated ones in the order in which they came."""

    def __init__(self, most: int, most_unauthenticated: int, log: RefusalLog | None = None) -> None:
        self.log: Final = RefusalLog(LOG) if log is None else log
        self.refusals: Final = pace_of_refusals()
        """Of those without a credential."""
        self.unread_bytes = 0
        """What has come from those who wait because of refusals."""
        self._most = most
        self._most_unauthenticated = most_unauthenticated
        self._open: set[Transport] = set()
        self._unauthenticated: dict[Transport, None] = {}
        self._owners: dict[Transport, str] = {}
        self._owned: defaultdict[str, dict[Transport, None]] = defaultdict(dict)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._open)

    @property
    def unauthenticated(self) -> int:
        """How many of them have shown no credential."""
        return len(self._unauthenticated)

    def is_authenticated(self, transport: Transport) -> bool:
        """Return whether a request on this connection has passed the gate."""
        return transport not in self._unauthenticated

    def add(self, transport: Transport) -> None:
        """Note a new connection; if it is one too many, cut the oldest unauthenticated one."""
        self._open.add(transport)
        self._unauthenticated[transport] = None
        if len(self._unauthenticated) > self._most_unauthenticated or len(self._open) > self._most:
            oldest = next(iter(self._unauthenticated))
            self.remove(oldest)
            self.log.write("a connection without a credential was closed: there are too many")
            oldest.abort()

    def authenticate(self, transport: Transport, agent: str | None = None) -> None:
        """Note that a request on this connection has passed the gate; if its agent has too many, cut that agent's oldest."""
        self._unauthenticated.pop(transport, None)
        if agent is None or self._owners.get(transport) == agent or transport not in self._open:
            return
        self._disown(transport)
        self._owners[transport] = agent
        owned = self._owned[agent]
        owned[transport] = None
        if len(owned) > MOST_OF_ONE_AGENT:
            oldest = next(iter(owned))
            self.remove(oldest)
            self.log.write("a connection of an agent was closed: it has too many", extra={"grant": agent})
            oldest.abort()

    def remove(self, transport: Transport) -> None:
        """Forget a connection that is closed."""
        self._unauthenticated.pop(transport, None)
        self._open.discard(transport)
        self._disown(transport)

    def _disown(self, transport: Transport) -> None:
        agent = self._owners.pop(transport, None)
        if agent is not None:
            owned = self._owned[agent]
            del owned[transport]
            if not owned:
                del self._owned[agent]


def open_files() -> int:
    """Return how many files this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_OPEN_FILES if soft == resource.RLIM_INFINITY else soft


def raise_open_files() -> None:
    """Raise the soft limit on open files to the hard one, or to `MOST_OPEN_FILES`; it is never lowered."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def most_connections(share: int, most: int | None = None) -> int:
    """Return how many connections a listener may have: one `share`-th of the file descriptors, and `most` at most."""
    found = max(FEWEST, open_files() // share)
    return found if most is None else min(most, found)


def authenticate(scope: Mapping[str, Any], agent: str | None = None) -> None:
    """Tell the connection that a request has passed the gate with a credential, and which agent's, if it wants to know."""
    tell = scope.get("extensions", {}).get(AUTHENTICATED)
    if tell is not None:
        tell(agent)


def note_refusal(scope: Mapping[str, Any]) -> None:
    """Tell the connection that a request without a credential was refused, if it wants to know."""
    tell = scope.get("extensions", {}).get(REFUSED)
    if tell is not None:
        tell()


AUTHENTICATED, REFUSED = "proctor.authenticated", "proctor.refused"
"""Where a scope has the functions that are called when a request has shown a credential, and when it was refused."""
