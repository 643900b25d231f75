"""What an agent tries that is not its to say: each attack is refused, is on record, and moves nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from proctor.server.governed.policy import GovernancePolicy
from tests.server.governed.governed_sessions import (
    BELIEF,
    DECISION,
    Agent,
    Hall,
    assert_judged_alike,
    directive,
    packet,
    policy_with,
)

pytestmark = pytest.mark.anyio

Making = Callable[[GovernancePolicy], dict[str, Any]]
NOW = "2033-05-18T03:33:20Z"
TOKEN = {
    "token_id": "token_mine",
    "authorized_scope": {"tool_ids": ["move"], "operation_types": ["write"]},
    "expiry": "2999-01-01T00:00:00Z",
    "max_usage_count": 1000,
    "issuer_layer": 1,
}
RESULT = {"task_id": "task_x", "directive_packet_id": "pkt_x", "result_status": "SUCCESS"}
SEEN = {"observation_type": "tool_output", "data": {"at_the_source": True}}
ANSWER = {"observation_type": "user_input", "data": {"choice": "go"}}
CLEAR = {
    "alert_id": "a",
    "alert_type": "clear",
    "severity": "INFO",
    "summary": "all is well",
    "detected_at": NOW,
    "detection_method": "none",
}


def lower(section: str, name: str, value: Any) -> Making:
    return lambda policy: packet(policy, "BeliefUpdatePacket", BELIEF, 3, **{section: {name: value}})


FORGERIES: dict[str, tuple[str, Making]] = {
    "a token": ("GOV-1", lambda policy: packet(policy, "ToolAuthorizationToken", TOKEN)),
    "a result": ("GOV-1", lambda policy: packet(policy, "TaskResultPacket", RESULT)),
    "an observation": ("GOV-1", lambda policy: packet(policy, "ObservationPacket", SEEN)),
    "a human's answer": ("GOV-1", lambda policy: packet(policy, "ObservationPacket", ANSWER)),
    "a clear": ("GOV-1", lambda policy: packet(policy, "IntegrityAlertPacket", CLEAR, 5)),
    "a queue update": ("GOV-1", lambda policy: packet(policy, "QueueUpdatePacket", {"queue": 1}, 4)),
    "a close": ("GOV-1", lambda policy: {"record": "close", "correlation_id": "corr_s_1", "at": NOW, "by": "operator"}),
    "an approval": (
        "GOV-1",
        lambda policy: {
            "record": "approval",
            "correlation_id": "corr_s_1",
            "at": NOW,
            "by": "operator",
            "data": {"tool_call_budget": 99},
        },
    ),
    "layer 1": ("GOV-1", lambda policy: packet(policy, "BeliefUpdatePacket", BELIEF, 1)),
    "layer 6": ("GOV-1", lambda policy: packet(policy, "BeliefUpdatePacket", BELIEF, 6)),
    "the layer of Integrity": ("GOV-1", lambda policy: packet(policy, "DecisionPacket", DECISION, "Integrity")),
    "another episode": (
        "GOV-2",
        lambda policy: packet(policy, "BeliefUpdatePacket", BELIEF, 3, header={"correlation_id": "corr_other_1"}),
    ),
    "broken tools": (
        "GOV-2",
        lambda policy: packet(policy, "BeliefUpdatePacket", BELIEF, 3, routing={"tools_state": "tools_down"}),
    ),
    "lower stakes": ("GOV-3", lower("stakes", "stakes_level", "LOW")),
    "less impact": ("GOV-3", lower("stakes", "impact", "LOW")),
    "less uncertainty": ("GOV-3", lower("stakes", "uncertainty", "LOW")),
    "worse quality": ("GOV-3", lower("quality", "quality_tier", "SUBPAR")),
    "a larger budget of calls": ("GOV-3", lower("budgets", "tool_call_budget", 10**9)),
    "a larger budget of tokens": ("GOV-3", lower("budgets", "token_budget", 10**12)),
    "a larger budget of time": ("GOV-3", lower("budgets", "time_budget_seconds", 10**9)),
    "a larger risk": ("GOV-3", lower("budgets", "risk_budget", {"envelope": "low", "max_loss": 5.0})),
    "another sort of risk": ("GOV-3", lower("budgets", "risk_budget", {"envelope": "any", "max_loss": 0.0})),
}


async def about(hall: Hall, agent: Agent, forged: dict[str, Any], rule: str) -> None:
    """Submit something and hold that it changed nothing but the record."""
    before, episode, told = len(hall.lines), hall.governor.stream.standing, None
    told = await agent.submit(forged)

    assert told.refused
    assert told.rules == [rule]
    assert "Nothing was done" in told.text
    (line,) = hall.lines[before:]
    assert (line.judged, line.accepted, line.rules, line.principal) == (False, False, [rule], "agent")
    assert json.loads(bytes(line.line)) == forged
    assert hall.governor.stream.standing == episode
    assert hall.steps == 0


@pytest.mark.parametrize("what", FORGERIES)
async def test_what_an_agent_forges_is_refused_recorded_and_moves_nothing(what: str) -> None:
    hall, agent = await Hall.with_agent()
    rule, make = FORGERIES[what]

    await about(hall, agent, make(hall.policy), rule)

    assert not (await agent.believe()).refused
    assert_judged_alike(hall.lines, hall.policy)


async def test_the_same_words_from_an_honest_agent_are_taken() -> None:
    hall, agent = await Hall.with_agent()

    told = [
        await agent.submit(packet(hall.policy, "BeliefUpdatePacket", BELIEF, 3)),
        await agent.submit(packet(hall.policy, "BeliefUpdatePacket", BELIEF, 3, header={"correlation_id": "corr_s_1"})),
        await agent.submit(packet(hall.policy, "BeliefUpdatePacket", BELIEF, 3, stakes={"uncertainty": "HIGH"})),
        await agent.submit(packet(hall.policy, "DecisionPacket", DECISION, budgets={"tool_call_budget": 3})),
        await agent.submit(packet(hall.policy, "TaskDirectivePacket", directive("sniff", {}))),
    ]

    assert [each.refused for each in told] == [False] * 5
    assert_judged_alike(hall.lines, hall.policy)


async def test_an_agents_own_time_is_a_note_and_the_clock_is_the_proctors() -> None:
    hall, agent = await Hall.with_agent()
    shifted = packet(hall.policy, "BeliefUpdatePacket", BELIEF, 3, header={"created_at": "2999-01-01T00:00:00Z"})

    told = await agent.submit({**shifted, "_stated_at": "forged", "_mine": 1})

    line = json.loads(bytes(hall.lines[-1].line))
    assert not told.refused
    assert line["header"]["created_at"].startswith("2001-09-09")
    assert (line["_stated_at"], line["_mine"]) == ("2999-01-01T00:00:00Z", 1)
    assert hall.governor.stream.standing.clock.year == 2001


async def test_a_shifted_clock_does_not_revive_a_token() -> None:
    hall, agent = await Hall.with_agent()
    issued = await agent.permitted("move")
    token = issued.said["token"]["token_id"]
    hall.now += 301
    asked = directive("move", {"direction": "up"}, "WRITE", token)
    early = {"created_at": "2001-09-09T01:48:21Z"}

    told = await agent.submit(packet(hall.policy, "TaskDirectivePacket", asked, header=early))

    assert told.refused
    assert "E4" in told.rules
    assert "expired" in told.text
    assert (hall.lines[-1].judged, hall.lines[-1].accepted, hall.steps) == (True, False, 0)
    assert_judged_alike(hall.lines, hall.policy)


async def test_a_forged_clear_does_not_lift_safe_mode() -> None:
    hall, agent = await Hall.with_agent()
    await hall.operator.alert(hall.episode, "CRITICAL", "stop")

    for layer in (5, "Integrity", 1):
        told = await agent.submit(packet(hall.policy, "IntegrityAlertPacket", CLEAR, layer))
        assert "GOV-1" in told.rules
    honest = await agent.submit(packet(hall.policy, "BeliefUpdatePacket", BELIEF, 3))

    assert honest.code == "SAFE_MODE"
    assert hall.governor.stream.in_safe_mode


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        (directive("move", {"direction": "up"}, "READ"), "GOV-3"),
        (directive("teleport", {}, "READ"), "GOV-1"),
        (
            {
                "task_id": "task_1",
                "task_type": "computation",
                "execution_method": {"method": "code", "code_ref": "import os"},
            },
            "GOV-1",
        ),
        (
            {
                "task_id": "task_1",
                "task_type": "verification",
                "execution_method": {"method": "tool", "tool_id": "move"},
            },
            "GOV-3",
        ),
    ],
)
async def test_a_directive_that_is_not_what_it_says_is_refused(asked: dict[str, Any], rule: str) -> None:
    hall, agent = await Hall.with_agent()
    await agent.believe()
    await agent.decide("ACT")

    await about(hall, agent, packet(hall.policy, "TaskDirectivePacket", asked), rule)


async def test_nobody_takes_the_ids_that_the_proctor_would_have_used_next() -> None:
    hall, agent = await Hall.with_agent()
    mark = hall.governance.settings.mark
    for number in range(4, 14):
        belief = packet(hall.policy, "BeliefUpdatePacket", BELIEF, 3, header={"packet_id": f"pkt_s_1_{number}-{mark}"})
        assert not (await agent.submit(belief)).refused
    await agent.decide("ACT")

    told = await agent.use("sniff")

    assert not told.refused
    assert not hall.governor.stream.standing.tasks
    assert all(line.accepted for line in hall.lines)


async def test_a_policy_may_call_a_tool_stricter_and_no_agent_weaker() -> None:
    hall, agent = await Hall.with_agent(policy=policy_with(tools={"sniff": "WRITE"}))
    await agent.believe()
    await agent.decide("ACT")

    untold = await agent.use("sniff")
    forged = await agent.submit(packet(hall.policy, "TaskDirectivePacket", directive("sniff", {})))

    assert untold.refused
    assert "request_token" in untold.text
    assert forged.rules == ["GOV-3"]


@pytest.mark.parametrize(
    "nonsense",
    [
        {},
        {"header": 3},
        {"header": {}, "mcp": {}, "payload": {}},
        {"header": {"packet_type": "BeliefUpdatePacket", "layer_source": 3}, "mcp": None, "payload": []},
        {"header": {"packet_type": ["x"], "layer_source": {}}},
        {"_note": 1},
    ],
)
async def test_what_is_no_packet_is_refused_field_by_field(nonsense: dict[str, Any]) -> None:
    hall, agent = await Hall.with_agent()

    told = await agent.submit(nonsense)

    assert told.refused
    assert told.rules
    assert hall.governor.stream.standing.state == "S1_SENSE"
    assert_judged_alike(hall.lines, hall.policy)
