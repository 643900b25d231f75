"""Observation models: what the agent smells and feels. All are pure; a memory is a value that the environment keeps.

Rule 1: every observation is a fresh array, float32 unless the space says otherwise.
Rule 2: a noisy sensor draws from `env_state["chance"]` at (its channel, the time step), so a repeated call repeats the
    noise, and two sensors on different channels are independent.

A new sensor is a class here, with rows in `config.py` (`_REGISTRY`), `tools.py` (`DESCRIBERS`) and, for batches, `vector/batched_env.py`.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from gymnasium import spaces
from gymnasium.spaces.utils import flatten, flatten_space
from numpy.typing import NDArray

from proctor.contracts.arguments import parse_count, parse_number
from proctor.contracts.chance import Stream
from proctor.contracts.components import DescribedPart, EnvState, Observation, ObservationModel, check_members
from proctor.contracts.spatial import FARTHEST, Coordinates
from proctor.envs.plume.actions import clamp_to_grid
from proctor.errors import ComponentError, ValidationError

FLOAT32: Final = np.dtype(np.float32)
INT8: Final = np.dtype(np.int8)
_empty = np.empty

Floats = NDArray[np.float32]


class ConcentrationSensor(DescribedPart):
    """The concentration at the agent's cell, `Box(0, 1, (1,), float32)`."""

    type_name = "concentration"

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)

    def get_observation(self, env_state: EnvState) -> Floats:
        """Return the concentration here."""
        observation: Floats = _empty(1, FLOAT32)
        observation[0] = env_state["plume_field"].sample(env_state["agent_state"].position)
        return observation


class BinaryHitSensor(DescribedPart):
    """1 where the concentration reaches `threshold`, else 0; `MultiBinary(1)`."""

    type_name = "binary_hit"
    parameters = ("threshold",)

    def __init__(self, threshold: float = 0.1) -> None:
        self.threshold = parse_number("threshold", threshold)
        self.observation_space = spaces.MultiBinary(1)

    def get_observation(self, env_state: EnvState) -> NDArray[np.int8]:
        """Return whether there is a hit here."""
        observation = np.empty(1, INT8)
        observation[0] = env_state["plume_field"].sample(env_state["agent_state"].position) >= self.threshold
        return observation


def poisson_count(mean: float, uniform: float, most: int) -> int:
    """Return the Poisson count of this mean at the quantile `uniform`, at most `most`."""
    chance = math.exp(-mean)
    reached = chance
    count = 0
    while uniform >= reached and count < most:
        count += 1
        chance = chance * mean / count
        reached = reached + chance
    return count


class PoissonHitSensor(DescribedPart):
    """A count of odor hits, Poisson with mean `rate * concentration`, at most `most`; `Box(0, most, (1,), float32)`."""

    type_name = "poisson_hits"
    parameters = ("rate", "most", "channel")

    def __init__(self, rate: float = 5.0, most: int = 20, channel: int = 0) -> None:
        # Beyond 700, exp(-rate) vanishes, and with it every chance of a small count.
        self.rate = parse_number("rate", rate, above=0.0, most=700.0)
        self.most = parse_count("most", most, 1, 1_000_000)
        self.channel = parse_count("channel", channel, 0, 2**32 - 1)
        self.observation_space = spaces.Box(0.0, float(self.most), (1,), np.float32)

    def get_observation(self, env_state: EnvState) -> Floats:
        """Return the number of hits in this step."""
        mean = self.rate * env_state["plume_field"].sample(env_state["agent_state"].position)
        uniform = env_state["chance"].uniform(Stream.SENSOR, env_state["time_step"], self.channel)
        observation = np.empty(1, FLOAT32)
        observation[0] = poisson_count(mean, uniform, self.most)
        return observation


class AntennaePair(DescribedPart):
    """The concentration at the tips of two antennae, (left, right), which turn with the heading.

    A tip is `reach` cells away, `angle` degrees to either side of the heading, rounded to a cell and clamped to the
    grid.
    """

    type_name = "antennae"
    parameters = ("reach", "angle")

    def __init__(self, reach: float = 2.0, angle: float = 45.0) -> None:
        self.reach = parse_number("reach", reach, above=0.0, most=FARTHEST)
        self.angle = parse_number("angle", angle, least=-360.0, most=360.0)
        self.observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)

    def get_observation(self, env_state: EnvState) -> Floats:
        """Return the concentrations left and right."""
        agent = env_state["agent_state"]
        observation = np.empty(2, FLOAT32)
        for side, angle in enumerate((self.angle, -self.angle)):
            direction = math.radians(agent.orientation + angle)
            tip: Coordinates = clamp_to_grid(
                agent.position.x + round(self.reach * math.cos(direction)),
                agent.position.y + round(self.reach * math.sin(direction)),
                env_state["grid_size"],
            )
            observation[side] = env_state["plume_field"].sample(tip)
        return observation


class WindSensor(DescribedPart):
    """The wind at the agent's cell, (u, v) in cells per step, clipped to `limit`; needs a plume with wind."""

    type_name = "wind"
    parameters = ("limit",)
    needs_wind = True

    def __init__(self, limit: float = 10.0) -> None:
        self.limit = parse_number("limit", limit, above=0.0, most=FARTHEST)
        self.observation_space = spaces.Box(-self.limit, self.limit, (2,), np.float32)

    def get_observation(self, env_state: EnvState) -> Floats:
        """Return the wind here."""
        if "wind_field" not in env_state:
            raise ComponentError(
                "a wind sensor needs a plume with wind", found="no wind_field", expected="an advected or puff plume"
            )
        observation = np.empty(2, FLOAT32)
        for axis, speed in enumerate(env_state["wind_field"].sample(env_state["agent_state"].position)):
            observation[axis] = min(max(speed, -self.limit), self.limit)
        return observation


def _observe(model: ObservationModel, env_state: EnvState, memory: Any) -> tuple[Observation, Any]:
    """Return what `model` observes and remembers, whether or not it has a memory."""
    recalling: Any = model
    if hasattr(recalling, "observe"):
        seen: tuple[Observation, Any] = recalling.observe(env_state, memory)
        return seen
    return model.get_observation(env_state), None


class HistorySensor(DescribedPart):
    """The last `length` observations of another sensor, oldest first, as one flat row; zeros before the episode."""

    type_name = "history"
    parameters = ("sensor", "length")

    def __init__(self, sensor: ObservationModel, length: int = 4) -> None:
        check_members("observation_model", sensor)
        self.sensor = sensor
        self.needs_wind = bool(getattr(sensor, "needs_wind", False))
        self.length = parse_count("length", length, 1, 10_000)
        row = flatten_space(sensor.observation_space)
        if not isinstance(row, spaces.Box):
            raise ValidationError("cannot keep a history", found=sensor.observation_space, expected="a flat space")
        low = np.minimum(np.tile(row.low, self.length), 0).astype(np.float32)
        high = np.maximum(np.tile(row.high, self.length), 0).astype(np.float32)
        self.observation_space = spaces.Box(low, high, dtype=np.float32)

    def observe(self, env_state: EnvState, memory: Any) -> tuple[Floats, Any]:
        """Return the history up to now and what to remember."""
        rows, inner_memory = (
            memory if memory is not None else (np.zeros(self.observation_space.shape, np.float32), None)
        )
        observation, inner_memory = _observe(self.sensor, env_state, inner_memory)
        newest: Any = flatten(self.sensor.observation_space, observation)
        history: Floats = np.concatenate([rows[len(newest) :], newest], dtype=np.float32)
        return history, (history.copy(), inner_memory)

    def get_observation(self, env_state: EnvState) -> Floats:
        """Return the history up to now, from the memory in `env_state`."""
        return self.observe(env_state, env_state.get("memory"))[0]


class DictSensor(DescribedPart):
    """Several sensors under names, one level deep; `Dict`."""

    type_name = "dict"
    parameters = ("sensors",)

    def __init__(self, sensors: Mapping[str, ObservationModel]) -> None:
        if not sensors:
            raise ValidationError("a Dict needs sensors", found=dict(sensors), expected="at least one named sensor")
        for sensor in sensors.values():
            check_members("observation_model", sensor)
        nested = [name for name, sensor in sensors.items() if isinstance(sensor.observation_space, spaces.Dict)]
        if nested:
            raise ValidationError("a Dict is one level deep", found=nested[0], expected="sensors that are no Dict")
        self.sensors = dict(sensors)
        self.needs_wind = any(getattr(sensor, "needs_wind", False) for sensor in self.sensors.values())
        self.observation_space = spaces.Dict({name: sensor.observation_space for name, sensor in self.sensors.items()})

    def observe(self, env_state: EnvState, memory: Any) -> tuple[dict[str, Observation], Any]:
        """Return all observations and what to remember."""
        before = memory if memory is not None else {}
        seen = {name: _observe(sensor, env_state, before.get(name)) for name, sensor in self.sensors.items()}
        return {name: pair[0] for name, pair in seen.items()}, {name: pair[1] for name, pair in seen.items()}

    def get_observation(self, env_state: EnvState) -> dict[str, Observation]:
        """Return all observations, from the memory in `env_state`."""
        return self.observe(env_state, env_state.get("memory"))[0]
