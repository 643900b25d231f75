"""Governance of a server, without one and behind one: who is governed, and what is told of it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from mcp import Client

from proctor.errors import ComponentError
from proctor.models.control import Granted, GrantWish, Reset
from proctor.models.wire import Encoding
from proctor.server.governed.governor import find_governor
from proctor.server.governed.policy import GovernancePolicy, load_policy
from proctor.server.grants import GrantService
from proctor.server.runtime.results import RequestRefused
from tests.server.governed.governed_sessions import Agent, Hall, policy_with
from tests.server.live_server import PATIENCE, Session, Talk, serving
from tests.server.mcp_agents import Answer, agent_with, lets_in

pytestmark = pytest.mark.anyio


async def test_the_head_in_the_reply_is_that_of_the_last_line() -> None:
    hall = Hall()
    hall.diary.head = lambda session: f"s.1@{len(hall.events)}:00"  # type: ignore[method-assign, assignment]  # a ledger's
    await hall.session.open()

    alone = json.loads(bytes(await hall.granting.reset(hall.session, Reset(seed=1), 1)))
    granted = json.loads(bytes(await hall.granting.reset(hall.session, Reset(seed=1, grant=GrantWish()), 2)))

    # Opened, reset, the record and the first observation; then the end, and the same again with a grant.
    assert alone["head"] == "s.1@4:00"
    assert granted["head"] == "s.1@9:00"
    assert granted["grant"]["tools"] == ["sniff", "move"]


async def test_a_client_without_hello_is_governed_and_its_reply_is_as_it_was() -> None:
    hall = Hall()
    await hall.session.open()

    reply = json.loads(bytes(await hall.granting.reset(hall.session, Reset(seed=1), None)))

    assert "head" not in reply
    assert find_governor(hall.session) is not None
    assert len(hall.lines) == 2


async def test_without_a_policy_nothing_is_governed() -> None:
    hall = Hall()
    hall.granting = GrantService(hall.grants, wall=hall.wall)

    await hall.begin()
    await hall.granting.sweep()

    assert find_governor(hall.session) is None
    assert hall.lines == []


async def test_an_observation_that_is_packed_for_a_machine_is_not_repeated_to_an_agent() -> None:
    hall = Hall()
    hall.session.spec = replace(hall.session.spec, encoding=Encoding(packed=True))  # type: ignore[misc]

    agent = await hall.agent()

    assert json.loads(bytes(hall.lines[1].line))["payload"]["data"] == {"step": 0, "done": False}
    assert "base64" not in agent.view.instructions


async def test_the_next_episode_has_a_governor_of_its_own() -> None:
    hall = await Hall.start()
    first = hall.governor

    await hall.begin()

    assert hall.governor is not first
    assert first.closed
    assert list(hall.governance.registry) == [hall.governor]
    assert hall.governor.stream.name == "corr_s_2"


NEVER = policy_with(tokens={"issuer": "never"})


@pytest.mark.parametrize("policy", [load_policy("strict"), NEVER], ids=["strict", "never"])
async def test_a_grant_with_which_an_agent_could_not_go_on_is_refused(policy: GovernancePolicy) -> None:
    hall = await Hall.start(policy=policy)
    moves, both = GrantWish(tools=["move"]), GrantWish(tools=["move", "sniff"])

    with pytest.raises(RequestRefused) as alone:
        await hall.granting.grant(hall.session, moves, 2)
    with pytest.raises(RequestRefused) as with_reset:
        await hall.granting.reset(hall.session, Reset(seed=1, grant=moves), 3)
    granted = await hall.granting.grant(hall.session, both, 4)

    assert {each.value.problem.code for each in (alone, with_reset)} == {"VALIDATION_ERROR"}
    assert "only reads" in alone.value.problem.message
    assert hall.session.epoch == 1
    assert granted.tools == ["sniff", "move"]


async def test_where_tokens_are_issued_a_grant_may_be_without_a_tool_that_reads() -> None:
    hall = await Hall.start()

    assert (await hall.granting.grant(hall.session, GrantWish(tools=["move"]), 2)).tools == ["move"]


@pytest.mark.parametrize("policy", [load_policy("strict"), NEVER], ids=["strict", "never"])
async def test_an_agent_that_lacks_a_tool_is_told_so_and_never_a_false_way(policy: GovernancePolicy) -> None:
    hall = Hall(policy=policy)
    agent = Agent(hall.view(await given(hall)))
    await agent.believe()

    told = [await agent.decide("ACT"), await agent.use("move", direction="up")]
    await agent.decide("VERIFY_FIRST")
    await agent.use("plan_verification", targets=["a"])
    told += [await agent.believe(), await agent.decide("CANCEL"), await agent.use("move", direction="up")]

    refused = [one for one in told if one.refused]
    assert len(refused) >= 4
    assert all("way" not in one.said for one in refused)
    assert all("needs a t" in one.text and "orchestrator" in one.text for one in refused)
    assert all("request_token" not in one.said["next_calls"] for one in refused)


async def given(hall: Hall) -> Granted:
    """Return a grant of a tool that acts, as an earlier run of the server may have given it."""
    await hall.begin()
    return hall.give(tools=["move"])


async def test_one_episode_that_cannot_be_recorded_does_not_keep_the_others_from_their_end() -> None:
    halls = [Hall(max_steps=2), Hall(max_steps=2, name="t")]
    halls[1].governance = halls[0].governance
    for hall in halls:
        hall.granting = GrantService(hall.grants, wall=hall.wall, governance=halls[0].governance)
        agent = await hall.agent()
        await agent.permitted("move")
        await agent.use("move", direction="up", steps=2)

    def full(event: object) -> None:
        raise ComponentError("the disk is full")

    halls[0].now += 100
    halls[0].diary.record = full  # type: ignore[method-assign]  # a disk that is full
    await halls[0].granting.sweep()

    assert halls[0].session.loss is not None
    assert [end.session for end in halls[1].ends] == ["t"]


SMALL = {"max_steps": 3}


async def played(granted: dict[str, Any]) -> tuple[list[str], str, list[Answer]]:
    """Return the agent's tools, what it reads first, and what its calls are answered with."""
    async with asyncio.timeout(PATIENCE), agent_with(granted["address"], granted["token"]) as agent:
        client: Client = agent.client
        tools = await agent.tools()
        answers = [
            await agent.use("move", direction="up"),
            await agent.use("believe", changes={"odor": "faint"}),
            await agent.use("decide", outcome="ACT", summary="go up"),
            await agent.use("request_token", tools=["move"], rationale="to go up"),
            await agent.use("move", direction="up", steps=3),
            await agent.use("sniff"),
            await agent.use("believe", changes={"ended": True}),
        ]
        return tools, str(client.instructions), answers


def test_an_agent_lives_through_a_governed_episode() -> None:
    with (
        serving("proctor/PlumeSearch-v0", agent_port=0, governed="standard", settings=SMALL) as there,
        Talk(there, greet=True) as talk,
    ):
        session = Session(talk)
        reset = session.ask("reset", {"seed": 1, "grant": {}})
        granted = reset["data"]["grant"]

        tools, instructions, answers = asyncio.run(played(granted))
        end = session.ask("wait_end", {"wait_seconds": 10}, epoch=reset["epoch"])["data"]
        alive = asyncio.run(lets_in(granted["address"], granted["token"]))

    assert tools == [
        "sniff",
        "move",
        "believe",
        "decide",
        "plan_verification",
        "request_token",
        "escalate",
        "submit_packet",
    ]
    assert "The loop is" in instructions
    assert [answer.code for answer in answers] == ["REFUSED", None, None, None, None, "ENDED", None]
    assert answers[0].told["way"][-1] == "move"
    assert answers[4].told["governed"]["state"] == "S6_EXECUTE"
    assert answers[-1].told["closed"]
    assert (end["over"], end["outcome"], end["state"]) == (True, "conforming", "S7_REVIEW")
    assert not alive
