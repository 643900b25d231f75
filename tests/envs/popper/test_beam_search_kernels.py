"""The compiled search: its moves are the game's, its lines legal, and interpreted it finds the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.envs.popper import beam_search_kernels as kernels
from proctor.envs.popper.beam_search import make_search_model
from proctor.envs.popper.beam_search_kernels import SearchModel, make_workspace, move
from proctor.envs.popper.env import ColumnPopperEnv
from proctor.envs.vector import kernels as shared_kernels
from tests.envs.interpreted import without_compiler
from tests.envs.popper.games import boards

OUTLOOK = make_search_model(ColumnPopperEnv(height=5, number_pool=(1, 2)).rules)


def packed(board: Any, bits: int = 2) -> tuple[Any, Any]:
    """Return the cells and heights of a board whose values are their codes."""
    stacks = [[int(value) for value in column if value] for column in board.T]
    cells = [sum(value << (bits * place) for place, value in enumerate(reversed(stack))) for stack in stacks]
    return np.array(cells, np.uint64), np.array([len(stack) for stack in stacks], np.int64)


def found(
    board: Any, outlook: SearchModel = OUTLOOK, held: int = -1, falls: tuple[int, ...] = (0, 0, 0, 0)
) -> tuple[int, float]:
    """Return what a narrow search finds from this board; `falls` come with the place of each move."""
    desk = make_workspace(8, outlook.columns)
    both = np.array([(0, fall) for fall in falls], np.int64)
    step, score = kernels.search(outlook, desk, *packed(board), held, both, 1, 0.01, 0.3)
    return int(step), float(score)


@given(boards(), st.integers(0, 2), st.integers(0, 2))
def test_a_move_is_the_games(board: Any, source: int, target: int) -> None:
    env = ColumnPopperEnv(fall_curve=((0, 60_000),))
    env.reset(seed=1, options={"board": board})
    cells, heights = packed(board)
    _, _, _, _, info = env.step(source)
    if not heights[source] or not info["action_mask"][target]:
        return
    popped = move(cells, heights, source, target, 2)
    observation, _, _, _, info = env.step(target)
    after_cells, after_heights = packed(observation["board"])

    assert popped == info["pops_this_step"]
    assert (cells == after_cells).all()
    assert (heights == after_heights).all()


@given(boards(height=5, pool=(1, 2)), st.integers(-1, 2), st.lists(st.integers(0, 1), min_size=1, max_size=4))
@settings(max_examples=30)
def test_interpreted_it_finds_the_same(board: Any, held: int, falls: list[int]) -> None:
    compiled = found(board, held=held, falls=tuple(falls))
    with without_compiler([shared_kernels, kernels]):
        interpreted = found(board, held=held, falls=tuple(falls))

    assert compiled == pytest.approx(interpreted)


@given(boards(height=5, pool=(1, 2)), st.integers(-1, 2))
def test_the_first_move_can_be_made(board: Any, held: int) -> None:
    step, score = found(board, held=held)
    _, heights = packed(board)
    source, target = divmod(step, 3)

    assert (step < 0) == (score == -np.inf)
    if step >= 0:
        assert held in (-1, source)
        assert heights[source] > 0
        assert source == target or heights[target] < 5


def test_pairs_at_open_ends_count_where_there_is_no_table() -> None:
    outlook = OUTLOOK._replace(weight=1.0, pair=50.0, lean=0.0)
    board = np.zeros((5, 3), np.int64)
    board[:2] = [[1, 2, 1], [2, 1, 2]]
    compiled = found(board, outlook, falls=(0,))
    with without_compiler([shared_kernels, kernels]):
        interpreted = found(board, outlook, falls=(0,))

    assert divmod(compiled[0], 3) in {(0, 2), (2, 0)}
    assert compiled[1] == pytest.approx(50.0, abs=3.0)
    assert compiled == pytest.approx(interpreted)


def test_a_triple_in_reach_is_popped_first() -> None:
    board = np.zeros((5, 3), np.int64)
    board[:3] = [[1, 2, 2], [2, 1, 1], [2, 1, 2]]

    assert found(board, falls=(0,))[0] == 2 * 3 + 0


def test_a_run_that_is_there_already_is_put_back() -> None:
    board = np.zeros((5, 3), np.int64)
    board[:3, 0] = 1

    assert found(board, falls=(0,))[0] == 0


def test_a_line_that_overflows_is_none() -> None:
    board = np.ones((5, 3), np.int64)
    board[4, 1:] = 0
    board[::2] = np.minimum(board[::2] * 2, 2)
    board[4, 1:] = 0

    assert found(board, falls=(2,)) == (-1, -np.inf)
    assert found(board, falls=(0,))[0] >= 0


def test_an_empty_board_has_no_move() -> None:
    assert found(np.zeros((5, 3), np.int64)) == (-1, -np.inf)
