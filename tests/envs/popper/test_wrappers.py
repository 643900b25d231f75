"""The flat observation says what the dictionary says."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.envs.popper.env import ColumnPopperEnv
from proctor.envs.popper.wrappers import FlattenBoard
from proctor.errors import ValidationError


@given(
    height=st.integers(4, 14),
    columns=st.integers(2, 5),
    tells_time=st.booleans(),
    seed=st.integers(0, 2**31 - 1),
    actions=st.lists(st.integers(0, 2), max_size=30),
)
@settings(max_examples=40)
def test_the_flat_observation_is_board_then_selection_then_time(
    height: int, columns: int, tells_time: bool, seed: int, actions: list[int]
) -> None:
    keywords: dict[str, Any] = {"height": height, "columns": columns, "include_time_left_norm": tells_time}
    plain, flat = ColumnPopperEnv(**keywords), FlattenBoard(ColumnPopperEnv(**keywords))
    told, row = plain.reset(seed=seed)[0], flat.reset(seed=seed)[0]
    pairs = [(told, row)]
    for action in actions:
        told, _, terminated, truncated, _ = plain.step(action)
        pairs.append((told, flat.step(action)[0]))
        if terminated or truncated:
            break

    for told, row in pairs:
        parts = np.split(row, [height * columns, height * columns + 2])
        assert np.array_equal(parts[0].reshape(height, columns), told["board"])
        assert np.array_equal(parts[1], told["selection"])
        assert np.array_equal(parts[2], told.get("time_left_norm", []))
        assert flat.observation_space.contains(row)


def test_the_bounds_are_those_of_the_parts() -> None:
    space = FlattenBoard(ColumnPopperEnv(include_time_left_norm=True)).observation_space

    assert isinstance(space, spaces.Box)
    assert space.shape == (12 * 3 + 2 + 1,)
    assert space.dtype == np.float32
    assert np.array_equal(space.low, np.zeros(39))
    assert np.array_equal(space.high, [9.0] * 38 + [1.0])


@pytest.mark.parametrize(
    "space", [spaces.Box(0, 1, (3,)), spaces.Dict({"board": spaces.Discrete(4)})], ids=["no dict", "no boxes"]
)
def test_another_observation_is_refused(space: spaces.Space[Any]) -> None:
    env = ColumnPopperEnv()
    env.observation_space = space

    with pytest.raises(ValidationError, match="nothing to flatten"):
        FlattenBoard(env)


def test_a_wrapped_environment_can_be_made_again_from_its_spec() -> None:
    gym.register("tests/FlatPopper-v0", "proctor.envs.popper.env:ColumnPopperEnv", additional_wrappers=())
    try:
        env = FlattenBoard(gym.make("tests/FlatPopper-v0", height=6, disable_env_checker=True))
        assert env.spec is not None

        again = gym.make(env.spec)

        assert again.observation_space == env.observation_space
    finally:
        del gym.registry["tests/FlatPopper-v0"]
