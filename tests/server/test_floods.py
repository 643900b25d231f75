"""Floods of a listener without a credential: what they send is not kept, and they shut nobody out.

Each listener is attacked: the one of the control plane, of the agent plane, and of `proctor view`.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from bench.attacks import socket_floods as floods
from bench.attacks.socket_floods import Flood, Listener, ask_health, measure_flood, open_idle, open_slow, run_flood
from proctor.server.net import connections
from proctor.server.net.connections import MOST_DISCARDED
from proctor.server.net.uvicorn_http import MOST_HEADER_BYTES, MOST_HEADERS, MOST_PIPELINED, LimitedHttpProtocol
from tests.cli.recordings import real, written
from tests.server.agents.stand_in import TOKEN, plane_of
from tests.server.attacks.vitals import SECRET, victim
from tests.server.live_server import PATIENCE, serving
from tests.server.viewer_http.test_standalone import shown

KINDS = ("control", "agents", "view")
ENOUGH = 48 * 2**20
"""Bytes: more than the kernel keeps of what nobody reads."""
OPEN_FILES = 128
"""Of the servers below: then a listener keeps 16 connections without a credential."""
UNKNOWN = 16
CUT: tuple[Flood, ...] = (
    *(floods.request_line, floods.one_header, floods.many_headers, floods.one_trailer, floods.many_trailers),
    *(floods.chunk_extension, floods.small_chunks, floods.body, floods.body_of_open_path, floods.body_of_code),
    *(floods.pipelined, floods.refused_pipelined, floods.empty_lines),
)


@dataclass(frozen=True)
class Attacked:
    """A listener, a page that anybody may read there, and a request with a credential."""

    there: Listener
    front: str
    known: Callable[[], bytes]
    status: int = 200
    """Of the answer to a request with a credential."""

    def ask(self, peer: socket.socket, request: bytes) -> int:
        """Return the status of the answer to a request, which is read to its end; 0 if the connection was closed."""
        try:
            peer.sendall(request)
            answer = HTTPResponse(peer)
            answer.begin()
            answer.read()
        except (ConnectionError, HTTPException):
            return 0
        return answer.status

    def open_page(self) -> bytes:
        """Return a request for a page that needs no credential."""
        return self.there.head(f"GET {self.front} HTTP/1.1") + b"\r\n"

    def connect(self) -> socket.socket:
        return socket.create_connection((self.there.host, self.there.port), PATIENCE)


@contextmanager
def attacked(kind: str, folder: Path) -> Iterator[Attacked]:
    """Give one of the three listeners."""
    with ExitStack() as stack:
        if kind == "control":
            served = stack.enter_context(serving(secret=SECRET))
            there = Listener("127.0.0.1", served.port, "/mcp", SECRET)
            request = there.head("GET /metadata HTTP/1.1", f"Authorization: Bearer {SECRET}") + b"\r\n"
            yield Attacked(there, "/health", lambda: request)
        elif kind == "agents":
            there = Listener("127.0.0.1", stack.enter_context(plane_of()).port, "/mcp")
            # With a token there is no such page; without one the answer would be 401.
            known = there.head("GET /nothing HTTP/1.1", f"Authorization: Bearer {TOKEN}") + b"\r\n"
            yield Attacked(there, "/health", lambda: known, 404)
        else:
            ledger = written(folder, real("walk", "proctor/PlumeSearch-v0", steps=2, settings={"grid_size": [16, 16]}))
            server = stack.enter_context(shown(ledger))
            there = Listener("127.0.0.1", urlsplit(server.url).port or 0, "/viewer/enter")
            yield Attacked(there, "/viewer/", lambda: visit_of(there, server.told[-1].partition("#code=")[2]))


def visit_of(there: Listener, code: str) -> bytes:
    """Return a request of a browser that has traded its code for a cookie."""
    body = json.dumps({"code": code}).encode()
    with socket.create_connection((there.host, there.port), PATIENCE) as peer:
        peer.sendall(there.post(f"Content-Length: {len(body)}", "Connection: close") + body)
        answer = HTTPResponse(peer)
        answer.begin()
        cookie = answer.getheader("set-cookie", "").partition(";")[0]
    return there.head("GET /viewer/visit HTTP/1.1", f"Cookie: {cookie}") + b"\r\n"


def ended(peer: socket.socket) -> bytes:
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


def sent_until_cut(flood: Flood, there: Listener) -> int:
    """Return how much of a flood was sent before the server ended the connection."""
    sent = 0
    with socket.create_connection((there.host, there.port), PATIENCE) as peer, suppress(ConnectionError):
        for piece in flood(there):
            peer.sendall(piece)
            sent += len(piece)
            if sent >= ENOUGH:
                break
    return sent


@pytest.fixture(scope="module", params=KINDS)
def listener(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    with attacked(request.param, tmp_path_factory.mktemp(request.param)) as there:
        yield there


@pytest.fixture(params=KINDS)
def small(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Attacked]:
    """A listener with few file descriptors; idle connections are closed for no other reason than that they are too many."""
    made = LimitedHttpProtocol.__init__

    def patient(self: LimitedHttpProtocol, *arguments: Any, **keywords: Any) -> None:
        made(self, *arguments, **keywords)
        self.timeout_keep_alive = 3600

    monkeypatch.setattr(LimitedHttpProtocol, "__init__", patient)
    monkeypatch.setattr("proctor.server.net.uvicorn_http.HEADER_SECONDS", 3600.0)
    monkeypatch.setattr(connections, "LOG_SECONDS", 3600.0)
    monkeypatch.setattr(connections, "read_open_files_limit", lambda: OPEN_FILES)
    with attacked(request.param, tmp_path) as there:
        yield there


@pytest.mark.parametrize("flood", CUT, ids=lambda flood: flood.__name__)
def test_what_has_no_end_is_cut_off_long_before_it_fills_the_memory(listener: Attacked, flood: Flood) -> None:
    assert sent_until_cut(flood, listener.there) < ENOUGH

    with listener.connect() as peer:
        assert listener.ask(peer, listener.open_page()) == 200


def test_a_credential_in_a_trailer_is_none(listener: Attacked) -> None:
    secret = SECRET if listener.there.token else TOKEN
    request = listener.there.head("POST /mcp HTTP/1.1", "Transfer-Encoding: chunked", "Connection: close") + b"\r\n"
    with listener.connect() as peer:
        peer.sendall(request + b"2\r\n{}\r\n0\r\nAuthorization: Bearer " + secret.encode() + b"\r\n\r\n")

        assert ended(peer).startswith(b"HTTP/1.1 401")


def test_a_host_in_a_trailer_is_none(listener: Attacked) -> None:
    there = listener.there
    head = b"GET " + listener.front.encode() + b" HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    with listener.connect() as peer:
        peer.sendall(head + b"0\r\nHost: %s:%d\r\n\r\n" % (there.host.encode(), there.port))

        assert ended(peer).startswith(b"HTTP/1.1 400")


def test_trailers_that_are_few_are_dropped_and_the_request_is_answered(listener: Attacked) -> None:
    head = listener.there.head(f"GET {listener.front} HTTP/1.1", "Transfer-Encoding: chunked", "Connection: close")
    with listener.connect() as peer:
        peer.sendall(head + b"\r\n1\r\nx\r\n0\r\nExpires: never\r\n\r\n")

        assert ended(peer).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(("count", "answer"), [(MOST_HEADERS, b"HTTP/1.1 200"), (MOST_HEADERS + 1, b"")])
def test_a_request_has_so_many_trailers_and_no_more(listener: Attacked, count: int, answer: bytes) -> None:
    head = listener.there.head(f"GET {listener.front} HTTP/1.1", "Transfer-Encoding: chunked", "Connection: close")
    with listener.connect() as peer:
        peer.sendall(head + b"\r\n0\r\n" + b"a: b\r\n" * count + b"\r\n")

        assert ended(peer)[:12] == answer


@pytest.mark.parametrize(("count", "status"), [(MOST_HEADERS - 2, b"200"), (MOST_HEADERS, b"431")])
def test_a_request_has_so_many_headers_and_no_more(listener: Attacked, count: int, status: bytes) -> None:
    lines = [f"X-{number}: y" for number in range(count)]
    with listener.connect() as peer:
        peer.sendall(listener.there.head(f"GET {listener.front} HTTP/1.1", "Connection: close", *lines) + b"\r\n")

        assert ended(peer).startswith(b"HTTP/1.1 " + status)


def test_headers_may_be_as_large_as_the_limit(listener: Attacked) -> None:
    head = listener.there.head(f"GET {listener.front} HTTP/1.1", "Connection: close")
    with listener.connect() as peer:
        peer.sendall(head + b"X-More: " + b"y" * (MOST_HEADER_BYTES - len(head) - 12) + b"\r\n\r\n")

        assert ended(peer).startswith(b"HTTP/1.1 200")


def test_a_few_requests_at_once_are_answered_in_order(listener: Attacked) -> None:
    last = listener.there.head("GET /nothing HTTP/1.1", "Connection: close") + b"\r\n"
    with listener.connect() as peer:
        peer.sendall(listener.open_page() * MOST_PIPELINED + last)
        answers = ended(peer).split(b"HTTP/1.1 ")[1:]

    assert [answer[:3] for answer in answers] == [b"200"] * MOST_PIPELINED + [b"401"]


@pytest.mark.slow
def test_no_flood_makes_a_server_process_grow() -> None:
    """Every flood, of one control plane; wide margins, since what is measured is a whole process."""
    with victim("CartPole-v1") as there:
        listener = Listener("127.0.0.1", there.address.port, "/mcp", SECRET)
        for flood in floods.WITHOUT_CREDENTIAL + floods.WITH_CREDENTIAL:
            report, grown = measure_flood(flood, listener, there.process.pid, 1.0)

            assert report.sent > 0, flood.__name__
            assert grown < 32 * 2**20, flood.__name__
            assert there.alive
        assert ask_health(listener, PATIENCE) is not None


@pytest.fixture(params=KINDS)
def slow(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Attacked]:
    """A listener that may refuse two requests at once, and the next one in an hour."""
    monkeypatch.setattr(connections, "REFUSALS_AT_ONCE", 2)
    monkeypatch.setattr(connections, "REFUSALS_PER_SECOND", 1 / 3600)
    with attacked(request.param, tmp_path) as there:
        yield there


def assert_waits(peer: socket.socket) -> None:
    """Fail if something comes."""
    peer.settimeout(0.2)
    with pytest.raises(TimeoutError):
        peer.recv(1)


def test_refusals_wait_when_there_are_many_and_who_has_a_credential_or_reads_a_page_does_not(slow: Attacked) -> None:
    refused = slow.there.head("GET /nothing HTTP/1.1") + b"\r\n"
    with ExitStack() as stack:
        known, stranger, another = (stack.enter_context(slow.connect()) for _ in range(3))
        request = slow.known()
        before = slow.ask(known, request)
        statuses = [slow.ask(stranger, refused) for _ in range(2)]
        for peer in (stranger, another):
            peer.sendall(refused)
            assert_waits(peer)
        newest, reader = (stack.enter_context(slow.connect()) for _ in range(2))

        assert statuses == [401, 401]
        assert (before, slow.ask(known, request)) == (slow.status, slow.status)
        assert slow.ask(newest, request) == slow.status
        assert slow.ask(reader, slow.open_page()) == 200


@pytest.mark.parametrize("kind", KINDS)
def test_pages_that_anybody_may_read_have_a_pace_of_their_own(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(connections, "PAGES_AT_ONCE", 2)
    monkeypatch.setattr(connections, "PAGES_PER_SECOND", 1 / 3600)
    with attacked(kind, tmp_path) as there, there.connect() as peer, there.connect() as known:
        if kind != "view":  # the code was traded on such a page
            assert there.ask(peer, there.open_page()) == 200
        credential = there.known()
        assert there.ask(peer, there.open_page()) == 200
        peer.sendall(there.open_page())
        assert_waits(peer)

        assert there.ask(known, credential) == there.status
        assert there.ask(known, there.open_page()) == 200


def test_what_is_no_http_and_what_is_too_large_is_refused_at_the_same_pace(slow: Attacked) -> None:
    large = slow.there.head("GET / HTTP/1.1") + b"X-More: " + b"y" * 2 * MOST_HEADER_BYTES
    for request, status in ((b"nonsense\r\n\r\n", b"400"), (large, b"431")):
        with slow.connect() as peer:
            peer.sendall(request)
            assert ended(peer)[9:12] == status
    for request in (b"nonsense\r\n\r\n", large):
        with slow.connect() as newest:
            newest.sendall(request)
            assert_waits(newest)


@pytest.mark.parametrize("slow", ["control"], indirect=True)
@pytest.mark.parametrize("damage", ["key", "path"])
def test_a_handshake_that_cannot_be_read_is_refused_at_the_same_pace_and_logged(
    slow: Attacked, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    whole = slow.there.handshake("/" + "a" * 9000 if damage == "path" else "/ws")
    handshake = whole.replace(b"Sec-WebSocket-Key", b"Sec-WebSocket-Quay") if damage == "key" else whole
    with caplog.at_level(logging.INFO, "proctor.server"):
        for _ in range(2):
            with slow.connect() as peer:
                peer.sendall(handshake)
                assert ended(peer).startswith(b"HTTP/1.1 4")
        with slow.connect() as newest:
            newest.sendall(handshake)
            assert_waits(newest)

    assert len([message for message in caplog.messages if "no handshake" in message]) == 3


@pytest.mark.parametrize("slow", ["control"], indirect=True)
def test_a_handshake_without_a_credential_is_refused_at_the_same_pace(slow: Attacked) -> None:
    handshake = Listener(slow.there.host, slow.there.port).handshake()
    for _ in range(2):
        with slow.connect() as peer:
            peer.sendall(handshake)
            assert ended(peer).startswith(b"HTTP/1.1 401")
    with slow.connect() as newest:
        newest.sendall(handshake)
        assert_waits(newest)


@pytest.mark.parametrize("slow", ["view"], indirect=True)
def test_a_wrong_code_is_refused_at_the_same_pace(slow: Attacked) -> None:
    body = b'{"code":"wrong"}'
    wrong = slow.there.post(f"Content-Length: {len(body)}") + body
    with slow.connect() as peer:
        statuses = [slow.ask(peer, wrong) for _ in range(2)]
        peer.sendall(wrong)
        assert_waits(peer)

    assert statuses == [401, 401]


@pytest.mark.parametrize("slow", ["agents"], indirect=True)
def test_a_bad_token_is_refused_at_the_same_pace_on_a_connection_that_has_shown_a_good_one(slow: Attacked) -> None:
    bad = slow.there.head("GET /nothing HTTP/1.1", "Authorization: Bearer nobodys-token") + b"\r\n"
    with slow.connect() as peer:
        statuses = [slow.ask(peer, slow.known()), slow.ask(peer, bad), slow.ask(peer, bad)]
        peer.sendall(bad)
        assert_waits(peer)

    assert statuses == [404, 401, 401]


def test_requests_behind_a_refused_one_are_not_served(listener: Attacked) -> None:
    refused = listener.there.head("GET /nothing HTTP/1.1") + b"\r\n"
    with listener.connect() as peer:
        peer.sendall(refused + listener.open_page() * 3)
        answers = ended(peer).split(b"HTTP/1.1 ")[1:]

    assert [answer[:3] for answer in answers] == [b"401"]
    assert b"connection: close" in answers[0]


def test_a_refusal_of_a_request_whose_body_goes_on_can_be_read_and_ends_the_connection(listener: Attacked) -> None:
    with listener.connect() as peer:
        peer.sendall(listener.there.head("POST /nothing HTTP/1.1", "Content-Length: 1000000") + b"\r\n{")
        answer = peer.recv(65536)
        with suppress(ConnectionError):
            peer.sendall(b" " * 999_999)
        answer += ended(peer)

    assert answer.startswith(b"HTTP/1.1 401")
    assert b"connection: close" in answer
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("opened", [open_idle, open_slow])
def test_connections_without_a_credential_make_way_for_new_ones_the_oldest_first(small: Attacked, opened: Any) -> None:
    with ExitStack() as stack:
        peers = opened(small.there, 3 * UNKNOWN, stack)
        newest = stack.enter_context(small.connect())

        assert small.ask(newest, small.open_page()) == 200
        for peer in peers[: 2 * UNKNOWN]:
            peer.settimeout(PATIENCE)
            assert ended(peer) == b""


def test_who_was_refused_makes_way_before_who_has_asked_for_nothing_yet(small: Attacked) -> None:
    refused = small.there.head("GET /nothing HTTP/1.1") + b"\r\n"
    request = small.known()
    with ExitStack() as stack:
        patient, stranger = (stack.enter_context(small.connect()) for _ in range(2))
        assert small.ask(stranger, refused) == 401
        open_idle(small.there, UNKNOWN - 1, stack)

        assert ended(stranger) == b""
        assert small.ask(patient, request) == small.status


def test_a_connection_that_has_shown_a_credential_is_kept(small: Attacked) -> None:
    request = small.known()
    with ExitStack() as stack:
        known = stack.enter_context(small.connect())
        first = small.ask(known, request)
        open_idle(small.there, 3 * UNKNOWN, stack)
        second = small.ask(known, request)

    assert (first, second) == (small.status, small.status)


@pytest.mark.parametrize("small", ["agents"], indirect=True)
def test_one_agents_connections_make_way_for_its_own_and_are_no_others_loss(
    small: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MOST_OF_ONE_AGENT", 2)
    request = small.known()
    with ExitStack() as stack:
        peers = [stack.enter_context(small.connect()) for _ in range(4)]
        answers = [small.ask(peer, request) for peer in peers]

        assert answers == [small.status] * 4
        assert [ended(peer) for peer in peers[:2]] == [b"", b""]
        assert [small.ask(peer, request) for peer in peers[2:]] == [small.status] * 2


def test_a_page_that_anybody_may_read_shows_no_credential(small: Attacked) -> None:
    with ExitStack() as stack:
        peer = stack.enter_context(small.connect())
        assert small.ask(peer, small.open_page()) == 200
        open_idle(small.there, 2 * UNKNOWN, stack)

        assert b"HTTP/1.1" not in ended(peer)


def test_an_accepted_websocket_is_kept_and_a_refused_one_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "read_open_files_limit", lambda: OPEN_FILES)
    with serving(secret=SECRET) as served, ExitStack() as stack:
        there = Listener("127.0.0.1", served.port, "/", SECRET)
        peer = stack.enter_context(served.connect())
        for _ in range(2 * UNKNOWN):
            with socket.create_connection(("127.0.0.1", served.port), PATIENCE) as stranger:
                stranger.sendall(Listener("127.0.0.1", served.port).handshake())
                assert ended(stranger).startswith(b"HTTP/1.1 401")
        open_idle(there, 3 * UNKNOWN, stack)
        peer.send('{"type":"metadata"}')

        assert json.loads(peer.recv(PATIENCE))["type"] == "metadata"


def test_refusals_without_number_are_a_bounded_number_of_lines(
    small: Attacked, caplog: pytest.LogCaptureFixture
) -> None:
    refused = small.there.head("GET /nothing HTTP/1.1", "Connection: close") + b"\r\n"
    with caplog.at_level(logging.INFO, "proctor"):
        for request in (refused, b"\x16\x03nonsense\r\n\r\n"):
            for _ in range(connections.MOST_LINES + 10):
                with small.connect() as peer:
                    peer.sendall(request)
                    assert ended(peer).startswith(b"HTTP/1.1 4")

    lines = [message for message in caplog.messages if "refused" in message]
    assert len(lines) == 2 * connections.MOST_LINES


@pytest.mark.parametrize("small", ["view"], indirect=True)
def test_wrong_codes_without_number_are_a_bounded_number_of_lines(
    small: Attacked, caplog: pytest.LogCaptureFixture
) -> None:
    body = b'{"code":"wrong"}'
    with caplog.at_level(logging.INFO, "proctor"), small.connect() as peer:
        for _ in range(connections.MOST_LINES + 10):
            assert small.ask(peer, small.there.post(f"Content-Length: {len(body)}") + body) == 401

    assert len([message for message in caplog.messages if "refused" in message]) == connections.MOST_LINES


def test_a_flood_ends_when_it_has_sent_enough_or_its_time_is_over(
    listener: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(floods, "SEND_SECONDS", PATIENCE)
    enough = MOST_DISCARDED // 2
    sent = run_flood(floods.body, listener.there, PATIENCE, most_bytes=enough)
    none = run_flood(floods.body, listener.there, 0.0)

    assert (sent.connections, none.sent) == (1, 0)
    assert sent.sent >= enough
