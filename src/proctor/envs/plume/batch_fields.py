"""The plumes of a batch: arrays and the kernels that read them, one class per type."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from proctor.envs.batch_refusals import no_batched_form, packed
from proctor.envs.plume import puff_kernels, sensor_kernels
from proctor.envs.plume.fields import AdvectedPlume, GaussianPlume
from proctor.envs.plume.puffs import PuffPlume

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
        self._record = packed(puff_kernels.WEATHER, values)
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


def batched_field(plume: object, num_envs: int) -> BatchedField:
    """Return the field of `num_envs` sub-environments."""
    make = _FIELDS.get(type(plume))
    if make is None:
        raise no_batched_form(plume, _FIELDS)
    return make(plume, num_envs)
