"""What pictures share: typed parts of a scene, smooth marks and letters, and styles for terminals.

Rule 1: a `Sketch` is drawn by Pillow, `SMOOTH` times as large, so its edges are smooth at any size, and its marks move by less
    than a pixel.
Rule 2: a scene comes from outside (a file, a socket): whatever does not fit is a RenderingError, never a strange picture.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, TypeAlias, TypeVar

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

SHADE: Final[Colour] = (8, 8, 20)  # the colour of outlines
GROUND: Final[Colour] = (7, 8, 16)
BORDER: Final[Colour] = (104, 112, 150)
MARK: Final[Colour] = (236, 248, 255)


Box: TypeAlias = tuple[float, float, float, float]  # left, top, right and bottom in pixels
SMOOTH: Final = 4
CAPITAL: Final = 0.7  # how high a capital or a figure of Pillow's font is, as a share of the font's size


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
        with self._mark(colour) as mask:
            mask.rounded_rectangle(_enlarge(box), SMOOTH * radius, **_style(opacity, line))

    def ellipse(self, box: Box, colour: Colour, opacity: float = 1.0, line: float = 0.0) -> None:
        """Draw an ellipse; with `line` its outline alone, so wide, inside the box."""
        with self._mark(colour) as mask:
            mask.ellipse(_enlarge(box), **_style(opacity, line))

    def lines(self, lines: Sequence[Box], colour: Colour, opacity: float, width: float) -> None:
        """Draw straight lines, each from its first point to its second."""
        with self._mark(colour) as mask:
            for line in lines:
                mask.line([SMOOTH * at for at in line], round(255 * opacity), round(SMOOTH * width))

    def polygon(self, corners: Sequence[Point], colour: Colour, opacity: float = 1.0, grown: float = 0.0) -> None:
        """Draw a polygon that is `grown` by so many pixels."""
        points, ink = [(SMOOTH * x, SMOOTH * y) for x, y in corners], round(255 * opacity)
        with self._mark(colour) as mask:
            mask.polygon(points, ink)
            if grown:
                mask.line([*points, *points[:2]], ink, round(2 * SMOOTH * grown), joint="curve")

    def text(self, middle: Point, text: str, height: int, colour: Colour) -> None:
        """Write figures or capitals of this height on what has been drawn."""
        x, y = middle
        ImageDraw.Draw(self.image).text((x, y + height / 2.0), text, colour, load_font(height), anchor="ms")


def _enlarge(box: Box) -> Box:
    left, top, right, bottom = (SMOOTH * side for side in box)
    return left, top, right - 1, bottom - 1


def _style(opacity: float, line: float) -> dict[str, Any]:
    ink = round(255 * opacity)
    return {"outline": ink, "width": round(SMOOTH * line)} if line else {"fill": ink}


def surround(middle: Point, half: Point, by: float = 0.0) -> Box:
    """Return the box around `middle`, grown by some pixels on each side."""
    (x, y), (across, down) = middle, half
    return x - across - by, y - down - by, x + across + by, y + down + by


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
