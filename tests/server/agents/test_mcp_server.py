"""MCP behind the plane, with the library's own client in both eras, and on the wire."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import mcp_types
import msgspec
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from sse_starlette.sse import AppStatus

from proctor.access.limits import RequestLimits
from proctor.server.agent_access import Progress
from proctor.server.agents import mcp_server
from proctor.server.agents.fair_use import MOST_SESSIONS
from proctor.server.agents.mcp_messages import ERROR_KEY
from proctor.server.sessions.tool_results import ToolResult
from tests.server.agents.stand_in import (
    HANDSHAKE,
    MODERN,
    OTHER_TOKEN,
    PATIENCE,
    TOKEN,
    TOOLS,
    Plane,
    Script,
    StandIn,
    StandInView,
    call_of,
    envelope,
    handshake,
    plane_of,
)
from tests.server.live_server import until

ERAS = ("legacy", MODERN)
CANARY = "a-canary-that-nobody-may-see"


@pytest.fixture(scope="module")
def shared() -> Iterator[Plane]:
    with plane_of() as plane:
        yield plane


@asynccontextmanager
async def client_of(plane: Plane, era: str, token: str = TOKEN) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=300) as http,
        Client(streamable_http_client(plane.url, http_client=http), mode=era, read_timeout_seconds=300) as client,
    ):
        yield client


def with_client(plane: Plane, era: str, use: Callable[[Client], Awaitable[Any]], token: str = TOKEN) -> Any:
    """Return what `use` makes of a client."""

    async def used() -> Any:
        async with client_of(plane, era, token) as client:
            return await use(client)

    return asyncio.run(used())


@pytest.mark.parametrize("era", ERAS)
def test_an_agent_is_told_its_tools(shared: Plane, era: str) -> None:
    listed = with_client(shared, era, lambda client: client.list_tools())

    assert [tool.name for tool in listed.tools] == [each.tool.name for each in TOOLS]
    assert listed.tools[1].input_schema == TOOLS[1].tool.input_schema
    assert listed.tools[0].annotations.read_only_hint is True
    assert listed.tools[2].annotations.destructive_hint is True


@pytest.mark.parametrize("era", ERAS)
def test_a_call_is_answered_in_words_and_in_fields(shared: Plane, era: str) -> None:
    answered = with_client(shared, era, lambda client: client.call_tool("move", {"steps": 2}))

    assert answered.is_error is False
    assert answered.content[0].text == "You stand at 2."
    assert answered.structured_content["observation"] == {"place": 2, "note": None}
    assert shared.stand_in.views[TOKEN].calls[-1] == ("move", b'{"steps":2}')


@pytest.mark.parametrize("era", ERAS)
def test_an_error_is_an_answer(shared: Plane, era: str) -> None:
    answered = with_client(shared, era, lambda client: client.call_tool("burn", {}))

    assert answered.is_error is True
    assert answered.content[0].text.startswith("STATE_ERROR")
    assert answered.meta[ERROR_KEY]["code"] == "STATE_ERROR"


@pytest.mark.parametrize("era", ERAS)
def test_an_unknown_tool_is_a_mistake_in_the_request_and_the_tools_are_named(shared: Plane, era: str) -> None:
    async def reset(client: Client) -> str:
        with pytest.raises(MCPError) as refusal:
            await client.call_tool("reset", {"seed": 1})
        assert refusal.value.error.code == mcp_types.INVALID_PARAMS
        return refusal.value.error.message

    assert with_client(shared, era, reset) == "Unknown tool: reset. The tools are look, move, burn."


@pytest.mark.parametrize("era", ERAS)
def test_a_client_that_asks_hears_how_far_its_call_is(shared: Plane, era: str) -> None:
    heard: list[tuple[float, float | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total))

    with_client(shared, era, lambda client: client.call_tool("move", {"steps": 4}, progress_callback=note))

    assert heard == [(1, 4), (2, 4), (3, 4)]


def test_who_does_not_ask_for_progress_causes_none(shared: Plane) -> None:
    reply = shared.post(call_of("move", {"steps": 4}), mcp_session_id=shared.opened())

    assert "progress" not in reply.text


def test_a_call_without_arguments_has_none(shared: Plane) -> None:
    shared.modern("tools/call", {"name": "look"})

    assert shared.stand_in.views[TOKEN].calls[-1] == ("look", b"{}")


@pytest.mark.parametrize("era", ERAS)
def test_a_client_is_introduced_to_the_environment(shared: Plane, era: str) -> None:
    async def introduced(client: Client) -> tuple[str, Any]:
        assert client.server_info is not None
        return client.server_info.name, client.server_capabilities

    if era == "legacy":
        name, capabilities = with_client(shared, era, introduced)
        told = shared.post(handshake()).text
    else:
        name, capabilities = with_client(shared, "auto", introduced)
        told = shared.modern("server/discover").text

    assert name == "proctor"
    assert capabilities.model_dump(exclude_none=True).keys() == {"tools"}
    assert "Walk with move, look with look." in told


@pytest.mark.parametrize(
    "method",
    [
        "resources/list", "resources/read", "prompts/list", "prompts/get", "logging/setLevel", "completion/complete",
        "reset", "step", "tools/reset", "sampling/createMessage", "tasks/list", "subscriptions/listen",
    ],
)  # fmt: skip
def test_there_is_nothing_but_tools(shared: Plane, method: str) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"uri": "a:b", "name": "a", "level": "info"}}
    in_session = shared.post(body, mcp_session_id=shared.opened())
    alone = shared.modern(method, {})

    assert '"result"' not in in_session.text + alone.text
    assert '"error"' in in_session.text
    assert '"error"' in alone.text


def test_a_session_exists_for_the_grant_that_opened_it_only(shared: Plane) -> None:
    session = shared.opened()
    calls_before = len(shared.stand_in.views[TOKEN].calls)

    by_another = [
        shared.post(call_of("look", {}), OTHER_TOKEN, mcp_session_id=session),
        shared.request("GET", OTHER_TOKEN, mcp_session_id=session),
        shared.request("DELETE", OTHER_TOKEN, mcp_session_id=session),
    ]
    unknown = shared.post(call_of("look", {}), OTHER_TOKEN, mcp_session_id="0" * 32)

    assert [(reply.status_code, reply.text) for reply in by_another] == [(404, unknown.text)] * 3
    assert len(shared.stand_in.views[TOKEN].calls) == calls_before
    assert shared.post(call_of("look", {}), mcp_session_id=session).status_code == 200


def test_each_agent_sees_its_own_tools_whatever_session_came_first() -> None:
    views: dict[str | None, StandInView] = {
        TOKEN: StandInView("first", tools=TOOLS[:1]),
        OTHER_TOKEN: StandInView("second", tools=TOOLS[1:]),
    }
    with plane_of(StandIn(views)) as plane:
        for era in ERAS:
            first = with_client(plane, era, lambda client: client.list_tools())
            second = with_client(plane, era, lambda client: client.list_tools(), OTHER_TOKEN)

            assert [tool.name for tool in first.tools] == ["look"]
            assert [tool.name for tool in second.tools] == ["move", "burn"]

        assert plane.modern("tools/call", {"name": "move", "arguments": {"steps": 1}}).status_code == 400
        assert views[TOKEN].calls == []


def test_a_session_answers_with_the_view_of_the_request_not_of_its_first_one() -> None:
    with plane_of() as plane:
        session = plane.opened()
        newer = StandInView("first", instructions="newer")
        plane.stand_in.views[TOKEN] = newer

        plane.post(call_of("look", {}), mcp_session_id=session)

        assert newer.calls == [("look", b"{}")]


def test_a_session_that_its_client_closes_is_gone(shared: Plane) -> None:
    session = shared.opened()

    closed = shared.request("DELETE", mcp_session_id=session)

    assert closed.status_code == 200
    assert shared.post(call_of("look", {}), mcp_session_id=session).status_code == 404


def test_the_sessions_of_a_dead_grant_are_closed_soon_and_those_of_others_stay() -> None:
    with plane_of() as plane:
        session, another = plane.opened(), plane.opened(OTHER_TOKEN)

        plane.on_loop(lambda: plane.plane.forget("first"))

        until(lambda: session not in plane.server._manager._server_instances)
        assert plane.post(call_of("look", {}), mcp_session_id=session).status_code == 404
        assert plane.post(call_of("look", {}), OTHER_TOKEN, mcp_session_id=another).status_code == 200


def test_to_forget_a_grant_that_had_nothing_open_does_nothing(shared: Plane) -> None:
    shared.on_loop(lambda: shared.plane.forget("nobody"))

    assert shared.modern("tools/list").status_code == 200


def hanging_with(fates: list[str]) -> Script:
    """Return what an environment does that never answers; its fates are noted."""

    async def hanging(tool: str, arguments: bytes, progress: Progress | None) -> ToolResult:
        fates.append("began")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            fates.append("cancelled")
            raise
        return ToolResult("never", b"{}")

    return hanging


def test_a_call_that_hangs_when_its_grant_dies_is_cancelled_in_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_server, "LAST_WORDS_SECONDS", 0.05)
    fates: list[str] = []

    with plane_of(StandIn({TOKEN: StandInView("first", hanging_with(fates))})) as plane:
        session = plane.opened()

        async def forgotten_meanwhile() -> str:
            call = asyncio.create_task(asyncio.to_thread(plane.post, call_of("look", {}), mcp_session_id=session))
            await asyncio.to_thread(until, lambda: fates == ["began"])
            plane.loop.call_soon_threadsafe(plane.plane.forget, "first")
            return (await call).text

        text = asyncio.run(forgotten_meanwhile())

        assert '"result"' not in text
        until(lambda: fates == ["began", "cancelled"])


def test_one_session_too_many_closes_the_one_that_was_used_least_lately() -> None:
    with plane_of() as plane:
        sessions = [plane.opened() for _ in range(MOST_SESSIONS + 1)]

        until(lambda: len(plane.server._manager._server_instances) == MOST_SESSIONS)
        first = plane.post(call_of("look", {}), mcp_session_id=sessions[0])
        second = plane.post(call_of("look", {}), mcp_session_id=sessions[1])

        assert (first.status_code, second.status_code) == (404, 200)


def test_a_session_that_nobody_uses_is_closed_after_a_while() -> None:
    with plane_of(idle_seconds=0.05) as plane:
        session = plane.opened()

        until(lambda: not plane.server._manager._server_instances)
        assert plane.post(call_of("look", {}), mcp_session_id=session).status_code == 404


def test_a_server_has_so_many_sessions_and_no_more() -> None:
    with plane_of(max_sessions=1) as plane:
        plane.opened()

        assert plane.post(handshake(), OTHER_TOKEN).status_code == 503


async def _breaking(tool: str, arguments: bytes, progress: Progress | None) -> ToolResult:
    raise RuntimeError(CANARY)


async def _nonsense(tool: str, arguments: bytes, progress: Progress | None) -> ToolResult:
    return ToolResult(CANARY, b'["' + CANARY.encode() + b'"]')


@pytest.mark.parametrize("script", [_breaking, _nonsense])
def test_what_breaks_inside_is_logged_once_and_the_peer_gets_no_word_of_it(
    script: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with plane_of(StandIn({TOKEN: StandInView("first", script)})) as plane:
        session = plane.opened()
        caplog.clear()
        in_session = plane.post(call_of("look", {}), mcp_session_id=session)
        errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
        alone = plane.modern("tools/call", {"name": "look", "arguments": {}})

    assert len(errors) == 1
    for reply in (in_session, alone):
        assert CANARY not in reply.text
        assert str(mcp_types.INTERNAL_ERROR) in reply.text
    incident = in_session.text.partition("the server failed, incident ")[2][:12]
    assert incident in errors[0].getMessage()


def test_the_library_says_in_the_log_where_it_has_a_problem_and_not_what_a_peer_sent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with plane_of():
        logging.getLogger("mcp.server.anything").warning("about %s", CANARY)
        logging.getLogger("mcp.server.anything").info("about %s", CANARY)
        logging.getLogger("sse_starlette.sse").error("about %s", CANARY, exc_info=RuntimeError(CANARY))

    said = [(record.levelno, record.getMessage()) for record in caplog.records if "reports a problem" in record.message]
    assert [level for level, _ in said] == [logging.WARNING, logging.ERROR]
    assert said[0][1].startswith("mcp.server.anything, line ")
    assert said[1][1].endswith("(RuntimeError)")
    assert CANARY not in caplog.text


def test_each_refused_message_leaves_a_line_with_the_grant(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "proctor.agents")
    with plane_of() as plane:
        session = plane.opened()
        plane.post({"jsonrpc": "2.0", "id": 1, "method": CANARY}, mcp_session_id=session)
        plane.post(call_of(CANARY, {}), mcp_session_id=session)
        plane.post(
            {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"arguments": 1}}, mcp_session_id=session
        )

    lines = [record for record in caplog.records if "JSON-RPC error" in record.getMessage()]
    assert [line.getMessage().rpartition(" ")[2] for line in lines] == ["-32601", "-32602", "-32602"]
    assert {vars(line)["grant"] for line in lines} == {"first"}
    assert CANARY not in caplog.text


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", HANDSHAKE])
def test_every_revision_with_a_handshake_is_spoken(shared: Plane, version: str) -> None:
    hello = handshake()
    hello["params"]["protocolVersion"] = version

    reply = shared.post(hello)
    session = reply.headers["mcp-session-id"]
    shared.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, mcp_session_id=session)
    call = shared.post(call_of("move", {"steps": 1}), mcp_session_id=session, mcp_protocol_version=version)

    assert f'"protocolVersion":"{version}"' in reply.text
    assert "You stand at 1." in call.text


@pytest.mark.parametrize("version", ["2027-01-01", "1.0", "x" * 200])
def test_a_revision_that_nobody_speaks_is_refused(shared: Plane, version: str) -> None:
    reply = shared.post({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, mcp_protocol_version=version)

    assert reply.status_code == 400


def test_a_cancelled_call_is_cancelled() -> None:
    fates: list[str] = []

    with plane_of(StandIn({TOKEN: StandInView("first", hanging_with(fates))})) as plane:
        for era in ERAS:
            fates.clear()

            async def given_up(client: Client) -> None:
                call = asyncio.create_task(client.call_tool("look", {}))
                await asyncio.to_thread(until, lambda: fates == ["began"])
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call

            with_client(plane, era, given_up)

            until(lambda: fates == ["began", "cancelled"])


def test_arguments_reach_the_view_as_they_were_sent(shared: Plane) -> None:
    arguments = {"big": 2**80, "real": 0.1, "text": "é\u0000\U0001f600", "none": None, "deep": {"a": [1, {"b": []}]}}

    shared.modern("tools/call", {"name": "look", "arguments": arguments})

    assert msgspec.json.decode(shared.stand_in.views[TOKEN].calls[-1][1]) == arguments


def test_space_around_a_header_is_not_part_of_it(shared: Plane) -> None:
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": envelope()}})
    lines = (
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{shared.port}  \r\nAuthorization:   Bearer {TOKEN} \r\n"
        f"Accept: */* \r\nContent-Type: application/json \r\nContent-Length: {len(body)}\r\n"
        f"MCP-Protocol-Version:  {MODERN}  \r\nMcp-Method: \ttools/list \r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", shared.port), PATIENCE) as peer:
        peer.sendall(lines.encode() + body)

        assert peer.recv(15) == b"HTTP/1.1 200 OK"


def test_a_server_that_stopped_before_in_this_process_ends_nobody_s_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AppStatus, "should_exit", True)

    mcp_server.McpServer("again", "1", limits=RequestLimits())

    assert AppStatus.should_exit is False
