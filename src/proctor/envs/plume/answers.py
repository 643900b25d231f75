"""What an injected part must bring, and what it may answer; anything else is a ComponentError that names the clause."""

from math import isfinite
from typing import Any

from proctor.contracts.arguments import checked_number
from proctor.contracts.components import REQUIRED
from proctor.contracts.spatial import AgentState, GridSize
from proctor.errors import ComponentError, ValidationError


def check_members(argument: str, part: Any) -> None:
    """Raise a ComponentError if the part for this constructor argument lacks a member of its Protocol."""
    choices = REQUIRED[argument]
    missing = [[name for name in names if not hasattr(part, name)] for names in choices]
    if all(missing):
        raise ComponentError(
            f"{argument} lacks {', '.join(missing[0])}",
            found=type(part).__name__,
            expected=f"a part with {' or '.join(', '.join(names) for names in choices)}",
            clause="ENV-INIT-P2",
        )


def left_the_grid(moved: AgentState, grid: GridSize) -> ComponentError:
    """Return the error for an action processor that moved the agent off the grid."""
    return ComponentError(
        "the action processor left the grid",
        found=(moved.position.x, moved.position.y),
        expected=f"a cell of the grid of {grid.width} x {grid.height}",
        clause="ACT-PROC-C2",
    )


def no_agent_state(moved: object) -> ComponentError:
    """Return the error for an action processor that answered with something else."""
    return ComponentError(
        "the action processor returned no AgentState", found=moved, expected="an AgentState", clause="ACT-PROC-C1"
    )


def as_reward(reward: Any) -> float:
    """Return a reward that is a number of another type as a float, or raise a ComponentError."""
    try:
        return checked_number("the reward", reward)
    except ValidationError as problem:
        raise ComponentError(problem.message, found=reward, expected=problem.expected, clause="REWARD-2") from None


def rewarded(state: AgentState, reward: float) -> AgentState:
    """Return `state` with the reward added to its total."""
    total = state.total_reward + reward
    if not isfinite(total):
        raise ComponentError(
            "the reward is not finite", found=reward, expected="a finite total reward", clause="REWARD-2"
        )
    return AgentState(state.position, state.orientation, state.step_count, total, state.goal_reached)
