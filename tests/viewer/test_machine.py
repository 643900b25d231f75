"""The machine of a page is the table's: every state has its place, every transition its edge."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from proctor.episode.diagram import EVERY, machine_diagram, rows_everywhere
from proctor.episode.transition_table import STATES, TABLE, ProtocolState, TransitionRow, starting_states
from proctor.viewer.documents import MachineDiagram
from proctor.viewer.machine import PLACES, build_machine, machine_from_picture


def hops_of(row: TransitionRow) -> set[tuple[str, str]]:
    """Return the pairs of states that a row leads between, micro-steps included."""
    found = set()
    for start in starting_states(row):
        ends = (start,) if row.source is row.target else STATES[row.target]
        found |= {pair for end in ends for pair in pairwise((start.value, *row.through, end.value))}
    return {(str(one), str(other)) for one, other in found}


def pairs_of(found: MachineDiagram) -> set[tuple[str, str]]:
    return {(edge.source, edge.target) for edge in found.edges}


def test_every_state_is_there_once_with_a_place_of_its_own_and_words() -> None:
    states = build_machine().states

    assert [state.name for state in states] == [state.value for state in ProtocolState]
    assert len({(state.x, state.y) for state in states}) == len(states) == len(PLACES)
    assert all(state.words.endswith(".") and state.label.startswith(state.name[:2]) for state in states)


def test_every_transition_of_the_table_has_its_edge_or_holds_everywhere() -> None:
    folded = rows_everywhere(TABLE)

    found = pairs_of(build_machine())

    assert {pair for row in TABLE if row not in folded for pair in hops_of(row)} <= found
    assert (EVERY, "S9_SAFEMODE") in found


def test_no_edge_is_there_that_the_table_does_not_have() -> None:
    wanted = {pair for row in TABLE for pair in hops_of(row)} | {(EVERY, "S9_SAFEMODE")}

    assert pairs_of(build_machine()) <= wanted


def test_what_is_legal_everywhere_is_told_once() -> None:
    found = build_machine()

    assert "IntegrityAlertPacket(notice)" in found.everywhere
    assert "legal, and changes no state" not in found.everywhere
    assert all(edge.labels and edge.line in ("solid", "dashed", "dotted") for edge in found.edges)


def test_only_two_straight_lines_would_run_through_another_state() -> None:
    """The places leave room: a page bends those two, and need bend no other."""
    crossed = {
        (edge.source, edge.target)
        for edge in build_machine().edges
        for name, (x, y) in PLACES.items()
        if edge.source in list(ProtocolState) and name not in (edge.source, edge.target)
        if near(PLACES[ProtocolState(edge.source)], PLACES[ProtocolState(edge.target)], (x, y))
    }

    assert crossed == {("S6_EXECUTE", "S2_MODEL"), ("S4_VERIFY", "S9_SAFEMODE")}


def near(one: tuple[int, int], other: tuple[int, int], place: tuple[int, int]) -> bool:
    """Return whether the line between two places comes close to a third."""
    points = ((one[0] + (other[0] - one[0]) * t / 100, one[1] + (other[1] - one[1]) * t / 100) for t in range(101))
    return any(abs(x - place[0]) < 0.36 and abs(y - place[1]) < 0.22 for x, y in points)


def test_neighbours_stand_apart() -> None:
    for one, other in combinations(PLACES.values(), 2):
        assert max(abs(one[0] - other[0]), abs(one[1] - other[1])) >= 1


@given(st.lists(st.sampled_from(TABLE), unique=True, max_size=12))
def test_any_table_is_drawn_with_all_that_it_has(rows: Sequence[TransitionRow]) -> None:
    folded = rows_everywhere(rows)

    found = machine_from_picture(machine_diagram(rows))

    assert {pair for row in rows if row not in folded for pair in hops_of(row)} <= pairs_of(found)
    assert msgspec.json.decode(msgspec.json.encode(found), type=MachineDiagram) == found
