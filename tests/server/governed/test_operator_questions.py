"""Whose question an answer reaches: the one that the operator has read, whatever agents call their packets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.models.events import PacketJudged
from proctor.models.operator import EpisodeAct, QuestionAct, Waiting, question_name
from proctor.server.governed.governance import Governance, Operator
from proctor.server.runtime.results import RequestRefused
from tests.server.bare_sessions import run
from tests.server.governed.governed_sessions import (
    BELIEF,
    DECISION,
    Agent,
    Disk,
    Hall,
    assert_judged_alike,
    directive,
    packet,
    policy_with,
    turns,
    until,
)
from tests.server.governed.test_restore import kept, restored

pytestmark = pytest.mark.anyio

MINE = "pkt_mine"
BOOT = "5e884898da280471"
MARK = BOOT[:6]
NEXT = [f"pkt_s_1_{number}-{MARK}" for number in (3, 4, 5, 9)]
OPTIONS = [
    {"option_id": name, "description": name, "pros": ["one"], "cons": ["another"]} for name in ("delete_all", "stop")
]
ESCALATION = {
    "escalation_trigger": "user_override_required",
    "top_options": OPTIONS,
    "evidence_gaps": [{"gap": "what a human wants", "impact_if_unknown": "a wrong choice"}],
    "recommended_next_step": {"step": "choose", "rationale": "only a human can"},
}


class OtherHall(Hall):
    """A second session of the same server."""

    def __init__(self, first: Hall) -> None:
        super().__init__(policy=first.policy)
        self.session.name = "t"  # type: ignore[misc]  # before anybody has heard of it
        self.governance = first.governance
        self.granting = type(first.granting)(self.grants, wall=self.wall, governance=first.governance)


async def ask(hall: Hall, agent: Agent, question: str, name: str | None = MINE) -> str:
    """Ask an operator with a packet that its agent calls `name`; return what it is called."""
    await agent.believe()
    await agent.decide("ESCALATE")
    header = {} if name is None else {"packet_id": name}
    asked = packet(hall.policy, "EscalationPacket", ESCALATION, 5, header=header, intent={"summary": question})
    told = await agent.submit(asked)
    assert not told.refused, told.text
    return str(told.said["packet_id"])


def refused_code(problem: pytest.ExceptionInfo[RequestRefused]) -> str:
    return str(problem.value.problem.code)


# ------------------------------------------------------------------------------------------------- one answer, one question
async def test_an_answer_reaches_the_session_whose_question_it_names_though_both_call_it_the_same() -> None:
    hall = Hall()
    other = OtherHall(hall)
    first, second = await hall.agent(), await other.agent()
    names = [await ask(hall, first, "May I stop?"), await ask(other, second, "May I delete it all?")]
    harmless, harmful = hall.operator.pending()

    done = await hall.operator.answer(harmless, choice="stop")

    assert len({harmless.id, harmful.id}) == 2
    assert [harmless.id, harmful.id] == names
    assert (done.session, done.epoch, done.question) == ("s", 1, "May I stop?")
    assert hall.operator.pending() == [harmful]
    assert (await first.use("escalate")).said["answer"]["choice"] == "stop"
    assert (await second.use("escalate", wait_seconds=0)).said["verdict"] == "waiting"
    assert other.governor.stream.memory.answer is None


async def test_an_answer_after_a_reset_does_not_reach_the_question_of_the_next_episode() -> None:
    hall = Hall()
    await ask(hall, await hall.agent(), "May I stop?")
    (before,) = hall.operator.pending()
    await hall.begin()
    second = Agent(hall.view(hall.give()))
    await ask(hall, second, "May I delete it all?")
    (after,) = hall.operator.pending()

    with pytest.raises(RequestRefused) as problem:
        await hall.operator.answer(before, choice="stop")

    assert refused_code(problem) == "STALE_QUESTION"
    assert before.id != after.id
    assert hall.operator.pending() == [after]
    assert not any(line.kind == "user_input" for line in hall.lines)


async def test_an_answer_given_twice_counts_once() -> None:
    hall, agent = await Hall.with_agent()
    await ask(hall, agent, "May I stop?")
    (waiting,) = hall.operator.pending()

    told = await asyncio.gather(
        *(hall.operator.answer(waiting, choice=choice) for choice in ("stop", "delete_all")), return_exceptions=True
    )

    assert [type(each).__name__ for each in told] == ["Done", "RequestRefused"]
    assert isinstance(told[1], RequestRefused)
    assert told[1].problem.code == "STALE_QUESTION"
    assert [line.kind for line in hall.lines].count("user_input") == 1
    assert (await agent.use("escalate")).said["answer"]["choice"] == "stop"


@pytest.mark.parametrize("act", ["approve", "deny"])
async def test_a_token_is_decided_about_once(act: str) -> None:
    hall, agent = await Hall.with_agent(policy=policy_with(tokens={"issuer": "human"}))
    await agent.permitted("move", wait_seconds=0)
    (waiting,) = hall.operator.pending()

    done = await getattr(hall.operator, act)(waiting)
    with pytest.raises(RequestRefused) as again:
        await hall.operator.approve(waiting)

    assert done.question == waiting.question
    assert refused_code(again) == "STALE_QUESTION"
    assert len(hall.governor.stream.standing.tokens) == (act == "approve")


ENDS: dict[str, Callable[[Hall], Awaitable[object]]] = {
    "a reset": lambda hall: hall.begin(),
    "a close": lambda hall: hall.session.close("closed"),
    "safe mode": lambda hall: hall.operator.alert(hall.episode, "CRITICAL", "stop"),
}
ACTS: dict[str, Callable[[Operator, Waiting], Awaitable[object]]] = {
    "answer": lambda operator, waiting: operator.answer(waiting, choice="stop"),
    "approve": lambda operator, waiting: operator.approve(waiting),
    "deny": lambda operator, waiting: operator.deny(waiting),
    "alert": lambda operator, waiting: operator.alert(waiting, "CRITICAL", "stop"),
    "clear": lambda operator, waiting: operator.clear(waiting),
    "revoke a token": lambda operator, waiting: operator.revoke(waiting, token_id="token_x"),
    "revoke a grant": lambda operator, waiting: operator.revoke(waiting, grant="g"),
    "budget": lambda operator, waiting: operator.approve_budget(waiting, tool_call_budget=1),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("end", ["a reset", "a close"])
async def test_an_act_about_an_episode_that_is_over_is_refused_and_changes_nothing(end: str, act: str) -> None:
    hall = Hall()
    await ask(hall, await hall.agent(), "May I stop?")
    (waiting,) = hall.operator.pending()
    await ENDS[end](hall)
    before = list(hall.events)

    with pytest.raises(RequestRefused) as problem:
        await ACTS[act](hall.operator, waiting)

    stale = "STALE_QUESTION" if act in ("answer", "approve", "deny") else "STALE_EPOCH"
    assert refused_code(problem) == (stale if end == "a reset" or stale == "STALE_QUESTION" else "VALIDATION_ERROR")
    assert list(hall.events) == before


@pytest.mark.parametrize("act", ["answer", "approve", "deny"])
async def test_what_waits_in_safe_mode_is_over_and_stays_so_when_that_is_lifted(act: str) -> None:
    hall = await Hall.start(policy=policy_with(tokens={"issuer": "human"}))
    agent = Agent(hall.view(hall.give()))
    await (ask(hall, agent, "May I stop?") if act == "answer" else agent.permitted("move", wait_seconds=0))
    (waiting,) = hall.operator.pending()
    await ENDS["safe mode"](hall)

    for _ in range(2):
        with pytest.raises(RequestRefused) as problem:
            await ACTS[act](hall.operator, waiting)
        assert refused_code(problem) == "STALE_QUESTION"
        await hall.operator.clear(hall.episode)

    assert hall.operator.pending() == []


async def test_an_act_that_names_the_right_question_in_the_wrong_episode_is_refused() -> None:
    hall = Hall()
    await ask(hall, await hall.agent(), "May I stop?")
    (waiting,) = hall.operator.pending()

    for wrong in (QuestionAct("t", 1, waiting.id), QuestionAct("s", 2, waiting.id), QuestionAct("s", 1, MINE)):
        with pytest.raises(RequestRefused) as problem:
            await hall.operator.answer(wrong, choice="stop")
        assert refused_code(problem) == "STALE_QUESTION"
    with pytest.raises(RequestRefused) as alerted:
        await hall.operator.alert(EpisodeAct("s", 2), "CRITICAL", "stop")

    assert refused_code(alerted) == "STALE_EPOCH"
    assert hall.operator.pending() == [waiting]
    assert not hall.governor.stream.in_safe_mode


# ------------------------------------------------------------------------------------------------------ who names packets
async def test_the_proctor_names_packets_and_an_agents_own_id_is_a_note() -> None:
    hall, agent = await Hall.with_agent()
    believed = packet(hall.policy, "BeliefUpdatePacket", BELIEF, 3, header={"packet_id": MINE})

    told = [await agent.submit({**believed, "_stated_id": "forged"}) for _ in range(2)]

    lines = [json.loads(bytes(line.line)) for line in hall.lines[-2:]]
    assert [each.refused for each in told] == [False, False]
    assert [each.said["packet_id"] for each in told] == [line["header"]["packet_id"] for line in lines]
    assert len({line["header"]["packet_id"] for line in lines}) == 2
    assert [line["_stated_id"] for line in lines] == [MINE, MINE]
    assert_judged_alike(hall.lines, hall.policy)


@pytest.mark.parametrize("name", [7, None, "", "x" * 1000, ["pkt_x"], "pkt_\x1b[2J"])
async def test_whatever_an_agent_calls_its_packet_is_a_note_and_names_nothing(name: Any) -> None:
    hall, agent = await Hall.with_agent()

    told = await agent.submit(packet(hall.policy, "BeliefUpdatePacket", BELIEF, 3, header={"packet_id": name}))

    assert not told.refused
    assert json.loads(bytes(hall.lines[-1].line))["_stated_id"] == name
    assert hall.governor.stream.memory.stated == {}


def referring(hall: Hall, where: str, name: str) -> dict[str, Any]:
    """Return a packet that names another one in this place."""
    belief = {**BELIEF, "evidence_integration": [name]}
    resolved = {"conflicting_packet_ids": [name], "resolution_method": "prefer_fresh"}
    contradiction = {**BELIEF, "update_type": "contradiction_resolved", "contradiction_details": resolved}
    assumption = {"assumption": "it is so", "verified": True, "verification_packet_id": name}
    reference = {"ref_type": "tool_output", "ref_id": name, "timestamp": "2001-09-09T01:46:40Z"}
    target = {
        "target_id": "target_1",
        "description": "d",
        "assumption_text": "a",
        "verification_method": "m",
        "success_criteria": "s",
    }
    plan: dict[str, Any] = {
        "plan_id": "plan_1",
        "triggering_decision_id": name,
        "plan_summary": "p",
        "targets": [target],
    }
    plan |= {"max_verification_time_seconds": 5, "max_tool_calls": 1}
    escalation = {**ESCALATION, "blocking_decision_packet_id": name}
    made: dict[str, tuple[str, Any, int, dict[str, Any]]] = {
        "/header/previous_packet_id": ("BeliefUpdatePacket", BELIEF, 3, {"header": {"previous_packet_id": name}}),
        "/mcp/evidence/evidence_refs/0/ref_id": (
            "BeliefUpdatePacket",
            BELIEF,
            3,
            {"evidence": {"evidence_refs": [reference]}},
        ),
        "/payload/evidence_integration/0": ("BeliefUpdatePacket", belief, 3, {}),
        "/payload/contradiction_details/conflicting_packet_ids/0": ("BeliefUpdatePacket", contradiction, 3, {}),
        "/payload/load_bearing_assumptions/0/verification_packet_id": (
            "DecisionPacket",
            {**DECISION, "load_bearing_assumptions": [assumption]},
            5,
            {},
        ),
        "/payload/triggering_decision_id": ("VerificationPlanPacket", plan, 5, {}),
        "/payload/blocking_decision_packet_id": ("EscalationPacket", escalation, 5, {}),
    }
    kind, payload, layer, more = made[where]
    return packet(hall.policy, kind, payload, layer, **more)


REFERENCES = [
    "/header/previous_packet_id",
    "/mcp/evidence/evidence_refs/0/ref_id",
    "/payload/evidence_integration/0",
    "/payload/contradiction_details/conflicting_packet_ids/0",
    "/payload/load_bearing_assumptions/0/verification_packet_id",
    "/payload/triggering_decision_id",
    "/payload/blocking_decision_packet_id",
]


@pytest.mark.parametrize("where", REFERENCES)
async def test_an_agent_that_names_its_packet_by_its_own_id_is_told_what_it_is_called(where: str) -> None:
    hall, agent = await Hall.with_agent()
    believed = packet(hall.policy, "BeliefUpdatePacket", BELIEF, 3, header={"packet_id": MINE})
    given_id = (await agent.submit(believed)).said["packet_id"]
    episode = hall.governor.stream.standing

    refusal = await agent.submit(referring(hall, where, MINE))
    line, after = hall.lines[-1], hall.governor.stream.standing
    by_its_id = await agent.submit(referring(hall, where, given_id))

    assert refusal.rules == ["GOV-2"]
    assert f"what you call {MINE} is {given_id}" in refusal.text
    assert (line.judged, line.pointers, after) == (False, [where], episode)
    assert "GOV-2" not in by_its_id.rules
    assert_judged_alike(hall.lines, hall.policy)


async def test_an_agent_that_names_no_packets_itself_and_one_that_names_another_agents_are_left_alone() -> None:
    hall = Hall("tests.server.environments:Crowded")
    ann, bob = await hall.agent(agent="ann"), await hall.agent(agent="bob")
    mine = packet(hall.policy, "BeliefUpdatePacket", BELIEF, 3, header={"packet_id": MINE})
    await ann.submit(mine)

    told = await bob.submit(packet(hall.policy, "BeliefUpdatePacket", BELIEF, 3, header={"previous_packet_id": MINE}))

    assert not told.refused
    assert any("ID-2" in warning for warning in told.said["warnings"])


async def test_a_directive_of_an_agents_own_gets_its_result_under_the_id_that_it_was_given() -> None:
    hall, agent = await Hall.with_agent()
    await agent.believe()
    await agent.decide()
    asked = packet(hall.policy, "TaskDirectivePacket", directive("sniff", {}), 5, header={"packet_id": MINE})

    told = [await agent.submit(asked) for _ in range(2)]

    results = [json.loads(bytes(line.line)) for line in hall.lines if line.kind == "TaskResultPacket"]
    assert [each.said["packet_id"] for each in told] == [each["payload"]["directive_packet_id"] for each in results]
    assert not hall.governor.stream.standing.tasks
    assert_judged_alike(hall.lines, hall.policy)


async def test_only_the_latest_of_an_agents_own_ids_are_remembered() -> None:
    hall, agent = await Hall.with_agent()
    for number in range(201):
        name = {"packet_id": f"pkt_{number}"}
        assert not (await agent.submit(packet(hall.policy, "BeliefUpdatePacket", BELIEF, 3, header=name))).refused

    stated = [name for _, name in hall.governor.stream.memory.stated]
    assert stated == [f"pkt_{number}" for number in range(1, 201)]


@given(st.lists(st.sampled_from([*NEXT, MINE, None]), max_size=12))
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_two_lines_of_an_episode_have_one_id_whatever_agents_call_theirs(names: list[str | None]) -> None:
    async def scenario() -> None:
        hall, agent = await Hall.with_agent(boot=BOOT)
        for name in names:
            header = {} if name is None else {"packet_id": name}
            await agent.submit(packet(hall.policy, "BeliefUpdatePacket", BELIEF, 3, header=header))
            await agent.believe()
        ids = [line.packet_id for line in hall.lines if line.packet_id is not None]
        assert len(set(ids)) == len(ids)

    run(scenario())


# ----------------------------------------------------------------------------------------------------------- restarts
async def test_a_question_keeps_its_name_when_the_server_is_started_anew_and_ids_go_on() -> None:
    hall = await Hall.start()
    granted = hall.give()
    await ask(hall, Agent(hall.view(granted)), "May I stop?")
    (before,) = hall.operator.pending()

    restored(hall)
    hall.for_agents._views.pop(granted.grant)
    agent = Agent(hall.view(granted))
    (after,) = hall.operator.pending()
    done = await hall.operator.answer(before, choice="stop")
    told = await agent.use("escalate")
    decided = await agent.decide("ESCALATE")
    ids = [line.packet_id for line in hall.lines if line.packet_id is not None]

    assert after == before
    assert (done.accepted, done.question) == (True, "May I stop?")
    assert told.said["answer"] == {"choice": "stop", "text": "", "escalation": before.id}
    assert not decided.refused
    assert len(set(ids)) == len(ids)
    assert_judged_alike(hall.lines, hall.policy)


@pytest.mark.parametrize("what", ["a question", "a request"])
async def test_an_answer_to_a_question_that_a_crash_took_from_the_record_reaches_no_other(what: str) -> None:
    hall = await Hall.start(policy=policy_with(tokens={"issuer": "human"}))
    granted = hall.give()

    async def ask_for(agent: Agent, thing: str) -> Waiting:
        if what == "a question":
            await agent.use("escalate", question=thing, options=["yes", "no"], wait_seconds=0)
        else:
            await agent.use("request_token", tools=["move"], rationale=thing, wait_seconds=0)
        (waiting,) = hall.operator.pending()
        return waiting

    agent = Agent(hall.view(granted))
    await agent.believe()
    await agent.decide("ESCALATE" if what == "a question" else "ACT")
    safe = kept(hall)
    before = await ask_for(agent, "May I stop?")
    hall.governance = Governance(hall.policy, wall=hall.wall, clock=lambda: hall.now)
    hall.governance.restore_governor(hall.session, safe)
    hall.for_agents._views.pop(granted.grant)
    after = await ask_for(Agent(hall.view(granted)), "May I delete it all?")
    lines = len(hall.lines)

    for name in (before.id, question_name(before).rpartition("-")[0], f"pkt_s_1_{len(safe) + 1}"):
        asked = QuestionAct("s", 1, name)
        for act in (partial(hall.operator.answer, text="yes"), hall.operator.approve, hall.operator.deny):
            with pytest.raises(RequestRefused) as problem:
                await act(asked)
            assert refused_code(problem) == "STALE_QUESTION"

    # Both were counted alike: it is the run of the server that tells them apart.
    assert before.id.rpartition("-")[0] == after.id.rpartition("-")[0]
    assert question_name(before) != question_name(after)
    assert len(hall.lines) == lines
    assert hall.operator.pending() == [after]


def as_before(lines: list[PacketJudged], names: dict[str, str]) -> list[PacketJudged]:
    """Return lines as they were on record when agents named their packets themselves."""
    found = []
    for line in lines:
        text = bytes(line.line).decode()
        for given_id, name in names.items():
            text = text.replace(given_id, name)
        own = names.get(line.packet_id or "", line.packet_id)
        found.append(msgspec.structs.replace(line, line=msgspec.Raw(text.encode()), packet_id=own))
    return found


async def test_a_record_in_which_agents_named_their_packets_is_taken_up_and_ids_go_on_beside_them() -> None:
    hall = await Hall.start()
    granted = hall.give()
    given_id = await ask(hall, Agent(hall.view(granted)), "May I stop?", name=None)
    # Its agent called the question as the proctor would call the decision that comes after the answer.
    taken = len(hall.lines) + 2
    old = as_before(kept(hall), {given_id: f"pkt_s_1_{taken}-{MARK}"})
    assert_judged_alike(old, hall.policy)

    hall.governance = Governance(hall.policy, boot=BOOT, wall=hall.wall, clock=lambda: hall.now)
    hall.governance.restore_governor(hall.session, old)
    hall.for_agents._views.pop(granted.grant)
    (waiting,) = hall.operator.pending()
    await hall.operator.answer(waiting, choice="stop")
    told = await Agent(hall.view(granted)).decide("ACT")

    assert (waiting.id, question_name(waiting)) == (f"pkt_s_1_{taken}-{MARK}", f"s.1.{taken}-{MARK}")
    assert told.said["packet_id"] == f"pkt_s_1_{taken + 1}-{MARK}"
    assert not told.refused


async def test_two_old_questions_of_one_id_are_told_apart_by_their_sessions() -> None:
    hall = Hall()
    other = OtherHall(hall)
    halls: list[Hall] = [hall, other]
    for each, question in zip(halls, ("May I stop?", "May I delete it all?"), strict=True):
        await ask(each, await each.agent(), question)
    hall.governance = Governance(hall.policy, wall=hall.wall, clock=lambda: hall.now)
    for each in halls:
        (asked,) = [line for line in each.lines if line.kind == "EscalationPacket"]
        hall.governance.restore_governor(each.session, as_before(kept(each), {asked.packet_id or "": "pkt_yes"}))
    first, second = hall.operator.pending()

    done = await hall.operator.answer(first, choice="stop")

    assert first.id == second.id == "pkt_yes"
    assert [question_name(each) for each in (first, second)] == ["s.1.pkt_yes", "t.1.pkt_yes"]
    assert (done.session, done.question) == ("s", "May I stop?")
    assert hall.operator.pending() == [second]


@pytest.mark.parametrize("what", ["a question", "a request"])
async def test_nobody_sees_or_answers_a_question_before_it_is_on_record(what: str) -> None:
    hall, agent = await Hall.with_agent(policy=policy_with(tokens={"issuer": "human"}))
    await agent.believe()
    await agent.decide("ESCALATE" if what == "a question" else "ACT")
    disk = Disk(hall)
    with disk.held():
        asked = asyncio.create_task(
            agent.use("escalate", question="May I?", options=["yes", "no"], wait_seconds=0)
            if what == "a question"
            else agent.use("request_token", tools=["move"], wait_seconds=0)
        )
        await until(lambda: disk.holds(1))
        await turns()
        name = hall.lines[-1].packet_id or json.loads(bytes(hall.lines[-1].line))["id"]
        seen = hall.operator.pending()
        with pytest.raises(RequestRefused) as problem:
            await hall.operator.answer(QuestionAct("s", 1, name), text="yes")
    await asked

    assert seen == []
    assert refused_code(problem) == "STALE_QUESTION"
    assert [waiting.id for waiting in hall.operator.pending()] == [name]


@given(session=st.text("0123456789abcdef", min_size=1), epoch=st.integers(1, 99), number=st.integers(1, 10**6))
@pytest.mark.parametrize("run", ["", f"-{MARK}"])
def test_a_name_says_session_epoch_number_and_run(session: str, epoch: int, number: int, run: str) -> None:
    ids = [f"{kind}_{session}_{epoch}_{number}{run}" for kind in ("pkt", "request")]

    assert {question_name(QuestionAct(session, epoch, each)) for each in ids} == {f"{session}.{epoch}.{number}{run}"}
    assert question_name(QuestionAct(session, epoch, MINE)) == f"{session}.{epoch}.{MINE}"
