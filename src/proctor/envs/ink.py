"""Smooth marks on a picture, for every environment that draws.

Rule 1: a mark is a signed distance in pixels (negative inside, y up), so that its edge is smooth at any size.
Rule 2: rows of a picture count downwards; only `stamp` and `paste` know that.
Rule 3: what is drawn again and again is captured once as a `Sprite` and pasted where it is needed.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

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


def flat(colour: Colour, opacity: float = 1.0) -> Brush:
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


@dataclass(frozen=True, slots=True)
class Sprite:
    """A small drawing for any ground: a pixel under it becomes `keep` of what it was, plus `add`; (height, width, 3)."""

    keep: Floats
    add: Floats


def gap_to_line(dx: Floats, dy: Floats, x: Floats | float, y: Floats | float) -> Floats:
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


def lay(picture: Picture, ink: Ink) -> None:
    """Change the ink's pixels of `picture`."""
    pixels = picture.reshape(-1, 3)
    pixels[ink.at] = (pixels[ink.at] * ink.keep[:, None] + ink.add + 0.5).astype(np.uint8)


def capture(canvas: Canvas, inks: Iterable[Ink]) -> Sprite:
    """Return what the inks do to a picture of the canvas's size, learned from a black ground and a white one."""
    black, white = (np.full((canvas.height, canvas.width, 3), level, np.uint8) for level in (0, 255))
    for ink in inks:
        lay(black, ink)
        lay(white, ink)
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


def slab(dx: Floats, dy: Floats, half: Point, radius: float) -> Floats:
    """Return the distance to a rectangle of half sides `half` whose corners are rounded."""
    across, up = np.abs(dx) - half[0] + radius, np.abs(dy) - half[1] + radius
    gap: Floats = np.hypot(np.maximum(across, 0.0), np.maximum(up, 0.0)) + np.minimum(np.maximum(across, up), 0.0)
    return gap - radius


def polygon(dx: Floats, dy: Floats, corners: Floats) -> Floats:
    """Return the distance to a polygon, convex or not: the nearest edge, and inside by even and odd crossings."""
    nearest: Floats = np.full(np.broadcast(dx, dy).shape, np.inf)
    inside = np.zeros(nearest.shape, bool)
    for (x, y), (next_x, next_y) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        nearest = np.minimum(nearest, gap_to_line(dx - x, dy - y, next_x - x, next_y - y))
        spans = (y > dy) != (next_y > dy)
        inside = inside ^ (spans & (dx < (next_x - x) * (dy - y) / (next_y - y or 1.0) + x))
    return np.where(inside, -nearest, nearest)


def turned(corners: Floats, angle: float) -> Floats:
    """Return the corners turned by `angle` (radians) around the origin."""
    cos, sin = math.cos(angle), math.sin(angle)
    return np.stack((corners[:, 0] * cos - corners[:, 1] * sin, corners[:, 0] * sin + corners[:, 1] * cos), axis=1)
