"""News for those who look: which episodes have changed, and what waits for an operator, as server-sent events.

Rule 1: however many listen, the ledger is looked at once for all of them, beside the server, and only while somebody listens.
Rule 2: nothing queues up: of an episode a slow reader gets the newest line, and of what waits the newest list. All lines, which a
    newcomer is told first, leave in pieces, as fast as they are read.
Rule 3: a stream ends when its peer leaves, when its visit ends, and when the server stops.
Rule 4: lines are bytes here: nothing encodes or decodes them on the event loop.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
from starlette.types import Receive, Send

from proctor.models.control import Code
from proctor.models.operator import Pending, Waiting
from proctor.server.runtime.results import make_refusal
from proctor.server.viewer_http.readers import Changes, format_event

LOG: Final = logging.getLogger("proctor.viewer")
PAUSE_SECONDS: Final = 0.25
COMMENT_SECONDS: Final = 15.0
MOST_LISTENERS: Final = 64
PIECE: Final = 64 * 1024
"""Of an event: a larger one would fill the memory of a connection whose peer does not read."""
COMMENT: Final = b": still here\n\n"
START: Final = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/event-stream; charset=utf-8")],
}


class FeedListener:
    """What one browser has not been told yet."""

    def __init__(self) -> None:
        self.news: Final = asyncio.Event()
        self._whole: bytes = b""
        self._changed: dict[str, bytes | None] = {}
        self._pending: bytes | None = None

    def tell_all(self, whole: bytes) -> None:
        """Keep all lines, in place of whatever was kept of them: it is older."""
        self._whole, self._changed = whole, {}
        self.news.set()

    def tell(self, changes: Changes) -> None:
        """Keep these lines, each in place of an older one of its episode."""
        self._changed |= changes
        self.news.set()

    def tell_pending(self, raw: bytes) -> None:
        """Keep what waits, in place of what waited before."""
        self._pending = raw
        self.news.set()

    def take(self) -> list[bytes]:
        """Return all that is to be told, as events; none if there is nothing."""
        events = [self._whole] if self._whole else []
        lines = [line for line in self._changed.values() if line is not None]
        if lines:
            events.append(format_event("lines", b"[%b]" % b",".join(lines)))
        gone = [chain for chain, line in self._changed.items() if line is None]
        if gone:
            events.append(format_event("gone", msgspec.json.encode(gone)))
        if self._pending is not None:
            events.append(format_event("pending", self._pending))
        self._whole, self._changed, self._pending = b"", {}, None
        self.news.clear()
        return events


class Feed:
    """Everybody who listens, and the one who looks for them.

    `whole` is how to get all lines as an event, `news` what has changed; `pending` is what waits for an operator, where there is one.
    Answers to the first two come in the order in which they were asked for.
    """

    def __init__(
        self,
        whole: Callable[[bool], Awaitable[bytes]],
        news: Callable[[], Awaitable[Changes]],
        pending: Callable[[], list[Waiting]] | None = None,
        *,
        pause: float = PAUSE_SECONDS,
        comment: float = COMMENT_SECONDS,
    ) -> None:
        self.listeners: Final[set[FeedListener]] = set()
        self._get_whole = whole
        self._news = news
        self._pending = pending
        self._pause = pause
        self._comment = comment
        self._waiting = b""
        self._welcoming = asyncio.Lock()
        self._stopped = asyncio.Event()
        self._polling: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Let everybody who listens go; from now on nobody is heard."""
        self._stopped.set()

    def wake(self) -> None:
        """Have every stream look now whether it is still welcome."""
        for listener in self.listeners:
            listener.news.set()

    async def join(self) -> FeedListener:
        """Return one who listens from now on, to whom everything is told first; whoever asked goes on with `stream`."""
        if len(self.listeners) >= MOST_LISTENERS:
            raise make_refusal(Code.BUSY, f"no more than {MOST_LISTENERS} can listen at once")
        if self._stopped.is_set():
            raise make_refusal(Code.SHUTTING_DOWN, "the server is stopping")
        listener = FeedListener()
        self.listeners.add(listener)
        try:
            await self._welcome(listener)
        except BaseException:
            self.listeners.discard(listener)
            raise
        return listener

    async def stream(self, listener: FeedListener, receive: Receive, send: Send, still: Callable[[], bool]) -> None:
        """Serve one peer until it leaves, the server stops, or it is `still` welcome no more."""
        ends = [asyncio.ensure_future(_wait_for_disconnect(receive)), asyncio.ensure_future(self._stopped.wait())]
        try:
            await send({**START})
            while still() and not any(end.done() for end in ends):
                for each in listener.take() or [COMMENT]:
                    for start in range(0, len(each), PIECE):
                        body = each[start : start + PIECE]
                        await send({"type": "http.response.body", "body": body, "more_body": True})
                await self._next(listener, ends)
            await send({"type": "http.response.body", "body": b""})
        finally:
            self.listeners.discard(listener)
            await _cancel_tasks(ends)

    async def _welcome(self, listener: FeedListener) -> None:
        async with self._welcoming:  # whoever comes first is told of what changes before the next one comes
            listener.tell_all(await self._get_whole(not self._is_polling))
            if not self._is_polling:
                self._polling = asyncio.ensure_future(self._poll())
        if self._pending is not None:
            listener.tell_pending(self._encode_pending())

    @property
    def _is_polling(self) -> bool:
        return self._polling is not None and not self._polling.done()

    async def _next(self, listener: FeedListener, ends: "Sequence[asyncio.Future[Any]]") -> None:
        """Return when there is something to say, or nothing was said for long; not at once, so that news come together."""
        await asyncio.wait(ends, timeout=self._pause, return_when=asyncio.FIRST_COMPLETED)
        news = asyncio.ensure_future(listener.news.wait())
        try:
            await asyncio.wait([news, *ends], timeout=self._comment, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancel_tasks([news])

    async def _poll(self) -> None:
        troubled = False
        while self.listeners and not self._stopped.is_set():
            try:
                self._publish(await self._news())
                troubled = False
            except Exception as problem:  # whatever is wrong with one look, there is a next one
                if not troubled:
                    LOG.error("the ledger could not be looked at", exc_info=problem)
                troubled = True
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), self._pause)

    def _publish(self, changes: Changes) -> None:
        for listener in self.listeners if changes else ():
            listener.tell(changes)
        before, self._waiting = self._waiting, self._encode_pending()
        for listener in self.listeners if before != self._waiting else ():
            listener.tell_pending(self._waiting)

    def _encode_pending(self) -> bytes:
        """Return what waits; empty: nothing ever does."""
        return b"" if self._pending is None else msgspec.json.encode(Pending(self._pending()))


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancel_tasks(tasks: "Iterable[asyncio.Future[Any]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
