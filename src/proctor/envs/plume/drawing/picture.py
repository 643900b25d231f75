"""Pictures of a plume search, drawn from its scene alone.

Rule 1: a picture depends on the scene and on nothing else; this file never sees an environment.
Rule 2: +y is up. Only `PlumeLayout` knows that rows count downwards.
Rule 3: what stays the same during an episode is drawn once (`_draw_backdrop`); a frame is a copy of it plus small stamps.
"""

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np

from proctor.envs.drawing.raster import (
    BORDER,
    GROUND,
    MARK,
    SHADE,
    Brush,
    Colour,
    Floats,
    Ink,
    Picture,
    Point,
    apply_ink,
    blend,
    disc,
    distance_to_line,
    polygon,
    read_part,
    ring,
    rotate,
    stamp,
)
from proctor.envs.plume.fields import Array, compute_advected_values, compute_gaussian_values, compute_puff_values
from proctor.errors import RenderingError

INNER: Final = 496  # pixels of the grid's longer side
NARROW: Final = 48  # pixels of the shorter side at least; a narrower grid is stretched
MARGIN: Final = 8
CELL_LINES: Final = 14.0  # cells of at least so many pixels are told apart by lines
COARSE: Final = 4  # a changing field is evaluated at every fourth pixel; divides INNER and NARROW
TRAIL_PIECE: Final = 6.0  # pixels; the trail is cut into pieces that fit a window of 11 by 11
TRAIL_LENGTH: Final = 6_000.0  # pixels; what is older is not drawn
TONE: Final = 80.0

# Concentration from none to full: dark to bright in even steps of lightness.
ANCHORS: Final[tuple[tuple[float, Colour], ...]] = (
    (0.00, (13, 14, 30)),
    (0.15, (36, 24, 74)),
    (0.35, (96, 32, 122)),
    (0.55, (176, 48, 116)),
    (0.75, (240, 104, 84)),
    (0.90, (253, 184, 116)),
    (1.00, (255, 240, 196)),
)
TRAIL: Final[Colour] = (112, 226, 255)
AGENT: Final[Mapping[str, Colour]] = {
    "ready": (255, 255, 255),
    "terminated": (64, 224, 120),
    "truncated": (255, 184, 32),
}


_DART: Final = np.array(((1.0, 0.0), (-0.8, 0.72), (-0.42, 0.0), (-0.8, -0.72)))
_ARROW: Final = np.array(((1, 0), (0.2, 0.5), (0.2, 0.16), (-1, 0.16), (-1, -0.16), (0.2, -0.16), (0.2, -0.5)))
_ACROSS, _DOWN = (side.reshape(1, -1) for side in np.meshgrid(*[np.arange(11, dtype=np.float32)] * 2))


class PlumeStatic(msgspec.Struct, frozen=True):
    """What stays the same during an episode."""

    grid: tuple[Annotated[int, msgspec.Meta(ge=1)], Annotated[int, msgspec.Meta(ge=1)]]
    source: Point
    goal_radius: float
    field: dict[str, Any]


class PlumeAgent(msgspec.Struct, frozen=True):
    """Where the agent is, and its heading in degrees (0 is East, 90 is North)."""

    at: Point
    heading: float


class PlumeFrame(msgspec.Struct, frozen=True):
    """What changes with every step."""

    state: Literal["ready", "terminated", "truncated"]
    agent: PlumeAgent
    trail: list[Point]
    field: dict[str, Any] | None = None
    wind: Point | None = None


@dataclass(frozen=True, slots=True)
class PlumeLayout:
    """Where cells lie on a picture of `width` by `height` pixels; a cell is `cell` pixels, per axis."""

    width: int
    height: int
    cell: Point

    @property
    def arrow(self) -> float:
        """How far the agent's arrow reaches from its middle, in pixels."""
        return min(max(0.4 * min(self.cell), 9.0), 24.0)

    def place(self, x: float, y: float) -> Point:
        """Return the pixel position of a cell's centre, from the left and from the top."""
        return MARGIN + (x + 0.5) * self.cell[0], self.height - MARGIN - (y + 0.5) * self.cell[1]

    def coordinates(self, every: int = 1) -> tuple[Array, Array]:
        """Return the cell coordinates of the grid's pixels (each, or every n-th), both ascending."""
        pixels = np.arange(every / 2.0, max(self.width, self.height) - 2 * MARGIN, every)
        across, up = (self.width - 2 * MARGIN) // every, (self.height - 2 * MARGIN) // every
        return pixels[:across] / self.cell[0] - 0.5, pixels[:up] / self.cell[1] - 0.5


_PLATE: Final = Brush(SHADE, 0.55, outline=1.0, shade=0.35)
_WIND: Final = Brush(TRAIL, outline=0.0)


@dataclass(frozen=True, slots=True)
class PlumeBackdrop:
    """The part of the pictures that an episode's frames share; `backdrop` has the field if it never changes."""

    static: PlumeStatic
    layout: PlumeLayout
    backdrop: Picture
    marks: tuple[Ink, ...]


def read_scene(scene: Mapping[str, Any]) -> tuple[PlumeStatic, PlumeFrame]:
    """Return the parts of a scene that stay and that change; anything but a plume's scene is a RenderingError."""
    owner = "plume's"
    return read_part(scene, "static", PlumeStatic, owner=owner), read_part(scene, "frame", PlumeFrame, owner=owner)


def tint(concentration: Floats) -> Picture:
    """Return colours for concentrations in [0, 1]; low ones are lifted, so that a faint plume is seen."""
    return _shade(tone(concentration))


def tone(concentration: Floats) -> Floats:
    """Return how bright concentrations in [0, 1] look, also in [0, 1]."""
    bright: Floats = np.log1p(TONE * concentration) / math.log1p(TONE)
    return bright


def draw(scene: Mapping[str, Any]) -> Picture:
    """Return the picture of a scene: a fresh uint8 array of shape (height, width, 3), both even."""
    static, frame = read_scene(scene)
    stage = _draw_backdrop(msgspec.msgpack.encode(static, order="sorted"), frame.field is not None)
    picture = stage.backdrop.copy()
    if frame.field is not None:
        coordinates = stage.layout.coordinates(COARSE)
        bright = tone(paint_field(stage.static.field, frame.field, stage.static.source, *coordinates))
        _inside(picture)[:] = _shade(_upscale(_upscale(bright[::-1].T.astype(np.float32)).T))
    moving = (_trail(stage.layout, frame.trail), *_wind(stage.layout, frame.wind), *_agent(stage.layout, frame))
    for ink in (*stage.marks, *moving):
        apply_ink(picture, ink)
    return picture


@lru_cache(maxsize=16)
def _draw_backdrop(key: bytes, changing: bool) -> PlumeBackdrop:
    static = msgspec.msgpack.decode(key, type=PlumeStatic)
    width, height = (max(NARROW, COARSE * round(INNER * side / max(static.grid) / COARSE)) for side in static.grid)
    cell = width / static.grid[0], height / static.grid[1]
    layout = PlumeLayout(width + 2 * MARGIN, height + 2 * MARGIN, cell)
    backdrop = np.full((layout.height, layout.width, 3), GROUND, np.uint8)
    backdrop[MARGIN - 1 : 1 - MARGIN, MARGIN - 1 : 1 - MARGIN] = BORDER
    marks = (_cell_lines(static, layout), *_goal(static, layout))
    if not changing:
        _inside(backdrop)[:] = tint(paint_field(static.field, None, static.source, *layout.coordinates()))[::-1]
        for ink in marks:
            apply_ink(backdrop, ink)
    backdrop.setflags(write=False)
    return PlumeBackdrop(static, layout, backdrop, marks if changing else ())


def _inside(picture: Picture) -> Picture:
    return picture[MARGIN:-MARGIN, MARGIN:-MARGIN]


def _upscale(values: Floats) -> Floats:
    """Return `COARSE` linearly interpolated rows for each row; no matrix product, whose threads stall a busy machine."""
    at = np.clip((np.arange(len(values) * COARSE) + 0.5) / COARSE - 0.5, 0, len(values) - 1)
    low = np.minimum(at.astype(np.intp), len(values) - 2)
    share = (at - low).astype(np.float32)[:, None]
    wide: Floats = values[low] * (1 - share) + values[low + 1] * share
    return wide


def _shade(bright: Floats) -> Picture:
    return _PALETTE.take((bright * 255.0 + 0.5).astype(np.uint8), axis=0)


def _cell_lines(static: PlumeStatic, layout: PlumeLayout) -> Ink:
    ruled = np.zeros((layout.height, layout.width), bool)
    for axis, (cells, size) in enumerate(zip(static.grid, layout.cell, strict=True)):
        if size >= CELL_LINES:
            edges = np.rint(np.arange(1, cells) * size).astype(np.intp)
            _inside(ruled.T if axis == 0 else ruled[::-1])[edges] = True
    at = np.flatnonzero(ruled)
    return blend(at, np.full(at.shape, 0.07), np.zeros(at.shape), MARK)


def _goal(static: PlumeStatic, layout: PlumeLayout) -> tuple[Ink, ...]:
    place = layout.place(*static.source)
    radii = _radii(static, layout)
    circle, dot = partial(ring, radii=radii, half=0.9), partial(disc, radius=2.6)
    return stamp(layout, place, max(radii) + 4.0, circle, Brush(MARK)), stamp(layout, place, 6.0, dot, Brush(MARK))


def _radii(static: PlumeStatic, layout: PlumeLayout) -> Point:
    """Return the goal ring's radii in pixels: never too small to see, never all outside the picture."""
    (across, up), (x, y), (width, height) = layout.cell, static.source, static.grid
    least = layout.arrow + 2.0  # an agent at the source stands inside the ring
    wide, high = max(static.goal_radius * across, least), max(static.goal_radius * up, least)
    far_x, far_y = across * max(x + 0.5, width - x - 0.5), up * max(y + 0.5, height - y - 0.5)
    stretched = max(across, up) > 1.1 * min(across, up)
    if not stretched and math.hypot(far_x / wide, far_y / high) > 1.0:
        return wide, high
    return min(wide, 0.92 * far_x), min(high, 0.92 * far_y)


def _agent(layout: PlumeLayout, frame: PlumeFrame) -> tuple[Ink, ...]:
    place, brush, size = layout.place(*frame.agent.at), Brush(AGENT[frame.state]), layout.arrow
    arrow = partial(polygon, corners=rotate(_DART * size, math.radians(frame.agent.heading)))
    body = stamp(layout, place, size + 4.0, arrow, brush)
    if frame.state == "ready":
        return (body,)
    circle = partial(ring, radii=(size + 5.0, size + 5.0), half=1.2)
    return body, stamp(layout, place, size + 10.0, circle, brush)


def _wind(layout: PlumeLayout, wind: Point | None) -> tuple[Ink, ...]:
    if wind is None:
        return ()
    radius = min(18.0, min(layout.width, layout.height) / 6.0)
    place = (layout.width - MARGIN - radius - 5.0, MARGIN + radius + 5.0)
    length = radius * 0.9 * math.tanh(0.4 + math.hypot(*wind)) if any(wind) else 0.0
    arrow = partial(polygon, corners=rotate(_ARROW * length, math.atan2(wind[1], wind[0])))
    plate, sign = partial(disc, radius=radius), arrow if length else partial(disc, radius=2.0)
    return stamp(layout, place, radius + 3.0, plate, _PLATE), stamp(layout, place, radius + 2.0, sign, _WIND)


def _trail(layout: PlumeLayout, trail: list[Point]) -> Ink:
    """Return the ink of the trail; a pixel takes the strongest of the pieces that cross it."""
    x, y, dx, dy, strength = _pieces(np.array([layout.place(*cell) for cell in trail], np.float32).reshape(-1, 2))
    columns, rows = np.floor(x + dx / 2.0 - 5.0) + _ACROSS, np.floor(y + dy / 2.0 - 5.0) + _DOWN
    cover = np.clip(1.4 - distance_to_line(columns + 0.5 - x, rows + 0.5 - y, dx, dy), 0.0, 1.0) * strength
    seen = (cover > 0.0) & (columns >= 0) & (columns < layout.width) & (rows >= 0) & (rows < layout.height)
    layer = np.zeros((layout.height, layout.width), np.float32)
    np.maximum.at(layer.reshape(-1), (rows * layout.width + columns)[seen].astype(np.intp), cover[seen])
    dark = _spread(layer)
    at = np.flatnonzero(dark)
    fill = layer.reshape(-1)[at]
    return blend(at, fill, 0.5 * dark.reshape(-1)[at], TRAIL)


def _pieces(points: Floats) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Return where the trail's short pieces start, how far they go and how strong they are, as columns (n, 1)."""
    start, way = points[:-1], np.diff(points, axis=0)
    length = np.hypot(way[:, 0], way[:, 1])
    kept = (length > 0.0) & (length[::-1].cumsum()[::-1] <= TRAIL_LENGTH)
    strength = np.linspace(0.0, 1.0, int(kept.sum()) + 1, dtype=np.float32)[1:] ** 1.5 * 0.7 + 0.25
    parts = np.ceil(length[kept] / TRAIL_PIECE).astype(np.intp)
    owner = np.repeat(np.arange(len(parts)), parts)
    number = np.arange(len(owner)) - (parts.cumsum() - parts)[owner]
    step = (way[kept] / parts[:, None]).astype(np.float32)[owner]
    begin = start[kept][owner] + step * number[:, None].astype(np.float32)
    return begin[:, :1], begin[:, 1:], step[:, :1], step[:, 1:], strength[owner, None]


def _spread(layer: Floats) -> Floats:
    """Return `layer` with every pixel as strong as the strongest of it and its four neighbours."""
    wide = layer.copy()
    for near, far in ((np.s_[1:], np.s_[:-1]), (np.s_[:-1], np.s_[1:])):
        np.maximum(wide[near], layer[far], out=wide[near])
        np.maximum(wide[:, near], layer[:, far], out=wide[:, near])
    return wide


_STOPS, _COLOURS = zip(*ANCHORS, strict=True)
_CHANNELS: Final = [np.interp(np.linspace(0.0, 1.0, 256), _STOPS, channel) for channel in zip(*_COLOURS, strict=True)]
_PALETTE: Final[Picture] = np.array(np.rint(_CHANNELS).T, np.uint8, order="C")


def paint_thumbnail(image: Mapping[str, Any], xs: Array, ys: Array) -> Array:
    """Return the thumbnail at continuous cell coordinates, bilinear between its cells."""
    columns, rows = image["size"]
    width, height = image["covers"]
    levels = np.frombuffer(base64.b64decode(image["levels"]), np.uint8).reshape(rows, columns) / 255.0
    column = np.clip((xs + 0.5) * columns / width - 0.5, 0, columns - 1)
    row = np.clip((ys + 0.5) * rows / height - 0.5, 0, rows - 1)
    left, low = column.astype(int), row.astype(int)
    right, high = np.minimum(left + 1, columns - 1), np.minimum(low + 1, rows - 1)
    along, up = column - left, (row - low)[:, np.newaxis]
    bottom = levels[low][:, left] * (1 - along) + levels[low][:, right] * along
    top = levels[high][:, left] * (1 - along) + levels[high][:, right] * along
    values: Array = bottom * (1 - up) + top * up
    return values


_PAINTERS = {
    "gaussian": lambda static, frame, source, xs, ys: compute_gaussian_values(static, source, xs, ys),
    "advected": lambda static, frame, source, xs, ys: compute_advected_values(static, source, xs, ys),
    "puffs": lambda static, frame, source, xs, ys: compute_puff_values(frame, xs, ys),
    "image": lambda static, frame, source, xs, ys: paint_thumbnail(frame or static, xs, ys),
}


def paint_field(
    static: Mapping[str, Any], frame: Mapping[str, Any] | None, source: Point, xs: Array, ys: Array
) -> Array:
    """Return the field's values, shape (len(ys), len(xs)), at continuous cell coordinates (cell centres are whole)."""
    painter = _PAINTERS.get(str(static.get("kind")))
    if painter is None:
        raise RenderingError(
            "unknown kind of field", found=static.get("kind"), expected=f"one of {', '.join(_PAINTERS)}"
        )
    values: Array = painter(static, frame, source, xs, ys)
    return np.clip(values, 0.0, 1.0)
