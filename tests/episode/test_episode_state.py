"""What an episode remembers, as plain values that never change, and what an accepted packet changes of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proctor.episode import Settings
from proctor.episode.episode_state import (
    BEGINNING,
    CHANGES,
    END,
    NOTHING,
    Amounts,
    EpisodeState,
    GoverningDecision,
    IssuedToken,
    OpenTask,
    Verification,
    add_seconds,
    new_episode,
    next_due,
    result_cost,
)
from proctor.episode.packets.enums import DecisionOutcome, EpistemicStatus, ResultStatus
from proctor.episode.packets.fields import ExecutionMetadata, TaskResult
from proctor.episode.packets.reader import AnyPacket
from proctor.episode.packets.writer import BUDGETS, OBSERVED
from proctor.episode.transition_table import Event, Position, ProtocolState
from tests.episode.scripts import START
from tests.episode.stages import Stage

NOON = datetime(2025, 1, 1, 12, tzinfo=UTC)
TASK = OpenTask("pkt_1", "task_1", True, NOON)
PERMIT = IssuedToken("token_1", ("valve",), (), NOON, 2, 0, False, "{}")
COUNTS = st.integers(0, 5)
AMOUNTS = st.builds(Amounts, COUNTS, COUNTS, st.integers(0, 5).map(float))


def test_an_episode_begins_with_nothing() -> None:
    episode = new_episode("corr_1", (0, 0))

    assert episode == EpisodeState(
        correlation_id="corr_1",
        position=Position.IDLE,
        clock=BEGINNING,
        packets=0,
        believed=False,
        tools_ok=True,
        succeeded=True,
        governing=None,
        loop=None,
        tasks={},
        tokens={},
        due=END,
        spent=Amounts(0, 0, 0.0),
        approved=Amounts(0, 0, 0.0),
        marks=(0, 0),
        seen={},
    )
    assert episode.state is ProtocolState.IDLE
    assert new_episode("corr_1").marks == ()


def test_episodes_share_nothing() -> None:
    one, other = new_episode("corr_1"), new_episode("corr_2")
    one.seen["pkt_1"] = 1

    assert other.seen == {}


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (new_episode("corr_1"), "packets"),
        (TASK, "late"),
        (PERMIT, "used"),
        (Verification(1), "planned"),
        (NOTHING, "calls"),
        (GoverningDecision(DecisionOutcome.ACT, NOTHING), "outcome"),
    ],
)
def test_a_value_never_changes(value: object, name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(value, name, 1)


def test_a_verification_begins_with_nothing_done() -> None:
    assert Verification(3) == Verification(
        began=3, planned=False, read=False, succeeded=False, observed=False, begun=False, integrated=False
    )


def test_a_task_is_due_at_its_deadline_or_its_timeout() -> None:
    sooner, later_on = NOON - timedelta(1), NOON + timedelta(1)

    assert TASK.due == NOON
    assert OpenTask("pkt_1", "task_1", True, NOON, sooner).due == sooner
    assert OpenTask("pkt_1", "task_1", True, NOON, later_on).due == NOON
    assert not TASK.late
    assert not TASK.overdue


@pytest.mark.parametrize(
    ("permit", "live"),
    [
        (PERMIT, True),
        (IssuedToken("token_1", (), (), NOON, 2, 1, False, ""), True),
        (IssuedToken("token_1", (), (), NOON, 2, 2, False, ""), False),
        (IssuedToken("token_1", (), (), NOON, 2, 0, True, ""), False),
    ],
)
def test_a_token_is_live_until_it_is_revoked_or_used_up(permit: IssuedToken, live: bool) -> None:
    assert permit.live(NOON - timedelta(microseconds=1)) is live
    assert not permit.live(NOON)


@given(AMOUNTS, AMOUNTS)
def test_amounts_are_added_one_by_one(one: Amounts, other: Amounts) -> None:
    whole = one.plus(other)

    assert (whole.tokens, whole.calls) == (one.tokens + other.tokens, one.calls + other.calls)
    assert whole.milliseconds == one.milliseconds + other.milliseconds


@given(AMOUNTS, AMOUNTS)
def test_an_amount_is_beyond_another_if_any_of_the_three_is_greater(one: Amounts, other: Amounts) -> None:
    pairs = ((one.tokens, other.tokens), (one.calls, other.calls), (one.milliseconds, other.milliseconds))

    assert (one.beyond(other) is not None) is any(mine > yours for mine, yours in pairs)


@pytest.mark.parametrize(
    ("spent", "words"),
    [
        (Amounts(8, 9, 2500.0), "8 tokens of 1"),
        (Amounts(1, 9, 2500.0), "9 tool calls of 2"),
        (Amounts(1, 2, 2500.0), "2.5 seconds of 1.5"),
        (Amounts(1, 2, 1500.0), None),
    ],
)
def test_the_first_that_is_beyond_is_told_in_words(spent: Amounts, words: str | None) -> None:
    assert spent.beyond(Amounts(1, 2, 1500.0)) == words


def test_the_allowance_is_the_decisions_budget_and_what_was_approved() -> None:
    governing = GoverningDecision(DecisionOutcome.ACT, Amounts(1, 2, 3.0))

    assert new_episode("corr_1").allowance == NOTHING == Amounts(0, 0, 0.0)
    assert EpisodeState("corr_1", governing=governing).allowance == Amounts(1, 2, 3.0)
    assert EpisodeState("corr_1", governing=governing, approved=Amounts(10, 20, 30.0)).allowance == Amounts(
        11, 22, 33.0
    )
    assert EpisodeState("corr_1", approved=Amounts(10, 20, 30.0)).allowance == Amounts(10, 20, 30.0)


def test_the_end_of_time_is_never_passed() -> None:
    assert add_seconds(NOON, 90) == NOON + timedelta(seconds=90)
    assert add_seconds(NOON, 10**12) == END
    assert add_seconds(NOON, 10**20) == END


def test_the_declared_set_shows_whether_all_went_well() -> None:
    settled = EpisodeState("corr_1", position=Position.SETTLE)

    assert settled.state is ProtocolState.REVIEW
    assert EpisodeState("corr_1", position=Position.SETTLE, succeeded=False).state is ProtocolState.MODEL


def after(stage: Stage) -> EpisodeState:
    """Return the episode after the latest line."""
    episode = stage.verdict.after
    assert episode is not None
    return episode


def lenient() -> Stage:
    return Stage(Settings(profile="lenient"))  # type: ignore[arg-type]  # a setting may be given as its word


def cost(metadata: ExecutionMetadata | None, *, uses_tool: bool) -> tuple[float, ...]:
    task = OpenTask("pkt_1", "task_1", uses_tool, START)
    spent = result_cost(TaskResult("task_1", "pkt_1", ResultStatus.SUCCESS, execution_metadata=metadata), task)
    return spent.tokens, spent.calls, spent.milliseconds


@pytest.mark.parametrize(
    ("metadata", "with_tool", "without"),
    [
        (None, (0, 1, 0), (0, 0, 0)),
        (ExecutionMetadata(), (0, 1, 0), (0, 0, 0)),
        (ExecutionMetadata(tool_calls_used=0), (0, 0, 0), (0, 0, 0)),
        (ExecutionMetadata(1.5, 7, 3), (7, 3, 1.5), (7, 3, 1.5)),
    ],
)
def test_a_result_costs_what_it_says_and_a_tool_one_call(
    metadata: ExecutionMetadata | None, with_tool: tuple[float, ...], without: tuple[float, ...]
) -> None:
    assert cost(metadata, uses_tool=True) == with_tool
    assert cost(metadata, uses_tool=False) == without


def test_what_is_spent_and_what_is_approved_adds_up() -> None:
    stage = Stage()
    asked = stage.executes()
    stage.takes(stage.author.record("approval", {"token_budget": 5, "time_budget_seconds": 1500}), "S6")
    stage.takes(stage.author.record("approval", {"token_budget": 6, "tool_call_budget": 7}), "S6")
    stage.takes(stage.author.result(asked, cost=ExecutionMetadata(2.0, 3, 4)), "S6")

    assert after(stage).approved == Amounts(11, 7, 1_500_000.0)
    assert after(stage).spent == Amounts(3, 4, 2.0)
    assert after(stage).allowance == Amounts(10_011, 17, 2_100_000.0)


def test_a_directive_waits_until_its_deadline_and_uses_its_token_once() -> None:
    stage = Stage()
    token = stage.authorizes(uses=3, used=1)
    budgets = replace(BUDGETS, time_budget_seconds=90)
    write = stage.takes(stage.author.directive("valve", safety="WRITE", token=token, timeout=30, budgets=budgets), "S6")
    now = after(stage).clock

    (task,) = after(stage).tasks.values()
    assert (task.packet_id, task.uses_tool) == (write.header.packet_id, True)
    assert (task.deadline, task.timeout) == (now + timedelta(seconds=90), now + timedelta(seconds=30))
    assert after(stage).due == task.timeout
    assert after(stage).tokens[token.payload.token_id].used == 2
    stage.takes(stage.author.directive(None, method="code", budgets=budgets), "S6")
    assert [task.uses_tool for task in after(stage).tasks.values()] == [True, False]
    assert after(stage).due == now + timedelta(seconds=30)
    stage.takes(stage.author.result(write), "S6")
    assert after(stage).due == now + timedelta(seconds=91)


def test_nothing_is_due_where_no_task_is_open() -> None:
    task = OpenTask("pkt_1", "task_1", True, START)

    assert next_due({}) == END
    assert next_due({"pkt_1": task, "pkt_2": replace(task, deadline=START - timedelta(1))}) == START - timedelta(1)


def plan(stage: Stage) -> AnyPacket:
    return stage.author.plan()


def read(stage: Stage) -> AnyPacket:
    return stage.author.directive("gauge")


def observation(stage: Stage) -> AnyPacket:
    return stage.author.observation({"level": 3})


def words(stage: Stage) -> AnyPacket:
    return stage.author.observation({"text": "go on"}, type="user_input")


@pytest.mark.parametrize("first", [plan, read, observation, words])
def test_once_a_verification_has_begun_no_token_comes_any_more(first: Callable[[Stage], AnyPacket]) -> None:
    stage = lenient()
    stage.opens(profile="lenient")
    stage.decides("VERIFY_FIRST")
    stage.takes(first(stage), "S4", *(("E3",) if first is read else ()))
    stage.refuses(stage.author.token("valve"), "S4", "E3")


def test_a_result_also_begins_a_verification() -> None:
    stage = lenient()
    stage.decides("VERIFY_FIRST")
    asked = stage.takes(read(stage), "S4", "E3")
    stage.takes(stage.author.result(asked), "S4")
    stage.refuses(stage.author.token("valve"), "S4", "E3")


def test_evidence_counts_from_the_packet_after_the_decision_to_verify() -> None:
    stage = Stage()
    stage.models()
    before = stage.lines[-2]
    stage.takes(stage.author.decision("VERIFY_FIRST"), "S4")
    seen = stage.takes(observation(stage), "S4")
    stage.takes(stage.author.plan(), "S4")
    asked = stage.takes(read(stage), "S4")
    stage.takes(stage.author.result(asked), "S4")

    assert b"pkt_stage_1" in before
    stage.refuses(stage.author.belief(integrates=["pkt_stage_1", "pkt_stage_3"]), "S4", "E3", "S4")
    stage.takes(stage.author.belief(integrates=[seen]), "S2")


def test_a_second_token_does_not_come_first() -> None:
    stage = lenient()
    stage.decides("VERIFY_FIRST")
    stage.takes(stage.author.token("valve"), "S4")
    stage.refuses(stage.author.token("valve"), "S4", "E3")


def test_an_answer_of_a_human_in_a_verification_is_observed_evidence() -> None:
    stage = Stage()
    stage.reads_in_s4()
    seen = stage.takes(words(stage), "S4")
    stage.takes(stage.author.belief(evidence=[seen]), "S2")


def test_what_was_observed_stays_observed() -> None:
    stage = Stage()
    seen = stage.verifies()
    guess = replace(OBSERVED, status=EpistemicStatus.HYPOTHESIZED)
    stage.takes(stage.author.observation({"level": 3}, epistemics=guess), "S4")
    asked = stage.takes(read(stage), "S4")
    stage.takes(stage.author.result(asked, "FAILURE"), "S4")
    stage.takes(stage.author.belief(evidence=[seen]), "S2")


@pytest.mark.parametrize("kind", ["clear", "drift"])
def test_any_alert_may_revoke_tokens(kind: str) -> None:
    stage = Stage()
    token = stage.authorizes()
    kept = stage.takes(stage.author.token("valve"), "S5")
    stage.takes(stage.author.alert("INFO", type=kind, revokes=[token, "token_unknown"]), "S5")

    assert {name: token.revoked for name, token in after(stage).tokens.items()} == {
        token.payload.token_id: True,
        kept.payload.token_id: False,
    }


@pytest.mark.parametrize("halt", ["alert", "record"])
def test_safe_mode_voids_what_was_under_way_and_revokes_every_token(halt: str) -> None:
    stage = Stage()
    token = stage.authorizes(uses=2)
    stage.takes(stage.author.directive("valve", safety="WRITE", token=token), "S6")
    stage.takes(stage.author.alert("CRITICAL") if halt == "alert" else stage.author.record("safemode"), "S9")

    halted = after(stage)
    assert (halted.tasks, halted.due, halted.loop, halted.governing) == ({}, END, None, None)
    assert [token.revoked for token in halted.tokens.values()] == [True]


@pytest.mark.parametrize(("policy", "end"), [("safemode", "S9"), ("escalate", "S8")])
def test_a_budget_can_be_overrun_in_a_verification_too(policy: str, end: str) -> None:
    stage = Stage(Settings(on_overrun=policy))  # type: ignore[arg-type]  # a setting may be given as its word
    stage.decides("VERIFY_FIRST")
    stage.takes(stage.author.plan(), "S4")
    asked = stage.takes(read(stage), "S4")
    stage.takes(stage.author.result(asked, cost=ExecutionMetadata(tokens_used=10_001)), end)

    assert stage.path == ("S4", "S4", end)


def test_an_overrun_that_is_escalated_leaves_the_tokens() -> None:
    stage = Stage(Settings(on_overrun="escalate"))  # type: ignore[arg-type]  # a setting may be given as its word
    token = stage.authorizes(uses=2)
    write = stage.takes(stage.author.directive("valve", safety="WRITE", token=token), "S6")
    stage.takes(stage.author.directive("valve", safety="WRITE", token=token), "S6")
    stage.takes(stage.author.result(write, cost=ExecutionMetadata(tokens_used=10_001)), "S8")

    escalated = after(stage)
    assert (escalated.tasks, escalated.due, escalated.loop, escalated.governing) == ({}, END, None, None)
    assert [token.revoked for token in escalated.tokens.values()] == [False]
    stage.takes(stage.author.escalation(), "S8")
    assert after(stage).spent.tokens == 10_001
    stage.takes(words(stage), "S3")
    assert after(stage).spent == Amounts()


def test_every_event_changes_something_or_nothing() -> None:
    assert set(CHANGES) == set(Event)
