"""Listening sockets, and uvicorn's protocols with bounds on patience.

Rule 1: a peer that sends no complete request, or never reads its replies, is cut off after a while; it holds a file
    descriptor and nothing else.
Rule 2: nothing that a peer sent is logged here: paths and headers may hold what must not be written down. That it was
    refused is.
"""

import logging
import resource
import socket
from asyncio import Handle, TimerHandle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState

from proctor.errors import ValidationError

LOG: Final = logging.getLogger("proctor.server")
HEADER_SECONDS: Final = 20.0
MOST_HEADER_BYTES: Final = 64 * 1024
"""Of one request, before its body; what was read together with the last of them may come on top."""
LINGER_SECONDS: Final = 10.0
BACKLOG: Final = 2048
UNREADABLE: Final = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
MOST_CONNECTIONS: Final = 4096
LARGE: Final = 64 * 1024
MOST_UNREAD: Final = 8
"""Messages that may have arrived before they are looked at; after a large one, none."""
ABORT, WRITABLE, LISTEN = "proctor.abort", "proctor.writable", "proctor.listen"
"""What a WebSocket's scope has besides: a function that cuts the connection, an event (is there room to write?), and a
function that takes a listener to which texts are handed at once."""


class PatientHttp(HttpToolsProtocol):
    """HTTP, with a limit on how long a request may take to arrive, and a reply to be read."""

    _unread: TimerHandle | None = None
    _in_headers = True
    _header_bytes = 0

    def connection_made(self, transport: Any) -> None:
        """Start the clock."""
        super().connection_made(transport)
        self._late = self.loop.call_later(HEADER_SECONDS, self._cut)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks."""
        self._late.cancel()
        self._is_read()
        super().connection_lost(exc)
        self._let_go()

    def data_received(self, data: bytes) -> None:
        """Read, but no headers without end."""
        super().data_received(data)
        if self._in_headers:
            self._header_bytes += len(data)
            if self._header_bytes > MOST_HEADER_BYTES and not self.transport.is_closing():
                self._refuse("its headers are too large")
                self.transport.write(UNREADABLE)
                self.transport.close()

    def on_headers_complete(self) -> None:
        """Let the body come, which whoever reads it bounds."""
        self._in_headers = False
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Note what is no HTTP; the library's own words would repeat what the peer sent."""
        self._refuse("it is no HTTP")
        super().send_400_response(msg)

    def _refuse(self, reason: str) -> None:
        peer = "unknown" if self.client is None else self.client[0]
        LOG.info("a request was refused: %s", reason, extra={"peer": peer})

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
        super().on_message_begin()
        self._in_headers, self._header_bytes = True, 0
        self._late.cancel()
        self._late = self.loop.call_later(HEADER_SECONDS, self._cut)

    def handle_websocket_upgrade(self) -> None:
        """Stop the clock; from here on the WebSocket's own pings watch over the connection."""
        self._late.cancel()
        super().handle_websocket_upgrade()
        self._let_go()

    def _let_go(self) -> None:
        # The parser and this object hold each other; thousands of connections would wait for the garbage collector.
        self.parser = None  # type: ignore[assignment]  # uvicorn never parts with it

    def on_message_complete(self) -> None:
        """Stop the clock: the request is there."""
        self._late.cancel()
        super().on_message_complete()

    def _cut(self) -> None:
        self.transport.abort()


class BoundedHttp(PatientHttp):
    """HTTP for peers of whom nobody knows anything before they have sent a token: not more than so many at once."""

    def connection_made(self, transport: Any) -> None:
        """Turn away whoever is one too many: file descriptors are shared with those who drive the environments."""
        super().connection_made(transport)
        if len(self.connections) > most_connections():
            self._refuse("there are too many connections")
            self._cut()


def most_connections() -> int:
    """Return how many connections may take their file descriptors from everybody else's."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else max(16, min(MOST_CONNECTIONS, soft // 4))


class PatientWebSocket(WebSocketsSansIOProtocol):
    """A WebSocket that ends in bounded time, whatever its peer does not do."""

    listener: Callable[[str], bool] | None = None
    """Takes a text at once, or leaves it (False) to be fetched by `receive`."""
    _linger: TimerHandle | None = None
    _unsent: Handle | None = None

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._out: list[bytes] = []
        self._reading = False

    def handle_connect(self, event: Any) -> None:
        """Let the application cut the connection, and know whether its peer reads."""
        super().handle_connect(event)
        if hasattr(self, "scope"):
            extensions: dict[str, Any] = self.scope["extensions"]
            extensions[ABORT] = self._cut
            extensions[WRITABLE] = self.writable
            extensions[LISTEN] = self._listen

    def _listen(self, listener: Callable[[str], bool] | None) -> None:
        self.listener = listener

    def data_received(self, data: bytes) -> None:
        """Read; a handshake that cannot be read is refused, left to itself it would wait for ever."""
        self._reading = True
        try:
            super().data_received(data)
        finally:
            self._reading = False
            self._flush()
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self.handshake_initiated = self.handshake_complete = self.close_sent = True
            self.transport.write(UNREADABLE)
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of what was kept for a peer that has gone."""
        super().connection_lost(exc)
        self.frames = []
        if self._linger is not None:
            self._linger.cancel()

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
        self._out += self.conn.data_to_send()
        if self._reading:
            return
        if self.queue.empty():
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
            out, self._out = self._out, []
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
