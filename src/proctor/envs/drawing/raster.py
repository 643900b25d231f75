"""What pictures share: typed parts of a scene, smooth marks and letters, and styles for terminals.

Rule 1: a `Sketch` is drawn by Pillow, `SMOOTH` times as large, and so has smooth edges at any size.
Rule 2: a `stamp` is a signed distance in pixels (negative inside, y up), for what moves by less than a pixel.
Rule 3: a scene comes from outside (a file, a socket): whatever does not fit is a RenderingError, never a strange picture.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from rich.color import Color
from rich.console import Console, ConsoleOptions
from rich.style import Style

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


@dataclass(frozen=True, slots=True)
class Ink:
    """Pixels to change: the flat positions `at` become `keep` of what they were, plus `add`."""

    at: NDArray[np.intp]
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


Box: TypeAlias = tuple[float, float, float, float]
"""Left, top, right and bottom in pixels."""
SMOOTH: Final = 4
CAPITAL: Final = 0.7
"""How high a capital or a figure of Pillow's font is, as a share of the font's size."""


class Sketch:
    """A drawing on no ground, whose marks lie one over the other; `image` is RGBA."""

    def __init__(self, width: int, height: int) -> None:
        self.image = Image.new("RGBA", (width, height))

    @contextmanager
    def _mark(self, colour: Colour) -> Iterator[ImageDraw.ImageDraw]:
        """Yield what draws on a mask that is `SMOOTH` times as large; then lay the colour where the mask is white."""
        width, height = self.image.size
        mask = Image.new("L", (SMOOTH * width, SMOOTH * height))
        yield ImageDraw.Draw(mask)
        layer = Image.new("RGBA", self.image.size, colour)
        layer.putalpha(mask.reduce(SMOOTH))
        self.image.alpha_composite(layer)

    def slab(self, box: Box, radius: float, colour: Colour, opacity: float = 1.0, line: float = 0.0) -> None:
        """Draw a rectangle with round corners; with `line` its outline alone, so wide, inside the box."""
        left, top, right, bottom = (SMOOTH * side for side in box)
        ink, width = round(255 * opacity), round(SMOOTH * line)
        fill, outline = (None, ink) if line else (ink, None)
        with self._mark(colour) as mask:
            mask.rounded_rectangle((left, top, right - 1, bottom - 1), SMOOTH * radius, fill, outline, width)

    def lines(self, lines: Sequence[Box], colour: Colour, opacity: float, width: float) -> None:
        """Draw straight lines, each from its first point to its second."""
        with self._mark(colour) as mask:
            for line in lines:
                mask.line([SMOOTH * at for at in line], round(255 * opacity), round(SMOOTH * width))

    def polygon(self, corners: Sequence[Point], colour: Colour) -> None:
        """Draw a polygon."""
        with self._mark(colour) as mask:
            mask.polygon([(SMOOTH * x, SMOOTH * y) for x, y in corners], fill=255)

    def text(self, middle: Point, text: str, height: int, colour: Colour) -> None:
        """Write figures or capitals of this height on what has been drawn."""
        x, y = middle
        ImageDraw.Draw(self.image).text((x, y + height / 2.0), text, colour, load_font(height), anchor="ms")


@lru_cache(maxsize=64)
def load_font(height: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Return Pillow's own font with capitals of this height in pixels; its figures are all equally wide."""
    return ImageFont.load_default(height / CAPITAL)


def has_colours(console: Console, options: ConsoleOptions) -> bool:
    """Return whether the console shows colours and more than ASCII; any other gets plain text."""
    return console.color_system is not None and not console.no_color and not options.ascii_only


@lru_cache(maxsize=4096)
def style(colour: Colour, behind: Colour) -> Style:
    """Return the style of characters in `colour` with `behind` behind them."""
    return Style(color=Color.from_rgb(*colour), bgcolor=Color.from_rgb(*behind))
