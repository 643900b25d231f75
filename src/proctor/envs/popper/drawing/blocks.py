"""The blocks of Column Popper as small drawings, made once per size.

Rule 1: a `CellSize` is a size in pixels; nothing here knows where on a picture a drawing goes.
Rule 2: a board is put together from whole tiles; what reaches beyond its cell is a sprite with `REACH` pixels around it.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

import numpy as np

from proctor.envs.drawing.raster import (
    GROUND,
    MARK,
    Brush,
    Canvas,
    Colour,
    Distance,
    Ink,
    Picture,
    Point,
    Sprite,
    apply_ink,
    capture,
    distance_to_line,
    flat_brush,
    polygon,
    rectangle,
    stamp,
    text_ink,
    text_mask,
)
from proctor.envs.popper.drawing.palette import BLOCKS, DANGER_SLOT, SLOT, WHITE, digit_colour

VALUES: Final = 10  # the numbers that a cell can hold, nothing included
REACH: Final = 12  # pixels that a held block's glow and a burst reach beyond the cell
RAYS: Final = 10
TINTED: Final = 0.25  # the share of a tint
GLOW: Final = 5  # layers of a held block's glow

_POINTER: Final = np.array(((-1.2, -0.7), (0.0, 0.7), (1.2, -0.7)))


@dataclass(frozen=True, slots=True)
class CellSize:
    """The size of a cell in pixels."""

    width: int
    height: int

    @property
    def half(self) -> Point:
        """Half the sides of a block, which leaves a gap to its neighbours."""
        gap = 1.0 if self.height < 20 else 2.0
        return self.width / 2.0 - gap, self.height / 2.0 - gap

    @property
    def radius(self) -> float:
        """How round a block's corners are."""
        return 0.22 * self.height

    @property
    def reach(self) -> int:
        """The pixels around the cell that a sprite takes."""
        return min(REACH, self.height // 2)

    @property
    def lift(self) -> int:
        """How far a held block is pulled out of its place, downwards."""
        return max(1, self.height // 10)


@lru_cache(maxsize=16)
def make_tiles(cell: CellSize, tint: Colour | None = None) -> Picture:
    """Return the tile of every number, (20, height, width, 3): the last ten are those of the danger row.

    A `tint` is mixed into all of them, so that a whole board costs no more than one without.
    """
    made = np.stack([_tile(cell, value, slot) for slot in (SLOT, DANGER_SLOT) for value in range(VALUES)])
    if tint is not None:
        made = (made * (1.0 - TINTED) + np.array(tint) * TINTED + 0.5).astype(np.uint8)
    made.setflags(write=False)
    return made


@lru_cache(maxsize=256)
def make_held_sprite(cell: CellSize, value: int) -> Sprite:
    """Return a block pulled out of its place: glowing, framed in white and with a pointer beneath."""
    canvas = _canvas(cell)
    return capture(canvas, _draw_held_block(cell, canvas, value))


@lru_cache(maxsize=256)
def make_burst_sprite(cell: CellSize, value: int) -> Sprite:
    """Return the outline of a block that has popped, fading outwards, with rays."""
    canvas = _canvas(cell)
    return capture(canvas, _draw_burst(cell, canvas, BLOCKS[value]))


def draw_block(size: Canvas, cell: CellSize, middle: Point, value: int) -> Iterator[Ink]:
    """Yield the marks of a block: a dark lip, the face, light from above, and the number."""
    (across, up), (x, y), colour = cell.half, middle, BLOCKS[value]
    lip = max(1.0, 0.06 * cell.height)
    reach = max(cell.half) + 3.0
    whole = partial(rectangle, half=(across, up), radius=cell.radius)
    face = partial(rectangle, half=(across, up - lip / 2.0), radius=cell.radius)
    light = partial(rectangle, half=(across - 2.0, up * 0.36), radius=cell.radius * 0.8)
    yield stamp(size, (x, y), reach, whole, flat_brush(_darker(colour)))
    yield stamp(size, (x, y - lip / 2.0), reach, face, flat_brush(colour))
    yield stamp(size, (x, y - up * 0.52), reach, light, flat_brush(WHITE, 0.13))
    mask = text_mask(str(value), max(7, round(0.5 * cell.height)))
    left, top = (
        math.floor(at - side / 2.0 + 0.5) for at, side in zip((x, y - lip / 2.0), mask.shape[::-1], strict=True)
    )
    yield text_ink(size, mask, left, top, digit_colour(value))


def _tile(cell: CellSize, value: int, slot: Colour) -> Picture:
    size, middle = Canvas(cell.width, cell.height), (cell.width / 2.0, cell.height / 2.0)
    tile = np.full((cell.height, cell.width, 3), GROUND, np.uint8)
    place = partial(rectangle, half=cell.half, radius=cell.radius)
    apply_ink(tile, stamp(size, middle, max(middle) + 2.0, place, flat_brush(slot)))
    if value:
        for ink in draw_block(size, cell, middle, value):
            apply_ink(tile, ink)
    return tile


def _canvas(cell: CellSize) -> Canvas:
    return Canvas(cell.width + 2 * cell.reach, cell.height + 2 * cell.reach)


def _middle(canvas: Canvas) -> Point:
    return canvas.width / 2.0, canvas.height / 2.0


def _draw_held_block(cell: CellSize, canvas: Canvas, value: int) -> Iterator[Ink]:
    x, y = _middle(canvas)
    place, reach = (x, y + cell.lift), max(canvas.width, canvas.height) / 2.0 + 2.0
    for layer in range(GLOW, 0, -1):
        grown = 1.0 + (cell.reach - 3.0) * layer / GLOW
        yield stamp(canvas, place, reach, _grow_block(cell, grown), flat_brush(BLOCKS[value], 0.16))
    yield stamp(canvas, place, reach, _grow_block(cell, 2.0 if cell.height >= 20 else 1.0), flat_brush(WHITE))
    yield from draw_block(canvas, cell, place, value)
    tall = max(2.0, 0.4 * cell.reach)
    tip = (x, canvas.height - tall)
    yield stamp(canvas, tip, tall + 2.0, partial(polygon, corners=_POINTER * tall), Brush(WHITE, outline=1.0))


def _draw_burst(cell: CellSize, canvas: Canvas, colour: Colour) -> Iterator[Ink]:
    place, reach = _middle(canvas), max(canvas.width, canvas.height) / 2.0 + 2.0
    yield stamp(canvas, place, reach, _grow_block(cell, -1.0), flat_brush(colour, 0.14))
    for share, opacity in ((0.0, 0.9), (0.38, 0.4), (0.76, 0.16)):
        grown = share * (cell.reach - 2.0) - 1.0
        yield stamp(canvas, place, reach, _outline(_grow_block(cell, grown), 0.8), flat_brush(colour, opacity))
    for ray in range(RAYS):
        yield stamp(canvas, place, reach, _ray(cell, math.tau * ray / RAYS), flat_brush(MARK, 0.7))


def _grow_block(cell: CellSize, by: float) -> Distance:
    half = (cell.half[0] + by, cell.half[1] + by)
    return partial(rectangle, half=half, radius=max(cell.radius + by, 0.5))


def _outline(distance: Distance, half: float) -> Distance:
    return lambda dx, dy: np.abs(distance(dx, dy)) - half


def _ray(cell: CellSize, angle: float) -> Distance:
    x, y = cell.half[0] * math.cos(angle), cell.half[1] * math.sin(angle)
    return lambda dx, dy: distance_to_line(dx - 0.42 * x, dy - 0.42 * y, 0.3 * x, 0.3 * y) - 0.03 * cell.height


def _darker(colour: Colour) -> Colour:
    red, green, blue = (int(0.55 * part) for part in colour)
    return red, green, blue
