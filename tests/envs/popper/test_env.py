"""Column Popper as its contract tells it: spaces, moves, falls, ends, rewards, info."""

from __future__ import annotations

import copy
import functools
import operator
import pickle
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.contracts.lifecycle import EnvironmentState
from proctor.envs.popper.env import VERSION, ColumnPopperEnv, ContractColumnPopperEnv
from proctor.envs.popper.rewards import PARTS
from proctor.errors import RenderingError, StateError, ValidationError
from tests.envs.mirror import plain
from tests.envs.popper.games import actions, boards, settings_of_a_game

FALL = 3
FULL = [[1, 2, 1], [2, 3, 2]] * 6


def board_of(*columns: list[int], height: int = 12) -> np.ndarray[Any, Any]:
    board = np.zeros((height, len(columns)), np.int32)
    for column, blocks in enumerate(columns):
        board[: len(blocks), column] = blocks
    return board


def env_on(*columns: list[int], selection: Any = None, **keywords: Any) -> ColumnPopperEnv:
    env = ColumnPopperEnv(**keywords)
    board = board_of(*columns, height=keywords.get("height", 12))
    env.reset(seed=1, options={"board": board, "selection": selection})
    return env


@pytest.mark.parametrize("keywords", [{"height": 6}, {"columns": 4}, {"height": 3, "columns": 12}])
def test_the_contracts_id_keeps_its_board(keywords: dict[str, int]) -> None:
    with pytest.raises(ValidationError, match="POP-INIT-P7"):
        gym.make("SpecKitAI/ColumnPopper-v1", **keywords)  # type: ignore[arg-type]  # keywords of the environment


@pytest.mark.parametrize("env_id", ["SpecKitAI/ColumnPopper-v1", "proctor/ColumnPopper-v0"])
def test_gymnasiums_checker_finds_nothing(env_id: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gym.make(env_id).unwrapped)


def test_a_game_begins_with_one_fall() -> None:
    observation, info = ContractColumnPopperEnv().reset(seed=3)

    assert (observation["board"][0] > 0).all()
    assert not observation["board"][1:].any()
    assert observation["selection"].tolist() == [0, 0]
    assert plain(info) == plain(
        {
            "seed": 3,
            "episode": 1,
            "score": 0,
            "time_left": 60.0,
            "pops_this_step": 0,
            "fall_interval": 3.0,
            "version": VERSION,
            "action_mask": np.ones(4, np.int8),
            "fault": None,
        }
    )


def test_fast_forward_stops_when_time_is_up_before_a_row_falls() -> None:
    env = ContractColumnPopperEnv(manual_fall="fast_forward", duration_ms=2_000)
    first, _ = env.reset(seed=2)
    observation, _, terminated, truncated, info = env.step(FALL)

    assert (terminated, truncated, info["time_left"]) == (False, True, 0.0)
    assert np.array_equal(observation["board"], first["board"])


CASES: list[tuple[str, dict[str, Any], int, dict[str, float], bool]] = [
    ("a pick", {"columns": ([1], [2], [3])}, 0, {"valid_action": 1.0}, False),
    ("a placement", {"columns": ([1], [2], [3]), "selection": 0}, 1, {"valid_action": 1.0}, False),
    ("a manual fall", {"columns": ([1], [2], [3])}, FALL, {"valid_action": 1.0}, False),
    ("a pop", {"columns": ([1], [2, 1, 1], [3]), "selection": 0}, 1, {"valid_action": 1.0, "popped_cell": 9.0}, False),
    ("a pick on nothing", {"columns": ([1], [], [3])}, 1, {"invalid_action": -0.1}, False),
    ("a full drop", {"columns": ([1], [1, 2] * 6, [3]), "selection": 0}, 1, {"full_drop": -1.0}, False),
    (
        "a strict full drop",
        {"columns": ([1], [1, 2] * 6, [3]), "selection": 0, "strict_invalid": True},
        1,
        {"full_drop": -1.0},
        True,
    ),
    ("an overflow", {"columns": ([1], [1, 2] * 6, [3])}, FALL, {"valid_action": 1.0, "overflow": -1.0}, True),
]


@pytest.mark.parametrize(("_name", "position", "action", "parts", "ends"), CASES, ids=[case[0] for case in CASES])
def test_each_event_is_worth_what_the_contract_says(
    _name: str, position: dict[str, Any], action: int, parts: dict[str, float], ends: bool
) -> None:
    columns = position.pop("columns")
    env = env_on(*columns, **position)
    position["columns"] = columns
    _, reward, terminated, truncated, info = env.step(action)

    assert info["reward_parts"] == {**dict.fromkeys(PARTS, 0.0), "step": -0.01, **parts}
    assert reward == pytest.approx(sum(parts.values()) - 0.01)
    assert (terminated, truncated) == (ends, False)


@given(boards(), actions(most=2, max_size=40))
def test_the_worth_of_changes_adds_up_to_the_change(board: np.ndarray[Any, Any], moves: list[int]) -> None:
    env = ColumnPopperEnv(reward_preset={"pair": 1.0, "crowding": 2.0}, fall_curve=[(0, 60_000)])
    env.reset(seed=1, options={"board": board})
    before = env._game._shape()
    total = sum(env.step(move)[1] for move in moves)
    after = env._game._shape()

    assert total == pytest.approx((after[0] - before[0]) + 2.0 * (after[1] - before[1]))


@given(keywords=settings_of_a_game(), seed=st.integers(0, 2**31 - 1), data=st.data())
def test_the_same_seed_and_actions_give_the_same_game(keywords: dict[str, Any], seed: int, data: st.DataObject) -> None:
    moves = data.draw(actions(most=keywords["columns"], max_size=30))

    assert plain(_played(keywords, seed, moves)) == plain(_played(keywords, seed, moves))


def _played(keywords: dict[str, Any], seed: int, moves: list[int]) -> list[Any]:
    env = ColumnPopperEnv(**keywords)
    story: list[Any] = [env.reset(seed=seed)]
    story.extend(env.step(move) for move in moves if env.state is EnvironmentState.READY)
    return story


@given(keywords=settings_of_a_game(), seed=st.integers(0, 2**31 - 1), data=st.data())
def test_what_holds_in_every_step(keywords: dict[str, Any], seed: int, data: st.DataObject) -> None:
    env = ColumnPopperEnv(**keywords)
    observation, info = env.reset(seed=seed)
    popped = 0
    for move in data.draw(actions(most=keywords["columns"], max_size=40)):
        if env.state is not EnvironmentState.READY:
            break
        was_valid = info["action_mask"][move]
        before = int((observation["board"] > 0).sum())
        falls = env._game.falls
        observation, reward, terminated, truncated, info = env.step(move)
        board = observation["board"]
        popped += info["pops_this_step"]
        spawned = (env._game.falls - falls) * keywords["columns"]

        assert env.observation_space.contains(observation)
        assert not (terminated and truncated)
        assert not ((board[1:] > 0) & (board[:-1] == 0)).any()
        assert int((board > 0).sum()) == before + spawned - info["pops_this_step"]
        assert info["score"] == 3 * popped
        assert functools.reduce(operator.add, info["reward_parts"].values()) == reward
        refused = info["reward_parts"]["invalid_action"] or info["reward_parts"]["full_drop"]
        assert was_valid or not info["pops_this_step"]
        assert not (was_valid and refused)


def test_nothing_that_is_returned_is_alive() -> None:
    env = ContractColumnPopperEnv(include_time_left_norm=True)
    twin = ContractColumnPopperEnv(include_time_left_norm=True)
    env.reset(seed=4)
    twin.reset(seed=4)
    for move in (0, 1, FALL, 1, 2, 0, 0, FALL):
        result = env.step(move)
        assert plain(result) == plain(twin.step(move))
        for array in (*result[0].values(), result[4]["action_mask"]):
            array.fill(7)
        result[4]["reward_parts"].clear()


@given(actions(max_size=40), st.integers(0, 40))
def test_copies_in_mid_game_go_on_identically(moves: list[int], cut: int) -> None:
    env = ContractColumnPopperEnv(reward_preset="dense")
    env.reset(seed=9)
    for move in moves[:cut]:
        env.step(move)
    twins = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]

    for move in moves[cut:]:
        expected = plain(env.step(move))
        assert [plain(twin.step(move)) for twin in twins] == [expected] * 2
    unseeded = env.reset()[1]["seed"]
    assert [twin.reset()[1]["seed"] for twin in twins] == [unseeded] * 2


@pytest.mark.parametrize("action", [-1, 4, True, 1.0, "0", None, [0], np.array([0]), np.True_])
def test_a_bad_action_is_refused_and_changes_nothing(action: Any) -> None:
    env, twin = ContractColumnPopperEnv(), ContractColumnPopperEnv()
    env.reset(seed=1)
    twin.reset(seed=1)
    with pytest.raises(ValidationError, match="ENV-STEP-P2"):
        env.step(action)

    assert plain(env.step(0)) == plain(twin.step(0))


def test_waiting_lets_time_pass_and_costs_a_step() -> None:
    env = env_on([1], [2], [3])
    before = env.step(0)
    after = env.wait()

    assert plain(after[0]) == plain(before[0])
    assert after[1] == -0.01
    assert after[4]["time_left"] == 59.8
    assert env.step_count == 2
    env.close()
    with pytest.raises(StateError, match="NO-STEP-AFTER-CLOSE"):
        env.wait()


def test_the_scene_tells_what_there_is_to_see() -> None:
    env = env_on([1], [2, 1, 1], [3], selection=0)
    env.step(1)

    scene = env.scene()

    assert scene["static"] == {"height": 12, "columns": 3, "pool": [1, 2, 3], "duration_ms": 60_000}
    assert {key: scene["frame"][key] for key in ("step", "state", "held", "score", "time_left_ms", "next_fall_ms")} == {
        "step": 1,
        "state": "ready",
        "held": None,
        "score": 9,
        "time_left_ms": 59_900,
        "next_fall_ms": 2_900,
    }
    assert scene["frame"]["popped"] == {"column": 1, "row": 1, "count": 3, "value": 1}
    assert scene["frame"]["board"][0] == [0, 2, 3]


def test_ansi_is_text_and_rgb_array_a_picture() -> None:
    texts, pictures = (ContractColumnPopperEnv(render_mode=mode) for mode in ("ansi", "rgb_array"))
    for env in (texts, pictures):
        env.reset(seed=1)
        env.step(0)

    assert "score" in texts.render().lower()
    assert pictures.render().dtype == np.uint8


class BrokenWindow:
    """Shows nothing, ever."""

    def show(self, picture: Any) -> None:
        raise RenderingError("the screen is gone")

    def close(self) -> None:
        """Do nothing."""


def test_a_window_that_fails_takes_the_step_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env, twin = ContractColumnPopperEnv(render_mode="human"), ContractColumnPopperEnv()
    env.reset(seed=6)
    twin.reset(seed=6)
    for move in (0, 1, FALL):
        env.step(move)
        twin.step(move)
    window, env._window = env._window, BrokenWindow()
    with pytest.raises(RenderingError):
        env.step(2)
    with pytest.raises(RenderingError):
        env.reset(seed=1)
    env._window = window

    for move in (2, 0, FALL, 1):
        assert plain(env.step(move)) == plain(twin.step(move))
    env.close()


BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"board": [[1, 2, 3]]}, "POP-RESET-P1"),
    ({"board": np.zeros((12, 3))}, "POP-RESET-P1"),
    ({"board": np.full((12, 3), 4)}, "POP-RESET-P1"),
    ({"board": [[0, 0, 0], [1, 1, 1], *[[0, 0, 0]] * 10]}, "POP-RESET-P1"),
    ({"board": "full"}, "POP-RESET-P1"),
    ({"board": [[1], [1, 2]]}, "POP-RESET-P1"),
    ({"selection": 3}, "POP-RESET-P2"),
    ({"selection": True}, "POP-RESET-P2"),
    ({"selection": "left"}, "POP-RESET-P2"),
    ({"selection": [2, 1]}, "POP-RESET-P2"),
    ({"selection": [1, 9]}, "POP-RESET-P2"),
    ({"selection": [1]}, "POP-RESET-P2"),
    ({"selection": [1, [2, 3]]}, "POP-RESET-P2"),
    ({"board": np.zeros((12, 3), int), "selection": 0}, "POP-RESET-P2"),
    ({"speed": 1}, "ENV-RESET-P3"),
]


@pytest.mark.parametrize(("options", "clause"), BAD_OPTIONS)
def test_a_bad_option_is_refused_and_changes_nothing(options: dict[str, Any], clause: str) -> None:
    env, twin = ContractColumnPopperEnv(), ContractColumnPopperEnv()
    env.reset(seed=1)
    twin.reset(seed=1)
    with pytest.raises(ValidationError) as caught:
        env.reset(seed=2, options=options)

    assert caught.value.clause == clause
    assert plain(env.step(0)) == plain(twin.step(0))


@pytest.mark.parametrize("options", [{"board": "full"}, {"selection": [1, 9]}])
def test_a_refused_reset_without_a_seed_draws_none(options: dict[str, Any]) -> None:
    env, twin = ContractColumnPopperEnv(), ContractColumnPopperEnv()
    env.reset(seed=1)
    twin.reset(seed=1)
    for _ in range(3):
        with pytest.raises(ValidationError):
            env.reset(options=options)

    assert [env.reset()[1]["seed"] for _ in range(2)] == [twin.reset()[1]["seed"] for _ in range(2)]


@pytest.mark.parametrize(
    ("selection", "seen"), [(None, [0, 0]), (1, [1, 2]), ([0, 0], [0, 0]), ([1, 3], [1, 3]), (np.array([1, 2]), [1, 2])]
)
def test_a_selection_is_a_column_or_what_is_observed(selection: Any, seen: list[int]) -> None:
    env = ColumnPopperEnv()
    observation, _ = env.reset(options={"board": board_of([1], [2], [3]), "selection": selection})

    assert observation["selection"].tolist() == seen


@settings(max_examples=50)
@given(st.integers(0, 2**31 - 1), st.integers(1, 3))
def test_an_observed_pair_is_judged_on_the_board_of_its_own_seed(seed: int, value: int) -> None:
    env = ContractColumnPopperEnv()
    shown = env.reset(seed=seed)[0]["board"][0].tolist()
    if value in shown:
        observation, _ = env.reset(seed=seed, options={"selection": [1, value]})
        assert observation["selection"].tolist() == [1, value]
    else:
        with pytest.raises(ValidationError, match="POP-RESET-P2"):
            env.reset(seed=seed, options={"selection": [1, value]})


@pytest.mark.parametrize(
    "board",
    [
        np.asfortranarray(board_of([1], [2, 2], [3])),
        np.array([[1] + [0] * 11, [2, 2] + [0] * 10, [3] + [0] * 11]).T,
        np.broadcast_to(np.array([1, 2, 3]), (12, 3)),
        board_of([1], [2, 2], [3]).tolist(),
        board_of([1], [2, 2], [3]).astype(np.uint8),
    ],
)
def test_a_board_is_taken_in_any_layout(board: Any) -> None:
    env = ColumnPopperEnv()
    observation, _ = env.reset(options={"board": board})
    env.step(0)

    assert np.array_equal(observation["board"], np.asarray(board))


def test_the_option_board_is_copied() -> None:
    board = board_of([1], [2], [3])
    env = ColumnPopperEnv()
    env.reset(options={"board": board})
    env.step(FALL)

    assert np.array_equal(board, board_of([1], [2], [3]))
