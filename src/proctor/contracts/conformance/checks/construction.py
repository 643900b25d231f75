"""The checks of what an environment's constructor takes and leaves behind (ENV-INIT)."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from proctor.contracts.components import (
    REQUIRED_MEMBERS,
    ActionProcessor,
    ConcentrationField,
    ObservationModel,
    RewardFunction,
    VaryingPlume,
)
from proctor.contracts.conformance.env_driver import EnvDriver, accepts_keyword, iterate_settings, require_keywords
from proctor.contracts.conformance.report import KEPT, CannotTell, Check, CheckProbe, Outcome, expect_refusal, shorten
from proctor.contracts.lifecycle import EnvironmentState
from proctor.errors import ComponentError

_PARTS: Final = {
    "_action_proc": (ActionProcessor,),
    "_obs_model": (ObservationModel,),
    "_reward_fn": (RewardFunction,),
    "_plume": (ConcentrationField, VaryingPlume),
}


def constructor_refuses(probe: CheckProbe, name: str, values: Iterable[Any]) -> Outcome:
    """Return whether the constructor refuses each of `values` for the keyword `name`."""
    require_keywords(probe, name)
    for value in values:
        probe.doing = f"make({name}={shorten(value)})"
        found = expect_refusal((ValueError, ComponentError), partial(probe.make, **{name: value}))
        if found is not None:
            return probe.broken(found)
    return KEPT


def refuses_a_configuration_that_does_not_resolve(probe: CheckProbe) -> Outcome:
    """ENV-INIT-P1."""
    return constructor_refuses(probe, "config", ({"no such setting": 1}, 42))


def _iterate_incomplete_parts(choices: Iterable[tuple[str, ...]]) -> Iterable[object]:
    """Yield parts that lack everything, and parts that lack just one of their members."""
    yield object()
    for names in choices:
        for absent in names:
            yield type(f"Without_{absent}", (), {name: None for name in names if name != absent})()


def refuses_a_part_without_its_members(probe: CheckProbe) -> Outcome:
    """ENV-INIT-P2."""
    arguments = [name for name in REQUIRED_MEMBERS if accepts_keyword(probe, name)]
    if not arguments:
        raise CannotTell("the constructor takes no parts")
    outcomes = (
        constructor_refuses(probe, name, _iterate_incomplete_parts(REQUIRED_MEMBERS[name])) for name in arguments
    )
    return next((outcome for outcome in outcomes if outcome is not KEPT), KEPT)


def refuses_a_grid_without_cells(probe: CheckProbe) -> Outcome:
    """ENV-INIT-P3."""
    return constructor_refuses(probe, "grid_size", ((0, 1), (1, 0), (-1, 1)))


def refuses_a_maximum_of_no_steps(probe: CheckProbe) -> Outcome:
    """ENV-INIT-P4."""
    return constructor_refuses(probe, "max_steps", (0, -1))


def refuses_a_goal_radius_that_is_not_positive(probe: CheckProbe) -> Outcome:
    """ENV-INIT-P5."""
    return constructor_refuses(probe, "goal_radius", (0.0, -1.0, float("nan"), float("inf")))


def refuses_an_unknown_render_mode(probe: CheckProbe) -> Outcome:
    """ENV-INIT-P6."""
    return constructor_refuses(probe, "render_mode", ("no such mode",))


def _check_new_environment(probe: CheckProbe, problem: Callable[[EnvDriver], str | None]) -> Outcome:
    """Return the outcome of asking `problem` about a new environment of every size."""
    for small in iterate_settings(probe):
        found = problem(EnvDriver(probe, small))
        if found is not None:
            return probe.broken(found)
    return KEPT


def _expect_attribute(name: str, expected: object) -> Callable[[EnvDriver], str | None]:
    def problem(drive: EnvDriver) -> str | None:
        found = drive.get(name)
        return None if found == expected else f"{name} is {shorten(found)}, expected {shorten(expected)}"

    return problem


def a_new_environment_is_in_the_first_state(probe: CheckProbe) -> Outcome:
    """ENV-INIT-C1."""
    return _check_new_environment(probe, _expect_attribute("_state", EnvironmentState.CREATED))


def a_new_environment_has_no_episode(probe: CheckProbe) -> Outcome:
    """ENV-INIT-C2."""
    return _check_new_environment(probe, _expect_attribute("_episode_count", 0))


def a_new_environment_has_taken_no_step(probe: CheckProbe) -> Outcome:
    """ENV-INIT-C3."""
    return _check_new_environment(probe, _expect_attribute("_step_count", 0))


def a_new_environment_has_all_its_parts(probe: CheckProbe) -> Outcome:
    """ENV-INIT-C4."""

    def problem(drive: EnvDriver) -> str | None:
        wrong = [name for name, kinds in _PARTS.items() if not isinstance(drive.get(name), kinds)]
        return f"{wrong[0]} is {shorten(drive.get(wrong[0]))}" if wrong else None

    return _check_new_environment(probe, problem)


def the_action_space_is_the_processors_own(probe: CheckProbe) -> Outcome:
    """ENV-INIT-C5."""

    def problem(drive: EnvDriver) -> str | None:
        own = drive.get("_action_proc").action_space
        return None if drive.get("action_space") is own else "action_space is not the processor's"

    return _check_new_environment(probe, problem)


def the_observation_space_is_the_models_own(probe: CheckProbe) -> Outcome:
    """ENV-INIT-C6."""

    def problem(drive: EnvDriver) -> str | None:
        own = drive.get("_obs_model").observation_space
        return None if drive.get("observation_space") is own else "observation_space is not the model's"

    return _check_new_environment(probe, problem)


def a_new_environment_has_no_agent(probe: CheckProbe) -> Outcome:
    """ENV-INIT-C7."""
    return _check_new_environment(probe, _expect_attribute("_agent_state", None))


CHECKS: Final[dict[str, Check]] = {
    "ENV-INIT-P1": refuses_a_configuration_that_does_not_resolve,
    "ENV-INIT-P2": refuses_a_part_without_its_members,
    "ENV-INIT-P3": refuses_a_grid_without_cells,
    "ENV-INIT-P4": refuses_a_maximum_of_no_steps,
    "ENV-INIT-P5": refuses_a_goal_radius_that_is_not_positive,
    "ENV-INIT-P6": refuses_an_unknown_render_mode,
    "ENV-INIT-C1": a_new_environment_is_in_the_first_state,
    "ENV-INIT-C2": a_new_environment_has_no_episode,
    "ENV-INIT-C3": a_new_environment_has_taken_no_step,
    "ENV-INIT-C4": a_new_environment_has_all_its_parts,
    "ENV-INIT-C5": the_action_space_is_the_processors_own,
    "ENV-INIT-C6": the_observation_space_is_the_models_own,
    "ENV-INIT-C7": a_new_environment_has_no_agent,
}
