"""Pictures of the machine, and of one episode's walk through it, as Mermaid and DOT text.

Rule 1: every edge of the machine comes from `TABLE`, every edge of a walk from a verdict's path; none is written here.
Rule 2: only words of the protocol reach a label (states, events, options, rule ids), never an id or a text of a packet.
Rule 3: what holds everywhere is drawn once: as one arrow from "every state", or as one note.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

from proctor.episode.legal_moves import event_label
from proctor.episode.transition_table import (
    CLOSES,
    EVENTS,
    PACKETS,
    STATES,
    TABLE,
    Event,
    Position,
    ProtocolState,
    TableOption,
    TransitionRow,
    starting_states,
)
from proctor.episode.verdicts import Verdict


class Notation(StrEnum):
    """The language of a picture."""

    MERMAID = "mermaid"
    DOT = "dot"


class LineStyle(StrEnum):
    """How an edge is drawn where the notation can: an option's edge is dotted, one of a declared set's is dashed."""

    SOLID = "solid"
    DASHED = "dashed"
    DOTTED = "dotted"


class Edge(NamedTuple):
    """An arrow with the lines of its label."""

    source: str
    target: str
    label: tuple[str, ...]
    line: LineStyle = LineStyle.SOLID


class DiagramNote(NamedTuple):
    """Words beside a node; an alarming one is red."""

    node: str
    text: tuple[str, ...]
    alarming: bool = False


class Diagram(NamedTuple):
    """What is drawn; `everywhere` says whether there is a node that stands for every state."""

    states: tuple[ProtocolState, ...]
    edges: tuple[Edge, ...]
    notes: tuple[DiagramNote, ...] = ()
    everywhere: bool = False


EVERY: Final = "ANY"
EVERY_LABEL: Final = "every state"
EVERYWHERE: Final = "legal, and changes no state"
"""The first line of the note beside every state; what follows are the events."""
START: Final = "START"
# A label that is longer says how many there are instead.
MOST_RANGES: Final = 6
MOST_REFUSALS: Final = 8
# Both profiles together are no condition.
_BOTH: Final = frozenset({TableOption.STRICT, TableOption.LENIENT})
# Where the rows that hold everywhere need not hold: they are drawn there as they are.
_APART: Final = frozenset({Position.SAFEMODE, Position.CLOSED})


def draw_machine(notation: Notation = Notation.MERMAID, rows: Iterable[TransitionRow] = TABLE) -> str:
    """Return the machine as a picture of its ten states."""
    return _WRITERS[notation](machine_diagram(rows))


def draw_walk(verdicts: Iterable[Verdict], notation: Notation = Notation.MERMAID) -> str:
    """Return one episode's walk: edges are numbered by the order of its lines, refusals stand where they happened."""
    return _WRITERS[notation](_walk_diagram(verdicts))


class _Hop(NamedTuple):
    source: ProtocolState
    target: ProtocolState
    event: Event
    option: TableOption | None
    declared: bool


def machine_diagram(rows: Iterable[TransitionRow] = TABLE) -> Diagram:
    """Return what is drawn of the machine: its states, its edges, and what holds everywhere."""
    rows = tuple(rows)
    folded = rows_everywhere(rows)
    drawn = (row for row in rows if row not in folded)
    edges = sorted(_machine_edges(hop for row in drawn for hop in _hops(row)), key=lambda edge: edge.source)
    edges += _edges_from_everywhere(row for row in rows if row in folded)
    return Diagram(tuple(ProtocolState), tuple(edges), tuple(_machine_notes(rows, folded)), everywhere=bool(folded))


def _hops(row: TransitionRow) -> Iterator[_Hop]:
    stays = row.source is row.target
    for start in starting_states(row):
        ends = (start,) if stays else STATES[row.target]
        for end in ends:
            for before, after in pairwise((start, *row.through, end)):
                yield _Hop(before, after, row.event, row.option, declared=len(ends) > 1)


def _machine_edges(hops: Iterable[_Hop]) -> Iterator[Edge]:
    grouped: dict[tuple[ProtocolState, ProtocolState, bool], dict[Event, set[TableOption | None]]] = defaultdict(dict)
    for hop in hops:
        events = grouped[hop.source, hop.target, hop.declared]
        events.setdefault(hop.event, set()).add(hop.option)
    for (source, target, declared), events in grouped.items():
        conditions = {event: _condition(options) for event, options in events.items()}
        label = [
            name + mark
            for mark in dict.fromkeys(conditions.values())
            for name in _names([event for event in events if conditions[event] == mark])
        ]
        if declared:
            label.append(_set_words(Position.SETTLE))
        line = LineStyle.DASHED if declared else LineStyle.DOTTED if all(conditions.values()) else LineStyle.SOLID
        yield Edge(source, target, tuple(label), line)


def _condition(options: set[TableOption | None]) -> str:
    """Return what must be switched on, as the end of a label; nothing if the row is always there."""
    if None in options or options >= _BOTH:
        return ""
    return f" [{' or '.join(sorted(option for option in options if option is not None))}]"


def _set_words(position: Position) -> str:
    return f"{{{', '.join(state.partition('_')[0] for state in STATES[position])}}}"


def rows_everywhere(rows: Iterable[TransitionRow]) -> frozenset[TransitionRow]:
    """Return the rows of every event that does the same in all positions: stays there, or leads to one place."""
    found: dict[tuple[Event, Position | None], list[TransitionRow]] = defaultdict(list)
    for row in rows:
        found[row.event, None if row.target is row.source else row.target].append(row)
        if row.target is row.source and row.source in _APART:
            # Staying where others are led to is the same.
            found[row.event, row.target].append(row)
    needed = set(Position) - _APART
    return frozenset(row for same in found.values() if needed <= {row.source for row in same} for row in same)


def _edges_from_everywhere(folded: Iterable[TransitionRow]) -> Iterator[Edge]:
    led: dict[ProtocolState, list[Event]] = defaultdict(list)
    for row in folded:
        if row.target is not row.source:
            led[STATES[row.target][0]].append(row.event)
    for target, events in led.items():
        yield Edge(EVERY, target, tuple(_names(events)))


def _machine_notes(rows: Iterable[TransitionRow], folded: frozenset[TransitionRow]) -> Iterator[DiagramNote]:
    moving = {row.event for row in folded if row.target is not row.source}
    staying: dict[Event, set[Position]] = defaultdict(set)
    for row in rows:
        if row in folded and row.event not in moving:
            staying[row.event].add(row.source)
    if staying:
        everywhere = [event for event, sources in staying.items() if Position.SAFEMODE in sources]
        nearly = [event for event in staying if event not in everywhere]
        text = [EVERYWHERE, *_names(everywhere), *(f"{name} (not in S9)" for name in _names(nearly))]
        yield DiagramNote(EVERY, tuple(text))
    if any(len(STATES[row.target]) > 1 for row in rows):
        yield DiagramNote(
            ProtocolState.REVIEW, (f"{_set_words(Position.SETTLE)} is one place", "the next packet tells which it was")
        )


def _names(events: Iterable[Event]) -> list[str]:
    left = list(dict.fromkeys(events))
    names: list[str] = []
    for kind, variants in EVENTS.items():
        own = [event for event in variants if event in left]
        if Event.TOKEN in own:
            # The bare name of a token means that it is issued.
            names += own
        elif own:
            inner = ", ".join(event.value.removeprefix(kind).strip("()") for event in own)
            names.append(kind.value if len(own) == len(variants) else f"{kind}({inner})")
    if all(event in left for event in CLOSES):
        names.append("close")
        left = [event for event in left if event not in CLOSES]
    return names + [event.value for event in left if event not in PACKETS]


def _walk_diagram(verdicts: Iterable[Verdict]) -> Diagram:
    steps: dict[tuple[ProtocolState, ProtocolState], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    told: dict[tuple[ProtocolState, ProtocolState], list[int]] = defaultdict(list)
    refused: dict[ProtocolState, list[str]] = defaultdict(list)
    stands = ProtocolState.IDLE
    visited = {stands}
    for number, verdict in enumerate(verdicts, 1):
        path = verdict.path or (stands,)
        if not verdict.accepted:
            refused[path[-1]].append(f"{number} refused {_describe_line(verdict)}, {', '.join(verdict.rules)}")
            continue
        if path[0] is not stands:
            told[stands, path[0]].append(number)
        labels = [_describe_line(verdict)] * (len(path) - 1)
        if verdict.synthetic:
            # The machine's own transition comes last.
            labels[-1] = verdict.synthetic[-1].event
        for label, (before, after) in zip(labels, pairwise(path), strict=True):
            steps[before, after][label].append(number)
        stands = path[-1]
        visited.update(path)
    edges = [
        Edge(before, after, tuple(f"{_ranges(numbers)} {label}" for label, numbers in labels.items()))
        for (before, after), labels in steps.items()
    ]
    edges += [
        Edge(before, after, (f"told by {_ranges(numbers)}",), LineStyle.DASHED)
        for (before, after), numbers in told.items()
    ]
    for lines in refused.values():
        if len(lines) > MOST_REFUSALS:
            lines[MOST_REFUSALS:] = [f"and {len(lines) - MOST_REFUSALS} more"]
    notes = [DiagramNote(state, tuple(lines), alarming=True) for state, lines in refused.items()]
    shown = visited | refused.keys()
    return Diagram(tuple(state for state in ProtocolState if state in shown), tuple(edges), tuple(notes))


def _describe_line(verdict: Verdict) -> str:
    if verdict.event is not None:
        return event_label(verdict.event)
    return "open record" if verdict.accepted else "a line that has no event"


def _ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers as ranges: `1, 4-6`; of many, the first ones and how many there are."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number <= ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    words = [str(low) if low == high else f"{low}-{high}" for low, high in ranges]
    if len(words) <= MOST_RANGES:
        return ", ".join(words)
    return f"{', '.join(words[:MOST_RANGES])} ... {words[-1]} ({len(numbers)} times)"


def _mermaid(picture: Diagram) -> str:
    lines = ["stateDiagram-v2"]
    if picture.everywhere:
        lines.append(f'    state "{EVERY_LABEL}" as {EVERY}')
    lines.append(f"    [*] --> {picture.states[0]}")
    lines += [f"    {state}" for state in picture.states]
    lines += [f"    {edge.source} --> {edge.target}: {_mermaid_text(edge.label)}" for edge in picture.edges]
    for note in picture.notes:
        lines += [f"    note right of {note.node}", f"        {_mermaid_text(note.text)}", "    end note"]
    alarmed = [note.node for note in picture.notes if note.alarming]
    if alarmed:
        lines.append("    classDef refused stroke:#c00,stroke-width:3px")
        lines.append(f"    class {','.join(alarmed)} refused")
    return "\n".join(lines) + "\n"


def _mermaid_text(lines: Iterable[str]) -> str:
    """Return the lines of a label; a colon or a semicolon would end it, other signs are not ours."""
    return "<br/>".join(re.sub(r"[^\w .,()\[\]{}-]", "", line.replace(": ", ", "), flags=re.ASCII) for line in lines)


def _dot(picture: Diagram) -> str:
    alarmed = {note.node for note in picture.notes if note.alarming}
    lines = [
        "digraph episode {",
        '    graph [rankdir=TB, fontname="Helvetica"];',
        '    node [shape=box, style=rounded, fontname="Helvetica"];',
        '    edge [fontname="Helvetica", fontsize=10];',
        f"    {START} [shape=point];",
    ]
    lines += [
        f"    {state} [color=red, penwidth=2];" if state in alarmed else f"    {state};" for state in picture.states
    ]
    if picture.everywhere:
        lines.append(f"    {EVERY} [label={_dot_text([EVERY_LABEL])}, style=dashed];")
    lines.append(f"    {START} -> {picture.states[0]};")
    for edge in picture.edges:
        lines.append(f"    {edge.source} -> {edge.target} [label={_dot_text(edge.label)}, style={edge.line}];")
    for number, note in enumerate(picture.notes):
        color = "color=red, fontcolor=red" if note.alarming else "color=gray40"
        lines.append(f"    note{number} [label={_dot_text(note.text)}, shape=note, style=solid, {color}];")
        lines.append(f"    {note.node} -> note{number} [arrowhead=none, style=dotted, constraint=false];")
    return "\n".join([*lines, "}"]) + "\n"


def _dot_text(lines: Iterable[str]) -> str:
    quoted = (line.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") for line in lines)
    return '"' + "".join(f"{line}\\l" for line in quoted) + '"'


_WRITERS: Final = {Notation.MERMAID: _mermaid, Notation.DOT: _dot}
