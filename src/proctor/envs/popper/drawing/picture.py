"""Pictures of Column Popper, drawn from its scene alone.

Rule 1: a picture depends on the scene and on nothing else; this file never sees an environment.
Rule 2: row 0 is on top and stacks hang from it; only `BoardLayout` knows where a cell lies on the picture.
Rule 3: what stays the same during an episode is drawn once (`_backdrop`); a frame is a copy of it, the board as tiles, a few
    sprites, and the panel's numbers and bars. What reaches beyond its cell is a sprite with `REACH` pixels around it.
Rule 4: what a line of the panel shows is a row of `LINES` or `BARS`; the places are pixels below the panel's upper edge.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np

from proctor.envs.drawing.raster import (
    BORDER,
    GROUND,
    MARK,
    SHADE,
    Brush,
    Canvas,
    Colour,
    Distance,
    Floats,
    Ink,
    Picture,
    Point,
    Sprite,
    apply_ink,
    capture,
    distance_to_line,
    flat_brush,
    paste,
    polygon,
    rectangle,
    stamp,
    text_ink,
    text_mask,
    write_text,
)
from proctor.envs.popper.drawing.scene import (
    AMBER,
    BLOCKS,
    CALM,
    DANGER_SLOT,
    FAINT,
    HURRY,
    RAIL,
    RED,
    SLOT,
    WHITE,
    GameEnd,
    PopperScene,
    digit_colour,
    find_game_end,
    read_scene,
)

# -------------------------------------------------------------------------------------------------------------- blocks
VALUES: Final = 10  # the numbers that a cell can hold, nothing included
REACH: Final = 12  # pixels that a held block's glow and a burst reach beyond the cell
RAYS: Final = 10
TINTED: Final = 0.25  # the share of a tint
GLOW: Final = 5  # layers of a held block's glow

_POINTER: Final = np.array(((-1.2, -0.7), (0.0, 0.7), (1.2, -0.7)))


@dataclass(frozen=True, slots=True)
class CellSize(Canvas):
    """The size of a cell in pixels."""

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
    def surroundings(self) -> Canvas:
        """The cell with the pixels around it."""
        return Canvas(self.width + 2 * self.reach, self.height + 2 * self.reach)

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
    return capture(cell.surroundings, _draw_held_block(cell, cell.surroundings, value))


@lru_cache(maxsize=256)
def make_burst_sprite(cell: CellSize, value: int) -> Sprite:
    """Return the outline of a block that has popped, fading outwards, with rays."""
    return capture(cell.surroundings, _draw_burst(cell, cell.surroundings, BLOCKS[value]))


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
    tile = np.full((cell.height, cell.width, 3), GROUND, np.uint8)
    place = partial(rectangle, half=cell.half, radius=cell.radius)
    apply_ink(tile, stamp(cell, cell.middle, max(cell.middle) + 2.0, place, flat_brush(slot)))
    if value:
        for ink in draw_block(cell, cell, cell.middle, value):
            apply_ink(tile, ink)
    return tile


def _draw_held_block(cell: CellSize, canvas: Canvas, value: int) -> Iterator[Ink]:
    x, y = canvas.middle
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
    place, reach = canvas.middle, max(canvas.width, canvas.height) / 2.0 + 2.0
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


# ---------------------------------------------------------------------------------------------------------- side panel
PANEL_WIDTH: Final = 152
PANEL_HEIGHT: Final = 356
LABEL: Final = 10  # pixels of a small letter
SMALLEST_LETTER: Final = 5  # pixels of the smallest letter
NUMBER_WIDTH: Final = 80  # pixels beside a label
SCORE_TOP: Final = 18
SCORE_HEIGHT: Final = 44
BAR_HEIGHT: Final = 12
HELD_TOP: Final = 186
HELD_CELL: Final = CellSize(50, 40)
VERDICT_TOP: Final = 314
VERDICT_HEIGHT: Final = 38


@dataclass(frozen=True, slots=True)
class PanelNumber:
    """A label with a number at the right."""

    label: str
    top: int
    text: Callable[[PopperScene], str]


@dataclass(frozen=True, slots=True)
class PanelBar:
    """A bar that is full at 1; `colour` may warn."""

    top: int
    share: Callable[[PopperScene], float]
    colour: Callable[[PopperScene], Colour]


LINES: Final = (
    PanelNumber("time", 84, lambda seen: f"{seen.frame.time_left_ms / 1000:.1f}"),
    PanelNumber("next fall", 134, lambda seen: f"{seen.frame.next_fall_ms / 1000:.1f}"),
    PanelNumber("step", 260, lambda seen: str(seen.frame.step)),
    PanelNumber("return", 284, lambda seen: f"{seen.frame.total_reward:.2f}"),
)
BARS: Final = (
    PanelBar(102, lambda seen: seen.time_share, lambda seen: AMBER if seen.time_share <= HURRY else CALM),
    PanelBar(152, lambda seen: seen.fall_share, lambda seen: RED if seen.endangered else CALM),
)


def _draw_labels(picture: Picture, left: int, top: int) -> None:
    """Draw what every frame has: the labels, the empty bars and the empty place of the held block."""
    for label, below in (("score", 0), ("held", HELD_TOP), *((line.label, line.top) for line in LINES)):
        write_text(picture, text_mask(label, LABEL), left, top + below, FAINT)
    for bar in BARS:
        paste(picture, _slab(PANEL_WIDTH, BAR_HEIGHT, SLOT), left, top + bar.top)
    paste(picture, _slab(HELD_CELL.width, HELD_CELL.height, SLOT), *_place_of_held_block(left, top))


def _draw_values(picture: Picture, seen: PopperScene, left: int, top: int) -> None:
    """Draw what the frame says."""
    write_text(picture, _fit_text(str(seen.frame.score), SCORE_HEIGHT), left, top + SCORE_TOP, MARK)
    for line in LINES:
        mask = _fit_text(line.text(seen), LABEL, NUMBER_WIDTH)
        write_text(picture, mask, left + PANEL_WIDTH - mask.shape[1], top + line.top, MARK)
    for bar in BARS:
        _fill_bar(picture, bar, seen, left, top)
    if seen.held is not None:
        row, column = seen.held
        paste(picture, _block(seen.frame.board[row][column]), *_place_of_held_block(left, top))
    ended = find_game_end(seen.frame)
    if ended is not None:
        paste(picture, _banner(ended), left, top + VERDICT_TOP)


def _fill_bar(picture: Picture, bar: PanelBar, seen: PopperScene, left: int, top: int) -> None:
    whole = _slab(PANEL_WIDTH, BAR_HEIGHT, bar.colour(seen))
    reached = round(PANEL_WIDTH * bar.share(seen))
    paste(picture, Sprite(whole.keep[:, :reached], whole.add[:, :reached]), left, top + bar.top)


def _place_of_held_block(left: int, top: int) -> tuple[int, int]:
    return left + PANEL_WIDTH - HELD_CELL.width, top + HELD_TOP


@lru_cache(maxsize=1024)
def _fit_text(text: str, height: int, room: int = PANEL_WIDTH) -> Floats:
    """Return the mask of the text, smaller where it would not fit into `room`, and cut where even that is not enough."""
    wide = text_mask(text, height).shape[1]
    return text_mask(text, min(height, max(SMALLEST_LETTER, height * room // wide)))[:, :room]


@lru_cache(maxsize=64)
def _slab(width: int, height: int, colour: Colour) -> Sprite:
    canvas = Canvas(width, height)
    return capture(canvas, [_fill_canvas(canvas, colour)])


def _fill_canvas(canvas: Canvas, colour: Colour) -> Ink:
    shape = partial(rectangle, half=canvas.middle, radius=min(canvas.height / 2.0, 8.0))
    return stamp(canvas, canvas.middle, canvas.width, shape, flat_brush(colour))


@lru_cache(maxsize=16)
def _block(value: int) -> Sprite:
    return capture(HELD_CELL, draw_block(HELD_CELL, HELD_CELL, HELD_CELL.middle, value))


@lru_cache(maxsize=16)
def _banner(ended: GameEnd) -> Sprite:
    canvas = Canvas(PANEL_WIDTH, VERDICT_HEIGHT)
    words = _fit_text(ended.words, 16, PANEL_WIDTH - 16)
    place = (PANEL_WIDTH - words.shape[1]) // 2, (VERDICT_HEIGHT - words.shape[0]) // 2
    return capture(canvas, [_fill_canvas(canvas, ended.colour), text_ink(canvas, words, *place, SHADE)])


# ------------------------------------------------------------------------------------------------------ whole pictures
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
        return self.panel[0] + PANEL_WIDTH + MARGIN

    @property
    def height(self) -> int:
        """Pixels down."""
        return MARGIN + max(self.board[1], PANEL_HEIGHT) + FOOT

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
    _draw_values(picture, seen, *layout.panel)
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
    _draw_labels(picture, *layout.panel)
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
    mask = text_mask(str(column), min(LABEL, layout.cell.width // 2))
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
