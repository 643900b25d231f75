"""The values of open ends: patterns that follow the rules of the game, and a solution that does not move any more."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.envs.popper.beam_search import open_end_values
from proctor.envs.popper.beam_search.open_end_values import MOST_STATES, depth_for, make_patterns, pattern_count, solve
from tests.envs.interpreted import without_compiler


def number(cells: tuple[int, ...], values: int) -> int:
    """Return the number of the pattern `cells`, the open end first."""
    patterns = make_patterns(values, max(len(cells), 1))
    return int(patterns.by_bits[sum(code << (patterns.bits * place) for place, code in enumerate(cells))])


@given(st.integers(1, 16), st.integers(1, 9))
def test_as_many_cells_are_looked_at_as_there_is_room_for(columns: int, values: int) -> None:
    depth = depth_for(columns, values)

    assert pattern_count(values, depth) ** columns <= MOST_STATES


def test_the_default_board_is_looked_at_three_cells_deep() -> None:
    assert depth_for(3, 3) == 3


@given(st.integers(1, 4), st.integers(1, 3), st.data())
def test_a_pattern_changes_as_the_column_does(values: int, depth: int, data: st.DataObject) -> None:
    patterns = make_patterns(values, depth)
    codes = st.integers(1, values)
    cells = tuple(data.draw(st.lists(codes, min_size=1, max_size=depth)))
    code = data.draw(codes)
    pattern = number(cells, values)
    pushed = (code, *cells)
    pops = pushed[:3] == (code,) * 3

    assert patterns.open_end[pattern] == cells[0]
    assert patterns.drop[pattern] == number(cells[1:], values)
    assert patterns.pops[pattern, code] == pops
    assert patterns.push[pattern, code] == number(pushed[3:] if pops else pushed[:depth], values)


def test_what_is_revealed_is_never_a_third_of_a_kind() -> None:
    patterns = make_patterns(3, 3)

    assert patterns.reveal[number((2, 2), 3)].tolist() == [-1, number((2, 2, 1), 3), -1, number((2, 2, 3), 3)]
    assert make_patterns(1, 3).reveal[number((1, 1), 1)].tolist() == [-1, number((1, 1, 1), 1)]
    assert patterns.reveal[number((1, 2, 3), 3)].tolist() == [-1] * 4


def test_a_state_is_worth_the_same_with_its_columns_in_another_order() -> None:
    values = solve(make_patterns(2, 2), 3).reshape((7, 7, 7))

    for order in itertools.permutations(range(3)):
        np.testing.assert_allclose(values, values.transpose(order), atol=0.02)


def test_more_sweeps_change_next_to_nothing() -> None:
    patterns = make_patterns(3, 2)

    np.testing.assert_allclose(solve(patterns, 3), solve(patterns, 3, sweeps=300), atol=0.02)


def test_a_pair_with_its_third_at_another_open_end_is_worth_most_of_a_triple_more_than_nothing() -> None:
    count = pattern_count(3, 3)
    values = solve(make_patterns(3, 3), 3)
    pair, third, other = number((1, 1, 2), 3), number((1, 2, 3), 3), number((2, 3, 1), 3)

    assert values[0] == 0.0
    assert values[pair + count * third + count**2 * other] > 0.3


@pytest.mark.parametrize(("values", "depth", "columns"), [(2, 2, 2), (1, 1, 1), (3, 0, 3)])
def test_interpreted_sweeps_give_the_same(values: int, depth: int, columns: int) -> None:
    patterns = make_patterns(values, depth)
    compiled = solve(patterns, columns, sweeps=3)
    with without_compiler([open_end_values]):
        interpreted = solve(patterns, columns, sweeps=3)

    np.testing.assert_array_equal(compiled, interpreted)
