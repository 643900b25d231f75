"""What a policy remembers is what the game knows."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from proctor.envs.popper.env import ColumnPopperEnv
from proctor.envs.popper.game import NOBODY
from proctor.envs.popper.policies import GameTracker
from tests.envs.popper.games import settings_of_a_game


def seen(board: list[list[int]], selection: tuple[int, int]) -> dict[str, Any]:
    return {"board": np.array(board, np.int32), "selection": np.array(selection, np.int32)}


@given(settings_of_a_game(), st.integers(0, 1000), st.lists(st.integers(0, 5), max_size=60))
def test_the_clock_and_the_hand_are_the_games(settings: dict[str, Any], seed: int, actions: list[int]) -> None:
    env = ColumnPopperEnv(**settings)
    memory = GameTracker(env.rules)
    observation, _ = env.reset(seed=seed)
    for action in actions:
        memory.look(observation)
        frame = env.scene()["frame"]
        action = min(action, env.rules.columns)

        assert memory.held == (NOBODY if frame["held"] is None else frame["held"])
        assert memory.steps_left == -(-frame["time_left_ms"] // env.rules.action_ms)
        assert memory.steps_to_fall == -(-frame["next_fall_ms"] // env.rules.action_ms)

        memory.note(action)
        observation, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            break


@given(settings_of_a_game(), st.lists(st.integers(1, 3), max_size=20))
def test_the_falls_ahead_are_those_that_come(settings: dict[str, Any], stretches: list[int]) -> None:
    rules = ColumnPopperEnv(**settings).rules
    memory = GameTracker(rules)
    foreseen = memory.falls(stretches)
    came = []
    for stretch in stretches:
        came.append(0)
        for _ in range(stretch):
            came[-1] += memory.steps_to_fall == 1
            memory.look(seen([[0] * rules.columns] * rules.height, (0, 0)))
            memory.note(0)

    assert foreseen == came


def test_a_block_that_was_held_at_the_start_is_taken_from_a_column_that_it_fits() -> None:
    memory = GameTracker(ColumnPopperEnv(height=2, columns=3).rules)
    memory.look(seen([[1, 1, 2], [2, 0, 3]], (1, 2)))

    assert memory.held == 0


def test_a_hand_that_nothing_fits_is_taken_for_empty() -> None:
    memory = GameTracker(ColumnPopperEnv(height=2, columns=2).rules)
    memory.look(seen([[1, 1], [0, 0]], (1, 3)))

    assert memory.held == NOBODY


def test_the_observation_beats_the_memory() -> None:
    memory = GameTracker(ColumnPopperEnv(height=2, columns=2).rules)
    memory.look(seen([[1, 2], [0, 0]], (0, 0)))
    memory.note(0)
    memory.look(seen([[1, 2], [0, 0]], (1, 2)))

    assert memory.held == 1


def test_a_block_that_a_full_column_refused_stays_in_the_hand() -> None:
    memory = GameTracker(ColumnPopperEnv(height=2, columns=3).rules)
    board = [[1, 1, 2], [0, 3, 1]]
    memory.look(seen(board, (0, 0)))
    memory.note(2)
    memory.note(1)
    memory.look(seen(board, (1, 1)))

    assert memory.held == 2


def test_a_pick_at_an_empty_column_holds_nothing() -> None:
    memory = GameTracker(ColumnPopperEnv(height=2, columns=2).rules)
    memory.look(seen([[1, 0], [0, 0]], (0, 0)))
    memory.note(1)

    assert memory.held == NOBODY


def test_somebody_who_acts_on_after_the_end_has_a_step_left() -> None:
    memory = GameTracker(ColumnPopperEnv(duration_ms=100).rules)
    memory.note(3)
    memory.note(3)

    assert memory.steps_left == 1
