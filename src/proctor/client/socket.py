"""One WebSocket: bytes out, bytes in, and the news that it is broken.

Rule 1: this is the only file of the client that knows the `websockets` library.
Rule 2: a message reaches its listener in the very call that read it from the network: no queue, no task in between.
Rule 3: `say` never waits and never raises; what could not be sent is followed by `broken`, always.
Rule 4: the library's own debug lines would show the credential, so they are never written.
"""

import asyncio
import logging
from functools import partial
from typing import Any, Final, Protocol, cast

from websockets.asyncio.client import ClientConnection, connect
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake, InvalidStatus, InvalidURI
from websockets.frames import Frame, Opcode
from websockets.protocol import Event, State

from proctor.client.address import Address
from proctor.errors import ConnectionFailed

MOST_BYTES: Final = 100 * 2**20
"""The largest message that is read."""
READ_BYTES: Final = 2**16
"""asyncio makes a buffer of this size for every read; its own 256 KiB are given back to the system each time, which can
take as long as all the rest of a step."""
CLOSE_SECONDS: Final = 2.0
FINAL_STATUS: Final = frozenset({400, 401, 403, 404, 405, 421, 426})
"""Answers to a handshake after which asking again is useless."""
REFUSALS: Final = {
    401: "the server refused the credential",
    403: "the server refused this Host or Origin",
    404: "there is no control plane at this address",
}


class SocketListener(Protocol):
    """What hears a socket."""

    def on_message(self, message: bytes) -> None:
        """Take one message; never raises."""

    def on_broken(self, socket: "Socket") -> None:
        """Learn that nothing more will be heard of `socket`; never raises."""


LOG: Final = logging.getLogger("proctor.client.socket")
# The library's debug lines hold the request's headers, and with them the credential.
LOG.addFilter(lambda record: record.levelno > logging.DEBUG)


class Socket(ClientConnection):
    """A connection of the library's that hands every message on at once."""

    def __init__(self, protocol: ClientProtocol, *, listener: SocketListener, **settings: Any) -> None:
        super().__init__(protocol, **settings)
        self._listener = listener
        self._parts: list[bytes] = []

    def say(self, message: bytes) -> None:
        """Send a text message, if the connection is still open."""
        if self.protocol.state is State.OPEN:
            self.protocol.send_text(message)
            self.send_data()

    def abort(self) -> None:
        """Break the connection now, without farewell."""
        self.transport.abort()

    @property
    def is_open(self) -> bool:
        """Whether a message can still be sent."""
        return self.protocol.state is State.OPEN

    def process_event(self, event: Event) -> None:
        """Hand a message on, all else to the library."""
        if type(event) is not Frame or event.opcode not in (Opcode.TEXT, Opcode.CONT, Opcode.BINARY):
            super().process_event(event)
        elif event.opcode is Opcode.TEXT and event.fin:
            self._listener.on_message(bytes(event.data))
        else:
            # A part of a message that comes in several. A binary one says nothing in this protocol, as an empty text does.
            self._parts.append(b"" if event.opcode is Opcode.BINARY else bytes(event.data))
            if event.fin:
                message, self._parts = b"".join(self._parts), []
                self._listener.on_message(message)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Read in pieces of moderate size, where the event loop lets one choose."""
        super().connection_made(transport)
        if hasattr(transport, "max_size"):
            transport.max_size = READ_BYTES

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the listener, after the library has put itself in order."""
        super().connection_lost(exc)
        self._listener.on_broken(self)


class _ConnectWithoutRedirects(connect):
    """An attempt that follows no redirect: a credential goes where the user sent it."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


async def open_socket(
    address: Address, listener: SocketListener, *, seconds: float, ping_seconds: float | None
) -> Socket:
    """Return a socket that is open, or raise ConnectionFailed; `listener` may hear it before this returns."""
    # A proxy is never asked for what stays on this machine.
    where: dict[str, Any] = {"proxy": None} if address.is_local else {}
    if address.socket_path is not None:
        where |= {"unix": True, "path": address.socket_path}
    attempt = _ConnectWithoutRedirects(
        address.uri,
        additional_headers=address.headers,
        compression=None,
        open_timeout=seconds,
        ping_interval=ping_seconds,
        ping_timeout=ping_seconds,
        close_timeout=CLOSE_SECONDS,
        max_size=MOST_BYTES,
        logger=LOG,
        create_connection=partial(Socket, listener=listener),  # type: ignore[arg-type]  # any callable will do: a class is what the library has in mind
        **where,
    )
    try:
        return cast(Socket, await attempt)
    except InvalidStatus as refusal:
        status = refusal.response.status_code
        message = REFUSALS.get(status, "the server refused the handshake")
        raise ConnectionFailed(f"{message} at {address}", found=status) from None
    except (OSError, InvalidHandshake, InvalidURI, asyncio.IncompleteReadError, EOFError) as problem:
        reason = str(problem) or type(problem).__name__
        raise ConnectionFailed(f"no connection to {address}: {reason}") from None


def is_final(problem: ConnectionFailed) -> bool:
    """Return whether another attempt would fail in the same way."""
    return problem.found in FINAL_STATUS
