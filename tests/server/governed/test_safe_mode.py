"""Safe mode: it stops an agent at once, in the middle of a call, and only an operator lifts it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from proctor.models.events import Event, PacketJudged
from tests.server.governed.governed_sessions import (
    BELIEF,
    Disk,
    Hall,
    Heard,
    assert_judged_alike,
    packet,
    policy_with,
    turns,
)

pytestmark = pytest.mark.anyio

CALLS: dict[str, dict[str, Any]] = {
    "believe": {"changes": {"a": 1}},
    "decide": {"outcome": "CANCEL", "summary": "no"},
    "plan_verification": {"targets": ["a"]},
    "request_token": {"tools": ["move"], "rationale": "r"},
    "escalate": {"question": "q", "options": ["a", "b"]},
    "sniff": {},
    "move": {"direction": "up"},
}


async def test_every_tool_is_refused_until_the_operator_clears() -> None:
    hall, agent = await Hall.with_agent()
    await agent.permitted("move")

    halted = await hall.operator.alert(hall.episode, "CRITICAL", "smoke")
    before = len(hall.lines)
    told = {tool: await agent.use(tool, **arguments) for tool, arguments in CALLS.items()}
    told["submit_packet"] = await agent.submit(packet(hall.policy, "BeliefUpdatePacket", BELIEF, 3))
    refusals = hall.lines[before:]
    cleared = await hall.operator.clear(hall.episode, "it was toast")
    again = await agent.use("move", direction="up")
    anew = await agent.believe()

    assert (halted.accepted, halted.state) == (True, "S9_SAFEMODE")
    assert {one.code for one in told.values()} == {"SAFE_MODE"}
    assert all("operator" in one.text for one in told.values())
    assert [line.rules for line in refusals] == [["E7"]] * len(told)
    assert (cleared.accepted, cleared.state) == (True, "S7_REVIEW")
    assert again.refused
    assert "believe" in again.said["way"]
    assert anew.state == "S2_MODEL"
    assert hall.steps == 0
    assert_judged_alike(hall.lines, hall.policy)


@pytest.mark.parametrize("lifted", [False, True])
async def test_a_longer_call_stops_after_the_action_that_runs_also_if_safe_mode_is_lifted_meanwhile(
    lifted: bool,
) -> None:
    hall, agent = await Hall.with_agent()
    await agent.permitted("move")

    async def progress(done: int, count: int) -> None:
        if done == 2:
            await hall.operator.alert(hall.episode, "CRITICAL", "stop")
            if lifted:
                await hall.operator.clear(hall.episode)

    told = Heard(await agent.view.call("move", b'{"direction":"up","steps":9}', progress))

    state = "S7_REVIEW" if lifted else "S9_SAFEMODE"
    assert (told.code, told.state, hall.governor.stream.standing.state) == ("SAFE_MODE", state, state)
    assert "2 of 9 actions were carried out" in told.text
    assert hall.steps == 2
    late = hall.lines[-1]
    assert (late.kind, late.accepted, late.judged) == ("TaskResultPacket", False, True)
    assert_judged_alike(hall.lines, hall.policy)


async def test_an_alert_between_a_directive_and_its_action_stops_the_action() -> None:
    hall, agent = await Hall.with_agent()
    await agent.permitted("move")
    quick = hall.diary.record

    def slow(event: Event) -> Any:
        quick(event)
        directed = isinstance(event, PacketJudged) and event.kind == "TaskDirectivePacket"
        return hall.operator.alert(hall.episode, "CRITICAL", "stop") if directed else None

    hall.diary.record = slow  # type: ignore[method-assign]  # a disk that an operator is quicker than
    told = await agent.use("move", direction="up")

    assert told.code == "SAFE_MODE"
    assert hall.steps == 0
    assert [line.kind for line in hall.lines[-2:]] == ["TaskDirectivePacket", "IntegrityAlertPacket"]
    assert_judged_alike(hall.lines, hall.policy)


async def test_an_alert_that_is_not_critical_stops_nothing() -> None:
    hall, agent = await Hall.with_agent()
    await agent.permitted("move")

    done = await hall.operator.alert(hall.episode, "WARNING", "watch out")

    assert (done.accepted, done.state) == (True, "S5_AUTHORIZE")
    assert not (await agent.use("move", direction="up")).refused


@pytest.mark.parametrize(("on_overrun", "state"), [("safemode", "S9_SAFEMODE"), ("escalate", "S8_ESCALATED")])
async def test_a_budget_that_is_overrun_stops_the_agent_or_asks(on_overrun: str, state: str) -> None:
    hall, agent = await Hall.with_agent(policy=policy_with(budgets={"time_budget_seconds": 5}, on_overrun=on_overrun))
    await agent.permitted("move")

    async def progress(done: int, count: int) -> None:
        hall.now += 6

    told = Heard(await agent.view.call("move", b'{"direction":"up","steps":2}', progress))
    after = await agent.use("move", direction="up")

    assert (told.refused, told.state) == (False, state)
    assert after.refused
    assert hall.steps == 2
    result = next(line for line in reversed(hall.lines) if line.kind == "TaskResultPacket")
    assert json.loads(bytes(result.line))["payload"]["execution_metadata"]["execution_time_ms"] == 6000
    assert result.path[-1] == state
    assert_judged_alike(hall.lines, hall.policy)


async def test_a_budget_that_is_used_up_refuses_the_next_call_until_more_is_approved() -> None:
    hall, agent = await Hall.with_agent(policy=policy_with(budgets={"tool_call_budget": 2}))
    await agent.permitted("move")

    told = [await agent.use("move", direction="up") for _ in range(3)]
    done = await hall.operator.approve_budget(hall.episode, tool_call_budget=1, note="one more")
    again = [await agent.use("move", direction="up") for _ in range(2)]

    assert [one.refused for one in told] == [False, False, True]
    assert told[-1].rules == ["INV-005"]
    assert "escalate" in told[-1].text
    assert done.accepted
    assert [one.refused for one in again] == [False, True]
    assert hall.steps == 3
    assert_judged_alike(hall.lines, hall.policy)


async def test_a_directive_that_was_voided_while_it_was_written_never_runs_though_safe_mode_is_lifted() -> None:
    hall, agent = await Hall.with_agent()
    await agent.permitted("move")
    disk = Disk(hall)

    with disk.held():
        asked = asyncio.create_task(agent.use("move", direction="up", steps=3))
        await turns()
        acts = [asyncio.create_task(hall.operator.alert(hall.episode, "CRITICAL", "stop"))]
        await turns()
        acts.append(asyncio.create_task(hall.operator.clear(hall.episode, "go on")))
        await turns()
    told = await asked
    await asyncio.gather(*acts)

    assert (told.code, told.state) == ("SAFE_MODE", "S7_REVIEW")
    assert "stopped meanwhile" in told.text
    assert hall.steps == 0
    assert hall.governor.stream.standing.tasks == {}
    assert "TaskResultPacket" not in [line.kind for line in hall.lines]
    assert_judged_alike(hall.lines, hall.policy)
