"""A property of governed episodes: whatever agents and operators do, in any order, nothing goes wrong."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.models.events import EpisodeStepped, Event, PacketJudged
from proctor.models.operator import NamedQuestion, QuestionAct
from proctor.server.governed.governance_tools import GOVERNANCE_TOOL_NAMES
from proctor.server.runtime.results import RequestRefused
from tests.server.bare_sessions import run
from tests.server.governed.governed_sessions import (
    BELIEF,
    DECISION,
    PLUME,
    Agent,
    Hall,
    Heard,
    assert_judged_alike,
    directive,
    packet,
    policy_with,
)

POLICIES = {
    "open": policy_with("open", escalation={"answer_seconds": 0}),
    "standard": policy_with("standard", escalation={"answer_seconds": 0}, budgets={"tool_call_budget": 6}),
    "strict": policy_with("strict", escalation={"answer_seconds": 0}, wrap_up_seconds=3),
    "wary": policy_with(
        "standard",
        escalation={"answer_seconds": 0, "when": ["write at MEDIUM stakes"]},
        tools={"sniff": "MIXED"},
        on_overrun="escalate",
        budgets={"time_budget_seconds": 2},
        rules="TELL: TaskResultPacket leads to ObservationPacket within 2",
    ),
}
SUBMITTED = [
    packet(POLICIES["standard"], "BeliefUpdatePacket", BELIEF, 3),
    packet(POLICIES["strict"], "DecisionPacket", DECISION),
    packet(POLICIES["strict"], "DecisionPacket", {**DECISION, "decision_outcome": "ESCALATE"}),
    packet(POLICIES["strict"], "TaskDirectivePacket", directive("sniff", {})),
    packet(POLICIES["strict"], "TaskDirectivePacket", directive("move", {"direction": "up"}, "WRITE", "token_s_1_6")),
    packet(POLICIES["strict"], "ToolAuthorizationToken", {}, 1),
    {"record": "close"},
    {},
]
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
sensible = st.one_of(
    st.just(("believe", {"changes": {"a": 1}})),
    st.sampled_from(["ACT", "ACT", "VERIFY_FIRST", "ESCALATE", "DEFER", "CANCEL"]).map(
        lambda outcome: ("decide", {"outcome": outcome, "summary": "s"})
    ),
    st.just(("plan_verification", {"targets": ["a"]})),
    st.just(("request_token", {"tools": ["move"], "uses": 2, "rationale": "r", "wait_seconds": 0})),
    st.just(("request_token", {"wait_seconds": 0})),
    st.just(("escalate", {"question": "q", "options": ["a", "b"], "wait_seconds": 0})),
    st.just(("escalate", {"wait_seconds": 0})),
    st.just(("sniff", {})),
    st.integers(1, 4).map(lambda steps: ("move", {"direction": "up", "steps": steps})),
    st.sampled_from(SUBMITTED).map(lambda one: ("submit_packet", {"packet": one})),
)
nonsense = st.one_of(
    st.tuples(
        st.sampled_from([*GOVERNANCE_TOOL_NAMES, "sniff", "move", "fly"]),
        st.dictionaries(st.text(max_size=6), junk, max_size=2),
    ),
    st.tuples(st.just("submit_packet"), st.fixed_dictionaries({"packet": st.dictionaries(st.text(max_size=6), junk)})),
    st.tuples(st.just("believe"), st.fixed_dictionaries({"changes": junk, "evidence": junk})),
)
raw = st.tuples(
    st.sampled_from([*GOVERNANCE_TOOL_NAMES, "move"]),
    st.sampled_from([b"", b"{", b"[]", b"null", b"\xff", b'{"a":1e999}']),
)
acts = st.sampled_from(["answer", "approve", "deny", "alert", "warn", "clear", "budget", "revoke", "sweep", "time"])
calls = st.lists(sensible | sensible | sensible | nonsense | raw | acts, max_size=25)


async def operated(hall: Hall, act: str) -> None:
    """Do what an operator, or time, does; what cannot be done is refused."""
    operator = hall.operator
    waiting: NamedQuestion = next(iter(operator.pending()), QuestionAct("s", hall.session.epoch, "nothing"))
    tokens = [*hall.governor.stream.standing.tokens, "token_none"]
    doing: Any = {
        "answer": lambda: operator.answer(waiting, text="yes"),
        "approve": lambda: operator.approve(waiting),
        "deny": lambda: operator.deny(waiting),
        "alert": lambda: operator.alert(hall.episode, "CRITICAL", "stop"),
        "warn": lambda: operator.alert(hall.episode, "WARNING", "careful"),
        "clear": lambda: operator.clear(hall.episode),
        "budget": lambda: operator.approve_budget(hall.episode, tool_call_budget=1),
        "revoke": lambda: operator.revoke(hall.episode, token_id=tokens[0]),
        "sweep": hall.granting.sweep,
        "time": lambda: asyncio.sleep(0),
    }
    hall.now += 1.5 if act == "time" else 0.0
    try:
        await doing[act]()
    except RequestRefused as problem:
        assert problem.problem.code  # noqa: PT017  # a refusal with a code is as good as an answer


async def used(hall: Hall, agent: Agent, call: tuple[str, Any]) -> None:
    """Call a tool, and hold that a refusal has not moved the environment."""
    tool, arguments = call
    said = arguments if isinstance(arguments, bytes) else json.dumps(arguments).encode()
    before = hall.steps
    told = Heard(await agent.view.call(tool, said))
    assert told.text
    if told.refused and told.said.get("code") == "REFUSED":
        assert hall.steps == before
    if tool in GOVERNANCE_TOOL_NAMES and tool != "submit_packet":
        assert hall.steps == before


def held(hall: Hall) -> None:
    """Hold what is always true of what is on record."""
    assert_judged_alike(hall.lines, hall.policy)
    accepted = [line.kind for line in hall.lines if line.accepted and line.judged]
    steps = [event for event in hall.events if isinstance(event, EpisodeStepped)]
    assert not steps or accepted.count("TaskDirectivePacket") > 0
    assert all(event.tool == "move" for event in steps)
    assert len([event for event in hall.events if isinstance(event, PacketJudged)]) == len(hall.lines)


async def lived(name: str, doings: list[Any], agents: int = 1) -> Hall:
    hall = Hall(PLUME, POLICIES[name], max_steps=12)
    there = [await hall.agent() for _ in range(agents)]
    for place, doing in enumerate(doings):
        if isinstance(doing, str):
            await operated(hall, doing)
        else:
            await used(hall, there[place % agents], doing)
    await hall.session.close("closed")
    return hall


@pytest.mark.parametrize("name", POLICIES)
@given(doings=calls)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_is_called_the_record_holds_and_refusals_move_nothing(name: str, doings: list[Any]) -> None:
    hall = run(lived(name, doings))

    held(hall)
    (end,) = hall.ends
    assert end.outcome in ("conforming", "open")
    last = hall.lines[-1]
    assert (end.outcome == "conforming") == (last.kind == "close" and last.accepted)


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
@given(doings=calls)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_is_called_the_record_holds_many_times(name: str, doings: list[Any]) -> None:
    held(run(lived(name, doings)))


@given(doings=st.lists(sensible | acts, max_size=30))
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
def test_agents_and_operators_who_are_not_in_step_leave_one_record(doings: list[Any]) -> None:
    async def scenario() -> Hall:
        hall = Hall("tests.server.environments:Crowded", policy_with("open", escalation={"answer_seconds": 0}))
        there = [await hall.agent(agent=name) for name in ("ann", "bob")]
        quick = hall.diary.record

        def slow(event: Event) -> Any:
            quick(event)
            return asyncio.sleep(0)

        hall.diary.record = slow  # type: ignore[method-assign]  # a disk that takes its time
        await asyncio.gather(
            *(
                operated(hall, doing)
                if isinstance(doing, str)
                else there[place % 2].use(_in_crowds(doing[0]), **_said_in_crowds(*doing))
                for place, doing in enumerate(doings)
            )
        )
        await hall.session.close("closed")
        return hall

    hall = run(scenario())

    assert_judged_alike(hall.lines, hall.policy)
    assert [end.outcome for end in hall.ends] in (["conforming"], ["open"])


def _in_crowds(tool: str) -> str:
    """Return the tool of another environment that is like this one."""
    return {"sniff": "observe", "move": "act"}.get(tool, tool)


def _said_in_crowds(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    changed = {"move": {"action": 1}, "request_token": {**arguments, "tools": ["act"]}}
    return changed.get(tool, arguments)
