"""A server that speaks HTTP loses patience with peers that do not do their part, and keeps little for them."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest
from uvicorn.server import ServerState

from proctor.server import app
from proctor.server.net import connections, uvicorn_http
from proctor.server.net.connections import REFUSED, authenticate, forget_agent, note_refusal
from proctor.server.net.uvicorn_http import MOST_HEADER_BYTES
from tests.server.live_server import PATIENCE, Served, Session, Talk, serving, until
from tests.server.net.peers import ENOUGH, HOUR, SOON, Jumps, ends, get, raw, running


def http_of(scope: Any) -> Any:
    """Return the protocol object that serves an HTTP request."""
    return scope["extensions"][REFUSED].__self__


def answer_of(peer: socket.socket) -> bytes:
    answer = b""
    while not answer.endswith(b"}"):
        answer += peer.recv(65536)
    return answer


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A server that waits for no request for long."""
    monkeypatch.setattr(uvicorn_http, "HEADER_SECONDS", SOON)
    with serving() as served:
        yield served


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
    with held_back(found, bodies) as (port, asks), socket.create_connection(("127.0.0.1", port), PATIENCE) as peer:
        request = post_of("/held", b"Content-Length: %d" % len(content)) + content
        sending = threading.Thread(target=peer.sendall, args=[request])
        sending.start()
        until(lambda: found and found[0].flow.is_held)
        kept, reading = len(found[0].cycle.body), found[0].transport.is_reading()
        asks.set()
        answer = answer_of(peer)
        sending.join(PATIENCE)
        until(lambda: len(found[0].cycle.body) == 0)

    assert 0 < kept <= 2 * uvicorn_http.PIECE_BYTES
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
    with held_back(found, bodies) as (port, asks), socket.create_connection(("127.0.0.1", port), PATIENCE) as peer:
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
    monkeypatch.setattr(connections, "SMALL_PER_SECOND", 1 / HOUR)
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


def test_a_second_request_that_never_ends_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as served, raw(served) as peer:
        peer.sendall(get(served) + b"\r\n")
        first = answer_of(peer)
        monkeypatch.setattr(uvicorn_http, "HEADER_SECONDS", SOON)
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
    monkeypatch.setattr(uvicorn_http.SecondaryHttpProtocol, "most", 3)
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
    kept = connections.find_connections(state, 1, 20)
    wire: Any = object()
    kept.add(wire)
    kept.authenticate(wire, "agent")
    forget_agent(state, "agent")

    assert kept.unauthenticated == 1


def test_a_peer_that_never_reads_its_reply_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_http, "LINGER_SECONDS", SOON)
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
    monkeypatch.setattr(uvicorn_http, "LINGER_SECONDS", HOUR)
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


def test_a_closed_connection_leaves_no_clock_behind() -> None:
    with serving() as served:
        for _ in range(5):
            with raw(served) as peer:
                peer.sendall(b"GET")

        with raw(served) as peer:
            peer.sendall(get(served) + b"Connection: close\r\n\r\n")
            assert ends(peer).startswith(b"HTTP/1.1 200")
