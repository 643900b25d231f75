"""A picture of Column Popper shows what its scene says, on any board, and blocks are told apart by everyone."""

import copy
import json
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from proctor.envs.drawing.raster import Colour, Picture, load_font
from proctor.envs.plume.drawing.picture import draw as draw_plume
from proctor.envs.popper.drawing.picture import (
    AMBER,
    BAR_HEIGHT,
    BARS,
    BLOCKS,
    CALM,
    FOOT,
    MARGIN,
    PANEL_WIDTH,
    RED,
    WHITE,
    BoardLayout,
    digit_colour,
    draw,
    make_layout,
    read_scene,
)
from proctor.errors import RenderingError
from tests.envs.plume.scenes import scene as plume_scene
from tests.envs.popper.scenes import scene, scenes


def changed(one: Picture, other: Picture) -> NDArray[np.intp]:
    """Return the rows and columns of the pixels that differ."""
    return np.argwhere((one != other).any(axis=-1))


def count(picture: Picture, colour: Colour, within: int = 4) -> int:
    return int((np.abs(picture.astype(int) - colour).max(axis=-1) <= within).sum())


def layout(seen: dict[str, Any]) -> BoardLayout:
    return make_layout(seen["static"]["height"], seen["static"]["columns"])


def at_cell(seen: dict[str, Any], row: int, column: int) -> Picture:
    """Return the pixels of a cell."""
    placed = layout(seen)
    left, top = placed.place(row, column)
    return draw(seen)[top : top + placed.cell.height, left : left + placed.cell.width]


def beside(seen: dict[str, Any]) -> Picture:
    """Return the pixels of the side panel."""
    left, top = layout(seen).panel
    return draw(seen)[top:, left:]


@settings(max_examples=60, deadline=None)
@given(scenes())
def test_any_legal_scene_has_a_picture_of_even_sides(seen: dict[str, Any]) -> None:
    picture = draw(seen)
    placed = layout(seen)

    assert picture.dtype == np.uint8
    assert picture.shape == (placed.height, placed.width, 3)
    assert picture.shape[0] % 2 == picture.shape[1] % 2 == 0
    assert max(picture.shape) <= 1024


@settings(max_examples=30, deadline=None)
@given(scenes(), scenes())
def test_a_picture_depends_on_its_scene_alone(seen: dict[str, Any], between: dict[str, Any]) -> None:
    before = copy.deepcopy(seen)
    first = draw(seen)
    draw(between)

    expected = first.copy()
    first[:] = 77

    assert (draw(json.loads(json.dumps(seen))) == expected).all()
    assert seen == before


@settings(max_examples=60, deadline=None)
@given(scenes(), st.data())
def test_another_number_changes_its_cell_and_nothing_else(seen: dict[str, Any], data: st.DataObject) -> None:
    seen["frame"].update(held=None, popped=None)
    board = seen["frame"]["board"]
    row, column = data.draw(st.integers(0, len(board) - 1)), data.draw(st.integers(0, len(board[0]) - 1))
    numbers = data.draw(st.lists(st.sampled_from(list(BLOCKS)), min_size=2, max_size=2, unique=True))
    pictures = []
    for board[row][column] in numbers:
        pictures.append(draw(seen))
    there = changed(*pictures)
    placed = layout(seen)
    left, top = placed.place(row, column)

    assert len(there) > 10
    assert (there >= (top, left)).all()
    assert (there < (top + placed.cell.height, left + placed.cell.width)).all()


@settings(max_examples=40, deadline=None)
@given(scenes(), st.data())
def test_a_held_block_changes_its_neighbourhood_and_the_panel(seen: dict[str, Any], data: st.DataObject) -> None:
    stacks = list(zip(*seen["frame"]["board"], strict=True))
    column = data.draw(st.sampled_from([at for at, stack in enumerate(stacks) if stack[0]] or [0]))
    seen["frame"]["board"][0][column] = seen["frame"]["board"][0][column] or 1
    row = max(at for at, cells in enumerate(seen["frame"]["board"]) if cells[column])
    seen["frame"].update(popped=None, held=None)
    held = copy.deepcopy(seen)
    held["frame"]["held"] = column
    placed = layout(seen)
    left, top = placed.place(row, column)
    there = changed(draw(seen), draw(held))
    near = there[there[:, 1] < placed.panel[0] - 6]
    reach = placed.cell.reach

    assert len(near) > 10
    assert len(there) > len(near)
    assert (near >= (top - reach, left - reach)).all()
    assert (near < (top + placed.cell.height + reach, left + placed.cell.width + reach)).all()


@pytest.mark.parametrize("value", BLOCKS)
def test_every_number_has_its_colour_and_its_digit(value: int) -> None:
    tile = at_cell(scene([[value], [], []]), 0, 0)

    inner = tile[8:-8, 8:-8]
    inked = np.abs(inner.astype(int) - digit_colour(value)).max(axis=-1) < 60
    mask = np.array(load_font(round(0.5 * len(tile))).getmask(str(value)))

    assert count(tile, BLOCKS[value], within=40) > tile[..., 0].size // 3
    assert (mask > 230).sum() <= inked.sum() <= (mask > 25).sum()


def test_stacks_hang_from_the_top() -> None:
    seen = scene([[1, 1], [], []])
    bright = [at_cell(seen, row, 0).mean() for row in (0, 1, 2, 10)]

    assert min(bright[:2]) > 3 * max(bright[2:])


def test_the_danger_row_is_red_and_no_other() -> None:
    seen = scene([[], [], []])
    last, above = (at_cell(seen, row, 1).reshape(-1, 3).mean(axis=0) for row in (11, 10))

    assert last[0] > 1.5 * last[2]
    assert above[0] < above[2]


def test_a_held_block_is_framed_in_white() -> None:
    stacks = [[2, 3], [2], [1]]
    free, held = (at_cell(scene(stacks, held=column), 1, 0) for column in (None, 0))

    assert count(held, WHITE) > count(free, WHITE) + 40


@pytest.mark.parametrize("columns", [1, 3, 16])
@pytest.mark.parametrize("height", [1, 2, 12, 64])
def test_a_held_block_at_the_lowest_corner_stays_on_the_picture(height: int, columns: int) -> None:
    full = [[1] * height] * columns

    there = changed(draw(scene(full, height, held=columns - 1)), draw(scene(full, height)))

    assert there[:, 0].max() >= MARGIN + make_layout(height, columns).board[1]


def test_what_popped_bursts_where_it_was_and_only_there() -> None:
    stacks = [[1], [2], [3]]
    popped = {"column": 1, "row": 1, "count": 3, "value": 2}
    there = changed(draw(scene(stacks)), draw(scene(stacks, popped=popped)))
    placed = layout(scene(stacks))
    left, top = placed.place(1, 1)
    reach = placed.cell.reach

    assert (there.min(axis=0) >= (top - reach, left - reach)).all()
    assert (there.max(axis=0) < (top + 3 * placed.cell.height + reach, left + placed.cell.width + reach)).all()
    assert np.ptp(there[:, 0]) > 3 * placed.cell.height - 4


def test_a_block_that_fell_into_a_popped_cell_hides_the_burst() -> None:
    popped = {"column": 0, "row": 1, "count": 1, "value": 3}

    assert (draw(scene([[1, 2], [], []], popped=popped)) == draw(scene([[1, 2], [], []]))).all()


@pytest.mark.parametrize(
    ("state", "fault", "colour"),
    [
        ("truncated", None, AMBER),
        ("terminated", "overflow", RED),
        ("terminated", "invalid_full_drop", RED),
        ("terminated", None, RED),
    ],
)
def test_an_ended_game_is_tinted_and_has_a_banner(state: str, fault: str | None, colour: Colour) -> None:
    running, ended = scene(), scene(state=state, fault=fault)
    there = changed(draw(running), draw(ended))

    assert count(beside(ended), colour) > 2_000 > count(beside(running), colour)
    assert there[:, 1].min() <= MARGIN + 1
    assert len(there) > 0.8 * np.prod(layout(ended).board)


@given(st.integers(0, 60_000), st.integers(0, 60_000))
@settings(max_examples=30, deadline=None)
def test_more_time_is_a_longer_bar(one: int, other: int) -> None:
    left, top = layout(scene()).panel
    bar = BARS[0].top + BAR_HEIGHT // 2
    lengths = []
    for time_left in sorted((one, other)):
        row = draw(scene(time_left_ms=time_left))[top + bar, left : left + PANEL_WIDTH].astype(int)
        lengths.append(int((row.sum(axis=-1) > 200).sum()))

    assert lengths[0] <= lengths[1]
    assert lengths == [pytest.approx(PANEL_WIDTH * time / 60_000, abs=2) for time in sorted((one, other))]


def test_the_clock_and_the_fall_warn() -> None:
    calm, late, full = scene(), scene(time_left_ms=5_000), scene([[1] * 12, [], []])

    assert count(beside(calm), CALM) > 1_000
    assert count(beside(calm), AMBER) == count(beside(calm), RED) == 0
    assert count(beside(late), AMBER) > 50
    assert count(beside(full), RED) > 200


@pytest.mark.parametrize("change", [{"score": 28}, {"step": 18}, {"total_reward": 3.21}, {"next_fall_ms": 1_400}])
def test_every_number_of_the_frame_is_told_on_the_panel(change: dict[str, Any]) -> None:
    there = changed(draw(scene()), draw(scene(**change)))

    assert len(there) > 0
    assert there[:, 1].min() >= layout(scene()).panel[0]


def test_a_number_too_long_for_the_panel_is_cut() -> None:
    endless = scene(score=10**200, total_reward=-1e300, step=10**60)

    assert draw(endless).shape == draw(scene()).shape


@pytest.mark.parametrize(("height", "columns"), [(1, 1), (1, 16), (64, 1), (64, 16), (12, 3)])
def test_cells_are_never_too_small_to_read_nor_huge(height: int, columns: int) -> None:
    placed = make_layout(height, columns)

    assert 12 <= placed.cell.height <= 56
    assert placed.cell.height <= placed.cell.width <= 70
    assert placed.height >= placed.board[1] + MARGIN + FOOT


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {**scene(), "static": {}},
        {**scene(), "frame": None},
        scene(state="lost"),
        scene(board=[[0, 0, 0]] * 11),
        scene(board=[[0, 0]] * 12),
        scene(board=[[10, 0, 0]] * 12),
        scene(board=[[-1, 0, 0]] * 12),
        scene(held=3),
        scene(held=2),
        scene(held=-1),
        scene(popped={"column": 3, "row": 0, "count": 3, "value": 1}),
        scene(popped={"column": 0, "row": 10, "count": 3, "value": 1}),
        scene(popped={"column": 0, "row": 0, "count": 3, "value": 0}),
        scene(fall_interval_ms=0),
        plume_scene(),
    ],
)
def test_what_is_no_scene_of_column_popper_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(RenderingError, match="no popper's scene") as refused:
        draw(broken)

    assert refused.value.found == broken


def test_a_plume_refuses_the_scene_of_a_popper() -> None:
    with pytest.raises(RenderingError, match="no plume's scene"):
        draw_plume(scene())


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
