"""The checks of the observation model's clauses, over every cell and heading of small grids."""

import copy
from collections.abc import Callable
from typing import Any, Final

import gymnasium as gym
import numpy as np

from proctor.contracts.components import EnvState, RecallingModel
from proctor.contracts.conformance.report import KEPT, CannotTell, Check, CheckProbe, Outcome, has_metadata, shorten
from proctor.contracts.conformance.samples import is_identical, iterate_arrays, iterate_env_states


def _words(env_state: EnvState) -> str:
    agent, grid = env_state["agent_state"], env_state["grid_size"]
    where = f"({agent.position.x}, {agent.position.y}) heading {agent.orientation:g} on {grid.width} x {grid.height}"
    return f"get_observation() at {where}"


def _each(probe: CheckProbe, problem: Callable[[EnvState], str | None]) -> Outcome:
    for env_state in iterate_env_states():
        probe.doing = _words(env_state)
        found = problem(env_state)
        if found is not None:
            return probe.broken(found)
    return KEPT


def the_space_is_one_gymnasium_space(probe: CheckProbe) -> Outcome:
    """SENSOR-1."""
    sensor = probe.make()
    probe.doing = "observation_space, read twice"
    space = sensor.observation_space
    if not isinstance(space, gym.Space):
        return probe.broken(f"is {shorten(space)}, no gymnasium space")
    return KEPT if sensor.observation_space is space else probe.broken("gives two different instances")


def every_observation_lies_in_the_space(probe: CheckProbe) -> Outcome:
    """SENSOR-2."""
    sensor = probe.make()

    def problem(env_state: EnvState) -> str | None:
        observation = sensor.get_observation(env_state)
        return None if sensor.observation_space.contains(observation) else f"returns {shorten(observation)}"

    return _each(probe, problem)


def the_same_state_gives_the_same_observation(probe: CheckProbe) -> Outcome:
    """SENSOR-3."""
    sensor, twin = probe.make(), probe.make()

    def problem(env_state: EnvState) -> str | None:
        one, *others = (model.get_observation(env_state) for model in (sensor, sensor, twin))
        differing = [other for other in others if not is_identical(one, other)]
        return f"gives {shorten(one)}, then {shorten(differing[0])}" if differing else None

    return _each(probe, problem)


def observing_changes_nothing(probe: CheckProbe) -> Outcome:
    """SENSOR-4."""
    sensor = probe.make()

    def problem(env_state: EnvState) -> str | None:
        handed: Any = {**env_state}
        agent, values = copy.deepcopy(env_state["agent_state"]), env_state["plume_field"].field_array.copy()
        sensor.get_observation(handed)
        if handed.keys() != env_state.keys() or any(handed[key] is not value for key, value in env_state.items()):
            return "changes the dict that it was given"
        if env_state["agent_state"] != agent:
            return "changes the agent's state"
        return None if is_identical(env_state["plume_field"].field_array, values) else "changes the field"

    return _each(probe, problem)


def _overlap(one: Any, other: Any) -> bool:
    return any(np.shares_memory(a, b) for a in iterate_arrays(one) for b in iterate_arrays(other))


def every_observation_is_fresh(probe: CheckProbe) -> Outcome:
    """SENSOR-5."""
    sensor = probe.make()

    def problem(env_state: EnvState) -> str | None:
        once, again = (sensor.get_observation(env_state) for _ in range(2))
        if _overlap(once, env_state["plume_field"].field_array):
            return "returns a view of the field"
        return "returns the same array twice" if _overlap(once, again) else None

    return _each(probe, problem)


def metadata_names_type_and_parameters(probe: CheckProbe) -> Outcome:
    """SENSOR-6."""
    return has_metadata(probe, {"type": str, "parameters": dict})


def a_memory_is_left_as_it_was(probe: CheckProbe) -> Outcome:
    """SENSOR-7."""
    sensor = probe.make()
    if not isinstance(sensor, RecallingModel):
        raise CannotTell("the sensor has no method `observe`, so it remembers nothing")
    memory = None

    def problem(env_state: EnvState) -> str | None:
        nonlocal memory
        before = copy.deepcopy(memory)
        observation, remembered = sensor.observe(env_state, memory)
        if not is_identical(memory, before):
            return f"observe() changes the memory that it was given: {shorten(before)} became {shorten(memory)}"
        if _overlap(observation, remembered):
            return "the observation is an array that observe() also remembers"
        other = sensor.get_observation({**env_state, "memory": memory})
        memory = remembered
        return (
            None
            if is_identical(observation, other)
            else f"observe() gives {shorten(observation)}, not {shorten(other)}"
        )

    return _each(probe, problem)


CHECKS: Final[dict[str, Check]] = {
    "SENSOR-1": the_space_is_one_gymnasium_space,
    "SENSOR-2": every_observation_lies_in_the_space,
    "SENSOR-3": the_same_state_gives_the_same_observation,
    "SENSOR-4": observing_changes_nothing,
    "SENSOR-5": every_observation_is_fresh,
    "SENSOR-6": metadata_names_type_and_parameters,
    "SENSOR-7": a_memory_is_left_as_it_was,
}
