"""The board: stacks without holes, triples that pop, and a held block that never leaves the board."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.contracts.chance import Stream, derive_key
from proctor.envs.popper.game import NOBODY, Board, run_length
from tests.envs.popper.games import actions, boards

POOL = (1, 2, 3)


def board_of(*columns: list[int], height: int = 12, held: int = NOBODY) -> Board:
    cells = np.zeros((height, len(columns)), np.int32)
    for column, blocks in enumerate(columns):
        cells[: len(blocks), column] = blocks
    return Board(cells, held, POOL)


def shown(board: Board) -> list[list[int]]:
    """Return the stacks as the cells show them; a hole would be seen as a 0 inside."""
    return [np.trim_zeros(column, "b").tolist() for column in board.cells.T]


def test_three_equal_blocks_at_the_open_end_pop() -> None:
    board = board_of([1, 2], [3, 2, 2], [1], held=0)

    outcome = board.toggle(1)

    assert (outcome, shown(board), board.pop) == (3, [[1], [3], [1]], {"column": 1, "row": 1, "count": 3, "value": 2})


@pytest.mark.parametrize(("run", "popped"), [(3, 3), (4, 3), (5, 3), (6, 6), (8, 6), (9, 9)])
def test_whole_triples_of_a_long_run_pop(run: int, popped: int) -> None:
    board = board_of([1, *[2] * run], [], [], held=0)

    assert board.toggle(0) == popped
    assert shown(board)[0] == [1, *[2] * (run - popped)]


def test_a_fall_without_room_changes_nothing() -> None:
    board = board_of([1, 2, 1], [], [2], height=3)

    assert not board.fall(1, 1)
    assert shown(board) == [[1, 2, 1], [], [2]]


@given(seed=st.integers(0, 2**31 - 1), pair=st.sampled_from(POOL))
def test_a_spawn_makes_no_third_of_a_kind(seed: int, pair: int) -> None:
    board = board_of([pair, pair], [pair], [pair, pair, 1])

    board.fall(derive_key(seed, Stream.SPAWN), 3)

    assert board.stacks[0][0] != pair
    assert board.stacks[2][0] != pair


def test_a_pool_of_one_value_has_no_choice() -> None:
    board = Board(np.full((5, 1), 0, np.int32), NOBODY, (7,))
    for number in range(4):
        board.fall(9, number)

    assert board.stacks == [[7, 7, 7, 7]]


def test_every_value_of_the_pool_comes_equally_often() -> None:
    counts = dict.fromkeys(POOL, 0)
    for number in range(3_000):
        board = board_of([], [], [])
        board.fall(derive_key(0, Stream.SPAWN), number)
        for stack in board.stacks:
            counts[stack[0]] += 1

    assert all(abs(count - 3_000) < 150 for count in counts.values())


@given(boards(), actions(), st.integers(0, 2**31 - 1))
def test_cells_and_stacks_agree_and_blocks_are_conserved(cells: np.ndarray, moves: list[int], key: int) -> None:
    board = Board(cells, NOBODY, POOL)
    expected = int((cells > 0).sum())
    for number, move in enumerate(moves):
        if move == 3:
            expected += 3 * board.fall(key, number)
        else:
            popped = board.toggle(move)
            expected -= max(popped, 0)

        assert shown(board) == board.stacks
        assert sum(map(len, board.stacks)) == expected


@given(boards(), actions(most=2))
def test_a_triple_stands_after_a_placement_only_if_a_pop_laid_it_bare(cells: np.ndarray, moves: list[int]) -> None:
    board = Board(cells, NOBODY, POOL)
    for move in moves:
        placing = board.held != NOBODY
        outcome = board.toggle(move)
        if placing and outcome == 0:
            assert run_length(board.stacks[move]) < 3


def test_what_a_pop_lays_bare_does_not_pop_by_itself() -> None:
    board = board_of([1, 1, 1, 2, 2], [2], [])
    board.toggle(1)

    popped = board.toggle(0)

    assert popped == 3
    assert board.stacks[0] == [1, 1, 1]


@given(boards(), actions())
def test_valid_columns_are_those_where_a_toggle_is_not_refused(cells: np.ndarray, moves: list[int]) -> None:
    board = Board(cells, NOBODY, POOL)
    for number, move in enumerate(moves):
        for column in range(3):
            assert board.valid_columns() >> column & 1 == (board.copy().toggle(column) >= 0)
        board.fall(5, number) if move == 3 else board.toggle(move)


@given(boards(), actions(max_size=20))
def test_copies_go_their_own_way(cells: np.ndarray, moves: list[int]) -> None:
    board = Board(cells, NOBODY, POOL)
    for move in moves[: len(moves) // 2]:
        board.toggle(min(move, 2))
    twins = [board.copy(), copy.deepcopy(board), pickle.loads(pickle.dumps(board))]
    for move in moves[len(moves) // 2 :]:
        for each in (board, *twins):
            each.fall(7, move) if move == 3 else each.toggle(move)

    for twin in twins:
        assert twin.cells is not board.cells
        assert (twin.cells.tolist(), twin.held, twin.pop) == (board.cells.tolist(), board.held, board.pop)
