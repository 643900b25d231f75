"""What each component becomes in a batch: arrays and the kernels that read them, one row per type.

Rule 1: a component is known by its exact type; a subclass may behave differently, so it is refused like any other type
    that has no row here.
Rule 2: a number that a kernel cannot hold, or whose results it cannot, is refused here; kernels check nothing.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from proctor.contracts.components import ObservationModel
from proctor.contracts.spatial import MAX_SIDE, Coordinates, GridSize
from proctor.envs.plume import puff_kernels, sensor_kernels
from proctor.envs.plume.actions import DiscreteGridActions, EightDirectionActions, OrientedGridActions
from proctor.envs.plume.env import PlumeSearchEnv
from proctor.envs.plume.factories import Kind
from proctor.envs.plume.fields import AdvectedPlume, GaussianPlume
from proctor.envs.plume.kernels import RULES
from proctor.envs.plume.puffs import PuffPlume
from proctor.envs.plume.rewards import ShapedReward, SparseGoalReward, StepPenaltyReward
from proctor.envs.plume.sensors import (
    AntennaePair,
    BinaryHitSensor,
    ConcentrationSensor,
    DictSensor,
    PoissonHitSensor,
    WindSensor,
)
from proctor.envs.plume.start import start_cells
from proctor.errors import ComponentError

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]

_EPSILON: Final = 2.0**-52


def cannot_batch(why: str, *, found: object, expected: str) -> ComponentError:
    """Return the error for a configuration that only the single environment can run."""
    return ComponentError(
        f"this configuration cannot be batched: {why}; use vectorization_mode='sync' or 'async'",
        found=found,
        expected=expected,
    )


def no_batched_form(part: object, known: Mapping[type, object]) -> ComponentError:
    """Return the error for a component that has no row here."""
    return cannot_batch(
        "a part has no batched form",
        found=type(part).__name__,
        expected=f"one of {', '.join(kind.__name__ for kind in known)}",
    )


def packed(kind: np.dtype[Any], values: Mapping[str, Any]) -> NDArray[Any]:
    """Return the values as one record of this kind, or raise a ComponentError for one that its field cannot hold."""
    record = np.zeros(1, kind)
    for name, value in values.items():
        with suppress(OverflowError):  # the field stays 0, which differs from the value
            record[name] = value
        if record[name].item() != value:
            raise cannot_batch(f"{name} does not fit its field", found=value, expected=f"{name} as {kind[name]}")
    return record


_STRIDE: Final = {"step_size": 2**31 - MAX_SIDE}
_LIMITS: Final[Mapping[type, Mapping[str, int]]] = {
    DiscreteGridActions: _STRIDE,
    EightDirectionActions: _STRIDE,
    OrientedGridActions: _STRIDE,
    PoissonHitSensor: {"most": 2**63, "channel": 2**63},
    AntennaePair: {"reach": 2**62},
}
"""What the numbers of a part must stay below, so that neither they nor a cell moved by them overflow in a kernel."""


def check_limits(part: object) -> None:
    """Raise a ComponentError for a number of this part that is too large for its kernel."""
    for name, limit in _LIMITS.get(type(part), {}).items():
        value = getattr(part, name)
        if value >= limit:
            raise cannot_batch(f"{name} is too large", found=value, expected=f"{name} < {limit}")


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
    return senses.concentration(np.float32).reshape(-1, 1)


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
    wind: Floats = senses.field.wind  # type: ignore[assignment]  # `check_sensor` has seen that there is wind
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


def check_sensor(sensor: object, field: BatchedField) -> None:
    """Raise a ComponentError if the sensor has no batched form, has too large a number or lacks its wind."""
    if type(sensor) not in _SENSORS:
        raise no_batched_form(sensor, _SENSORS)
    check_limits(sensor)
    if isinstance(sensor, DictSensor):
        for part in sensor.sensors.values():
            check_sensor(part, field)
    if isinstance(sensor, WindSensor) and field.wind is None:
        raise ComponentError(
            "a wind sensor needs a plume with wind", found="no wind", expected="an advected or puff plume"
        )


def _compass_rules(processor: Any) -> dict[str, Any]:
    signs = [0, 0]
    for action, move in enumerate(processor.directions):
        for axis in (0, 1):
            signs[axis] |= (move[axis] + 1) << (2 * action)
    return {"turns": 0, "signs_x": signs[0], "signs_y": signs[1]}


_ACTIONS: Final[Mapping[type, Callable[[Any], dict[str, Any]]]] = {
    DiscreteGridActions: _compass_rules,
    EightDirectionActions: _compass_rules,
    OrientedGridActions: lambda processor: {"turns": 1},
}

_REWARDS: Final[Mapping[type, Callable[[Any], dict[str, Any]]]] = {
    SparseGoalReward: lambda reward: {"reward_radius": reward.goal_radius, "at_goal": 1.0, "elsewhere": 0.0},
    StepPenaltyReward: lambda reward: {
        "reward_radius": reward.goal_radius,
        "at_goal": reward.goal_reward,
        "elsewhere": -reward.step_penalty,
    },
}


def _reward_rules(reward: Any) -> dict[str, Any]:
    shape: dict[str, Any] = {}
    if type(reward) is ShapedReward:
        shape = {"shaped": 1, "scale": reward.scale, "discount": reward.discount}
        reward = reward.inner
    rules = _REWARDS.get(type(reward))
    if rules is None:
        raise no_batched_form(reward, {**_REWARDS, ShapedReward: None})
    return {**rules(reward), **shape}


def _farthest(grid: GridSize, source: Coordinates) -> float:
    """Return the largest distance to the source."""
    corners = (Coordinates(x, y) for x in (0, grid.width - 1) for y in (0, grid.height - 1))
    return max(corner.distance_to(source) for corner in corners)


def _check_total(rules: Mapping[str, Any], farthest: float) -> None:
    """Raise a ComponentError if an episode's total reward could leave the finite numbers."""
    potential = abs(rules.get("scale", 0.0)) * farthest
    change = rules.get("discount", 0.0) * potential + potential
    largest = max(abs(rules["at_goal"]), abs(rules["elsewhere"])) + change
    steps = rules["max_steps"]
    # Every addition after the first may round up by half an epsilon.
    if not math.isfinite(steps * largest * (1.0 + (steps - 1) * _EPSILON)):
        raise cannot_batch(
            "the total reward could leave the finite numbers",
            found=largest,
            expected=f"rewards whose sum over {steps} steps is finite",
        )


def rules_of(env: PlumeSearchEnv) -> NDArray[Any]:
    """Return the numbers that do not change, as one `RULES` record."""
    processor, reward = env.components[Kind.ACTION], env.components[Kind.REWARD]
    action_rules = _ACTIONS.get(type(processor))
    if action_rules is None:
        raise no_batched_form(processor, _ACTIONS)
    check_limits(processor)
    values = {
        "width": env.grid_size.width,
        "height": env.grid_size.height,
        "source_x": env.source_location.x,
        "source_y": env.source_location.y,
        "max_steps": env.max_steps,
        "goal_radius": env.goal_radius,
        "n_actions": processor.action_space.n,
        "step_size": processor.step_size,
        **action_rules(processor),
        **_reward_rules(reward),
    }
    record = packed(RULES, values)
    _check_total(values, _farthest(env.grid_size, env.source_location))
    return record


def starts_of(env: PlumeSearchEnv) -> NDArray[np.int64]:
    """Return the cells where an episode may start, as the kernels read them."""
    cells = start_cells(env.grid_size, env.source_location, env.goal_radius)
    return np.array([cells.before, (*cells.skip_from, 0), (*cells.skip_to, 0)], np.int64)
