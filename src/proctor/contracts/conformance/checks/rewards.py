"""The checks of the reward function's clauses, over every pair of cells of small grids."""

import copy
import math
from collections.abc import Callable
from numbers import Real
from typing import Any, Final

from proctor.contracts.conformance.report import KEPT, Check, CheckProbe, Outcome, has_metadata, shorten
from proctor.contracts.conformance.samples import RampField, is_identical, iterate_steps
from proctor.contracts.spatial import AgentState

Step = tuple[AgentState, AgentState, RampField]


def _ask(reward_fn: Any, step: Step) -> Any:
    before, after, field = step
    return reward_fn.compute_reward(before, 0, after, field)


def _words(step: Step) -> str:
    (here, there), grid = (state.position for state in step[:2]), step[2].grid_size
    goal = ", goal reached" if step[1].goal_reached else ""
    return f"step from ({here.x}, {here.y}) to ({there.x}, {there.y}) on {grid.width} x {grid.height}{goal}"


def _each(probe: CheckProbe, problem: Callable[[Step], str | None]) -> Outcome:
    for step in iterate_steps():
        probe.doing = _words(step)
        found = problem(step)
        if found is not None:
            return probe.broken(found)
    return KEPT


def the_reward_is_a_real_number(probe: CheckProbe) -> Outcome:
    """REWARD-1."""
    reward_fn = probe.make()

    def problem(step: Step) -> str | None:
        reward = _ask(reward_fn, step)
        return None if isinstance(reward, Real) and not isinstance(reward, bool) else f"is {shorten(reward)}"

    return _each(probe, problem)


def the_reward_is_finite(probe: CheckProbe) -> Outcome:
    """REWARD-2."""
    reward_fn = probe.make()

    def problem(step: Step) -> str | None:
        reward = _ask(reward_fn, step)
        return None if math.isfinite(reward) else f"is {shorten(reward)}"

    return _each(probe, problem)


def the_same_step_gives_the_same_reward(probe: CheckProbe) -> Outcome:
    """REWARD-3."""
    reward_fn, twin = probe.make(), probe.make()

    def problem(step: Step) -> str | None:
        one, *others = (_ask(function, step) for function in (reward_fn, reward_fn, twin))
        differing = [other for other in others if not is_identical(one, other)]
        return f"is {shorten(one)}, then {shorten(differing[0])}" if differing else None

    return _each(probe, problem)


def valuing_a_step_changes_nothing(probe: CheckProbe) -> Outcome:
    """REWARD-4."""
    reward_fn = probe.make()
    earlier = None

    def problem(step: Step) -> str | None:
        nonlocal earlier
        states, values = copy.deepcopy(step[:2]), step[2].field_array.copy()
        reward = _ask(reward_fn, step)
        if step[:2] != states:
            return "changes the states that it was given"
        if not is_identical(step[2].field_array, values):
            return "changes the field"
        if earlier is not None and not is_identical(_ask(reward_fn, earlier[0]), earlier[1]):
            return "the step asked about before is now valued differently"
        earlier = step, reward
        return None

    return _each(probe, problem)


def metadata_names_type_and_parameters(probe: CheckProbe) -> Outcome:
    """REWARD-5."""
    return has_metadata(probe, {"type": str, "parameters": dict})


CHECKS: Final[dict[str, Check]] = {
    "REWARD-1": the_reward_is_a_real_number,
    "REWARD-2": the_reward_is_finite,
    "REWARD-3": the_same_step_gives_the_same_reward,
    "REWARD-4": valuing_a_step_changes_nothing,
    "REWARD-5": metadata_names_type_and_parameters,
}
