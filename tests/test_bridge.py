"""The bridge, between a client on streams and a real plane; and the file of its grant."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client, MCPError
from mcp.types import PARSE_ERROR, JSONRPCNotification, JSONRPCRequest

from proctor.bridge import SavedGrant, carry_messages, make_headers, read_grant
from proctor.cli.main import main
from proctor.errors import ValidationError
from tests.server.agents.stand_in import HANDSHAKE, MODERN, TOKEN, Plane, call_of, envelope, handshake, plane_of
from tests.server.live_server import PATIENCE, until

ERAS = ("legacy", MODERN)


@pytest.fixture(scope="module")
def shared() -> Iterator[Plane]:
    with plane_of() as plane:
        yield plane


@pytest.fixture
def grant(shared: Plane, tmp_path: Path) -> Path:
    return saved(tmp_path, shared.url)


def saved(folder: Path, address: str, token: str = TOKEN) -> Path:
    """Return a file with a grant."""
    path = folder / "grant.json"
    path.write_text(json.dumps({"address": address, "token": token}))
    path.chmod(0o600)
    return path


@asynccontextmanager
async def bridged(grant: Path, era: str) -> AsyncIterator[Client]:
    """A client whose server is the bridge, without the process and the pipes between the two."""
    to_bridge, from_client = anyio.create_memory_object_stream[Any](0)
    to_client, from_bridge = anyio.create_memory_object_stream[Any](0)

    @asynccontextmanager
    async def transport() -> AsyncIterator[Any]:
        yield from_bridge, to_bridge

    carrying = asyncio.create_task(carry_messages(read_grant(grant), from_client, to_client))
    with to_bridge, from_client, to_client, from_bridge:
        try:
            async with Client(transport(), mode=era, read_timeout_seconds=PATIENCE) as client:
                yield client
        finally:
            to_bridge.close()
            await asyncio.wait_for(carrying, PATIENCE)


def with_bridge(grant: Path, era: str, use: Callable[[Client], Awaitable[Any]]) -> Any:
    async def used() -> Any:
        async with bridged(grant, era) as client:
            return await use(client)

    return asyncio.run(used())


@pytest.mark.parametrize("era", ERAS)
def test_a_client_over_stdio_finds_what_it_would_find_over_http_and_leaves_nothing_open(
    shared: Plane, grant: Path, era: str
) -> None:
    heard: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    async def used(client: Client) -> None:
        listed = await client.list_tools()
        moved = await client.call_tool("move", {"steps": 3}, progress_callback=note)
        burnt = await client.call_tool("burn", {})
        with pytest.raises(MCPError, match="The tools are look, move, burn"):
            await client.call_tool("reset", {})

        assert [tool.name for tool in listed.tools] == ["look", "move", "burn"]
        assert moved.structured_content is not None
        assert moved.structured_content["observation"] == {"place": 3, "note": None}
        assert burnt.is_error is True
        assert len(shared.server._manager._server_instances) == (1 if era == "legacy" else 0)

    with_bridge(grant, era, used)

    assert heard == [1, 2]
    until(lambda: not shared.server._manager._server_instances)


def test_a_grant_that_has_died_is_an_error_that_says_so(shared: Plane, tmp_path: Path) -> None:
    path = saved(tmp_path, shared.url, "a-token-of-an-episode-that-is-over")

    assert "good for nothing" in _refused(path, "legacy")


def test_a_plane_that_cannot_be_reached_is_an_error_that_says_so(tmp_path: Path) -> None:
    with plane_of() as plane:
        path = saved(tmp_path, plane.url)

    assert "the agent plane cannot be reached" in _refused(path, MODERN)


def _refused(grant: Path, era: str) -> str:
    """Return in words why the tools cannot be listed."""

    async def listed(client: Client) -> None:
        await client.list_tools()

    with pytest.raises((MCPError, BaseExceptionGroup)) as refusal:
        with_bridge(grant, era, listed)
    return _words(refusal.value)


def _words(problem: BaseException) -> str:
    """Return what a problem says, with all that is inside it."""
    inside = problem.exceptions if isinstance(problem, BaseExceptionGroup) else ()
    return " ".join([str(problem), *map(_words, inside)])


def test_the_process_answers_a_line_that_is_no_message_goes_on_and_lets_no_proxy_hear_it(grant: Path) -> None:
    proxy = dict.fromkeys(("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"), "http://127.0.0.1:1")
    with subprocess.Popen(
        [sys.executable, "-m", "proctor", "mcp", "--grant", str(grant)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **proxy, "NO_PROXY": "", "no_proxy": ""},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("{\n" + json.dumps(handshake()) + "\n")
        process.stdin.flush()
        said = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.stdin.close()
        rest = process.stdout.read()

    assert process.returncode == 0
    assert said[0]["error"]["message"] == "this line is not a JSON-RPC message"
    assert said[1]["result"]["serverInfo"]["name"] == "proctor"
    assert rest == ""


def test_the_end_of_the_input_is_the_end(
    grant: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"{\n")))

    assert main(["mcp", "--grant", str(grant)]) == 0

    assert json.loads(capsys.readouterr().out)["error"]["code"] == PARSE_ERROR


def test_a_file_that_others_can_read_is_refused_before_anything_is_said(
    grant: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grant.chmod(0o644)

    assert main(["mcp", "--grant", str(grant)]) == 2

    said = capsys.readouterr()
    assert said.out == ""
    assert "chmod 600" in said.err
    assert TOKEN not in said.err


def test_a_message_of_the_modern_era_says_in_headers_what_it_says_of_itself() -> None:
    params = {"name": "wälk", "arguments": {}, "_meta": envelope()}

    headers = make_headers(JSONRPCRequest(jsonrpc="2.0", id=1, method="tools/call", params=params), None)

    assert headers == {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "=?base64?d8OkbGs=?="}


@pytest.mark.parametrize("meta", [None, {}, {"io.modelcontextprotocol/protocolVersion": 1}, "no object"])
def test_any_other_message_repeats_the_revision_that_was_agreed_on(meta: Any) -> None:
    body = call_of("look", {})
    if meta is not None:
        body["params"]["_meta"] = meta
    request = JSONRPCRequest.model_validate(body)

    assert make_headers(request, None) == {}
    assert make_headers(request, HANDSHAKE) == {"mcp-protocol-version": HANDSHAKE}
    assert make_headers(JSONRPCNotification(jsonrpc="2.0", method="a"), HANDSHAKE) == {
        "mcp-protocol-version": HANDSHAKE
    }


def test_a_revision_that_would_break_a_header_is_none() -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": "a\r\nAuthorization: b"}

    headers = make_headers(JSONRPCRequest(jsonrpc="2.0", id=1, method="ping", params={"_meta": meta}), None)

    assert headers == {}


TOKEN = "a-token-that-is-long-enough"
ADDRESS = "http://127.0.0.1:8001/mcp"


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "grant.json"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_the_address_and_the_token_are_read_and_the_rest_is_ignored(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps({"address": ADDRESS, "token": TOKEN, "tools": ["look"], "grant": "g"}) + "\n")

    assert read_grant(path) == SavedGrant(ADDRESS, TOKEN)


def test_a_key_does_not_show_its_token() -> None:
    assert TOKEN not in repr(SavedGrant(ADDRESS, TOKEN))


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602, 0o666])
def test_a_file_that_others_can_read_is_refused_with_the_command_that_mends_it(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path, json.dumps({"address": ADDRESS, "token": TOKEN}), mode)

    with pytest.raises(ValidationError, match="chmod 600") as refusal:
        read_grant(path)

    assert TOKEN not in str(refusal.value)


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="there is no file"):
        read_grant(tmp_path / "nothing")


@pytest.mark.parametrize(
    "text",
    [
        "",
        TOKEN,
        "[]",
        "{}",
        json.dumps({"token": TOKEN}),
        json.dumps({"address": ADDRESS}),
        json.dumps({"address": ADDRESS, "token": 1}),
        json.dumps({"address": ADDRESS, "token": "short"}),
        json.dumps({"address": ADDRESS, "token": f"{TOKEN} and more"}),
        *(
            json.dumps({"address": address, "token": TOKEN})
            for address in (
                "127.0.0.1:8001", "ws://127.0.0.1:8001/mcp", "file:///etc/passwd", "http://", "http://[x/mcp",
                "http://127.0.0.1:99999/mcp", "http://user:word@127.0.0.1/mcp", "",
            )
        ),
    ],
)  # fmt: skip
def test_what_is_no_grant_is_refused_without_showing_it(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        read_grant(written(tmp_path, text))

    assert TOKEN not in str(refusal.value)


@given(st.text(max_size=300))
def test_whatever_is_in_the_file_is_a_key_or_a_validation_error(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    folder = tmp_path_factory.mktemp("grants")
    path = folder / "grant.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    path.chmod(0o600)

    with pytest.raises(ValidationError):
        read_grant(path)
