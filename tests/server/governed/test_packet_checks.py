"""What an agent may submit, and how it is judged: by the proctor, by the machine, by the policy; and how large it may be."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.episode.packets.enums import Level, PacketKind, QualityTier, ToolsState
from proctor.episode.packets.reader import Packet, read
from proctor.episode.rules.governance import GOV_1, GOV_2, GOV_3
from proctor.models.events import EpisodeClosed, Failed, encode_event
from proctor.server.governed.packet_checks import (
    AGENT_KINDS,
    PacketTerms,
    complete_packet,
    encode_attempt,
    find_refusals,
)
from proctor.server.governed.packet_stream import MOST_LISTED, PacketLimits
from tests.server.governed.governed_sessions import (
    BELIEF,
    DECISION,
    Agent,
    Hall,
    Heard,
    assert_judged_alike,
    packet,
    policy_with,
)
from tests.server.governed.test_restore import restored

pytestmark = pytest.mark.anyio

CROWDED = "tests.server.environments:Crowded"


async def verify(agent: Agent) -> None:
    await agent.believe()
    await agent.decide("VERIFY_FIRST")
    await agent.use("plan_verification", targets=[{"assumption": "a", "tool": "sniff"}])
    await agent.use("sniff")
    await agent.believe(verified=True)


@pytest.mark.parametrize(("requirement", "second"), [("VERIFY_ONE", False), ("VERIFY_ALL", True)])
async def test_acting_needs_the_verification_that_the_policy_asks_for(requirement: str, second: bool) -> None:
    hall, agent = await Hall.with_agent(policy=policy_with(quality={"verification_requirement": requirement}))
    await agent.believe()

    hasty = await agent.decide("ACT")
    await verify(agent)
    first = await agent.decide("ACT")
    await agent.use("sniff")
    await agent.believe()
    again = await agent.decide("ACT")

    assert hasty.rules == ["POLICY-1"]
    assert not first.refused
    assert again.refused is second
    assert_judged_alike(hall.lines, hall.policy)


async def test_an_act_at_stakes_that_the_policy_escalates_needs_an_answer_first() -> None:
    hall, agent = await Hall.with_agent(
        policy=policy_with(escalation={"when": ["act at HIGH stakes", "write at MEDIUM stakes"]})
    )
    await agent.believe()
    grave = packet(
        hall.policy,
        "DecisionPacket",
        DECISION,
        stakes={"impact": "HIGH", "stakes_level": "HIGH"},
        quality={"quality_tier": "SUPERB"},
    )

    barred = await agent.submit(grave)
    await agent.decide("ACT")
    written = await agent.use("request_token", tools=["move"], rationale="r")
    await agent.use("sniff")
    await agent.believe()
    await agent.decide("ESCALATE")
    await agent.use("escalate", question="may I?", options=["yes", "no"], wait_seconds=0)
    await hall.operator.answer(hall.operator.pending()[0], choice="option_1")
    after = [await agent.submit(grave), await agent.use("request_token", tools=["move"], rationale="r")]

    assert (barred.rules, written.rules) == (["POLICY-2"], ["POLICY-2"])
    assert "act at HIGH stakes" in barred.text
    assert barred.said["way"] == ['decide(outcome="ESCALATE")', "escalate", 'decide(outcome="ACT")']
    assert written.said["way"] == [
        "sniff",
        "believe",
        'decide(outcome="ESCALATE")',
        "escalate",
        'decide(outcome="ACT")',
        "request_token",
    ]
    assert [one.refused for one in after] == [False, False]
    assert_judged_alike(hall.lines, hall.policy)


async def test_an_answer_is_for_the_agent_who_asked_and_no_other_acts_on_it() -> None:
    hall = Hall(CROWDED, policy_with(escalation={"when": ["act at LOW stakes"]}))
    asker, other = await hall.agent(), await hall.agent()
    await ask(hall, asker)

    taken = await other.decide("ACT")
    own = await asker.decide("ACT")

    assert (taken.rules, own.refused) == (["POLICY-2"], False)
    assert_judged_alike(hall.lines, hall.policy)


async def test_what_is_done_on_an_answer_is_done_by_the_agent_who_asked() -> None:
    hall = Hall(CROWDED, policy_with(escalation={"when": ["write at LOW stakes"]}))
    asker, other = await hall.agent(), await hall.agent()
    await ask(hall, asker)
    await asker.decide("ACT")

    barred = await other.use("request_token", tools=["act"], rationale="r")
    own = await asker.use("request_token", tools=["act"], rationale="r")

    assert (barred.rules, own.refused) == (["POLICY-2"], False)
    assert_judged_alike(hall.lines, hall.policy)


async def ask(hall: Hall, agent: Agent) -> None:
    """Have an agent ask an operator, who answers."""
    await agent.believe()
    await agent.decide("ESCALATE")
    await agent.use("escalate", question="may I?", options=["yes", "no"], wait_seconds=0)
    await hall.operator.answer(hall.operator.pending()[0], choice="option_1")


async def test_the_policy_speaks_only_where_the_machine_would_accept() -> None:
    hall, agent = await Hall.with_agent(policy="strict")

    told = await agent.decide("ACT")

    assert told.rules == ["FSM", "E1"]
    assert hall.lines[-1].judged


async def test_house_rules_of_a_policy_are_kept() -> None:
    hall, agent = await Hall.with_agent(
        policy=policy_with(rules="ASK: DecisionPacket(ESCALATE) before DecisionPacket(ACT)")
    )
    await agent.believe()

    told = await agent.decide("ACT")

    assert told.rules == ["ASK"]
    assert_judged_alike(hall.lines, hall.policy)


@pytest.mark.parametrize("arguments", [b"", b"{", b"\xff", b'"\\ud800"', b"1e999", b"[" * 4000])
def test_what_cannot_be_said_as_json_is_on_record_by_its_length(arguments: bytes) -> None:
    assert encode_attempt("believe", arguments) == b'{"tool":"believe","unreadable":%d}' % len(arguments)


def test_of_what_is_too_long_the_size_and_the_digest_are_on_record() -> None:
    arguments = b'"%b"' % (b"x" * 2**17)
    said = msgspec.json.decode(encode_attempt("believe", arguments))

    assert said == {"tool": "believe", "bytes": len(arguments), "sha256": sha256(arguments).hexdigest()}


async def allowed(agent: Agent, hall: Hall, choice: str = "option_1") -> None:
    """Ask the operator and be answered."""
    await agent.decide("ESCALATE")
    await agent.use("escalate", question="may I?", options=["yes", "no"], wait_seconds=0)
    await hall.operator.answer(hall.operator.pending()[0], choice=choice)


async def test_what_is_done_on_a_grave_decision_is_grave() -> None:
    hall, agent = await Hall.with_agent()
    await agent.believe()
    grave = packet(
        hall.policy, "DecisionPacket", DECISION, stakes={"stakes_level": "HIGH"}, quality={"quality_tier": "SUPERB"}
    )

    decided = await agent.submit(grave)
    told = await agent.use("request_token", tools=["move"], rationale="r")
    moved = await agent.use("move", direction="up")

    assert not decided.refused
    assert told.rules == ["POLICY-2"]
    assert "write at HIGH stakes" in told.text
    assert moved.refused
    assert hall.steps == 0
    assert_judged_alike(hall.lines, hall.policy)


@pytest.mark.parametrize("condition", ["act at MEDIUM stakes", "write at MEDIUM stakes"])
async def test_an_answer_is_good_for_one_act(condition: str) -> None:
    hall, agent = await Hall.with_agent(policy=policy_with(escalation={"when": [condition]}))
    await agent.believe()
    await allowed(agent, hall)

    first = [
        await agent.decide("ACT"),
        await agent.use("request_token", tools=["move"], rationale="r"),
        await agent.use("move", direction="up"),
        await agent.use("move", direction="up"),
    ]
    await agent.believe()
    second = [await agent.decide("ACT"), await agent.use("request_token", tools=["move"], rationale="r")]

    assert [one.refused for one in first] == [False] * 4
    assert ["POLICY-2"] in [one.rules for one in second]
    assert hall.steps == 2
    assert_judged_alike(hall.lines, hall.policy)


async def test_an_answer_waits_for_its_act_through_a_verification() -> None:
    hall, agent = await Hall.with_agent(policy=policy_with(escalation={"when": ["act at MEDIUM stakes"]}))
    await agent.believe()
    await allowed(agent, hall)

    await agent.decide("VERIFY_FIRST")
    await agent.use("plan_verification", targets=["a"])
    await agent.use("sniff")
    await agent.believe()

    assert not (await agent.decide("ACT")).refused


POLICY = policy_with("standard")
TERMS = PacketTerms("corr_s_1", "pkt_s_1_9", datetime(2030, 1, 1, tzinfo=UTC), ToolsState.OK)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
objects = st.fixed_dictionaries(
    {},
    optional={
        "header": st.fixed_dictionaries(
            {}, optional={"packet_type": st.sampled_from(list(PacketKind)) | values, "layer_source": values}
        )
        | values,
        "mcp": st.dictionaries(st.sampled_from(["stakes", "quality", "budgets", "routing"]), values, max_size=4)
        | values,
        "payload": values,
        "record": values,
        "_stated_at": values,
    },
)


def rules(submitted: dict[str, Any]) -> list[str]:
    return [bar.rule for bar in find_refusals(submitted, TERMS, POLICY)]


@given(submitted=objects)
@settings(max_examples=50)
def test_whatever_is_submitted_is_looked_at_without_an_exception(submitted: dict[str, Any]) -> None:
    found = find_refusals(submitted, TERMS, POLICY)
    line = json.loads(complete_packet(submitted, TERMS))

    assert all(bar.rule in (GOV_1, GOV_2, GOV_3) for bar in found)
    header = line.get("header")
    if isinstance(header, dict):
        assert header["correlation_id"] == TERMS.correlation_id
        assert header["created_at"] == "2030-01-01T00:00:00Z"


@given(kind=st.sampled_from(list(PacketKind)), layer=st.sampled_from([1, 2, 3, 4, 5, 6, "Integrity"]))
def test_gov_1_lets_five_kinds_from_four_layers_pass(kind: PacketKind, layer: int | str) -> None:
    found = rules(packet(POLICY, kind, {}, layer))

    assert (found == []) == (kind in AGENT_KINDS and layer in (2, 3, 4, 5))
    assert set(found) <= {"GOV-1"}


@given(level=st.sampled_from(list(Level)), tier=st.sampled_from(list(QualityTier)), calls=st.integers(0, 4000))
def test_gov_3_lets_pass_what_is_as_strict_as_the_policy_or_stricter(
    level: Level, tier: QualityTier, calls: int
) -> None:
    submitted = packet(
        POLICY,
        "BeliefUpdatePacket",
        BELIEF,
        3,
        stakes={"stakes_level": level},
        quality={"quality_tier": tier},
        budgets={"tool_call_budget": calls},
    )

    lower = [level == "LOW", tier == "SUBPAR", calls > POLICY.budgets.tool_call_budget]
    assert rules(submitted) == ["GOV-3"] * sum(lower)


def test_a_section_that_cannot_be_read_is_left_to_the_judge() -> None:
    submitted = packet(POLICY, "BeliefUpdatePacket", BELIEF, 3, stakes={"impact": "TINY"})

    assert rules(submitted) == []
    assert not isinstance(read(complete_packet(submitted, TERMS)), Packet)


def test_satisficing_is_below_a_policy_that_does_not_allow_it() -> None:
    strict = policy_with("strict")
    submitted = packet(strict, "BeliefUpdatePacket", BELIEF, 3, quality={"satisficing_mode": True})

    assert [bar.pointer for bar in find_refusals(submitted, TERMS, strict)] == ["/mcp/quality/satisficing_mode"]


MOST = 8192


def hall_with(**limits: int) -> Hall:
    return Hall(packet_limits=PacketLimits(**limits))


@pytest.mark.parametrize("tool", ["believe", "sniff", "submit_packet", "escalate"])
async def test_arguments_that_are_too_long_are_refused_unread_with_what_can_be_done(tool: str) -> None:
    hall = hall_with(packet_bytes=MOST)
    agent = await hall.agent()
    arguments = b'{"anything":"%b"}' % (b"x" * MOST)
    before = hall.governor.stream.standing

    told = Heard(await agent.view.call(tool, arguments))
    again = await agent.believe()

    assert (told.rules, told.said["code"]) == (["SIZE-1"], "REFUSED")
    assert str(MOST) in told.text
    assert told.said["legal_next"]
    line = hall.lines[-2]
    said = msgspec.json.decode(line.line)
    assert said == {"tool": tool, "bytes": len(arguments), "sha256": sha256(arguments).hexdigest()}
    assert (line.judged, line.accepted, line.rules) == (False, False, ["SIZE-1"])
    assert not again.refused
    assert before.position is not hall.governor.stream.position
    assert_judged_alike(hall.lines, hall.policy)


def submit(hall: Hall, size: int) -> tuple[str, bytes]:
    """Return a call that submits a belief of so many bytes."""
    changes = [{"domain": "d", "key": "k", "new_value": "x" * size, "prior_value": None}]
    said = packet(hall.policy, "BeliefUpdatePacket", {**BELIEF, "belief_changes": changes}, 3)
    return "submit_packet", msgspec.json.encode({"packet": said})


def believe(hall: Hall, size: int) -> tuple[str, bytes]:
    """Return a call that states a belief of so many bytes."""
    return "believe", msgspec.json.encode({"changes": {"k": "x" * size}})


@pytest.mark.parametrize("call", [submit, believe])
async def test_a_packet_that_is_too_long_with_its_envelope_is_refused_before_it_is_judged(
    call: Callable[[Hall, int], tuple[str, bytes]],
) -> None:
    hall = hall_with(packet_bytes=MOST)
    agent = await hall.agent()
    tool, arguments = call(hall, MOST - len(call(hall, 0)[1]))
    told = Heard(await agent.view.call(tool, arguments))
    line = hall.lines[-1]
    short = Heard(await agent.view.call(*call(hall, 10)))

    assert len(arguments) == MOST
    assert told.rules == ["SIZE-1"]
    assert (line.judged, line.accepted) == (False, False)
    assert len(bytes(line.line)) < 200
    assert not short.refused
    assert all(len(bytes(each.line)) <= MOST for each in hall.lines)
    assert_judged_alike(hall.lines, hall.policy)


async def test_a_packet_of_just_so_many_bytes_is_judged() -> None:
    hall = hall_with(packet_bytes=MOST)
    agent = await hall.agent()
    await agent.believe(k="x")
    await agent.believe(k="y")
    envelope = len(bytes(hall.lines[-1].line)) - 1

    told = await agent.believe(k="x" * (MOST - envelope))

    assert not told.refused
    assert len(bytes(hall.lines[-1].line)) == MOST


async def test_refused_calls_end_the_episode_when_they_have_put_too_much_on_record() -> None:
    hall = hall_with(refused_bytes=20_000)
    agent = await hall.agent()
    told = []
    for _ in range(200):
        told.append(await agent.use("escalate"))
        if told[-1].code != "REFUSED":
            break
    after = await agent.believe()
    await hall.session.close("closed")

    assert 5 < len(told) < 50
    assert (told[-1].code, after.code) == ("EPISODE_FULL", "EPISODE_LOST")
    assert "refused calls" in told[-1].text
    assert next(event.code for event in hall.events if isinstance(event, Failed)) == "EPISODE_FULL"
    assert [event.reason for event in hall.events if isinstance(event, EpisodeClosed)] == ["lost"]
    assert sum(len(bytes(line.line)) for line in hall.lines if not line.accepted) < 20_000


async def test_what_was_refused_before_a_restart_counts_after_it() -> None:
    hall, agent = await Hall.with_agent()
    for _ in range(4):
        await agent.use("escalate")
    counted = hall.governor.stream._refused_bytes
    again = restored(hall)

    assert counted == sum(len(encode_event(line)) for line in hall.lines if not line.accepted) > 0
    assert again.stream._refused_bytes == counted


async def test_of_a_line_of_errors_the_first_are_on_record_and_every_byte_of_them_counts() -> None:
    hall, agent = await Hall.with_agent()
    said = packet(hall.policy, "BeliefUpdatePacket", {**BELIEF, **{f"k{n:03}": 0 for n in range(400)}}, 3)

    told = await agent.submit(said)
    line = hall.lines[-1]

    assert (told.rules, line.judged) == (["SCHEMA"], True)
    assert line.pointers == [f"/payload/k{n:03}" for n in range(MOST_LISTED)]
    assert hall.governor.stream._refused_bytes == len(encode_event(line))
    assert_judged_alike(hall.lines, hall.policy)


async def test_of_references_by_names_of_the_agents_own_the_first_are_on_record() -> None:
    hall, agent = await Hall.with_agent()
    named = packet(hall.policy, "BeliefUpdatePacket", dict(BELIEF), 3, header={"packet_id": "pkt_mine"})
    assert not (await agent.submit(named)).refused
    again = packet(hall.policy, "BeliefUpdatePacket", {**BELIEF, "evidence_integration": ["pkt_mine"] * 100}, 3)

    told = await agent.submit(again)

    assert told.rules == ["GOV-2"]
    assert hall.lines[-1].pointers == [f"/payload/evidence_integration/{n}" for n in range(MOST_LISTED)]
