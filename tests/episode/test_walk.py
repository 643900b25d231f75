"""The exhaustive walk: every abstract state, every event, every value of the guards; machine and table agree everywhere.

A packet here says just what it must, so that only the table and its guards can refuse it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import product
from typing import Any

from msgspec.structs import replace

from proctor.episode import Author, Settings
from proctor.episode.episode_state import Amounts, EpisodeState, GoverningDecision, IssuedToken, OpenTask, Verification
from proctor.episode.legal_moves import GUARD_CHECKS, event_label
from proctor.episode.machine import Machine
from proctor.episode.packets.enums import DecisionOutcome, OperationType, RecordSource
from proctor.episode.packets.fields import Record
from proctor.episode.packets.reader import AnyPacket
from proctor.episode.rules.catalogue import CATALOGUE
from proctor.episode.settings import Limits, Profile
from proctor.episode.transition_table import (
    CLOSES,
    PACKETS,
    RECORDS,
    STATES,
    Event,
    Guard,
    Position,
    ProtocolState,
    TransitionRow,
    rows_for_options,
)
from proctor.episode.verdicts import JudgingContext, Verdict

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NEVER = NOW + timedelta(days=1)
PLENTY = Amounts(1_000, 1_000, 1_000_000.0)
SETTINGS = tuple(
    Settings(profile=profile, initial_beliefs=beliefs) for profile, beliefs in product(Profile, (False, True))
)
# The two that differ in everything, for the walks that take longer.
OPPOSITES = (SETTINGS[0], SETTINGS[-1])


def _loops(position: Position) -> Iterator[Verification | None]:
    """Every verification that guards can tell apart: all of them in S4, three elsewhere."""
    yield None
    if position is not Position.VERIFY:
        yield Verification(0)
        yield Verification(0, integrated=True)
        return
    for planned, read, succeeded, observed, begun in product((False, True), repeat=5):
        yield Verification(0, planned, read, succeeded, observed, begun)


def _tasks(count: int) -> dict[str, OpenTask]:
    return {f"pkt_d_{n}": OpenTask(f"pkt_d_{n}", f"task_{n}", True, NEVER) for n in range(1, count + 1)}


def _tokens(*, live: bool | None) -> dict[str, IssuedToken]:
    if live is None:
        return {}
    return {"token_t": IssuedToken("token_t", ("tool",), (OperationType.WRITE,), NEVER, 3, 0, not live, "text")}


def episodes() -> Iterator[EpisodeState]:
    """Every abstract state: position, verification, open tasks, token, tools."""
    for position in Position:
        outcome = DecisionOutcome.VERIFY_FIRST if position is Position.VERIFY else DecisionOutcome.ACT
        for loop, tasks, live, tools in product(_loops(position), (0, 1, 2), (None, False, True), (False, True)):
            yield EpisodeState(
                "corr_walk",
                position=position,
                clock=NOW,
                packets=5,
                believed=True,
                tools_ok=tools,
                governing=GoverningDecision(outcome, PLENTY),
                loop=loop,
                tasks=_tasks(tasks),
                tokens=_tokens(live=live),
                seen={"pkt_seen": 5},
            )


@cache
def packets() -> dict[Event, AnyPacket]:
    """A packet for every event, which says just what it must."""
    author = Author("corr_walk", at=NOW)
    seen = author.observation({"seen": 1}, packet_id="pkt_seen", previous=None)
    said: dict[str, Any] = {"previous": None, "at": NOW}
    write: dict[str, Any] = {"tool_id": "tool", "safety": "WRITE", "token": "token_t"}
    made: dict[Event, AnyPacket] = {
        Event.OBSERVATION: author.observation({"seen": 2}, **said),
        Event.USER_INPUT: author.observation({"said": "yes"}, type="user_input", **said),
        Event.BELIEF: author.belief({"known": 1}, evidence=[seen], **said),
        **{Event(f"DecisionPacket({outcome})"): author.decision(outcome, **said) for outcome in DecisionOutcome},
        Event.PLAN: author.plan(**said),
        Event.TOKEN: author.token(["tool"], **said),
        Event.READ: author.directive("tool", **said),
        Event.WRITE: author.directive(**write, **said),
        Event.RESULT: author.result(author.directive("tool", packet_id="pkt_d_1", task_id="task_1", **said), **said),
        Event.ESCALATION: author.escalation(**said),
        Event.ALERT: author.alert("INFO", **said),
        Event.CRITICAL: author.alert("CRITICAL", **said),
        Event.CLEAR: author.clear(**said),
        Event.QUEUE: author.queue_update({"waiting": 1}, **said),
    }
    issued = author.token(["tool"], token_id="token_t", **said)
    made[Event.REVOCATION] = author.revocation(issued, **said)
    return made


@cache
def records() -> dict[Event, Record]:
    """A record for every event that is one."""
    author = Author("corr_walk", at=NOW)
    return {
        Event.CLOSE: author.record("close", at=NOW),
        Event.OPERATOR_CLOSE: author.record("close", at=NOW, by=RecordSource.OPERATOR),
        Event.ANSWER: author.record("user_input", at=NOW),
        Event.APPROVAL: author.record("approval", at=NOW),
        Event.HALT: author.record("safemode", at=NOW),
    }


def answered(machine: Machine, episode: EpisodeState, event: Event) -> Verdict:
    """The machine's verdict on the event."""
    if event in records():
        return machine.judge_record(episode, records()[event], known=True)
    return machine.judge(episode, packets()[event])


def holds(guard: Guard, episode: EpisodeState, settings: Settings) -> bool:
    return GUARD_CHECKS[guard](episode, settings.profile is Profile.STRICT)


def ends(row: TransitionRow, episode: EpisodeState) -> ProtocolState:
    """The state that a row leads to; the set shows S7, since no result failed."""
    return STATES[row.target][0]


def test_machine_and_table_agree_in_every_state_on_every_event_under_every_value_of_the_guards() -> None:
    counts: Counter[str] = Counter()
    for settings in OPPOSITES:
        machine = Machine(JudgingContext(settings), Limits())
        rows = rows_for_options(settings.options)
        for episode in episodes():
            for event in (*PACKETS, *RECORDS):
                row = rows[episode.position].get(event)
                legal = row is not None and all(holds(guard, episode, settings) for guard in row.guards)

                verdict = answered(machine, episode, event)

                assert verdict.accepted is legal, (settings, episode, event, verdict.findings)
                assert ("FSM" in verdict.rules) is (row is None and episode.position is not Position.CLOSED)
                if row is not None and legal:
                    start = STATES[row.source][0] if row.start is None else row.start
                    assert verdict.path == (start, *row.through, ends(row, episode))
                    assert verdict.after is not None
                    assert verdict.after.position is row.target
                else:
                    assert verdict.after is episode
                counts[
                    "accepted" if legal else "refused by a guard" if row is not None else "refused by the table"
                ] += 1
        counts["abstract states"] = sum(1 for _ in episodes())
    print(dict(counts))

    assert counts["abstract states"] == (16 * 3 + 33) * 18
    assert min(counts.values()) > 1_000


def test_what_is_said_to_be_legal_next_is_what_the_machine_takes() -> None:
    for settings in OPPOSITES:
        machine = Machine(JudgingContext(settings), Limits())
        for episode in episodes():
            taken = {event for event in PACKETS if answered(machine, episode, event).accepted}
            said = answered(machine, episode, Event.CLOSE if episode.position is not Position.CLOSED else Event.ACT)
            if said.accepted:
                continue

            told = set(said.legal_next)

            for event in PACKETS:
                kind = "" if event is Event.REVOCATION else event.partition("(")[0]
                assert (event in taken) is (event_label(event) in told or kind in told), (episode, event, told)


def test_a_rule_that_the_table_implies_is_never_broken_where_the_table_has_a_row() -> None:
    implied = [rule for rule in CATALOGUE if rule.implied]
    for settings in SETTINGS:
        rows = rows_for_options(settings.options)
        for episode in episodes():
            # A verification that is open outside of S4 was integrated.
            if episode.loop is not None and episode.position is not Position.VERIFY and not episode.loop.integrated:
                continue
            for event, row in rows[episode.position].items():
                for rule in implied:
                    judge = rule.asks(episode.position, event)
                    said = packets().get(event) or records().get(event)
                    if judge is not None and said is not None and event not in CLOSES:
                        assert judge(episode, said, NOW, settings) == (), (rule.id, row)


def test_the_shortest_way_is_legal_step_by_step_and_ends_with_what_was_attempted() -> None:
    taken = {event_label(event): event for event in PACKETS}
    ways: Counter[int] = Counter()
    for settings in OPPOSITES:
        machine = Machine(JudgingContext(settings), Limits())
        for episode in filter(_consistent, episodes()):
            for event in PACKETS:
                verdict = answered(machine, episode, event)
                if verdict.accepted:
                    assert verdict.way == ()
                    continue
                way = verdict.way
                ways[len(way)] += 1
                if not way:
                    assert episode.position is Position.CLOSED or event is Event.REVOCATION, (episode, event)
                    continue

                assert way[-1] == event_label(event)
                here = episode
                for label in way[:-1]:
                    step = machine.judge(here, packets()[taken[label]])
                    assert step.accepted, (episode, event, way, label, step.findings)
                    here = _walked(step)
                last = machine.judge(here, packets()[event])
                assert last.accepted, (episode, event, way, last.findings)
    print(dict(sorted(ways.items())))

    assert max(ways) >= 6


def _consistent(episode: EpisodeState) -> bool:
    """Whether the walk's own packets can lead on from here: one task at most, and a verification where S4 is."""
    verifying = episode.position is Position.VERIFY
    return len(episode.tasks) < 2 and episode.tools_ok and (episode.loop is not None or not verifying)


def _walked(step: Verdict) -> EpisodeState:
    """The episode after a step, in which the walk's own directive waits under the id that its result names."""
    assert step.after is not None
    after = step.after
    if step.event in (Event.READ, Event.WRITE):
        return replace(after, tasks=_tasks(1))
    if step.event is Event.TOKEN:
        return replace(after, tokens=_tokens(live=True))
    if step.event is Event.VERIFY_FIRST:
        assert after.loop is not None
        return replace(after, loop=replace(after.loop, began=0))
    return after
