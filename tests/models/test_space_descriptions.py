"""A description says a space fully, and a false one is refused before it costs anything."""

import json
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Text, Tuple
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import ComponentError, ValidationError
from proctor.models.arrays import pack_array
from proctor.models.space_descriptions import DEEPEST, described, space_from
from tests.models.space_strategies import LARGE_SHAPE

BOX: dict[str, Any] = {"type": "Box", "shape": [2], "dtype": "float32", "low": 0.0, "high": 1.0}


def test_equal_bounds_are_said_once_and_infinities_by_name() -> None:
    assert described(Box(-np.inf, 1, (2, 3), np.float32)) == {
        "type": "Box",
        "shape": [2, 3],
        "dtype": "float32",
        "low": "-Infinity",
        "high": 1.0,
    }


def test_many_different_bounds_are_packed() -> None:
    low = np.random.default_rng(1).random(LARGE_SHAPE)
    space = Box(low, low + 1, dtype=np.float64)

    said = described(space)

    assert said["low"]["dtype"] == "<f8"
    assert np.array_equal(space_from(said).low, low)  # type: ignore[attr-defined]  # it is a Box


def test_integers_without_bounds_stay_without() -> None:
    rebuilt: Any = space_from(json.loads(json.dumps(described(Box(-np.inf, np.inf, (2,), np.int32)))))

    assert not rebuilt.bounded_below.any()
    assert not rebuilt.bounded_above.any()


@given(number=st.integers(-(2**63), 2**63 - 2))
def test_bounds_of_large_integers_are_exact(number: int) -> None:
    space = Box(np.array([number, number]), np.array([number, number + 1]), dtype=np.int64)

    rebuilt: Any = space_from(json.loads(json.dumps(described(space))))

    assert rebuilt.low.tolist() == [number, number]
    assert rebuilt.high.tolist() == [number, number + 1]


@pytest.mark.parametrize("space", [MultiBinary(3), MultiBinary((3,)), Box(0, 1, (2,), np.dtype(">f4"))])
def test_what_makes_two_spaces_differ_is_described(space: gym.Space[Any]) -> None:
    rebuilt = space_from(json.loads(json.dumps(described(space))))

    assert rebuilt == space
    assert rebuilt.dtype == space.dtype


def test_a_description_keeps_the_order_of_characters_and_keys() -> None:
    space = Dict([("b", Text(2, charset="zya")), ("a", Discrete(2))])

    rebuilt: Any = space_from(json.loads(json.dumps(described(space))))

    assert list(rebuilt) == ["b", "a"]
    assert rebuilt["b"].character_list == ("z", "y", "a")


def test_a_subclass_is_described_as_the_space_it_is() -> None:
    class Special(Box[Any]):
        pass

    assert described(Special(0, 1, (2,))) == BOX


@pytest.mark.parametrize(
    "space",
    [Space(), Dict({1: Discrete(2)}), Box(0, 1, (1,), np.longdouble)],  # type: ignore[dict-item]
)
def test_a_space_that_cannot_cross_the_wire_is_refused(space: gym.Space[Any]) -> None:
    with pytest.raises(ComponentError):
        described(space)


def nested(levels: int) -> dict[str, Any]:
    said = BOX
    for _ in range(levels):
        said = {"type": "Tuple", "spaces": [said]}
    return said


def test_a_description_nests_so_deep_and_no_deeper() -> None:
    assert isinstance(space_from(nested(DEEPEST)), Tuple)
    with pytest.raises(ValidationError, match="deep"):
        space_from(nested(DEEPEST + 1))
    with pytest.raises(ValidationError, match="deep"):
        space_from(nested(100_000))


@pytest.mark.parametrize(
    "description",
    [
        None,
        [],
        "Box",
        {},
        {"type": "Space"},
        {"type": ["Box"]},
        {"type": "Box"},
        {**BOX, "shape": [2**40]},
        {**BOX, "shape": [2**20, 0, 2**20]},
        {**BOX, "shape": [-1]},
        {**BOX, "shape": [1] * 65},
        {**BOX, "shape": 2},
        {**BOX, "dtype": "object"},
        {**BOX, "dtype": "float128"},
        {**BOX, "dtype": "no such"},
        {**BOX, "dtype": 4},
        {**BOX, "low": "NaN"},
        {**BOX, "low": 2.0},
        {**BOX, "low": [0.0]},
        {**BOX, "low": pack_array(np.zeros(3, np.float32))},
        {**BOX, "low": pack_array(np.zeros(2))},
        {"type": "Discrete", "n": 0, "start": 0, "dtype": "int64"},
        {"type": "Discrete", "n": 300, "start": 0, "dtype": "int8"},
        {"type": "Discrete", "n": "3", "start": 0, "dtype": "int64"},
        {"type": "MultiBinary", "n": 2**40},
        {"type": "MultiBinary", "n": [2**20, 2**20]},
        {"type": "MultiBinary", "n": "3"},
        {"type": "MultiDiscrete", "shape": [1], "dtype": "int64", "nvec": [0], "start": [0]},
        {"type": "MultiDiscrete", "shape": [1], "dtype": "float32", "nvec": [1], "start": [0]},
        {"type": "Text", "min_length": 3, "max_length": 1, "charset": "ab"},
        {"type": "Text", "min_length": 0, "max_length": 1, "charset": ["ab"]},
        {"type": "Dict", "spaces": [BOX], "sort_keys": True},
        {"type": "Tuple", "spaces": 3},
        {"type": "OneOf", "spaces": []},
        {"type": "Sequence", "space": None, "stack": True},
        {"type": "Graph", "node_space": BOX},
    ],
)
def test_a_false_description_is_a_validation_error(description: Any) -> None:
    with pytest.raises(ValidationError):
        space_from(description)


def test_a_multi_discrete_with_starts_is_rebuilt() -> None:
    nvec, start = np.array([[3, 4], [5, 6]], np.int16), np.array([[0, 1], [-2, 3]], np.int16)
    space = MultiDiscrete(nvec, dtype=np.dtype(np.int16), start=start)

    assert space_from(json.loads(json.dumps(described(space)))) == space
