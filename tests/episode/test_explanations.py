"""Every event, kind and state has words, and a refusal is told in a few of them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.episode import Author, Judge
from proctor.episode.explanations import (
    EVENT_WORDS,
    KIND_WORDS,
    SHORT,
    STATE_WORDS,
    describe_kind,
    find_way_on,
    rule_sentence,
    short_reason,
)
from proctor.episode.packets.enums import PacketKind, RecordKind
from proctor.episode.rules.catalogue import SENTENCES
from proctor.episode.rules.governance import SENTENCES as GOVERNING
from proctor.episode.rules.house_rules import load_rules
from proctor.episode.transition_table import Event, ProtocolState
from proctor.episode.verdicts import JudgingContext
from tests.cli.streams import NOON


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
