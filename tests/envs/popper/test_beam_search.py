"""The search: strong, blind to the seed, and never at a loss; its values of open ends follow the rules of the game."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.envs.evaluation import make_policy
from proctor.envs.popper import beam_search
from proctor.envs.popper.beam_search import (
    MOST_STATES,
    SearchModel,
    SearchPolicy,
    depth_for,
    make_patterns,
    make_search_model,
    make_workspace,
    move,
    pattern_count,
    solve,
)
from proctor.envs.popper.env import ColumnPopperEnv
from proctor.envs.vector import kernels as shared_kernels
from tests.envs.interpreted import without_compiler
from tests.envs.popper.games import boards

POLICY = SearchPolicy(ColumnPopperEnv().rules)


def score(env: ColumnPopperEnv, policy: Any, seed: int, policy_seed: int, **options: Any) -> tuple[int, bool]:
    """Return the score of a game, and whether it lasted until time was up."""
    policy.reset(policy_seed)
    observation, info = env.reset(seed=seed, options=options)
    terminated = truncated = False
    while not (terminated or truncated):
        observation, _, terminated, truncated, info = env.step(policy.act(observation))
    return info["score"], truncated


@pytest.mark.slow
def test_the_default_game_is_played_to_the_end_and_scores_more_than_a_thousand() -> None:
    env = ColumnPopperEnv()

    for seed in range(4):
        points, lasted = score(env, POLICY, seed, seed)
        assert lasted
        assert points > 1_150


def test_the_seed_tells_it_nothing() -> None:
    env = ColumnPopperEnv(duration_ms=20_000)

    assert len({score(env, POLICY, 7, policy_seed) for policy_seed in (7, 8, 9)}) == 1


@pytest.mark.parametrize(
    ("settings", "least"),
    [
        ({"number_pool": (5,)}, 300),
        ({"number_pool": (2, 9)}, 300),
        ({"number_pool": (1, 2, 3, 4)}, 200),
        ({"columns": 5}, 300),
        ({"columns": 16, "number_pool": tuple(range(1, 10))}, 90),
        ({"height": 64}, 300),
        ({"manual_fall": "fast_forward"}, 60),
        ({"fall_curve": ((0, 700),)}, 300),
    ],
)
def test_other_rules_are_played_well_too(settings: dict[str, Any], least: int) -> None:
    env = ColumnPopperEnv(**{"duration_ms": 20_000, **settings})

    assert score(env, make_policy("search", env), 1, 1)[0] >= least


@pytest.mark.parametrize("settings", [{"height": 1}, {"height": 2}, {"columns": 1}, {"action_ms": 60_000}])
def test_rules_that_allow_nothing_are_survived(settings: dict[str, Any]) -> None:
    env = ColumnPopperEnv(**settings)

    assert score(env, make_policy("search", env), 1, 1)[0] >= 0


@given(boards(), st.sampled_from([None, 0, 1, 2]), st.integers(0, 99))
@settings(max_examples=20)
def test_any_board_is_played_from_with_or_without_a_block_in_hand(board: Any, held: int | None, seed: int) -> None:
    env = ColumnPopperEnv(duration_ms=3_000)
    selection = held if held is not None and board[0, held] else None

    assert score(env, POLICY, seed, seed, board=board, selection=selection)[0] >= 0


@given(st.lists(st.tuples(boards(), st.integers(0, 1), st.integers(0, 3)), max_size=12))
@settings(max_examples=30)
def test_boards_that_follow_from_nothing_are_no_reason_to_stop(sights: list[tuple[Any, int, int]]) -> None:
    POLICY.reset(0)
    for board, selected, value in sights:
        action = POLICY.act({"board": board, "selection": np.array([selected, value], np.int32)})

        assert type(action) is int
        assert 0 <= action <= 3


def test_values_that_the_rules_do_not_know_are_left_alone() -> None:
    POLICY.reset(0)
    board = np.zeros((12, 3), np.int32)
    board[:11] = 9

    assert 0 <= POLICY.act({"board": board, "selection": np.zeros(2, np.int32)}) <= 3


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
    with without_compiler([beam_search]):
        interpreted = solve(patterns, columns, sweeps=3)

    np.testing.assert_array_equal(compiled, interpreted)


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
    step, score = beam_search.search(outlook, desk, *packed(board), held, both, 1, 0.01, 0.3)
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
    with without_compiler([shared_kernels, beam_search]):
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
    with without_compiler([shared_kernels, beam_search]):
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
