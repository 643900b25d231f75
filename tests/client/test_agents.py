"""An orchestrator, a real server, and agents that hold a grant and a stock MCP client."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from proctor.client.agents import Grant, Transition
from proctor.client.connection import ConnectionSettings
from proctor.errors import EpisodeLost, RemoteError, StateError, ValidationError
from proctor.models.control import Code, GrantWish
from tests.client.conftest import COUNTING
from tests.client.counting import Count, Counted
from tests.client.test_env_client import CountClient
from tests.client.test_recovery import QUICK
from tests.client.wire_cutter import Wire
from tests.server.live_server import Served, serving
from tests.server.mcp_agents import Agent, agent_with, lets_in

pytestmark = pytest.mark.anyio

Rows = list[Transition[Count, Counted]]
SHARED = "tests.client.counting:SharedCounting"


@pytest.fixture(scope="module")
def there() -> Iterator[Served]:
    with serving(COUNTING, agent_port=0, allow_hosts=["127.0.0.1"], place="thread") as served:
        yield served


@asynccontextmanager
async def on(url: str, *, shared: bool = False, **settings: Any) -> AsyncIterator[CountClient]:
    """Give a client, for some minutes."""
    async with (
        asyncio.timeout(300),
        CountClient(url, settings=ConnectionSettings(**settings), shared=shared) as client,
    ):
        yield client


def held(client: CountClient) -> Grant:
    """Return the grant that the last reset brought along."""
    assert client.granted is not None
    return client.granted


async def follow(client: CountClient, seen: Rows) -> None:
    """Put each row into `seen` when it comes."""
    async for row in client.watch():
        seen.append(row)


async def acts(agent: Agent, *by: int) -> list[Any]:
    """Use `act` for each number and return what was told of each."""
    return [(await agent.use("act", by=each)).told for each in by]


async def test_reset_grant_agent_trajectory(there: Served) -> None:
    async with on(there.url) as client:
        await client.reset(seed=5, episode_id="e7", grant=GrantWish(agent="adder"))
        grant = held(client)

        async def play() -> Any:
            async with agent_with(grant.address, grant.token) as agent:
                return await agent.tools(), await agent.use("observe"), await acts(agent, 10, 20, 70)

        async with asyncio.TaskGroup() as together:
            playing = together.create_task(play())
            rows = [row async for row in client.watch()]
        (tools, observed, told), ended = playing.result(), await client.wait_end()

    assert (set(tools), set(grant.tools), grant.episode_id) == ({"observe", "act"}, {"observe", "act"}, "e7")
    assert observed.told["observation"]["total"] == 5
    assert [each["done"] for each in told] == [False, False, True]
    assert all(set(each) == {"observation", "step", "done", "terminated", "truncated"} for each in told)
    assert [(row.row, row.step, row.agent, row.tool, row.action.by) for row in rows] == [
        (1, 1, "adder", "act", 10),
        (2, 2, "adder", "act", 20),
        (3, 3, "adder", "act", 70),
    ]
    assert [row.observation.total for row in rows] == [15, 35, 105]
    assert [(row.reward, row.raw_reward) for row in rows] == [(10.0, 10.0), (20.0, 20.0), (70.0, 70.0)]
    assert {row.grant for row in rows} == {grant.grant}
    assert [row.terminated for row in rows] == [False, False, True]
    assert (ended.over, ended.steps, ended.terminated, ended.lost, ended.total_reward) == (True, 3, True, False, 100.0)


async def test_one_session_trains_for_many_episodes(there: Served) -> None:
    async with on(there.url) as client:
        found = []
        for number in range(1, 5):
            await client.reset(grant=True)
            async with agent_with(held(client).address, held(client).token) as agent:
                await acts(agent, *([100 // number + 1] * number))
            found.append([row.step async for row in client.watch()])
        assert found == [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4]]


async def test_while_an_agent_holds_a_grant_the_orchestrator_does_not_step(there: Served) -> None:
    async with on(there.url) as client:
        await client.reset()
        grant = await client.grant(tools=["act"])
        async with agent_with(grant.address, grant.token) as agent:
            tools = await agent.tools()
            await acts(agent, 1, 2)
            with pytest.raises(RemoteError) as refusal:
                await client.step(Count(by=3))
            live = await client.revoke(grant)
            seen = await client.step(Count(by=3))

        assert (tools, refusal.value.code, live) == (["act"], Code.GRANT_LIVE, True)
        assert (seen.total, seen.steps, (await client.state()).total) == (6, 3, 6)
        assert not await lets_in(grant.address, grant.token)


@pytest.fixture
def shared() -> Iterator[Served]:
    with serving(SHARED, agent_port=0) as served:
        yield served


async def test_in_a_shared_session_both_act_and_the_numbers_hold(shared: Served) -> None:
    async with on(shared.url, shared=True) as client:
        await client.reset()
        first, second = await client.grant("one"), await client.grant("two")
        with pytest.raises(RemoteError) as refusal:
            await client.grant("three")
        async with (
            agent_with(first.address, first.token) as one,
            agent_with(second.address, second.token) as two,
        ):
            totals = []
            for _ in range(3):
                await acts(one, 1)
                totals.append((await client.step(Count(by=10))).total)
                await acts(two, 5)
            totals.append((await client.step(Count(by=60))).total)
            ended = await one.use("observe")
        rows = [(row.agent, row.step) async for row in client.watch()]

    assert refusal.value.code == Code.GRANTS_TAKEN
    assert totals == [11, 27, 43, 108]
    assert ended.code == Code.ENDED
    assert rows == [("one", 1), ("two", 3), ("one", 4), ("two", 6), ("one", 7), ("two", 9)]


async def test_a_reader_loses_no_row_when_its_connection_breaks(there: Served, wire: Wire) -> None:
    wire.target = there.port
    async with on(wire.url, backoff=QUICK.backoff) as client:
        await client.reset(grant=True)
        found: Rows = []
        async with asyncio.TaskGroup() as together, agent_with(held(client).address, held(client).token) as agent:
            together.create_task(follow(client, found))
            for _ in range(4):
                await acts(agent, 5, 5)
                await asyncio.to_thread(wire.cut)
                await acts(agent, 5, 5)
            await acts(agent, 20)

    assert [row.observation.total for row in found] == [*range(5, 85, 5), 100]
    assert wire.made > 1


async def test_an_episode_that_an_agent_broke_is_lost_for_its_orchestrator(there: Served) -> None:
    async with on(there.url) as client:
        await client.reset(grant=True)
        found: Rows = []
        async with agent_with(held(client).address, held(client).token) as agent:
            await acts(agent, 1)
            failure = await agent.use("act", by=-99)
            after = await agent.use("act", by=1)
        with pytest.raises(EpisodeLost):
            await follow(client, found)
        ended = await client.wait_end()
        with pytest.raises(EpisodeLost):
            await client.step(Count())
        again = await client.reset()

    assert failure.code == Code.EXECUTION_ERROR
    assert "a text from inside" not in failure.text
    assert after.code == Code.EPISODE_LOST
    assert [row.step for row in found] == [1]
    assert (ended.over, ended.lost, ended.terminated, ended.steps) == (True, True, False, 1)
    assert again.steps == 0


async def test_an_action_that_is_refused_leaves_no_row(there: Served) -> None:
    async with on(there.url) as client:
        await client.reset(grant=True)
        async with agent_with(held(client).address, held(client).token) as agent:
            refusals = [await agent.use("act", by=13), await agent.use("act", by="x")]
            await acts(agent, 100)
        assert [each.code for each in refusals] == [Code.VALIDATION_ERROR] * 2
        assert [row.step async for row in client.watch()] == [1]


async def test_a_reset_leaves_an_agent_of_the_episode_before_without_tools(there: Served) -> None:
    async with on(there.url) as client:
        await client.reset(grant=True)
        old = held(client)
        await client.reset(grant=True)
        async with agent_with(held(client).address, held(client).token) as agent:
            await acts(agent, 100)
        assert not await lets_in(old.address, old.token)
        assert await lets_in(old.address, held(client).token)


def test_a_saved_grant_is_all_that_an_agent_needs(there: Served, tmp_path: Path) -> None:
    async def play(path: Path) -> Any:
        saved = json.loads(path.read_text("utf-8"))
        async with agent_with(saved["address"], saved["token"]) as agent:
            return await acts(agent, 40, 60)

    with CountClient.blocking(there.url) as client:
        client.reset(grant=True)
        assert client.granted is not None
        path = client.granted.save(tmp_path / "grant.json")
        told = asyncio.run(play(path))
        rows = [row.observation.total for row in client.watch()]
        ended = client.wait_end(timeout=300)
        with pytest.raises(StateError):
            client.step(Count())

    assert [each["done"] for each in told] == [False, True]
    assert rows == [40, 100]
    assert ended.steps == 2


async def test_a_grant_on_an_unknown_tool_is_refused_and_nothing_begins(there: Served) -> None:
    async with on(there.url) as client:
        await client.reset()
        await client.step(Count())
        with pytest.raises(ValidationError, match="no such tool"):
            await client.reset(grant=GrantWish(tools=["teleport"]))
        assert (await client.step(Count())).steps == 2


async def test_a_grant_on_a_server_without_agents_is_refused_and_nothing_begins(served: Served) -> None:
    async with on(served.url) as client:
        await client.reset()
        for asked in (client.grant(), client.reset(grant=True)):
            with pytest.raises(RemoteError) as refusal:
                await asked
            assert refusal.value.code == Code.NO_AGENT_PLANE
        assert (await client.step(Count())).episode == 1
