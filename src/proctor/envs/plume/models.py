"""The wire types of the plume search: what a typed client imports; no engine comes with them."""

from typing import Annotated, TypeAlias

from pydantic import AllowInfNan, JsonValue, StrictInt

from proctor.contracts.lifecycle import EnvironmentState
from proctor.models.wire import Action, Observation, Packable, State

Finite: TypeAlias = Annotated[float, AllowInfNan(False)]
Number: TypeAlias = StrictInt | Finite
Reading: TypeAlias = Annotated[tuple[Number, ...], Packable()]
"""What one sensor gives."""


class PlumeAction(Action):
    """A choice, or a velocity (vx, vy) where the environment is steered by one."""

    action: StrictInt | Annotated[tuple[Finite, Finite], Packable()]


class PlumeObservation(Observation):
    """What the sensor gives; of several sensors under names, each by its name.

    `agent_xy`, `distance_to_source` and the others are read from `metadata`: None where the environment tells less
    (`info_level="minimal"`), and after a reset what only a step has.
    """

    observation: Reading | dict[str, Reading]

    @property
    def concentration(self) -> float | None:
        """The first number of the sensor; None where there are several sensors."""
        return float(self.observation[0]) if isinstance(self.observation, tuple) and self.observation else None

    @property
    def agent_xy(self) -> tuple[int, int] | None:
        """The agent's cell."""
        match self.metadata.get("agent_xy"):
            case [int(x), int(y)]:
                return x, y
        return None

    @property
    def distance_to_source(self) -> float | None:
        """How far the source is, in cells."""
        return _number(self.metadata.get("distance_to_source"))

    @property
    def total_reward(self) -> float | None:
        """The sum of the rewards in this episode."""
        return _number(self.metadata.get("total_reward"))

    @property
    def goal_reached(self) -> bool:
        """Whether the source has been found."""
        return self.metadata.get("goal_reached") is True

    @property
    def seed(self) -> int | None:
        """The seed that replays the episode; told by a reset only."""
        seed = self.metadata.get("seed")
        return seed if isinstance(seed, int) else None


class PlumeState(State):
    """Where the search stands; what speaks of an agent is None before the first reset."""

    lifecycle: EnvironmentState
    seed: int | None = None
    episode_count: int = 0
    position: tuple[int, int] | None = None
    orientation: float | None = None
    total_reward: float = 0.0
    goal_reached: bool = False


def _number(value: JsonValue) -> float | None:
    return float(value) if isinstance(value, int | float) else None
