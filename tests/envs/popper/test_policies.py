"""Policies of Column Popper: legal under any rules, the same for the same seed, as strong as they say."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.envs.evaluation import Policy, make_policy
from proctor.envs.popper.env import ColumnPopperEnv
from proctor.envs.popper.game import NOBODY, Board
from proctor.envs.popper.policies import POLICIES, GameTracker, Greedy, apply_move, iterate_moves
from proctor.errors import MissingExtraError, ValidationError
from tests.envs.popper.games import boards, settings_of_a_game


def game(env: ColumnPopperEnv, policy: Policy, seed: int, **options: Any) -> tuple[list[int], int, float]:
    """Return the actions, the score and the return of one game, each action found legal."""
    policy.reset(seed)
    observation, info = env.reset(seed=seed, options=options)
    taken: list[int] = []
    total = 0.0
    over = False
    while not over:
        action = policy.act(observation)
        assert env.action_space.contains(action)
        observation, reward, terminated, truncated, info = env.step(action)
        taken.append(int(action))
        total += reward
        over = terminated or truncated
    return taken, info["score"], total


@pytest.mark.parametrize("name", POLICIES)
@given(wanted=settings_of_a_game(), seed=st.integers(0, 1000))
@settings(max_examples=15)
def test_every_policy_acts_legally_and_alike_for_a_seed_under_any_rules(
    name: str, wanted: dict[str, Any], seed: int
) -> None:
    env = ColumnPopperEnv(**wanted)
    policy = make_policy(name, env)

    assert game(env, policy, seed) == game(env, policy, seed)


def test_the_toggler_earns_the_literal_reward_and_no_score() -> None:
    env = ColumnPopperEnv()
    taken, score, total = game(env, make_policy("toggler", env), 3)

    assert (len(taken), score) == (300, 0)
    assert total == pytest.approx(296.0)


def test_greedy_scores_far_more_than_chance() -> None:
    env = ColumnPopperEnv()
    scores = {name: [game(env, make_policy(name, env), seed)[1] for seed in range(8)] for name in ("random", "greedy")}

    assert np.mean(scores["random"]) < 40
    assert np.mean(scores["greedy"]) > 400


def test_greedy_pops_at_once_what_it_can() -> None:
    env = ColumnPopperEnv()
    board = np.zeros((12, 3), np.int32)
    board[:3] = [[1, 3, 2], [2, 1, 3], [2, 2, 1]]
    greedy = make_policy("greedy", env)
    greedy.reset(1)
    observation, info = env.reset(seed=1, options={"board": board})
    actions = []
    for _ in range(2):
        actions.append(greedy.act(observation))
        observation, *_, info = env.step(actions[-1])

    assert actions == [1, 0]
    assert info["score"] == 9


def test_greedy_looks_at_one_move_where_there_are_many_columns() -> None:
    env = ColumnPopperEnv(columns=Greedy.WIDE + 2, duration_ms=10_000)

    assert game(env, make_policy("greedy", env), 1)[1] > 0


def test_a_policy_that_finds_no_move_lets_a_row_fall() -> None:
    env = ColumnPopperEnv()
    greedy = make_policy("greedy", env)
    greedy.reset(1)
    observation, _ = env.reset(seed=1, options={"board": np.zeros((12, 3), np.int32)})

    assert greedy.act(observation) == 3


@given(boards(height=5), st.integers(0, 2), st.integers(0, 2))
def test_a_move_is_a_pick_and_a_place(cells: Any, source: int, target: int) -> None:
    board = Board(cells, NOBODY, (1, 2, 3))
    stacks = [list(stack) for stack in board.stacks]
    legal = (source, target) in list(iterate_moves(stacks, source if stacks[source] else NOBODY, 5))
    board.toggle(source)
    popped = board.toggle(target)

    assert legal == (bool(stacks[source]) and popped >= 0)
    if legal:
        assert apply_move(stacks, (source, target)) == (board.stacks, popped)


@pytest.mark.parametrize("name", ["greedy", "search"])
def test_a_policy_that_knows_the_rules_needs_a_column_popper(name: str) -> None:
    env = gym.make("CartPole-v1")

    with pytest.raises(ValidationError, match="Column Popper only") as caught:
        POLICIES[name].make(env)

    assert caught.value.found == "CartPoleEnv"


def test_only_the_search_needs_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("popper.beam_search", "popper.beam_search", "vector.kernels"):
        monkeypatch.delitem(sys.modules, f"proctor.envs.{module}", raising=False)
    monkeypatch.setitem(sys.modules, "numba", None)
    env = ColumnPopperEnv()
    for name in ("random", "toggler", "greedy"):
        make_policy(name, env)

    with pytest.raises(MissingExtraError, match="vector"):
        make_policy("search", env)


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


def test_somebody_who_acts_on_after_the_end_has_a_step_left() -> None:
    memory = GameTracker(ColumnPopperEnv(duration_ms=100).rules)
    memory.note(3)
    memory.note(3)

    assert memory.steps_left == 1
