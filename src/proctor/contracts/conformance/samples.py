"""The small worlds that checks explore, smallest first: grids, agent states, actions, a field to smell.

Rule 1: everything is listed, never drawn: discrete actions all of them, continuous ones by their corners and a sample
    from a generator with a fixed seed.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from proctor.contracts.chance import Chance
from proctor.contracts.components import EnvState
from proctor.contracts.conformance.report import shorten
from proctor.contracts.spatial import AgentState, Coordinates, GridSize

GRIDS: Final = (GridSize(1, 1), GridSize(1, 2), GridSize(2, 1), GridSize(2, 2), GridSize(3, 3))
HEADINGS: Final = (0.0, 90.0, 180.0, 270.0, 45.0, 359.5)
MOST_ACTIONS: Final = 32


def iterate_cells(grid: GridSize) -> Iterator[Coordinates]:
    """Yield every cell of `grid`."""
    return (Coordinates(x, y) for y in range(grid.height) for x in range(grid.width))


def samples(space: gym.Space[Any], count: int = 8) -> Iterator[Any]:
    """Yield `count` members of `space`, always the same ones; the space itself stays as it is."""
    own = copy.deepcopy(space)
    own.seed(0)
    return (own.sample() for _ in range(count))


def members(space: gym.Space[Any]) -> Iterator[Any]:
    """Yield members of `space`: all of a small discrete one, else the corners and a fixed sample."""
    if isinstance(space, spaces.Discrete):
        yield from range(int(space.start), int(space.start) + min(int(space.n), MOST_ACTIONS))
        return
    if isinstance(space, spaces.Box) and space.is_bounded():
        yield space.low.copy()
        yield space.high.copy()
    yield from samples(space)


def non_members(space: gym.Space[Any]) -> list[Any]:
    """Return values that are not in `space`; bools are left out, because Gymnasium's spaces differ about them."""
    candidates: list[Any] = [None, "no action", 0.5]
    if isinstance(space, spaces.Discrete):
        candidates += [int(space.start) - 1, int(space.start) + int(space.n)]
    if isinstance(space, spaces.Box):
        candidates.append(np.zeros((*space.shape, 1), space.dtype))
        if np.issubdtype(space.dtype, np.floating):
            candidates.append(np.full(space.shape, np.nan, space.dtype))
        if space.is_bounded():
            candidates.append(space.high + 1)
    return [candidate for candidate in candidates if not space.contains(candidate)]


def iterate_agent_states(grid: GridSize) -> Iterator[AgentState]:
    """Yield an agent in the middle of its episode on every cell, with every heading."""
    for cell in iterate_cells(grid):
        for orientation in HEADINGS:
            yield AgentState(cell, orientation, 7, 0.5, False)


@dataclass(frozen=True, slots=True)
class ProcessorCall:
    """One question to an action processor."""

    action: Any
    state: AgentState
    grid: GridSize

    def ask(self, processor: Any) -> AgentState:
        """Return the processor's answer."""
        after: AgentState = processor.process_action(self.action, self.state, self.grid)
        return after

    def __str__(self) -> str:
        here = self.state.position
        where = f"({here.x}, {here.y}) heading {self.state.orientation:g} on {self.grid.width} x {self.grid.height}"
        return f"action {shorten(self.action)} at {where}"


class UniformWind:
    """A wind that is the same everywhere."""

    def sample(self, position: Coordinates) -> tuple[float, float]:
        """Return (u, v) in cells per step."""
        return 0.5, -0.25


class RampField:
    """A field to smell: rises from 0 at (0, 0) to 1 in the opposite corner."""

    def __init__(self, grid_size: GridSize) -> None:
        self.grid_size = grid_size
        self.wind_field = UniformWind()
        rising = np.add.outer(np.arange(grid_size.height), np.arange(grid_size.width))
        self.field_array: NDArray[np.float64] = rising / max(grid_size.width + grid_size.height - 2, 1)
        self.field_array.flags.writeable = False

    def sample(self, position: Coordinates) -> float:
        """Return the value at `position`."""
        if not self.grid_size.contains(position):
            raise IndexError(f"({position.x}, {position.y}) is off the grid")
        return float(self.field_array[position.y, position.x])


def iterate_env_states() -> Iterator[EnvState]:
    """Yield what an observation model may be asked about, the smallest grid first."""
    for grid in GRIDS:
        field = RampField(grid)
        for agent in iterate_agent_states(grid):
            yield {
                "agent_state": agent,
                "plume_field": field,
                "time_step": agent.step_count,
                "grid_size": grid,
                "chance": Chance(1),
                "wind_field": field.wind_field,
            }


def iterate_steps() -> Iterator[tuple[AgentState, AgentState, RampField]]:
    """Yield (before, after, field) for every pair of cells, with and without the goal reached."""
    for grid in GRIDS:
        field = RampField(grid)
        for before in (AgentState(cell, 90.0, 7, 0.5) for cell in iterate_cells(grid)):
            for cell in iterate_cells(grid):
                for reached in (False, True):
                    yield before, AgentState(cell, 90.0, 8, 0.5, reached), field


def is_identical(one: Any, other: Any) -> bool:
    """Return whether two values are equal bit by bit, through dicts, sequences and arrays; NaN equals NaN."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_identical(value, other[key]) for key, value in one.items())
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(is_identical(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict | tuple | list) or isinstance(other, dict | tuple | list):
        return False
    if isinstance(one, np.ndarray | np.generic | float) or isinstance(other, np.ndarray | np.generic | float):
        first, second = np.asarray(one), np.asarray(other)
        if first.dtype != second.dtype or first.shape != second.shape:
            return False
        if first.dtype == object:
            return is_identical(first.tolist(), second.tolist())
        return first.tobytes() == second.tobytes()
    return bool(one == other)


def iterate_arrays(value: Any) -> Iterator[NDArray[Any]]:
    """Yield the arrays that an observation is made of."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, dict | tuple | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from iterate_arrays(part)
