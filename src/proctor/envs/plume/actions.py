"""Action processors: how an action moves the agent. All are pure and keep every field they do not change.

Rule 1: `validate_action` is the only judge of an action. It is stricter than `action_space.contains`: a bool is no
    action, and neither is a float, though numpy's `contains` may let them pass.
Rule 2: a move that would leave the grid is clamped to its edge, axis by axis.
Rule 3: cells are interned: grids of up to `INTERNED_CELLS` cells share one table per grid and movement set, so a step
    makes no new cell.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Final

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from proctor.contracts.arguments import is_choice, parse_count, parse_number
from proctor.contracts.components import DescribedPart, Metadata
from proctor.contracts.spatial import FARTHEST, AgentState, Coordinates, GridSize, normalize_heading
from proctor.errors import ValidationError

INTERNED_CELLS: Final = 2**16

Move = tuple[int, int]
Rows = Sequence[Sequence[Coordinates]]


@lru_cache(maxsize=16)
def _cells(grid: GridSize) -> Rows:
    return tuple(tuple(Coordinates(x, y) for x in range(grid.width)) for y in range(grid.height))


@lru_cache(maxsize=64)
def _make_move_table(grid: GridSize, moves: tuple[Move, ...]) -> tuple[Rows, ...]:
    """Return, for each move, the rows of cells that the cell at [y][x] leads to."""
    cells = _cells(grid)
    shifted = {
        dx: tuple(tuple(row[min(max(x + dx, 0), grid.width - 1)] for x in range(grid.width)) for row in cells)
        for dx in {dx for dx, _ in moves}
    }
    last = grid.height - 1
    return tuple(tuple(shifted[dx][min(max(y + dy, 0), last)] for y in range(grid.height)) for dx, dy in moves)


def clamp_to_grid(x: int, y: int, grid: GridSize) -> Coordinates:
    """Return the cell of the grid that is nearest to (x, y), axis by axis."""
    return Coordinates(min(max(x, 0), grid.width - 1), min(max(y, 0), grid.height - 1))


@lru_cache(maxsize=4096)
def move_along(orientation: float, step_size: int) -> Move:
    """Return the whole cells that a step of this size makes along `orientation`: cosine and sine, rounded."""
    angle = math.radians(orientation)
    return round(step_size * math.cos(angle)), round(step_size * math.sin(angle))


class _Actions(DescribedPart):
    movement_model: ClassVar[str]

    def get_metadata(self) -> Metadata:
        """Return the processor's type, parameters and movement model."""
        return {**super().get_metadata(), "movement_model": self.movement_model}


class _DiscreteActions(_Actions):
    """What all processors over `Discrete(n)` share: which values are actions."""

    parameters: ClassVar[tuple[str, ...]] = ("step_size", "n_actions")

    def __init__(self, n_actions: int, step_size: int) -> None:
        self.step_size = parse_count("step_size", step_size, 1, FARTHEST)
        self.n_actions = n_actions
        self.action_space = spaces.Discrete(n_actions)

    def validate_action(self, action: Any) -> bool:
        """Return whether `action` is an int, a numpy integer or a 0-d integer array within range; bools are not."""
        if type(action) is int:
            return 0 <= action < self.n_actions
        return is_choice(action, self.n_actions)

    def _parse_action(self, action: Any) -> int:
        if not self.validate_action(action):
            raise invalid_action_error(self, action, "ACT-PROC-P1")
        return int(action)


def _off_grid_error(position: Coordinates, grid: GridSize) -> ValidationError:
    return ValidationError(
        "the agent is not on the grid",
        found=(position.x, position.y),
        expected=f"a cell of the grid of {grid.width} x {grid.height}",
        clause="ACT-PROC-P3",
    )


def invalid_action_error(processor: Any, action: object, clause: str) -> ValidationError:
    """Return the error for an action that `processor` does not accept."""
    return ValidationError(
        "not a legal action", found=action, expected=f"a member of {processor.action_space}", clause=clause
    )


def _move(state: AgentState, dx: int, dy: int, grid: GridSize) -> AgentState:
    """Return `state` moved by (dx, dy), clamped to the grid."""
    if not grid.contains(state.position):
        raise _off_grid_error(state.position, grid)
    there = clamp_to_grid(state.position.x + dx, state.position.y + dy, grid)
    return AgentState(there, state.orientation, state.step_count, state.total_reward, state.goal_reached)


def _turn_to(state: AgentState, orientation: float) -> AgentState:
    return AgentState(state.position, orientation, state.step_count, state.total_reward, state.goal_reached)


class _CompassActions(_DiscreteActions):
    """Moves that do not depend on the heading: one (dx, dy) an action."""

    directions: ClassVar[tuple[Move, ...]]

    def __init__(self, step_size: int = 1) -> None:
        super().__init__(len(self.directions), step_size)
        self.moves: tuple[Move, ...] = tuple((dx * self.step_size, dy * self.step_size) for dx, dy in self.directions)
        self._grid: GridSize | None = None
        self._table: tuple[Rows, ...] = ()

    def process_action(self, action: Any, current_state: AgentState, grid_size: GridSize) -> AgentState:
        """Return the state one move further; the orientation stays."""
        if type(action) is not int or not 0 <= action < self.n_actions:
            action = self._parse_action(action)
        if grid_size is not self._grid:
            self._table = _make_move_table(grid_size, self.moves) if grid_size.total_cells() <= INTERNED_CELLS else ()
            self._grid = grid_size
        if not self._table:
            dx, dy = self.moves[action]
            return _move(current_state, dx, dy, grid_size)
        x, y = current_state.position.x, current_state.position.y
        if not (0 <= x < grid_size.width and 0 <= y < grid_size.height):
            raise _off_grid_error(current_state.position, grid_size)
        return AgentState(
            self._table[action][y][x],
            current_state.orientation,
            current_state.step_count,
            current_state.total_reward,
            current_state.goal_reached,
        )

    def __getstate__(self) -> dict[str, Any]:
        # The table is shared and made again in no time; a pickle of an environment stays small.
        return {**self.__dict__, "_grid": None, "_table": ()}


class DiscreteGridActions(_CompassActions):
    """Four directions: 0 up (+y), 1 right (+x), 2 down, 3 left."""

    type_name = "discrete_grid"
    movement_model = "cardinal_directions"
    directions = ((0, 1), (1, 0), (0, -1), (-1, 0))


class EightDirectionActions(_CompassActions):
    """Eight directions clockwise from north, and 8 to stay."""

    type_name = "eight_direction_stay"
    movement_model = "eight_directions_plus_stay"
    directions = ((0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1), (0, 0))


class OrientedGridActions(_DiscreteActions):
    """0 moves along the heading, 1 turns left by 90 degrees, 2 turns right.

    At headings that are no multiple of 90 degrees a move is the cosine and the sine, each rounded to whole cells.
    """

    type_name = "oriented_grid"
    movement_model = "forward_turn_left_turn_right"
    turns: ClassVar[tuple[float, ...]] = (0.0, 90.0, -90.0)

    def __init__(self, step_size: int = 1) -> None:
        super().__init__(len(self.turns), step_size)

    def process_action(self, action: Any, current_state: AgentState, grid_size: GridSize) -> AgentState:
        """Return the state one move or one turn further."""
        action = self._parse_action(action)
        if action == 0:
            return _move(current_state, *move_along(current_state.orientation, self.step_size), grid_size)
        return _turn_to(current_state, normalize_heading(current_state.orientation + self.turns[action]))


class RunTumbleActions(_DiscreteActions):
    """0 runs along the heading; k in 1..n turns to the k-th of n headings, (k - 1) * 360 / n degrees.

    Pure like the others: which heading a tumble takes is the policy's choice.
    """

    type_name = "run_tumble"
    parameters = ("step_size", "n_actions", "n_headings")
    movement_model = "run_or_turn_to_heading"

    def __init__(self, n_headings: int = 8, step_size: int = 1) -> None:
        self.n_headings = parse_count("n_headings", n_headings, 2, 3600)
        super().__init__(self.n_headings + 1, step_size)

    def process_action(self, action: Any, current_state: AgentState, grid_size: GridSize) -> AgentState:
        """Return the state one run or one turn further."""
        action = self._parse_action(action)
        if action == 0:
            return _move(current_state, *move_along(current_state.orientation, self.step_size), grid_size)
        return _turn_to(current_state, (action - 1) * 360.0 / self.n_headings)


def parse_velocity(action: object) -> NDArray[np.float32] | None:
    """Return `action` as a float32 array of shape (2,) within [-1, 1], or None if it is no such thing."""
    try:
        values = np.asarray(None if isinstance(action, Mapping | str | bytes) else action)
    except (ValueError, TypeError):
        return None
    if values.shape != (2,) or values.dtype.kind not in "iuf":
        return None
    # A NaN compares false with everything.
    return values.astype(np.float32) if bool(np.all(np.abs(values.astype(np.float64)) <= 1.0)) else None


class ContinuousActions(_Actions):
    """Velocities (vx, vy) in [-1, 1], times `max_speed`, rounded half to even to whole cells."""

    type_name = "continuous"
    parameters = ("max_speed",)
    movement_model = "velocity_control"

    def __init__(self, max_speed: float = 2.0) -> None:
        # Below 0.5 every velocity would be rounded to no move at all.
        self.max_speed = parse_number("max_speed", max_speed, least=0.5, most=FARTHEST)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def validate_action(self, action: Any) -> bool:
        """Return whether `action` is a real, finite array or sequence of shape (2,) within bounds."""
        return parse_velocity(action) is not None

    def process_action(self, action: Any, current_state: AgentState, grid_size: GridSize) -> AgentState:
        """Return the state moved by the velocity; the orientation stays."""
        velocity = parse_velocity(action)
        if velocity is None:
            raise invalid_action_error(self, action, "ACT-PROC-P1")
        vx, vy = velocity.tolist()
        return _move(current_state, round(vx * self.max_speed), round(vy * self.max_speed), grid_size)
