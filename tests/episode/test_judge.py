"""The judge of a stream: what it keeps, what it refuses to keep, its clock, its records and its snapshots."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.episode import Author, Judge, Settings
from proctor.episode.packets.fields import Budgets, ConstraintsSatisfied, ExecutionMetadata, RiskBudget
from proctor.episode.packets.reader import AnyPacket
from proctor.episode.rules.house_rules import load_rules
from proctor.episode.settings import Limits
from proctor.episode.transition_table import ProtocolState
from proctor.episode.verdicts import ObligationKind, Outcome
from proctor.errors import ValidationError
from proctor.narration.verdicts import explain_verdict

NOW = datetime(2026, 1, 1, tzinfo=UTC)
YEAR = timedelta(days=365)
UNCHECKED = ConstraintsSatisfied(constitutional_check=False, budget_check=True, tier_check=True)


def author(name: str = "corr_a", **more: Any) -> Author:
    return Author(name, at=NOW, **more)


def acting(by: Author) -> list[AnyPacket]:
    """An episode up to its decision to act."""
    return [by.observation({"seen": 1}), by.belief({"known": 1}), by.decision("ACT")]


def spending(tokens: int) -> Budgets:
    return Budgets(tokens, 10, 600, RiskBudget("none", "nothing"))


def judged(judge: Judge, said: list[AnyPacket]) -> None:
    for packet in said:
        verdict = judge.apply(packet)
        assert verdict.accepted, verdict.findings


def closed(judge: Judge, name: str = "corr_a") -> None:
    """A whole short episode, closed."""
    by = author(name)
    judged(judge, [by.observation({"seen": 1}), by.belief(), by.decision("CANCEL"), by.belief()])
    assert judge.apply(by.record("close")).accepted


def test_a_line_may_be_bytes_text_a_packet_or_a_record() -> None:
    by = author()
    first, second, third = by.observation({"seen": 1}), by.observation({"seen": 2}), by.observation({"seen": 3})
    judge = Judge()

    verdicts = [
        judge.apply(first),
        judge.apply(second.line()),
        judge.apply(third.line().decode()),
        judge.apply(bytearray(by.observation({"seen": 4}).line())),
        judge.apply(memoryview(by.record("safemode").line())),
    ]

    assert [verdict.accepted for verdict in verdicts] == [True] * 5


@pytest.mark.parametrize("line", [None, 1, {}, []])
def test_what_is_no_line_is_the_callers_mistake(line: Any) -> None:
    with pytest.raises(ValidationError, match="this is no line"):
        Judge().apply(line)


def test_text_that_is_no_text_is_not_json() -> None:
    assert Judge().apply('{"a": "\ud800"}').rules == ("JSON",)


@given(st.integers(min_value=2**53) | st.just(10**400))
def test_a_number_too_great_to_count_with_is_refused_where_it_stands(number: int) -> None:
    said = msgspec.json.decode(author().observation({"seen": 1}).line())
    said["mcp"]["budgets"]["time_budget_seconds"] = 4_242
    line = msgspec.json.encode(said).replace(b"4242", str(number).encode())

    verdict = Judge().apply(line)

    assert verdict.rules == ("SCHEMA",)
    assert verdict.pointers == ("/mcp/budgets/time_budget_seconds",)


def test_blank_lines_of_a_stream_are_passed_over() -> None:
    lines = [b"\n", author().observation({"seen": 1}).line() + b"\n", b"  \n", b""]

    assert len(list(Judge().stream(lines))) == 1


def test_an_episode_is_open_then_conforming() -> None:
    judge = Judge()
    judge.apply(author().observation({"seen": 1}))
    before = judge.outcome("corr_a")
    judge = Judge()
    closed(judge)

    assert (before, judge.outcome("corr_a")) == (Outcome.OPEN, Outcome.CONFORMING)
    assert judge.outcome("corr_nobody") is Outcome.OPEN


def test_a_refusal_violates_an_episode_also_before_it_began_and_after_it_was_closed() -> None:
    early, late = Judge(), Judge()
    early.apply(author().belief())
    first = early.outcome("corr_a")
    closed(early)
    closed(late)
    late.apply(author().observation({"seen": 1}, packet_id="pkt_late"))

    assert first is early.outcome("corr_a") is late.outcome("corr_a") is Outcome.VIOLATED
    assert [summary.broken for summary in late.summaries()] == [{"EPISODE_CLOSED": 1}]
    assert [summary.broken for summary in early.summaries()] == [{"FSM": 1}]


def test_a_refused_first_line_opens_nothing() -> None:
    judge = Judge()
    judge.apply(author().belief())

    verdict = judge.open("corr_a", at=NOW, settings=Settings(profile="lenient"))  # type: ignore[arg-type]  # by its word

    assert verdict.accepted


def test_a_summary_counts_packets_refusals_and_warnings() -> None:
    judge = Judge()
    by = author(campaign_id="camp_one")
    judged(judge, [by.observation({"seen": 1}), by.queue_update({"waiting": 1})])
    judge.apply(by.decision("ACT"))

    (summary,) = judge.summaries()

    assert (summary.packets, summary.refusals, summary.warnings) == (2, 1, 1)
    assert summary.broken == {"FSM": 1, "E1": 1}
    assert summary.campaign_id == "camp_one"
    assert summary.state is ProtocolState.SENSE


def test_an_episode_of_which_only_refusals_are_known_has_its_campaign() -> None:
    judge = Judge()
    judge.apply(author(campaign_id="camp_one").belief())

    assert [summary.campaign_id for summary in judge.summaries()] == ["camp_one"]


def test_open_things_are_owed_and_a_closed_episode_owes_nothing() -> None:
    judge = Judge()
    by = author()
    judged(judge, [*acting(by), by.token(["tool"], uses=2), by.directive("tool", safety="WRITE", token=by_token(by))])

    (summary,) = judge.summaries()

    assert {owed.kind for owed in summary.obligations} == {ObligationKind.TASK, ObligationKind.TOKEN}
    judge = Judge()
    closed(judge)
    assert [summary.obligations for summary in judge.summaries()] == [()]


def by_token(by: Author) -> str:
    """The id of the token that was issued last."""
    return f"token_{by.correlation_id.removeprefix('corr_')}_{4}"


def test_no_more_episodes_are_open_than_the_limit_says_and_none_is_dropped() -> None:
    judge = Judge(limits=Limits(open_episodes=1))
    by = author()
    judge.apply(by.observation({"seen": 1}))

    refused = judge.apply(author("corr_b").observation({"seen": 1}))

    assert refused.rules == ("LIMIT-1",)
    assert judge.apply(by.belief()).accepted


def test_a_closed_episode_makes_room() -> None:
    judge = Judge(limits=Limits(open_episodes=1))
    closed(judge, "corr_a")

    assert judge.apply(author("corr_b").observation({"seen": 1})).accepted


def test_the_oldest_summaries_are_forgotten() -> None:
    judge = Judge(limits=Limits(closed_episodes=2))
    for name in ("corr_a", "corr_b", "corr_c"):
        closed(judge, name)
    judge.apply(author("corr_x").belief())
    judge.apply(author("corr_y").belief())
    judge.apply(author("corr_z").belief())

    assert [summary.correlation_id for summary in judge.summaries()] == ["corr_b", "corr_c", "corr_y", "corr_z"]


@pytest.mark.parametrize("limits", [{"packets": 0}, {"closed_episodes": -1}, {"tokens": True}, {"open_tasks": 1.5}])
def test_a_limit_that_limits_nothing_is_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="is a limit"):
        Limits(**limits)


@pytest.mark.parametrize(
    "settings",
    [{"profile": "severe"}, {"clock": "sun"}, {"initial_beliefs": "no"}, {"on_overrun": ""}, {"layer_rules": "off"}],
)
def test_a_setting_that_does_not_exist_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Settings(**settings)


def test_an_episode_at_its_limit_takes_records_and_emergencies() -> None:
    judge = Judge(limits=Limits(packets=1))
    by = author()
    judge.apply(by.observation({"seen": 1}))

    refused = judge.apply(by.belief())
    halted = judge.apply(by.alert("CRITICAL"))

    assert refused.rules == ("LIMIT-2",)
    assert halted.accepted
    assert "LIMIT-2" in [warning.rule for warning in halted.warnings]
    assert judge.apply(by.record("close", by="operator")).accepted


def test_no_layer_rule_and_no_house_rule_holds_up_an_emergency() -> None:
    rules = load_rules("CALM: never IntegrityAlertPacket after ObservationPacket")
    judge = Judge(Settings(layer_rules="error"), rules=rules)  # type: ignore[arg-type]  # by its word
    by = author()
    judge.apply(by.observation({"seen": 1}))

    verdict = judge.apply(by.alert("CRITICAL", layer=3, revokes=["token_x"]))

    assert verdict.accepted
    assert verdict.state is ProtocolState.SAFEMODE
    assert {warning.rule for warning in verdict.warnings} == {"LAYER-1", "CALM"}


def test_a_name_that_is_taken_holds_up_even_an_emergency() -> None:
    judge = Judge()
    by = author()
    seen = by.observation({"seen": 1})
    judge.apply(seen)

    assert judge.apply(by.alert("CRITICAL", packet_id=seen.header.packet_id)).rules == ("ID-1",)


def test_who_has_spent_too_much_is_given_no_task() -> None:
    judge = Judge()
    by = author()
    judged(judge, acting(by))
    asked = by.directive("tool")
    judged(judge, [asked, by.result(asked, cost=ExecutionMetadata(tokens_used=500)), by.belief()])
    judged(judge, [by.decision("VERIFY_FIRST", budgets=spending(10)), by.plan()])

    verdict = judge.apply(by.directive("tool"))

    assert verdict.rules == ("INV-005",)
    assert "500 tokens of 10" in verdict.reason


def test_a_judge_without_a_clock_cannot_be_asked_for_one() -> None:
    with pytest.raises(ValidationError, match="needs a clock"):
        Judge(Settings(clock="wall"))  # type: ignore[arg-type]  # by its word

    verdict = Judge().open("corr_a", at=NOW, settings=Settings(clock="wall"))  # type: ignore[arg-type]

    assert verdict.rules == ("RECORD-1",)


def test_under_a_wall_clock_it_is_what_the_caller_says_that_counts() -> None:
    times = iter([NOW + YEAR, NOW + YEAR, NOW + YEAR, NOW + YEAR, NOW + 3 * YEAR])
    judge = Judge(Settings(clock="wall"), now=lambda: next(times))  # type: ignore[arg-type]
    by = author()
    judged(judge, acting(by))

    issued = judge.apply(by.token(["tool"], expiry=NOW + 2 * YEAR))
    written = judge.apply(by.directive("tool", safety="WRITE", token=by_token(by)))

    assert issued.accepted
    assert issued.warnings == ()
    assert "E4" in written.rules


def test_the_time_of_an_opening_does_not_set_a_wall_clock() -> None:
    judge = Judge(now=lambda: NOW)

    verdict = judge.open("corr_a", at=NOW + YEAR, settings=Settings(clock="wall"))  # type: ignore[arg-type]

    assert verdict.after is not None
    assert verdict.after.clock == NOW


def test_a_snapshot_that_needs_a_clock_is_not_restored_without_one() -> None:
    judge = Judge(now=lambda: NOW)
    judge.open("corr_a", at=NOW, settings=Settings(clock="wall"))  # type: ignore[arg-type]

    with pytest.raises(ValidationError, match="needs a clock"):
        Judge.restore(judge.snapshot())

    assert Judge.restore(judge.snapshot(), now=lambda: NOW).snapshot() == judge.snapshot()


def test_what_the_api_does_stands_in_its_lines() -> None:
    judge = Judge()
    by = author()
    lines = [judge.open("corr_a", at=NOW, settings=Settings(initial_beliefs=True)).line]
    for packet in (by.observation({"seen": 1}), by.decision("ESCALATE"), by.escalation()):
        lines.append(packet.line())
        assert judge.apply(packet).accepted
    at = by.now
    lines += [
        judge.answer("corr_a", at=at, data={"said": "go on"}).line,
        judge.approve("corr_a", at=at, tool_call_budget=3).line,
        judge.halt("corr_a", at=at, reason="enough").line,
        judge.close("corr_a", at=at, by="operator").line,
    ]

    again = Judge()
    verdicts = list(again.stream(lines))

    assert [verdict.accepted for verdict in verdicts] == [True] * len(lines)
    assert list(again.summaries()) == list(judge.summaries())
    assert again.outcome("corr_a") is Outcome.CONFORMING


@pytest.mark.parametrize(
    "mistake",
    [
        lambda judge: judge.open("bad id!", at=NOW),
        lambda judge: judge.close("corr_a", at=NOW.replace(tzinfo=None)),
        lambda judge: judge.close("corr_a", at=NOW, by="nobody"),
        lambda judge: judge.approve("corr_a", at=NOW, tool_call_budget=-1),
        lambda judge: judge.answer("corr_a", at=NOW, data={"x": float("nan")}),
        lambda judge: judge.answer("corr_a", at=NOW, data={"x": object()}),
    ],
    ids=["name", "time", "speaker", "number", "nan", "object"],
)
def test_a_record_that_could_not_be_read_back_is_the_callers_mistake(mistake: Any) -> None:
    judge = Judge()
    judge.apply(author().observation({"seen": 1}))
    before = judge.snapshot()

    with pytest.raises(ValidationError):
        mistake(judge)

    assert judge.snapshot() == before


@pytest.mark.parametrize("damaged", [b"", b"{}", b"\xff", b"[" * 100_000, b'{"type":"proctor judge 1"}'])
def test_what_is_no_snapshot_is_refused(damaged: bytes) -> None:
    with pytest.raises(ValidationError, match="no snapshot"):
        Judge.restore(damaged)


def test_a_snapshot_belongs_to_its_rules() -> None:
    rules = load_rules("ONE: ObservationPacket before BeliefUpdatePacket")
    judge = Judge(rules=rules)

    with pytest.raises(ValidationError, match="other rules"):
        Judge.restore(judge.snapshot())

    assert Judge.restore(judge.snapshot(), rules=rules).snapshot() == judge.snapshot()


def test_open_closed_and_refused_episodes_survive_a_snapshot() -> None:
    judge = Judge()
    closed(judge, "corr_closed")
    judge.apply(author("corr_refused").belief())
    by = author("corr_open")
    judged(judge, acting(by))

    again = Judge.restore(judge.snapshot())

    assert list(again.summaries()) == list(judge.summaries())
    assert again.apply(author("corr_closed").observation({"seen": 1})).rules == ("EPISODE_CLOSED",)
    assert again.apply(by.directive("tool")).accepted


def test_a_packet_whose_content_was_refused_needs_no_way() -> None:
    judge = Judge()
    by = author()
    judged(judge, [by.observation({"seen": 1}), by.belief()])

    verdict = judge.apply(by.decision("ACT", constraints=UNCHECKED))

    assert verdict.rules == ("INV-006",)
    assert verdict.way == ()


def test_a_line_after_the_close_is_told_under_rules_of_ones_own_as_well() -> None:
    judge = Judge(rules=load_rules("X1: ObservationPacket leads to BeliefUpdatePacket within 3"))
    judge.open("corr_a", at=NOW)
    judge.halt("corr_a", at=NOW)
    assert judge.close("corr_a", at=NOW, by="operator").accepted

    late = judge.approve("corr_a", at=NOW)

    assert (late.rules, late.obligations) == (("EPISODE_CLOSED",), ())
    assert list(explain_verdict(late))
