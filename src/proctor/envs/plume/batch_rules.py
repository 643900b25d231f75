"""The rules of a batch: what actions, rewards and the start become for its kernels, one row per type."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from proctor.contracts.spatial import Coordinates, GridSize
from proctor.envs.batch_refusals import cannot_batch, no_batched_form, packed
from proctor.envs.plume.actions import DiscreteGridActions, EightDirectionActions, OrientedGridActions
from proctor.envs.plume.env import PlumeSearchEnv
from proctor.envs.plume.factories import Kind
from proctor.envs.plume.kernels import RULES
from proctor.envs.plume.rewards import ShapedReward, SparseGoalReward, StepPenaltyReward
from proctor.envs.plume.start import start_cells


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

_REWARDS: Final = (SparseGoalReward, StepPenaltyReward)


def _reward_rules(reward: Any) -> dict[str, Any]:
    shape: dict[str, Any] = {}
    if type(reward) is ShapedReward:
        shape = {"shaped": 1, "scale": reward.scale, "discount": reward.discount}
        reward = reward.inner
    if type(reward) not in _REWARDS:
        raise no_batched_form(reward, (*_REWARDS, ShapedReward))
    return {
        "reward_radius": reward.goal_radius,
        "at_goal": reward.at_goal,
        "elsewhere": reward.elsewhere,
        **shape,
    }


def _farthest(grid: GridSize, source: Coordinates) -> float:
    """Return the largest distance to the source."""
    corners = (Coordinates(x, y) for x in (0, grid.width - 1) for y in (0, grid.height - 1))
    return max(corner.distance_to(source) for corner in corners)


def _check_total(rules: Mapping[str, Any], farthest: float) -> None:
    """Raise a ComponentError if an episode's total reward could leave the finite numbers: no kernel checks it."""
    potential = abs(rules.get("scale", 0.0)) * farthest
    change = rules.get("discount", 0.0) * potential + potential
    largest = max(abs(rules["at_goal"]), abs(rules["elsewhere"])) + change
    # Twice, because sums round.
    if not math.isfinite(2.0 * rules["max_steps"] * largest):
        raise cannot_batch(
            "the total reward could leave the finite numbers",
            found=largest,
            expected=f"rewards whose sum over {rules['max_steps']} steps is finite",
        )


def rules_of(env: PlumeSearchEnv) -> NDArray[Any]:
    """Return the numbers that do not change, as one `RULES` record."""
    processor, reward = env.components[Kind.ACTION], env.components[Kind.REWARD]
    action_rules = _ACTIONS.get(type(processor))
    if action_rules is None:
        raise no_batched_form(processor, _ACTIONS)
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
    _check_total(values, _farthest(env.grid_size, env.source_location))
    return packed(RULES, values)


def starts_of(env: PlumeSearchEnv) -> NDArray[np.int64]:
    """Return the cells where an episode may start, as the kernels read them."""
    cells = start_cells(env.grid_size, env.source_location, env.goal_radius)
    return np.array([cells.before, (*cells.skip_from, 0), (*cells.skip_to, 0)], np.int64)
