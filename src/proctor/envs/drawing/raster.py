"""Smooth marks, figures and letters on a picture, and the typed parts of a scene, for every environment that draws.

Rule 1: a mark is a signed distance in pixels (negative inside, y up), so that its edge is smooth at any size.
Rule 2: rows of a picture count downwards; only `stamp` and `paste` know that.
Rule 3: what is drawn again and again is captured once as a `Sprite` and pasted where it is needed.
Rule 4: a glyph is a row of `STROKES`: points "xy" on a grid of 7 columns and 10 rows, the lowest left being 00. A stroke
    that starts with "~" is a smooth curve through its ends, one with "o" is a smooth loop; others are straight. Figures
    are all as wide as the grid, so that a running number does not tremble.
Rule 5: a scene comes from outside (a file, a socket): whatever does not fit is a RenderingError, never a strange picture.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from proctor.errors import RenderingError

_Part = TypeVar("_Part")


def read_part(scene: Mapping[str, Any], part: str, kind: type[_Part], *, owner: str) -> _Part:
    """Return `scene[part]` as a `kind`; `owner` says in the RenderingError whose scene was expected."""
    try:
        return msgspec.convert(scene[part], kind)
    except (KeyError, TypeError, msgspec.ValidationError) as problem:
        raise RenderingError(f"no {owner} scene: {problem}", found=scene, expected=f"a scene with {part!r}") from None


Picture: TypeAlias = NDArray[np.uint8]
Floats: TypeAlias = NDArray[np.floating[Any]]
Colour: TypeAlias = tuple[int, int, int]
Point: TypeAlias = tuple[float, float]
Distance: TypeAlias = Callable[[Floats, Floats], Floats]

SHADE: Final[Colour] = (8, 8, 20)
"""The colour of outlines."""
GROUND: Final[Colour] = (7, 8, 16)
BORDER: Final[Colour] = (104, 112, 150)
MARK: Final[Colour] = (236, 248, 255)


class Size(Protocol):
    """Anything with a width and a height in pixels."""

    @property
    def width(self) -> int:
        """Pixels across."""

    @property
    def height(self) -> int:
        """Pixels down."""


@dataclass(frozen=True, slots=True)
class Brush:
    """How a shape is filled, and how wide and dense its dark outline is."""

    colour: Colour
    opacity: float = 1.0
    outline: float = 1.5
    shade: float = 0.75


def flat_brush(colour: Colour, opacity: float = 1.0) -> Brush:
    """Return a brush that only fills."""
    return Brush(colour, opacity, outline=0.0, shade=0.0)


@dataclass(frozen=True, slots=True)
class Ink:
    """Pixels to change: the flat positions `at` become `keep` of what they were, plus `add`."""

    at: NDArray[np.intp]
    keep: Floats
    add: Floats


@dataclass(frozen=True, slots=True)
class Canvas:
    """An empty picture's size in pixels."""

    width: int
    height: int

    @property
    def middle(self) -> Point:
        """The centre, which may lie between pixels."""
        return self.width / 2.0, self.height / 2.0


@dataclass(frozen=True, slots=True)
class Sprite:
    """A small drawing for any ground: a pixel under it becomes `keep` of what it was, plus `add`; (height, width, 3)."""

    keep: Floats
    add: Floats


def distance_to_line(dx: Floats, dy: Floats, x: Floats | float, y: Floats | float) -> Floats:
    """Return the distance of (dx, dy) to the line from the origin to (x, y)."""
    share = np.clip((dx * x + dy * y) / (x * x + y * y), 0.0, 1.0)
    return np.hypot(dx - x * share, dy - y * share)


def stamp(picture: Size, place: Point, reach: float, distance: Distance, brush: Brush) -> Ink:
    """Return the ink of a shape around `place`; nothing is evaluated farther away than `reach`."""
    columns, rows = (
        np.arange(max(0, math.floor(centre - reach)), min(limit, math.ceil(centre + reach)))
        for centre, limit in zip(place, (picture.width, picture.height), strict=True)
    )
    gap = distance(columns + 0.5 - place[0], place[1] - rows[:, None] - 0.5)
    row, column = np.nonzero(gap < brush.outline + 0.5)
    near = gap[row, column]
    fill = np.clip(0.5 - near, 0.0, 1.0) * brush.opacity
    dark = np.clip(0.5 + brush.outline - near, 0.0, 1.0) * brush.shade
    return blend(rows[row] * picture.width + columns[column], fill, dark, brush.colour)


def blend(at: NDArray[np.intp], fill: Floats, dark: Floats, colour: Colour) -> Ink:
    """Return the ink that lays `dark` of the shade, then `fill` of the colour."""
    below = dark * (1.0 - fill)
    return Ink(at, 1.0 - fill - below, np.outer(fill, colour) + np.outer(below, SHADE))


def apply_ink(picture: Picture, ink: Ink) -> None:
    """Change the ink's pixels of `picture`."""
    pixels = picture.reshape(-1, 3)
    pixels[ink.at] = (pixels[ink.at] * ink.keep[:, None] + ink.add + 0.5).astype(np.uint8)


def capture(canvas: Canvas, inks: Iterable[Ink]) -> Sprite:
    """Return what the inks do to a picture of the canvas's size, learned from a black ground and a white one."""
    black, white = (np.full((canvas.height, canvas.width, 3), level, np.uint8) for level in (0, 255))
    for ink in inks:
        apply_ink(black, ink)
        apply_ink(white, ink)
    return Sprite((white - black).astype(np.float32) / 255.0, black.astype(np.float32) + 0.5)


def paste(picture: Picture, sprite: Sprite, left: int, top: int) -> None:
    """Draw the sprite with its upper left pixel at (left, top); it must lie inside the picture."""
    height, width, _ = sprite.keep.shape
    room = picture[top : top + height, left : left + width]
    room[:] = room * sprite.keep + sprite.add


def disc(dx: Floats, dy: Floats, radius: float) -> Floats:
    """Return the distance to a disc."""
    gap: Floats = np.hypot(dx, dy) - radius
    return gap


def ring(dx: Floats, dy: Floats, radii: Point, half: float) -> Floats:
    """Return the distance to a line of width 2 * `half` along an ellipse; exact for a circle."""
    dx = dx + 1e-9  # the centre itself has no direction
    scaled = np.hypot(dx / radii[0], dy / radii[1])
    slope = np.hypot(dx / radii[0] ** 2, dy / radii[1] ** 2)
    gap: Floats = np.abs(scaled * (scaled - 1.0) / slope) - half
    return gap


def rectangle(dx: Floats, dy: Floats, half: Point, radius: float) -> Floats:
    """Return the distance to a rectangle of half sides `half` whose corners are rounded."""
    across, up = np.abs(dx) - half[0] + radius, np.abs(dy) - half[1] + radius
    gap: Floats = np.hypot(np.maximum(across, 0.0), np.maximum(up, 0.0)) + np.minimum(np.maximum(across, up), 0.0)
    return gap - radius


def polygon(dx: Floats, dy: Floats, corners: Floats) -> Floats:
    """Return the distance to a polygon, convex or not: the nearest edge, and inside by even and odd crossings."""
    nearest: Floats = np.full(np.broadcast(dx, dy).shape, np.inf)
    inside = np.zeros(nearest.shape, bool)
    for (x, y), (next_x, next_y) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        nearest = np.minimum(nearest, distance_to_line(dx - x, dy - y, next_x - x, next_y - y))
        spans = (y > dy) != (next_y > dy)
        inside = inside ^ (spans & (dx < (next_x - x) * (dy - y) / (next_y - y or 1.0) + x))
    return np.where(inside, -nearest, nearest)


def rotate(corners: Floats, angle: float) -> Floats:
    """Return the corners turned by `angle` (radians) around the origin."""
    cos, sin = math.cos(angle), math.sin(angle)
    return np.stack((corners[:, 0] * cos - corners[:, 1] * sin, corners[:, 0] * sin + corners[:, 1] * cos), axis=1)


GRID: Final = (6.0, 9.0)
SPACE: Final = 3.0  # grid units of a blank
BETWEEN: Final = 3.2  # grid units between two glyphs
WEIGHT: Final = 0.13  # a stroke's width, as a share of the height
ROUNDS: Final = 3  # how often a curve's corners are cut

STROKES: Final[Mapping[str, tuple[str, ...]]] = {
    "0": ("o 00 60 63 66 69 09 06 03",),
    "1": ("17 39 30", "10 50"),
    "2": ("~ 07 09 69 65 00", "00 60"),
    "3": ("~ 08 19 59 55 25", "~ 25 65 60 00 01"),
    "4": ("40 49 03 63",),
    "5": ("59 19 05", "~ 05 16 66 60 00 01"),
    "6": ("o 00 60 65 05", "~ 03 09 39 58"),
    "7": ("09 69 20",),
    "8": ("o 15 55 59 19", "o 00 60 65 05"),
    "9": ("o 04 64 69 09", "~ 66 60 30 11"),
    "A": ("00 39 60", "13 53"),
    "B": ("00 09", "~ 09 59 55 05", "~ 05 65 60 00"),
    "C": ("~ 68 69 09 06 03 00 60 61",),
    "D": ("00 09", "~ 09 39 69 60 30 00"),
    "E": ("50 00 09 59", "05 45"),
    "F": ("00 09 59", "05 45"),
    "G": ("~ 68 69 09 06 03 00 60 64", "34 64"),
    "H": ("00 09", "60 69", "05 65"),
    "I": ("30 39",),
    "J": ("~ 59 53 50 00 02",),
    "K": ("00 09", "69 03", "25 60"),
    "L": ("09 00 50",),
    "M": ("00 09 34 69 60",),
    "N": ("00 09 60 69",),
    "O": ("o 00 60 63 66 69 09 06 03",),
    "P": ("00 09", "~ 09 69 64 04"),
    "Q": ("o 00 60 63 66 69 09 06 03", "32 60"),
    "R": ("00 09", "~ 09 69 64 04", "34 60"),
    "S": ("~ 68 69 09 05 65 60 00 01",),
    "T": ("09 69", "39 30"),
    "U": ("~ 09 03 00 60 63 69",),
    "V": ("09 30 69",),
    "W": ("09 10 36 50 69",),
    "X": ("00 69", "09 60"),
    "Y": ("09 34 69", "34 30"),
    "Z": ("09 69 00 60",),
    "-": ("14 54",),
    "+": ("14 54", "32 36"),
    ".": ("30 31",),
    " ": (),
}


def text_mask(text: str, height: int) -> Floats:
    """Return how much of each pixel the text covers, in [0, 1]; `height` is that of a letter in pixels.

    A character that is not in `STROKES` is left blank. The mask is shared: it must not be changed.
    """
    return _line(text.upper(), height)


def write_text(picture: Picture, mask: Floats, left: int, top: int, colour: Colour) -> None:
    """Put a mask's text on the picture in `colour`; it must lie inside the picture."""
    room = picture[top : top + mask.shape[0], left : left + mask.shape[1]]
    cover = mask[..., None]
    room[:] = room + cover * (np.array(colour, np.float32) - room) + np.float32(0.5)


def text_ink(picture: Size, mask: Floats, left: int, top: int, colour: Colour) -> Ink:
    """Return the ink that writes a mask's text; it must lie inside the picture."""
    row, column = np.nonzero(mask)
    return blend((row + top) * picture.width + column + left, mask[row, column], np.zeros(row.shape), colour)


@lru_cache(maxsize=1024)
def _line(text: str, height: int) -> Floats:
    line: Floats = np.concatenate([_glyph(sign, height) for sign in text or " "], axis=1)
    line.setflags(write=False)
    return line


@lru_cache(maxsize=1024)
def _glyph(sign: str, height: int) -> Floats:
    """Return the coverage of one glyph, half of the space between two on either side of it."""
    pieces = _pieces(sign)
    half = max(WEIGHT * height / 2.0, 0.55)
    unit = (height - 2.0 * half) / GRID[1]
    left, right = _extent(sign, pieces)
    width = max(1, round((right - left + BETWEEN) * unit))
    columns = (np.arange(width) + 0.5) / unit - BETWEEN / 2.0 + left
    rows = (height + 0.5 - half - np.arange(height + 2)[:, None]) / unit
    nearest = np.full((height + 2, width), np.inf)
    for (x, y), (end_x, end_y) in pieces:
        nearest = np.minimum(nearest, distance_to_line(columns - x, rows - y, end_x - x, end_y - y))
    cover: Floats = np.clip(half + 0.5 - nearest * unit, 0.0, 1.0).astype(np.float32)
    return cover


def _extent(sign: str, pieces: Floats) -> tuple[float, float]:
    if sign.isdigit():
        return 0.0, GRID[0]
    return (float(pieces[..., 0].min()), float(pieces[..., 0].max())) if len(pieces) else (0.0, SPACE)


def _pieces(sign: str) -> Floats:
    """Return the straight pieces of a glyph: (count, 2 ends, 2 coordinates)."""
    lines = [_points(stroke) for stroke in STROKES.get(sign, ())]
    return np.concatenate([np.stack((line[:-1], line[1:]), axis=1) for line in lines] or [np.empty((0, 2, 2))])


def _points(stroke: str) -> Floats:
    kind = stroke[0] if stroke[0] in "~o" else ""
    points: Floats = np.array([[int(at[0]), int(at[1])] for at in stroke.removeprefix(kind).split()], np.float64)
    if kind == "o":
        points = np.concatenate((points, points[:1]))
    for _ in range(ROUNDS if kind else 0):
        points = _cut(points, closed=kind == "o")
    return points


def _cut(points: Floats, *, closed: bool) -> Floats:
    """Return the line with every corner cut at a quarter of its sides; the ends of an open line stay."""
    start, end = points[:-1], points[1:]
    cut = np.stack((0.75 * start + 0.25 * end, 0.25 * start + 0.75 * end), axis=1).reshape(-1, 2)
    first, last = (cut[-1:], cut[:0]) if closed else (points[:1], points[-1:])
    return np.concatenate((first, cut, last))
