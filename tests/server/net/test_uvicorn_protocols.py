"""A server listens where it was told to and nowhere else, and loses patience with peers that do not do their part."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import socket
import stat
import struct
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn
from uvicorn.server import ServerState

from proctor.errors import ValidationError
from proctor.server import app
from proctor.server.net import connections, uvicorn_protocols
from proctor.server.net.connections import REFUSED, authenticate, note_refusal
from proctor.server.net.uvicorn_protocols import (
    ABORT,
    LISTEN,
    MOST_HEADER_BYTES,
    LimitedHttpProtocol,
    LimitedWebSocketProtocol,
    bind_tcp,
    bind_unix,
    forget_agent,
    port_of,
    remove_socket_path,
)
from tests.server.attacks.raw_socket import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, Address, frame, handshake
from tests.server.environments import diary
from tests.server.live_server import PATIENCE, Served, Session, Talk, serving, until

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


# ----------------------------------------------------------------------------------------------------------- listening
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]"])
def test_any_free_port_is_taken_and_told(host: str) -> None:
    with closing(bind_tcp(host, 0)) as listener:
        port = port_of(listener)
        assert port
        with socket.create_connection((host.strip("[]"), port), PATIENCE) as peer:
            assert peer.getpeername()[1] == port


def test_a_port_that_is_taken_is_refused_by_its_name() -> None:
    with closing(bind_tcp("127.0.0.1", 0)) as listener, pytest.raises(ValidationError) as caught:
        bind_tcp("127.0.0.1", port_of(listener) or 0)

    assert re.search(r"127\.0\.0\.1:\d+: .*in use", str(caught.value))


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid", "a..b", "x" * 300, "2001:db8::zz"])
def test_an_address_that_is_not_ours_is_refused(host: str) -> None:
    with pytest.raises(ValidationError, match="cannot listen"):
        bind_tcp(host, 0)


def test_no_name_is_not_every_address_of_the_machine() -> None:
    with pytest.raises(ValidationError, match="cannot listen"), closing(bind_tcp("", 0)):
        pass


def test_a_port_can_be_taken_again_at_once() -> None:
    listener = bind_tcp("127.0.0.1", 0)
    port = port_of(listener) or 0
    with socket.create_connection(("127.0.0.1", port), PATIENCE), closing(listener.accept()[0]):
        listener.close()

    with closing(bind_tcp("127.0.0.1", port)) as again:
        assert port_of(again) == port


def test_a_unix_socket_is_its_owners_only(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    before = os.umask(0)
    try:
        with closing(bind_unix(path)) as listener:
            mode = stat.S_IMODE(path.stat().st_mode)
            found = port_of(listener)
    finally:
        os.umask(before)

    assert mode == 0o600
    assert found is None


def test_a_dead_socket_is_replaced_and_a_live_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    bind_unix(path).close()
    assert path.is_socket()

    with closing(bind_unix(path)):
        with pytest.raises(ValidationError, match="somebody listens"):
            bind_unix(path)
        assert path.is_socket()


@pytest.mark.parametrize("kind", ["file", "folder", "missing folder", "long"])
def test_a_path_that_is_no_place_for_a_socket_is_refused_and_left_alone(tmp_path: Path, kind: str) -> None:
    path = tmp_path / ("x" * 200 if kind == "long" else "place")
    if kind == "file":
        path.write_text("kept")
    elif kind == "folder":
        path.mkdir()
    elif kind == "missing folder":
        path = path / "socket"

    with pytest.raises(ValidationError, match="cannot listen on") as caught:
        bind_unix(path)

    assert "None" not in str(caught.value)
    assert kind != "file" or path.read_text() == "kept"


def test_a_socket_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(path))

        with pytest.raises(ValidationError, match="cannot listen on"):
            bind_unix(path)

    assert path.is_socket()


def test_a_sockets_path_is_removed_with_its_server(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    bind_unix(path).close()

    remove_socket_path(path)
    remove_socket_path(path)

    assert not path.exists()


def test_a_refused_address_leaves_no_file_open(tmp_path: Path) -> None:
    def held() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    with closing(bind_tcp("127.0.0.1", 0)) as listener:
        before = held()
        for _ in range(10):
            with pytest.raises(ValidationError):
                bind_tcp("127.0.0.1", port_of(listener) or 0)
            with pytest.raises(ValidationError):
                bind_unix(tmp_path / "missing" / "socket")

        assert held() <= before


# -------------------------------------------------------------------------------------- a socket, seen by an application
@contextmanager
def running(application: Any, loop: Any = "auto") -> Iterator[int]:
    """Run an application on the server's own protocols, and give its port."""
    config = uvicorn.Config(
        application,
        http=LimitedHttpProtocol,
        ws=LimitedWebSocketProtocol,
        loop=loop,
        lifespan="off",
        log_config=None,
        ws_ping_interval=None,
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


def http_of(scope: Any) -> Any:
    """Return the protocol object that serves an HTTP request."""
    return scope["extensions"][REFUSED].__self__


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Send back what comes; a text that begins with - has no answer."""
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        text = message["text"]
        if not text.startswith("-"):
            await send({"type": "websocket.send", "text": text})


def test_what_comes_at_once_is_answered_in_order_and_completely() -> None:
    texts = [b"%d" % number for number in range(100)]
    silent = [b"-%d" % number for number in range(20)]
    with running(echo) as port, linked(port) as peer:
        peer.sendall(b"".join(map(frame, [*texts, *silent])))
        answers = [next_frame(peer) for _ in texts]
        peer.sendall(frame(b"last"))
        last = next_frame(peer)

    assert answers == [(TEXT, text) for text in texts]
    assert last == (TEXT, b"last")


def test_large_messages_are_answered_in_order() -> None:
    texts = [bytes([65 + number]) * 300_000 for number in range(6)]

    def send_all(peer: socket.socket) -> None:
        peer.sendall(b"".join(map(frame, texts)))

    with running(echo) as port, linked(port) as peer:
        sending = threading.Thread(target=send_all, args=(peer,))
        sending.start()
        answers = [next_frame(peer) for _ in texts]
        sending.join(PATIENCE)

    assert answers == [(TEXT, text) for text in texts]


def test_an_application_learns_that_its_peer_has_gone() -> None:
    outcomes: list[str] = []
    gone = threading.Event()

    async def talkative(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (await receive())["type"] == "websocket.receive":
            pass
        try:
            await send({"type": "websocket.send", "text": "too late"})
        except OSError:
            outcomes.append("gone")
        gone.set()

    with running(talkative) as port:
        with linked(port):
            pass
        assert gone.wait(PATIENCE)

    assert outcomes == ["gone"]


def test_an_application_can_cut_its_peer_off() -> None:
    async def cutting(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await receive()
        scope["extensions"][ABORT]()
        scope["extensions"][ABORT]()
        assert (await receive())["type"] == "websocket.disconnect"

    with running(cutting) as port, linked(port) as peer:
        peer.sendall(frame(b"now"))

        assert ends(peer) == b""


def test_a_listener_takes_what_it_likes_and_leaves_the_rest() -> None:
    taken: list[str] = []

    async def listening(scope: Any, receive: Any, send: Any) -> None:
        def listener(text: str) -> bool:
            if text.startswith("+"):
                taken.append(text)
            return text.startswith("+")

        await receive()
        await send({"type": "websocket.accept"})
        scope["extensions"][LISTEN](listener)
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message.get("text") or "bytes"})

    with running(listening) as port, linked(port) as peer:
        for message in (frame(b"+1"), frame(b"a"), frame(b"+2", BINARY), frame(b"+3")):
            peer.sendall(message)
            if message != frame(b"+1") and message != frame(b"+3"):
                next_frame(peer)
        until(lambda: len(taken) == 2)

    assert taken == ["+1", "+3"]


# ------------------------------------------------------------------------------------------- what a WebSocket can hold
def protocol_of(scope: Any) -> Any:
    """Return the protocol object that serves a WebSocket."""
    return scope["extensions"][ABORT].__self__


@contextmanager
def observed() -> Iterator[tuple[socket.socket, Any]]:
    """Give a WebSocket to `echo`, and the protocol object that serves it."""
    found: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        found.append(protocol_of(scope))
        await echo(scope, receive, send)

    with running(application) as port, linked(port) as peer:
        yield peer, found[0]


def test_nothing_is_read_before_a_handshake_was_accepted() -> None:
    reading: list[bool] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        reading.append(protocol_of(scope).transport.is_reading())
        await echo(scope, receive, send)
        reading.append(protocol_of(scope).transport.is_reading())

    with running(application) as port, linked(port) as peer:
        peer.sendall(frame(b"hello"))
        assert next_frame(peer) == (TEXT, b"hello")

    assert reading[0] is False


@pytest.mark.parametrize("content", [b"", b"a"])
def test_a_message_of_very_many_fragments_is_kept_as_one(content: bytes) -> None:
    count = 2_000
    with observed() as (peer, protocol):
        peer.sendall(frame(b"<", final=False) + frame(content, CONTINUATION, final=False) * count + frame(b"?", PING))
        assert next_frame(peer) == (PONG, b"?")
        kept = [len(piece) for piece in protocol.frames]
        peer.sendall(frame(b">", CONTINUATION))
        answer = next_frame(peer)

    assert kept == [1 + len(content) * count]
    assert answer == (TEXT, b"<" + content * count + b">")


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small frames are read as fast as they come."""
    monkeypatch.setattr(uvicorn_protocols, "SMALL_PER_SECOND", 1e12)


@pytest.mark.parametrize(
    "small",
    [
        frame(b"", CONTINUATION, final=False),
        frame(b"x", CONTINUATION, final=False),
        frame(b"", PING),
        frame(b"", PONG),
    ],
    ids=["empty fragments", "small fragments", "pings", "pongs"],
)
def test_a_flood_of_small_frames_is_read_slowly_and_everybody_else_is_answered_meanwhile(
    small: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uvicorn_protocols, "SMALL_PER_SECOND", 1 / HOUR)
    monkeypatch.setattr(
        uvicorn_protocols, "FRAMES_BYTES", 256
    )  # so that one small write is more than is parsed at once
    found: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        found.append(protocol_of(scope))
        await echo(scope, receive, send)

    with running(application) as port, linked(port) as peer, linked(port) as other:
        peer.sendall(frame(b"<", final=False) + small * 100 + frame(b">", CONTINUATION))
        until(lambda: found[0]._pause is not None)
        other.sendall(frame(b"hello"))
        answer = next_frame(other)
        kept, reading = len(found[0]._unparsed), found[0].transport.is_reading()

    assert answer == (TEXT, b"hello")
    assert kept > 0
    assert not reading


def test_a_message_of_large_fragments_is_not_slowed_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_protocols, "SMALL_PER_SECOND", 1 / HOUR)
    content = b"x" * uvicorn_protocols.SMALL_BYTES
    count = 10 * uvicorn_protocols.MOST_SMALL
    with observed() as (peer, _):
        peer.sendall(
            frame(b"<", final=False) + frame(content, CONTINUATION, final=False) * count + frame(b">", CONTINUATION)
        )

        assert next_frame(peer) == (TEXT, b"<" + content * count + b">")


def test_what_comes_during_a_pause_is_read_after_it() -> None:
    with observed() as (peer, _):
        peer.sendall(frame(b"", PONG) * 200)
        for number in range(20):
            peer.sendall(frame(str(number).encode()) + frame(b"", PONG) * 50)
        answers = [next_frame(peer) for _ in range(20)]

    assert answers == [(TEXT, str(number).encode()) for number in range(20)]


def test_an_application_that_asks_for_more_during_a_pause_waits_for_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with observed() as (peer, protocol):
        loop, done = protocol.loop, threading.Event()
        monkeypatch.setattr(uvicorn_protocols, "SMALL_PER_SECOND", 1 / HOUR)
        peer.sendall(frame(b"", PONG) * 200)
        until(lambda: protocol._pause is not None)

        def read_on() -> None:
            protocol.transport.resume_reading()
            protocol.data_received(frame(b"late"))
            done.set()

        loop.call_soon_threadsafe(read_on)
        assert done.wait(PATIENCE)
        assert not protocol.transport.is_reading()

        monkeypatch.setattr(uvicorn_protocols, "SMALL_PER_SECOND", 1e12)
        protocol.read_paused = True
        loop.call_soon_threadsafe(protocol._go_on)
        assert next_frame(peer) == (TEXT, b"late")


@pytest.mark.usefixtures("unhurried")
def test_pings_of_a_peer_that_does_not_read_are_not_kept_and_the_last_one_is_answered() -> None:
    pings = frame(b"x" * 125, PING) * 500
    with observed() as (peer, protocol):
        for _ in range(600):
            peer.sendall(pings)
        peer.sendall(frame(b"last", PING))
        waiting = protocol.transport.get_write_buffer_size()
        while (found := next_frame(peer)) != (PONG, b"last"):
            assert found == (PONG, b"x" * 125)

    assert waiting < 2**20


@pytest.mark.usefixtures("unhurried")
def test_a_close_behind_pings_that_are_not_read_is_answered() -> None:
    pings = frame(b"x" * 125, PING) * 500
    with observed() as (peer, protocol):
        while protocol.writable.is_set():
            peer.sendall(pings)
        peer.sendall(frame(b"y", PING) * 3 + frame((1000).to_bytes(2, "big"), CLOSE))
        while (found := next_frame(peer))[0] == PONG:
            pass

    assert found == (CLOSE, (1000).to_bytes(2, "big"))


def test_replies_to_what_came_together_leave_before_they_are_many() -> None:
    texts = [bytes([65 + number % 26]) * 1000 for number in range(40)]

    async def application(scope: Any, receive: Any, send: Any) -> None:
        def answer(text: str) -> bool:
            with suppress(StopIteration):
                send({"type": "websocket.send", "text": text * 2}).send(None)  # the kernel need not take much of it
            return True

        await receive()
        await send({"type": "websocket.accept"})
        scope["extensions"][LISTEN](answer)
        await receive()

    with running(application) as port, linked(port) as peer:
        sending = threading.Thread(target=peer.sendall, args=[b"".join(map(frame, texts))])
        sending.start()
        answers = [next_frame(peer) for _ in range(40)]
        sending.join(PATIENCE)

    assert answers == [(TEXT, text * 2) for text in texts]


def test_compression_is_not_offered_and_a_compressed_frame_is_refused() -> None:
    with serving() as served, raw(served) as peer:
        extra = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"
        peer.sendall(handshake(Address(served.port, None), extra=extra))
        said = b""
        while not said.endswith(b"\r\n\r\n"):
            said += peer.recv(1)
        peer.sendall(frame(b"x" * 100, reserved=4))
        opcode, payload = next_frame(peer)

    assert said.startswith(b"HTTP/1.1 101")
    assert b"deflate" not in said.lower()
    assert (opcode, int.from_bytes(payload[:2], "big")) == (CLOSE, 1002)


# ------------------------------------------------------------------------------------- what a request can hold and cost
@contextmanager
def held_back(found: list[Any], held: list[bytes]) -> Iterator[tuple[int, threading.Event]]:
    """Give the port of an application that asks for its body when the event is set, and keeps its protocol object and the body."""
    asks = threading.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        found.append(http_of(scope))
        if scope["path"] == "/known":
            authenticate(scope)
        while scope["path"] == "/held" and not asks.is_set():
            await asyncio.sleep(0.01)
        body, more = b"", True
        while more:
            message = await receive()
            body += message["body"]
            more = message["more_body"]
        held.append(body)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1")]})
        await send({"type": "http.response.body", "body": b"}"})

    with running(application) as port:
        yield port, asks


def post_of(path: str, *headers: bytes) -> bytes:
    return b"\r\n".join([f"POST {path} HTTP/1.1".encode(), b"Host: a", *headers, b"", b""])


def test_of_a_body_a_few_kb_are_kept_before_the_application_asks_for_it_and_none_after_its_reply() -> None:
    found: list[Any] = []
    bodies: list[bytes] = []
    content = os.urandom(2**20)
    with (
        held_back(found, bodies) as (port, asks),
        socket.create_connection(("127.0.0.1", port), PATIENCE) as peer,
    ):
        request = post_of("/held", b"Content-Length: %d" % len(content)) + content
        sending = threading.Thread(target=peer.sendall, args=[request])
        sending.start()
        until(lambda: found and found[0].flow.is_held)
        kept, reading = len(found[0].cycle.body), found[0].transport.is_reading()
        asks.set()
        answer = answer_of(peer)
        sending.join(PATIENCE)
        until(lambda: len(found[0].cycle.body) == 0)

    assert 0 < kept <= 2 * uvicorn_protocols.PIECE_BYTES
    assert not reading
    assert bodies == [content]
    assert answer.startswith(b"HTTP/1.1 200")


def test_a_body_that_nobody_has_asked_for_is_dropped_after_the_reply() -> None:
    found: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        found.append(http_of(scope))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1")]})
        await send({"type": "http.response.body", "body": b"}"})

    with running(application) as port, socket.create_connection(("127.0.0.1", port), PATIENCE) as peer:
        peer.sendall(post_of("/", b"Content-Length: 100") + b"x" * 100)
        answer_of(peer)

        assert until(lambda: len(found[0].cycle.body) == 0)


def test_a_peer_that_goes_while_its_refusal_waits_is_gone_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REFUSALS_AT_ONCE", 1)
    monkeypatch.setattr(connections, "REFUSALS_PER_SECOND", 1 / HOUR)
    found: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        found.append(http_of(scope))
        note_refusal(scope)
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"1")]})
        await send({"type": "http.response.body", "body": b"}"})

    def is_ending(number: int) -> bool:
        return len(found) > number and found[number]._discarded is not None

    def is_gone(number: int) -> bool:
        return found[number].transport.is_closing() and found[number]._turn is None

    with running(application) as port:
        for number in (0, 1):
            with socket.create_connection(("127.0.0.1", port), PATIENCE) as peer:
                peer.sendall(post_of("/", b"Content-Length: 0") * 3)
                until(partial(is_ending, number))
            until(partial(is_gone, number))

    assert len(found) == 2


@pytest.mark.parametrize(("path", "most"), [("/known", 1), ("/stranger", 0)])
def test_requests_that_wait_for_an_earlier_one_are_not_parsed_and_answered_in_order(path: str, most: int) -> None:
    found: list[Any] = []
    bodies: list[bytes] = []
    many = 20
    with (
        held_back(found, bodies) as (port, asks),
        socket.create_connection(("127.0.0.1", port), PATIENCE) as peer,
    ):
        peer.sendall(post_of(path, b"Content-Length: 0"))
        answer_of(peer)
        large = b"X-More: " + b"y" * (MOST_HEADER_BYTES // 2)
        requests = [post_of("/held", large, b"Content-Length: 2") + b"%02d" % number for number in range(many)]
        sending = threading.Thread(target=peer.sendall, args=[b"".join(requests)])
        sending.start()
        until(lambda: found and found[0].flow.is_held)
        waiting = len(found[0].pipeline)
        asks.set()
        said = b""
        while said.count(b"}") < many:
            said += peer.recv(65536)
        sending.join(PATIENCE)

    assert waiting == most
    assert bodies == [b"", *(b"%02d" % number for number in range(many))]


def test_a_body_of_very_small_chunks_is_read_slowly_and_everybody_else_is_answered_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(uvicorn_protocols, "SMALL_PER_SECOND", 1 / HOUR)
    found: list[Any] = []
    with held_back(found, []) as (port, _), ExitStack() as stack:
        peer, other = (stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE)) for _ in range(2))
        peer.sendall(post_of("/", b"Transfer-Encoding: chunked") + b"1\r\nx\r\n" * 10_000)
        until(lambda: found and found[0]._pause is not None)
        other.sendall(post_of("/", b"Content-Length: 0"))
        answer = answer_of(other)
        kept, reading = len(found[0]._unparsed), found[0].transport.is_reading()
        found[0].loop.call_soon_threadsafe(found[0].transport.abort)  # that its peer goes is not seen during a pause

    assert answer.startswith(b"HTTP/1.1 200")
    assert kept > 0
    assert not reading


def test_a_body_of_chunks_of_every_size_arrives_as_it_was_sent() -> None:
    bodies: list[bytes] = []
    pieces = [os.urandom(size) for size in (1, 10, 5000, 1, 1, 100_000, 3, 70_000)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    with held_back([], bodies) as (port, _), socket.create_connection(("127.0.0.1", port), PATIENCE) as peer:
        peer.sendall(post_of("/", b"Transfer-Encoding: chunked") + chunks)
        answer = answer_of(peer)

    assert answer.startswith(b"HTTP/1.1 200")
    assert bodies == [b"".join(pieces)]


# --------------------------------------------------------------------------------------------------- uvicorn's inner parts
OVERRIDDEN: dict[type, str] = {
    LimitedHttpProtocol: (
        "connection_made connection_lost data_received on_header on_headers_complete on_body on_message_begin "
        "on_message_complete on_response_complete send_400_response timeout_keep_alive_handler handle_websocket_upgrade "
        "pause_writing resume_writing shutdown _start_asgi_task"
    ),
    LimitedWebSocketProtocol: (
        "handle_connect data_received connection_lost handle_cont handle_ping handle_pong handle_close handle_parser_exception "
        "resume_writing send_receive_event_to_app keepalive_timeout run_asgi send shutdown"
    ),
}
USED: dict[type, str] = {
    LimitedHttpProtocol: (
        "loop transport parser headers cycle pipeline flow server_state client scope timeout_keep_alive_task "
        "timeout_keep_alive"
    ),
    LimitedWebSocketProtocol: (
        "loop transport conn queue frames curr_msg_data_type read_paused writable close_sent disconnected "
        "handshake_complete handshake_initiated"
    ),
}


@pytest.mark.parametrize("ours", OVERRIDDEN, ids=lambda ours: ours.__name__)
def test_the_library_still_calls_what_is_overridden(ours: type) -> None:
    [library] = ours.__bases__

    assert [name for name in OVERRIDDEN[ours].split() if name not in vars(library)] == []
    assert [name for name in OVERRIDDEN[ours].split() if name not in vars(ours)] == []


@pytest.mark.parametrize("ours", USED, ids=lambda ours: ours.__name__)
def test_the_library_still_has_what_is_used(ours: Any) -> None:
    async def make() -> Any:
        config = uvicorn.Config(echo, ws=LimitedWebSocketProtocol, lifespan="off", log_config=None)
        return ours(config, ServerState(), {})

    made = asyncio.run(make())

    assert [name for name in USED[ours].split() if not hasattr(made, name)] == []
    if ours is LimitedWebSocketProtocol:
        assert [
            name
            for name in ("handshake_exc", "parser_exc", "data_to_send", "send_text", "accept", "send_response")
            if not hasattr(made.conn, name)
        ] == []


# ------------------------------------------------------------------------------------------------------------ patience
@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A server that waits for no request for long."""
    monkeypatch.setattr(uvicorn_protocols, "HEADER_SECONDS", SOON)
    with serving() as served:
        yield served


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


@pytest.mark.parametrize("sent", [b"", b"G", b"GET /health HTTP/1.1\r\nHost:", b"POST /mcp HTTP/1.1\r\n"])
def test_a_request_that_never_ends_is_cut_off(impatient: Served, sent: bytes) -> None:
    with raw(impatient) as peer:
        with suppress(ConnectionError):  # it may be cut before this comes
            peer.sendall(sent)

        assert ends(peer) == b""


def test_headers_without_end_are_cut_off_long_before_they_fill_the_memory(caplog: pytest.LogCaptureFixture) -> None:
    line = b"X-More: " + b"y" * 1000 + b"\r\n"
    with caplog.at_level(logging.INFO, "proctor.server"), serving() as served, raw(served) as peer:
        peer.sendall(get(served))
        sent = 0
        with suppress(ConnectionError):
            while sent < ENOUGH:
                peer.sendall(line)
                sent += len(line)

        assert sent < ENOUGH
        assert b"200" not in ends(peer)
        assert "headers are too large" in caplog.text


def test_many_headers_in_many_requests_are_no_headers_without_end() -> None:
    with serving() as served, raw(served) as peer:
        for _ in range(5):
            peer.sendall(get(served) + b"X-More: " + b"y" * (MOST_HEADER_BYTES // 3) + b"\r\n\r\n")
            answer = b""
            while not answer.endswith(b"}"):
                answer += peer.recv(65536)

            assert answer.startswith(b"HTTP/1.1 200")


def test_what_is_no_http_is_refused_and_noted_without_its_words(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), serving() as served, raw(served) as peer:
        peer.sendall(b"\x16\x03\x01swordfish\r\n\r\n")

        assert ends(peer).startswith(b"HTTP/1.1 400")
    assert "no HTTP" in caplog.text
    assert "swordfish" not in caplog.text


def test_a_body_that_never_ends_is_cut_off(impatient: Served) -> None:
    head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{impatient.port}\r\nContent-Length: 100\r\n\r\n"
    with raw(impatient) as peer:
        with suppress(ConnectionError):
            peer.sendall(head.encode() + b"{")

        assert b"200" not in ends(peer)


def answer_of(peer: socket.socket) -> bytes:
    answer = b""
    while not answer.endswith(b"}"):
        answer += peer.recv(65536)
    return answer


def test_a_second_request_that_never_ends_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as served, raw(served) as peer:
        peer.sendall(get(served) + b"\r\n")
        first = answer_of(peer)
        monkeypatch.setattr(uvicorn_protocols, "HEADER_SECONDS", SOON)
        peer.sendall(get(served))

        assert first.startswith(b"HTTP/1.1 200")
        assert ends(peer) == b""


def test_a_second_request_in_time_is_answered() -> None:
    with serving() as served, raw(served) as peer:
        peer.sendall(get(served) + b"\r\n")
        first = answer_of(peer)
        peer.sendall(get(served) + b"Connection: close\r\n\r\n")
        second = ends(peer)

    assert first.startswith(b"HTTP/1.1 200")
    assert second.startswith(b"HTTP/1.1 200")


def test_agents_leave_file_descriptors_to_those_who_drive_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_protocols, "MOST_CONNECTIONS", 3)
    with serving(agent_port=0) as served, ExitStack() as stack:
        port = urlsplit(served.server.agents_address or "").port
        peers = [stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE)) for _ in range(4)]

        assert ends(peers[0]) == b""
        peers[3].sendall(f"GET /health HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
        assert ends(peers[3]).startswith(b"HTTP/1.1 200")


def test_the_connections_of_a_grant_that_has_died_are_told_to_make_way(monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten: list[str] = []
    monkeypatch.setattr(app, "forget_agent", lambda _state, grant: forgotten.append(grant))
    with serving(agent_port=0) as served, Talk(served, greet=True) as talk:
        session = Session(talk)
        granted = session.ask("reset", {"grant": {"agent": "agent"}})["data"]["grant"]
        session.ask("revoke", {"grant": granted["grant"]})

        assert until(lambda: forgotten) == [granted["grant"]]


def test_an_agents_connections_are_forgotten_by_the_listener_that_has_them() -> None:
    state = ServerState()
    forget_agent(state, "nobody")
    kept = uvicorn_protocols._find_connections(state, lambda: 20)
    wire: Any = object()
    kept.add(wire)
    kept.authenticate(wire, "agent")
    forget_agent(state, "agent")

    assert kept.unauthenticated == 1


def test_a_peer_that_never_reads_its_reply_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_protocols, "LINGER_SECONDS", SOON)
    gone = threading.Event()

    async def lavish(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(100):
            await send({"type": "http.response.body", "body": bytes(2**20), "more_body": True})
        await receive()  # the request
        if (await receive())["type"] == "http.disconnect":
            gone.set()

    with running(lavish) as port, socket.create_connection(("127.0.0.1", port), PATIENCE) as peer:
        peer.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")

        assert gone.wait(PATIENCE)


def test_a_peer_that_reads_slowly_gets_a_reply_that_takes_longer_than_the_patience(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(uvicorn_protocols, "LINGER_SECONDS", HOUR)
    size, kept_by_kernel = 2**20, 2**14
    replies: list[tuple[Jumps, asyncio.Transport]] = []

    async def lavish(scope: Any, receive: Any, send: Any) -> None:
        transport = http_of(scope).transport
        # A fixed size: left alone, the kernel takes the whole reply on some machines and leaves nothing to wait for.
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, kept_by_kernel)
        replies.append((Jumps(asyncio.get_running_loop()), transport))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
        await send({"type": "http.response.body", "body": bytes(size)})

    with running(lavish, "asyncio") as port, closing(socket.socket()) as peer:
        peer.settimeout(PATIENCE)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, kept_by_kernel)
        peer.connect(("127.0.0.1", port))
        peer.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        read = len(peer.recv(1))
        ((clock, transport),) = replies
        unsent = until(transport.get_write_buffer_size)
        while piece := peer.recv(kept_by_kernel):
            read += len(piece)
            if transport.get_write_buffer_size() < unsent:
                clock.jump(1.1 * HOUR)
                unsent = transport.get_write_buffer_size()

    assert read > size
    assert clock.seconds > 2 * HOUR


def test_a_peer_that_answers_pings_stays_however_long_it_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "PING_SECONDS", HOUR)
    with serving() as served, raw(served) as peer:
        clock = Jumps(served.loop)
        upgraded(served, peer)
        for _ in range(4):
            clock.jump(1.1 * HOUR)
            opcode, payload = next_frame(peer)
            assert opcode == PING
            peer.sendall(frame(payload, PONG) + frame(b'{"type":"metadata"}'))
            opcode, payload = next_frame(peer)

            assert opcode == TEXT
            assert b"CartPole" in payload


def test_many_messages_at_once_are_answered_in_order() -> None:
    bad = b'{"type":"schema","id":1}'
    large = b'{"type":"nonsense","data":"' + b"x" * 200_000 + b'"}'
    with serving() as served, raw(served) as peer:
        upgraded(served, peer)
        for message in (b'{"type":"metadata"}', bad, large, bad):
            peer.sendall(frame(message) * 12)
        answers = [json.loads(next_frame(peer)[1]) for _ in range(48)]

    codes = [answer["data"].get("code") for answer in answers]
    assert codes == [None] * 12 + ["VALIDATION_ERROR"] * 12 + ["UNKNOWN_TYPE"] * 12 + ["VALIDATION_ERROR"] * 12


def test_what_comes_while_a_step_hangs_is_answered_in_its_order() -> None:
    key = f"held-{uuid.uuid4().hex}"
    target = "tests.server.environments:Blocking"
    bad = frame(b'{"type":"step","data":{"action":"' + b"x" * 20_000 + b'"}}')
    with serving(target, settings={"key": key}, max_pending=1000) as served, raw(served) as peer:
        upgraded(served, peer)
        peer.sendall(frame(b'{"type":"reset"}') + frame(b'{"type":"step","data":{"action":9}}'))
        assert diary(key).reached.wait(PATIENCE)
        peer.sendall((frame(b'{"type":"state"}') + bad) * 20 + frame(b"[1]", BINARY) + frame(b'{"type":"state"}'))
        diary(key).gate.set()
        answers = [json.loads(next_frame(peer)[1]) for _ in range(44)]

    told = [answer["data"].get("code", answer["type"]) for answer in answers]
    assert told[:2] == ["observation", "observation"]
    assert told[2:] == ["state", "VALIDATION_ERROR"] * 20 + ["INVALID_JSON", "state"]


def test_text_that_is_none_ends_the_connection() -> None:
    with serving() as served, raw(served) as peer:
        upgraded(served, peer)
        peer.sendall(frame(b'{"type":"metadata"}') + frame(b'{"type":"\xff"}'))
        first, last = next_frame(peer), next_frame(peer)

    assert first[0] == TEXT
    assert (last[0], int.from_bytes(last[1][:2], "big")) == (CLOSE, 1007)


def test_a_reply_does_not_wait_for_what_comes_after_it() -> None:
    key = f"held-{uuid.uuid4().hex}"
    with serving("tests.server.environments:Blocking", settings={"key": key}) as served, raw(served) as peer:
        upgraded(served, peer)
        peer.sendall(frame(b'{"type":"reset"}'))
        next_frame(peer)
        peer.sendall(frame(b'{"type":"state"}') + frame(b'{"type":"step","data":{"action":9}}'))
        first = json.loads(next_frame(peer)[1])
        hanging = diary(key).reached.wait(PATIENCE) and not diary(key).gate.is_set()
        diary(key).gate.set()
        second = json.loads(next_frame(peer)[1])

    assert hanging
    assert (first["type"], second["type"]) == ("state", "observation")


def test_a_peer_that_leaves_with_replies_on_their_way_disturbs_nobody() -> None:
    with serving() as served:
        for _ in range(10):
            with raw(served) as peer:
                upgraded(served, peer)
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                peer.sendall(frame(b'{"type":"schema"}') * 50)
        until(lambda: not served.server.plane.connections)
        with raw(served) as peer:
            peer.sendall(get(served) + b"Connection: close\r\n\r\n")
            assert ends(peer).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("extra", ["X-Long: " + "x" * 9000 + "\r\n", "".join(f"X-{n}: y\r\n" for n in range(300))])
def test_a_handshake_that_is_too_much_is_refused(extra: str) -> None:
    with serving() as served, raw(served) as peer:
        peer.sendall(handshake(Address(served.port, None), extra=extra))

        assert ends(peer).startswith(b"HTTP/1.1 4")


def test_a_handshake_that_is_none_is_refused() -> None:
    with serving() as served, raw(served) as peer:
        peer.sendall(handshake(Address(served.port, None)).replace(b"Sec-WebSocket-Key", b"Sec-WebSocket-Quay"))

        assert ends(peer).startswith(b"HTTP/1.1 4")


def test_a_peer_that_answers_no_pings_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "PING_SECONDS", SOON)
    with serving() as served, raw(served) as peer:
        upgraded(served, peer)

        said = ends(peer)

    assert said.startswith(bytes([0x89]))


def test_a_peer_that_never_says_goodbye_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_protocols, "LINGER_SECONDS", SOON)
    with serving() as served, raw(served) as peer:
        upgraded(served, peer)
        peer.sendall(frame(b'{"type":"close"}'))

        said = ends(peer)

    assert bytes([0x80 | CLOSE]) in said


def test_a_closed_connection_leaves_no_clock_behind() -> None:
    with serving() as served:
        for _ in range(5):
            with raw(served) as peer:
                peer.sendall(b"GET")

        with raw(served) as peer:
            peer.sendall(get(served) + b"Connection: close\r\n\r\n")
            assert ends(peer).startswith(b"HTTP/1.1 200")
