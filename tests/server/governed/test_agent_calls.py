"""What agents say: every refusal is on record, and none has moved anything."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from proctor.errors import ComponentError
from proctor.server.governed.packet_checks import MOST_KEPT
from tests.server.bare_sessions import run
from tests.server.governed.governed_sessions import Disk, Hall, assert_judged_alike, packet, policy_with, turns, until

OPTION = {"description": "d", "pros": "p", "cons": "c"}


@pytest.mark.parametrize(
    ("tool", "arguments", "rule"),
    [
        ("escalate", {"question": "q"}, "SCHEMA"),
        ("escalate", {}, "SCHEMA"),
        ("request_token", {}, "POLICY-3"),
        ("believe", {"changes": {"a": 1}, "evidence": ["pkt_i_made_this_up"]}, "SCHEMA"),
        ("escalate", {"question": "q", "options": [{"id": "option_2", "description": "a"}, "b"]}, "SCHEMA"),
    ],
)
def test_what_is_refused_before_it_is_a_packet_is_on_record(tool: str, arguments: dict[str, Any], rule: str) -> None:
    async def scenario() -> None:
        hall = Hall()
        agent = await hall.agent()
        before = len(hall.lines)

        told = await agent.use(tool, **arguments)

        assert told.rules == [rule]
        (line,) = hall.lines[before:]
        assert (line.kind, line.judged, line.accepted, line.rules) == (tool, False, False, [rule])
        assert hall.governor.stream.standing.state == "S1_SENSE"

    run(scenario())


def test_what_is_tried_after_the_environments_end_is_on_record() -> None:
    async def scenario() -> None:
        hall = Hall(max_steps=2)
        agent = await hall.agent()
        await agent.permitted("move")
        await agent.use("move", direction="up", steps=2)
        before = len(hall.lines)

        told = [
            await agent.use("move", direction="up"),
            await agent.use("request_token", tools=["move"]),
            await agent.decide("ACT"),
            await agent.use("plan_verification", targets=["a"]),
        ]

        assert {one.code for one in told} == {"ENDED"}
        kinds = [line.kind for line in hall.lines[before:]]
        assert kinds == ["move", "request_token", "decide", "plan_verification"]
        assert {tuple(line.rules) for line in hall.lines[before:]} == {("ENDED",)}

    run(scenario())


def test_a_belief_that_is_refused_after_the_review_has_moved_nothing() -> None:
    async def scenario() -> None:
        hall = Hall(policy=policy_with(rules="ONE: never BeliefUpdatePacket after IntegrityAlertPacket"))
        agent = await hall.agent()
        await agent.believe()
        await agent.decide("CANCEL")
        await agent.believe()
        await hall.operator.alert(hall.episode, "INFO", "note")

        told = await agent.believe()
        await hall.session.close("closed")

        assert (told.rules, told.state) == (["ONE"], "S7_REVIEW")
        assert [end.outcome for end in hall.ends] == ["conforming"]

    run(scenario())


def test_evidence_that_there_is_can_be_named() -> None:
    async def scenario() -> None:
        hall = Hall()
        agent = await hall.agent()
        seen = hall.governor.stream.memory.seen
        assert seen is not None

        told = await agent.use("believe", changes={"a": 1}, evidence=[seen.packet_id])

        assert not told.refused

    run(scenario())


def test_a_submitted_escalation_has_no_two_options_of_one_id() -> None:
    async def scenario() -> None:
        hall = Hall()
        agent = await hall.agent()
        await agent.believe()
        await agent.decide("ESCALATE")
        payload: dict[str, Any] = {
            "escalation_trigger": "user_override_required",
            "top_options": [{"option_id": "a", **OPTION}, {"option_id": "a", **OPTION}],
            "evidence_gaps": [{"gap": "g", "impact_if_unknown": "i"}],
            "recommended_next_step": {"step": "s", "rationale": "r"},
        }

        told = await agent.submit(packet(hall.policy, "EscalationPacket", payload))
        payload["top_options"][1]["option_id"] = "b"
        again = await agent.submit(packet(hall.policy, "EscalationPacket", payload))

        assert told.rules == ["SCHEMA"]
        assert "/payload/top_options" in told.text
        assert not again.refused
        assert_judged_alike(hall.lines, hall.policy)

    run(scenario())


def test_of_a_long_packet_that_is_refused_the_kind_the_size_and_the_digest_are_on_record() -> None:
    async def scenario() -> None:
        hall = Hall()
        agent = await hall.agent()

        long = await agent.submit({"header": {"packet_type": "X"}, "y": "x" * MOST_KEPT})
        line = hall.lines[-1]
        short = await agent.submit({"record": "close"})

        assert (long.rules, short.rules) == (["GOV-1"], ["GOV-1"])
        said = msgspec.json.decode(line.line)
        assert (line.kind, said.keys()) == ("X", {"tool", "bytes", "sha256"})
        assert said["bytes"] > MOST_KEPT
        assert bytes(hall.lines[-1].line) == b'{"record":"close"}'

    run(scenario())


def test_a_step_its_result_and_what_was_seen_go_on_record_together_and_nobody_hears_of_them_before() -> None:
    async def scenario() -> None:
        hall = Hall()
        agent = await hall.agent()
        await agent.permitted("move")
        disk, shown = Disk(hall), hall.session.rows.last

        with disk.held():
            call = asyncio.create_task(agent.use("move", direction="up"))
            await until(lambda: disk.holds(1))
            assert hall.steps == 0, "nothing runs before its directive is safe"
            disk.waiting[0].set_result(None)
            await until(lambda: disk.holds(4))
            await turns()
            assert hall.steps == 1
            assert (call.done(), hall.session.rows.last) == (False, shown)
        await call

        assert hall.session.rows.last == shown + 1
        assert [line.kind for line in hall.lines[-3:]] == [
            "TaskDirectivePacket",
            "TaskResultPacket",
            "ObservationPacket",
        ]

    run(scenario())


def test_a_step_that_cannot_be_kept_loses_the_episode_though_its_result_was_stated() -> None:
    async def scenario() -> None:
        hall = Hall()
        agent = await hall.agent()
        await agent.permitted("move")
        disk = Disk(hall)

        with disk.held():
            call = asyncio.create_task(agent.use("move", direction="up"))
            await until(lambda: disk.holds(1))
            disk.waiting[0].set_result(None)
            await until(lambda: disk.holds(4))
            for each in disk.waiting[1:]:
                each.set_exception(ComponentError("the disk is gone"))
        told = await call

        assert (told.code, hall.session.loss is not None) == ("RECORDING_FAILED", True)

    run(scenario())
