"""An explanation says what the table, the catalogue and the verdict say, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.cli.verdicts import explanation
from proctor.cli.verdicts.explanation import Remark, explain_verdict
from proctor.episode import Author, Judge, verdicts
from proctor.episode.explanations import rule_sentence, states_where_legal
from proctor.episode.rules.catalogue import SENTENCES
from proctor.episode.rules.house_rules import load_rules
from proctor.episode.rules.rule import RuleFinding
from proctor.episode.settings import Profile, Settings
from proctor.episode.transition_table import STATES, TABLE, Event, ProtocolState
from proctor.episode.verdicts import JudgingContext, Obligation, ObligationKind, Verdict
from tests.cli.streams import NOON, conforming

RULES = load_rules("OURS: BeliefUpdatePacket before DecisionPacket")
settings_of = st.builds(Settings, profile=st.sampled_from(Profile), initial_beliefs=st.booleans())


@given(event=st.sampled_from(Event), settings=settings_of)
def test_an_event_is_legal_in_the_states_whose_rows_have_it(event: Event, settings: Settings) -> None:
    rows = [row for row in TABLE if row.event is event and (row.option is None or row.option in settings.options)]

    found = states_where_legal(event, settings)

    assert set(found) == {state for row in rows for state in ((row.start,) if row.start else STATES[row.source])}
    assert list(found) == sorted(found)


def test_a_rule_is_told_by_its_own_sentence() -> None:
    context = JudgingContext(house_rules=RULES)

    assert rule_sentence("E1", context) == SENTENCES["E1"]
    assert rule_sentence("OURS", context) == "OURS: BeliefUpdatePacket before DecisionPacket"
    assert rule_sentence("NOBODYS", context) == ""


def test_a_rule_that_is_broken_twice_says_its_sentence_once() -> None:
    found = (
        RuleFinding("SCHEMA", "/a", "this."),
        RuleFinding("SCHEMA", "/b", "that"),
        RuleFinding("NOBODYS", "", "other"),
    )
    verdict = Verdict(False, None, None, None, (), found, (), None, None)

    assert list(explain_verdict(verdict)) == [
        Remark("SCHEMA", f"this (at /a). {SENTENCES['SCHEMA']}"),
        Remark("SCHEMA", "that (at /b)"),
        Remark("NOBODYS", "other"),
    ]


def test_what_an_accepted_line_opens_another_settles() -> None:
    judge = Judge()

    remarks = [remark for packet in conforming() for remark in explain_verdict(judge.apply(packet))]

    opened = {remark.text.partition(":")[0] for remark in remarks if remark.heading == "now open"}
    settled = {remark.text.partition(":")[0] for remark in remarks if remark.heading == "settled"}
    assert opened == settled
    assert {"task task_good_5", "token token_good_10", "verification", "decision"} <= opened


def test_an_event_that_no_state_takes_is_legal_in_none() -> None:
    verdict = Judge().apply(Author("corr_a", at=NOON).decision("ACT"))

    assert verdict.event is not None
    assert ProtocolState.IDLE not in states_where_legal(verdict.event, Settings())
    assert Remark("legal in", "S2_MODEL, S3_DECIDE") in list(explain_verdict(verdict))


def test_many_obligations_are_compared_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0

    class Counted(Obligation, frozen=True):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return isinstance(other, Counted) and self.id == other.id

        def __hash__(self) -> int:
            return hash(self.id)

    def owed(*_: object) -> tuple[Obligation, ...]:
        return tuple(Counted(ObligationKind.TASK, f"task_{number}", "a result") for number in range(300))

    monkeypatch.setattr(verdicts, "list_obligations", owed)
    monkeypatch.setattr(explanation, "list_obligations", owed)
    verdict = Judge().apply(next(conforming()))

    assert [remark.heading for remark in explain_verdict(verdict)] == ["moved"]
    assert compared <= 2 * 300
