"""What an accepted packet changes, seen in the episode after it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from proctor.episode import Settings
from proctor.episode.episode_state import END, Amounts, EpisodeState, OpenTask
from proctor.episode.events import CHANGES, next_due, result_cost
from proctor.episode.packets.enums import EpistemicStatus, ResultStatus
from proctor.episode.packets.fields import ExecutionMetadata, TaskResult
from proctor.episode.packets.reader import AnyPacket
from proctor.episode.packets.writer import BUDGETS, OBSERVED
from proctor.episode.transition_table import Event
from tests.episode.scripts import START
from tests.episode.stages import Stage


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
    write = stage.author.directive("valve", safety="WRITE", token=token, timeout=30, budgets=budgets)
    stage.takes(write, "S6")
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
    asked = read(stage)
    stage.takes(asked, "S4", "E3")
    stage.takes(stage.author.result(asked), "S4")
    stage.refuses(stage.author.token("valve"), "S4", "E3")


def test_evidence_counts_from_the_packet_after_the_decision_to_verify() -> None:
    stage = Stage()
    stage.models()
    before = stage.lines[-2]
    stage.takes(stage.author.decision("VERIFY_FIRST"), "S4")
    seen = observation(stage)
    stage.takes(seen, "S4")
    stage.takes(stage.author.plan(), "S4")
    asked = read(stage)
    stage.takes(asked, "S4")
    stage.takes(stage.author.result(asked), "S4")

    assert b"pkt_stage_1" in before
    stage.refuses(stage.author.belief(integrates=["pkt_stage_1", "pkt_stage_3"]), "S4", "E3", "S4")
    stage.takes(stage.author.belief(integrates=[seen]), "S2")


def test_a_second_token_does_not_come_first() -> None:
    stage = lenient()
    stage.decides("VERIFY_FIRST")
    token = stage.author.token("valve")
    stage.takes(token, "S4")
    stage.refuses(stage.author.token("valve"), "S4", "E3")


def test_an_answer_of_a_human_in_a_verification_is_observed_evidence() -> None:
    stage = Stage()
    stage.reads_in_s4()
    seen = words(stage)
    stage.takes(seen, "S4")
    stage.takes(stage.author.belief(evidence=[seen]), "S2")


def test_what_was_observed_stays_observed() -> None:
    stage = Stage()
    seen = stage.verifies()
    guess = replace(OBSERVED, status=EpistemicStatus.HYPOTHESIZED)
    stage.takes(stage.author.observation({"level": 3}, epistemics=guess), "S4")
    asked = read(stage)
    stage.takes(asked, "S4")
    stage.takes(stage.author.result(asked, "FAILURE"), "S4")
    stage.takes(stage.author.belief(evidence=[seen]), "S2")


@pytest.mark.parametrize("kind", ["clear", "drift"])
def test_any_alert_may_revoke_tokens(kind: str) -> None:
    stage = Stage()
    token = stage.authorizes()
    kept = stage.author.token("valve")
    stage.takes(kept, "S5")
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
    asked = read(stage)
    stage.takes(asked, "S4")
    stage.takes(stage.author.result(asked, cost=ExecutionMetadata(tokens_used=10_001)), end)

    assert stage.path == ("S4", "S4", end)


def test_an_overrun_that_is_escalated_leaves_the_tokens() -> None:
    stage = Stage(Settings(on_overrun="escalate"))  # type: ignore[arg-type]  # a setting may be given as its word
    token = stage.authorizes(uses=2)
    write = stage.author.directive("valve", safety="WRITE", token=token)
    stage.takes(write, "S6")
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
