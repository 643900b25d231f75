"""What belongs to one worker is nothing to the other: sessions, resume tokens, grants and MCP sessions, also when one is killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.server.commands import Command, finished, serve
from tests.server.live_server import PATIENCE, until
from tests.server.mcp_agents import Answer, agent_with, lets_in
from tests.server.test_workers import TOKEN, WHEREABOUTS, Visitor, one_of_each

TWO = (WHEREABOUTS, "--workers", "2", "--port", "0", "--agent-port", "0", "--json")
ACCEPT = {"Accept": "application/json, text/event-stream"}
HANDSHAKE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}},
}


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """Two workers with agents that live as long as these tests; nobody may harm them."""
    with serve(tmp_path_factory.mktemp("apart") / "home", *TWO, more=TOKEN) as there:
        yield there


@contextmanager
def two_sessions(command: Command) -> Iterator[tuple[Visitor, Visitor]]:
    """Give a session of each worker."""
    with ExitStack() as stack:
        yield one_of_each(command, stack)


def granted(visitor: Visitor) -> dict[str, Any]:
    """Return a grant on the session's first episode."""
    reply = visitor.ask("grant", {}, id=2, session=visitor.session, epoch=1)
    assert reply["type"] == "granted", reply
    found: dict[str, Any] = reply["data"]
    return found


def is_good(address: str, token: str) -> bool:
    return asyncio.run(lets_in(address, token))


def act(grant: dict[str, Any]) -> Answer:
    async def call() -> Answer:
        async with asyncio.timeout(PATIENCE), agent_with(grant["address"], grant["token"]) as agent:
            return await agent.use("act")

    return asyncio.run(call())


def test_a_session_cannot_be_resumed_or_used_at_the_other_worker_and_is_not_disturbed_by_it(command: Command) -> None:
    with two_sessions(command) as (first, second):
        resumed = second.resumed(first)
        used = second.ask("step", {}, id=3, session=first.session, epoch=1)
        closed = second.ask("close", id=4, session=first.session)
        own = [each.step(2) for each in (first, second)]

    assert [each["data"]["code"] for each in (resumed, used, closed)] == ["EPISODE_LOST"] * 3
    assert [each["data"]["observation"]["pid"] for each in own] == [first.pid, second.pid]


def test_a_grant_is_good_at_the_worker_that_gave_it_and_nowhere_else(command: Command) -> None:
    with two_sessions(command) as (first, second):
        grants = granted(first), granted(second)
        addresses = [grant["address"] for grant in grants]
        good = [[is_good(address, grant["token"]) for address in addresses] for grant in grants]
        pids = [act(grant).told["observation"]["pid"] for grant in grants]

    assert addresses[0] != addresses[1]
    assert good == [[True, False], [False, True]]
    assert pids == [first.pid, second.pid]


def test_an_mcp_session_of_one_worker_is_none_at_the_other(command: Command) -> None:
    def post(grant: dict[str, Any], message: dict[str, Any], **more: str) -> httpx2.Response:
        headers = {**ACCEPT, "Authorization": f"Bearer {grant['token']}", **more}
        return httpx2.post(grant["address"], json=message, headers=headers, timeout=PATIENCE)

    with two_sessions(command) as (first, second):
        one, other = granted(first), granted(second)
        session = post(one, HANDSHAKE).headers["mcp-session-id"]
        stolen = post(other, {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, **{"mcp-session-id": session})

    assert stolen.status_code == 404


@pytest.mark.slow
@pytest.mark.parametrize("with_ledger", [True, False])
def test_a_worker_that_is_killed_takes_no_grant_of_the_other_with_it(with_ledger: bool, tmp_path: Path) -> None:
    kept = ("--ledger", str(tmp_path / "ledger")) if with_ledger else ()
    with serve(tmp_path / "home", *TWO, *kept, more=TOKEN) as command, two_sessions(command) as (first, second):
        grants = granted(first), granted(second)
        before = [act(grant).told["step"] for grant in grants]
        os.kill(first.pid, signal.SIGKILL)
        others = act(grants[1]).told
        until(lambda: answers(grants[0]["address"]))
        good = is_good(grants[0]["address"], grants[0]["token"])
        strays = is_good(grants[0]["address"], grants[1]["token"])
        again = Visitor(first.home)
        resumed = again.resumed(first)
        again.close()
        own = second.ask("state", id=9, session=second.session)

    assert before == [1, 1]
    assert (others["step"], others["observation"]["pid"]) == (2, second.pid)
    assert strays is False
    assert own["type"] == "state"
    # A process is not done again as it was: of this environment an episode is lost, but not the session.
    assert resumed["type"] == ("resumed" if with_ledger else "error")
    assert good is with_ledger


def answers(address: str) -> bool:
    """Return whether somebody listens there."""
    try:
        httpx2.get(address, timeout=PATIENCE)
    except httpx2.HTTPError:
        return False
    return True


@pytest.mark.parametrize(
    "arguments",
    [("--agent-port", "0", "--agent-url", "http://agents.example/mcp"), ("--agent-port", "0", "--governed", "open")],
    ids=["agent url", "governed"],
)
def test_what_only_one_worker_could_keep_is_refused_with_two(arguments: tuple[str, ...], tmp_path: Path) -> None:
    code, out, error = finished(
        tmp_path / "home", WHEREABOUTS, "--workers", "2", "--port", "0", "--insecure", *arguments
    )

    assert (code, out) == (2, "")
    assert "worker" in error
    assert "Traceback" not in error
