"""The checks of what `step` takes and promises (ENV-STEP), and that a step that raises leaves no trace (ENV-ATOMIC)."""

import math
from collections.abc import Iterator
from numbers import Real
from types import SimpleNamespace
from typing import Any, Final

import gymnasium as gym
import numpy as np

from proctor.contracts.conformance.env_driver import (
    SEEDS,
    SHORT,
    EnvDriver,
    ObservedStep,
    StateView,
    accepts_keyword,
    check_each_step,
    iterate_settings,
    reach_each_state,
)
from proctor.contracts.conformance.report import KEPT, CannotTell, Check, CheckProbe, Outcome, expect_refusal, shorten
from proctor.contracts.conformance.samples import is_identical, non_members, samples
from proctor.contracts.lifecycle import AFTER_STEP, STEPPABLE, EnvironmentState
from proctor.contracts.spatial import AgentState

_FEW: Final = 4


def step_is_refused_unless_ready(probe: CheckProbe) -> Outcome:
    """ENV-STEP-P1."""
    for _, drive in reach_each_state(probe, *(state for state in EnvironmentState if state is not STEPPABLE)):
        found = drive.refuses("step")
        if found is not None:
            return probe.broken(found)
    return KEPT


def refuses_an_action_that_is_not_legal(probe: CheckProbe) -> Outcome:
    """ENV-STEP-P2."""
    for action in non_members(EnvDriver(probe).env.action_space):
        drive = EnvDriver(probe)
        drive.reset(seed=SEEDS[0])
        found = expect_refusal((ValueError,), drive.step, action)
        if found is not None:
            return probe.broken(found)
    return KEPT


def step_returns_five_things(probe: CheckProbe) -> Outcome:
    """ENV-STEP-C1."""

    def problem(step: ObservedStep) -> str | None:
        five = isinstance(step.result, tuple) and len(step.result) == 5
        return None if five else f"returns {shorten(step.result)}"

    return check_each_step(probe, problem)


def the_observation_lies_in_the_space(probe: CheckProbe) -> Outcome:
    """ENV-STEP-C2."""

    def problem(step: ObservedStep) -> str | None:
        inside = step.drive.env.observation_space.contains(step.result[0])
        return None if inside else f"the observation {shorten(step.result[0])} is not in the space"

    return check_each_step(probe, problem)


def the_reward_is_the_reward_functions(probe: CheckProbe) -> Outcome:
    """ENV-STEP-C3."""

    def problem(step: ObservedStep) -> str | None:
        reward = step.result[1]
        if not isinstance(reward, Real) or not math.isfinite(reward):
            return f"the reward is {shorten(reward)}"
        function, before = step.drive.get("_reward_fn"), step.before["_agent_state"]
        agent: AgentState = step.drive.get("_agent_state")
        # The reward function sees the step before the reward is added up.
        after = AgentState(agent.position, agent.orientation, agent.step_count, before.total_reward, agent.goal_reached)
        expected = function.compute_reward(before, step.action, after, step.drive.get("plume_field"))
        return None if reward == expected else f"the reward is {shorten(reward)}, expected {shorten(expected)}"

    return check_each_step(probe, problem)


def _is_flag(probe: CheckProbe, place: int, name: str) -> Outcome:
    def problem(step: ObservedStep) -> str | None:
        flag = step.result[place]
        return None if isinstance(flag, bool | np.bool_) else f"{name} is {shorten(flag)}"

    return check_each_step(probe, problem)


def the_terminated_flag_is_a_bool(probe: CheckProbe) -> Outcome:
    """ENV-STEP-C4."""
    return _is_flag(probe, 2, "terminated")


def the_truncated_flag_is_a_bool(probe: CheckProbe) -> Outcome:
    """ENV-STEP-C5."""
    return _is_flag(probe, 3, "truncated")


def the_info_agrees_with_the_agent(probe: CheckProbe) -> Outcome:
    """ENV-STEP-C6."""

    def problem(step: ObservedStep) -> str | None:
        info = step.result[4]
        if not isinstance(info, dict) or not all(isinstance(key, str) for key in info):
            return f"the info is {shorten(info)}"
        agent = step.drive.get("_agent_state")
        for name in ("step_count", "total_reward", "goal_reached"):
            if name not in info or info[name] != getattr(agent, name):
                return f"info[{name!r}] is {shorten(info.get(name))}, the agent's is {shorten(getattr(agent, name))}"
        return None

    return check_each_step(probe, problem)


def step_counts_one_step(probe: CheckProbe) -> Outcome:
    """ENV-STEP-C7."""

    def problem(step: ObservedStep) -> str | None:
        was, now = step.before["_step_count"], step.drive.get("_step_count")
        return None if now == was + 1 else f"_step_count was {was}, is {now}"

    return check_each_step(probe, problem)


def step_leaves_a_state_of_the_episode(probe: CheckProbe) -> Outcome:
    """ENV-STEP-C8."""

    def problem(step: ObservedStep) -> str | None:
        state = step.drive.get("_state")
        return None if state in AFTER_STEP.values() else f"_state is {shorten(state)}"

    return check_each_step(probe, problem)


def the_same_seed_and_actions_give_the_same_episode(probe: CheckProbe) -> Outcome:
    """ENV-STEP-D1."""
    for small in iterate_settings(probe):
        for seed in SEEDS:
            drives = [EnvDriver(probe, small) for _ in range(2)]
            for drive in drives:
                drive.reset(seed=seed)
            for action in samples(drives[0].env.action_space, SHORT):
                one, other = (drive.step(action)[:4] for drive in drives)
                if not is_identical(one, other):
                    return probe.broken(f"one environment gives {shorten(one)}, another {shorten(other)}")
                if one[2] or one[3]:
                    break
    return KEPT


class _PartFailure(Exception):
    """What a part raises that is made to fail."""


def _make_failing_part(part: Any, names: tuple[str, ...], at: int) -> Any:
    """Return a part like `part` that raises at the `at`-th call of one of its methods `names`, once."""
    calls = iter(range(1, at + 1))

    def tripping(method: Any) -> Any:
        def call_or_fail(*arguments: Any) -> Any:
            if next(calls, None) == at:
                raise _PartFailure
            return method(*arguments)

        return call_or_fail

    members = {name: getattr(part, name) for name in dir(part) if not name.startswith("_")}
    return SimpleNamespace(**members | {name: tripping(members[name]) for name in names if name in members})


# What a step may raise in an environment that is not ours.
_REFUSALS: Final = (_PartFailure, ValueError, TypeError, LookupError, AssertionError, RuntimeError, gym.error.Error)

# Which part fails, by its constructor argument: where the environment keeps it, the methods that fail, at which call.
_FAILING: Final = {
    "reward_fn": ("_reward_fn", ("compute_reward",), 2),
    "observation_model": ("_obs_model", ("get_observation", "observe"), 3),
    "action_processor": ("_action_proc", ("process_action",), 2),
    "plume_model": ("_plume", ("advance",), 2),
}


def _iterate_failing_steps(probe: CheckProbe, small: dict[str, Any]) -> Iterator[tuple[EnvDriver, Any]]:
    """Yield environments after one step, with the action of which the next step must fail."""
    for action in non_members(EnvDriver(probe, small).env.action_space)[:_FEW]:
        yield EnvDriver(probe, small), action
    for argument, (attribute, methods, at) in _FAILING.items():
        if accepts_keyword(probe, argument):
            part = _make_failing_part(EnvDriver(probe, small).get(attribute), methods, at)
            drive = EnvDriver(probe, {**small, argument: part})
            yield drive, drive.legal_action


def _find_difference(drive: EnvDriver, twin: EnvDriver, before: StateView) -> str | None:
    """Return how `drive`, whose last step failed, differs from `twin`, which never made it."""
    after = drive.view()
    changed = [name for name, value in before.items() if after[name] is not value and after[name] != value]
    if changed:
        return f"the failed step changed {changed[0]} to {shorten(after[changed[0]])}"
    for action in samples(drive.env.action_space, _FEW):
        one, other = (each.step(action)[:4] for each in (twin, drive))
        if not is_identical(one, other):
            return f"gives {shorten(other)}; without the failed step it gives {shorten(one)}"
        if one[2] or one[3]:
            break
    return None


def a_step_that_raises_changes_nothing(probe: CheckProbe) -> Outcome:
    """ENV-ATOMIC."""
    raised = False
    for small in iterate_settings(probe):
        for drive, action in _iterate_failing_steps(probe, small):
            twin = EnvDriver(probe, small)
            for each in (twin, drive):
                each.reset(seed=SEEDS[0])
            if any(twin.step(drive.legal_action)[2:4]):
                continue
            drive.step(drive.legal_action)
            before = drive.view()
            try:
                drive.step(action)
            except _REFUSALS:
                raised = True
                found = _find_difference(drive, twin, before)
                if found is not None:
                    return probe.broken(found)
    if not raised:
        raise CannotTell("no step could be made to raise")
    return KEPT


CHECKS: Final[dict[str, Check]] = {
    "ENV-STEP-P1": step_is_refused_unless_ready,
    "ENV-STEP-P2": refuses_an_action_that_is_not_legal,
    "ENV-STEP-C1": step_returns_five_things,
    "ENV-STEP-C2": the_observation_lies_in_the_space,
    "ENV-STEP-C3": the_reward_is_the_reward_functions,
    "ENV-STEP-C4": the_terminated_flag_is_a_bool,
    "ENV-STEP-C5": the_truncated_flag_is_a_bool,
    "ENV-STEP-C6": the_info_agrees_with_the_agent,
    "ENV-STEP-C7": step_counts_one_step,
    "ENV-STEP-C8": step_leaves_a_state_of_the_episode,
    "ENV-STEP-D1": the_same_seed_and_actions_give_the_same_episode,
    "ENV-ATOMIC": a_step_that_raises_changes_nothing,
}
