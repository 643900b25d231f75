"""What a scene says is read back as it is, and blocks are told apart by everyone."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from proctor.envs.drawing.raster import Colour
from proctor.envs.popper.drawing.scene import BLOCKS, digit_colour, read_scene
from tests.envs.popper.scenes import scene, scenes


@given(scenes())
def test_shares_lie_between_nothing_and_all(seen: dict[str, Any]) -> None:
    read = read_scene(seen)

    assert 0.0 <= read.time_share <= 1.0
    assert 0.0 <= read.fall_share <= 1.0


@given(scenes())
def test_the_held_block_is_the_lowest_of_its_column(seen: dict[str, Any]) -> None:
    held = read_scene(seen).held

    if held is None:
        assert seen["frame"]["held"] is None
    else:
        column = [row[held[1]] for row in seen["frame"]["board"]]
        assert column[held[0]] > 0
        assert not any(column[held[0] + 1 :])


@given(st.lists(st.lists(st.integers(1, 9), max_size=6), min_size=1, max_size=4))
def test_a_stack_is_as_deep_as_it_has_blocks(stacks: list[list[int]]) -> None:
    read = read_scene(scene(stacks, 6))

    assert [read.depth(column) for column in range(len(stacks))] == [len(stack) for stack in stacks]
    assert read.endangered == any(len(stack) == 6 for stack in stacks)


@pytest.mark.parametrize(("stack", "rows"), [([], [0, 1, 2]), ([4], [1, 2]), ([4, 4, 4], [])])
def test_a_burst_is_where_nothing_has_filled_the_cells_since(stack: list[int], rows: list[int]) -> None:
    read = read_scene(scene([stack], popped={"column": 0, "row": 0, "count": 3, "value": 4}))

    assert list(read.burst()) == [((row, 0), 4) for row in rows]


Matrix = NDArray[np.float64]

# Machado, Oliveira and Fernandes (2009), severity 1: what linear light looks like to each kind of eye.
EYES: dict[str, Matrix] = {
    "trichromat": np.eye(3),
    "protanope": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranope": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanope": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
# Ottosson's OKLab, in which distances are those that are seen; 0.02 is just noticeable.
CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
OPPONENTS = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def light(colour: Colour) -> Matrix:
    share = np.array(colour) / 255.0
    linear: Matrix = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    return linear


def seen(colour: Colour, eye: str) -> Matrix:
    result: Matrix = OPPONENTS @ np.cbrt(CONES @ np.clip(EYES[eye] @ light(colour), 0.0, 1.0))
    return result


def contrast(one: Colour, other: Colour) -> float:
    low, high = sorted(float(light(colour) @ (0.2126, 0.7152, 0.0722)) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("eye", EYES)
@pytest.mark.parametrize(("values", "least"), [((1, 2, 3), 0.2), (tuple(BLOCKS), 0.1)])
def test_any_two_blocks_look_different_to_every_eye(eye: str, values: tuple[int, ...], least: float) -> None:
    nearest = min(
        float(np.linalg.norm(seen(BLOCKS[one], eye) - seen(BLOCKS[other], eye)))
        for one, other in combinations(values, 2)
    )

    assert nearest > least


@pytest.mark.parametrize("value", BLOCKS)
def test_a_number_can_be_read_on_its_block(value: int) -> None:
    assert contrast(BLOCKS[value], digit_colour(value)) > 4.0
