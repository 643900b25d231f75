"""The batched Column Popper equals the single one, value for value."""

import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.contracts.chance import SEED_LIMIT
from proctor.envs.popper.env import ColumnPopperEnv
from proctor.envs.popper.vector.batched_env import BatchedColumnPopper, BatchedContractColumnPopper
from proctor.errors import ValidationError
from tests.envs.mirror import Mirror, plain
from tests.envs.popper.games import settings_of_a_game

MODES = list(AutoresetMode)
BOARD = np.array([[1, 2, 3], [1, 2, 1], [0, 2, 0], *[[0, 0, 0]] * 9])


def mirror_of(keywords: dict[str, Any], num_envs: int, mode: AutoresetMode) -> Mirror:
    return Mirror(BatchedColumnPopper, ColumnPopperEnv, keywords, num_envs, mode)


def moves(rng: np.random.Generator, n_actions: int, num_envs: int) -> np.ndarray[Any, Any]:
    """Return actions of which few are falls, so that games last."""
    falls = rng.random(num_envs) < 0.05
    return np.where(falls, n_actions - 1, rng.integers(0, n_actions - 1, num_envs))


@given(
    keywords=settings_of_a_game(),
    num_envs=st.integers(1, 4),
    seed=st.integers(0, SEED_LIMIT - 5),
    mode=st.sampled_from(MODES),
    chance=st.integers(0, 2**32 - 1),
)
@settings(max_examples=80)
def test_every_sub_environment_is_the_single_environment(
    keywords: dict[str, Any], num_envs: int, seed: int, mode: AutoresetMode, chance: int
) -> None:
    mirror = mirror_of(keywords, num_envs, mode)
    mirror.reset(seed)
    rng = np.random.default_rng(chance)

    for _ in range(40):
        mirror.step(moves(rng, keywords["columns"] + 1, num_envs))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("preset", ["contract", "dense"])
@pytest.mark.parametrize("games", [30, pytest.param(200, marks=pytest.mark.slow)])
def test_games_of_each_mode_agree(games: int, preset: str, mode: AutoresetMode) -> None:
    mirror = mirror_of({"reward_preset": preset, "duration_ms": 20_000, "strict_invalid": True}, 16, mode)
    mirror.reset(seed=11)
    rng = np.random.default_rng(5)

    while mirror.episodes < games:
        mirror.step(moves(rng, 4, 16))


@pytest.mark.parametrize(
    "options", [{"board": BOARD}, {"board": BOARD, "selection": 1}, {"selection": 2}, {"board": None}]
)
def test_options_hold_for_every_sub_environment(options: dict[str, Any]) -> None:
    mirror = mirror_of({}, 3, AutoresetMode.NEXT_STEP)
    mirror.reset(5, options)
    rng = np.random.default_rng(0)

    for _ in range(60):
        mirror.step(moves(rng, 4, 3))


def test_bad_options_change_nothing() -> None:
    batch, twin = (BatchedContractColumnPopper(2) for _ in range(2))
    batch.reset(seed=1)
    twin.reset(seed=1)
    with pytest.raises(ValidationError, match="POP-RESET-P1"):
        batch.reset(seed=2, options={"board": [[1]]})

    assert plain(batch.step(np.zeros(2, np.int64))) == plain(twin.step(np.zeros(2, np.int64)))


@pytest.mark.parametrize("seed", [100, None])
def test_a_selection_that_one_board_cannot_have_changes_nothing(seed: int | None) -> None:
    batch, twin = (BatchedContractColumnPopper(8) for _ in range(2))
    for each in (batch, twin):
        each.reset(seed=5)
    with pytest.raises(ValidationError, match="POP-RESET-P2"):
        batch.reset(seed=seed, options={"selection": [1, 1]})

    assert plain(batch.step(np.zeros(8, np.int64))) == plain(twin.step(np.zeros(8, np.int64)))
    assert plain(batch.reset()) == plain(twin.reset())


def test_nothing_that_is_returned_is_alive() -> None:
    batch, twin = (BatchedContractColumnPopper(3, include_time_left_norm=True) for _ in range(2))
    batch.reset(seed=1)
    twin.reset(seed=1)
    rng = np.random.default_rng(1)
    for _ in range(50):
        actions = moves(rng, 4, 3)
        result = batch.step(actions.copy())
        assert plain(result) == plain(twin.step(actions))
        for value in (*result[0].values(), *result[1:4], *result[4].values(), *result[4]["reward_parts"].values()):
            if isinstance(value, np.ndarray) and value.flags.writeable:
                value.fill(0)


def test_a_batch_goes_through_a_pickle_in_mid_game() -> None:
    batch = BatchedContractColumnPopper(4)
    batch.reset(seed=3)
    rng = np.random.default_rng(1)
    for _ in range(40):
        batch.step(moves(rng, 4, 4))
    twin = pickle.loads(pickle.dumps(batch))

    for _ in range(40):
        actions = moves(rng, 4, 4)
        assert plain(batch.step(actions)) == plain(twin.step(actions))


def test_the_contracts_id_keeps_its_board_in_a_batch() -> None:
    with pytest.raises(ValidationError, match="POP-INIT-P7"):
        gym.make_vec("SpecKitAI/ColumnPopper-v1", num_envs=2, vectorization_mode="vector_entry_point", height=5)


def test_masks_come_with_every_step_and_lead_to_valid_actions_only() -> None:
    batch = BatchedContractColumnPopper(8)
    _, info = batch.reset(seed=2)
    rng = np.random.default_rng(4)
    for _ in range(300):
        drawn = rng.random((8, 4)) * info["action_mask"]
        _, _, _, _, info = batch.step(drawn.argmax(axis=1))

        assert not info["reward_parts"]["invalid_action"].any()
        assert not info["reward_parts"]["full_drop"].any()


def test_the_longest_game_on_the_largest_board_fits_the_kernels() -> None:
    keywords = {"height": 64, "columns": 16, "number_pool": range(1, 10), "action_ms": 1_000_000_000}
    mirror = mirror_of({**keywords, "duration_ms": 1_000_000_000}, 2, AutoresetMode.NEXT_STEP)
    mirror.reset(seed=SEED_LIMIT - 2)
    rng = np.random.default_rng(3)

    for _ in range(6):
        mirror.step(rng.integers(0, 17, 2))
