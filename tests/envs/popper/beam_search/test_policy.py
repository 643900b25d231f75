"""The search: strong, blind to the seed, and never at a loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.envs.evaluation import make_policy
from proctor.envs.popper.beam_search.policy import SearchPolicy
from proctor.envs.popper.env import ColumnPopperEnv
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
