"""Pictures of a plume search in a terminal, drawn from its scene alone.

Rule 1: a console with colours gets half blocks, two square pixels per character; any other gets plain ASCII.
Rule 2: +y is up and the colours are those of `render`.
Rule 3: a picture never takes more than the columns and rows it was given.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.segment import Segment

from proctor.envs.drawing.raster import MARK, Colour, Floats, Point, has_colours, style
from proctor.envs.plume.drawing.picture import (
    AGENT,
    TRAIL,
    PlumeFrame,
    PlumeStatic,
    paint_field,
    read_scene,
    tint,
    tone,
)

Cell: TypeAlias = tuple[str, Colour, Colour]
"""One character with its colour and the colour behind it."""

RAMP: Final = np.array(list(" .:-=+*#%@"))
ASCII_ARROWS: Final = ">^<v"
ARROWS: Final = "▶◥▲◤◀◣▼◢"
SOURCE: Final = "◉"
NARROW: Final = 8  # pixels of the shorter side, where there is room
BEHIND: Final = 0.3  # how bright the ground is behind a sign


@dataclass(frozen=True, slots=True)
class Raster:
    """A grid of cells seen as `width` by `height` pixels."""

    static: PlumeStatic
    width: int
    height: int

    @property
    def cell(self) -> Point:
        """The size of a cell in pixels, per axis."""
        return self.width / self.static.grid[0], self.height / self.static.grid[1]

    def place(self, at: Point) -> tuple[int, int]:
        """Return the row and the column of the pixel that shows the cell `at`."""
        column = int((at[0] + 0.5) * self.cell[0])
        row = self.height - 1 - int((at[1] + 0.5) * self.cell[1])
        return min(max(row, 0), self.height - 1), min(max(column, 0), self.width - 1)

    def values(self, frame: PlumeFrame) -> Floats:
        """Return the concentration at every pixel, the top row first."""
        xs = np.arange(0.5, self.width) / self.cell[0] - 0.5
        ys = np.arange(0.5, self.height) / self.cell[1] - 0.5
        return paint_field(self.static.field, frame.field, self.static.source, xs, ys)[::-1]

    def ring(self) -> NDArray[np.bool_]:
        """Return which pixels lie on the edge of the goal; none if the goal is hardly larger than a pixel."""
        row, column = self.place(self.static.source)
        wide, high = (max(self.static.goal_radius * size, 0.1) for size in self.cell)
        away = np.hypot((np.arange(self.width) - column) / wide, (np.arange(self.height)[:, None] - row) / high)
        return (np.abs(away - 1.0) * min(wide, high) < 0.5) & (min(wide, high) >= 1.0)


@dataclass(frozen=True, slots=True)
class PlumeText:
    """What rich draws; see `picture`."""

    static: PlumeStatic
    frame: PlumeFrame
    columns: int
    rows: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        raster = self._fit_raster(options.max_width)
        plain_lines = ([Segment(line)] for line in plain(raster, self.frame))
        for line in half_blocks(raster, self.frame) if has_colours(console, options) else plain_lines:
            yield from line
            yield Segment.line()

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        width = self._fit_raster(options.max_width).width
        return Measurement(width, width)

    def _fit_raster(self, room: int) -> Raster:
        """Return the largest raster of square pixels, two in a row of text, that fits; a thin grid is stretched."""
        grid, columns = self.static.grid, min(self.columns, room)
        scale = min(columns / grid[0], 2 * self.rows / grid[1])
        width, height = (max(NARROW, round(side * scale)) for side in grid)
        return Raster(self.static, min(width, columns), 2 * min((height + 1) // 2, self.rows))


def picture(scene: Mapping[str, Any], columns: int, rows: int) -> PlumeText:
    """Return something for rich to print: the scene on at most `columns` by `rows` characters, each at least 1."""
    return PlumeText(*read_scene(scene), max(columns, 1), max(rows, 1))


def plain(raster: Raster, frame: PlumeFrame) -> list[str]:
    """Return lines of ASCII: the field as a ramp, the goal's edge as o, the source as S, the agent as an arrow."""
    coarse = Raster(raster.static, raster.width, raster.height // 2)
    signs = RAMP[np.rint(tone(coarse.values(frame)) * (len(RAMP) - 1)).astype(np.intp)]
    signs[coarse.ring()] = "o"
    signs[coarse.place(raster.static.source)] = "S"
    signs[coarse.place(frame.agent.at)] = _arrow(ASCII_ARROWS, frame.agent.heading)
    return ["".join(line) for line in signs]


def half_blocks(raster: Raster, frame: PlumeFrame) -> Iterator[list[Segment]]:
    """Yield lines of upper half blocks: the colour is the upper pixel, the colour behind it the lower one."""
    pixels = tint(raster.values(frame)).astype(np.float64)
    pixels += (np.array(TRAIL) - pixels) * _trail(raster, frame.trail)[..., None]
    pixels += (np.array(MARK) - pixels) * (raster.ring()[..., None] * 0.85)
    (source, left), (top, column) = raster.place(raster.static.source), raster.place(frame.agent.at)
    agent = (_arrow(ARROWS, frame.agent.heading), AGENT[frame.state])
    signs = {(source // 2, left): (SOURCE, MARK), (top // 2, column): agent}
    whole = np.rint(pixels).astype(int).reshape(-1, 2, raster.width, 3).tolist()
    for row, (upper, lower) in enumerate(whole):
        line = [_cell(signs.get((row, column)), *pair) for column, pair in enumerate(zip(upper, lower, strict=True))]
        runs = groupby(line, key=itemgetter(1, 2))
        yield [Segment("".join(sign for sign, *_ in run), style(*colours)) for colours, run in runs]


def _arrow(arrows: str, heading: float) -> str:
    return arrows[round(heading * len(arrows) / 360.0) % len(arrows)]


def _trail(raster: Raster, trail: list[Point]) -> Floats:
    """Return how strongly each pixel shows the trail: the newest part most."""
    layer = np.zeros((raster.height, raster.width))
    places = [raster.place(cell) for cell in trail]
    for age, (start, end) in enumerate(pairwise(places), start=1):
        count = max(abs(end[0] - start[0]), abs(end[1] - start[1])) + 1
        way = np.rint(np.linspace(start, end, count)).astype(np.intp)
        layer[way[:, 0], way[:, 1]] = 0.15 + 0.6 * age / len(places)
    return layer


def _cell(sign: tuple[str, Colour] | None, upper: list[int], lower: list[int]) -> Cell:
    above, below = (upper[0], upper[1], upper[2]), (lower[0], lower[1], lower[2])
    if sign is None:
        return "▀", above, below
    red, green, blue = (int(BEHIND * (a + b) / 2) for a, b in zip(above, below, strict=True))
    return sign[0], sign[1], (red, green, blue)
