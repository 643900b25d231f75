"""Figures and capital letters for pictures, drawn as strokes at any size.

Rule 1: a glyph is a row of `STROKES`: points "xy" on a grid of 7 columns and 10 rows, the lowest left being 00.
Rule 2: a stroke that starts with "~" is a smooth curve through its ends, one with "o" is a smooth loop; others are straight.
Rule 3: figures are all as wide as the grid, so that a running number does not tremble.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import numpy as np

from proctor.envs.ink import Colour, Floats, Ink, Picture, Size, blend, gap_to_line

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


def write(picture: Picture, mask: Floats, left: int, top: int, colour: Colour) -> None:
    """Put a mask's text on the picture in `colour`; it must lie inside the picture."""
    room = picture[top : top + mask.shape[0], left : left + mask.shape[1]]
    cover = mask[..., None]
    room[:] = room + cover * (np.array(colour, np.float32) - room) + np.float32(0.5)


def as_ink(picture: Size, mask: Floats, left: int, top: int, colour: Colour) -> Ink:
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
        nearest = np.minimum(nearest, gap_to_line(columns - x, rows - y, end_x - x, end_y - y))
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
