"""The checks of what `reset` takes and promises (ENV-RESET)."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from proctor.contracts.chance import SEED_LIMIT, Chance
from proctor.contracts.components import EnvState, RecallingModel
from proctor.contracts.conformance.env_driver import SEEDS, EnvDriver, iterate_settings, reach_each_state
from proctor.contracts.conformance.report import KEPT, Check, CheckProbe, Outcome, expect_refusal, shorten
from proctor.contracts.conformance.samples import is_identical
from proctor.contracts.lifecycle import EnvironmentState
from proctor.contracts.spatial import AgentState

BAD_SEEDS: Final = (-1, SEED_LIMIT, True, 0.5, "0")
GOOD_SEEDS: Final = (0, SEED_LIMIT - 1, np.int64(5))
BAD_OPTIONS: Final = (3, "start", [("start", (0, 0))])

Before = dict[str, Any]


def _check_after_reset(probe: CheckProbe, problem: Callable[[EnvDriver, Before, Any], str | None]) -> Outcome:
    """Return the outcome of asking `problem` after a first and a second reset, in every size, with two seeds."""
    for small in iterate_settings(probe):
        for seed in SEEDS:
            drive = EnvDriver(probe, small)
            for again in range(2):
                before = drive.view()
                found = problem(drive, before, drive.reset(seed=seed + again))
                if found is not None:
                    return probe.broken(found)
                drive.call("step")
    return KEPT


def _expect_attribute(name: str, expected: object) -> Callable[[EnvDriver, Before, Any], str | None]:
    def problem(drive: EnvDriver, before: Before, result: Any) -> str | None:
        found = drive.get(name)
        return None if found == expected else f"{name} is {shorten(found)}, expected {shorten(expected)}"

    return problem


def reset_fails_after_close(probe: CheckProbe) -> Outcome:
    """ENV-RESET-P1."""
    for _, drive in reach_each_state(probe, EnvironmentState.CLOSED):
        found = drive.refuses("reset")
        if found is not None:
            return probe.broken(found)
    return KEPT


def refuses_a_bad_seed_and_takes_a_good_one(probe: CheckProbe) -> Outcome:
    """ENV-RESET-P2."""
    for bad in BAD_SEEDS:
        found = expect_refusal((ValueError,), partial(EnvDriver(probe).reset, seed=bad))
        if found is not None:
            return probe.broken(found)
    for seed in GOOD_SEEDS:
        EnvDriver(probe).reset(seed=seed)
    return KEPT


def refuses_options_that_are_no_dict(probe: CheckProbe) -> Outcome:
    """ENV-RESET-P3."""
    for options in BAD_OPTIONS:
        found = expect_refusal((ValueError,), partial(EnvDriver(probe).reset, seed=SEEDS[0], options=options))
        if found is not None:
            return probe.broken(found)
    EnvDriver(probe).reset(seed=SEEDS[0], options={})
    return KEPT


def reset_makes_ready(probe: CheckProbe) -> Outcome:
    """ENV-RESET-C1."""
    return _check_after_reset(probe, _expect_attribute("_state", EnvironmentState.READY))


def reset_starts_the_step_count_anew(probe: CheckProbe) -> Outcome:
    """ENV-RESET-C2."""
    return _check_after_reset(probe, _expect_attribute("_step_count", 0))


def reset_counts_one_episode(probe: CheckProbe) -> Outcome:
    """ENV-RESET-C3."""

    def problem(drive: EnvDriver, before: Before, result: Any) -> str | None:
        was, now = before["_episode_count"], drive.get("_episode_count")
        return None if now == was + 1 else f"_episode_count was {was}, is {now}"

    return _check_after_reset(probe, problem)


def reset_gives_a_fresh_agent(probe: CheckProbe) -> Outcome:
    """ENV-RESET-C4."""

    def problem(drive: EnvDriver, before: Before, result: Any) -> str | None:
        agent = drive.get("_agent_state")
        fresh = isinstance(agent, AgentState) and agent == AgentState(agent.position, agent.orientation)
        return None if fresh else f"_agent_state is {shorten(agent)}"

    return _check_after_reset(probe, problem)


def reset_remembers_the_seed_that_replays(probe: CheckProbe) -> Outcome:
    """ENV-RESET-C5."""
    for small in iterate_settings(probe):
        drive = EnvDriver(probe, small)
        for seed in SEEDS:
            drive.reset(seed=seed)
            if drive.get("_seed") != seed:
                return probe.broken(f"_seed is {shorten(drive.get('_seed'))}")
        observation, _ = drive.reset()
        drawn = drive.get("_seed")
        if type(drawn) is not int or not 0 <= drawn < SEED_LIMIT:
            return probe.broken(f"_seed is {shorten(drawn)}")
        if not is_identical(EnvDriver(probe, small).reset(seed=drawn)[0], observation):
            return probe.broken(f"does not repeat the observation {shorten(observation)} of reset()")
    return KEPT


def _present_observation(drive: EnvDriver) -> Any:
    """Return what the observation model says about the environment as it stands after a reset."""
    field = drive.get("plume_field")
    env_state: EnvState = {
        "agent_state": drive.get("_agent_state"),
        "plume_field": field,
        "time_step": 0,
        "grid_size": drive.get("grid_size"),
        "chance": Chance(drive.get("_seed")),
    }
    if hasattr(field, "wind_field"):
        env_state["wind_field"] = field.wind_field
    model = drive.get("_obs_model")
    return model.observe(env_state, None)[0] if isinstance(model, RecallingModel) else model.get_observation(env_state)


def reset_returns_the_present_observation_and_info(probe: CheckProbe) -> Outcome:
    """ENV-RESET-C6."""

    def problem(drive: EnvDriver, before: Before, result: Any) -> str | None:
        observation, info = result
        if not drive.env.observation_space.contains(observation):
            return f"the observation {shorten(observation)} is not in the space"
        missing = [key for key in ("seed", "episode") if key not in info]
        if missing:
            return f"info {shorten(info)} has no {missing[0]!r}"
        for key, name in (("seed", "_seed"), ("episode", "_episode_count")):
            if info[key] != drive.get(name):
                return f"info[{key!r}] is {shorten(info[key])}, {name} is {shorten(drive.get(name))}"
        present = _present_observation(drive)
        return (
            None
            if is_identical(observation, present)
            else f"returns {shorten(observation)}, but it is {shorten(present)}"
        )

    return _check_after_reset(probe, problem)


def the_same_seed_shows_the_same_first_observation(probe: CheckProbe) -> Outcome:
    """ENV-RESET-D1."""
    for small in iterate_settings(probe):
        for seed in SEEDS:
            one, other = (EnvDriver(probe, small).reset(seed=seed)[0] for _ in range(2))
            if not is_identical(one, other):
                return probe.broken(f"one environment shows {shorten(one)}, another {shorten(other)}")
    return KEPT


CHECKS: Final[dict[str, Check]] = {
    "ENV-RESET-P1": reset_fails_after_close,
    "ENV-RESET-P2": refuses_a_bad_seed_and_takes_a_good_one,
    "ENV-RESET-P3": refuses_options_that_are_no_dict,
    "ENV-RESET-C1": reset_makes_ready,
    "ENV-RESET-C2": reset_starts_the_step_count_anew,
    "ENV-RESET-C3": reset_counts_one_episode,
    "ENV-RESET-C4": reset_gives_a_fresh_agent,
    "ENV-RESET-C5": reset_remembers_the_seed_that_replays,
    "ENV-RESET-C6": reset_returns_the_present_observation_and_info,
    "ENV-RESET-D1": the_same_seed_shows_the_same_first_observation,
}
