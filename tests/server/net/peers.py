"""Peers of a listening socket, and an application to talk to."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import uvicorn

from proctor.server.net.uvicorn_http import LimitedHttpProtocol
from proctor.server.net.uvicorn_server import bind_tcp, port_of
from proctor.server.net.uvicorn_websocket import LimitedWebSocketProtocol, QuickWebSocketProtocol
from tests.server.attacks.raw_socket import Address, handshake
from tests.server.live_server import PATIENCE, Served

ENOUGH = 48 * 2**20
"""Bytes: more than the kernel keeps of what nobody reads."""


SOON = 0.3
"""What a server waits that should give up, in seconds."""


HOUR = 3600.0
"""What it waits where it should not; `Jumps` lets the time pass."""


@contextmanager
def raw(served: Served) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", served.port), PATIENCE) as peer:
        yield peer


def ends(peer: socket.socket) -> bytes:
    """Return everything until the connection ends; fail if it does not."""
    said = b""
    while True:
        try:
            piece = peer.recv(65536)
        except ConnectionResetError:
            return said
        if not piece:
            return said
        said += piece


def upgraded(served: Served, peer: socket.socket) -> None:
    peer.sendall(handshake(Address(served.port, None)))
    said = b""
    while not said.endswith(b"\r\n\r\n"):
        said += peer.recv(1)
    assert said.startswith(b"HTTP/1.1 101")


def next_frame(peer: socket.socket) -> tuple[int, bytes]:
    """Return the opcode and the payload of the next frame from the server, which is never masked."""

    def exactly(count: int) -> bytes:
        found = b""
        while len(found) < count:
            piece = peer.recv(count - len(found))
            assert piece, "the connection has ended"
            found += piece
        return found

    first, length = exactly(2)
    if length >= 126:
        length = int.from_bytes(exactly(2 if length == 126 else 8), "big")
    return first & 0x0F, exactly(length)


def get(served: Served, path: str = "/health") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n".encode()


@contextmanager
def running(
    application: Any, loop: Any = "auto", ws: type[LimitedWebSocketProtocol] = QuickWebSocketProtocol
) -> Iterator[int]:
    """Run an application on the server's own protocols, and give its port."""
    config = uvicorn.Config(
        application, http=LimitedHttpProtocol, ws=ws, loop=loop, lifespan="off", log_config=None, ws_ping_interval=None
    )
    server = uvicorn.Server(config)
    with closing(bind_tcp("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield port_of(listener) or 0
        finally:
            server.should_exit = True
            thread.join(PATIENCE)
            assert not thread.is_alive()


@contextmanager
def linked(port: int) -> Iterator[socket.socket]:
    """Give a WebSocket to a port of this machine."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as peer:
        peer.sendall(handshake(Address(port, None)))
        while not peer.recv(65536, socket.MSG_PEEK).endswith(b"\r\n\r\n"):
            pass
        peer.recv(65536)
        yield peer


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Send back what comes; a text that begins with - has no answer."""
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        text = message["text"]
        if not text.startswith("-"):
            await send({"type": "websocket.send", "text": text})


class Jumps:
    """Lets hours pass at once on a server's loop, so that a busy machine makes nobody late."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.seconds = 0.0
        loop.time = lambda: time.monotonic() + self.seconds  # type: ignore[method-assign]

    def jump(self, seconds: float) -> None:
        """Let time pass, and return when everything that was due has been done."""

        async def pass_by() -> None:
            self.seconds += seconds
            for _ in range(3):
                await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(pass_by(), self.loop).result(PATIENCE)
