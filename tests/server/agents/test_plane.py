"""Who is let in to the agent plane, and what the others are told."""

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import msgspec
import pytest
from sse_starlette.sse import AppStatus

from proctor.access.limits import MIB, RequestLimits
from proctor.contracts.tools import Tool, ToolSafety
from proctor.server.agent_access import AgentTool, AgentView, Progress
from proctor.server.agents import fair_use
from proctor.server.agents import plane as plane_module
from proctor.server.agents.fair_use import OTHERS_AT_ONCE
from proctor.server.agents.mcp_messages import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR
from proctor.server.net import connections
from proctor.server.sessions.tool_results import ToolResult
from tests.server.agents.stand_in import (
    MODERN,
    OTHER_TOKEN,
    PATIENCE,
    TOKEN,
    Plane,
    StandIn,
    StandInView,
    call_of,
    handshake,
    plane_of,
    seen,
)
from tests.server.live_server import until

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
CANARY = "a-canary-that-nobody-may-see"


@pytest.fixture(scope="module")
def shared() -> Iterator[Plane]:
    with plane_of() as plane:
        yield plane


def error_of(reply: Any) -> tuple[int, int, str]:
    """Return status, code and text of a refusal."""
    error = reply.json()["error"]
    return reply.status_code, error["code"], error["message"]


def test_health_needs_no_token(shared: Plane) -> None:
    reply = shared.request("GET", None, "/health")

    assert (reply.status_code, reply.json()) == (200, {"status": "healthy"})


@pytest.mark.parametrize("path", ["/mcp", "/health/", "/", "/ws", "/metrics", "/schema", "/nothing"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PUT", "OPTIONS"])
def test_without_a_token_all_paths_and_methods_are_alike(shared: Plane, path: str, method: str) -> None:
    reply = shared.request(method, None, path, msgspec.json.encode(PING))

    assert reply.status_code == 401
    assert reply.headers["www-authenticate"] == 'Bearer realm="proctor"'
    assert "good for nothing" in error_of(reply)[2]


@pytest.mark.parametrize(
    "token", ["x", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), f"{TOKEN}, {OTHER_TOKEN}", "x" * 5000, f"{TOKEN} {TOKEN}"]
)
def test_a_token_that_is_nearly_right_is_wrong(shared: Plane, token: str) -> None:
    assert shared.post(PING, token).status_code == 401


def test_a_token_elsewhere_than_in_its_header_is_no_token(shared: Plane) -> None:
    in_query = shared.request("POST", None, f"/mcp?token={TOKEN}&access_token={TOKEN}", msgspec.json.encode(PING))
    in_cookie = shared.post(PING, None, Cookie=f"token={TOKEN}")
    in_another = shared.post(PING, None, X_API_Key=TOKEN, Proxy_Authorization=f"Bearer {TOKEN}")

    assert [reply.status_code for reply in (in_query, in_cookie, in_another)] == [401, 401, 401]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1:1"}, 403),
        ({"Host": "a b"}, 400),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1"}, 403),
        ({"Host": "evil.example", "X_Forwarded_Host": "127.0.0.1"}, 403),
    ],
)
def test_a_foreign_host_or_origin_is_turned_away_before_the_token_is_looked_at(
    shared: Plane, headers: dict[str, str], status: int
) -> None:
    for token in (TOKEN, None):
        assert shared.post(PING, token, **headers).status_code == status
    assert shared.request("GET", None, "/health", b"", **headers).status_code == status


@pytest.mark.parametrize(
    "path", ["/", "/mcp/", "//mcp", "/%6dcp", "/mcp%2f", "/MCP", "/mcp/mcp", "/ws", "/metrics", "/reset", "/mcp;a=b"]
)
def test_with_a_token_there_is_nothing_but_one_path(shared: Plane, path: str) -> None:
    reply = shared.request("POST", path=path, content=msgspec.json.encode(PING))

    assert error_of(reply) == (404, INVALID_REQUEST, "there is no such page")


@pytest.mark.parametrize("method", ["PUT", "PATCH", "OPTIONS", "TRACE"])
def test_another_method_is_refused(shared: Plane, method: str) -> None:
    reply = shared.request(method, content=msgspec.json.encode(PING))

    assert reply.status_code == 405
    assert reply.headers["allow"] == "GET, POST, DELETE"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":NaN}}', PARSE_ERROR),
        (b"[]", INVALID_REQUEST),
        (b"[" * 100 + b"]" * 100, INVALID_REQUEST),
        (b'{"a":1}', INVALID_REQUEST),
    ],
)
def test_a_body_that_is_no_message_is_refused_in_our_own_words(shared: Plane, body: bytes, code: int) -> None:
    status, found, text = error_of(shared.post(body))

    assert (status, found) == (400, code)
    assert text.startswith("the body is")


def test_a_body_may_be_as_large_as_the_limit_and_no_larger() -> None:
    fitting = msgspec.json.encode({**PING, "params": {"a": "x" * 1000}})
    with plane_of(limits=RequestLimits(max_body_bytes=len(fitting))) as plane:
        session = plane.opened()
        accepted = plane.post(fitting, mcp_session_id=session)
        declared = plane.post(fitting + b" ", mcp_session_id=session)
        in_pieces = _posted_in_pieces(plane, fitting + b" ")

        assert accepted.status_code == 200
        assert error_of(declared) == (413, INVALID_REQUEST, "the body is too large")
        assert in_pieces.startswith(b"HTTP/1.1 413")


def _posted_in_pieces(plane: Plane, body: bytes) -> bytes:
    """Return the reply to a body whose size is not told beforehand."""
    head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{plane.port}\r\nAuthorization: Bearer {TOKEN}\r\n"
    with socket.create_connection(("127.0.0.1", plane.port), PATIENCE) as peer:
        peer.sendall(head.encode() + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in (body[:100], body[100:]):
            peer.sendall(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        peer.sendall(b"0\r\n\r\n")
        return peer.recv(100)


def test_only_calls_use_up_the_rate_that_the_grant_was_given(shared: Plane) -> None:
    shared.stand_in.taken_by.clear()
    session = shared.opened()
    shared.post({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, mcp_session_id=session)
    assert shared.stand_in.taken_by == []

    shared.post(call_of("look", {}), mcp_session_id=session)
    shared.modern("tools/call", {"name": "look", "arguments": {}})

    assert shared.stand_in.taken_by == ["first", "first"]


@pytest.mark.parametrize(("wait", "said"), [(0.2, "1"), (1.0, "1"), (1.1, "2"), (float("inf"), "3600")])
def test_a_call_that_comes_too_soon_is_told_when_to_come_again(shared: Plane, wait: float, said: str) -> None:
    view = shared.stand_in.views[TOKEN]
    before = len(view.calls)
    shared.stand_in.wait = wait
    try:
        reply = shared.modern("tools/call", {"name": "look", "arguments": {}})
    finally:
        shared.stand_in.wait = 0.0

    assert error_of(reply) == (429, INVALID_REQUEST, f"too many requests or bytes: try again in {said} s")
    assert reply.headers["retry-after"] == said
    assert len(view.calls) == before


def test_requests_that_are_no_calls_are_bounded_for_each_grant() -> None:
    with plane_of(clock=lambda: 0.0) as plane:
        statuses = [plane.request("GET", mcp_session_id="x").status_code for _ in range(OTHERS_AT_ONCE + 1)]
        by_call = plane.modern("tools/call", {"name": "look", "arguments": {}})
        by_another = plane.modern("tools/list", token=OTHER_TOKEN)

        assert 429 not in statuses[:-1]
        assert statuses[-1] == 429
        assert (by_call.status_code, by_another.status_code) == (200, 200)


def test_a_grant_has_so_many_requests_at_once_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plane_module, "MOST_REQUESTS", 2)
    with plane_of() as plane:
        sessions = [plane.opened(), plane.opened()]
        with _listening(plane, sessions[0]), _listening(plane, sessions[1]):
            guest = plane.server.guest(plane.stand_in.seen_by(TOKEN))
            until(lambda: guest.requests == 2)

            refused = plane.post(PING, mcp_session_id=sessions[0])
            other = plane.modern("tools/list", token=OTHER_TOKEN)

        assert error_of(refused) == (429, INVALID_REQUEST, "too many requests at once")
        assert other.status_code == 200
        until(lambda: guest.requests == 0)


class _listening:  # noqa: N801  # used as a word
    """A client that listens to a session's stream."""

    def __init__(self, plane: Plane, session: str) -> None:
        self.peer = socket.create_connection(("127.0.0.1", plane.port), PATIENCE)
        head = f"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1:{plane.port}\r\nAuthorization: Bearer {TOKEN}\r\n"
        self.peer.sendall(f"{head}Accept: text/event-stream\r\nMcp-Session-Id: {session}\r\n\r\n".encode())

    def __enter__(self) -> socket.socket:
        assert self.peer.recv(15) == b"HTTP/1.1 200 OK"
        return self.peer

    def __exit__(self, *_: object) -> None:
        self.peer.close()


def test_a_token_that_dies_is_dead_for_the_session_that_it_opened(shared: Plane) -> None:
    shared.stand_in.views["a-token-that-will-die"] = StandInView("third")
    session = shared.opened("a-token-that-will-die")
    del shared.stand_in.views["a-token-that-will-die"]

    assert shared.post(PING, "a-token-that-will-die", mcp_session_id=session).status_code == 401


def test_every_refusal_is_counted_and_leaves_one_line_without_what_the_peer_sent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    with plane_of() as plane:
        caplog.clear()
        plane.post(PING, CANARY)
        plane.post(PING, Host=f"{CANARY}.example")
        plane.post(PING, Origin=f"http://{CANARY}.example")
        plane.request("POST", path=f"/{CANARY}")
        plane.request("PUT", content=CANARY.encode())
        plane.post(CANARY.encode())
        plane.post({"jsonrpc": "2.0", "id": 1, "method": CANARY, "params": {CANARY: CANARY}}, mcp_session_id=CANARY)
        plane.post(PING, Accept=CANARY)
        plane.post(PING, Content_Type=CANARY)
        plane.modern(CANARY, {CANARY: CANARY})

        until(lambda: len(plane.refused) == 10)  # what is refused is counted when it was answered
        lines = [record for record in caplog.records if record.name == "proctor.agents"]
        refusals = [record for record in lines if hasattr(record, "status")]
        assert plane.refused == [401, 403, 403, 404, 405, 400, 404, 406, 400, 404]
        # The last one is logged by who understands it, as an error of JSON-RPC.
        assert [vars(record)["status"] for record in refusals] == plane.refused[:-1]
        assert len(lines) == len(plane.refused)
        assert {vars(record)["grant"] for record in refusals[3:]} == {"first"}
    assert not any(
        CANARY in str(vars(record)) or TOKEN in str(vars(record)) for record in caplog.records if record.name != "httpx"
    )


def _read_to_the_end(stream: socket.socket) -> None:
    last = b""
    while not last.endswith(b"0\r\n\r\n"):
        piece = stream.recv(4096)
        assert piece, "the connection ended before the stream"
        last = (last + piece)[-5:]


def test_a_grant_that_dies_while_its_request_arrives_is_refused_and_opens_nothing() -> None:
    with plane_of() as plane:
        body = msgspec.json.encode(handshake())
        head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{plane.port}\r\nAuthorization: Bearer {TOKEN}\r\n"
        with socket.create_connection(("127.0.0.1", plane.port), PATIENCE) as peer:
            peer.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:10])
            until(lambda: plane.server._guests)
            plane.on_loop(lambda: plane.plane.forget("first"))
            peer.sendall(body[10:])

            assert peer.recv(12) == b"HTTP/1.1 401"
        assert plane.server._guests == {}
        assert plane.server._manager._server_instances == {}


class _Breaking(StandIn):
    def find_view(self, secret: str | None) -> AgentView | None:
        raise RuntimeError(CANARY)


def test_what_breaks_inside_is_a_number_for_the_peer_and_a_traceback_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with plane_of(_Breaking()) as plane:
        reply = plane.post(PING)

    status, code, text = error_of(reply)
    assert (status, code) == (500, INTERNAL_ERROR)
    assert CANARY not in reply.text
    incident = text.removeprefix("the server failed, incident ")
    [entry] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert incident in entry.getMessage()
    assert entry.exc_info is not None


def test_a_socket_that_wants_to_be_a_websocket_is_turned_away() -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    with plane_of() as plane:
        asyncio.run(plane.plane({"type": "websocket", "path": "/mcp", "headers": []}, receive, send))

        assert plane.refused == [404]
    assert sent[0]["type"] == "websocket.http.response.start"
    assert sent[0]["status"] == 404


def test_a_peer_that_goes_before_it_has_said_all_is_refused(shared: Plane) -> None:
    before = len(shared.refused)
    head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{shared.port}\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 9\r\n\r\n"
    with socket.create_connection(("127.0.0.1", shared.port), PATIENCE) as peer:
        peer.sendall(head.encode() + b"{")

    until(lambda: len(shared.refused) > before)
    assert shared.refused[before:] == [400]


def test_a_plane_that_stops_lets_a_call_that_runs_be_answered_and_ends_the_streams(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(AppStatus, "should_exit", False)
    began, may_end = asyncio.Event(), asyncio.Event()

    async def slow(tool: str, arguments: bytes, progress: Progress | None) -> ToolResult:
        began.set()
        await may_end.wait()
        return ToolResult("done", seen(1))

    with plane_of(StandIn({TOKEN: StandInView("first", slow)})) as plane:
        session = plane.opened()
        with _listening(plane, session) as stream:
            answers: list[Any] = []

            async def closed_meanwhile() -> None:
                call = asyncio.create_task(asyncio.to_thread(plane.post, call_of("look", {}), mcp_session_id=session))
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(began.wait(), plane.loop))
                plane.loop.call_soon_threadsafe(plane.uvicorn.handle_exit, signal.SIGTERM, None)
                closing = asyncio.run_coroutine_threadsafe(plane.plane.close(), plane.loop)
                plane.loop.call_soon_threadsafe(may_end.set)
                answers.append(await call)
                await asyncio.wrap_future(closing)

            asyncio.run(closed_meanwhile())
            stream.settimeout(PATIENCE)
            _read_to_the_end(stream)

        assert '"text":"done"' in answers[0].text
        # The library that writes event streams would cut them off by this, in every server of the process.
        assert AppStatus.should_exit is False


def test_a_plane_that_stops_takes_nothing_new() -> None:
    with plane_of() as plane:
        plane.on_loop(plane.plane.close)

        assert error_of(plane.post(handshake())) == (503, INVALID_REQUEST, "the server is stopping")
        assert plane.request("GET", None, "/health").status_code == 503


def arguments_of(size: int) -> dict[str, Any]:
    return {"name": "move", "arguments": {"steps": 0, "note": "x" * size}}


def test_a_call_has_the_arguments_that_its_tool_takes_and_no_more() -> None:
    wide = Tool(name="move", description="Wide.", safety=ToolSafety.WRITE, input_schema={}, max_arguments_bytes=200_000)
    views: dict[str | None, StandInView] = {
        TOKEN: StandInView("first"),
        OTHER_TOKEN: StandInView("second", tools=(AgentTool(wide, {}),)),
    }
    with plane_of(StandIn(views)) as plane:
        by_default = RequestLimits().max_arguments_bytes

        fitting = plane.modern("tools/call", arguments_of(by_default - 100))
        large = plane.modern("tools/call", arguments_of(by_default))
        larger = plane.modern("tools/call", arguments_of(150_000))
        raised = plane.modern("tools/call", arguments_of(150_000), OTHER_TOKEN)
        beyond = plane.modern("tools/call", arguments_of(200_000), OTHER_TOKEN)

        assert (fitting.status_code, raised.status_code) == (200, 200)
        assert error_of(large) == (413, INVALID_REQUEST, "the arguments are too large for this tool")
        assert error_of(larger) == (413, INVALID_REQUEST, "the body is too large")
        assert beyond.status_code == 413
        assert [len(view.calls) for view in views.values()] == [1, 1]


@pytest.mark.parametrize("method", ["tools/list", "tools/call", "server/discover"])
def test_what_stands_beside_the_arguments_has_few_values(shared: Plane, method: str) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"name": "look", "_meta": {"a": [[]] * 1000}}}

    reply = shared.post(body, MCP_Protocol_Version=MODERN, Mcp_Method=method, Mcp_Name="look")

    assert error_of(reply)[:2] == (413, INVALID_REQUEST)
    assert "too many values" in error_of(reply)[2]


@pytest.mark.parametrize(
    "body",
    [
        {**PING, "id": "x" * 1000},
        {**PING, "method": "x" * 1000},
        {**PING, "params": {"_meta": {"progressToken": "x" * 1000}}},
    ],
)
def test_names_that_replies_repeat_are_short(shared: Plane, body: dict[str, Any]) -> None:
    status, code, text = error_of(shared.post(body))

    assert (status, code) == (400, INVALID_REQUEST)
    assert "longer than" in text


def test_a_grant_that_has_sent_too_much_is_refused_before_its_message_is_read() -> None:
    with plane_of(limits=RequestLimits(agent_bytes_per_second=200_000), clock=lambda: 0.0) as plane:
        unreadable = b"[" * 60_000

        statuses = [plane.post(unreadable).status_code for _ in range(5)]
        in_pieces = _posted_in_pieces(plane, unreadable)
        by_another = plane.modern("tools/list", token=OTHER_TOKEN)

        assert statuses == [400, 400, 400, 429, 429]
        assert in_pieces.startswith(b"HTTP/1.1 429")
        assert by_another.status_code == 200


def test_a_call_at_the_wrong_time_is_refused_before_its_arguments_are_looked_at(shared: Plane) -> None:
    shared.stand_in.wait = 1.0
    try:
        reply = shared.modern("tools/call", arguments_of(RequestLimits().max_arguments_bytes))
    finally:
        shared.stand_in.wait = 0.0

    assert reply.status_code == 429


def test_the_bodies_that_a_grant_holds_at_once_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_use, "HELD_BYTES", 1000)
    head = f"Authorization: Bearer {TOKEN}\r\nContent-Length: 2000\r\n\r\n"
    with plane_of() as plane, socket.create_connection(("127.0.0.1", plane.port), PATIENCE) as slow:
        slow.sendall(f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{plane.port}\r\n{head}".encode() + b" " * 900)
        guest = plane.server.guest(plane.stand_in.seen_by(TOKEN))
        until(lambda: sum(guest._held.values()) == 900)

        refused = plane.post(b" " * 200)
        other = plane.modern("tools/list", token=OTHER_TOKEN)

        assert error_of(refused) == (429, INVALID_REQUEST, "too many bytes at once")
        assert other.status_code == 200
        slow.close()
        until(lambda: not guest._held)
        assert plane.modern("tools/list").status_code == 200
        until(lambda: guest._all_held.count == 0)


def test_one_body_may_be_as_large_as_the_settings_say() -> None:
    limits = RequestLimits(max_body_bytes=8 * MIB, max_arguments_bytes=4 * MIB, agent_bytes_per_second=128 * MIB)
    with plane_of(limits=limits) as plane:
        replies = [plane.modern("tools/call", arguments_of(size)) for size in (MIB, *[3 * MIB] * 8)]

        assert {reply.status_code for reply in replies} == {200}


def test_who_waits_for_its_refusal_does_not_keep_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    waits, is_over = threading.Event(), threading.Event()

    async def wait(seconds: float) -> None:
        waits.set()
        while not is_over.is_set():
            await asyncio.sleep(0.005)

    bad = b'{"jsonrpc"'
    head = f"Authorization: Bearer {TOKEN}\r\nContent-Length: {len(bad)}\r\n\r\n"
    with plane_of() as plane, socket.create_connection(("127.0.0.1", plane.port), PATIENCE) as slow:
        monkeypatch.setattr(plane_module, "asyncio", SimpleNamespace(sleep=wait))
        # No turn is over because of its time: whoever keeps one keeps it.
        plane.plane._queue._hold_seconds = 10 * PATIENCE
        try:
            slow.sendall(f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{plane.port}\r\n{head}".encode() + bad)
            until(waits.is_set)

            assert plane.modern("tools/list", token=OTHER_TOKEN).status_code == 200
        finally:
            is_over.set()
        assert slow.recv(12) == b"HTTP/1.1 400"


def test_a_grant_that_is_refused_all_the_time_waits_for_its_replies_and_the_others_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "REFUSALS_AT_ONCE", 2)
    monkeypatch.setattr(connections, "REFUSALS_PER_SECOND", 1 / 3600)
    monkeypatch.setattr(connections, "MOST_WAIT_SECONDS", 2.0)
    with plane_of() as plane:
        statuses = [plane.request("PUT").status_code for _ in range(2)]
        with pytest.raises(httpx.ReadTimeout):
            plane.http.put(
                f"http://127.0.0.1:{plane.port}/mcp", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=0.2
            )
        statuses.append(plane.request("PUT", OTHER_TOKEN).status_code)

        assert statuses == [405, 405, 405]
        assert plane.opened()


def test_one_grants_refusals_do_not_fill_the_log_and_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with plane_of(clock=lambda: 0.0) as plane:
        for _ in range(60):
            plane.post(b"{")
            plane.modern("nothing/at-all")
        plane.on_loop(lambda: plane.plane.forget("first"))
        plane.post(PING, OTHER_TOKEN, Accept="nothing")
        until(lambda: len(plane.refused) == 121)

        lines = [record for record in caplog.records if record.name == "proctor.agents"]
        of_first = [record for record in lines if getattr(record, "grant", "") == "first"]
        assert len(of_first) == 21
        assert of_first[-1].getMessage() == "more requests of an agent were refused: 100"
        assert [record for record in lines if getattr(record, "grant", "") == "second"]


def test_a_library_that_says_the_same_again_and_again_is_heard_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    with plane_of():
        for _ in range(100):
            logging.getLogger("mcp.server.anything").warning(CANARY)

    lines = [record.getMessage() for record in caplog.records if "reports a problem" in record.getMessage()]
    assert 1 <= len(lines) < 50
    assert not any(CANARY in line for line in lines)
