"""Listening sockets, and uvicorn's protocols with bounds on time and memory. The only file that uses uvicorn's inner parts.

Rule 1: a peer that sends no complete request, or never reads its replies, is cut off after a while; it holds a file
    descriptor and nothing else.
Rule 2: nothing that a peer sent is logged here: paths and headers may hold what must not be written down. That it was
    refused is.
Rule 3: what is kept for a peer is bounded, whatever it sends. Without a credential: the request line and the headers, one read
    of a body, and `MOST_PIPELINED` requests. Frames of a WebSocket are read once its handshake was accepted, not before.
Rule 4: frames that bring nothing, or nearly nothing, are read slowly if there are many, so that a peer who floods its own connection
    takes no time from the others.
"""

import socket
from asyncio import Handle, TimerHandle
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.exceptions import InvalidState
from websockets.frames import Opcode

from proctor.errors import ValidationError
from proctor.server.connections import (
    AUTHENTICATED,
    MOST_UNAUTHENTICATED,
    MOST_UNREAD_BYTES,
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
"""What is parsed at once of an HTTP request."""
FRAMES_BYTES: Final = 16 * 1024
"""What is parsed at once of a WebSocket's frames."""
SMALL_FRAMES_BYTES: Final = 1024
"""The same of a peer that has sent small frames; as frames of 6 bytes this takes about a millisecond."""
SMALL_BYTES: Final = 1024
SMALL_PER_SECOND: Final = 2000.0
MOST_SMALL: Final = 32
"""Fragments smaller than `SMALL_BYTES`, pings and pongs of one connection: so many may come at once, and so many in a second."""
LINGER_SECONDS: Final = 10.0
BACKLOG: Final = 2048
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


class PatientHttp(HttpToolsProtocol):
    """HTTP, with limits on what a request may hold, how long it may take to arrive, and a reply to be read.

    What comes is counted before it is parsed: bytes since the last piece of a body, headers, and requests that wait for the
    reply to an earlier one. Trailers are counted and dropped: what comes after the body was not judged with the headers.
    """

    _late: TimerHandle | None = None
    _unread: TimerHandle | None = None
    _wait: TimerHandle | None = None
    """Runs while nothing is read, because too much was refused."""
    _early = b""
    """What came all the same, before reading could be stopped."""
    _in_headers = True
    _trailers = 0
    _overhead = 0
    """Bytes since the request began, or since the last piece of its body."""
    _refused = False

    def most_connections(self) -> int:
        """Return how many connections this listener may have."""
        return most_connections(share=2)

    def connection_made(self, transport: Any) -> None:
        """Start the clock; a connection counts as unauthenticated until it has shown a credential."""
        super().connection_made(transport)
        self._start_clock()
        self._kept = _connections(self.server_state, self.most_connections)
        self._kept.add(transport)
        self._wait_for_refusals()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks."""
        self._kept.remove(self.transport)
        self._stop_clock()
        self._is_read()
        if self._wait is not None:
            self._wait.cancel()
            self._take_early()
        super().connection_lost(exc)
        self._let_go()

    def data_received(self, data: bytes) -> None:
        """Read, in pieces that are small enough to stop in time."""
        if self._wait is not None:
            self._keep_early(data)
            return
        if self.timeout_keep_alive_task is not None:
            # Whatever this is: what uvicorn's own clock waited for has come, and empty lines begin no request.
            self._start_clock()
        for start in range(0, len(data), PIECE_BYTES):
            piece = data[start : start + PIECE_BYTES]
            self._overhead += len(piece)
            super().data_received(piece)
            if self.parser is None or self.transport.is_closing():
                return
            if self._overhead > MOST_HEADER_BYTES:
                self._refuse("its headers are too large")
                return

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
            AUTHENTICATED: partial(self._kept.authenticate, self.transport),
            REFUSED: self._kept.refusals.note,
        }
        self.scope["extensions"] = extensions  # type: ignore[typeddict-item]  # ASGI allows a server's own
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._overhead = 0
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        """Note what is no HTTP; the library's own words would repeat what the peer sent."""
        if not self._refused:
            self._log_refusal("it is no HTTP")
            super().send_400_response(msg)
            self._wait_for_reading()

    def _refuse(self, reason: str) -> RefusedRequest:
        """Refuse the request and end the connection; what is returned stops the parser, if it is raised."""
        self._refused = True
        self._log_refusal(reason)
        if self._in_headers and (self.cycle is None or self.cycle.response_complete):
            self.transport.write(UNREADABLE)
            self.transport.close()
        else:
            self._cut()
        return RefusedRequest(reason)

    def _log_refusal(self, reason: str) -> None:
        if not self._kept.is_authenticated(self.transport):
            self._kept.refusals.note()
        peer = "unknown" if self.client is None else self.client[0]
        self._kept.log.write("a request was refused: %s", reason, extra={"peer": peer})

    def _wait_for_refusals(self) -> None:
        """Read nothing for a while, if too many of those without a credential were refused."""
        seconds = self._kept.refusals.wait_seconds()
        if seconds and self._wait is None and not self.transport.is_closing():
            self._wait = self.loop.call_later(seconds, self._read_on)
            # Not at once: uvloop begins to read a new connection whatever was said before.
            self.loop.call_soon(self._stop_reading)

    def _stop_reading(self) -> None:
        if self._wait is not None and not self.transport.is_closing():
            self.transport.pause_reading()

    def _keep_early(self, data: bytes) -> None:
        self._early += data
        self._kept.unread_bytes += len(data)
        if self._kept.unread_bytes > MOST_UNREAD_BYTES:
            self._cut()

    def _take_early(self) -> bytes:
        early, self._early = self._early, b""
        self._kept.unread_bytes -= len(early)
        return early

    def _read_on(self) -> None:
        self._wait = None
        early = self._take_early()
        if self.transport.is_closing():
            return
        if not self.flow.read_paused:
            self.transport.resume_reading()
        if early:
            self.data_received(early)

    def pause_writing(self) -> None:
        """Start the clock for a peer that leaves much unread."""
        super().pause_writing()
        self._wait_for_reading()

    def resume_writing(self) -> None:
        """Stop it: the peer reads."""
        super().resume_writing()
        self._is_read()

    def _wait_for_reading(self) -> None:
        self._is_read()
        left = self.transport.get_write_buffer_size()
        self._unread = self.loop.call_later(LINGER_SECONDS, self._look_again, left)

    def _look_again(self, left: int) -> None:
        """Cut a peer that has read nothing since; a large reply may take a slow one longer than the clock runs."""
        if self.transport.get_write_buffer_size() < left:
            self._wait_for_reading()
        else:
            self._cut()

    def _is_read(self) -> None:
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
        elif not self._kept.is_authenticated(self.transport):
            self._wait_for_refusals()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, whether or not its peer reads what is left."""
        super().timeout_keep_alive_handler()
        self._wait_for_reading()

    def _cut(self) -> None:
        self.transport.abort()


class BoundedHttp(PatientHttp):
    """HTTP for a listener beside the one of those who drive the environments, to whom it leaves file descriptors."""

    def most_connections(self) -> int:
        """Return how many connections this listener may have."""
        return most_connections(share=4, most=MOST_CONNECTIONS)


def _connections(state: ServerState, most: Callable[[], int]) -> Connections:
    """Return the connections of a server, all of whose protocols share one state."""
    found: Connections | None = getattr(state, "proctor_connections", None)
    if found is None:
        unauthenticated = most_connections(share=8, most=MOST_UNAUTHENTICATED)
        found = vars(state)["proctor_connections"] = Connections(most(), unauthenticated)
    return found


class PatientWebSocket(WebSocketsSansIOProtocol):
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
    _small = 0.0
    _counted_at = 0.0

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any], **more: Any) -> None:
        super().__init__(config, server_state, app_state, **more)
        self._kept = _connections(server_state, partial(most_connections, share=2))
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._reading = False

    def handle_connect(self, event: Any) -> None:
        """Let the application cut the connection, and know whether its peer reads; until it has decided, nothing is read."""
        super().handle_connect(event)
        if hasattr(self, "scope"):
            self.read_paused = True
            self.transport.pause_reading()
            extensions: dict[str, Any] = self.scope["extensions"]
            extensions[ABORT] = self._cut
            extensions[REFUSED] = self._kept.refusals.note
            extensions[WRITABLE] = self.writable
            extensions[LISTEN] = self._listen

    def _listen(self, listener: Callable[[str], bool] | None) -> None:
        self.listener = listener

    def data_received(self, data: bytes) -> None:
        """Read, or keep what comes for later; a handshake that cannot be read is refused, left to itself it would wait for ever."""
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
            self.handshake_initiated = self.handshake_complete = self.close_sent = True
            self.transport.write(UNREADABLE)
            self.transport.close()

    def _parse(self) -> None:
        """Parse what has come, until there are too many small frames."""
        data, self._unparsed = self._unparsed, b""
        # One ping now and then is no flood.
        size = FRAMES_BYTES if self._small <= 1.0 else SMALL_FRAMES_BYTES
        for start in range(0, len(data), size):
            end = start + size
            super().data_received(data[start:end])
            if self.transport.is_closing():
                return
            if self._small > MOST_SMALL:
                self._unparsed = data[end:]
                self.transport.pause_reading()
                self._pause = self.loop.call_later(self._small / SMALL_PER_SECOND, self._go_on)
                return

    def _go_on(self) -> None:
        """Read on after a pause, unless the application still has enough to do."""
        self._pause = None
        if not self.read_paused:
            self.transport.resume_reading()
        self.data_received(b"")

    def _count_small(self) -> None:
        """Count a small frame; as time passes they are forgotten."""
        now = self.loop.time()
        self._small = max(0.0, self._small - (now - self._counted_at) * SMALL_PER_SECOND) + 1.0
        self._counted_at = now

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of what was kept for a peer that has gone."""
        self._kept.remove(self.transport)
        super().connection_lost(exc)
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
        if self.listener is not None and self.queue.empty() and self._taken(self.listener):
            return
        large = sum(map(len, self.frames)) > LARGE
        before, self.read_paused = self.read_paused, True
        super().send_receive_event_to_app()
        self.read_paused = before
        if not before and (large or self.queue.qsize() >= MOST_UNREAD):
            self.read_paused = True
            self.transport.pause_reading()

    def _taken(self, listener: Callable[[str], bool]) -> bool:
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
            self._kept.authenticate(self.transport)
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


def bound_tcp(host: str, port: int) -> socket.socket:
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


def bound_unix(path: Path) -> socket.socket:
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


def removed(path: Path) -> None:
    """Remove a socket's path when the server has gone."""
    with suppress(FileNotFoundError):
        path.unlink()


def port_of(listener: socket.socket) -> int | None:
    """Return the port that was really taken; None for a Unix socket."""
    if listener.family == socket.AF_UNIX:
        return None
    port: int = listener.getsockname()[1]
    return port
