"""What agents say, ask for and wait for: every refusal is on record, and none has moved anything."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.contracts.tools import ToolSafety
from proctor.episode.episode_state import EpisodeState, IssuedToken, new_episode
from proctor.episode.packets.enums import OperationType
from proctor.errors import ComponentError
from proctor.server.governed import agent_calls
from proctor.server.governed.agent_calls import MOST_WAITING
from proctor.server.governed.packet_builders import NO_TOKEN, choose_token, token_opens
from proctor.server.governed.packet_checks import MOST_KEPT, token_refusals
from tests.server.governed.governed_sessions import (
    Agent,
    Disk,
    Hall,
    Heard,
    assert_judged_alike,
    packet,
    policy_with,
    turns,
    until,
)

pytestmark = pytest.mark.anyio

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
async def test_what_is_refused_before_it_is_a_packet_is_on_record(
    tool: str, arguments: dict[str, Any], rule: str
) -> None:
    hall, agent = await Hall.with_agent()
    before = len(hall.lines)

    told = await agent.use(tool, **arguments)

    assert told.rules == [rule]
    (line,) = hall.lines[before:]
    assert (line.kind, line.judged, line.accepted, line.rules) == (tool, False, False, [rule])
    assert hall.governor.stream.standing.state == "S1_SENSE"


async def test_what_is_tried_after_the_environments_end_is_on_record() -> None:
    hall, agent = await Hall.with_agent(max_steps=2)
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


async def test_a_belief_that_is_refused_after_the_review_has_moved_nothing() -> None:
    hall, agent = await Hall.with_agent(
        policy=policy_with(rules="ONE: never BeliefUpdatePacket after IntegrityAlertPacket")
    )
    await agent.believe()
    await agent.decide("CANCEL")
    await agent.believe()
    await hall.operator.alert(hall.episode, "INFO", "note")

    told = await agent.believe()
    await hall.session.close("closed")

    assert (told.rules, told.state) == (["ONE"], "S7_REVIEW")
    assert [end.outcome for end in hall.ends] == ["conforming"]


async def test_evidence_that_there_is_can_be_named() -> None:
    hall, agent = await Hall.with_agent()
    seen = hall.governor.stream.memory.seen
    assert seen is not None

    told = await agent.use("believe", changes={"a": 1}, evidence=[seen.packet_id])

    assert not told.refused


async def test_a_submitted_escalation_has_no_two_options_of_one_id() -> None:
    hall, agent = await Hall.with_agent()
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


async def test_of_a_long_packet_that_is_refused_the_kind_the_size_and_the_digest_are_on_record() -> None:
    hall, agent = await Hall.with_agent()

    long = await agent.submit({"header": {"packet_type": "X"}, "y": "x" * MOST_KEPT})
    line = hall.lines[-1]
    short = await agent.submit({"record": "close"})

    assert (long.rules, short.rules) == (["GOV-1"], ["GOV-1"])
    said = msgspec.json.decode(line.line)
    assert (line.kind, said.keys()) == ("X", {"tool", "bytes", "sha256"})
    assert said["bytes"] > MOST_KEPT
    assert bytes(hall.lines[-1].line) == b'{"record":"close"}'


async def test_a_step_its_result_and_what_was_seen_go_on_record_together_and_nobody_hears_of_them_before() -> None:
    hall, agent = await Hall.with_agent()
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
    assert [line.kind for line in hall.lines[-3:]] == ["TaskDirectivePacket", "TaskResultPacket", "ObservationPacket"]


async def test_a_step_that_cannot_be_kept_loses_the_episode_though_its_result_was_stated() -> None:
    hall, agent = await Hall.with_agent()
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


NOW = datetime(2030, 1, 1, tzinfo=UTC)
permits = st.builds(
    lambda number, tools, used, revoked, life: IssuedToken(
        f"token_{number}", tuple(tools), (OperationType.WRITE,), NOW + timedelta(seconds=life), 3, used, revoked, ""
    ),
    st.integers(0, 9),
    st.lists(st.sampled_from(["move", "turn"]), min_size=1),
    st.integers(0, 3),
    st.booleans(),
    st.integers(-5, 5),
)


def with_tokens(found: list[IssuedToken]) -> EpisodeState:
    import msgspec

    return msgspec.structs.replace(new_episode("corr_x"), tokens={permit.token_id: permit for permit in found})


@given(found=st.lists(permits, max_size=5, unique_by=lambda permit: permit.token_id))
def test_a_call_names_the_latest_token_that_opens_its_tool_if_one_does(found: list[IssuedToken]) -> None:
    chosen = choose_token("move", ToolSafety.WRITE, with_tokens(found), NOW)

    fitting = [permit.token_id for permit in found if permit.live(NOW) and token_opens(permit, "move")]
    assert chosen == fitting[-1] if fitting else chosen in {NO_TOKEN, *(permit.token_id for permit in found)}
    assert choose_token("move", ToolSafety.READ, with_tokens(found), NOW) is None


@pytest.mark.parametrize(
    ("tools", "operations", "uses", "pointer"),
    [
        (["fly"], ["write"], 1, "/tools"),
        (["move"], ["write"], 21, "/uses"),
        (["move"], ["delete", "write"], 1, "/operations"),
        (["move"], ["write"], 20, None),
    ],
)
def test_what_is_beyond_the_policy_is_not_issued(
    tools: list[str], operations: list[str], uses: int, pointer: str | None
) -> None:
    bars = token_refusals(tools, operations, uses, ["sniff", "move"], policy_with("standard"))

    assert [bar.pointer for bar in bars] == ([] if pointer is None else [pointer])


async def test_a_token_is_good_for_its_tools_its_uses_and_its_time() -> None:
    hall, agent = await Hall.with_agent(action="oriented_grid")

    issued = await agent.permitted("turn", uses=2)
    other = await agent.use("move")
    turned = [await agent.use("turn", direction="left") for _ in range(3)]
    again = await agent.permitted("turn", uses=2)
    hall.now += 301
    expired = await agent.use("turn", direction="left")

    assert issued.said["token"]["tools"] == ["turn"]
    assert other.rules == ["INV-007"]
    assert other.said["way"] == ['request_token(tools=["move"])', "move"]
    assert [one.refused for one in turned] == [False, False, True]
    assert turned[-1].rules == ["E4"]
    assert again.said["token"]["uses_left"] == 2
    assert "expired" in expired.text
    assert expired.said["way"] == ['request_token(tools=["turn"])', "turn"]
    assert hall.steps == 2
    assert_judged_alike(hall.lines, hall.policy)


async def test_a_request_beyond_the_limits_is_refused_recorded_and_told() -> None:
    hall, agent = await Hall.with_agent()
    await agent.believe()
    await agent.decide()

    told = await agent.use("request_token", tools=["move"], uses=21, rationale="many")

    assert told.rules == ["POLICY-3"]
    assert "20 uses at most" in told.text
    line = hall.lines[-1]
    assert (line.judged, line.accepted, line.kind) == (False, False, "request_token")
    assert hall.governor.stream.standing.tokens == {}


async def test_where_nobody_issues_tokens_nothing_acts() -> None:
    hall, agent = await Hall.with_agent(policy=policy_with(tokens={"issuer": "never"}))

    told = await agent.permitted("move")
    moved = await agent.use("move", direction="up")
    read = await agent.use("sniff")

    assert told.rules == ["POLICY-3"]
    assert moved.refused
    assert not read.refused
    assert hall.steps == 0


async def test_one_request_at_a_time_waits_for_an_operator() -> None:
    hall, agent = await Hall.with_agent(policy=policy_with(tokens={"issuer": "human"}))
    nothing = await agent.use("request_token", wait_seconds=0)

    first = await agent.permitted("move", wait_seconds=0)
    second = await agent.use("request_token", tools=["move"], rationale="again", wait_seconds=0)

    assert nothing.rules == ["POLICY-3"]
    assert first.said["verdict"] == "waiting"
    assert second.rules == ["POLICY-3"]
    assert "without tools" in second.text
    assert len(hall.operator.pending()) == 1


async def test_a_request_where_no_token_is_legal_is_refused_at_once() -> None:
    hall, agent = await Hall.with_agent(policy=policy_with(tokens={"issuer": "human"}))

    told = await agent.use("request_token", tools=["move"], rationale="too early", wait_seconds=10)

    assert told.rules == ["FSM"]
    assert told.said["way"] == ["believe", 'decide(outcome="ACT")', "request_token"]
    assert hall.operator.pending() == []
    assert_judged_alike(hall.lines, hall.policy)


@pytest.mark.parametrize("how", ["revoked", "used up", "expired"])
async def test_a_token_that_opens_nothing_any_more_is_told_as_that(how: str) -> None:
    hall, agent = await Hall.with_agent(policy=policy_with(tokens={"issuer": "human"}))
    await agent.permitted("move", uses=1, wait_seconds=0)
    await hall.operator.approve(hall.operator.pending()[0])
    good = await agent.use("request_token")
    if how == "revoked":
        await hall.operator.revoke(hall.episode, token_id=good.said["token"]["token_id"])
    elif how == "used up":
        await agent.use("move", direction="up")
    else:
        hall.now += 301

    told = await agent.use("request_token")

    assert "you may use move once" in good.text
    assert told.rules == ["POLICY-3"]
    assert f"is {how}" in told.text
    assert "you have a token" not in told.text
    assert not hall.lines[-1].accepted


async def asking(hall: Hall, wait_seconds: float) -> tuple[Agent, asyncio.Task[Heard]]:
    """Return an agent with a question, and its call that waits."""
    agent = await hall.agent()
    await agent.believe()
    await agent.decide("ESCALATE")
    asked = asyncio.create_task(agent.use("escalate", question="?", options=["a", "b"], wait_seconds=wait_seconds))
    await until(hall.operator.pending)
    return agent, asked


async def wanting(hall: Hall, wait_seconds: float) -> tuple[Agent, asyncio.Task[Heard]]:
    """Return an agent that has asked for a token, and its call that waits."""
    agent = await hall.agent()
    asked = asyncio.create_task(agent.permitted("move", wait_seconds=wait_seconds))
    await until(hall.operator.pending)
    return agent, asked


# --------------------------------------------------------------------------------------------------------------- on record
@pytest.mark.parametrize("again", [True, False], ids=["asks again", "waits"])
@pytest.mark.parametrize("what", ["an answer", "a token", "a denial"])
async def test_what_an_operator_says_reaches_the_agent_only_when_it_is_on_record(what: str, again: bool) -> None:
    hall = Hall(policy=policy_with(tokens={"issuer": "human"}))
    # Who waits itself is out of time before the disk is done.
    agent, asked = await (asking if what == "an answer" else wanting)(hall, 0.0 if again else 1.0)
    waiting = hall.operator.pending()[0]
    operator = hall.operator
    acts: dict[str, Callable[[], Awaitable[object]]] = {
        "an answer": lambda: operator.answer(waiting, choice="option_1"),
        "a token": lambda: operator.approve(waiting),
        "a denial": lambda: operator.deny(waiting, text="never"),
    }
    if again:
        await asked
    disk = Disk(hall)

    with disk.held():
        act = asyncio.ensure_future(acts[what]())
        await until(lambda: disk.waiting)
        call = "escalate" if what == "an answer" else "request_token"
        telling = asyncio.create_task(agent.use(call, wait_seconds=0.0)) if again else asked
        done, _ = await asyncio.wait([telling], timeout=0.2 if again else 1.2)
    told = await telling
    await act

    assert not done
    assert {"an answer": "chose option_1", "a token": "was issued", "a denial": "never"}[what] in told.text


async def test_an_answer_that_could_not_be_recorded_is_not_told() -> None:
    hall = Hall()
    agent, asked = await asking(hall, 0.0)
    await asked
    full: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    hall.diary.record = lambda event: full  # type: ignore[assignment, method-assign]  # a slow disk

    act = asyncio.ensure_future(hall.operator.answer(hall.operator.pending()[0], text="go"))
    await turns()
    again = asyncio.create_task(agent.use("escalate"))
    await turns()
    full.set_exception(ComponentError("the disk is full"))
    told = await again
    await asyncio.gather(act, return_exceptions=True)

    assert told.code == "EPISODE_LOST"


# ------------------------------------------------------------------------------------------------------------------ no more
async def test_calls_that_were_cancelled_wait_no_more_and_hold_nobodys_place() -> None:
    hall = Hall()
    agent, asked = await asking(hall, 0.0)
    await asked
    waits = [asyncio.create_task(agent.use("escalate", wait_seconds=290.0)) for _ in range(MOST_WAITING)]
    await until(lambda: hall.governor.stream.notifier.waiting == MOST_WAITING)

    for each in waits:
        each.cancel()
    await asyncio.gather(*waits, return_exceptions=True)
    await turns()
    told = await agent.use("escalate", wait_seconds=0.0)

    assert hall.governor.stream.notifier.waiting == 0
    assert told.said["verdict"] == "waiting"


async def test_an_agent_whose_grant_is_revoked_is_woken_and_not_told_the_answer() -> None:
    hall = Hall()
    agent, asked = await asking(hall, 290.0)

    await hall.operator.revoke(hall.episode, grant=agent.view.grant)
    await turns()
    woken = asked.done()
    await hall.operator.answer(hall.operator.pending()[0], text="the secret way")
    told = await asked

    assert woken
    assert told.code == "ENDED"
    assert "secret" not in told.text


async def test_an_agent_whose_episode_is_lost_is_woken_and_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_calls, "RECHECK_SECONDS", 0.01)

    hall = Hall()
    _, asked = await asking(hall, 290.0)

    hall.session.lose("X", "the sky fell")
    told = await asked

    assert told.code == "EPISODE_LOST"
    assert "the sky fell" in told.text


async def test_an_agent_whose_grant_expires_waits_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_calls, "RECHECK_SECONDS", 0.01)

    hall = await Hall.start()
    agent = Agent(hall.view(hall.give(ttl_seconds=5)))
    await agent.believe()
    await agent.decide("ESCALATE")
    asked = asyncio.create_task(agent.use("escalate", question="?", options=["a", "b"], wait_seconds=290.0))
    await until(hall.operator.pending)

    hall.now += 6

    assert (await asked).code == "ENDED"
