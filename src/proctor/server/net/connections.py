"""How many connections a listener keeps, who makes way when there are too many, and what a refusal costs at most.

Rule 1: a connection is unauthenticated until a request on it has passed the gate, or its WebSocket handshake was accepted, and
    again when the grant of its agent has died. A listener keeps a bounded number of these. To make room for a new one, the oldest of
    those that were judged already is cut; where all are unread, the oldest.
Rule 2: all connections of a listener together leave file descriptors for the rest of the process. When they are used up, an
    unauthenticated connection is cut in the same order, even if that is the new one; an authenticated one never is.
Rule 3: one agent keeps a bounded number of connections, a small part of the listener's; its own oldest makes way for its newest.
Rule 4: refusals are logged at a bounded rate, however many there are; what is left out is counted.
Rule 5: replies to those without a credential leave at a bounded rate, all of a listener together, one behind the other: refusals
    slowly, pages that anybody may read faster. Who shows a credential waits for nobody. An agent that is refused all the time
    waits for its replies, too.
Rule 6: what came from those without a credential and is not parsed yet is bounded, all of a listener together.
Rule 7: frames and chunks that bring nothing, or nearly nothing, are read slowly if there are many, so that a peer who floods its own
    connection takes no time from the others.
"""

import asyncio
import logging
import resource
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from uvicorn.server import ServerState

from proctor.access.limits import Throttle, TokenBucket

LOG: Final = logging.getLogger("proctor.server")
MOST_OPEN_FILES: Final = 65536
"""The soft limit is raised to this, or to the hard limit if that is lower."""
MOST_UNAUTHENTICATED: Final = 2048
"""Of one listener. As many clients may connect in the same instant, before their first request is read."""
MOST_OF_ONE_AGENT: Final = 256
SHARE_OF_ONE_AGENT: Final = 8
FEWEST_OF_ONE_AGENT: Final = 4
"""One agent has an eighth of a listener's connections at most, but four are always its own: a client holds a stream besides its calls."""
FEWEST: Final = 16
MOST_LINES: Final = 50
"""Refusals that are logged one by one in `LOG_SECONDS`; the rest of them is one line."""
LOG_SECONDS: Final = 10.0
REFUSALS_AT_ONCE: Final = 50
REFUSALS_PER_SECOND: Final = 200.0
"""So many refusals nobody waits for. One takes a quarter of a millisecond, or half of one."""
PAGES_AT_ONCE: Final = 200
PAGES_PER_SECOND: Final = 1000.0
"""The same for pages that anybody may read, such as `/health`."""
MOST_WAIT_SECONDS: Final = 2.0
"""For one refusal of an agent, however many there were."""
UNREAD_BYTES: Final = 8 * 1024
"""Of each connection without a credential may wait to be parsed, whatever the others do."""
MOST_UNREAD_BYTES: Final = 4 * 2**20
"""What may wait of those that have more, all of a listener together."""
SMALL_PIECE_BYTES: Final = 1024
"""What is parsed at once of a peer that has sent small frames or chunks; as frames of 6 bytes this takes about a millisecond."""
SMALL_BYTES: Final = 1024
SMALL_PER_SECOND: Final = 2000.0
MOST_SMALL: Final = 32
"""Fragments and chunks smaller than `SMALL_BYTES`, pings and pongs of one connection: so many may come at once, and so many in a second."""
LINGER_SECONDS: Final = 10.0
MOST_DISCARDED: Final = 256 * 1024
"""What is read and dropped of a peer whose connection ends, so that it reads the reply before it learns that nobody listens."""
UNREADABLE: Final = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
AUTHENTICATED, REFUSED = "proctor.authenticated", "proctor.refused"
"""Where a scope has the functions that are called when a request has shown a credential, and when it was refused."""


class Transport(Protocol):
    """What is asked of a connection: that it can be cut."""

    def abort(self) -> None:
        """Close the connection at once."""


class SmallPieceCounter:
    """Counts the small pieces of one connection; as time passes they are forgotten."""

    __slots__ = ("_counted_at", "count")

    def __init__(self) -> None:
        self.count = 0.0
        """As of the last piece; 0 where there was none."""
        self._counted_at = 0.0

    def add(self, now: float) -> None:
        """Count one."""
        self.count, self._counted_at = self._remaining(now) + 1.0, now

    def piece_bytes(self, ordinary: int) -> int:
        """Return how much to parse at once; one ping now and then is no flood, nor are both ends of a body."""
        return ordinary if self.count <= 2.0 else SMALL_PIECE_BYTES

    def pause_seconds(self, now: float) -> float:
        """Return how long to parse nothing: not at all, if there were few."""
        if self.count <= MOST_SMALL:
            return 0.0
        left = self._remaining(now)
        return left / SMALL_PER_SECOND if left > MOST_SMALL else 0.0

    def _remaining(self, now: float) -> float:
        return max(0.0, self.count - (now - self._counted_at) * SMALL_PER_SECOND)


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


def make_refusal_pace(clock: Callable[[], float] = time.monotonic) -> Throttle:
    """Return what counts the refusals of one agent."""
    return Throttle(REFUSALS_PER_SECOND, REFUSALS_AT_ONCE, MOST_WAIT_SECONDS, clock)


class RateLimitedQueue:
    """Gives turns at a bounded rate, in the order in which they were asked for; the first `at_once` are given at once.

    Whoever does not need its turn any more resolves it: it delays nobody. `call_later` is the running event loop's unless
    another one is given.
    """

    def __init__(
        self,
        per_second: float,
        at_once: int,
        call_later: Callable[[float, Callable[[], None]], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bucket = TokenBucket(per_second, at_once, clock)
        self._call_later = call_later
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take(self) -> asyncio.Future[None]:
        """Return a future that is done when it is this one's turn."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            self._give()
        return turn

    def _give(self) -> None:
        while self._waiting:
            if not self._waiting[0].done():
                seconds = self._bucket.take()
                if seconds:
                    call_later = self._call_later or asyncio.get_running_loop().call_later
                    call_later(seconds, self._give)
                    return
                self._waiting[0].set_result(None)
            self._waiting.popleft()


class Connections:
    """The open connections of one listener, the unauthenticated ones in the order in which they came."""

    def __init__(self, most: int, most_unauthenticated: int, log: RefusalLog | None = None) -> None:
        self.log: Final = RefusalLog(LOG) if log is None else log
        self.refusals: Final = RateLimitedQueue(REFUSALS_PER_SECOND, REFUSALS_AT_ONCE)
        self.pages: Final = RateLimitedQueue(PAGES_PER_SECOND, PAGES_AT_ONCE)
        """Who is refused next, and who reads a page without a credential."""
        self._most = most
        self._most_unauthenticated = most_unauthenticated
        self._most_of_one_agent = min(MOST_OF_ONE_AGENT, max(FEWEST_OF_ONE_AGENT, most // SHARE_OF_ONE_AGENT))
        self._open: set[Transport] = set()
        self._new: dict[Transport, None] = {}
        self._judged: dict[Transport, None] = {}
        """The unauthenticated ones: those on which nothing was judged yet, and those who make way before them."""
        self._unread: dict[Transport, int] = {}
        self._unread_bytes = 0
        self._owners: dict[Transport, str] = {}
        self._owned: defaultdict[str, dict[Transport, None]] = defaultdict(dict)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._open)

    @property
    def unauthenticated(self) -> int:
        """How many of them have shown no credential."""
        return len(self._new) + len(self._judged)

    def is_authenticated(self, transport: Transport) -> bool:
        """Return whether a request on this connection has passed the gate."""
        return transport not in self._new and transport not in self._judged

    def add(self, transport: Transport) -> None:
        """Note a new connection; if it is one too many, cut an unauthenticated one."""
        self._open.add(transport)
        self._new[transport] = None
        self._make_room()

    def judge(self, transport: Transport) -> None:
        """Note that a connection has no credential, or has one no more: it makes way before those that wait to be read."""
        if transport in self._open:
            self._new.pop(transport, None)
            self._disown(transport)
            self._judged[transport] = None
            self._make_room()

    def authenticate(self, transport: Transport, agent: str | None = None) -> None:
        """Note that a request on this connection has passed the gate; if its agent has too many, cut that agent's oldest."""
        self._new.pop(transport, None)
        self._judged.pop(transport, None)
        if agent is None or self._owners.get(transport) == agent or transport not in self._open:
            return
        self._disown(transport)
        self._owners[transport] = agent
        owned = self._owned[agent]
        owned[transport] = None
        if len(owned) > self._most_of_one_agent:
            self._cut(next(iter(owned)), "a connection of an agent was closed: it has too many", grant=agent)

    def forget(self, agent: str) -> None:
        """Take what an agent's connections have shown from them, because its grant has died."""
        for transport in list(self._owned.get(agent, ())):
            self.judge(transport)

    def keep(self, transport: Transport, count: int) -> None:
        """Note how many bytes of a connection wait to be parsed; if there are too many of all together, cut whoever waits longest."""
        self._unread_bytes -= self._unread.pop(transport, 0)
        if count <= UNREAD_BYTES or self.is_authenticated(transport):
            return
        self._unread[transport] = count
        self._unread_bytes += count
        while self._unread_bytes > MOST_UNREAD_BYTES:
            self._cut(next(iter(self._unread)), "a connection without a credential was closed: it sent too much")

    def remove(self, transport: Transport) -> None:
        """Forget a connection that is closed."""
        self._new.pop(transport, None)
        self._judged.pop(transport, None)
        self._open.discard(transport)
        self._unread_bytes -= self._unread.pop(transport, 0)
        self._disown(transport)

    def _make_room(self) -> None:
        if self.unauthenticated > self._most_unauthenticated or len(self._open) > self._most:
            oldest = next(iter(self._judged or self._new))
            self._cut(oldest, "a connection without a credential was closed: there are too many")

    def _cut(self, transport: Transport, reason: str, **fields: str) -> None:
        self.remove(transport)
        self.log.write(reason, extra=fields)
        transport.abort()

    def _disown(self, transport: Transport) -> None:
        agent = self._owners.pop(transport, None)
        if agent is not None:
            owned = self._owned[agent]
            del owned[transport]
            if not owned:
                del self._owned[agent]


def read_open_files_limit() -> int:
    """Return how many files this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_OPEN_FILES if soft == resource.RLIM_INFINITY else soft


def raise_open_files_limit() -> None:
    """Raise the soft limit on open files to the hard one, or to `MOST_OPEN_FILES`; it is never lowered."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def most_connections(share: int, most: int | None = None) -> int:
    """Return how many connections a listener may have: one `share`-th of the file descriptors, and `most` at most."""
    found = max(FEWEST, read_open_files_limit() // share)
    return found if most is None else min(most, found)


def authenticate(scope: Mapping[str, Any], agent: str | None = None) -> None:
    """Tell the connection that a request has passed the gate with a credential, and which agent's, if it wants to know."""
    tell = scope.get("extensions", {}).get(AUTHENTICATED)
    if tell is not None:
        tell(agent)


def note_refusal(scope: Mapping[str, Any]) -> None:
    """Tell the connection that the credential of a request, or its lack, was refused, if it wants to know: its reply has to wait."""
    tell = scope.get("extensions", {}).get(REFUSED)
    if tell is not None:
        tell()


def forget_agent(state: ServerState, grant: str) -> None:
    """Let the connections of an agent whose grant has died make way, as if it had shown none."""
    found: Connections | None = getattr(state, "proctor_connections", None)
    if found is not None:
        found.forget(grant)


def find_connections(state: ServerState, share: int, most: int | None = None) -> Connections:
    """Return the connections of a server, all of whose protocols share one state; see `most_connections`."""
    found: Connections | None = getattr(state, "proctor_connections", None)
    if found is None:
        unauthenticated = most_connections(share=8, most=MOST_UNAUTHENTICATED)
        found = vars(state)["proctor_connections"] = Connections(most_connections(share, most), unauthenticated)
    return found


class RefusablePeer:
    """What HTTP and WebSockets do alike: a peer's refusal waits for its turn, and what it sends meanwhile is dropped."""

    client: tuple[str, int] | None
    transport: Any
    _connections: Connections
    _unparsed = b""
    """What came and is not parsed yet: one read, or two."""
    _pause: asyncio.TimerHandle | None = None
    """Runs while nothing is parsed, because there were too many small pieces."""
    _turn: asyncio.Future[None] | None = None
    """What a reply waits for."""
    _is_noted = False
    """Whether the application refused the credential of the request that it serves, or its lack."""
    _discarded: int | None = None
    """Of a connection that ends with the next reply, or has ended with the last one: what came since and was dropped."""

    def _note_refusal(self) -> None:
        self._is_noted = True

    def _log_refusal(self, reason: str) -> None:
        peer = "unknown" if self.client is None else self.client[0]
        self._connections.log.write("a request was refused: %s", reason, extra={"peer": peer})

    def _end_wait(self) -> None:
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

    def _cut(self) -> None:
        if self.transport is not None:
            self.transport.abort()
