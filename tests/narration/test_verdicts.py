"""Every event, kind and state has words, a refusal is told in a few of them, and an explanation says what table and verdict say."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.episode import Author, Judge, verdicts
from proctor.episode.packets.enums import PacketKind, RecordKind
from proctor.episode.rules import RuleFinding
from proctor.episode.rules.catalogue import SENTENCES
from proctor.episode.rules.governance import SENTENCES as GOVERNING
from proctor.episode.rules.house_rules import load_rules
from proctor.episode.settings import Profile, Settings
from proctor.episode.transition_table import STATES, TABLE, Event, ProtocolState
from proctor.episode.verdicts import JudgingContext, Obligation, ObligationKind, Verdict
from proctor.narration import verdicts as narration
from proctor.narration.verdicts import (
    EVENT_WORDS,
    KIND_WORDS,
    SHORT,
    STATE_WORDS,
    Remark,
    describe_kind,
    explain_verdict,
    find_way_on,
    rule_sentence,
    short_reason,
    states_where_legal,
)
from tests.cli.streams import NOON, conforming


def test_everything_that_can_be_said_has_words() -> None:
    assert set(EVENT_WORDS) == set(Event)
    assert set(STATE_WORDS) == set(ProtocolState)
    assert set(KIND_WORDS) == {*PacketKind, *RecordKind}
    assert all(words.startswith(("a ", "an ", "the ")) for words in (*EVENT_WORDS.values(), *KIND_WORDS.values()))
    assert set(SHORT) <= set(SENTENCES)


@pytest.mark.parametrize(
    ("kind", "words"),
    [("DecisionPacket", "a decision"), ("", "a line that nobody can read"), ("<b>", "a line of the kind <b>")],
    ids=["known", "none", "unknown"],
)
def test_a_kind_is_told_in_words_or_by_its_name(kind: str, words: str) -> None:
    assert describe_kind(kind) == words


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (["E4"], "no live token covers it"),
        (["FSM", "E2", "E4", "E7"], "no decision to act stands behind it and no live token covers it"),
        (["FSM", "S4", "E3"], "the verification is not complete"),
        (["FSM"], "it is early"),
        (["OURS", "E4"], "it is early"),
        ([], "it is early"),
    ],
    ids=["one", "no row", "twice the same", "only no row", "of the house", "none"],
)
def test_a_refusal_is_told_in_a_few_words(rules: list[str], words: str) -> None:
    assert short_reason(rules, "it is early; it is legal later.") == words


@given(
    rules=st.lists(st.sampled_from(sorted(SENTENCES)) | st.text(max_size=5), max_size=4), reason=st.text(max_size=20)
)
def test_the_few_words_are_always_ours_or_the_beginning_of_the_reason(rules: list[str], reason: str) -> None:
    found = short_reason(rules, reason)

    assert reason.startswith(found) or set(found.split(" and ")) <= set(SHORT.values())


def test_a_sentence_is_found_wherever_it_stands() -> None:
    context = JudgingContext(house_rules=load_rules("OURS: BeliefUpdatePacket before DecisionPacket"))

    assert rule_sentence("E4", context) == SENTENCES["E4"]
    assert rule_sentence("GOV-1", context) == GOVERNING["GOV-1"]
    assert rule_sentence("OURS", context) == "OURS: BeliefUpdatePacket before DecisionPacket"
    assert rule_sentence("NOBODYS", context) == ""


def test_the_way_past_a_token_that_opens_nothing_leads_to_another_token() -> None:
    author, judge = Author("corr_a", at=NOON, step=timedelta(seconds=1)), Judge()
    way = (author.observation({"seen": 1}), author.belief({"x": 1}), author.decision("ACT"), author.token("move"))
    for packet in way:
        judge.apply(packet)

    verdict = judge.apply(author.directive("move", safety="WRITE", token="token_unknown"))

    assert not verdict.accepted
    assert "E4" in verdict.rules
    assert verdict.way == ()
    assert find_way_on(verdict)[-2:] == (Event.TOKEN, Event.WRITE)


settings_of = st.builds(Settings, profile=st.sampled_from(Profile), initial_beliefs=st.booleans())


@given(event=st.sampled_from(Event), settings=settings_of)
def test_an_event_is_legal_in_the_states_whose_rows_have_it(event: Event, settings: Settings) -> None:
    rows = [row for row in TABLE if row.event is event and (row.option is None or row.option in settings.options)]

    found = states_where_legal(event, settings)

    assert set(found) == {state for row in rows for state in ((row.start,) if row.start else STATES[row.source])}
    assert list(found) == sorted(found)


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
    monkeypatch.setattr(narration, "list_obligations", owed)
    verdict = Judge().apply(next(conforming()))

    assert [remark.heading for remark in explain_verdict(verdict)] == ["moved"]
    assert compared <= 2 * 300
