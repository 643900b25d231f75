"""Pictures of Column Popper, drawn from its scene alone.

Rule 1: a picture depends on the scene and on nothing else; this file never sees an environment.
Rule 2: row 0 is on top and stacks hang from it; only `BoardLayout` knows where a cell lies on the picture.
Rule 3: what stays the same during an episode is drawn once (`_backdrop`); a frame is a copy of it, the board as tiles,
    and a few sprites.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np

from proctor.envs.drawing.raster import (
    BORDER,
    GROUND,
    Picture,
    Sprite,
    apply_ink,
    flat_brush,
    paste,
    rectangle,
    stamp,
    text_mask,
    write_text,
)
from proctor.envs.popper.drawing import panel
from proctor.envs.popper.drawing.blocks import VALUES, CellSize, make_burst_sprite, make_held_sprite, make_tiles
from proctor.envs.popper.drawing.palette import FAINT, RAIL, RED, find_game_end
from proctor.envs.popper.drawing.scene import PopperScene, read_scene

INNER: Final = 480  # pixels of a board's height, if its cells are neither too small nor too large for that
BROAD: Final = 800  # pixels of a board's width at most
SMALLEST: Final = 12
LARGEST: Final = 56
MARGIN: Final = 16
GAP: Final = 24  # between the board and the panel
FOOT: Final = 32  # below the board: the columns' numbers
FRAME: Final = 4  # around the board
NUMBERED: Final = 16  # cells of at least so many pixels have their column's number below


@dataclass(frozen=True, slots=True)
class BoardLayout:
    """Where things lie on the picture of a board."""

    rows: int
    columns: int
    cell: CellSize

    @property
    def board(self) -> tuple[int, int]:
        """The board's width and height in pixels."""
        return self.columns * self.cell.width, self.rows * self.cell.height

    @property
    def panel(self) -> tuple[int, int]:
        """The upper left pixel of the side panel."""
        return MARGIN + self.board[0] + GAP, MARGIN

    @property
    def width(self) -> int:
        """Pixels across."""
        return self.panel[0] + panel.WIDTH + MARGIN

    @property
    def height(self) -> int:
        """Pixels down."""
        return MARGIN + max(self.board[1], panel.HEIGHT) + FOOT

    def place(self, row: int, column: int) -> tuple[int, int]:
        """Return the upper left pixel of a cell, from the left and from the top."""
        return MARGIN + column * self.cell.width, MARGIN + row * self.cell.height

    def inside(self, picture: Picture) -> Picture:
        """Return the board's part of the picture."""
        return picture[MARGIN : MARGIN + self.board[1], MARGIN : MARGIN + self.board[0]]


def draw(scene: Mapping[str, Any]) -> Picture:
    """Return the picture of a scene: a fresh uint8 array of shape (height, width, 3), both even."""
    seen = read_scene(scene)
    layout = make_layout(seen.static.height, seen.static.columns)
    picture = _backdrop(layout).copy()
    _board(picture, layout, seen)
    panel.draw_values(picture, seen, *layout.panel)
    return picture


@lru_cache(maxsize=16)
def make_layout(rows: int, columns: int) -> BoardLayout:
    """Return the layout of a board: cells are as large as the picture's usual size allows, 5 wide by 4 high."""
    side = min(max(min(INNER // rows, BROAD * 4 // (5 * columns)), SMALLEST), LARGEST) // 2 * 2
    return BoardLayout(rows, columns, CellSize(side * 5 // 8 * 2, side))


@lru_cache(maxsize=16)
def _backdrop(layout: BoardLayout) -> Picture:
    picture = np.full((layout.height, layout.width, 3), GROUND, np.uint8)
    _frame(picture, layout)
    if layout.cell.width >= NUMBERED:
        for column in range(layout.columns):
            _column_number(picture, layout, column)
    panel.draw_labels(picture, *layout.panel)
    picture.setflags(write=False)
    return picture


def _frame(picture: Picture, layout: BoardLayout) -> None:
    """Draw the board's frame: a ceiling that the stacks hang from, and a red floor."""
    (width, height), middle = layout.board, (MARGIN + layout.board[0] / 2.0, MARGIN + layout.board[1] / 2.0)
    reach = max(width, height) / 2.0 + 2 * FRAME
    for grown, colour in ((FRAME, RAIL), (FRAME - 1.5, GROUND)):
        shape = partial(rectangle, half=(width / 2.0 + grown, height / 2.0 + grown), radius=6.0)
        apply_ink(picture, stamp(layout, middle, reach, shape, flat_brush(colour)))
    for row, colour in ((0, BORDER), (layout.rows, RED)):
        left, top = layout.place(row, 0)
        edge = top - FRAME if row == 0 else top
        picture[edge + 1 : edge + FRAME, left : left + width] = colour


def _column_number(picture: Picture, layout: BoardLayout, column: int) -> None:
    left, top = layout.place(layout.rows, column)
    mask = text_mask(str(column), min(panel.LABEL, layout.cell.width // 2))
    write_text(picture, mask, left + (layout.cell.width - mask.shape[1]) // 2, top + FOOT - 16, FAINT)


def _board(picture: Picture, layout: BoardLayout, seen: PopperScene) -> None:
    """Put the tiles, then the sprites of what popped and of what is held."""
    numbers = np.array(seen.frame.board)
    held = seen.held
    value = 0 if held is None else int(numbers[held])
    if held is not None:
        numbers[held] = 0
    numbers[-1] += VALUES
    cell, ended = layout.cell, find_game_end(seen.frame)
    cells = layout.inside(picture).reshape(layout.rows, cell.height, layout.columns, cell.width, 3)
    cells[:] = make_tiles(cell, None if ended is None else ended.colour)[numbers].swapaxes(1, 2)
    for place, popped in seen.burst():
        _put(picture, layout, make_burst_sprite(cell, popped), place)
    if held is not None:
        _put(picture, layout, make_held_sprite(cell, value), held)


def _put(picture: Picture, layout: BoardLayout, sprite: Sprite, place: tuple[int, int]) -> None:
    left, top = layout.place(*place)
    paste(picture, sprite, left - layout.cell.reach, top - layout.cell.reach)
