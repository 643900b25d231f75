"""Odor fields: the Gaussian, the plume in a steady wind, moving puffs; and how a scene describes any field.

Rule 1: what `sample` returns is what `field_array` holds, bit for bit; the batched kernels read the same numbers.
Rule 2: values lie in [0, 1]; the source is the maximum of the fields that do not change, and has the value 1 there.
Rule 3: arrays are read-only; those that do not change are shared between all fields of the same parameters.
Rule 4: a puff field at a step is a value, made from the one before. Every operation is a single IEEE operation or libm's
    `exp`, in the order that `vector.kernels` repeats, so that a batch agrees bit for bit.
"""

import base64
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from proctor.contracts.arguments import parse_count, parse_number
from proctor.contracts.chance import Chance, Stream
from proctor.contracts.components import DescribedPart
from proctor.contracts.spatial import FARTHEST, Coordinates, GridSize
from proctor.errors import ValidationError

Array = NDArray[np.float64]
Point = tuple[float, float]

LEAST_WIDTH: Final = 1e-100
"""The square of a narrower width would vanish."""
MOST_WIDTH: Final = 1e6
"""A wider plume is flat on any grid."""

_SHARED: WeakValueDictionary[tuple[Any, ...], Array] = WeakValueDictionary()


def make_read_only(values: Array) -> Array:
    """Return `values`, no longer writable."""
    values.flags.writeable = False
    return values


def share_array(make: Callable[..., Array], *parameters: Any) -> Array:
    """Return `make(*parameters)`, read-only; the same array for all who hold it, and forgotten when nobody does."""
    key = (make, *parameters)
    values = _SHARED.get(key)
    if values is None:
        values = _SHARED[key] = make_read_only(make(*parameters))
    return values


def off_grid_error(position: Coordinates, grid: GridSize) -> IndexError:
    """Return the error for a sample beyond the grid."""
    return IndexError(
        f"({position.x}, {position.y}) is not on the grid of {grid.width} x {grid.height} cells [FIELD-SAMPLE-P1]"
    )


def check_source(source: Coordinates, grid: GridSize) -> Coordinates:
    """Return `source` if it lies on the grid, or raise a ValidationError."""
    if not grid.contains(source):
        raise ValidationError(
            "the source is not on the grid",
            found=(source.x, source.y),
            expected=f"0 <= x < {grid.width}, 0 <= y < {grid.height}",
            clause="ENV-INIT-P1",
        )
    return source


class TableField:
    """A field that is an array."""

    grid_size: GridSize
    field_array: Array

    def sample(self, position: Coordinates) -> float:
        """Return the concentration at `position`."""
        if not self.grid_size.contains(position):
            raise off_grid_error(position, self.grid_size)
        return self.field_array.item(position.y, position.x)


class _SteadyField(DescribedPart):
    def describe(self) -> dict[str, Any]:
        """Return the static part of a scene: the parameters."""
        metadata = self.get_metadata()
        return {"kind": metadata["type"], **metadata["parameters"]}


@lru_cache(maxsize=256)
def _bell(length: int, centre: int, sigma: float) -> tuple[float, ...]:
    return tuple(math.exp(-((i - centre) ** 2) / (2.0 * sigma * sigma)) for i in range(length))


def _compute_gaussian_array(grid: GridSize, source: Coordinates, sigma: float) -> Array:
    along_x = np.array(_bell(grid.width, source.x, sigma))
    along_y = np.array(_bell(grid.height, source.y, sigma))
    values: Array = np.multiply.outer(along_y, along_x)
    return values


class GaussianPlume(_SteadyField):
    """`C = exp(-d^2 / (2 sigma^2))`, kept as two rows of numbers: a bell along x times a bell along y."""

    type_name = "gaussian"
    parameters = ("sigma",)

    def __init__(self, grid_size: GridSize, source_location: Coordinates, sigma: float = 12.0) -> None:
        self.grid_size = grid_size
        self.source_location = check_source(source_location, grid_size)
        self.sigma = parse_number("sigma", sigma, least=LEAST_WIDTH, most=MOST_WIDTH)
        self.along_x = _bell(grid_size.width, source_location.x, self.sigma)
        self.along_y = _bell(grid_size.height, source_location.y, self.sigma)

    @property
    def field_array(self) -> Array:
        """All values, shape (height, width), read-only; made when first asked for."""
        return share_array(_compute_gaussian_array, self.grid_size, self.source_location, self.sigma)

    def sample(self, position: Coordinates) -> float:
        """Return the concentration at `position`."""
        x = position.x
        y = position.y
        if x < 0 or y < 0:
            raise off_grid_error(position, self.grid_size)
        try:
            return self.along_y[y] * self.along_x[x]
        except IndexError:
            raise off_grid_error(position, self.grid_size) from None


def compute_gaussian_values(field: Mapping[str, Any], source: Point, xs: Array, ys: Array) -> Array:
    """Return the Gaussian at continuous coordinates, for pictures."""
    scale = 2.0 * field["sigma"] ** 2
    values: Array = np.multiply.outer(
        np.exp(-((ys - source[1]) ** 2) / scale), np.exp(-((xs - source[0]) ** 2) / scale)
    )
    return values


class AdvectedPlume(TableField, _SteadyField):
    """A steady plume in a constant wind: a widening Gaussian downwind, a small bell upwind.

    With xi along the wind and eta across it, and s = spread + growth * xi: for xi >= 0 the concentration is
    `(spread / s) * exp(-eta^2 / (2 s^2))`, for xi < 0 `exp(-(xi^2 + eta^2) / (2 spread^2))`.
    """

    type_name = "advected"
    parameters = ("wind", "spread", "growth")

    def __init__(
        self,
        grid_size: GridSize,
        source_location: Coordinates,
        wind: Point = (1.0, 0.0),
        spread: float = 2.0,
        growth: float = 0.15,
    ) -> None:
        self.grid_size = grid_size
        self.source_location = check_source(source_location, grid_size)
        self.wind = parse_wind(wind)
        self.spread = parse_number("spread", spread, least=LEAST_WIDTH, most=MOST_WIDTH)
        self.growth = parse_number("growth", growth, least=0.0, most=MOST_WIDTH)
        if self.wind == (0.0, 0.0):
            raise ValidationError("an advected plume needs a wind", found=wind, expected="(u, v) other than (0, 0)")
        self.field_array = share_array(
            _compute_advected_array, grid_size, source_location, self.wind, self.spread, self.growth
        )
        self.wind_field = SteadyWind(self.wind)

    def __reduce__(self) -> tuple[object, ...]:
        # A copy finds the shared array again, read-only as it is.
        return AdvectedPlume, (self.grid_size, self.source_location, self.wind, self.spread, self.growth)


def compute_advected_values(field: Mapping[str, Any], source: Point, xs: Array, ys: Array) -> Array:
    """Return the advected plume at continuous coordinates."""
    u, v = field["wind"]
    speed = math.hypot(u, v)
    cos, sin = u / speed, v / speed
    dx = (xs - source[0])[np.newaxis, :]
    dy = (ys - source[1])[:, np.newaxis]
    along = dx * cos + dy * sin
    across = dy * cos - dx * sin
    spread = field["spread"]
    width = spread + field["growth"] * np.maximum(along, 0.0)
    upwind = np.minimum(along, 0.0)
    values: Array = (spread / width) * np.exp(-(across * across + upwind * upwind) / (2.0 * width * width))
    return values


def _compute_advected_array(grid: GridSize, source: Coordinates, wind: Point, spread: float, growth: float) -> Array:
    described = {"wind": wind, "spread": spread, "growth": growth}
    return compute_advected_values(
        described, (source.x, source.y), np.arange(float(grid.width)), np.arange(float(grid.height))
    )


def parse_wind(wind: Any) -> Point:
    """Return `wind` as two finite floats, or raise a ValidationError."""
    if isinstance(wind, np.ndarray):
        wind = wind.tolist()
    if not isinstance(wind, tuple | list) or len(wind) != 2:
        raise ValidationError("not a wind", found=wind, expected="(u, v), cells per step")
    u, v = (parse_number("wind", speed, least=-FARTHEST, most=FARTHEST) for speed in wind)
    return u, v


class SteadyWind:
    """The same wind everywhere at one instant."""

    def __init__(self, velocity: Point) -> None:
        self.velocity = velocity

    def sample(self, position: Coordinates) -> Point:
        """Return (u, v) in cells per step."""
        return self.velocity


LONGEST: Final = 100_000
"""The most steps that a puff lives or a plume blows before the episode."""
FAR: Final = 30.0
"""A puff further than this (in d^2 / (2 s2)) adds nothing: exp(-30) is 1e-13."""


@dataclass(frozen=True, slots=True, eq=False)
class PuffField:
    """All puffs at one instant; slots not yet released have the strength 0."""

    grid_size: GridSize
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    drift_x: NDArray[np.float64]
    drift_y: NDArray[np.float64]
    variance: NDArray[np.float64]
    strength: NDArray[np.float64]
    noise: Point
    wind_field: SteadyWind

    def sample(self, position: Coordinates) -> float:
        """Return the concentration at `position`; the work is bounded by the number of puffs."""
        if not self.grid_size.contains(position):
            raise off_grid_error(position, self.grid_size)
        dx = self.x - float(position.x)
        dy = self.y - float(position.y)
        exponent = (dx * dx + dy * dy) / (2.0 * self.variance)
        near = np.flatnonzero((exponent <= FAR) & (self.strength > 0.0))
        total = 0.0
        for strength, power in zip(self.strength[near].tolist(), exponent[near].tolist(), strict=True):
            total += strength * math.exp(-power)
        return min(total, 1.0)

    @property
    def field_array(self) -> Array:
        """All values, shape (height, width), read-only; computed cell by cell when asked for."""
        grid = self.grid_size
        values = [self.sample(Coordinates(x, y)) for y in range(grid.height) for x in range(grid.width)]
        return make_read_only(np.array(values).reshape(grid.height, grid.width))

    def describe_frame(self) -> dict[str, Any]:
        """Return the puffs as a scene shows them: [x, y, spread, strength] each, with three decimals."""
        alive = np.flatnonzero(self.strength > 0.0)
        rows = zip(self.x[alive], self.y[alive], np.sqrt(self.variance[alive]), self.strength[alive], strict=True)
        return {"puffs": [[round(float(value), 3) for value in row] for row in rows]}


class PuffPlume(DescribedPart):
    """Puffs released at the source, carried by a turbulent wind; the same for the same seed, bit for bit.

    The wind is the mean wind plus an AR(1) noise on each axis: `n' = memory * n + kick * normal`. Each puff keeps a drift
    of its own, drawn at its release, so that neighbours part. A puff of variance s2 at distance d adds
    `(s0 / s2) * exp(-d^2 / (2 s2))` with s0 the variance at release; the sum is capped at 1.
    """

    type_name = "puffs"
    parameters = ("wind", "noise", "memory", "drift", "spread", "growth", "release_every", "lifetime", "warm_up")

    def __init__(
        self,
        grid_size: GridSize,
        source_location: Coordinates,
        wind: Point = (0.8, 0.0),
        noise: float = 0.25,
        memory: float = 0.95,
        drift: float = 0.08,
        spread: float = 2.0,
        growth: float = 0.25,
        release_every: int = 3,
        lifetime: int = 120,
        warm_up: int = 60,
    ) -> None:
        self.grid_size = grid_size
        self.source_location = check_source(source_location, grid_size)
        self.wind = parse_wind(wind)
        self.noise = parse_number("noise", noise, least=0.0, most=FARTHEST)
        self.memory = parse_number("memory", memory, least=0.0)
        self.drift = parse_number("drift", drift, least=0.0, most=FARTHEST)
        self.spread = parse_number("spread", spread, least=LEAST_WIDTH, most=MOST_WIDTH)
        self.growth = parse_number("growth", growth, least=0.0, most=MOST_WIDTH)
        self.release_every = parse_count("release_every", release_every, 1, LONGEST)
        self.lifetime = parse_count("lifetime", lifetime, 1, LONGEST)
        self.warm_up = parse_count("warm_up", warm_up, 0, LONGEST)
        if self.memory >= 1.0:
            raise ValidationError("memory out of range", found=memory, expected="0 <= memory < 1")
        self.kick = self.noise * math.sqrt(1.0 - self.memory * self.memory)
        self.first_variance = self.spread * self.spread
        self.capacity = -(-self.lifetime // self.release_every)

    def begin(self, chance: Chance) -> PuffField:
        """Return the field at reset: the plume has been blowing for `warm_up` steps."""
        empty = np.zeros(self.capacity)
        first = np.full(self.capacity, self.first_variance)
        still = SteadyWind(self.wind)
        field = PuffField(self.grid_size, empty, empty, empty, empty, first, empty, (0.0, 0.0), still)
        for tick in range(self.warm_up + 1):
            field = self._tick(field, chance, tick)
        return field

    def advance(self, field: PuffField, chance: Chance, time_step: int) -> PuffField:
        """Return the field at `time_step` from the one before."""
        return self._tick(field, chance, self.warm_up + time_step)

    def _tick(self, field: PuffField, chance: Chance, tick: int) -> PuffField:
        noise_x = self.memory * field.noise[0] + self.kick * chance.normal(Stream.WIND, tick, 0)
        noise_y = self.memory * field.noise[1] + self.kick * chance.normal(Stream.WIND, tick, 1)
        u = self.wind[0] + noise_x
        v = self.wind[1] + noise_y
        x = field.x + (u + field.drift_x)
        y = field.y + (v + field.drift_y)
        variance = field.variance + self.growth
        alive = field.strength > 0.0
        strength = np.where(alive, self.first_variance / variance, 0.0)
        drift_x, drift_y = field.drift_x, field.drift_y
        if tick % self.release_every == 0:
            slot = (tick // self.release_every) % self.capacity
            drift_x, drift_y = drift_x.copy(), drift_y.copy()
            x[slot], y[slot] = self.source_location.x, self.source_location.y
            variance[slot], strength[slot] = self.first_variance, 1.0
            drift_x[slot] = self.drift * chance.normal(Stream.PUFF, tick, 0)
            drift_y[slot] = self.drift * chance.normal(Stream.PUFF, tick, 1)
        wind = SteadyWind((u, v))
        return PuffField(self.grid_size, x, y, drift_x, drift_y, variance, strength, (noise_x, noise_y), wind)

    def describe(self) -> dict[str, Any]:
        """Return the static part of a scene."""
        return {"kind": "puffs", "wind": list(self.wind)}


def compute_puff_values(frame: Mapping[str, Any], xs: Array, ys: Array) -> Array:
    """Return the puffs of a frame at continuous coordinates, for pictures."""
    total = np.zeros((len(ys), len(xs)))
    for x, y, spread, strength in frame["puffs"]:
        scale = 2.0 * spread * spread
        total += strength * np.multiply.outer(np.exp(-((ys - y) ** 2) / scale), np.exp(-((xs - x) ** 2) / scale))
    return np.minimum(total, 1.0)


SIDE: Final = 48
"""The most cells that a thumbnail has along an axis."""


def make_thumbnail(values: Array) -> dict[str, Any]:
    """Return `values` (height, width) as a scene's description: the mean over each block, in 256 levels."""
    height, width = values.shape
    rows, columns = min(height, SIDE), min(width, SIDE)
    row_starts = np.arange(rows) * height // rows
    column_starts = np.arange(columns) * width // columns
    sums = np.add.reduceat(np.add.reduceat(values, row_starts, axis=0), column_starts, axis=1)
    counts = np.multiply.outer(np.diff(np.append(row_starts, height)), np.diff(np.append(column_starts, width)))
    levels = np.rint(sums / counts * 255.0).astype(np.uint8)
    return {
        "kind": "image",
        "covers": [width, height],
        "size": [columns, rows],
        "levels": base64.b64encode(levels.tobytes()).decode("ascii"),
    }


def describe_plume(plume: Any, *, varying: bool) -> dict[str, Any]:
    """Return the static part; a plume without a description of its own is shown by a thumbnail."""
    if not hasattr(plume, "describe"):
        return {"kind": "image"} if varying else make_thumbnail(plume.field_array)
    described: dict[str, Any] = plume.describe()
    return described


def describe_field(field: Any) -> dict[str, Any]:
    """Return the part that changes with every step."""
    described: dict[str, Any] = (
        field.describe_frame() if hasattr(field, "describe_frame") else make_thumbnail(field.field_array)
    )
    return described
