"""Pictures of a plume search, drawn from its scene alone.

Rule 1: a picture depends on the scene and on nothing else; this file never sees an environment.
Rule 2: +y is up. Only `PlumeLayout` knows that rows count downwards.
Rule 3: what stays the same during an episode is drawn once (`_draw_backdrop`); a frame is a copy of it plus small stamps.
"""

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np
from PIL import Image, ImageDraw

from proctor.envs.drawing.raster import (
    BORDER,
    GROUND,
    MARK,
    SHADE,
    Colour,
    Floats,
    Picture,
    Point,
    Sketch,
    read_part,
    surround,
)
from proctor.envs.plume.fields import Array, compute_advected_values, compute_gaussian_values, compute_puff_values
from proctor.errors import RenderingError

INNER: Final = 496  # pixels of the grid's longer side
NARROW: Final = 48  # pixels of the shorter side at least; a narrower grid is stretched
MARGIN: Final = 8
CELL_LINES: Final = 14.0  # cells of at least so many pixels are told apart by lines
COARSE: Final = 4  # a changing field is evaluated at every fourth pixel; divides INNER and NARROW
OUTLINE: Final = 1.5  # pixels of shade around a mark
TRAIL_SMOOTH: Final = 2  # how much larger the trail is drawn
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


_DART: Final = ((1.0, 0.0), (-0.8, 0.72), (-0.42, 0.0), (-0.8, -0.72))
_ARROW: Final = ((1.0, 0.0), (0.2, 0.5), (0.2, 0.16), (-1.0, 0.16), (-1.0, -0.16), (0.2, -0.16), (0.2, -0.5))


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


@dataclass(frozen=True, slots=True)
class PlumeBackdrop:
    """The part of the pictures that an episode's frames share; if its field never changes, `backdrop` has it and the marks."""

    static: PlumeStatic
    layout: PlumeLayout
    backdrop: Picture
    marks: Image.Image | None


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
    picture = stage.backdrop
    if frame.field is not None:
        picture = picture.copy()
        coordinates = stage.layout.coordinates(COARSE)
        bright = tone(paint_field(stage.static.field, frame.field, stage.static.source, *coordinates))
        _inside(picture)[:] = _shade(_upscale(_upscale(bright[::-1].T.astype(np.float32)).T))
    image = Image.fromarray(picture)
    if stage.marks is not None:
        image.paste(stage.marks, (0, 0), stage.marks)
    _draw_trail(image, stage.layout, frame.trail)
    if frame.wind is not None:
        _draw_wind(image, stage.layout, frame.wind)
    _draw_agent(image, stage.layout, frame)
    return np.array(image)


@lru_cache(maxsize=16)
def _draw_backdrop(key: bytes, changing: bool) -> PlumeBackdrop:
    static = msgspec.msgpack.decode(key, type=PlumeStatic)
    width, height = (max(NARROW, COARSE * round(INNER * side / max(static.grid) / COARSE)) for side in static.grid)
    cell = width / static.grid[0], height / static.grid[1]
    layout = PlumeLayout(width + 2 * MARGIN, height + 2 * MARGIN, cell)
    backdrop = np.full((layout.height, layout.width, 3), GROUND, np.uint8)
    backdrop[MARGIN - 1 : 1 - MARGIN, MARGIN - 1 : 1 - MARGIN] = BORDER
    marks = _draw_marks(static, layout)
    if not changing:
        _inside(backdrop)[:] = tint(paint_field(static.field, None, static.source, *layout.coordinates()))[::-1]
        image = Image.fromarray(backdrop)
        image.paste(marks, (0, 0), marks)
        backdrop = np.array(image)
    backdrop.setflags(write=False)
    return PlumeBackdrop(static, layout, backdrop, marks if changing else None)


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


def _draw_marks(static: PlumeStatic, layout: PlumeLayout) -> Image.Image:
    """Return the lines between cells, and the goal."""
    sketch = Sketch(layout.width, layout.height)
    (across, down), (right, bottom) = layout.cell, (layout.width - MARGIN, layout.height - MARGIN)
    # A look at the width first: a grid may have more cells than can be counted.
    columns = [MARGIN + round(n * across) + 0.5 for n in (range(1, static.grid[0]) if across >= CELL_LINES else ())]
    rows = [bottom - round(n * down) - 0.5 for n in (range(1, static.grid[1]) if down >= CELL_LINES else ())]
    edges = [(x, MARGIN, x, bottom) for x in columns] + [(MARGIN, y, right, y) for y in rows]
    sketch.lines(edges, MARK, 0.07, 1.0)
    place = layout.place(*static.source)
    _draw_ring(sketch, place, _radii(static, layout), 0.9, MARK)
    sketch.ellipse(surround(place, (2.6, 2.6), OUTLINE), SHADE, 0.75)
    sketch.ellipse(surround(place, (2.6, 2.6)), MARK)
    return sketch.image


def _draw_ring(sketch: Sketch, place: Point, radii: Point, half: float, colour: Colour) -> None:
    for grown, ink, opacity in ((half + OUTLINE, SHADE, 0.75), (half, colour, 1.0)):
        sketch.ellipse(surround(place, radii, grown), ink, opacity, line=2 * grown)


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


def _draw_agent(picture: Image.Image, layout: PlumeLayout, frame: PlumeFrame) -> None:
    colour, size, at = AGENT[frame.state], layout.arrow, layout.place(*frame.agent.at)
    reach = math.ceil(size) + 10
    left, top = int(at[0]) - reach, int(at[1]) - reach
    sketch, place = Sketch(2 * reach + 1, 2 * reach + 1), (at[0] - left, at[1] - top)
    corners = _turn(_DART, size, math.radians(frame.agent.heading), place)
    sketch.polygon(corners, SHADE, 0.75, grown=OUTLINE)
    sketch.polygon(corners, colour)
    if frame.state != "ready":
        _draw_ring(sketch, place, (size + 5.0, size + 5.0), 1.2, colour)
    picture.paste(sketch.image, (left, top), sketch.image)


def _draw_wind(picture: Image.Image, layout: PlumeLayout, wind: Point) -> None:
    radius = min(18.0, min(layout.width, layout.height) / 6.0)
    side = math.ceil(2 * radius) + 4
    sketch, place = Sketch(side, side), (side / 2.0, side / 2.0)
    sketch.ellipse(surround(place, (radius, radius), 1.0), SHADE, 0.35)
    sketch.ellipse(surround(place, (radius, radius)), SHADE, 0.55)
    length = radius * 0.9 * math.tanh(0.4 + math.hypot(*wind)) if any(wind) else 0.0
    if length:
        sketch.polygon(_turn(_ARROW, length, math.atan2(wind[1], wind[0]), place), TRAIL)
    else:
        sketch.ellipse(surround(place, (2.0, 2.0)), TRAIL)
    picture.paste(sketch.image, (layout.width - MARGIN - side - 3, MARGIN + 3), sketch.image)


def _turn(corners: tuple[Point, ...], size: float, angle: float, place: Point) -> list[Point]:
    """Return the corners, `size` pixels to a unit, turned by `angle` (radians, y up) around `place`."""
    cos, sin = size * math.cos(angle), size * math.sin(angle)
    return [(place[0] + x * cos - y * sin, place[1] - x * sin - y * cos) for x, y in corners]


def _draw_trail(picture: Image.Image, layout: PlumeLayout, trail: list[Point]) -> None:
    """Draw the newest part of the trail, the stronger the newer."""
    points = np.array([layout.place(*cell) for cell in trail]).reshape(-1, 2)
    length = np.hypot(*np.diff(points, axis=0).T)
    kept = np.flatnonzero((length > 0.0) & (length[::-1].cumsum()[::-1] <= TRAIL_LENGTH))
    strength = np.linspace(0.0, 1.0, len(kept) + 1)[1:] ** 1.5 * 0.7 + 0.25
    if not kept.size:
        return
    # No more than the trail and its width is drawn anew.
    ends = np.concatenate((points[kept], points[kept + 1]), axis=1)
    left, top = (ends.reshape(-1, 2).min(axis=0).astype(int) - 4).tolist()
    right, bottom = (ends.reshape(-1, 2).max(axis=0).astype(int) + 5).tolist()
    lines = (TRAIL_SMOOTH * (ends - (left, top, left, top))).tolist()
    for colour, width, share in ((SHADE, 3.8, 0.5), (TRAIL, 1.8, 1.0)):
        mask = Image.new("L", (TRAIL_SMOOTH * (right - left), TRAIL_SMOOTH * (bottom - top)))
        pen = ImageDraw.Draw(mask)
        for line, ink in zip(lines, np.rint(255 * share * strength).astype(int).tolist(), strict=True):
            pen.line(line, ink, round(TRAIL_SMOOTH * width))
        picture.paste(colour, (left, top), mask.reduce(TRAIL_SMOOTH))


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
