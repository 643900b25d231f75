"""A WebSocket has bounds on time and memory, hands messages over at once, and answers in order."""

from __future__ import annotations

import json
import socket
import struct
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from proctor.client import GenericClient
from proctor.server import app
from proctor.server.net import connections, uvicorn_websocket
from proctor.server.net.uvicorn_http import LimitedHttpProtocol
from proctor.server.net.uvicorn_websocket import (
    ABORT,
    LISTEN,
    LimitedWebSocketProtocol,
    QuickWebSocketProtocol,
    choose_websocket_protocol,
)
from tests.server.attacks.raw_socket import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, Address, frame, handshake
from tests.server.environments import diary
from tests.server.live_server import PATIENCE, serving, until
from tests.server.net.peers import HOUR, SOON, Jumps, echo, ends, get, linked, next_frame, raw, running, upgraded

pytestmark = pytest.mark.anyio


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


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small frames are read as fast as they come."""
    monkeypatch.setattr(connections, "SMALL_PER_SECOND", 1e12)


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


@pytest.mark.parametrize(
    "small",
    [frame(b"", CONTINUATION, final=False), frame(b"x", CONTINUATION, final=False), frame(b"", PING), frame(b"", PONG)],
    ids=["empty fragments", "small fragments", "pings", "pongs"],
)
def test_a_flood_of_small_frames_is_read_slowly_and_everybody_else_is_answered_meanwhile(
    small: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "SMALL_PER_SECOND", 1 / HOUR)
    monkeypatch.setattr(
        uvicorn_websocket, "FRAMES_BYTES", 256
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
    monkeypatch.setattr(connections, "SMALL_PER_SECOND", 1 / HOUR)
    content = b"x" * connections.SMALL_BYTES
    count = 10 * connections.MOST_SMALL
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
        monkeypatch.setattr(connections, "SMALL_PER_SECOND", 1 / HOUR)
        peer.sendall(frame(b"", PONG) * 200)
        until(lambda: protocol._pause is not None)

        def read_on() -> None:
            protocol.transport.resume_reading()
            protocol.data_received(frame(b"late"))
            done.set()

        loop.call_soon_threadsafe(read_on)
        assert done.wait(PATIENCE)
        assert not protocol.transport.is_reading()

        monkeypatch.setattr(connections, "SMALL_PER_SECOND", 1e12)
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


OVERRIDDEN: dict[type, str] = {
    LimitedHttpProtocol: (
        "connection_made connection_lost data_received on_header on_headers_complete on_body on_message_begin "
        "on_message_complete on_response_complete send_400_response timeout_keep_alive_handler handle_websocket_upgrade "
        "pause_writing resume_writing shutdown _start_asgi_task"
    ),
    LimitedWebSocketProtocol: (
        "handle_connect data_received connection_lost handle_cont handle_ping handle_pong resume_writing keepalive_timeout "
        "run_asgi send shutdown"
    ),
    QuickWebSocketProtocol: "handle_connect handle_close handle_parser_exception send_receive_event_to_app send",
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
    library = next(each for each in ours.__mro__ if each.__module__.startswith("uvicorn"))

    assert [name for name in OVERRIDDEN[ours].split() if name not in vars(library)] == []
    assert [name for name in OVERRIDDEN[ours].split() if name not in vars(ours)] == []


@pytest.mark.parametrize("ours", USED, ids=lambda ours: ours.__name__)
async def test_the_library_still_has_what_is_used(ours: Any) -> None:
    config = uvicorn.Config(echo, ws=LimitedWebSocketProtocol, lifespan="off", log_config=None)
    made = ours(config, ServerState(), {})

    assert [name for name in USED[ours].split() if not hasattr(made, name)] == []
    if ours is LimitedWebSocketProtocol:
        assert [
            name
            for name in ("handshake_exc", "parser_exc", "data_to_send", "send_text", "accept", "send_response")
            if not hasattr(made.conn, name)
        ] == []


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
    monkeypatch.setattr(uvicorn_websocket, "LINGER_SECONDS", SOON)
    with serving() as served, raw(served) as peer:
        upgraded(served, peer)
        peer.sendall(frame(b'{"type":"close"}'))

        said = ends(peer)

    assert bytes([0x80 | CLOSE]) in said


@pytest.mark.parametrize(
    ("uvicorn_version", "websockets_version", "quick"),
    [("0.54.1", "17.0", True), ("0.55.0", "17.0", False), ("1.0.0", "17.0", False), ("0.44.0", "18.0", False)],
)
def test_with_libraries_that_it_was_not_tried_with_the_plain_way_is_taken(
    uvicorn_version: str, websockets_version: str, quick: bool
) -> None:
    versions = {"uvicorn": uvicorn_version, "websockets": websockets_version}

    assert (choose_websocket_protocol(versions.__getitem__) is QuickWebSocketProtocol) == quick


def test_the_plain_way_serves_whole_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "choose_websocket_protocol", lambda: LimitedWebSocketProtocol)
    with serving() as served, GenericClient.blocking(served.url) as client:
        client.reset(seed=1)

        assert [client.step({"action": 1}).metadata for _ in range(3)]
