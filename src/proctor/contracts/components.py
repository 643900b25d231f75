"""The parts that an environment is built from, as Protocols.

Rule 1: an environment knows its parts by these Protocols only; a user's own class needs no base class of ours.
Rule 2: parts are pure. What changes from step to step is a value that the environment keeps and hands in, so that a
    step that fails half-way leaves nothing behind.
Rule 3: chance comes in as `env_state["chance"]` (see `chance`), never from a generator of the part's own.
Rule 4: what an injected part must bring, and what it may answer, is checked here: anything else is a ComponentError that
    names the clause.
"""

from collections.abc import Mapping
from math import isfinite
from typing import Any, ClassVar, Protocol, TypedDict, runtime_checkable

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from proctor.contracts.arguments import parse_number
from proctor.contracts.chance import Chance
from proctor.contracts.spatial import AgentState, Coordinates, GridSize
from proctor.errors import ComponentError, ValidationError

Observation = Any
Metadata = dict[str, Any]


@runtime_checkable
class ConcentrationField(Protocol):
    """What the agent smells at one instant: values in [0, 1] on a grid."""

    @property
    def grid_size(self) -> GridSize:
        """The grid that the field covers."""

    @property
    def field_array(self) -> NDArray[np.float64]:
        """All values, read-only, shape (height, width); may be computed when asked for."""

    def sample(self, position: Coordinates) -> float:
        """Return the value at `position` in O(1); off the grid is an IndexError."""


@runtime_checkable
class VaryingPlume(Protocol):
    """A plume that changes: each instant is a field of its own, made from the one before."""

    @property
    def grid_size(self) -> GridSize:
        """The grid that every instant covers."""

    def begin(self, chance: Chance) -> ConcentrationField:
        """Return the field at reset."""

    def advance(self, field: Any, chance: Chance, time_step: int) -> ConcentrationField:
        """Return the field at `time_step` (1, 2, ...) from the one a step earlier, which stays as it is."""


@runtime_checkable
class WindField(Protocol):
    """The wind at one instant, in cells per step."""

    def sample(self, position: Coordinates) -> tuple[float, float]:
        """Return (u, v), the air's movement along +x and +y."""


class EnvState(TypedDict, total=False):
    """What an observation model may look at; `wind_field` is there where there is wind."""

    agent_state: AgentState
    plume_field: ConcentrationField
    time_step: int
    grid_size: GridSize
    chance: Chance
    wind_field: WindField
    memory: Any
    """What the model remembered a step ago; only for models that recall (see `RecallingModel`)."""


@runtime_checkable
class ActionProcessor(Protocol):
    """Turns an action into the agent's next state; a pure function."""

    @property
    def action_space(self) -> gym.Space[Any]:
        """The legal actions; the same instance every time."""

    def process_action(self, action: Any, current_state: AgentState, grid_size: GridSize) -> AgentState:
        """Return the state after `action`: a new value, inside the grid."""

    def validate_action(self, action: Any) -> bool:
        """Return whether `action` is legal."""

    def get_metadata(self) -> Metadata:
        """Return `type`, `parameters` and `movement_model`."""


@runtime_checkable
class ObservationModel(Protocol):
    """Turns the environment's state into what the agent observes; a pure function."""

    @property
    def observation_space(self) -> gym.Space[Any]:
        """What observations look like; the same instance every time."""

    def get_observation(self, env_state: EnvState) -> Observation:
        """Return a fresh observation inside the space."""

    def get_metadata(self) -> Metadata:
        """Return `type` and `parameters`."""


@runtime_checkable
class RecallingModel(ObservationModel, Protocol):
    """An observation model with a memory, which the environment keeps for it."""

    def observe(self, env_state: EnvState, memory: Any) -> tuple[Observation, Any]:
        """Return the observation and what to remember; `memory` is None at reset."""


@runtime_checkable
class RewardFunction(Protocol):
    """Values one step; a pure function."""

    def compute_reward(
        self, prev_state: AgentState, action: Any, next_state: AgentState, plume_field: ConcentrationField
    ) -> float:
        """Return a finite number."""

    def get_metadata(self) -> Metadata:
        """Return `type` and `parameters`."""


class DescribedPart:
    """What parts of ours share: metadata from two class attributes."""

    type_name: ClassVar[str]
    parameters: ClassVar[tuple[str, ...]] = ()
    """The attributes that make one part of the type differ from another."""

    def get_metadata(self) -> Metadata:
        """Return the part's type and parameters."""
        parameters = {name: _describe(getattr(self, name)) for name in self.parameters}
        return {"type": self.type_name, "parameters": parameters}


def _describe(value: Any) -> Any:
    if hasattr(value, "get_metadata"):
        return value.get_metadata()
    if isinstance(value, dict):
        return {name: _describe(part) for name, part in value.items()}
    return list(value) if isinstance(value, tuple) else value


def list_members(protocol: type) -> tuple[str, ...]:
    """Return the names of the members that a Protocol asks for."""
    return tuple(name for name in vars(protocol) if not name.startswith("_"))


# The members without which an injected part is refused, by the name of its constructor argument; one set is enough.
REQUIRED_MEMBERS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "plume_model": (list_members(ConcentrationField), list_members(VaryingPlume)),
    "action_processor": (list_members(ActionProcessor),),
    "observation_model": (list_members(ObservationModel),),
    "reward_fn": (list_members(RewardFunction),),
}


def check_members(argument: str, part: Any) -> None:
    """Raise a ComponentError if the part for this constructor argument lacks a member of its Protocol."""
    choices = REQUIRED_MEMBERS[argument]
    missing = [[name for name in names if not hasattr(part, name)] for names in choices]
    if all(missing):
        raise ComponentError(
            f"{argument} lacks {', '.join(missing[0])}",
            found=type(part).__name__,
            expected=f"a part with {' or '.join(', '.join(names) for names in choices)}",
            clause="ENV-INIT-P2",
        )


def bad_move_error(moved: object, grid: GridSize) -> ComponentError:
    """Return the error for an action processor whose answer is no agent state on the grid."""
    if not isinstance(moved, AgentState):
        return ComponentError(
            "the action processor returned no AgentState", found=moved, expected="an AgentState", clause="ACT-PROC-C1"
        )
    return ComponentError(
        "the action processor left the grid",
        found=(moved.position.x, moved.position.y),
        expected=f"a cell of the grid of {grid.width} x {grid.height}",
        clause="ACT-PROC-C2",
    )


def convert_reward(reward: Any) -> float:
    """Return a reward that is a number of another type as a float, or raise a ComponentError."""
    try:
        return parse_number("the reward", reward)
    except ValidationError as problem:
        raise ComponentError(problem.message, found=reward, expected=problem.expected, clause="REWARD-2") from None


def add_reward(state: AgentState, reward: float) -> AgentState:
    """Return `state` with the reward added to its total."""
    total = state.total_reward + reward
    if not isfinite(total):
        raise ComponentError(
            "the reward is not finite", found=reward, expected="a finite total reward", clause="REWARD-2"
        )
    return AgentState(state.position, state.orientation, state.step_count, total, state.goal_reached)
