"""News for those who look: which episodes have changed, and what waits for an operator, as server-sent events.

Rule 1: however many listen, the ledger is looked at once for all of them, on a thread, and only while somebody listens.
Rule 2: nothing queues up: of an episode a slow reader gets the newest line, and of what waits the newest list.
Rule 3: a stream ends when its peer leaves, when its visit ends, and when the server stops.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from proctor.models.control import Code
from proctor.models.operator import Pending, Waiting
from proctor.server.answers import refused
from proctor.server.places import on_thread
from proctor.viewer.documents import Line

LOG: Final = logging.getLogger("proctor.viewer")
PAUSE_SECONDS: Final = 0.25
COMMENT_SECONDS: Final = 15.0
MOST_LISTENERS: Final = 64
COMMENT: Final = b": still here\n\n"
START: Final = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/event-stream; charset=utf-8")],
}
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


def event(name: str, raw: bytes) -> bytes:
    """Return an event; what agents wrote may hold line breaks, each of which needs a `data` of its own."""
    return b"".join((f"event: {name}\n".encode(), *(b"data: %b\n" % part for part in raw.splitlines()), b"\n"))


class Listener:
    """What one browser has not been told yet."""

    def __init__(self) -> None:
        self.news: Final = asyncio.Event()
        self._changed: dict[str, Line] | None = None
        self._pending: bytes | None = None

    def tell(self, lines: Iterable[Line]) -> None:
        """Keep these lines, each in place of an older one of its episode."""
        self._changed = (self._changed or {}) | {line.chain: line for line in lines}
        self.news.set()

    def tell_pending(self, raw: bytes) -> None:
        """Keep what waits, in place of what waited before."""
        self._pending = raw
        self.news.set()

    def take(self) -> bytes:
        """Return all that is to be told, as events; empty if there is nothing."""
        changed, pending = self._changed, self._pending
        self._changed, self._pending = None, None
        self.news.clear()
        told = b"" if changed is None else event("lines", msgspec.json.encode(list(changed.values())))
        return told if pending is None else told + event("pending", pending)


class Feed:
    """Everybody who listens, and the one who looks for them.

    `lines` and `news` are the shelf's, the latter to be called on a thread; `pending` is what waits for an operator, where there is one.
    """

    def __init__(
        self,
        lines: Callable[[], Awaitable[list[Line]]],
        news: Callable[[], list[Line]],
        pending: Callable[[], list[Waiting]] | None = None,
        *,
        pause: float = PAUSE_SECONDS,
        comment: float = COMMENT_SECONDS,
    ) -> None:
        self.listeners: Final[set[Listener]] = set()
        self._lines = lines
        self._news = news
        self._pending = pending
        self._pause = pause
        self._comment = comment
        self._known: dict[str, Line] = {}
        self._waiting = b""
        self._stopped = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Let everybody who listens go; from now on nobody is heard."""
        self._stopped.set()

    async def lines(self) -> list[Line]:
        """Return all lines; listeners are told what is new in them, since the shelf will not tell it again."""
        found = await self._lines()
        self._publish(found)
        return found

    async def joined(self) -> Listener:
        """Return one who listens from now on, to whom everything is told first; whoever asked goes on with `stream`."""
        if len(self.listeners) >= MOST_LISTENERS:
            raise refused(Code.BUSY, f"no more than {MOST_LISTENERS} can listen at once")
        if self._stopped.is_set():
            raise refused(Code.SHUTTING_DOWN, "the server is stopping")
        listener = Listener()
        self.listeners.add(listener)
        try:
            await self._welcome(listener)
        except BaseException:
            self.listeners.discard(listener)
            raise
        return listener

    async def stream(self, listener: Listener, receive: Receive, send: Send, still: Callable[[], bool]) -> None:
        """Serve one peer until it leaves, the server stops, or it is `still` welcome no more."""
        ends = [asyncio.ensure_future(_gone(receive)), asyncio.ensure_future(self._stopped.wait())]
        try:
            await send({**START})
            while still() and not any(end.done() for end in ends):
                await send({"type": "http.response.body", "body": listener.take() or COMMENT, "more_body": True})
                await self._next(listener, ends)
            await send({"type": "http.response.body", "body": b""})
        finally:
            self.listeners.discard(listener)
            await _cancelled(ends)

    async def _welcome(self, listener: Listener) -> None:
        """Tell a newcomer everything, and see to it that somebody looks."""
        listener.tell(await self.lines())
        if self._pending is not None:
            listener.tell_pending(self._encoded(self._pending))
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look())

    async def _next(self, listener: Listener, ends: "Sequence[asyncio.Future[Any]]") -> None:
        """Return when there is something to say, or nothing was said for long; not at once, so that news come together."""
        await asyncio.wait(ends, timeout=self._pause, return_when=asyncio.FIRST_COMPLETED)
        news = asyncio.ensure_future(listener.news.wait())
        try:
            await asyncio.wait([news, *ends], timeout=self._comment, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancelled([news])

    async def _look(self) -> None:
        """Look for news while somebody listens."""
        troubled = False
        while self.listeners and not self._stopped.is_set():
            try:
                self._publish(await on_thread(self._news, "viewer-news"))
                self._publish_pending()
                troubled = False
            except Exception as problem:  # whatever is wrong with one look, there is a next one
                if not troubled:
                    LOG.error("the ledger could not be looked at", exc_info=problem)
                troubled = True
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), self._pause)

    def _publish(self, lines: list[Line]) -> None:
        changed = [line for line in lines if _is_newer(line, self._known.get(line.chain))]
        self._known.update((line.chain, line) for line in changed)
        for listener in self.listeners if changed else ():
            listener.tell(changed)

    def _publish_pending(self) -> None:
        if self._pending is None:
            return
        before, self._waiting = self._waiting, self._encoded(self._pending)
        if before != self._waiting:
            for listener in self.listeners:
                listener.tell_pending(self._waiting)

    def _encoded(self, pending: Callable[[], list[Waiting]]) -> bytes:
        return msgspec.json.encode(Pending(pending()))


def _is_newer(line: Line, known: Line | None) -> bool:
    """Return whether a line says more than the known one: two looks may end in another order than they began."""
    return known is None or (line != known and line.last >= known.last)


async def _gone(receive: Receive) -> None:
    """Return when the peer has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancelled(tasks: "Iterable[asyncio.Future[Any]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
