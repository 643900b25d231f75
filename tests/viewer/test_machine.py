"""The machine of a page is the table's: every state has its place, every transition its edge."""

import re
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from math import dist
from operator import mul

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.episode.diagram import EVERY, machine_diagram, rows_everywhere
from proctor.episode.transition_table import STATES, TABLE, ProtocolState, TransitionRow, starting_states
from proctor.viewer.documents import MachineDiagram
from proctor.viewer.machine import BENDS, PLACES, build_machine, machine_from_picture


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
    assert set(PLACES) == {EVERY, *ProtocolState}
    assert len(set(PLACES.values())) == len(PLACES)
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


@pytest.mark.parametrize("shape", ["wide", "tall"])
def test_no_arrow_runs_through_a_box_of_others(shape: str) -> None:
    found = build_machine()
    picture = getattr(found, shape)

    hit = {
        (edge.source, edge.target, name)
        for edge, path in zip(found.edges, picture.paths, strict=True)
        for name, (x, y, width, height) in picture.boxes.items()
        if name not in (edge.source, edge.target)
        if any(abs(at - x) < width / 2 and abs(down - y) < height / 2 for at, down in points_of(path))
    }
    assert hit == set()


def points_of(path: str) -> Iterator[tuple[float, float]]:
    """Yield the points of one cubic curve."""
    numbers = list(map(float, re.findall(r"-?[\d.]+", path)))
    for t in (at / 60 for at in range(61)):
        weights = ((1 - t) ** 3, 3 * (1 - t) ** 2 * t, 3 * (1 - t) * t * t, t**3)
        across, down = (sum(map(mul, weights, numbers[first::2])) for first in (0, 1))
        yield across, down


@pytest.mark.parametrize(("shape", "narrowest", "widest"), [("wide", 500, 800), ("tall", 250, 340)])
def test_boxes_and_arrows_lie_inside_the_picture_and_boxes_stand_apart(shape: str, narrowest: int, widest: int) -> None:
    picture = getattr(build_machine(), shape)

    edges = [(x - w / 2, y - h / 2, x + w / 2, y + h / 2) for x, y, w, h in picture.boxes.values()]
    assert narrowest < picture.width < widest
    assert all(
        left > 0 and top > 0 and right < picture.width and low < picture.height for left, top, right, low in edges
    )
    assert all(0 < x < picture.width and 0 < y < picture.height for path in picture.paths for x, y in points_of(path))
    assert all(a[2] < b[0] or b[2] < a[0] or a[3] < b[1] or b[3] < a[1] for a, b in combinations(edges, 2))


def test_two_arrows_between_the_same_boxes_there_and_back_keep_apart() -> None:
    found = build_machine()
    ways = {(edge.source, edge.target): path for edge, path in zip(found.edges, found.wide.paths, strict=True)}
    middles = [list(points_of(path))[30] for pair, path in ways.items() if pair[::-1] in ways and pair[0] != pair[1]]

    assert middles
    assert all(dist(one, other) > 8 for one, other in combinations(middles, 2))


def test_every_bend_is_of_an_arrow_that_is_there() -> None:
    assert set(BENDS) <= pairs_of(build_machine())


@given(st.lists(st.sampled_from(TABLE), unique=True, max_size=12))
def test_any_table_is_drawn_with_all_that_it_has(rows: Sequence[TransitionRow]) -> None:
    folded = rows_everywhere(rows)

    found = machine_from_picture(machine_diagram(rows))

    assert {pair for row in rows if row not in folded for pair in hops_of(row)} <= pairs_of(found)
    assert msgspec.json.decode(msgspec.json.encode(found), type=MachineDiagram) == found
