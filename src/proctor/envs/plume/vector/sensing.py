"""The plumes and the sensors of a batch: arrays and the kernels that read them, one class or function per type."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from proctor.contracts.components import ObservationModel
from proctor.contracts.spatial import GridSize
from proctor.envs.plume.fields import AdvectedPlume, GaussianPlume
from proctor.envs.plume.puffs import PuffPlume
from proctor.envs.plume.sensors import (
    AntennaePair,
    BinaryHitSensor,
    ConcentrationSensor,
    DictSensor,
    PoissonHitSensor,
    WindSensor,
)
from proctor.envs.plume.vector import puff_kernels, sensor_kernels
from proctor.envs.vector.batched_env import no_batch_form_error, pack_record

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]


class BatchedField(Protocol):
    """The odor of every sub-environment."""

    still: bool
    """Whether the field never changes, so that `begin` and `advance` do nothing."""

    @property
    def wind(self) -> Floats | None:
        """The wind (2 x N), where there is any."""

    def begin(self, which: NDArray[np.bool_], seeds: NDArray[np.int64]) -> None:
        """Start the plumes of the marked sub-environments."""

    def advance(self, but: NDArray[np.bool_], seeds: NDArray[np.int64], steps: Ints) -> None:
        """Move all plumes but the marked ones to their present step."""

    def smell(self, cells: Ints, out: NDArray[Any]) -> None:
        """Write the concentration at one cell per sub-environment; the first rows of `cells` are x and y."""


class _StillField:
    """A field that does not change with time."""

    still = True
    _steady_wind: Floats | None = None

    @property
    def wind(self) -> Floats | None:
        """The wind (2 x N), where there is any."""
        return self._steady_wind

    def begin(self, which: NDArray[np.bool_], seeds: NDArray[np.int64]) -> None:
        """Do nothing."""

    def advance(self, but: NDArray[np.bool_], seeds: NDArray[np.int64], steps: Ints) -> None:
        """Do nothing."""


class GaussianBatch(_StillField):
    """One Gaussian for all: two rows of numbers."""

    def __init__(self, plume: GaussianPlume, num_envs: int) -> None:
        self._rows = np.array(plume.along_x), np.array(plume.along_y)

    def smell(self, cells: Ints, out: NDArray[Any]) -> None:
        """Write the concentrations."""
        sensor_kernels.smell_product(cells, *self._rows, out)


class AdvectedBatch(_StillField):
    """One steady plume for all: a table."""

    def __init__(self, plume: AdvectedPlume, num_envs: int) -> None:
        self._table = plume.field_array
        self._steady_wind = np.repeat(np.array(plume.wind)[:, np.newaxis], num_envs, axis=1)

    def smell(self, cells: Ints, out: NDArray[Any]) -> None:
        """Write the concentrations."""
        sensor_kernels.smell_table(cells, self._table, out)


class PuffBatch:
    """Puffs of its own for each sub-environment."""

    still = False

    def __init__(self, plume: PuffPlume, num_envs: int) -> None:
        same = ("memory", "kick", "drift", "growth", "first_variance", "release_every", "capacity", "warm_up")
        values = {
            "source_x": plume.source_location.x,
            "source_y": plume.source_location.y,
            "wind_x": plume.wind[0],
            "wind_y": plume.wind[1],
            **{name: getattr(plume, name) for name in same},
        }
        self._record = pack_record(puff_kernels.WEATHER, values)
        self._puffs = np.zeros((6, num_envs, plume.capacity))
        self._air = np.zeros((4, num_envs))

    @property
    def wind(self) -> Floats | None:
        """The wind (2 x N)."""
        return self._air[2:]

    def begin(self, which: NDArray[np.bool_], seeds: NDArray[np.int64]) -> None:
        """Start the plumes of the marked sub-environments."""
        puff_kernels.begin(which, seeds, self._puffs, self._air, self._record)

    def advance(self, but: NDArray[np.bool_], seeds: NDArray[np.int64], steps: Ints) -> None:
        """Move all plumes but the marked ones to their present step."""
        puff_kernels.advance(but, seeds, steps, self._puffs, self._air, self._record)

    def smell(self, cells: Ints, out: NDArray[Any]) -> None:
        """Write the concentrations."""
        puff_kernels.smell_puffs(cells, self._puffs, out)


_FIELDS: Final[Mapping[type, Callable[[Any, int], BatchedField]]] = {
    GaussianPlume: GaussianBatch,
    AdvectedPlume: AdvectedBatch,
    PuffPlume: PuffBatch,
}


def make_batched_field(plume: object, num_envs: int) -> BatchedField:
    """Return the field of `num_envs` sub-environments."""
    make = _FIELDS.get(type(plume))
    if make is None:
        raise no_batch_form_error(plume, _FIELDS)
    return make(plume, num_envs)


FLOAT32: Final = np.dtype(np.float32)


class SensorInputs:
    """What a batched sensor may look at: the agents' cells, headings, seeds and the field."""

    def __init__(
        self, field: BatchedField, grid: GridSize, orientation: Floats, seeds: NDArray[np.int64], cells: Ints
    ) -> None:
        # Whole arrays, never views of them: a pickle keeps the identity of an array, but not that of a view.
        self.field = field
        self.grid = grid
        self.num_envs = orientation.size
        self.orientation = orientation
        self.seeds = seeds
        self.cells = cells

    def concentration(self, dtype: Any = np.float64) -> NDArray[Any]:
        """Return the concentration at each agent's cell, a fresh array."""
        out: NDArray[Any] = np.empty(self.num_envs, dtype)
        self.field.smell(self.cells, out)
        return out


def _see_concentration(sensor: ConcentrationSensor, senses: SensorInputs) -> NDArray[Any]:
    return senses.concentration(FLOAT32).reshape(-1, 1)


def _see_hits(sensor: BinaryHitSensor, senses: SensorInputs) -> NDArray[Any]:
    out = np.empty(senses.num_envs, np.int8)
    sensor_kernels.threshold_hits(senses.concentration(), sensor.threshold, out)
    return out.reshape(-1, 1)


def _see_poisson(sensor: PoissonHitSensor, senses: SensorInputs) -> NDArray[Any]:
    out = np.empty(senses.num_envs, np.float32)
    concentration = senses.concentration()
    sensor_kernels.poisson_hits(
        concentration, senses.seeds[2], senses.cells[2], sensor.rate, sensor.most, sensor.channel, out
    )
    return out.reshape(-1, 1)


def _see_antennae(sensor: AntennaePair, senses: SensorInputs) -> NDArray[Any]:
    out = np.empty((2, senses.num_envs), np.float32)
    tips = np.empty((2, senses.num_envs), np.int32)
    for side, angle in enumerate((sensor.angle, -sensor.angle)):
        sensor_kernels.antenna_tips(
            senses.cells, senses.orientation, sensor.reach, angle, senses.grid.width, senses.grid.height, tips
        )
        senses.field.smell(tips, out[side])
    return np.ascontiguousarray(out.T)


def _see_wind(sensor: WindSensor, senses: SensorInputs) -> NDArray[Any]:
    wind: Floats = senses.field.wind  # type: ignore[assignment]  # the single environment has seen that there is wind
    return np.ascontiguousarray(np.clip(wind.T, -sensor.limit, sensor.limit), dtype=np.float32)


def _see_all(sensor: DictSensor, senses: SensorInputs) -> Any:
    return {name: observe(part, senses) for name, part in sensor.sensors.items()}


_SENSORS: Final[Mapping[type, Callable[[Any, SensorInputs], Any]]] = {
    ConcentrationSensor: _see_concentration,
    BinaryHitSensor: _see_hits,
    PoissonHitSensor: _see_poisson,
    AntennaePair: _see_antennae,
    WindSensor: _see_wind,
    DictSensor: _see_all,
}


def observe(sensor: ObservationModel, senses: SensorInputs) -> Any:
    """Return a fresh batch of observations."""
    return _SENSORS[type(sensor)](sensor, senses)


def check_sensor(sensor: object) -> None:
    """Raise a ComponentError if the sensor, or a part of it, has no batched form."""
    if type(sensor) not in _SENSORS:
        raise no_batch_form_error(sensor, _SENSORS)
    for part in sensor.sensors.values() if isinstance(sensor, DictSensor) else ():
        check_sensor(part)
