"""Many plume searches in one: a Gymnasium vector environment whose every step is a few compiled loops.

Rule 1: the rules of `proctor.envs.vector.batched_env` hold; what is here is what happens in an episode.
Rule 2: the state of an instant is two blocks of arrays, `_cells` and `_sums`, that no later step writes to.
Rule 3: what actions, rewards, fields and sensors become for the kernels is a row per type.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from proctor.contracts.components import ObservationModel
from proctor.contracts.spatial import Coordinates, GridSize, normalize_heading
from proctor.envs.plume import sensors
from proctor.envs.plume.actions import DiscreteGridActions, EightDirectionActions, OrientedGridActions
from proctor.envs.plume.config import ComponentKind
from proctor.envs.plume.env import PlumeSearchEnv, start_cells
from proctor.envs.plume.fields import AdvectedPlume, GaussianPlume, PuffPlume
from proctor.envs.plume.rewards import ShapedReward, SparseGoalReward, StepPenaltyReward
from proctor.envs.plume.vector import kernels
from proctor.envs.plume.vector.kernels import RULES
from proctor.envs.vector.batched_env import (
    BOOL,
    INT32,
    BatchedEnv,
    Mask,
    batch_error,
    make_final_info,
    no_batch_form_error,
    pack_record,
)

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]


class BatchedField:
    """The odor of every sub-environment; as it is here it never changes, and there is no wind."""

    still = True
    """Whether the field never changes, so that `begin` and `advance` do nothing."""

    @property
    def wind(self) -> Floats | None:
        """The wind (2 x N), where there is any."""
        return None

    def begin(self, which: NDArray[np.bool_], seeds: NDArray[np.int64]) -> None:
        """Start the plumes of the marked sub-environments."""

    def advance(self, but: NDArray[np.bool_], seeds: NDArray[np.int64], steps: Ints) -> None:
        """Move all plumes but the marked ones to their present step."""

    def smell(self, cells: Ints, out: NDArray[Any]) -> None:
        """Write the concentration at one cell per sub-environment; the first rows of `cells` are x and y."""
        raise NotImplementedError  # abstract: every field has its kernel


class GaussianBatch(BatchedField):
    """One Gaussian for all: two rows of numbers."""

    def __init__(self, plume: GaussianPlume, num_envs: int) -> None:
        self._rows = np.array(plume.along_x), np.array(plume.along_y)

    def smell(self, cells: Ints, out: NDArray[Any]) -> None:
        """Write the concentrations."""
        kernels.smell_product(cells, *self._rows, out)


class AdvectedBatch(BatchedField):
    """One steady plume for all: a table."""

    def __init__(self, plume: AdvectedPlume, num_envs: int) -> None:
        self._table = plume.field_array
        self._wind: Floats = np.repeat(np.array(plume.wind)[:, np.newaxis], num_envs, axis=1)

    @property
    def wind(self) -> Floats:
        """The wind (2 x N)."""
        return self._wind

    def smell(self, cells: Ints, out: NDArray[Any]) -> None:
        """Write the concentrations."""
        kernels.smell_table(cells, self._table, out)


class PuffBatch(BatchedField):
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
        self._record = pack_record(kernels.WEATHER, values)
        self._puffs = np.zeros((6, num_envs, plume.capacity))
        self._air = np.zeros((4, num_envs))

    @property
    def wind(self) -> Floats:
        """The wind (2 x N)."""
        return self._air[2:]

    def begin(self, which: NDArray[np.bool_], seeds: NDArray[np.int64]) -> None:
        """Start the plumes of the marked sub-environments."""
        kernels.begin_puffs(which, seeds, self._puffs, self._air, self._record)

    def advance(self, but: NDArray[np.bool_], seeds: NDArray[np.int64], steps: Ints) -> None:
        """Move all plumes but the marked ones to their present step."""
        kernels.advance_puffs(but, seeds, steps, self._puffs, self._air, self._record)

    def smell(self, cells: Ints, out: NDArray[Any]) -> None:
        """Write the concentrations."""
        kernels.smell_puffs(cells, self._puffs, out)


_FIELDS: Final[Mapping[type, Callable[[Any, int], BatchedField]]] = {
    GaussianPlume: GaussianBatch,
    AdvectedPlume: AdvectedBatch,
    PuffPlume: PuffBatch,
}


def make_batched_field(plume: object, num_envs: int) -> BatchedField:
    """Return the field of `num_envs` sub-environments."""
    if type(plume) not in _FIELDS:
        raise no_batch_form_error(plume, _FIELDS)
    return _FIELDS[type(plume)](plume, num_envs)


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


def _see_concentration(sensor: sensors.ConcentrationSensor, senses: SensorInputs) -> NDArray[Any]:
    return senses.concentration(sensors.FLOAT32).reshape(-1, 1)


def _see_hits(sensor: sensors.BinaryHitSensor, senses: SensorInputs) -> NDArray[Any]:
    return (senses.concentration() >= sensor.threshold).view(np.int8).reshape(-1, 1)


def _see_poisson(sensor: sensors.PoissonHitSensor, senses: SensorInputs) -> NDArray[Any]:
    out = np.empty(senses.num_envs, np.float32)
    concentration = senses.concentration()
    kernels.poisson_hits(concentration, senses.seeds[2], senses.cells[2], sensor.rate, sensor.most, sensor.channel, out)
    return out.reshape(-1, 1)


def _see_antennae(sensor: sensors.AntennaePair, senses: SensorInputs) -> NDArray[Any]:
    out = np.empty((2, senses.num_envs), np.float32)
    tips = np.empty((2, senses.num_envs), np.int32)
    for side, angle in enumerate((sensor.angle, -sensor.angle)):
        kernels.antenna_tips(
            senses.cells, senses.orientation, sensor.reach, angle, senses.grid.width, senses.grid.height, tips
        )
        senses.field.smell(tips, out[side])
    return np.ascontiguousarray(out.T)


def _see_wind(sensor: sensors.WindSensor, senses: SensorInputs) -> NDArray[Any]:
    wind: Floats = senses.field.wind  # type: ignore[assignment]  # the single environment has seen that there is wind
    return np.ascontiguousarray(np.clip(wind.T, -sensor.limit, sensor.limit), dtype=np.float32)


_SENSORS: Final[Mapping[type, Callable[[Any, SensorInputs], Any]]] = {
    sensors.ConcentrationSensor: _see_concentration,
    sensors.BinaryHitSensor: _see_hits,
    sensors.PoissonHitSensor: _see_poisson,
    sensors.AntennaePair: _see_antennae,
    sensors.WindSensor: _see_wind,
    sensors.DictSensor: lambda sensor, senses: {name: observe(part, senses) for name, part in sensor.sensors.items()},
}


def observe(sensor: ObservationModel, senses: SensorInputs) -> Any:
    """Return a fresh batch of observations."""
    return _SENSORS[type(sensor)](sensor, senses)


def check_sensor(sensor: object) -> None:
    """Raise a ComponentError if the sensor, or a part of it, has no batched form."""
    if type(sensor) not in _SENSORS:
        raise no_batch_form_error(sensor, _SENSORS)
    for part in sensor.sensors.values() if isinstance(sensor, sensors.DictSensor) else ():
        check_sensor(part)


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


def _reward_rules(reward: Any) -> dict[str, Any]:
    shape: dict[str, Any] = {}
    if type(reward) is ShapedReward:
        shape = {"shaped": 1, "scale": reward.scale, "discount": reward.discount}
        reward = reward.inner
    if type(reward) not in (SparseGoalReward, StepPenaltyReward):
        raise no_batch_form_error(reward, (SparseGoalReward, StepPenaltyReward, ShapedReward))
    return {"reward_radius": reward.goal_radius, "at_goal": reward.at_goal, "elsewhere": reward.elsewhere, **shape}


def _check_total(rules: Mapping[str, Any], grid: GridSize, source: Coordinates) -> None:
    """Raise a ComponentError if an episode's total reward could leave the finite numbers: no kernel checks it."""
    corners = (Coordinates(x, y) for x in (0, grid.width - 1) for y in (0, grid.height - 1))
    farthest = max(corner.distance_to(source) for corner in corners)
    potential = abs(rules.get("scale", 0.0)) * farthest
    change = rules.get("discount", 0.0) * potential + potential
    largest = max(abs(rules["at_goal"]), abs(rules["elsewhere"])) + change
    # Twice, because sums round.
    if not math.isfinite(2.0 * rules["max_steps"] * largest):
        raise batch_error(
            "the total reward could leave the finite numbers",
            found=largest,
            expected=f"rewards whose sum over {rules['max_steps']} steps is finite",
        )


def pack_rules(env: PlumeSearchEnv) -> NDArray[Any]:
    """Return the numbers that do not change, as one `RULES` record."""
    processor, reward = env.components[ComponentKind.ACTION], env.components[ComponentKind.REWARD]
    action_rules = _ACTIONS.get(type(processor))
    if action_rules is None:
        raise no_batch_form_error(processor, _ACTIONS)
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
    _check_total(values, env.grid_size, env.source_location)
    return pack_record(RULES, values)


class BatchedPlumeSearch(BatchedEnv):
    """`num_envs` plume searches, stepped together.

    Takes the settings of `PlumeSearchEnv`, and `autoreset_mode`. `info` has the single environment's keys as arrays,
    each with a mask `_key` of the sub-environments that it speaks of; an episode that began by itself reports `seed`.
    It does not render: replay an episode by its seed in the single environment.
    """

    single_class = PlumeSearchEnv
    _single: PlumeSearchEnv

    def _allocate(self) -> None:
        n, single = self.num_envs, self._single
        self._full_info = single.config.info_level == "full"
        self._record = pack_rules(single)
        free = start_cells(single.grid_size, single.source_location, single.goal_radius)
        self._starts = np.array([free.before, (*free.skip_from, 0), (*free.skip_to, 0)], np.int64)
        self._field = make_batched_field(single.components[ComponentKind.PLUME], n)
        self._sensor = single.components[ComponentKind.OBSERVATION]
        check_sensor(self._sensor)
        self._block_shape, self._flags_shape = (3, n), (5, n)
        self._cells: NDArray[np.int32] = np.zeros((3, n), np.int32)
        self._sums: NDArray[np.float64] = np.zeros((3, n))
        self._orientation = np.zeros(n)
        self._still = self._field.still
        self._senses = SensorInputs(self._field, single.grid_size, self._orientation, self._seeds, self._cells)

    def _begin(self, which: Mask, options: Mapping[str, Any]) -> None:
        cells, sums = self._cells.copy(), self._sums.copy()
        kernels.start(which, cells, sums, self._orientation, self._seeds, self._starts, self._record)
        self._place(which, options, cells, sums)
        self._field.begin(which, self._seeds[2])
        self._commit(cells, sums)

    def _observations(self) -> Any:
        return observe(self._sensor, self._senses)

    def _place(self, which: Mask, options: Mapping[str, Any], cells: Any, sums: Any) -> None:
        """Overrule the drawn starts by the options `start` and `orientation`."""
        orientation = normalize_heading(options.get("orientation", 0.0))
        start = options.get("start")
        for i in np.flatnonzero(which) if start is not None or orientation else ():
            x, y = start if start is not None else cells[:2, i]
            kernels.place(i, x, y, orientation, cells, sums, self._orientation, self._record[0])

    def step(self, actions: Any) -> tuple[Any, NDArray[np.float64], Mask, Mask, dict[str, Any]]:
        """Advance every sub-environment; those that ended before begin an episode instead, as the mode says."""
        actions = self._parse_actions(actions)
        before = self._ended
        cells: NDArray[np.int32] = np.empty(self._block_shape, INT32)
        sums: NDArray[np.float64] = np.empty(self._block_shape)
        flags: Mask = np.empty(self._flags_shape, BOOL)
        constants = self._orientation, self._seeds, self._starts, self._record
        begun = kernels.step(actions, self._cells, self._sums, before, cells, sums, flags, *constants)
        if begun < 0:
            raise self._illegal_action_error(actions, -1 - begun)
        if not self._still:
            self._field.begin(before, self._seeds[2])
            self._field.advance(before, self._seeds[2], cells[2])
        reward, terminated, truncated, self._ended = sums[2], flags[0], flags[1], flags[3]
        self._commit(cells, sums)
        if self._restarts_at_once and self._ended.any():
            info = self._restart_at_once(flags)
        else:
            info = self._step_info(flags[2], flags[4])
            if begun:
                info.update(self._reset_info(before))
        return observe(self._sensor, self._senses), reward, terminated, truncated, info

    def _restart_at_once(self, flags: Mask) -> dict[str, Any]:
        """Begin the next episode where one has just ended; the last observation and info are in the info returned."""
        ended = self._ended
        last = self._observations()
        final_info = self._step_info(flags[2], ended)
        cells, sums, begun_flags = self._cells.copy(), self._sums.copy(), flags.copy()
        kernels.restart(ended, cells, sums, begun_flags, self._orientation, self._seeds, self._starts, self._record)
        self._field.begin(ended, self._seeds[2])
        self._ended = begun_flags[3]
        self._commit(cells, sums)
        return {
            **self._step_info(begun_flags[2], ~ended),
            **self._reset_info(ended),
            **make_final_info(last, final_info, ended),
        }

    def _commit(self, cells: NDArray[np.int32], sums: NDArray[np.float64]) -> None:
        """Make these blocks the present ones; they go out in `info`, so nobody may write to them."""
        cells.setflags(write=False)
        sums.setflags(write=False)
        self._cells = self._senses.cells = cells
        self._sums = sums

    def _step_info(self, goal_reached: Mask, speaks_of: Mask) -> dict[str, Any]:
        """Return the info of a step for the sub-environments that `speaks_of` marks."""
        info: dict[str, Any] = {
            "step_count": self._cells[2],
            "_step_count": speaks_of,
            "total_reward": self._sums[0],
            "_total_reward": speaks_of,
            "goal_reached": goal_reached,
            "_goal_reached": speaks_of,
        }
        self._add_place(info, speaks_of)
        return info

    def _add_place(self, info: dict[str, Any], speaks_of: Mask) -> None:
        if self._full_info:
            info["agent_xy"], info["_agent_xy"] = self._cells[:2].T, speaks_of
            info["distance_to_source"], info["_distance_to_source"] = self._sums[1], speaks_of

    def _reset_info(self, begun: Mask) -> dict[str, Any]:
        """Return the info of the sub-environments that have begun an episode (but all have a seed and a place)."""
        info = super()._reset_info(begun)
        self._add_place(info, self._everyone)
        return info
