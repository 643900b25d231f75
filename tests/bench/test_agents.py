"""The agent plane's rows: both sides have the same client, and a call that is refused is never counted."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client

from bench.agents_bare import SEEN, server_of
from bench.agents_client import ARGUMENTS, NO_TOKEN, addresses
from bench.agents_plain import LEAVE, PARAMS, USES, governed, length_in, request
from bench.measure import Gap
from bench.row import Better
from bench.rows import agents as rows
from bench.rows.agents import HANDSHAKE, NOOP, ONE_BY_ONE, OURS, cpu_seconds, server_cpu
from bench.rows.control import driven
from proctor.envs.targets import Target
from proctor.server.runtime.env_adapter import describe_target
from proctor.server.sessions.tool_results import make_observation_schema


async def called(kind: str) -> Any:
    async with Client(server_of(kind)) as client:
        tools = await client.list_tools()
        return tools.tools[0], await client.call_tool("act", ARGUMENTS)


def test_the_bare_tool_says_ok_and_no_more() -> None:
    tool, result = asyncio.run(called("noop"))

    assert tool.output_schema is None
    assert [part.text for part in result.content] == ["ok"]
    assert result.structured_content is None


def test_the_tool_that_is_alike_answers_as_ours_does() -> None:
    tool, result = asyncio.run(called("alike"))

    # The client has held the answer against the schema.
    assert tool.output_schema == make_observation_schema(describe_target(Target("bench.control_env:quick")))
    assert result.structured_content == SEEN
    assert result.content[0].text.endswith("Step 1000.")


def test_a_server_without_a_credential_is_called_directly() -> None:
    async def found() -> list[tuple[str, str]]:
        async with AsyncExitStack() as stack:
            return await addresses(stack, "http://127.0.0.1:1", 3)

    assert asyncio.run(found()) == [("http://127.0.0.1:1/mcp", NO_TOKEN)] * 3


@given(token=st.text("abcdefghijklmnopqrstuvwxyz0123456789-_", min_size=1, max_size=50), port=st.integers(1, 65535))
def test_a_plain_call_is_one_whole_request(token: str, port: int) -> None:
    head, _, body = request(f"http://127.0.0.1:{port}/mcp", token).partition(b"\r\n\r\n")
    first, *fields = head.decode().split("\r\n")
    named = dict(field.split(": ", 1) for field in fields)

    assert first == "POST /mcp HTTP/1.1"
    assert (named["Host"], named["Authorization"]) == (f"127.0.0.1:{port}", f"Bearer {token}")
    assert int(named["Content-Length"]) == len(body)
    assert json.loads(body)["params"] == PARAMS


def test_a_governed_agent_asks_for_leave_before_it_acts_and_when_that_is_used_up() -> None:
    said: list[str] = []

    async def ask(sent: bytes) -> None:
        said.append(json.loads(sent.partition(b"\r\n\r\n")[2])["params"]["name"])

    async def acted() -> None:
        call = governed(ask, "http://127.0.0.1:1/mcp", NO_TOKEN)
        for _ in range(USES + 1):
            await call()

    asyncio.run(acted())

    leave = [str(params["name"]) for params in LEAVE]
    assert said == [*leave, *["act"] * USES, *leave, "act"]


@given(length=st.integers(0, 10**9))
def test_the_length_of_a_reply_is_read(length: int) -> None:
    assert length_in(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nx: y\r\n\r\n" % length) == length


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 3\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        b"\r\n\r\n",
    ],
)
def test_a_reply_that_is_no_good_one_with_a_length_is_an_error(head: bytes) -> None:
    with pytest.raises(RuntimeError, match="refused"):
        length_in(head)


def test_the_work_of_a_process_is_read_from_outside() -> None:
    before = cpu_seconds(os.getpid())
    sum(range(10**6))

    assert cpu_seconds(os.getpid()) > before


def test_a_process_that_is_gone_is_a_gap() -> None:
    with pytest.raises(Gap, match="/proc"):
        cpu_seconds(2**22 + 1)


def test_every_row_says_how_it_was_isolated_and_recorded() -> None:
    assert {(row.tier, row.durability) for row in rows.ROWS} == {("none", "none")}
    assert all((row.better is Better.LOWER) == ("cpu" in row.name) for row in rows.ROWS)
    assert len({row.name for row in rows.ROWS}) == len(rows.ROWS)


def test_the_goals_are_those_that_were_set() -> None:
    goals = {row.name: str(row.goal) for row in rows.ROWS if row.goal is not None}

    assert goals["agents.calls/bare"] == "ratio >= 0.85"
    assert goals["agents.calls/openenv"] == "ratio >= 5"


@pytest.mark.system
@pytest.mark.parametrize("era", [HANDSHAKE, ONE_BY_ONE])
@pytest.mark.parametrize("server", [OURS, NOOP, rows.ALIKE], ids=["ours", "noop", "alike"])
def test_every_server_is_called_by_the_same_client(server: Any, era: str) -> None:
    with ExitStack() as stack:
        assert driven(server, rows.AGENT, "2", era)(stack)(0.1) > 0.0


@pytest.mark.system
@pytest.mark.parametrize("server", [OURS, NOOP], ids=["ours", "noop"])
def test_every_server_is_called_without_a_client_library(server: Any) -> None:
    with ExitStack() as stack:
        assert driven(server, rows.PLAIN, "2")(stack)(0.1) > 0.0


@pytest.mark.system
def test_a_call_takes_time_of_the_server() -> None:
    with ExitStack() as stack:
        assert 10.0 < server_cpu(NOOP, "1", ONE_BY_ONE)(stack)(0.1) < 1e6


@pytest.mark.system
@pytest.mark.parametrize(
    ("kind", "way"), [("declared", "client"), ("declared", "websocket"), ("undeclared", "websocket")]
)
def test_openenvs_tools_are_called_in_its_own_environment(kind: str, way: str) -> None:
    with ExitStack() as stack:
        assert driven(rows.openenv_tools(kind), rows.OPENENV_CALLER, "2", way)(stack)(0.1) > 0.0
