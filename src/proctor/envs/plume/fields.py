"""Odor fields that do not change: the Gaussian and the wind-advected plume.

Rule 1: what `sample` returns is what `field_array` holds, bit for bit; the batched kernels read the same numbers.
Rule 2: values lie in [0, 1]; the source is the maximum of the analytic fields and has the value 1.
Rule 3: arrays are read-only and shared between all fields of the same parameters.
"""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from proctor.contracts.arguments import parse_number
from proctor.contracts.components import Metadata
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


@lru_cache(maxsize=256)
def _bell(length: int, centre: int, sigma: float) -> tuple[float, ...]:
    return tuple(math.exp(-((i - centre) ** 2) / (2.0 * sigma * sigma)) for i in range(length))


def _compute_gaussian_array(grid: GridSize, source: Coordinates, sigma: float) -> Array:
    along_x = np.array(_bell(grid.width, source.x, sigma))
    along_y = np.array(_bell(grid.height, source.y, sigma))
    values: Array = np.multiply.outer(along_y, along_x)
    return values


class GaussianPlume:
    """`C = exp(-d^2 / (2 sigma^2))`, kept as two rows of numbers: a bell along x times a bell along y."""

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

    def get_metadata(self) -> Metadata:
        """Return the field's type and parameters."""
        return {"type": "gaussian", "parameters": {"sigma": self.sigma}}

    def describe(self) -> dict[str, Any]:
        """Return the static part of a scene."""
        return {"kind": "gaussian", "sigma": self.sigma}


def compute_gaussian_values(field: Mapping[str, Any], source: Point, xs: Array, ys: Array) -> Array:
    """Return the Gaussian at continuous coordinates, for pictures."""
    scale = 2.0 * field["sigma"] ** 2
    values: Array = np.multiply.outer(
        np.exp(-((ys - source[1]) ** 2) / scale), np.exp(-((xs - source[0]) ** 2) / scale)
    )
    return values


class AdvectedPlume:
    """A steady plume in a constant wind: a widening Gaussian downwind, a small bell upwind.

    With xi along the wind and eta across it, and s = spread + growth * xi: for xi >= 0 the concentration is
    `(spread / s) * exp(-eta^2 / (2 s^2))`, for xi < 0 `exp(-(xi^2 + eta^2) / (2 spread^2))`.
    """

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

    def sample(self, position: Coordinates) -> float:
        """Return the concentration at `position`."""
        if not self.grid_size.contains(position):
            raise off_grid_error(position, self.grid_size)
        return self.field_array.item(position.y, position.x)

    def __reduce__(self) -> tuple[object, ...]:
        # A copy finds the shared array again, read-only as it is.
        return AdvectedPlume, (self.grid_size, self.source_location, self.wind, self.spread, self.growth)

    def get_metadata(self) -> Metadata:
        """Return the field's type and parameters."""
        return {
            "type": "advected",
            "parameters": {"wind": list(self.wind), "spread": self.spread, "growth": self.growth},
        }

    def describe(self) -> dict[str, Any]:
        """Return the static part of a scene."""
        return {"kind": "advected", "wind": list(self.wind), "spread": self.spread, "growth": self.growth}


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
    xs = np.arange(grid.width, dtype=np.float64)
    ys = np.arange(grid.height, dtype=np.float64)
    described = {"wind": wind, "spread": spread, "growth": growth}
    return compute_advected_values(described, (source.x, source.y), xs, ys)


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
