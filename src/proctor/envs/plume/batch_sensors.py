"""The sensors of a batch: one function per type, from the agents' cells to a batch of observations."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from proctor.contracts.components import ObservationModel
from proctor.contracts.spatial import GridSize
from proctor.envs.batch_refusals import no_batched_form
from proctor.envs.plume import sensor_kernels
from proctor.envs.plume.batch_fields import BatchedField, Floats, Ints
from proctor.envs.plume.sensors import (
    AntennaePair,
    BinaryHitSensor,
    ConcentrationSensor,
    DictSensor,
    PoissonHitSensor,
    WindSensor,
)

FLOAT32: Final = np.dtype(np.float32)


class Senses:
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


def _see_concentration(sensor: ConcentrationSensor, senses: Senses) -> NDArray[Any]:
    return senses.concentration(FLOAT32).reshape(-1, 1)


def _see_hits(sensor: BinaryHitSensor, senses: Senses) -> NDArray[Any]:
    out = np.empty(senses.num_envs, np.int8)
    sensor_kernels.threshold_hits(senses.concentration(), sensor.threshold, out)
    return out.reshape(-1, 1)


def _see_poisson(sensor: PoissonHitSensor, senses: Senses) -> NDArray[Any]:
    out = np.empty(senses.num_envs, np.float32)
    concentration = senses.concentration()
    sensor_kernels.poisson_hits(
        concentration, senses.seeds[2], senses.cells[2], sensor.rate, sensor.most, sensor.channel, out
    )
    return out.reshape(-1, 1)


def _see_antennae(sensor: AntennaePair, senses: Senses) -> NDArray[Any]:
    out = np.empty((2, senses.num_envs), np.float32)
    tips = np.empty((2, senses.num_envs), np.int32)
    for side, angle in enumerate((sensor.angle, -sensor.angle)):
        sensor_kernels.antenna_tips(
            senses.cells, senses.orientation, sensor.reach, angle, senses.grid.width, senses.grid.height, tips
        )
        senses.field.smell(tips, out[side])
    return np.ascontiguousarray(out.T)


def _see_wind(sensor: WindSensor, senses: Senses) -> NDArray[Any]:
    wind: Floats = senses.field.wind  # type: ignore[assignment]  # the single environment has seen that there is wind
    return np.ascontiguousarray(np.clip(wind.T, -sensor.limit, sensor.limit), dtype=np.float32)


def _see_all(sensor: DictSensor, senses: Senses) -> Any:
    return {name: observe(part, senses) for name, part in sensor.sensors.items()}


_SENSORS: Final[Mapping[type, Callable[[Any, Senses], Any]]] = {
    ConcentrationSensor: _see_concentration,
    BinaryHitSensor: _see_hits,
    PoissonHitSensor: _see_poisson,
    AntennaePair: _see_antennae,
    WindSensor: _see_wind,
    DictSensor: _see_all,
}


def observe(sensor: ObservationModel, senses: Senses) -> Any:
    """Return a fresh batch of observations."""
    return _SENSORS[type(sensor)](sensor, senses)


def check_sensor(sensor: object) -> None:
    """Raise a ComponentError if the sensor, or a part of it, has no batched form."""
    if type(sensor) not in _SENSORS:
        raise no_batched_form(sensor, _SENSORS)
    for part in sensor.sensors.values() if isinstance(sensor, DictSensor) else ():
        check_sensor(part)
