"""Pictures show what the table says and where an episode went, in text that both languages can read."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.episode.diagram import MOST_REFUSALS, Notation, draw_machine, draw_walk
from proctor.episode.rules import RuleFinding
from proctor.episode.transition_table import (
    EVENTS,
    STATES,
    TABLE,
    Event,
    Position,
    ProtocolState,
    TableOption,
    TransitionRow,
)
from proctor.episode.verdicts import SyntheticTransition, Verdict

NOON = datetime(2025, 1, 1, 12, tzinfo=UTC)
S = ProtocolState


class Drawing(NamedTuple):
    """What a reader of a picture finds: nodes, edges with their labels, and notes by the node they stand at."""

    nodes: set[str]
    edges: dict[tuple[str, str], str]
    notes: dict[str, str]
    attributes: dict[tuple[str, str], dict[str, str]]


_MERMAID_LINES = (
    ("every", re.compile(r'    state "([^"\n]+)" as (\w+)')),
    # As in Mermaid's own lexer: a colon or a semicolon ends a description, a hyphen ends an id.
    ("edge", re.compile(r"    (\[\*\]|\w+) --> (\w+)(?:: ([^:;\n]+))?")),
    ("classes", re.compile(r"    classDef \w+ [\w:#,-]+")),
    ("class", re.compile(r"    class (\w+(?:,\w+)*) \w+")),
    ("node", re.compile(r"    (\w+)")),
)


def read_mermaid(text: str) -> Drawing:
    text, found = _without_notes(text)
    first, *lines = text.splitlines()
    assert first == "stateDiagram-v2"
    drawing = Drawing(set(), {}, found, {})
    for line in lines:
        kind, match = next((kind, match) for kind, form in _MERMAID_LINES if (match := form.fullmatch(line)))
        if kind == "node":
            drawing.nodes.add(match[1])
        elif kind == "every":
            drawing.nodes.add(match[2])
        elif kind == "edge" and match[1] != "[*]":
            drawing.edges[match[1], match[2]] = match[3]
    return drawing


def _without_notes(text: str) -> tuple[str, dict[str, str]]:
    form = re.compile(r"^    note right of (\w+)\n((?:        .+\n)+)    end note\n", re.MULTILINE)
    return form.sub("", text), {match[1]: match[2].strip() for match in form.finditer(text)}


_DOT_TOKEN = re.compile(r'\s*(?:(->)|([{}\[\];,=])|"((?:[^"\\\n]|\\.)*)"|([A-Za-z_]\w*|-?\d+(?:\.\d+)?))')


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    while text[at:].strip():
        match = _DOT_TOKEN.match(text, at)
        assert match is not None, text[at : at + 40]
        # A quoted string is marked, so that its content is never taken for a sign.
        found.append(match[1] or match[2] or (f'"{match[3]}' if match[3] is not None else match[4]))
        at = match.end()
    return found


def read_dot(text: str) -> Drawing:
    """Read the part of DOT's grammar that we write; whatever else there is fails."""
    tokens = _tokens(text)
    assert tokens[:3] == ["digraph", "episode", "{"]
    assert tokens.pop() == "}"
    drawing, at = Drawing(set(), {}, {}, {}), 3
    texts: dict[str, str] = {}
    while at < len(tokens):
        name, at = tokens[at], at + 1
        target = None
        if tokens[at] == "->":
            target, at = tokens[at + 1], at + 2
        attributes, at = _attributes(tokens, at)
        assert tokens[at] == ";"
        at += 1
        label = attributes.get("label", "").lstrip('"').replace("\\l", "\n").strip()
        if target is None and name.startswith("note"):
            texts[name] = label
        elif target is None and name not in {"graph", "node", "edge", "START"}:
            drawing.nodes.add(name)
        elif target in texts:
            drawing.notes[name] = texts[target]
        elif target is not None and name != "START":
            drawing.edges[name, target] = label
            drawing.attributes[name, target] = attributes
    return drawing


def _attributes(tokens: list[str], at: int) -> tuple[dict[str, str], int]:
    found: dict[str, str] = {}
    if tokens[at] != "[":
        return found, at
    while tokens[at] != "]":
        assert tokens[at + 2] == "="
        found[tokens[at + 1]] = tokens[at + 3]
        at += 4
        assert tokens[at] in {",", "]"}
    return found, at + 1


READERS = {Notation.MERMAID: read_mermaid, Notation.DOT: read_dot}
both = pytest.mark.parametrize("notation", Notation)


def kind_of(event: Event) -> str:
    """Return the words of an event that no picture can leave out."""
    if event.name.endswith("CLOSE"):
        return "close"
    kinds = [kind.value for kind, events in EVENTS.items() if event in events]
    return kinds[0] if kinds else event.value.replace(":", ",").partition(",")[0]


def everywhere(row: TransitionRow) -> bool:
    """Return whether a row is one of those that hold in every position."""
    same = {other.source for other in TABLE if other.event is row.event}
    if not same >= set(Position) - {Position.SAFEMODE, Position.CLOSED}:
        return False
    # What clears safe mode stays where it was everywhere else.
    return row.event is not Event.CLEAR or row.source is not Position.SAFEMODE


def ends_of(row: TransitionRow) -> set[tuple[str, str]]:
    """Return between which states a row leads, micro-steps left out."""
    starts = STATES[row.source] if row.start is None else (row.start,)
    if row.source is row.target:
        return {(state, state) for state in starts}
    return {((start, *row.through)[-1], end) for start in starts for end in STATES[row.target]}


@both
def test_the_machine_has_the_ten_states_and_one_that_stands_for_all(notation: Notation) -> None:
    drawing = READERS[notation](draw_machine(notation))

    assert drawing.nodes == {*ProtocolState, "ANY"}


@both
def test_every_row_of_the_table_is_drawn_or_folded(notation: Notation) -> None:
    drawing = READERS[notation](draw_machine(notation))

    for row in TABLE:
        if not everywhere(row):
            assert all(kind_of(row.event) in drawing.edges[ends] for ends in ends_of(row)), row


@both
def test_no_edge_is_drawn_that_the_table_does_not_have(notation: Notation) -> None:
    drawing = READERS[notation](draw_machine(notation))

    rows = {ends for row in TABLE for ends in ends_of(row)}
    steps = {(state, row.through[0]) for row in TABLE if row.through for state, _ in [(STATES[row.source][-1], 0)]}
    assert {ends for ends in drawing.edges if ends[0] != "ANY"} <= rows | steps


@both
def test_what_holds_everywhere_is_one_arrow_and_one_note(notation: Notation) -> None:
    drawing = READERS[notation](draw_machine(notation))

    arrows = {ends: label for ends, label in drawing.edges.items() if "Alert" in label or "safemode" in label}
    assert set(arrows) == {("ANY", S.SAFEMODE), (S.SAFEMODE, S.REVIEW)}
    assert all(word in arrows["ANY", S.SAFEMODE] for word in ("IntegrityAlertPacket(CRITICAL)", "safemode record"))
    for word in ("IntegrityAlertPacket(notice)", "approval record", "QueueUpdatePacket (not in S9)"):
        assert word in drawing.notes["ANY"]


def test_both_notations_draw_the_same() -> None:
    mermaid, dot = read_mermaid(draw_machine()), read_dot(draw_machine(Notation.DOT))

    assert mermaid.nodes == dot.nodes
    assert mermaid.edges.keys() == dot.edges.keys()
    assert mermaid.notes.keys() == dot.notes.keys()


def test_the_declared_set_is_two_dashed_edges() -> None:
    dot = read_dot(draw_machine(Notation.DOT))

    dashed = {ends for ends, attributes in dot.attributes.items() if attributes["style"] == "dashed"}
    assert dashed == {(S.EXECUTE, S.REVIEW), (S.EXECUTE, S.MODEL)}
    assert all("{S7, S2}" in dot.edges[ends] for ends in dashed)


def test_an_edge_that_needs_an_option_is_dotted_and_says_which() -> None:
    dot = read_dot(draw_machine(Notation.DOT))

    dotted = {ends: dot.edges[ends] for ends, each in dot.attributes.items() if each["style"] == "dotted"}
    assert dotted == {
        (S.IDLE, S.IDLE): f"ToolAuthorizationToken [{TableOption.LENIENT}]",
        (S.SENSE, S.DECIDE): f"DecisionPacket [{TableOption.INITIAL_BELIEFS}]",
    }


def test_a_row_of_either_profile_needs_no_mark() -> None:
    label = read_mermaid(draw_machine()).edges[S.VERIFY, S.VERIFY].split("<br/>")

    assert "TaskDirectivePacket(READ)" in label
    assert "ToolAuthorizationToken [profile lenient]" in label


def test_what_holds_almost_everywhere_is_drawn_where_it_holds() -> None:
    less = [row for row in TABLE if not (row.source is Position.MODEL and row.event is Event.CRITICAL)]

    drawing = read_mermaid(draw_machine(rows=less))

    assert "IntegrityAlertPacket(CRITICAL)" in drawing.edges[S.SENSE, S.SAFEMODE]
    assert "IntegrityAlertPacket(CRITICAL)" not in drawing.edges["ANY", S.SAFEMODE]


def test_a_table_in_which_nothing_holds_everywhere_has_no_such_node() -> None:
    drawing = read_dot(
        draw_machine(Notation.DOT, rows=[TransitionRow(Position.IDLE, Event.OBSERVATION, Position.SENSE)])
    )

    assert "ANY" not in drawing.nodes
    assert drawing.edges == {(S.IDLE, S.SENSE): "ObservationPacket(other)"}
    assert drawing.notes == {}


def test_a_token_issued_and_a_token_revoked_keep_their_names() -> None:
    rows = [TransitionRow(Position.MODEL, event, Position.MODEL) for event in (Event.REVOCATION, Event.TOKEN)]

    label = read_dot(draw_machine(Notation.DOT, rows=rows)).edges[S.MODEL, S.MODEL]

    assert label.split("\n") == ["ToolAuthorizationToken", "ToolAuthorizationToken(revoked)"]


def accepted(event: Event | None, *path: ProtocolState, synthetic: tuple[SyntheticTransition, ...] = ()) -> Verdict:
    return Verdict(True, "corr_a", "pkt_a", event, path, (), (), None, None, synthetic=synthetic)


def refused(event: Event | None, *path: ProtocolState, rules: tuple[str, ...] = ("FSM",)) -> Verdict:
    found = tuple(RuleFinding(rule, "", "because") for rule in rules)
    return Verdict(False, "corr_a", "pkt_a", event, path, found, (), None, None)


@both
def test_a_walk_numbers_its_edges_by_the_order_of_the_lines(notation: Notation) -> None:
    verdicts = [
        accepted(None, S.IDLE),
        accepted(Event.OBSERVATION, S.IDLE, S.SENSE),
        accepted(Event.BELIEF, S.SENSE, S.MODEL),
        accepted(Event.VERIFY_FIRST, S.MODEL, S.DECIDE, S.VERIFY),
    ]

    drawing = READERS[notation](draw_walk(verdicts, notation))

    assert drawing.nodes == {S.IDLE, S.SENSE, S.MODEL, S.DECIDE, S.VERIFY}
    assert drawing.edges == {
        (S.IDLE, S.SENSE): "2 ObservationPacket",
        (S.SENSE, S.MODEL): "3 BeliefUpdatePacket",
        (S.MODEL, S.DECIDE): "4 DecisionPacket(VERIFY_FIRST)",
        (S.DECIDE, S.VERIFY): "4 DecisionPacket(VERIFY_FIRST)",
    }


@both
def test_a_refusal_is_a_note_at_the_state_where_it_happened(notation: Notation) -> None:
    verdicts = [
        accepted(Event.OBSERVATION, S.IDLE, S.SENSE),
        refused(Event.ACT, S.SENSE, rules=("FSM", "E1")),
        refused(None, rules=("SCHEMA",)),
    ]

    text = draw_walk(verdicts, notation)

    assert "red" in text or "#c00" in text
    note = READERS[notation](text).notes[S.SENSE]
    assert "2 refused DecisionPacket(ACT), FSM, E1" in note
    assert "3 refused a line that has no event, SCHEMA" in note


def test_a_refusal_before_anything_stands_at_the_beginning() -> None:
    drawing = read_mermaid(draw_walk([refused(Event.ACT, S.IDLE)]))

    assert drawing.nodes == {S.IDLE}
    assert drawing.notes == {S.IDLE: "1 refused DecisionPacket(ACT), FSM"}


def test_the_set_that_turns_out_otherwise_is_a_dashed_edge_without_a_step() -> None:
    verdicts = [accepted(Event.BELIEF, S.IDLE, S.REVIEW), accepted(Event.ACT, S.MODEL, S.DECIDE)]

    drawing = read_dot(draw_walk(verdicts, Notation.DOT))

    assert drawing.edges[S.REVIEW, S.MODEL] == "told by 2"
    assert drawing.attributes[S.REVIEW, S.MODEL]["style"] == "dashed"


@both
def test_the_machines_own_transition_has_its_own_name(notation: Notation) -> None:
    made = SyntheticTransition(Event.OVERRUN_HALT, (S.EXECUTE, S.SAFEMODE), "INV-005", "overrun", NOON)
    verdicts = [accepted(Event.RESULT, S.EXECUTE, S.EXECUTE, S.SAFEMODE, synthetic=(made,))]

    edges = READERS[notation](draw_walk(verdicts, notation)).edges

    assert edges[S.EXECUTE, S.EXECUTE] == "1 TaskResultPacket"
    assert edges[S.EXECUTE, S.SAFEMODE].startswith("1 budget overrun")


def test_what_comes_often_is_told_in_ranges() -> None:
    often = accepted(Event.OBSERVATION, S.SENSE, S.SENSE)
    between = refused(Event.ACT, S.SENSE)

    together = read_mermaid(draw_walk([often] * 5))
    scattered = read_mermaid(draw_walk([often, between] * 40))

    assert together.edges[S.SENSE, S.SENSE] == "1-5 ObservationPacket"
    assert scattered.edges[S.SENSE, S.SENSE] == "1, 3, 5, 7, 9, 11 ... 79 (40 times) ObservationPacket"
    assert scattered.notes[S.SENSE].endswith(f"and {40 - MOST_REFUSALS} more")


@both
def test_an_empty_walk_is_still_a_picture(notation: Notation) -> None:
    drawing = READERS[notation](draw_walk([], notation))

    assert drawing == Drawing({S.IDLE}, {}, {}, {})


@both
@given(
    steps=st.lists(
        st.tuples(
            st.booleans(),
            st.one_of(st.none(), st.sampled_from(Event)),
            st.lists(st.sampled_from(ProtocolState), min_size=1, max_size=4),
            st.lists(st.text(max_size=8), max_size=3),
        ),
        max_size=12,
    )
)
def test_no_walk_breaks_the_text_of_its_picture(
    notation: Notation, steps: list[tuple[bool, Event | None, list[ProtocolState], list[str]]]
) -> None:
    verdicts = [
        accepted(event, *path) if taken else refused(event, *path, rules=tuple(rules))
        for taken, event, path, rules in steps
    ]

    drawing = READERS[notation](draw_walk(verdicts, notation))

    assert drawing.nodes >= {state for taken, _, path, _ in steps if taken for state in path}
    assert drawing.nodes <= set(ProtocolState)


@given(rules=st.lists(st.text(alphabet='"\\;:\n<>[]{}#', min_size=1, max_size=6), min_size=1, max_size=4))
def test_signs_of_a_notation_in_a_rule_of_a_user_stay_text(rules: list[str]) -> None:
    verdicts = [refused(Event.ACT, S.IDLE, rules=tuple(rules))]

    assert set(read_mermaid(draw_walk(verdicts)).notes) == {S.IDLE}
    assert set(read_dot(draw_walk(verdicts, Notation.DOT)).notes) == {S.IDLE}
