"""What a scene says is read back as it is, and asked for in one place."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.envs.popper.drawing.scene import read_scene
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
