"""The operator: it reads, answers, approves, alerts and revokes, and never steps."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from proctor.models.control import Revoke
from proctor.models.events import AgentRevoked, EpisodeStepped
from proctor.models.operator import EpisodeAct, JudgedRow, QuestionAct
from proctor.server.governed.agent_calls import MOST_WAITING
from proctor.server.governed.governance import Operator
from proctor.server.runtime.results import RequestRefused
from tests.server.governed.governed_sessions import (
    PLUME,
    Agent,
    Disk,
    Hall,
    Heard,
    assert_judged_alike,
    policy_with,
    until,
)

pytestmark = pytest.mark.anyio

EPISODE, NO_EPISODE = EpisodeAct("s", 1), EpisodeAct("nobody", 1)
NO_QUESTION = QuestionAct("s", 1, "pkt_none")
QUESTION = {"question": "left or right?", "options": ["left", "right"], "gaps": ["where the source is"]}


async def escalating(agent: Agent, wait_seconds: float = 0.0) -> Heard:
    await agent.believe()
    await agent.decide("ESCALATE")
    return await agent.use("escalate", **QUESTION, wait_seconds=wait_seconds)


def test_an_operator_has_no_word_for_a_reset_or_a_step() -> None:
    acts = {name for name in vars(Operator) if not name.startswith("_")}

    assert acts == {
        "pending", "sessions", "watch", "answer", "approve", "deny", "alert", "clear", "revoke", "approve_budget"
    }  # fmt: skip


async def test_an_escalation_waits_and_is_answered() -> None:
    hall, agent = await Hall.with_agent()
    asked = asyncio.create_task(escalating(agent, wait_seconds=290.0))
    await until(hall.operator.pending)

    (waiting,) = hall.operator.pending()
    done = await hall.operator.answer(waiting, choice="option_2", text="and slowly")
    told = await asked
    repeated = await agent.use("escalate")
    decided = await agent.decide("ACT")

    assert (waiting.kind, waiting.session, waiting.epoch) == ("escalation", "s", 1)
    assert waiting.question == "left or right?"
    assert [(option.option_id, option.description) for option in waiting.options] == [
        ("option_1", "left"),
        ("option_2", "right"),
    ]
    assert waiting.grant == agent.view.grant
    assert (done.accepted, done.state) == (True, "S3_DECIDE")
    assert told.said["answer"] == {"choice": "option_2", "text": "and slowly", "escalation": waiting.id}
    assert "The operator chose option_2" in told.text
    assert repeated.said["answer"] == told.said["answer"]
    assert decided.state == "S3_DECIDE"
    assert hall.operator.pending() == []
    answer = next(line for line in hall.lines if line.kind == "user_input")
    assert (answer.principal, answer.accepted) == ("operator", True)
    assert_judged_alike(hall.lines, hall.policy)


@pytest.mark.parametrize("kind", ["escalation", "token"])
@pytest.mark.parametrize("name", ["scout", ""])
async def test_what_waits_and_the_episode_carry_the_name_that_the_grant_gives_the_agent(name: str, kind: str) -> None:
    hall = Hall(policy=policy_with(tokens={"issuer": "human"}))
    agent = await hall.agent(agent=name)
    await (escalating(agent) if kind == "escalation" else agent.permitted("move", wait_seconds=0.0))

    (waiting,), (standing,) = hall.operator.pending(), hall.operator.sessions()

    assert (waiting.kind, waiting.grant, waiting.agent) == (kind, agent.view.grant, name)
    assert standing.agent == name


async def test_an_escalation_without_an_answer_can_be_waited_for_again() -> None:
    hall, agent = await Hall.with_agent()

    first = await escalating(agent)
    second = await agent.use("escalate", wait_seconds=0.01)
    acting = await agent.decide("ACT")
    (waiting,) = hall.operator.pending()
    await hall.operator.answer(waiting, text="go")
    third = await agent.use("escalate")

    assert [first.said["verdict"], second.said["verdict"]] == ["waiting", "waiting"]
    assert "escalate()" in first.text
    assert acting.refused
    assert "S8" in acting.rules
    assert third.said["answer"]["text"] == "go"


async def test_waiting_for_an_operator_does_not_hold_others_up() -> None:
    hall = Hall("tests.server.environments:Crowded")
    ann, bob = await hall.agent(agent="ann"), await hall.agent(agent="bob")
    asked = asyncio.create_task(escalating(ann, wait_seconds=290.0))
    await until(hall.operator.pending)

    told = await bob.believe()
    free = not hall.session.turn.locked() and hall.session.callers == 0
    await hall.operator.answer(hall.operator.pending()[0], text="go")
    await asked

    assert told.refused
    assert free


@pytest.mark.parametrize(("end", "code"), [("a reset", "ENDED"), ("safe mode", "SAFE_MODE")])
async def test_a_reset_and_safe_mode_end_the_wait_of_an_agent(end: str, code: str) -> None:
    hall, agent = await Hall.with_agent()
    asked = asyncio.create_task(escalating(agent, wait_seconds=290.0))
    await until(hall.operator.pending)

    await (hall.begin() if end == "a reset" else hall.operator.alert(hall.episode, "CRITICAL", "stop"))

    assert (await asked).code == code
    assert hall.operator.pending() == []


async def test_too_many_calls_that_wait_are_refused() -> None:
    hall, agent = await Hall.with_agent()
    await escalating(agent)
    waits = [asyncio.create_task(agent.use("escalate", wait_seconds=290.0)) for _ in range(MOST_WAITING)]
    await until(lambda: hall.governor.stream.notifier.waiting == MOST_WAITING)

    told = await agent.use("escalate", wait_seconds=290.0)
    await hall.operator.answer(hall.operator.pending()[0], text="go")
    answers = await asyncio.gather(*waits)

    assert told.code == "BUSY"
    assert {one.said["answer"]["text"] for one in answers} == {"go"}


async def test_a_token_can_be_denied() -> None:
    hall = Hall(policy="strict")
    agent = await verified(hall)
    asked = asyncio.create_task(
        agent.use("request_token", tools=["move"], uses=1, rationale="please", wait_seconds=290.0)
    )
    await until(hall.operator.pending)

    done = await hall.operator.deny(hall.operator.pending()[0], text="not now")
    told = await asked
    moved = await agent.use("move", direction="up")

    assert done.accepted
    assert told.rules == ["POLICY-3"]
    assert "not now" in told.text
    assert moved.refused
    assert hall.operator.pending() == []


async def verified(hall: Hall) -> Agent:
    """Return an agent that has verified something and decided to act."""
    agent = await hall.agent()
    await agent.believe()
    await agent.decide("VERIFY_FIRST")
    await agent.use("plan_verification", targets=["a"])
    await agent.use("sniff")
    await agent.believe()
    await agent.decide("ACT")
    return agent


async def test_an_approval_may_be_smaller_than_the_request_and_never_larger_than_the_policy() -> None:
    hall = Hall(policy="strict")
    agent = await verified(hall)
    await agent.use("request_token", tools=["move"], uses=4, rationale="please", wait_seconds=0)
    (waiting,) = hall.operator.pending()

    with pytest.raises(RequestRefused):
        await hall.operator.approve(waiting, uses=6)
    with pytest.raises(RequestRefused):
        await hall.operator.approve(waiting, life_seconds=10**6)
    await hall.operator.approve(waiting, uses=1, life_seconds=10, text="one")
    told = [await agent.use("move", direction="up") for _ in range(2)]

    assert [one.refused for one in told] == [False, True]
    token = next(line for line in hall.lines if line.kind == "ToolAuthorizationToken")
    assert token.principal == "operator"
    assert "approved: one" in json.loads(bytes(token.line))["payload"]["rationale"]


async def test_an_approval_that_comes_too_late_is_refused_by_the_judge() -> None:
    hall = Hall(policy="strict")
    agent = await verified(hall)
    await agent.use("request_token", tools=["move"], uses=1, rationale="please", wait_seconds=0)
    await agent.use("sniff")
    (waiting,) = hall.operator.pending()

    done = await hall.operator.approve(waiting)

    assert (done.accepted, done.rules) == (False, ["FSM"])
    assert hall.governor.stream.standing.tokens == {}


async def test_a_token_that_is_revoked_opens_nothing() -> None:
    hall, agent = await Hall.with_agent()
    issued = await agent.permitted("move")

    done = await hall.operator.revoke(hall.episode, token_id=issued.said["token"]["token_id"])
    told = await agent.use("move", direction="up")

    assert done.accepted
    assert "was revoked" in told.text
    assert hall.steps == 0
    assert_judged_alike(hall.lines, hall.policy)


async def test_a_grant_that_is_revoked_is_dead_and_on_record_as_the_operators() -> None:
    hall = await Hall.start()
    granted = hall.give()

    done = [await hall.operator.revoke(hall.episode, grant=granted.grant) for _ in range(2)]

    assert [one.accepted for one in done] == [True, False]
    assert hall.for_agents.find_view(granted.token) is None
    (revoked,) = [event for event in hall.events if isinstance(event, AgentRevoked)]
    assert (revoked.principal, revoked.grant) == ("operator", granted.grant)


async def test_the_sessions_say_how_they_stand() -> None:
    hall, agent = await Hall.with_agent()
    await agent.permitted("move")
    await agent.use("decide", outcome="ACT", summary="twice")

    (standing,) = hall.operator.sessions()

    assert (standing.session, standing.epoch, standing.policy) == ("s", 1, "standard")
    assert (standing.state, standing.safe_mode, standing.over) == ("S5_AUTHORIZE", False, False)
    assert len(standing.tokens) == 1
    assert standing.refusals == 1
    assert "TaskDirectivePacket(WRITE)" in standing.legal_next
    assert any("20 of 20 uses left" in owed for owed in standing.obligations)


async def test_a_watcher_sees_every_line_with_its_verdict_and_waits_for_the_next() -> None:
    hall, agent = await Hall.with_agent()
    first = await hall.operator.watch(0, 0)
    waiting = asyncio.create_task(hall.operator.watch(first.last, 60))
    await asyncio.sleep(0)

    await agent.use("move", direction="up")
    page = await waiting
    nothing = await hall.operator.watch(page.last, 0)

    rows = [json.loads(bytes(row)) for row in (*first.rows, *page.rows)]
    assert [row["row"] for row in rows] == [1, 2, 3]
    assert [row["kind"] for row in rows] == ["open", "ObservationPacket", "TaskDirectivePacket"]
    assert rows[-1]["accepted"] is False
    assert rows[-1]["rules"][0] == "FSM"
    assert rows[-1].keys() <= set(JudgedRow.__struct_fields__)
    assert (nothing.rows, nothing.last, nothing.missed) == ([], 3, 0)
    assert (await hall.operator.watch(99, 60)).last == 3
    assert first.boot == nothing.boot != Hall().governance.settings.boot


@pytest.mark.parametrize(
    "act",
    [
        lambda operator: operator.answer(NO_QUESTION),
        lambda operator: operator.alert(NO_EPISODE, "CRITICAL", "x"),
        lambda operator: operator.alert(EPISODE, "LOUD", "x"),
        lambda operator: operator.clear(NO_EPISODE),
        lambda operator: operator.revoke(EPISODE),
        lambda operator: operator.revoke(EPISODE, token_id="token_x", grant="g"),
        lambda operator: operator.revoke(EPISODE, token_id="token_x"),
        lambda operator: operator.approve_budget(EPISODE),
        lambda operator: operator.approve_budget(EPISODE, tool_call_budget=-1),
    ],
)
async def test_what_an_operator_cannot_do_is_a_refusal_with_a_code(
    act: Callable[[Operator], Awaitable[object]],
) -> None:
    hall = await Hall.start()
    before = len(hall.lines)

    with pytest.raises(RequestRefused) as caught:
        await act(hall.operator)

    assert caught.value.problem.code == "VALIDATION_ERROR"
    assert len(hall.lines) == before


async def test_a_wrong_sort_of_answer_is_refused() -> None:
    hall, agent = await Hall.with_agent()
    await escalating(agent)
    (waiting,) = hall.operator.pending()

    for act in (
        hall.operator.approve(waiting),
        hall.operator.deny(waiting),
        hall.operator.answer(waiting, choice="option_9"),
    ):
        with pytest.raises(RequestRefused):
            await act

    assert hall.operator.pending() == [waiting]


async def test_a_token_is_not_answered_but_approved_or_denied() -> None:
    hall = Hall(policy=policy_with(tokens={"issuer": "human"}))
    await (await hall.agent()).permitted("move", wait_seconds=0)
    (waiting,) = hall.operator.pending()

    with pytest.raises(RequestRefused) as problem:
        await hall.operator.answer(waiting, text="yes")

    assert problem.value.problem.code == "VALIDATION_ERROR"
    assert hall.operator.pending() == [waiting]


async def test_there_is_nothing_to_clear_where_there_is_no_safe_mode() -> None:
    hall = await Hall.start()

    done = await hall.operator.clear(hall.episode)

    assert (done.accepted, done.reason) == (False, "the episode is not in safe mode")
    assert not any(isinstance(event, EpisodeStepped) for event in hall.events)


@pytest.mark.parametrize("by", ["operator", "orchestrator"])
async def test_a_grant_that_is_revoked_in_the_wrap_up_is_dead_and_on_record(by: str) -> None:
    hall = await Hall.start(max_steps=2)
    granted = hall.give()
    agent = Agent(hall.view(granted))
    await agent.permitted("move")
    await agent.use("move", direction="up", steps=2)

    if by == "operator":
        live = (await hall.operator.revoke(hall.episode, grant=granted.grant)).accepted
    else:
        live = (await hall.granting.revoke(hall.session, Revoke(granted.grant), 3)).live

    assert live
    assert hall.for_agents.find_view(granted.token) is None
    assert [event.grant for event in hall.events if isinstance(event, AgentRevoked)] == [granted.grant]


async def test_who_decides_anew_has_withdrawn_what_it_asked_for() -> None:
    hall, agent = await Hall.with_agent(policy=policy_with(tokens={"issuer": "human"}))
    await agent.permitted("move", wait_seconds=0, uses=1)
    (before,) = hall.operator.pending()
    await agent.use("sniff")
    await agent.believe()
    await agent.decide()

    withdrawn = hall.operator.pending()
    asked = await agent.use("request_token", tools=["move"], rationale="anew", uses=3, wait_seconds=0)
    (waiting,) = hall.operator.pending()

    assert withdrawn == []
    assert asked.said["verdict"] == "waiting"
    assert waiting.id != before.id
    assert "anew" in waiting.question
    assert (await hall.operator.approve(waiting)).accepted


async def test_who_waits_for_what_it_has_withdrawn_is_told_so() -> None:
    hall, agent = await Hall.with_agent(policy=policy_with(tokens={"issuer": "human"}))
    asked = asyncio.create_task(agent.permitted("move", wait_seconds=290.0))
    await until(hall.operator.pending)

    await agent.decide("VERIFY_FIRST")
    hall.governor.stream.notifier.notify()
    told = await asked

    assert told.rules == ["POLICY-3"]
    assert "withdrawn" in told.text


async def test_a_lost_episode_is_not_listed_and_takes_no_acts() -> None:
    hall, agent = await Hall.with_agent()
    await escalating(agent)
    (waiting,) = hall.operator.pending()
    hall.session.lose("X", "gone")

    with pytest.raises(RequestRefused) as by_id:
        await hall.operator.answer(waiting, text="go")
    with pytest.raises(RequestRefused) as alerted:
        await hall.operator.alert(hall.episode, "INFO", "x")

    assert (hall.operator.pending(), hall.operator.sessions()) == ([], [])
    assert [each.value.problem.code for each in (by_id, alerted)] == ["STALE_QUESTION", "VALIDATION_ERROR"]


async def test_an_act_while_the_episode_is_being_closed_is_refused_and_not_on_record() -> None:
    hall, agent = await Hall.with_agent()
    await agent.believe()
    await agent.decide("CANCEL")
    await agent.believe()
    disk = Disk(hall)

    with disk.held():
        closing = asyncio.create_task(hall.session.close("closed"))
        await until(lambda: disk.waiting)
        with pytest.raises(RequestRefused) as problem:
            await hall.operator.alert(hall.episode, "INFO", "x")
    await closing

    assert problem.value.problem.code == "ENDED"
    assert hall.lines[-1].kind == "close"
    assert [end.outcome for end in hall.ends] == ["conforming"]


async def test_an_approval_that_cannot_be_said_is_a_refusal_with_a_code() -> None:
    hall = Hall(policy="strict")
    agent = await verified(hall)
    await agent.use("request_token", tools=["move"], rationale="please", wait_seconds=0)

    with pytest.raises(RequestRefused) as problem:
        await hall.operator.approve(hall.operator.pending()[0], uses=0)

    assert problem.value.problem.code == "VALIDATION_ERROR"


async def test_where_agents_share_an_episode_the_operator_is_told_that_they_share_the_token() -> None:
    policy = policy_with(tokens={"issuer": "human"})
    questions = []
    for target, tool in (("tests.server.environments:Crowded", "act"), (PLUME, "move")):
        hall = Hall(target, policy)
        await (await hall.agent()).permitted(tool, wait_seconds=0)
        questions.append(hall.operator.pending()[0].question)

    assert "any agent of the episode" in questions[0]
    assert "any agent" not in questions[1]
