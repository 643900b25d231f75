"""HTTP with bounds on time and memory: uvicorn's protocol for strangers. Uses inner parts of uvicorn, whose version is bounded.

Rule 1: a peer that sends no complete request, or never reads its replies, is cut off after a while; it holds a file
    descriptor and nothing else.
Rule 2: nothing that a peer sent is logged here: paths and headers may hold what must not be written down. That it was
    refused is.
Rule 3: what is kept for a peer is bounded, whatever it sends: the request line and the headers, a few kB of a body until the
    application asks for it, a few kB of the requests behind it, and what came in the same read (`Connections.keep`).
Rule 4: a request is judged as soon as it is there. Where its connection has no credential, the reply waits for its turn, and the
    connection ends with it if the request was not read to its end, or if it is refused and more requests wait behind it.
"""

from asyncio import TimerHandle
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from proctor.server.net.connections import (
    AUTHENTICATED,
    LINGER_SECONDS,
    MOST_DISCARDED,
    REFUSED,
    SMALL_BYTES,
    UNREADABLE,
    RefusablePeer,
    SmallPieceCounter,
    find_connections,
)

HEADER_SECONDS: Final = 20.0
MOST_HEADER_BYTES: Final = 16 * 1024
"""Of one request, before its body, and again after it (chunk sizes and trailers); one piece may come on top."""
MOST_HEADERS: Final = 100
"""Of one request, and as many trailers."""
MOST_PIPELINED: Final = 8
"""Requests of one connection that may wait for the reply to an earlier one."""
PIECE_BYTES: Final = 4 * 1024
"""What is parsed at once, and what is kept of a body before the application asks for it."""
BAD: Final = 400
"""From here on a status is a refusal."""


class RefusedRequest(Exception):
    """Stops the parser in the middle of a request that is refused; it reaches nobody."""


class HoldableFlowControl(FlowControl):
    """uvicorn's flow control; nothing more is read while something that came waits to be parsed."""

    is_held = False

    def hold(self) -> None:
        """Read nothing, whoever asks for it."""
        self.is_held = True
        self.pause_reading()

    def resume_reading(self) -> None:
        """Read on, unless it is held."""
        if not self.is_held:
            super().resume_reading()


class LimitedHttpProtocol(RefusablePeer, HttpToolsProtocol):
    """HTTP, with limits on what a request may hold, how long it may take to arrive, and a reply to be read.

    What comes is counted before it is parsed: bytes since the last piece of a body, headers, and requests that wait for the
    reply to an earlier one. Trailers are counted and dropped: what comes after the body was not judged with the headers.
    """

    share = 2
    most: int | None = None
    """How many connections this listener may have: a share of the file descriptors, and so many at most."""
    flow: HoldableFlowControl
    _late: TimerHandle | None = None
    _unread: TimerHandle | None = None
    _in_headers = True
    _trailers = 0
    _overhead = 0
    """Bytes since the request began, or since the last piece of its body."""
    _refused = False
    _served: Any = None
    """uvicorn's cycle of the request that is served, or was served last."""
    _asked: Any = None
    """The one whose body the application has asked for."""

    def connection_made(self, transport: Any) -> None:
        """Start the clock; a connection counts as unauthenticated until it has shown a credential."""
        super().connection_made(transport)
        self.flow = HoldableFlowControl(transport)
        self._small = SmallPieceCounter()
        self._start_clock()
        self._connections = find_connections(self.server_state, self.share, self.most)
        self._connections.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks; nobody waits for a turn any more."""
        self._connections.remove(self.transport)
        self._stop_clock()
        self._stop_unread_clock()
        self._drop_input()
        super().connection_lost(exc)
        self._end_wait()
        self._let_go()

    def shutdown(self) -> None:
        """End the connection when its reply is sent; that waits for nothing any more."""
        super().shutdown()
        self._end_wait()

    def data_received(self, data: bytes) -> None:
        """Parse what has come, or keep it for later."""
        if self._turn is not None and self._is_noted and not self._served.more_body:
            self._end_reading()  # it would wait behind a refusal
        if self._discarded is not None:
            self._discarded += len(data)
            if self._discarded > MOST_DISCARDED:
                self.flow.hold()
                self._close_after_reply()
            return
        self._unparsed += data
        self._parse()

    def _close_after_reply(self) -> None:
        if self.cycle is not None and self.cycle.response_complete:
            self.transport.close()
            self._wait_for_reading()

    def _parse(self) -> None:
        """Parse, in pieces that are small enough to stop in time; what is left waits, and nothing more is read."""
        if self._pause is not None or self._discarded is not None:
            return
        data, self._unparsed = self._unparsed, b""
        if data and self.timeout_keep_alive_task is not None:
            # Whatever this is: what uvicorn's own clock waited for has come, and empty lines begin no request.
            self._start_clock()
        size, start = self._small.piece_bytes(PIECE_BYTES), 0
        while start < len(data) and self._has_room():
            piece = data[start : start + size]
            start += size
            self._overhead += len(piece)
            super().data_received(piece)
            if self.parser is None or self._discarded is not None or self.transport.is_closing():
                return
            if self._overhead > MOST_HEADER_BYTES:
                self._refuse("its headers are too large")
                return
            seconds = self._small.pause_seconds(self.loop.time())
            if seconds:
                self._pause = self.loop.call_later(seconds, self._parse_on)
                break
        self._unparsed = data[start:]
        self._connections.keep(self.transport, len(self._unparsed))
        if self._unparsed or self._pause is not None:
            self.flow.hold()
        elif self.flow.is_held:
            self.flow.is_held = False
            if self._has_room():
                self.flow.resume_reading()

    def _parse_on(self) -> None:
        self._pause = None
        if not self.transport.is_closing():
            self._parse()

    def _has_room(self) -> bool:
        """Return whether more may be parsed: not while a request waits for an earlier one, nor a body for the application.

        Without a credential one request is parsed after the other, each when the one before was answered.
        """
        if self.pipeline:
            return False
        if self.cycle is None or self.cycle.response_complete:
            return True
        if not self.cycle.more_body and not self._connections.is_authenticated(self.transport):
            return False
        return len(self.cycle.body) < (HIGH_WATER_LIMIT if self._asked is self.cycle else PIECE_BYTES)

    def _drop_input(self) -> None:
        self._unparsed = b""
        self._connections.keep(self.transport, 0)
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; a trailer is dropped."""
        if not self._in_headers:
            self._trailers += 1
            if self._trailers > MOST_HEADERS:
                raise self._refuse("it has too many trailers")
            return
        if len(self.headers) >= MOST_HEADERS:
            raise self._refuse("it has too many headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Let the body come, which whoever reads it bounds; let the application say that a credential was shown."""
        self._in_headers = False
        extensions = {
            AUTHENTICATED: partial(self._connections.authenticate, self.transport),
            REFUSED: self._note_refusal,
        }
        self.scope["extensions"] = extensions  # type: ignore[typeddict-item]  # ASGI allows a server's own
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._overhead = 0
        if len(body) < SMALL_BYTES:
            self._small.add(self.loop.time())
        super().on_body(body)

    # ---------------------------------------------------------------------------------------------- request and reply
    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        """Serve a request; before it there was the reply to the last one."""
        self._served, self._is_noted = cycle, False
        super()._start_asgi_task(cycle, partial(self._serve, cycle, app))

    async def _serve(self, cycle: Any, app: Any, scope: Any, _receive: Any, _send: Any) -> Any:
        try:
            return await app(scope, partial(self._receive, cycle), partial(self._send, cycle))
        finally:
            cycle.body = bytearray()  # nobody asks for it any more

    async def _receive(self, cycle: Any) -> Any:
        if self._asked is not cycle or self._unparsed:
            self._asked = cycle
            self._parse()
        return await cycle.receive()

    async def _send(self, cycle: Any, message: Any) -> None:
        if message["type"] == "http.response.start":
            await self._wait_for_turn(cycle, message["status"])
            if self._discarded is not None:
                cycle.keep_alive = False
        elif self._discarded is not None and not message.get("more_body", False):
            # It was said that the connection ends; `on_response_complete` sees to it.
            cycle.keep_alive = True
        await cycle.send(message)

    async def _wait_for_turn(self, cycle: Any, status: int) -> None:
        """Let a reply to somebody without a credential wait until it is its turn."""
        if self._connections.is_authenticated(self.transport) and not self._is_noted:
            return
        self._connections.judge(self.transport)
        self._is_noted = self._is_noted or status >= BAD
        if self._is_noted and (self.pipeline or self._unparsed):
            self._end_reading()
        self._turn = (self._connections.refusals if self._is_noted else self._connections.pages).take()
        await self._turn
        self._turn = None
        if cycle.more_body or (self._is_noted and self.pipeline):
            self._end_reading()

    def _end_reading(self) -> None:
        """Drop what comes from now on and what is not served yet; the connection ends with the next reply."""
        if self._discarded is None:
            self._discarded = 0
            self._drop_input()
            self.pipeline.clear()
            self.cycle = self._served
            self.flow.is_held = False
            if not self.transport.is_closing():
                self.flow.resume_reading()  # so that it is seen whether the peer goes

    def send_400_response(self, msg: str) -> None:
        """Note what is no HTTP; the library's own words would repeat what the peer sent."""
        if not self._refused:
            self._refused = True
            self._refuse_in_turn("it is no HTTP", partial(super().send_400_response, msg))

    def _refuse(self, reason: str) -> RefusedRequest:
        """Refuse the request and end the connection; what is returned stops the parser, if it is raised."""
        self._refused = True
        can_reply = self._in_headers and (self.cycle is None or self.cycle.response_complete)
        self._refuse_in_turn(reason, self._send_unreadable if can_reply else self._cut)
        return RefusedRequest(reason)

    def _refuse_in_turn(self, reason: str, refuse: Callable[[], object]) -> None:
        """Log that what came cannot be read, and say so when it is its turn; until then nothing is parsed."""
        self._log_refusal(reason)
        self._connections.judge(self.transport)
        self._end_reading()
        if self._turn is not None:
            return  # the connection ends with the reply that waits
        self._turn = self._connections.refusals.take()
        if self._turn.done():
            self._refuse_now(refuse)
        else:
            self._turn.add_done_callback(partial(self._refuse_now, refuse))

    def _refuse_now(self, refuse: Callable[[], object], _turn: object = None) -> None:
        if not self.transport.is_closing():
            refuse()
            self._wait_for_reading()

    def _send_unreadable(self) -> None:
        self.transport.write(UNREADABLE)
        self.transport.close()

    def pause_writing(self) -> None:
        """Start the clock for a peer that leaves much unread."""
        super().pause_writing()
        self._wait_for_reading()

    def resume_writing(self) -> None:
        """Stop it: the peer reads."""
        super().resume_writing()
        self._stop_unread_clock()

    def _wait_for_reading(self) -> None:
        self._stop_unread_clock()
        left = self.transport.get_write_buffer_size()
        self._unread = self.loop.call_later(LINGER_SECONDS, self._look_again, left)

    def _look_again(self, left: int) -> None:
        """Cut a peer that has read nothing since; a large reply may take a slow one longer than the clock runs."""
        if self.transport.get_write_buffer_size() < left:
            self._wait_for_reading()
        else:
            self._cut()

    def _stop_unread_clock(self) -> None:
        if self._unread is not None:
            self._unread.cancel()

    def on_message_begin(self) -> None:
        """Start the clock for this request; the first one's runs since the connection was made."""
        if len(self.pipeline) >= MOST_PIPELINED:
            raise self._refuse("too many requests wait for a reply")
        super().on_message_begin()
        self._in_headers, self._overhead, self._trailers = True, 0, 0
        self._start_clock()

    def _start_clock(self) -> None:
        self._stop_clock()
        self._late = self.loop.call_later(HEADER_SECONDS, self._cut)

    def _stop_clock(self) -> None:
        if self._late is not None:
            self._late.cancel()

    def handle_websocket_upgrade(self) -> None:
        """Stop the clock; from here on the WebSocket's own pings watch over the connection."""
        self._stop_clock()
        super().handle_websocket_upgrade()
        self._let_go()

    def _let_go(self) -> None:
        # The parser and this object hold each other; thousands of connections would wait for the garbage collector.
        self.parser = None  # type: ignore[assignment]  # uvicorn never parts with it

    def on_message_complete(self) -> None:
        """Stop the clock: the request is there."""
        self._stop_clock()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Go on with the next request; a peer that does not read the last reply is cut after a while."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._wait_for_reading()
        elif self._discarded is not None:
            # To close at once would take the reply from a peer that still sends; uvicorn's own clock closes soon.
            self.transport.write_eof()
            if self._discarded > MOST_DISCARDED:
                self._close_after_reply()
        elif self._unparsed:
            self._parse()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, whether or not its peer reads what is left."""
        super().timeout_keep_alive_handler()
        self._wait_for_reading()


class SecondaryHttpProtocol(LimitedHttpProtocol):
    """HTTP for a listener beside the one of those who drive the environments, to whom it leaves file descriptors."""

    share = 4
    most = 4096
