"""The side panel of Column Popper's picture: score, clocks, the held block and the verdict.

Rule 1: what a line shows is a row of `LINES` or `BARS`; the places are pixels below the panel's upper edge.
Rule 2: labels and frames are drawn once (`fixed`); a frame adds numbers and bars (`fill`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

from proctor.envs.drawing.raster import (
    MARK,
    SHADE,
    Canvas,
    Colour,
    Floats,
    Ink,
    Picture,
    Sprite,
    capture,
    flat_brush,
    paste,
    rectangle,
    stamp,
    text_ink,
    text_mask,
    write_text,
)
from proctor.envs.popper.drawing.blocks import CellSize, draw_block
from proctor.envs.popper.drawing.palette import AMBER, CALM, FAINT, HURRY, RED, SLOT, GameEnd, find_game_end
from proctor.envs.popper.drawing.scene import PopperScene

WIDTH: Final = 152
HEIGHT: Final = 356
LABEL: Final = 10  # pixels of a small letter
SMALLEST: Final = 5  # pixels of the smallest letter
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


def draw_labels(picture: Picture, left: int, top: int) -> None:
    """Draw what every frame has: the labels, the empty bars and the empty place of the held block."""
    for label, below in (("score", 0), ("held", HELD_TOP), *((line.label, line.top) for line in LINES)):
        write_text(picture, text_mask(label, LABEL), left, top + below, FAINT)
    for bar in BARS:
        paste(picture, _slab(WIDTH, BAR_HEIGHT, SLOT), left, top + bar.top)
    paste(picture, _slab(HELD_CELL.width, HELD_CELL.height, SLOT), *_place_of_held_block(left, top))


def draw_values(picture: Picture, seen: PopperScene, left: int, top: int) -> None:
    """Draw what the frame says."""
    write_text(picture, _fit_text(str(seen.frame.score), SCORE_HEIGHT), left, top + SCORE_TOP, MARK)
    for line in LINES:
        mask = _fit_text(line.text(seen), LABEL, NUMBER_WIDTH)
        write_text(picture, mask, left + WIDTH - mask.shape[1], top + line.top, MARK)
    for bar in BARS:
        _fill_bar(picture, bar, seen, left, top)
    if seen.held is not None:
        row, column = seen.held
        paste(picture, _block(seen.frame.board[row][column]), *_place_of_held_block(left, top))
    ended = find_game_end(seen.frame)
    if ended is not None:
        paste(picture, _banner(ended), left, top + VERDICT_TOP)


def _fill_bar(picture: Picture, bar: PanelBar, seen: PopperScene, left: int, top: int) -> None:
    whole = _slab(WIDTH, BAR_HEIGHT, bar.colour(seen))
    reached = round(WIDTH * bar.share(seen))
    paste(picture, Sprite(whole.keep[:, :reached], whole.add[:, :reached]), left, top + bar.top)


def _place_of_held_block(left: int, top: int) -> tuple[int, int]:
    return left + WIDTH - HELD_CELL.width, top + HELD_TOP


@lru_cache(maxsize=1024)
def _fit_text(text: str, height: int, room: int = WIDTH) -> Floats:
    """Return the mask of the text, smaller where it would not fit into `room`, and cut where even that is not enough."""
    wide = text_mask(text, height).shape[1]
    return text_mask(text, min(height, max(SMALLEST, height * room // wide)))[:, :room]


@lru_cache(maxsize=64)
def _slab(width: int, height: int, colour: Colour) -> Sprite:
    canvas = Canvas(width, height)
    return capture(canvas, [_fill_canvas(canvas, colour)])


def _fill_canvas(canvas: Canvas, colour: Colour) -> Ink:
    middle = (canvas.width / 2.0, canvas.height / 2.0)
    shape = partial(rectangle, half=middle, radius=min(canvas.height / 2.0, 8.0))
    return stamp(canvas, middle, canvas.width, shape, flat_brush(colour))


@lru_cache(maxsize=16)
def _block(value: int) -> Sprite:
    canvas = Canvas(HELD_CELL.width, HELD_CELL.height)
    return capture(canvas, draw_block(canvas, HELD_CELL, (canvas.width / 2.0, canvas.height / 2.0), value))


@lru_cache(maxsize=16)
def _banner(ended: GameEnd) -> Sprite:
    canvas = Canvas(WIDTH, VERDICT_HEIGHT)
    words = _fit_text(ended.words, 16, WIDTH - 16)
    place = (WIDTH - words.shape[1]) // 2, (VERDICT_HEIGHT - words.shape[0]) // 2
    return capture(canvas, [_fill_canvas(canvas, ended.colour), text_ink(canvas, words, *place, SHADE)])
