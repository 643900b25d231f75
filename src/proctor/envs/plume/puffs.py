"""Moving puffs: released at the source, carried by a wind with coloured noise, growing and thinning.

Rule 1: the field at a step is a value, made from the one before; nothing is changed in place.
Rule 2: every operation is a single IEEE operation or libm's `exp`, in the order that `puff_kernels` repeats for the
    batched environment, so that both agree bit for bit.

The wind is the mean wind plus an AR(1) noise on each axis: `n' = memory * n + kick * normal`. Each puff keeps a drift
of its own, drawn at its release, so that neighbours part. A puff of variance s2 at distance d adds
`(s0 / s2) * exp(-d^2 / (2 s2))` with s0 the variance at release; the sum is capped at 1.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from proctor.contracts.arguments import parse_count, parse_number
from proctor.contracts.chance import Chance, Stream
from proctor.contracts.components import Metadata
from proctor.contracts.spatial import FARTHEST, Coordinates, GridSize
from proctor.envs.plume.fields import (
    LEAST_WIDTH,
    MOST_WIDTH,
    Array,
    Point,
    SteadyWind,
    check_source,
    make_read_only,
    off_grid_error,
    parse_wind,
)
from proctor.errors import ValidationError

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


class PuffPlume:
    """Puffs in a turbulent wind; time-varying, and the same for the same seed, bit for bit."""

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

    def get_metadata(self) -> Metadata:
        """Return the field's type and parameters."""
        names = ("noise", "memory", "drift", "spread", "growth", "release_every", "lifetime", "warm_up")
        parameters = {name: getattr(self, name) for name in names}
        return {"type": "puffs", "parameters": {"wind": list(self.wind), **parameters}}

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
