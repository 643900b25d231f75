"""Whole governed episodes, from the reset to the close, as an agent lives through them."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from proctor.models.events import EpisodeClosed, EpisodeReset
from tests.server.governed.governed_sessions import PLUME, POPPER, Agent, Hall, Heard, assert_judged_alike, policy_with

pytestmark = pytest.mark.anyio

WIDE = policy_with("open")
SMALL: dict[str, Any] = {"grid_size": (8, 8), "max_steps": 40}


async def searched(agent: Agent) -> Heard:
    """Search a small grid row by row until the environment ends; return what was told last."""
    await agent.permitted("move")
    told = await agent.use("move", direction="left", steps=8)
    told = told if told.said.get("done") else await agent.use("move", direction="down", steps=8)
    heading = "right"
    for _ in range(20):
        if told.said.get("done"):
            return told
        told = await agent.use("move", direction=heading, steps=7)
        if not told.said.get("done"):
            told = await agent.use("move", direction="up", steps=1)
        heading = "left" if heading == "right" else "right"
    return told


async def test_the_reset_opens_the_packet_episode_before_its_reply_leaves() -> None:
    hall = Hall()

    await hall.begin()

    reset = [isinstance(event, EpisodeReset) for event in hall.events].index(True)
    opened, seen = hall.lines
    assert list(hall.events[reset + 1 :]) == [opened, seen]
    assert (opened.kind, opened.accepted, opened.principal) == ("open", True, "system")
    assert json.loads(bytes(opened.line))["data"]["layer_rules"] == "error"
    assert (seen.kind, seen.path) == ("ObservationPacket", ["S0_IDLE", "S1_SENSE"])
    header = json.loads(bytes(seen.line))["header"]
    assert header["correlation_id"] == "corr_s_1"


async def test_a_search_is_governed_from_its_beginning_to_a_conforming_end() -> None:
    hall, agent = await Hall.with_agent(PLUME, "standard", **SMALL)

    ended = await searched(agent)
    learned = await agent.believe(found=True)

    assert ended.said["done"]
    assert learned.said["closed"]
    assert "nothing more to do" in learned.text
    assert hall.steps == hall.session.step_count > 0
    (end,) = hall.ends
    assert (end.reason, end.outcome, end.state, end.obligations) == ("ended", "conforming", "S7_REVIEW", [])
    assert hall.lines[-1].kind == "close"
    assert isinstance(hall.events[-1], EpisodeClosed)
    assert_judged_alike(hall.lines, hall.policy)


async def test_a_game_is_governed_from_its_beginning_to_a_conforming_end() -> None:
    hall, agent = await Hall.with_agent(POPPER, WIDE)
    await agent.believe(board="new")
    await agent.decide("ACT")
    looked = await agent.use("look")
    await agent.believe(board="seen")
    await agent.decide("ACT")
    await agent.use("request_token", tools=["fall"], rationale="to play")

    told = await agent.use("fall")
    for _ in range(20):
        if told.said.get("done"):
            break
        told = await agent.use("fall")
    learned = await agent.believe(score="none")

    assert looked.state == "S6_EXECUTE"
    assert told.said["done"]
    assert learned.said["closed"]
    assert [end.outcome for end in hall.ends] == ["conforming"]
    assert_judged_alike(hall.lines, hall.policy)


async def test_a_strict_episode_verifies_first_and_a_human_permits() -> None:
    hall, agent = await Hall.with_agent(PLUME, "strict")
    await agent.believe(odor=0.1)
    hasty = await agent.decide("ACT")

    await agent.decide("VERIFY_FIRST")
    unplanned = await agent.use("sniff")
    await agent.use("plan_verification", targets=["the odor is steady"])
    seen = await agent.use("sniff")
    believed = await agent.believe(steady=True)
    decided = await agent.decide("ACT", assumptions={"the odor is steady": True})
    asked = await agent.use("request_token", tools=["move"], uses=2, rationale="upwind", wait_seconds=0)
    (waiting,) = hall.operator.pending()
    done = await hall.operator.approve(waiting)
    issued = await agent.use("request_token", wait_seconds=0)
    moved = await agent.use("move", direction="up", steps=2)

    assert (hasty.refused, hasty.rules) == (True, ["POLICY-1"])
    assert "VERIFY_FIRST" in hasty.text
    assert unplanned.refused
    assert "plan_verification" in unplanned.text
    assert (seen.state, believed.state, decided.state) == ("S4_VERIFY", "S2_MODEL", "S3_DECIDE")
    assert asked.said["verdict"] == "waiting"
    assert "request_token()" in asked.text
    assert (waiting.kind, waiting.question) == ("token", "write with move, 2 times: upwind")
    assert (done.accepted, done.state) == (True, "S5_AUTHORIZE")
    assert issued.said["token"]["uses_left"] == 2
    assert (moved.state, hall.steps) == ("S6_EXECUTE", 2)
    assert_judged_alike(hall.lines, hall.policy)


async def test_a_call_is_a_directive_a_result_and_an_observation() -> None:
    hall, agent = await Hall.with_agent()
    await agent.permitted("move")
    before = len(hall.lines)

    told = await agent.use("move", direction="up", steps=3)

    asked, ended, seen = hall.lines[before:]
    assert [line.kind for line in (asked, ended, seen)] == [
        "TaskDirectivePacket",
        "TaskResultPacket",
        "ObservationPacket",
    ]
    assert [line.principal for line in (asked, ended, seen)] == ["agent", "system", "system"]
    assert (asked.grant, asked.tool) == (agent.view.grant, "move")
    method = json.loads(bytes(asked.line))["payload"]["execution_method"]
    assert method == {"method": "tool", "tool_id": "move", "tool_params": {"direction": "up", "steps": 3}}
    cost = json.loads(bytes(ended.line))["payload"]["execution_metadata"]
    assert cost["tool_calls_used"] == 1
    data = json.loads(bytes(seen.line))["payload"]["data"]
    assert data == {key: value for key, value in told.said.items() if key != "governed"}
    assert "3 of 3 actions" in told.text
    assert told.said["governed"]["state"] == "S6_EXECUTE"
    assert set(told.said["governed"]["next_calls"]) == {"believe", "sniff", "move"}


@pytest.mark.parametrize("target", [PLUME, POPPER])
async def test_an_agent_that_is_told_only_what_refusals_say_finds_its_way(target: str) -> None:
    """Begin with the tool and do what each refusal names, until it is taken."""
    tool, arguments = ("move", {"direction": "up"}) if target == PLUME else ("fall", {})
    words: dict[str, dict[str, Any]] = {
        "believe": {"changes": {"it": 1}},
        "decide": {"outcome": "ACT", "summary": "go"},
        "request_token": {"tools": [tool], "rationale": "as told"},
    }

    hall, agent = await Hall.with_agent(target)
    tries = 0
    told = await agent.use(tool, **arguments)
    while told.refused and tries < 10:
        tries += 1
        call = str(told.said["way"][0]).partition("(")[0]
        await agent.use(call, **words[call])
        told = await agent.use(tool, **arguments)

    assert (told.refused, hall.steps, tries) == (False, 1, 3)


async def test_after_a_decision_not_to_act_the_next_belief_begins_anew() -> None:
    hall, agent = await Hall.with_agent()
    await agent.believe()
    await agent.decide("DEFER")
    reviewed = await agent.believe(later=True)
    refused = await agent.decide("ACT")

    anew = await agent.believe(again=True)

    assert reviewed.state == "S7_REVIEW"
    assert refused.refused
    assert refused.said["way"] == ["believe", "decide"]
    assert anew.state == "S2_MODEL"
    assert [line.kind for line in hall.lines[-2:]] == ["ObservationPacket", "BeliefUpdatePacket"]
    assert hall.lines[-2].path == ["S7_REVIEW", "S1_SENSE"]


async def test_two_agents_share_one_packet_episode() -> None:
    hall = Hall("tests.server.environments:Crowded", "open")
    ann = await hall.agent(agent="ann")
    bob = await hall.agent(agent="bob")

    await ann.believe()
    decided = await bob.decide("ACT")
    await ann.use("request_token", tools=["act"], rationale="for both")
    acted = [await one.use("act", action=1) for one in (ann, bob)]
    learned = await bob.believe(acted=True)

    assert decided.state == "S3_DECIDE"
    assert [one.refused for one in acted] == [False, False]
    assert learned.state == "S7_REVIEW"
    assert {line.grant for line in hall.lines} == {None, ann.view.grant, bob.view.grant}
    assert_judged_alike(hall.lines, hall.policy)


async def test_a_directive_that_an_agent_wrote_itself_runs_its_tool() -> None:
    from tests.server.governed.governed_sessions import directive, packet

    hall, agent = await Hall.with_agent()
    issued = await agent.permitted("move")
    token = issued.said["token"]["token_id"]
    asked = directive("move", {"direction": "up", "steps": 2}, "WRITE", token)

    told = await agent.submit(packet(hall.policy, "TaskDirectivePacket", asked))

    assert not told.refused
    assert (told.said["result"]["step"], hall.steps) == (2, 2)
    assert told.said["state"] == "S6_EXECUTE"
    assert_judged_alike(hall.lines, hall.policy)


async def test_a_call_that_the_environment_refuses_has_a_result_that_says_so() -> None:
    hall, agent = await Hall.with_agent()
    await agent.permitted("move")

    told = await agent.use("move", direction="nowhere")

    assert told.code == "VALIDATION_ERROR"
    assert "S6_EXECUTE" in told.text
    payload = json.loads(bytes(hall.lines[-1].line))["payload"]
    assert (payload["result_status"], payload["error_details"]["error_code"]) == ("FAILURE", "VALIDATION_ERROR")
    assert hall.steps == 0


def test_a_long_observation_is_named_by_its_digest() -> None:
    from proctor.server.governed.agent_calls import MOST_STATED, observation_data

    short, long = observation_data(b'{"a":1}'), observation_data(b'{"a":"%b"}' % (b"x" * MOST_STATED))

    assert short == {"a": 1}
    assert set(long) == {"sha256", "bytes"}
    assert observation_data(b"{}") == {"answer": {}}


async def test_time_never_stands_still_nor_runs_backwards_in_the_stream() -> None:
    hall, agent = await Hall.with_agent()
    await agent.permitted("move")
    hall.now -= 50
    await agent.use("move", direction="up")

    said = [json.loads(bytes(line.line)) for line in hall.lines]
    stated = [one["header"]["created_at"] if "header" in one else one["at"] for one in said]
    times = [datetime.fromisoformat(one) for one in stated]
    assert times == sorted(set(times))
    assert not any(line.warnings for line in hall.lines)


async def test_the_result_of_a_call_that_was_cut_short_says_so() -> None:
    hall, agent = await Hall.with_agent()
    await agent.permitted("move")

    async def progress(done: int, count: int) -> None:
        if done == 2:
            hall.session.claims += 1  # the orchestrator wants to reset

    told = Heard(await agent.view.call("move", b'{"direction":"up","steps":5}', progress))
    hall.session.claims = 0

    (result,) = [json.loads(bytes(line.line)) for line in hall.lines if line.kind == "TaskResultPacket"]
    assert "2 of 5 actions" in told.text
    assert result["payload"]["result_status"] == "CANCELLED"
    assert result["payload"]["error_details"]["error_message"] == "2 of 5 actions were carried out"
    assert_judged_alike(hall.lines, hall.policy)


async def test_a_call_that_the_environments_end_made_shorter_is_a_success() -> None:
    hall, agent = await Hall.with_agent(max_steps=3)
    await agent.permitted("move")

    await agent.use("move", direction="up", steps=5)

    (result,) = [json.loads(bytes(line.line)) for line in hall.lines if line.kind == "TaskResultPacket"]
    assert result["payload"]["result_status"] == "SUCCESS"
