"""Listening sockets, and uvicorn's protocols with bounds on time and memory. The only file that uses uvicorn's inner parts.

Rule 1: a peer that sends no complete request, or never reads its replies, is cut off after a while; it holds a file
    descriptor and nothing else.
Rule 2: nothing that a peer sent is logged here: paths and headers may hold what must not be written down. That it was
    refused is.
Rule 3: what is kept for a peer is bounded, whatever it sends: the request line and the headers, a few kB of a body until the
    application asks for it, a few kB of the requests behind it, and what came in the same read (`Connections.keep`). Frames of a
    WebSocket are read once its handshake was accepted, not before.
Rule 4: frames and chunks that bring nothing, or nearly nothing, are read slowly if there are many, so that a peer who floods its own
    connection takes no time from the others.
Rule 5: a request is judged as soon as it is there. Where its connection has no credential, the reply waits for its turn, and the
    connection ends with it if the request was not read to its end, or if it is refused and more requests wait behind it.
"""

import socket
from asyncio import Future, Handle, TimerHandle
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from uvicorn import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.exceptions import InvalidState
from websockets.frames import Opcode

from proctor.errors import ValidationError
from proctor.server.net.connections import (
    AUTHENTICATED,
    MOST_UNAUTHENTICATED,
    REFUSED,
    Connections,
    most_connections,
)

HEADER_SECONDS: Final = 20.0
MOST_HEADER_BYTES: Final = 16 * 1024
"""Of one request, before its body, and again after it (chunk sizes and trailers); one piece may come on top."""
MOST_HEADERS: Final = 100
"""Of one request, and as many trailers."""
MOST_PIPELINED: Final = 8
"""Requests of one connection that may wait for the reply to an earlier one."""
PIECE_BYTES: Final = 4 * 1024
"""What is parsed at once of an HTTP request, and what is kept of its body before the application asks for it."""
FRAMES_BYTES: Final = 16 * 1024
"""What is parsed at once of a WebSocket's frames."""
SMALL_PIECE_BYTES: Final = 1024
"""The same of a peer that has sent small frames or chunks; as frames of 6 bytes this takes about a millisecond."""
SMALL_BYTES: Final = 1024
SMALL_PER_SECOND: Final = 2000.0
MOST_SMALL: Final = 32
"""Fragments and chunks smaller than `SMALL_BYTES`, pings and pongs of one connection: so many may come at once, and so many in a second."""
FEW_SMALL: Final = 2.0
LINGER_SECONDS: Final = 10.0
MOST_DISCARDED: Final = 256 * 1024
"""What is read and dropped of a peer whose connection ends, so that it reads the reply before it learns that nobody listens."""
BACKLOG: Final = 2048
SWITCHING_PROTOCOLS: Final = 101
BAD: Final = 400
"""From here on a status is a refusal."""
UNREADABLE: Final = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
MOST_CONNECTIONS: Final = 4096
"""Of a listener for agents, or for browsers."""
LARGE: Final = 64 * 1024
MOST_UNREAD: Final = 8
"""Messages that may have arrived before they are looked at; after a large one, none."""
PONG: Final = bytes([0x80 | Opcode.PONG])
"""How a pong frame begins."""
ABORT, WRITABLE, LISTEN = "proctor.abort", "proctor.writable", "proctor.listen"
"""What a WebSocket's scope has besides: a function that cuts the connection, an event (is there room to write?), and a
function that takes a listener to which texts are handed at once."""


class RefusedRequest(Exception):
    """Stops the parser in the middle of a request that is refused; it reaches nobody."""


class SmallPieceCounter:
    """Counts the small pieces of one connection; as time passes they are forgotten."""

    __slots__ = ("_count", "_counted_at")

    def __init__(self) -> None:
        self._count = 0.0
        self._counted_at = 0.0

    def add(self, now: float) -> None:
        """Count one."""
        self._count, self._counted_at = self._remaining(now) + 1.0, now

    def piece_bytes(self, ordinary: int) -> int:
        """Return how much to parse at once; one ping now and then is no flood, nor are both ends of a body."""
        return ordinary if self._count <= FEW_SMALL else SMALL_PIECE_BYTES

    def pause_seconds(self, now: float) -> float:
        """Return how long to parse nothing: not at all, if there were few."""
        left = self._remaining(now)
        return left / SMALL_PER_SECOND if left > MOST_SMALL else 0.0

    def _remaining(self, now: float) -> float:
        return max(0.0, self._count - (now - self._counted_at) * SMALL_PER_SECOND)


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


class LimitedHttpProtocol(HttpToolsProtocol):
    """HTTP, with limits on what a request may hold, how long it may take to arrive, and a reply to be read.

    What comes is counted before it is parsed: bytes since the last piece of a body, headers, and requests that wait for the
    reply to an earlier one. Trailers are counted and dropped: what comes after the body was not judged with the headers.
    """

    flow: HoldableFlowControl
    _late: TimerHandle | None = None
    _unread: TimerHandle | None = None
    _pause: TimerHandle | None = None
    """Runs while nothing is parsed, because there were too many small chunks."""
    _turn: Future[None] | None = None
    """What a reply waits for."""
    _unparsed = b""
    """What came and is not parsed yet: one read, or two."""
    _in_headers = True
    _trailers = 0
    _overhead = 0
    """Bytes since the request began, or since the last piece of its body."""
    _refused = False
    _is_noted = False
    """Whether the application refused the credential of the request that it serves, or its lack."""
    _served: Any = None
    """uvicorn's cycle of the request that is served, or was served last."""
    _asked: Any = None
    """The one whose body the application has asked for."""
    _discarded: int | None = None
    """Of a connection that ends with the next reply, or has ended with the last one: what came since and was dropped."""

    def most_connections(self) -> int:
        """Return how many connections this listener may have."""
        return most_connections(share=2)

    def connection_made(self, transport: Any) -> None:
        """Start the clock; a connection counts as unauthenticated until it has shown a credential."""
        super().connection_made(transport)
        self.flow = HoldableFlowControl(transport)
        self._small = SmallPieceCounter()
        self._start_clock()
        self._connections = _find_connections(self.server_state, self.most_connections)
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

    def _end_wait(self) -> None:
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

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

    def _note_refusal(self) -> None:
        self._is_noted = True

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
        peer = "unknown" if self.client is None else self.client[0]
        self._connections.log.write("a request was refused: %s", reason, extra={"peer": peer})
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

    def _cut(self) -> None:
        self.transport.abort()


class SecondaryHttpProtocol(LimitedHttpProtocol):
    """HTTP for a listener beside the one of those who drive the environments, to whom it leaves file descriptors."""

    def most_connections(self) -> int:
        """Return how many connections this listener may have."""
        return most_connections(share=4, most=MOST_CONNECTIONS)


def forget_agent(state: ServerState, grant: str) -> None:
    """Let the connections of an agent whose grant has died make way, as if it had shown none."""
    found: Connections | None = getattr(state, "proctor_connections", None)
    if found is not None:
        found.forget(grant)


def _find_connections(state: ServerState, most: Callable[[], int]) -> Connections:
    """Return the connections of a server, all of whose protocols share one state."""
    found: Connections | None = getattr(state, "proctor_connections", None)
    if found is None:
        unauthenticated = most_connections(share=8, most=MOST_UNAUTHENTICATED)
        found = vars(state)["proctor_connections"] = Connections(most(), unauthenticated)
    return found


class LimitedWebSocketProtocol(WebSocketsSansIOProtocol):
    """A WebSocket that ends in bounded time, whatever its peer does not do."""

    listener: Callable[[str], bool] | None = None
    """Takes a text at once, or leaves it (False) to be fetched by `receive`."""
    _linger: TimerHandle | None = None
    _unsent: Handle | None = None
    _pong: bytes = b""
    """The reply to the last ping, for a peer that does not read."""
    _unparsed: bytes = b""
    """What has come and is not parsed yet; it is bounded by one read, or two."""
    _pause: TimerHandle | None = None
    """Runs while nothing is parsed, because there were too many small frames."""
    _turn: Future[None] | None = None
    """What a refusal waits for."""
    _is_noted = False
    _discarded: int | None = None
    """Of a peer that is refused: what came since and was dropped."""

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any], **more: Any) -> None:
        super().__init__(config, server_state, app_state, **more)
        self._connections = _find_connections(server_state, partial(most_connections, share=2))
        self._small = SmallPieceCounter()
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._reading = False

    def handle_connect(self, event: Any) -> None:
        """Let the application cut the connection, and know whether its peer reads; until it has decided, nothing is read."""
        response = self.conn.accept(event)
        if response.status_code != SWITCHING_PROTOCOLS:
            self.conn.send_response(response)
            self._refuse_handshake(b"".join(self.conn.data_to_send()))
            return
        super().handle_connect(event)
        self.read_paused = True
        self.transport.pause_reading()
        extensions: dict[str, Any] = self.scope["extensions"]
        extensions[ABORT] = self._cut
        extensions[REFUSED] = self._note_refusal
        extensions[WRITABLE] = self.writable
        extensions[LISTEN] = self._listen

    def _note_refusal(self) -> None:
        self._is_noted = True

    def _refuse_handshake(self, reply: bytes) -> None:
        """Log that a handshake cannot be read, and say so when it is its turn."""
        self.handshake_initiated = self.handshake_complete = self.close_sent = True
        peer = "unknown" if self.client is None else self.client[0]
        self._connections.log.write("a request was refused: it is no handshake", extra={"peer": peer})
        self._take_turn().add_done_callback(partial(self._refuse_now, reply))

    def _refuse_now(self, reply: bytes, _turn: Future[None]) -> None:
        if not self.transport.is_closing():
            self.transport.write(reply)
            self.transport.close()
            self._linger = self.loop.call_later(LINGER_SECONDS, self._cut)

    def _take_turn(self) -> Future[None]:
        """Return what a refusal waits for; what comes from now on is dropped, and it is seen whether the peer goes."""
        self._connections.judge(self.transport)
        self._discarded, self.read_paused = 0, False
        if not self.transport.is_closing():
            self.transport.resume_reading()
        self._turn = self._connections.refusals.take()
        return self._turn

    def _end_wait(self) -> None:
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

    def shutdown(self) -> None:
        """End the connection; a refusal waits for nothing any more."""
        super().shutdown()
        self._end_wait()

    def _listen(self, listener: Callable[[str], bool] | None) -> None:
        self.listener = listener

    def data_received(self, data: bytes) -> None:
        """Read, or keep what comes for later; a handshake that cannot be read is refused, left to itself it would wait for ever."""
        if self._discarded is not None:
            self._discarded += len(data)
            if self._discarded > MOST_DISCARDED:
                self.transport.pause_reading()
            return
        self._unparsed += data
        if self._pause is not None:
            self.transport.pause_reading()
            return
        self._reading = True
        try:
            self._parse()
        finally:
            self._reading = False
            self._flush()
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self._refuse_handshake(UNREADABLE)

    def _parse(self) -> None:
        """Parse what has come, until there are too many small frames."""
        data, self._unparsed = self._unparsed, b""
        size = self._small.piece_bytes(FRAMES_BYTES)
        for start in range(0, len(data), size):
            end = start + size
            super().data_received(data[start:end])
            if self.transport.is_closing():
                return
            seconds = self._small.pause_seconds(self.loop.time())
            if seconds:
                self._unparsed = data[end:]
                self.transport.pause_reading()
                self._pause = self.loop.call_later(seconds, self._go_on)
                return

    def _go_on(self) -> None:
        """Read on after a pause, unless the application still has enough to do."""
        self._pause = None
        if not self.read_paused:
            self.transport.resume_reading()
        self.data_received(b"")

    def _count_small(self) -> None:
        self._small.add(self.loop.time())

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of what was kept for a peer that has gone."""
        self._connections.remove(self.transport)
        super().connection_lost(exc)
        self._end_wait()
        self.frames = []
        for clock in (self._linger, self._pause):
            if clock is not None:
                clock.cancel()

    def handle_cont(self, event: Any) -> None:
        """Add a fragment to the one message that is kept: a list would grow with every fragment, empty ones too."""
        if len(event.data) < SMALL_BYTES:
            self._count_small()
        if len(self.frames) == 1 and isinstance(self.frames[0], bytearray):
            self.frames[0] += event.data
        else:
            self.frames = [bytearray().join([*self.frames, event.data])]  # type: ignore[list-item]  # only read as bytes
        if event.fin:
            self.send_receive_event_to_app()

    def handle_ping(self) -> None:
        """Answer a ping; to a peer that does not read only the last one, when it reads again."""
        self._count_small()
        output = self.conn.data_to_send()
        if not self.writable.is_set():
            pongs = [each for each in output if each.startswith(PONG)]
            self._pong = pongs[-1] if pongs else self._pong
            output = [each for each in output if not each.startswith(PONG)]
        self.transport.write(b"".join(output))

    def handle_pong(self, event: Any) -> None:
        """Note a pong, which a peer may also send unasked."""
        self._count_small()
        super().handle_pong(event)

    def resume_writing(self) -> None:
        """Go on; the peer reads again."""
        super().resume_writing()
        if self._pong:
            pong, self._pong = self._pong, b""
            self.transport.write(pong)

    def send_receive_event_to_app(self) -> None:
        """Hand a message over.

        At once, if nothing waits before it: the way through the queue and its task takes as long as a step. And reading
        goes on while little waits: to stop and start again costs two system calls a message.
        """
        if self.listener is not None and self.queue.empty() and self._hand_over(self.listener):
            return
        large = sum(map(len, self.frames)) > LARGE
        before, self.read_paused = self.read_paused, True
        super().send_receive_event_to_app()
        self.read_paused = before
        if not before and (large or self.queue.qsize() >= MOST_UNREAD):
            self.read_paused = True
            self.transport.pause_reading()

    def _hand_over(self, listener: Callable[[str], bool]) -> bool:
        """Return whether the listener took the message; bytes and what is no UTF-8 are not for it."""
        if self.curr_msg_data_type != "text" or self.close_sent:
            return False
        try:
            text = b"".join(self.frames).decode()
        except UnicodeDecodeError:
            return False
        taken = listener(text)
        if taken:
            self.frames = []
        return taken

    async def send(self, message: Any) -> None:
        """Send; replies to messages that came together leave together, in one system call."""
        if message["type"] == "websocket.accept":
            self._connections.authenticate(self.transport)
        elif self._is_noted and self._turn is None:
            await self._take_turn()
        text = message.get("text")
        if text is None or self.close_sent or not (self.handshake_complete and self.writable.is_set()):
            self._flush()
            await super().send(message)
            return
        if self.disconnected:
            raise ClientDisconnected
        try:
            self.conn.send_text(text.encode())
        except InvalidState:
            raise ClientDisconnected from None
        output = self.conn.data_to_send()
        self._out += output
        self._out_bytes += sum(map(len, output))
        if self._reading and self._out_bytes < LARGE:
            return
        if self._reading or self.queue.empty():
            self._flush()
        elif self._unsent is None:
            # Whoever is next may take long, or answer nothing.
            self._unsent = self.loop.call_soon(self._flush)

    def handle_close(self, event: Any) -> None:
        """Say what is left to say before goodbye."""
        self._flush()
        super().handle_close(event)

    def handle_parser_exception(self) -> None:
        """The same, where the goodbye is for something that cannot be read."""
        self._flush()
        super().handle_parser_exception()

    def _flush(self) -> None:
        if self._unsent is not None:
            self._unsent.cancel()
            self._unsent = None
        if self._out:
            out, self._out, self._out_bytes = self._out, [], 0
            self.transport.write(b"".join(out))

    def keepalive_timeout(self) -> None:
        """Cut a peer that answers no pings: a polite goodbye would wait for it to read."""
        super().keepalive_timeout()
        self._cut()

    async def run_asgi(self) -> None:
        """Serve, and see to it that the connection is gone some time after."""
        await super().run_asgi()
        if not self.disconnected:
            self._linger = self.loop.call_later(LINGER_SECONDS, self._cut)

    def _cut(self) -> None:
        if self.transport is not None:
            self.transport.abort()


def bind_tcp(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to the address, or raise a ValidationError that says why not."""
    if not host:
        raise ValidationError(
            "cannot listen on no address", expected="a name or a number; 127.0.0.1 is this machine alone"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named: asyncio's own loop sends small writes at once only on sockets of which it knows it.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), port))
    except OSError as problem:
        listener.close()
        raise ValidationError(
            f"cannot listen on {host}:{port}: {problem.strerror}", expected="a free port (0 takes any) on this machine"
        ) from None
    listener.listen(BACKLOG)
    return listener


def bind_unix(path: Path) -> socket.socket:
    """Return a socket at `path` that only its owner can connect to; a dead one in its place is removed."""
    if path.is_socket():
        _remove_dead(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        path.chmod(0o600)
    except OSError as problem:
        listener.close()
        reason = problem.strerror or str(problem)
        raise ValidationError(f"cannot listen on {path}: {reason}", expected="a new path") from None
    listener.listen(BACKLOG)
    return listener


def _remove_dead(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError:
            return
    raise ValidationError(f"somebody listens on {path} already", expected="another path")


def remove_socket_path(path: Path) -> None:
    """Remove a socket's path when the server has gone."""
    with suppress(FileNotFoundError):
        path.unlink()


def port_of(listener: socket.socket) -> int | None:
    """Return the port that was really taken; None for a Unix socket."""
    if listener.family == socket.AF_UNIX:
        return None
    port: int = listener.getsockname()[1]
    return port
