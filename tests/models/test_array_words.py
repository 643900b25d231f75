"""What Gymnasium environments observe, as short text."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import GraphInstance
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.models.arrays import describe_leaf, describe_parts
from tests.models.space_strategies import DTYPES, members, spaces


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.array([0.5, 1 / 3], np.float32), "[0.5, 0.333333] (float32, shape 2)"),
        (np.array([[1, 2], [3, 4]], np.int8), "[[1, 2], [3, 4]] (int8, shape 2 x 2)"),
        (np.array(3.5), "3.5"),
        (np.zeros((0, 3), np.uint8), "[] (uint8, shape 0 x 3)"),
        (np.array([True, False]), "[true, false] (bool, shape 2)"),
        (np.array([np.nan, np.inf]), "[nan, inf] (float64, shape 2)"),
        (np.int64(3), "3"),
        (np.float32(0.1), "0.1"),
        (7, "7"),
        ("north", "north"),
        (None, "null"),
    ],
    ids=str,
)
def test_a_short_value_is_told_in_full(value: Any, text: str) -> None:
    assert describe_leaf(value) == text


def test_a_long_array_is_summarised() -> None:
    picture = np.arange(210 * 160 * 3, dtype=np.uint8).reshape(210, 160, 3)

    assert describe_leaf(picture) == (
        "[0, 1, 2, 3, 4, 5, 6, 7, ...] (uint8, shape 210 x 160 x 3): 100800 values, min 0, max 255, mean 127.439"
    )


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
def test_the_mean_of_huge_numbers_is_one_of_their_size(dtype: Any) -> None:
    largest = min(float(np.finfo(dtype).max), float(np.finfo(np.float64).max))
    told = describe_leaf(np.full(1000, largest / 2, dtype))

    mean = float(told.rpartition("mean ")[2])
    assert mean == pytest.approx(largest / 2, rel=1e-3)


def test_what_is_endless_has_an_endless_mean() -> None:
    assert describe_leaf(np.array([np.inf] + 99 * [1.0])).endswith("max inf, mean inf")
    assert describe_leaf(np.array([np.inf, -np.inf] + 99 * [1.0])).endswith("mean nan")


def test_parts_are_told_one_to_a_line_with_the_names_that_lead_there() -> None:
    seen = {"camera": {"left": np.array([1]), "right": np.array([2])}, "pose": (np.float64(0.5), "up")}

    assert describe_parts("observation", seen).splitlines() == [
        "observation.camera.left: [1] (int64, shape 1)",
        "observation.camera.right: [2] (int64, shape 1)",
        "observation.pose.0: 0.5",
        "observation.pose.1: up",
    ]


def test_a_graph_is_told_by_its_nodes_and_edges() -> None:
    graph = GraphInstance(np.array([[1.0]]), None, None)

    assert describe_parts("g", graph) == "g.nodes: [[1]] (float64, shape 1 x 1)\ng.edges: null\ng.edge_links: null"


@st.composite
def observed(draw: st.DrawFn) -> Any:
    space: gym.Space[Any] = draw(spaces(depth=2, large=True))
    return draw(members(space))


@settings(max_examples=40)
@given(value=observed())
def test_every_member_of_every_space_can_be_told_shortly(value: Any) -> None:
    assert len(describe_parts("observation", value)) < 20_000


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_has_its_name(dtype: str) -> None:
    assert f"({dtype}, shape 1)" in describe_leaf(np.zeros(1, dtype))
