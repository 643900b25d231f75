"""What a policy adds to the machine's rules: verification and escalation before anything is done."""

from __future__ import annotations

from hashlib import sha256

import msgspec
import pytest

from proctor.server.governed.packet_checks import encode_attempt
from tests.server.bare_sessions import run
from tests.server.governed.governed_sessions import DECISION, Agent, Hall, assert_judged_alike, packet, policy_with

CROWDED = "tests.server.environments:Crowded"


async def verify(agent: Agent) -> None:
    await agent.believe()
    await agent.decide("VERIFY_FIRST")
    await agent.use("plan_verification", targets=[{"assumption": "a", "tool": "sniff"}])
    await agent.use("sniff")
    await agent.believe(verified=True)


@pytest.mark.parametrize(("requirement", "second"), [("VERIFY_ONE", False), ("VERIFY_ALL", True)])
def test_acting_needs_the_verification_that_the_policy_asks_for(requirement: str, second: bool) -> None:
    async def scenario() -> None:
        hall = Hall(policy=policy_with(quality={"verification_requirement": requirement}))
        agent = await hall.agent()
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

    run(scenario())


def test_an_act_at_stakes_that_the_policy_escalates_needs_an_answer_first() -> None:
    async def scenario() -> None:
        hall = Hall(policy=policy_with(escalation={"when": ["act at HIGH stakes", "write at MEDIUM stakes"]}))
        agent = await hall.agent()
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

    run(scenario())


def test_an_answer_is_for_the_agent_who_asked_and_no_other_acts_on_it() -> None:
    async def scenario() -> None:
        hall = Hall(CROWDED, policy_with(escalation={"when": ["act at LOW stakes"]}))
        asker, other = await hall.agent(), await hall.agent()
        await ask(hall, asker)

        taken = await other.decide("ACT")
        own = await asker.decide("ACT")

        assert (taken.rules, own.refused) == (["POLICY-2"], False)
        assert_judged_alike(hall.lines, hall.policy)

    run(scenario())


def test_what_is_done_on_an_answer_is_done_by_the_agent_who_asked() -> None:
    async def scenario() -> None:
        hall = Hall(CROWDED, policy_with(escalation={"when": ["write at LOW stakes"]}))
        asker, other = await hall.agent(), await hall.agent()
        await ask(hall, asker)
        await asker.decide("ACT")

        barred = await other.use("request_token", tools=["act"], rationale="r")
        own = await asker.use("request_token", tools=["act"], rationale="r")

        assert (barred.rules, own.refused) == (["POLICY-2"], False)
        assert_judged_alike(hall.lines, hall.policy)

    run(scenario())


async def ask(hall: Hall, agent: Agent) -> None:
    """Have an agent ask an operator, who answers."""
    await agent.believe()
    await agent.decide("ESCALATE")
    await agent.use("escalate", question="may I?", options=["yes", "no"], wait_seconds=0)
    await hall.operator.answer(hall.operator.pending()[0], choice="option_1")


def test_the_policy_speaks_only_where_the_machine_would_accept() -> None:
    async def scenario() -> None:
        hall = Hall(policy="strict")
        agent = await hall.agent()

        told = await agent.decide("ACT")

        assert told.rules == ["FSM", "E1"]
        assert hall.lines[-1].judged

    run(scenario())


def test_house_rules_of_a_policy_are_kept() -> None:
    async def scenario() -> None:
        hall = Hall(policy=policy_with(rules="ASK: DecisionPacket(ESCALATE) before DecisionPacket(ACT)"))
        agent = await hall.agent()
        await agent.believe()

        told = await agent.decide("ACT")

        assert told.rules == ["ASK"]
        assert_judged_alike(hall.lines, hall.policy)

    run(scenario())


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


def test_what_is_done_on_a_grave_decision_is_grave() -> None:
    async def scenario() -> None:
        hall = Hall()
        agent = await hall.agent()
        await agent.believe()
        grave = packet(
            hall.policy,
            "DecisionPacket",
            DECISION,
            stakes={"stakes_level": "HIGH"},
            quality={"quality_tier": "SUPERB"},
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

    run(scenario())


@pytest.mark.parametrize("condition", ["act at MEDIUM stakes", "write at MEDIUM stakes"])
def test_an_answer_is_good_for_one_act(condition: str) -> None:
    async def scenario() -> None:
        hall = Hall(policy=policy_with(escalation={"when": [condition]}))
        agent = await hall.agent()
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

    run(scenario())


def test_an_answer_waits_for_its_act_through_a_verification() -> None:
    async def scenario() -> None:
        hall = Hall(policy=policy_with(escalation={"when": ["act at MEDIUM stakes"]}))
        agent = await hall.agent()
        await agent.believe()
        await allowed(agent, hall)

        await agent.decide("VERIFY_FIRST")
        await agent.use("plan_verification", targets=["a"])
        await agent.use("sniff")
        await agent.believe()

        assert not (await agent.decide("ACT")).refused

    run(scenario())
