"""The machine itself: users' own rules, limits, time, and tasks that are late, each held against single packets."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from proctor.episode import Judge, Settings
from proctor.episode.author import Author
from proctor.episode.episode_state import new_episode
from proctor.episode.machine import Machine
from proctor.episode.packets.fields import Record
from proctor.episode.packets.reader import AnyPacket
from proctor.episode.packets.writer import BUDGETS
from proctor.episode.rules.house_rules import load_rules
from proctor.episode.settings import Limits
from proctor.episode.transition_table import Position
from proctor.episode.verdicts import JudgingContext
from tests.episode.scripts import START, edited
from tests.episode.stages import Stage


def staged(text: str) -> Stage:
    """Return a stage with the rules in `text`."""
    stage = Stage()
    stage.judge = Judge(rules=load_rules(text))
    return stage


def warned(stage: Stage, line: AnyPacket) -> list[str]:
    """Return the reasons of the warnings with which a line is accepted."""
    verdict = stage.judge.apply(line)
    assert verdict.accepted, verdict.reason
    return [finding.reason for finding in verdict.warnings]


def test_a_rule_of_the_user_refuses_a_packet_and_a_record() -> None:
    stage = staged("ASK: approval record before DecisionPacket(ACT)\nLAST: never close after IntegrityAlertPacket")
    stage.models()
    stage.refuses(stage.author.decision("ACT"), "S2", "ASK")
    stage.takes(stage.author.record("approval"), "S2")
    stage.takes(stage.author.alert("INFO"), "S2")
    stage.takes(stage.author.decision("DEFER"), "S3")
    stage.takes(stage.author.belief(), "S7")
    stage.refuses(stage.author.record("close"), "S7", "LAST")


def test_a_rule_of_the_user_is_named_besides_the_table() -> None:
    stage = staged("ASK: approval record before DecisionPacket(ACT)")
    stage.senses()
    stage.refuses(stage.author.decision("ACT"), "S1", "FSM", "E1", "ASK")


def test_a_rule_of_level_warning_refuses_nothing() -> None:
    stage = staged("ASK [warning]: approval record before DecisionPacket(ACT)")
    stage.models()
    stage.takes(stage.author.decision("ACT"), "S3", "ASK")


@pytest.mark.parametrize("close", ["system", "operator"])
def test_a_promise_is_an_obligation_until_it_is_kept(close: str) -> None:
    stage = staged("TELL: DecisionPacket leads to IntegrityAlertPacket within 3")
    stage.reviews()
    (owed,) = stage.verdict.obligations

    assert (owed.kind, owed.id) == ("promise", "TELL")
    assert owed.what == "IntegrityAlertPacket within the next 2 packets, since DecisionPacket leads to it"
    stage.refuses(stage.author.record("close", by=close), "S7", "TELL")
    stage.takes(stage.author.belief(), "S7")
    stage.refuses(stage.author.belief(), "S7", "TELL")
    stage.takes(stage.author.alert("INFO"), "S7")
    stage.closes(close)


def test_an_emergency_is_never_held_up_by_a_rule_of_the_user() -> None:
    text = "NO: never IntegrityAlertPacket after ObservationPacket\nNOR: never safemode record after ObservationPacket"
    stage = staged(text)
    stage.senses()
    stage.refuses(stage.author.alert("INFO"), "S1", "NO")
    stage.takes(stage.author.alert("CRITICAL"), "S9", "NO")
    stage.refuses(stage.author.clear(), "S9", "NO")
    stage.takes(stage.author.record("safemode"), "S9", "NOR")


def test_a_refused_packet_keeps_no_promise() -> None:
    stage = staged("SOON: ObservationPacket leads to DecisionPacket within 2")
    stage.senses()
    stage.refuses(stage.author.decision("ACT"), "S1", "FSM", "E1")
    stage.takes(stage.author.belief(), "S2")
    stage.refuses(stage.author.belief(), "S2", "SOON")
    stage.takes(stage.author.decision("ACT"), "S3")


def machine(limits: Limits) -> Machine:
    return Machine(JudgingContext(Settings()), limits)


@pytest.mark.parametrize("room", [1, 2])
def test_an_episode_that_holds_more_than_a_smaller_limit_takes_no_more_directives(room: int) -> None:
    stage = Stage()
    stage.executes()
    stage.takes(stage.author.directive("gauge"), "S6")
    episode = stage.verdict.after
    assert episode is not None

    assert machine(Limits(open_tasks=room)).judge(episode, stage.author.directive("gauge")).rules == ("LIMIT-2",)
    assert machine(Limits(open_tasks=3)).judge(episode, stage.author.directive("gauge")).accepted
    assert machine(Limits(open_tasks=room)).judge(episode, stage.author.observation({"level": 3})).accepted


@pytest.mark.parametrize("room", [1, 2])
def test_an_episode_that_holds_more_than_a_smaller_limit_takes_no_more_tokens(room: int) -> None:
    stage = Stage()
    token = stage.authorizes()
    stage.takes(stage.author.token("valve"), "S5")
    episode = stage.verdict.after
    assert episode is not None
    again = edited(token, {"/header/packet_id": "pkt_again"})

    assert machine(Limits(tokens=room)).judge(episode, stage.author.token("valve")).rules == ("LIMIT-2",)
    assert machine(Limits(tokens=3)).judge(episode, stage.author.token("valve")).accepted
    assert machine(Limits(tokens=room)).judge(episode, stage.author.revocation(token)).accepted
    assert Judge.restore(stage.judge.snapshot()).apply(again).accepted


def test_a_full_episode_takes_no_packet_but_an_emergency() -> None:
    stage = Stage(limits=Limits(packets=2))
    stage.models()
    stage.refuses(stage.author.belief(), "S2", "LIMIT-2")
    stage.refuses(stage.author.observation({"level": 3}), "S2", "FSM", "LIMIT-2")
    stage.takes(stage.author.alert("CRITICAL"), "S9", "LIMIT-2")
    stage.takes(stage.author.record("close", by="operator"), "S0")


def test_an_episode_with_more_packets_than_a_smaller_limit_takes_no_more() -> None:
    stage = Stage()
    stage.models()
    episode = stage.verdict.after
    assert episode is not None

    assert machine(Limits(packets=1)).judge(episode, stage.author.belief()).rules == ("LIMIT-2",)
    assert machine(Limits(packets=3)).judge(episode, stage.author.belief()).accepted


def test_a_packet_that_the_table_refuses_is_also_held_against_the_limits() -> None:
    stage = Stage(limits=Limits(open_tasks=1, tokens=1))
    stage.executes()
    stage.refuses(stage.author.token("valve"), "S6", "FSM")
    stage.refuses(stage.author.directive(None, safety="WRITE", token="token_1"), "S6", "E4", "LIMIT-2")


def test_each_task_is_warned_about_in_its_own_time_and_once() -> None:
    stage = Stage()
    stage.decides("ACT")
    for seconds in (10, 20):
        budgets = replace(BUDGETS, time_budget_seconds=seconds)
        stage.takes(stage.author.directive("gauge", budgets=budgets, timeout=seconds + 5, at=START), "S6", "TIME-1")
    first, second = stage.verdict.obligations

    def at(seconds: float) -> list[str]:
        seen = stage.author.observation({"level": 3}, at=START + timedelta(seconds=seconds))
        return [reason.split()[0] + " " + reason.split()[-1][14:19] for reason in warned(stage, seen)]

    # The clock stood at second 2 when both were given out.
    assert (first.id, second.id) == ("task_stage_4", "task_stage_5")
    assert at(12) == []
    assert at(12.5) == ["task_stage_4 00:12"]
    assert at(13) == []
    assert at(17) == []
    assert at(18) == ["task_stage_4 00:17"]
    assert at(22) == []
    assert at(23) == ["task_stage_5 00:22"]
    assert at(27) == []
    assert at(28) == ["task_stage_5 00:27"]
    assert at(29) == []


def test_a_late_result_is_warned_about_again_and_only_for_the_task_that_it_ends() -> None:
    stage = Stage()
    stage.decides("ACT")
    tasks = [stage.author.directive("gauge", task_id="task_same") for _ in range(2)]
    for task in tasks:
        stage.takes(task, "S6")
    late = stage.author.observation({"level": 3}, at=START + timedelta(hours=1))

    assert len(warned(stage, late)) == 2
    assert warned(stage, stage.author.result(tasks[1])) == [
        "task_same should have been closed by 2025-01-01T00:10:04+00:00"
    ]
    assert warned(stage, stage.author.result(tasks[0])) == [
        "task_same should have been closed by 2025-01-01T00:10:03+00:00"
    ]


def wall(second: int) -> datetime:
    return START + timedelta(days=1, seconds=second)


def test_a_clock_of_the_caller_decides_where_it_is_asked_for() -> None:
    seconds = iter([5, 3, 9])
    judge = Judge(Settings(clock="wall"), now=lambda: wall(next(seconds)))  # type: ignore[arg-type]  # its word
    author = Author("corr_1", at=START)
    clocks = []
    for packet in (author.observation({"a": 1}), author.observation({"a": 2}), author.belief()):
        after = judge.apply(packet).after
        assert after is not None
        clocks.append(after.clock)

    assert clocks == [wall(5), wall(5), wall(9)]


def test_the_clock_is_the_greatest_time_that_was_stated() -> None:
    stage = Stage()
    stage.takes(stage.author.observation({"level": 3}, at=wall(0)), "S1")
    stage.takes(stage.author.observation({"level": 3}, at=START), "S1", "TIME-1")
    after = stage.verdict.after

    assert after is not None
    assert after.clock == wall(0)


def test_a_closed_episode_takes_neither_packets_nor_records() -> None:
    author = Author("corr_1", at=START)
    closed = replace(new_episode("corr_1"), position=Position.CLOSED)
    judge = machine(Limits())
    record: Record = author.record("close")

    assert judge.judge(closed, author.alert("CRITICAL")).rules == ("EPISODE_CLOSED",)
    assert judge.judge_record(closed, record, known=True).rules == ("EPISODE_CLOSED",)


def test_an_identical_token_may_state_its_constraints_in_another_order() -> None:
    stage = Stage()
    stage.decides("ACT")
    token = stage.author.token("valve")
    where = "/payload/authorized_scope/resource_constraints"
    one, other = {"zone": "north", "hours": 2}, {"hours": 2, "zone": "north"}
    stage.takes(edited(token, {where: one}), "S5")
    again = {"/header/packet_id": "pkt_again", "/header/previous_packet_id": None}
    stage.takes(edited(token, {**again, where: other}), "S5")
    stage.refuses(edited(token, {"/header/packet_id": "pkt_third", where: {"zone": "south"}}), "S5", "S5")
