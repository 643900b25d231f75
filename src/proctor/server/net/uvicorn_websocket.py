"""WebSockets with bounds on time and memory (uvicorn's protocol for strangers), and the quick way through them.

Uses inner parts of uvicorn and websockets, whose versions are bounded. The rules are those of `uvicorn_http`, and:

Rule 1: frames are read once the handshake was accepted, not before.
Rule 2: what makes it quick is in `QuickWebSocketProtocol` and `run_first_part` alone. With versions of the libraries that these were
    not tried with, `LimitedWebSocketProtocol` serves: slower, with the same limits.
"""

import asyncio
from asyncio import Future, Handle, TimerHandle
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from types import coroutine
from typing import Any, Final

from uvicorn import Config
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.exceptions import InvalidState
from websockets.frames import Opcode

from proctor.server.net.connections import (
    LINGER_SECONDS,
    MOST_DISCARDED,
    REFUSED,
    SMALL_BYTES,
    UNREADABLE,
    RefusablePeer,
    SmallPieceCounter,
    find_connections,
)

FRAMES_BYTES: Final = 16 * 1024
"""What is parsed at once of a WebSocket's frames."""
SWITCHING_PROTOCOLS: Final = 101
PONG: Final = bytes([0x80 | Opcode.PONG])
"""How a pong frame begins."""
LARGE: Final = 64 * 1024
MOST_UNREAD: Final = 8
"""Messages that may have arrived before they are looked at; after a large one, none."""
ABORT, WRITABLE, LISTEN = "proctor.abort", "proctor.writable", "proctor.listen"
"""What a WebSocket's scope has besides: a function that cuts the connection, an event (is there room to write?), and, on the quick
way, a function that takes a listener to which texts are handed at once."""
TRIED: Final = {"uvicorn": (0, 55), "websockets": (18,)}
"""The versions below which `QuickWebSocketProtocol` was tried."""


class LimitedWebSocketProtocol(RefusablePeer, WebSocketsSansIOProtocol):
    """A WebSocket that ends in bounded time, whatever its peer does not do."""

    _linger: TimerHandle | None = None
    _pong: bytes = b""
    """The reply to the last ping, for a peer that does not read."""

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any], **more: Any) -> None:
        super().__init__(config, server_state, app_state, **more)
        self._connections = find_connections(server_state, share=2)
        self._small = SmallPieceCounter()

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

    def _refuse_handshake(self, reply: bytes) -> None:
        """Log that a handshake cannot be read, and say so when it is its turn."""
        self.handshake_initiated = self.handshake_complete = self.close_sent = True
        self._log_refusal("it is no handshake")
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

    def shutdown(self) -> None:
        """End the connection; a refusal waits for nothing any more."""
        super().shutdown()
        self._end_wait()

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
        self._parse()
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self._refuse_handshake(UNREADABLE)

    def _parse(self) -> None:
        """Parse what has come, until there are too many small frames."""
        data, self._unparsed = self._unparsed, b""
        small = self._small
        size = small.piece_bytes(FRAMES_BYTES) if small.count else FRAMES_BYTES
        for start in range(0, len(data), size):
            end = start + size
            super().data_received(data[start:end])
            if self.transport.is_closing():
                return
            seconds = small.pause_seconds(self.loop.time()) if small.count else 0.0
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

    async def send(self, message: Any) -> None:
        """Send; a refusal waits for its turn."""
        if message["type"] == "websocket.accept":
            self._connections.authenticate(self.transport)
        elif self._is_noted and self._turn is None:
            await self._take_turn()
        await super().send(message)

    def keepalive_timeout(self) -> None:
        """Cut a peer that answers no pings: a polite goodbye would wait for it to read."""
        super().keepalive_timeout()
        self._cut()

    async def run_asgi(self) -> None:
        """Serve, and see to it that the connection is gone some time after."""
        await super().run_asgi()
        if not self.disconnected:
            self._linger = self.loop.call_later(LINGER_SECONDS, self._cut)


class QuickWebSocketProtocol(LimitedWebSocketProtocol):
    """Hands a text over in the call that read it, and sends replies to messages that came together in one system call."""

    listener: Callable[[str], bool] | None = None
    """Takes a text at once, or leaves it (False) to be fetched by `receive`."""
    _unsent: Handle | None = None
    _reading = False

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any], **more: Any) -> None:
        super().__init__(config, server_state, app_state, **more)
        self._out: list[bytes] = []
        self._out_bytes = 0

    def handle_connect(self, event: Any) -> None:
        """Let the application name a listener."""
        super().handle_connect(event)
        if self.handshake_initiated and not self.close_sent:
            extensions: dict[str, Any] = self.scope["extensions"]
            extensions[LISTEN] = partial(setattr, self, "listener")

    def _parse(self) -> None:
        self._reading = True
        try:
            super()._parse()
        finally:
            self._reading = False
            if self._out:
                self._flush()

    def send_receive_event_to_app(self) -> None:
        """Hand a message over.

        At once, if nothing waits before it: the way through the queue and its task takes as long as a step. And reading
        goes on while little waits: to stop and start again costs two system calls a message.
        """
        if (
            self.listener is not None
            and self.queue.empty()
            and self.curr_msg_data_type == "text"
            and not self.close_sent
        ):
            # What is no UTF-8 is left to the library.
            with suppress(UnicodeDecodeError):
                if self.listener(b"".join(self.frames).decode()):
                    self.frames = []
                    return
        large = sum(map(len, self.frames)) > LARGE
        before, self.read_paused = self.read_paused, True
        super().send_receive_event_to_app()
        self.read_paused = before
        if not before and (large or self.queue.qsize() >= MOST_UNREAD):
            self.read_paused = True
            self.transport.pause_reading()

    async def send(self, message: Any) -> None:
        """Send; what answers messages that came together is gathered first."""
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


def choose_websocket_protocol(find_version: Callable[[str], str] = version) -> type[LimitedWebSocketProtocol]:
    """Return the quick protocol with libraries that it was tried with, else the plain one."""
    for library, limit in TRIED.items():
        if tuple(int(part) for part in find_version(library).split(".")[: len(limit)]) >= limit:
            return LimitedWebSocketProtocol
    return QuickWebSocketProtocol


def run_first_part(work: Coroutine[Any, Any, None]) -> "asyncio.Task[None] | None":
    """Run a coroutine until it waits for something; return a task for the rest of it, None if it has ended."""
    try:
        waits_for = work.send(None)
    except StopIteration:
        return None

    async def finish() -> None:
        await _run_rest(work, waits_for)

    return asyncio.create_task(finish())


@coroutine
def _run_rest(work: Coroutine[Any, Any, None], waits_for: Any) -> Generator[Any, Any, None]:
    while True:
        try:
            value = yield waits_for
        except BaseException as problem:  # noqa: BLE001  # a cancellation too is for the coroutine
            step = partial(work.throw, problem)
        else:
            step = partial(work.send, value)
        try:
            waits_for = step()
        except StopIteration:
            return
