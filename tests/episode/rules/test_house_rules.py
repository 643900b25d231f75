"""Users' own rules: what a line may say, what each form refuses, and a naive model that looks at the whole history."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.episode.packets.enums import PacketKind
from proctor.episode.rules.house_rules import (
    LABELS,
    Form,
    HouseRule,
    find_violations,
    initial_marks,
    load_rules,
    next_marks,
    open_promises,
)
from proctor.episode.transition_table import CLOSES, EVENTS, RECORDS, SYNTHETIC, Event
from proctor.errors import ValidationError

PACKETS = [event for events in EVENTS.values() for event in events]
EVERYTHING = [*PACKETS, *RECORDS, *SYNTHETIC]


def judged(text: str, events: Sequence[Event]) -> list[tuple[str, ...]]:
    """Return the ids that each event breaks; one that breaks an error is refused, the others are accepted."""
    rules = load_rules(text)
    marks = initial_marks(rules)
    told = []
    for event in events:
        said = find_violations(rules, marks, event)
        told.append(tuple(rule.id for rule, _ in said))
        if not any(rule.level == "error" for rule, _ in said):
            marks = next_marks(rules, marks, event)
    return told


def test_every_form_is_read_from_its_line() -> None:
    text = """
        # what we want
        H-1: BeliefUpdatePacket before DecisionPacket(ACT)   # the model comes first
        no.writes [warning]: never TaskDirectivePacket(WRITE) after IntegrityAlertPacket
        H_3  [warning]:   TaskResultPacket  leads \t to  ObservationPacket(user_input) within 12
    """

    first, second, third = load_rules(text)

    assert first == HouseRule(
        id="H-1",
        level="error",
        form=Form.BEFORE,
        first=frozenset({Event.BELIEF}),
        second=frozenset({Event.ACT}),
        within=None,
        text="H-1: BeliefUpdatePacket before DecisionPacket(ACT)",
    )
    assert (second.id, second.level, second.form) == ("no.writes", "warning", Form.NEVER)
    assert second.first == {Event.WRITE}
    assert second.second == {Event.ALERT, Event.CRITICAL, Event.CLEAR}
    assert (third.id, third.level, third.form, third.within) == ("H_3", "warning", Form.LEADS, 12)
    assert third.first == {Event.RESULT}
    assert third.second == {Event.USER_INPUT}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("words", ["leads to", "within", "leads to x within", "before", "never", "after"])
@pytest.mark.parametrize("between", [" ", " " * 200])
def test_a_line_of_any_length_is_read_in_the_time_of_its_length(words: str, between: str) -> None:
    line = f"X: a{between}" + f"{words}{between}" * 500 + "x y"

    with pytest.raises(ValidationError, match="line 1"):
        load_rules(line)


def test_a_file_without_rules_has_none() -> None:
    assert load_rules("") == ()
    assert load_rules("\n# nothing yet\r\n   \n") == ()


def test_lines_may_end_as_on_other_systems() -> None:
    (rule,) = load_rules("A: QueueUpdatePacket before EscalationPacket\r\n")

    assert rule.second == {Event.ESCALATION}


@pytest.mark.parametrize("kind", PacketKind)
def test_a_bare_name_is_everything_that_the_packet_can_be(kind: PacketKind) -> None:
    (rule,) = load_rules(f"A: {kind} before close")

    assert rule.first == set(EVENTS[kind])
    assert rule.second == set(CLOSES)


@pytest.mark.parametrize("event", [event for event in (*PACKETS, *RECORDS) if event is not Event.TOKEN])
def test_an_event_is_named_by_its_own_value(event: Event) -> None:
    assert event in LABELS[str(event)]


def test_an_issued_token_and_a_revoked_one_can_be_told_apart() -> None:
    assert LABELS["ToolAuthorizationToken"] == {Event.TOKEN, Event.REVOCATION}
    assert LABELS["ToolAuthorizationToken(issued)"] == {Event.TOKEN}
    assert LABELS["ToolAuthorizationToken(revoked)"] == {Event.REVOCATION}


@pytest.mark.parametrize("event", SYNTHETIC)
def test_what_the_machine_makes_itself_has_no_label(event: Event) -> None:
    assert not any(event in events for events in LABELS.values())


@pytest.mark.parametrize(
    ("line", "found", "expected"),
    [
        ("BeliefUpdatePacket before DecisionPacket", "BeliefUpdatePacket before DecisionPacket", "ID: A before B"),
        (": QueueUpdatePacket before close", "''", "a letter first"),
        ("1A: QueueUpdatePacket before close", "'1A'", "a letter first"),
        ("two words here: QueueUpdatePacket before close", "two words here", "a letter first"),
        ("A [fatal]: QueueUpdatePacket before close", "'fatal'", "[warning]"),
        ("A [error]: QueueUpdatePacket before close", "'error'", "nothing for an error"),
        ("A warning: QueueUpdatePacket before close", "'A warning'", "`[warning]` after it"),
        ("A[warning]: QueueUpdatePacket before close", "'A[warning]'", "a letter first"),
        ("A: QueueUpdatePacket", "QueueUpdatePacket", "ID: A before B"),
        ("A: never QueueUpdatePacket", "never QueueUpdatePacket", "ID: never A after B"),
        ("A: never QueueUpdatePacket before close", "never QueueUpdatePacket", "one of"),
        ("A: QueueUpdatePacket leads to close", "QueueUpdatePacket leads to close", "within N"),
        ("A: QueueUpdatePacket leads to close within 0", "'0'", "from 1"),
        ("A: QueueUpdatePacket leads to close within 3 packets", "'3 packets'", "from 1"),
        ("A: leads to close within 3", "leads to close within 3", "ID: A leads to B within N"),
        ("A: never after close", "never after close", "ID: never A after B"),
        ("A: QueueUpdatePacket leads to close within -3", "'-3'", "from 1"),
        ("A: QueueUpdatePacket leads to close within three", "'three'", "from 1"),
        ("A: QueueUpdatePacket leads to close within ٣", "'٣'", "from 1"),
        ("A: QueueUpdatePacket leads to close within 10000000000", "'10000000000'", "999999999"),
        ("A: Decision before close", "'Decision'", "DecisionPacket"),
        ("A: DecisionPacket(act) before close", "'DecisionPacket(act)'", "DecisionPacket(ACT)"),
        ("A: budget overrun: safe mode before close", "budget overrun: safe mode", "one of"),
        ("A: QueueUpdatePacket before EscalationPacket before close", "EscalationPacket before close", "one of"),
        ("E1: QueueUpdatePacket before close", "'E1'", "another id"),
        ("TAKEN: QueueUpdatePacket before close", "'TAKEN'", "an id of its own"),
    ],
)
def test_a_mistake_names_its_line_and_what_was_expected(line: str, found: str, expected: str) -> None:
    with pytest.raises(ValidationError) as refused:
        load_rules(f"# first\nTAKEN: EscalationPacket before close\n\n{line}\n")

    message = str(refused.value)
    assert "line 4" in message
    assert found in message
    assert expected in message


BUILT_IN = (
    *("JSON", "SCHEMA", "FSM", "EPISODE_CLOSED", "E1", "e7", "S4", "S12", "INV-001", "INV-999", "ID-1", "TIME-1"),
    *("QUEUE-1", "SAFETY-1", "LAYER-2", "LIMIT-1", "RECORD-1", "GOV-3", "POLICY-1", "ENDED", "fsm"),
)


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_ids_of_built_in_rules_are_not_given_away(name: str) -> None:
    with pytest.raises(ValidationError, match="built-in"):
        load_rules(f"{name}: QueueUpdatePacket before close")


@pytest.mark.parametrize("name", ["E", "S", "EX1", "MY-E1", "FSM-2", "IDENTITY-1", "S4b", "house.INV-1"])
def test_other_ids_are_free(name: str) -> None:
    assert load_rules(f"{name}: QueueUpdatePacket before close")[0].id == name


# What a rule says to one event after another: a dot, or an X where it is broken.
COURSES = {
    "before refuses what comes too early and nothing else": (
        "BeliefUpdatePacket before DecisionPacket(ACT)",
        "ACT DEFER CLOSE BELIEF ACT ACT",
        "X.....",
    ),
    "an event does not come before itself": ("DecisionPacket before DecisionPacket(ACT)", "ACT DEFER ACT", "X.."),
    "never refuses from the first on": (
        "never TaskDirectivePacket(WRITE) after IntegrityAlertPacket",
        "WRITE READ ALERT READ WRITE CLEAR WRITE",
        "....X.X",
    ),
    "never with one event on both sides allows it once": (
        "never EscalationPacket after EscalationPacket",
        "ESCALATION ESCALATION ESCALATION",
        ".XX",
    ),
    "a promise refuses the last packet that could have kept it": (
        "TaskResultPacket leads to BeliefUpdatePacket within 2",
        "RESULT READ READ READ BELIEF READ READ",
        "..XX...",
    ),
    "a promise within one wants the very next packet": (
        "TaskResultPacket leads to BeliefUpdatePacket within 1",
        "RESULT READ BELIEF",
        ".X.",
    ),
    "a promise is not shortened by records or by the machine": (
        "TaskResultPacket leads to BeliefUpdatePacket within 1",
        "RESULT ANSWER APPROVAL HALT OVERRUN_HALT OVERRUN_ESCALATE BELIEF",
        ".......",
    ),
    "an open promise refuses a close": (
        "TaskResultPacket leads to BeliefUpdatePacket within 9",
        "RESULT CLOSE OPERATOR_CLOSE BELIEF CLOSE OPERATOR_CLOSE",
        ".XX...",
    ),
    "a close may be what was promised": ("TaskResultPacket leads to close within 2", "RESULT BELIEF CLOSE", "..."),
    "the earliest of several promises counts and one packet keeps them all": (
        "TaskResultPacket leads to BeliefUpdatePacket within 3",
        "RESULT READ RESULT READ BELIEF READ READ READ READ",
        "...X.....",
    ),
    "a packet that keeps a promise can make the next": (
        "DecisionPacket leads to DecisionPacket(ACT) within 1",
        "ACT ACT CLOSE",
        "..X",
    ),
}


@pytest.mark.parametrize(("rule", "events", "told"), COURSES.values(), ids=COURSES)
def test_a_rule_says_to_each_event_whether_it_is_broken(rule: str, events: str, told: str) -> None:
    found = judged(f"A: {rule}", [Event[name] for name in events.split()])

    assert ["X" if broken else "." for broken in found] == list(told)


@pytest.mark.parametrize(
    ("rule", "events", "told"),
    [
        ("BeliefUpdatePacket before DecisionPacket", "ACT ACT BELIEF ACT", "XX.."),
        # A promise that only warns is told once and dropped.
        ("TaskResultPacket leads to BeliefUpdatePacket within 2", "RESULT READ READ READ CLOSE", "..X.."),
    ],
)
def test_a_rule_of_level_warning_refuses_nothing(rule: str, events: str, told: str) -> None:
    found = judged(f"A [warning]: {rule}", [Event[name] for name in events.split()])

    assert ["X" if broken else "." for broken in found] == list(told)


def test_reasons_are_sentences_that_name_both_sides() -> None:
    rules = load_rules(
        "A: BeliefUpdatePacket before DecisionPacket(ACT)\n"
        "B: never DecisionPacket(ACT) after IntegrityAlertPacket\n"
        "C: IntegrityAlertPacket leads to EscalationPacket within 1\n"
    )
    marks = next_marks(rules, initial_marks(rules), Event.ALERT)

    assert [(rule.id, reason) for rule, reason in find_violations(rules, marks, Event.ACT)] == [
        ("A", "DecisionPacket(ACT) comes before any BeliefUpdatePacket"),
        ("B", "DecisionPacket(ACT) comes after IntegrityAlertPacket"),
        (
            "C",
            "DecisionPacket(ACT) comes where EscalationPacket, to which IntegrityAlertPacket leads, is due at the latest",
        ),
    ]
    assert [reason for _, reason in find_violations(rules, marks, Event.CLOSE)] == [
        "the episode would close before EscalationPacket, to which IntegrityAlertPacket leads"
    ]


def test_open_promises_are_obligations() -> None:
    rules = load_rules("A: QueueUpdatePacket before close\nB: TaskResultPacket leads to BeliefUpdatePacket within 2")
    opened = next_marks(rules, initial_marks(rules), Event.RESULT)
    last = next_marks(rules, opened, Event.READ)

    assert open_promises(rules, next_marks(rules, initial_marks(rules), Event.QUEUE)) == ()
    assert open_promises(rules, opened) == (
        (rules[1], "BeliefUpdatePacket within the next 2 packets, since TaskResultPacket leads to it"),
    )
    assert open_promises(rules, last) == (
        (rules[1], "BeliefUpdatePacket within the next packet, since TaskResultPacket leads to it"),
    )


def test_without_rules_nothing_is_marked_and_nothing_is_said() -> None:
    assert find_violations((), (), Event.ACT) == ()
    assert next_marks((), (), Event.ACT) == ()
    assert open_promises((), ()) == ()


class NaiveRule:
    """A rule that knows no marks: it looks at everything that was accepted, every time."""

    def __init__(self, rule: HouseRule) -> None:
        self.rule = rule

    def breaks(self, history: Sequence[Event], event: Event) -> bool:
        rule = self.rule
        if rule.form is Form.BEFORE:
            return event in rule.second and not any(past in rule.first for past in history)
        if rule.form is Form.NEVER:
            return event in rule.first and any(past in rule.second for past in history)
        due = self.due(history)
        if due is None or event in rule.second:
            return False
        return event in CLOSES or (event in PACKETS and packets_in(history) + 1 == due)

    def due(self, history: Sequence[Event]) -> int | None:
        """Return the number of the packet that must be a B at the latest, counted from the episode's first."""
        promises: list[int] = []
        for length, event in enumerate(history, start=1):
            count = packets_in(history[:length])
            if event in self.rule.second or count in promises:
                promises = []
            if event in self.rule.first:
                promises.append(count + (self.rule.within or 0))
        return min(promises, default=None)


def packets_in(history: Sequence[Event]) -> int:
    return sum(event in PACKETS for event in history)


def text_of(rule_id: str, level: str, form: Form, first: str, second: str, within: int) -> str:
    bodies = {
        Form.BEFORE: f"{first} before {second}",
        Form.NEVER: f"never {first} after {second}",
        Form.LEADS: f"{first} leads to {second} within {within}",
    }
    return f"{rule_id}{level}: {bodies[form]}"


LINES = st.lists(
    st.builds(
        text_of,
        st.text("ABCXYZ", min_size=1, max_size=3),
        st.sampled_from(["", " [warning]"]),
        st.sampled_from(Form),
        st.sampled_from(sorted(LABELS)),
        st.sampled_from(sorted(LABELS)),
        st.integers(1, 4),
    ),
    max_size=5,
    unique_by=lambda line: line.partition(":")[0].split()[0],
)
# Few sorts of events, so that promises are made, kept and broken often.
HISTORIES = st.lists(st.sampled_from(EVERYTHING), min_size=1, max_size=4).flatmap(
    lambda few: st.lists(st.sampled_from(few), max_size=20)
)


@given(lines=LINES, events=HISTORIES)
def test_marks_decide_what_the_whole_history_would(lines: list[str], events: list[Event]) -> None:
    rules = load_rules("\n".join(lines))
    naive = [NaiveRule(rule) for rule in rules]
    marks, history = initial_marks(rules), list[Event]()

    for event in events:
        said = find_violations(rules, marks, event)
        expected = [each.rule for each in naive if each.breaks(history, event)]
        assert [rule for rule, _ in said] == expected
        if any(rule.level == "error" for rule in expected):
            continue
        marks = next_marks(rules, marks, event)
        history.append(event)
        promises = [each.rule for each in naive if each.rule.form is Form.LEADS and each.due(history) is not None]
        assert [rule for rule, _ in open_promises(rules, marks)] == promises


@given(lines=LINES)
def test_a_rule_is_read_back_from_its_own_text(lines: list[str]) -> None:
    rules = load_rules("\n".join(lines))

    assert load_rules("\n".join(rule.text for rule in rules)) == rules
    assert [rule.text for rule in rules] == lines


@given(st.text(max_size=60))
def test_no_text_is_taken_for_a_rule_by_chance(text: str) -> None:
    text = text.replace("#", "").strip() or "x"

    with pytest.raises(ValidationError, match="line 1"):
        load_rules(text)
