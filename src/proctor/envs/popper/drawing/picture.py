"""Pictures of Column Popper, drawn from its scene alone: what a scene says, its colours, and how it is drawn.

Rule 1: a picture depends on the scene and on nothing else; this file never sees an environment. A scene that contradicts itself
    (a board of another size, a held block where there is none) is a RenderingError.
Rule 2: row 0 is on top and stacks hang from it; only `BoardLayout` knows where a cell lies on the picture.
Rule 3: any two blocks differ for every common kind of colour blindness, the standard pool's three most; and each shows its number.
Rule 4: what stays the same during an episode is drawn once (`_draw_backdrop`); a frame is a copy of it, the board as tiles, a
    few sprites, and the panel's numbers and bars. What reaches beyond its cell is a sprite with `reach` pixels around it.
Rule 5: what a line of the panel shows is a row of `LINES` or `BARS`; the places are pixels below the panel's upper edge.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
import numpy as np
from PIL import Image, ImageDraw

from proctor.envs.drawing.raster import (
    BORDER,
    GROUND,
    MARK,
    SHADE,
    Colour,
    Picture,
    Point,
    Sketch,
    load_font,
    read_part,
    surround,
)
from proctor.errors import RenderingError

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
Value: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=9)]
Cell: TypeAlias = tuple[int, int]  # a row, counted from the top, and a column


class PopperStatic(msgspec.Struct, frozen=True):
    """What stays the same during an episode."""

    height: Positive
    columns: Positive
    duration_ms: Positive


class Popped(msgspec.Struct, frozen=True):
    """The cells that a step removed: `count` of them from `row` downwards."""

    column: Count
    row: Count
    count: Positive
    value: Annotated[int, msgspec.Meta(ge=1, le=9)]


class PopperFrame(msgspec.Struct, frozen=True):
    """What changes with every step."""

    step: Count
    total_reward: float
    state: Literal["ready", "terminated", "truncated"]
    board: list[list[Value]]
    score: Count
    time_left_ms: Count
    fall_interval_ms: Positive
    next_fall_ms: Count
    held: Count | None = None
    popped: Popped | None = None
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class PopperScene:
    """A whole scene, and what pictures ask of it."""

    static: PopperStatic
    frame: PopperFrame

    @property
    def time_share(self) -> float:
        """How much of the time is left, in [0, 1]."""
        return min(self.frame.time_left_ms / self.static.duration_ms, 1.0)

    @property
    def fall_share(self) -> float:
        """How much of the wait for the next fall is left, in [0, 1]."""
        return min(self.frame.next_fall_ms / self.frame.fall_interval_ms, 1.0)

    @property
    def endangered(self) -> bool:
        """Whether a column is full, so that the next fall ends the game."""
        return any(self.frame.board[-1])

    @property
    def held(self) -> Cell | None:
        """Where the held block is: the lowest of its column."""
        column = self.frame.held
        return None if column is None else (self.depth(column) - 1, column)

    def depth(self, column: int) -> int:
        """Return how many rows the column's stack reaches down."""
        rows = range(self.static.height, 0, -1)
        return next((row for row in rows if self.frame.board[row - 1][column]), 0)

    def burst(self) -> Iterator[tuple[Cell, int]]:
        """Yield the cells that this step emptied and nothing has filled since, each with the number it had."""
        popped = self.frame.popped
        if popped is not None:
            cells = ((popped.row + below, popped.column) for below in range(popped.count))
            yield from ((cell, popped.value) for cell in cells if not self.frame.board[cell[0]][cell[1]])


def read_scene(scene: Mapping[str, Any]) -> PopperScene:
    """Return the scene's parts; anything but a scene of Column Popper is a RenderingError."""
    seen = PopperScene(
        read_part(scene, "static", PopperStatic, owner="popper's"),
        read_part(scene, "frame", PopperFrame, owner="popper's"),
    )
    for problem, expected in _find_contradictions(seen.static, seen.frame):
        raise RenderingError(f"no popper's scene: {problem}", found=scene, expected=expected)
    return seen


def _find_contradictions(static: PopperStatic, frame: PopperFrame) -> Iterator[tuple[str, str]]:
    if len(frame.board) != static.height or any(len(row) != static.columns for row in frame.board):
        yield "the board has another size", f"{static.height} rows of {static.columns} numbers"
    if frame.held is not None and not (frame.held < static.columns and any(row[frame.held] for row in frame.board)):
        yield "nothing to hold there", f"a column below {static.columns} with a block in it"
    popped = frame.popped
    if popped is not None and not (popped.column < static.columns and popped.row + popped.count <= static.height):
        yield "popped outside the board", f"cells of {static.height} rows and {static.columns} columns"


BLOCKS: Final[Mapping[int, Colour]] = {
    1: (118, 209, 255),
    2: (232, 187, 39),
    3: (3, 143, 126),
    4: (237, 47, 26),
    5: (206, 255, 246),
    6: (143, 78, 250),
    7: (214, 120, 201),
    8: (250, 231, 122),
    9: (140, 62, 151),
}
WHITE: Final[Colour] = (255, 255, 255)
SLOT: Final[Colour] = (18, 20, 40)
DANGER_SLOT: Final[Colour] = (56, 18, 30)
FAINT: Final[Colour] = (104, 112, 150)
RAIL: Final[Colour] = (58, 62, 90)
AMBER: Final[Colour] = (255, 184, 32)
RED: Final[Colour] = (255, 64, 72)
CALM: Final[Colour] = (112, 226, 255)
HURRY: Final = 0.2  # the share of the time from which on the clock is amber


@dataclass(frozen=True, slots=True)
class GameEnd:
    """How a game ended, in a word and a colour."""

    words: str
    colour: Colour


FAULTS: Final = {"overflow": "overflow", "invalid_full_drop": "full column", None: "game over"}


def find_game_end(frame: PopperFrame) -> GameEnd | None:
    """Return how the game ended, or None while it goes on."""
    if frame.state == "ready":
        return None
    lost = GameEnd(FAULTS.get(frame.fault, FAULTS[None]), RED)
    return GameEnd("time up", AMBER) if frame.state == "truncated" else lost


def digit_colour(value: int) -> Colour:
    """Return the colour of the number on a block: dark on bright blocks, white on the others."""
    red, green, blue = ((part / 255.0) ** 2.2 for part in BLOCKS[value])
    return SHADE if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 else WHITE


# -------------------------------------------------------------------------------------------------------------- blocks
VALUES: Final = 10  # the numbers that a cell can hold, nothing included
REACH: Final = 12  # pixels that a held block's glow and a burst reach beyond the cell
RAYS: Final = 10
TINTED: Final = 0.25  # the share of a tint
GLOW: Final = 5  # layers of a held block's glow


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


def draw_block(sketch: Sketch, cell: CellSize, middle: Point, value: int) -> None:
    """Draw a block: a dark lip, the face, light from above, and the number."""
    (across, down), (x, y), colour = cell.half, middle, BLOCKS[value]
    lip = max(1.0, 0.06 * cell.height)
    face = (x, y - lip / 2.0)
    red, green, blue = (int(0.55 * part) for part in colour)
    sketch.slab(surround(middle, cell.half), cell.radius, (red, green, blue))
    sketch.slab(surround(face, (across, down - lip / 2.0)), cell.radius, colour)
    light = surround((x, y - down * 0.52), (across - 2.0, down * 0.36))
    sketch.slab(light, cell.radius * 0.8, WHITE, 0.13)
    sketch.text(face, str(value), max(7, round(0.5 * cell.height)), digit_colour(value))


@lru_cache(maxsize=16)
def make_tiles(cell: CellSize, tint: Colour | None = None) -> Picture:
    """Return the tile of every number, (20, height, width, 3): the last ten are those of the danger row.

    A `tint` is mixed into all of them, so that a whole board costs no more than one without.
    """
    tiles = []
    middle = (cell.width / 2.0, cell.height / 2.0)
    for slot in (SLOT, DANGER_SLOT):
        for value in range(VALUES):
            sketch = Sketch(cell.width, cell.height)
            sketch.slab(surround(middle, cell.half), cell.radius, slot)
            if value:
                draw_block(sketch, cell, middle, value)
            tile = Image.new("RGB", sketch.image.size, GROUND)
            tile.paste(sketch.image, mask=sketch.image)
            tiles.append(np.array(tile))
    made = np.stack(tiles)
    if tint is not None:
        made = (made * (1.0 - TINTED) + np.array(tint) * TINTED + 0.5).astype(np.uint8)
    made.setflags(write=False)
    return made


@lru_cache(maxsize=256)
def make_held_sprite(cell: CellSize, value: int) -> Image.Image:
    """Return a block pulled out of its place: glowing, framed in white and with a pointer beneath."""
    width, height = cell.width + 2 * cell.reach, cell.height + 2 * cell.reach
    sketch, middle = Sketch(width, height), (width / 2.0, height / 2.0 + max(1, cell.height // 10))
    frame = 2.0 if cell.height >= 20 else 1.0
    glow = [(1.0 + (cell.reach - 3.0) * layer / GLOW, BLOCKS[value], 0.16) for layer in range(GLOW, 0, -1)]
    for grown, colour, opacity in (*glow, (frame, WHITE, 1.0)):
        sketch.slab(surround(middle, cell.half, grown), cell.radius + grown, colour, opacity)
    draw_block(sketch, cell, middle, value)
    tall = max(2.0, 0.4 * cell.reach)
    corners = [(middle[0] + tall * x, height - tall * y) for x, y in ((-1.2, 0.3), (0.0, 1.7), (1.2, 0.3))]
    sketch.polygon(corners, WHITE)
    return sketch.image


@lru_cache(maxsize=256)
def make_burst_sprite(cell: CellSize, value: int) -> Image.Image:
    """Return the outline of a block that has popped, fading outwards, with rays."""
    width, height = cell.width + 2 * cell.reach, cell.height + 2 * cell.reach
    sketch, middle, colour = Sketch(width, height), (width / 2.0, height / 2.0), BLOCKS[value]
    sketch.slab(surround(middle, cell.half, -1.0), cell.radius, colour, 0.14)
    for share, opacity in ((0.0, 0.9), (0.38, 0.4), (0.76, 0.16)):
        grown = share * (cell.reach - 2.0)
        sketch.slab(surround(middle, cell.half, grown), cell.radius + grown, colour, opacity, line=1.6)
    rays = []
    for ray in range(RAYS):
        angle = math.tau * ray / RAYS
        x, y = cell.half[0] * math.cos(angle), cell.half[1] * math.sin(angle)
        rays.append((middle[0] + 0.42 * x, middle[1] + 0.42 * y, middle[0] + 0.72 * x, middle[1] + 0.72 * y))
    sketch.lines(rays, MARK, 0.7, 0.06 * cell.height)
    return sketch.image


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


@lru_cache(maxsize=1024)
def make_text_mask(text: str, height: int, room: int = PANEL_WIDTH) -> Image.Image:
    """Return the text's pixels, in smaller letters where it would not fit into `room`, and cut where these do not either."""
    wide = load_font(height).getlength(text)
    font = load_font(min(height, max(SMALLEST_LETTER, int(height * room / max(wide, 1.0)))))
    mask = Image.new("L", (min(room, math.ceil(font.getlength(text))), height + 4))
    ImageDraw.Draw(mask).text((0, height + 1), text, 255, font, anchor="ls")
    return mask


@lru_cache(maxsize=64)
def _make_slab(width: int, height: int, colour: Colour) -> Image.Image:
    sketch = Sketch(width, height)
    sketch.slab((0.0, 0.0, width, height), min(height / 2.0, 8.0), colour)
    return sketch.image


@lru_cache(maxsize=16)
def _make_block(value: int) -> Image.Image:
    sketch = Sketch(HELD_CELL.width, HELD_CELL.height)
    draw_block(sketch, HELD_CELL, (HELD_CELL.width / 2.0, HELD_CELL.height / 2.0), value)
    return sketch.image


@lru_cache(maxsize=16)
def _make_banner(ended: GameEnd) -> Image.Image:
    banner = _make_slab(PANEL_WIDTH, VERDICT_HEIGHT, ended.colour).copy()
    words = make_text_mask(ended.words.upper(), 16, PANEL_WIDTH - 16)
    banner.paste(SHADE, ((PANEL_WIDTH - words.width) // 2, (VERDICT_HEIGHT - words.height) // 2), words)
    return banner


def _draw_values(picture: Image.Image, seen: PopperScene, left: int, top: int) -> None:
    """Draw what the frame says."""
    picture.paste(MARK, (left, top + SCORE_TOP), make_text_mask(str(seen.frame.score), SCORE_HEIGHT))
    for line in LINES:
        mask = make_text_mask(line.text(seen), LABEL, NUMBER_WIDTH)
        picture.paste(MARK, (left + PANEL_WIDTH - mask.width, top + line.top), mask)
    for bar in BARS:
        whole = _make_slab(PANEL_WIDTH, BAR_HEIGHT, bar.colour(seen))
        _paste(picture, whole.crop((0, 0, round(PANEL_WIDTH * bar.share(seen)), BAR_HEIGHT)), left, top + bar.top)
    if seen.held is not None:
        row, column = seen.held
        block = _make_block(seen.frame.board[row][column])
        _paste(picture, block, left + PANEL_WIDTH - HELD_CELL.width, top + HELD_TOP)
    ended = find_game_end(seen.frame)
    if ended is not None:
        _paste(picture, _make_banner(ended), left, top + VERDICT_TOP)


def _paste(picture: Image.Image, sprite: Image.Image, left: int, top: int) -> None:
    picture.paste(sprite, (left, top), sprite)


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


def draw(scene: Mapping[str, Any]) -> Picture:
    """Return the picture of a scene: a fresh uint8 array of shape (height, width, 3), both even."""
    seen = read_scene(scene)
    layout = make_layout(seen.static.height, seen.static.columns)
    picture = _draw_backdrop(layout).copy()
    _draw_board(picture, layout, seen)
    _draw_values(picture, seen, *layout.panel)
    return np.array(picture)


@lru_cache(maxsize=16)
def make_layout(rows: int, columns: int) -> BoardLayout:
    """Return the layout of a board: cells are as large as the picture's usual size allows, 5 wide by 4 high."""
    side = min(max(min(INNER // rows, BROAD * 4 // (5 * columns)), SMALLEST), LARGEST) // 2 * 2
    return BoardLayout(rows, columns, CellSize(side * 5 // 8 * 2, side))


@lru_cache(maxsize=16)
def _draw_backdrop(layout: BoardLayout) -> Image.Image:
    """Return the board's frame (a ceiling that the stacks hang from, and a red floor) and the panel without its numbers."""
    picture = Image.new("RGB", (layout.width, layout.height), GROUND)
    width, height = layout.board
    pen = ImageDraw.Draw(picture)
    pen.rounded_rectangle(
        (MARGIN - FRAME, MARGIN - FRAME, MARGIN + width + FRAME - 1, MARGIN + height + FRAME - 1),
        6,
        outline=RAIL,
        width=2,
    )
    for edge, colour in ((MARGIN - FRAME + 1, BORDER), (MARGIN + height + 1, RED)):
        pen.rectangle((MARGIN, edge, MARGIN + width - 1, edge + FRAME - 2), colour)
    if layout.cell.width >= NUMBERED:
        for column in range(layout.columns):
            left, top = layout.place(layout.rows, column)
            mask = make_text_mask(str(column), min(LABEL, layout.cell.width // 2))
            picture.paste(FAINT, (left + (layout.cell.width - mask.width) // 2, top + FOOT - 16), mask)
    left, top = layout.panel
    for label, below in (("score", 0), ("held", HELD_TOP), *((line.label, line.top) for line in LINES)):
        picture.paste(FAINT, (left, top + below), make_text_mask(label.upper(), LABEL))
    for bar in BARS:
        _paste(picture, _make_slab(PANEL_WIDTH, BAR_HEIGHT, SLOT), left, top + bar.top)
    held = _make_slab(HELD_CELL.width, HELD_CELL.height, SLOT)
    _paste(picture, held, left + PANEL_WIDTH - HELD_CELL.width, top + HELD_TOP)
    return picture


def _draw_board(picture: Image.Image, layout: BoardLayout, seen: PopperScene) -> None:
    """Put the tiles, then the sprites of what popped and of what is held."""
    numbers = np.array(seen.frame.board)
    cell, held, ended = layout.cell, seen.held, find_game_end(seen.frame)
    sprites = [(place, make_burst_sprite(cell, popped)) for place, popped in seen.burst()]
    if held is not None:
        sprites.append((held, make_held_sprite(cell, int(numbers[held]))))
        numbers[held] = 0
    numbers[-1] += VALUES
    tiles = make_tiles(cell, None if ended is None else ended.colour)[numbers].swapaxes(1, 2)
    picture.paste(Image.fromarray(tiles.reshape(*layout.board[::-1], 3)), (MARGIN, MARGIN))
    for place, sprite in sprites:
        left, top = layout.place(*place)
        _paste(picture, sprite, left - cell.reach, top - cell.reach)
