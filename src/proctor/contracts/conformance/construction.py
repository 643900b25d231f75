"""The checks of what an environment's constructor takes and leaves behind (ENV-INIT)."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from proctor.contracts.components import (
    REQUIRED,
    ActionProcessor,
    ConcentrationField,
    ObservationModel,
    RewardFunction,
    VaryingPlume,
)
from proctor.contracts.conformance.drives import Drive, need, settings, takes
from proctor.contracts.conformance.parts import refused
from proctor.contracts.conformance.report import KEPT, CannotTell, Check, Outcome, Probe, short
from proctor.contracts.lifecycle import EnvironmentState
from proctor.errors import ComponentError

_PARTS: Final = {
    "_action_proc": (ActionProcessor,),
    "_obs_model": (ObservationModel,),
    "_reward_fn": (RewardFunction,),
    "_plume": (ConcentrationField, VaryingPlume),
}


def constructor_refuses(probe: Probe, name: str, values: Iterable[Any]) -> Outcome:
    """Return whether the constructor refuses each of `values` for the keyword `name`."""
    need(probe, name)
    for value in values:
        probe.doing = f"make({name}={short(value)})"
        found = refused((ValueError, ComponentError), partial(probe.make, **{name: value}))
        if found is not None:
            return probe.broken(found)
    return KEPT


def a_configuration_that_does_not_resolve_is_refused(probe: Probe) -> Outcome:
    """ENV-INIT-P1."""
    return constructor_refuses(probe, "config", ({"no such setting": 1}, 42))


def _incomplete(choices: Iterable[tuple[str, ...]]) -> Iterable[object]:
    """Yield parts that lack everything, and parts that lack just one of their members."""
    yield object()
    for names in choices:
        for absent in names:
            yield type(f"Without_{absent}", (), {name: None for name in names if name != absent})()


def a_part_without_its_members_is_refused(probe: Probe) -> Outcome:
    """ENV-INIT-P2."""
    arguments = [name for name in REQUIRED if takes(probe, name)]
    if not arguments:
        raise CannotTell("the constructor takes no parts")
    outcomes = (constructor_refuses(probe, name, _incomplete(REQUIRED[name])) for name in arguments)
    return next((outcome for outcome in outcomes if outcome is not KEPT), KEPT)


def a_grid_without_cells_is_refused(probe: Probe) -> Outcome:
    """ENV-INIT-P3."""
    return constructor_refuses(probe, "grid_size", ((0, 1), (1, 0), (-1, 1)))


def a_maximum_of_no_steps_is_refused(probe: Probe) -> Outcome:
    """ENV-INIT-P4."""
    return constructor_refuses(probe, "max_steps", (0, -1))


def a_goal_radius_that_is_not_positive_is_refused(probe: Probe) -> Outcome:
    """ENV-INIT-P5."""
    return constructor_refuses(probe, "goal_radius", (0.0, -1.0, float("nan"), float("inf")))


def an_unknown_render_mode_is_refused(probe: Probe) -> Outcome:
    """ENV-INIT-P6."""
    return constructor_refuses(probe, "render_mode", ("no such mode",))


def _new(probe: Probe, problem: Callable[[Drive], str | None]) -> Outcome:
    """Return the outcome of asking `problem` about a new environment of every size."""
    for small in settings(probe):
        found = problem(Drive(probe, small))
        if found is not None:
            return probe.broken(found)
    return KEPT


def _begins_with(name: str, expected: object) -> Callable[[Drive], str | None]:
    def problem(drive: Drive) -> str | None:
        found = drive.get(name)
        return None if found == expected else f"{name} is {short(found)}, expected {short(expected)}"

    return problem


def a_new_environment_is_created(probe: Probe) -> Outcome:
    """ENV-INIT-C1."""
    return _new(probe, _begins_with("_state", EnvironmentState.CREATED))


def a_new_environment_has_no_episode(probe: Probe) -> Outcome:
    """ENV-INIT-C2."""
    return _new(probe, _begins_with("_episode_count", 0))


def a_new_environment_has_taken_no_step(probe: Probe) -> Outcome:
    """ENV-INIT-C3."""
    return _new(probe, _begins_with("_step_count", 0))


def a_new_environment_has_all_its_parts(probe: Probe) -> Outcome:
    """ENV-INIT-C4."""

    def problem(drive: Drive) -> str | None:
        wrong = [name for name, kinds in _PARTS.items() if not isinstance(drive.get(name), kinds)]
        return f"{wrong[0]} is {short(drive.get(wrong[0]))}" if wrong else None

    return _new(probe, problem)


def the_action_space_is_the_processors_own(probe: Probe) -> Outcome:
    """ENV-INIT-C5."""

    def problem(drive: Drive) -> str | None:
        own = drive.get("_action_proc").action_space
        return None if drive.get("action_space") is own else "action_space is not the processor's"

    return _new(probe, problem)


def the_observation_space_is_the_models_own(probe: Probe) -> Outcome:
    """ENV-INIT-C6."""

    def problem(drive: Drive) -> str | None:
        own = drive.get("_obs_model").observation_space
        return None if drive.get("observation_space") is own else "observation_space is not the model's"

    return _new(probe, problem)


def a_new_environment_has_no_agent(probe: Probe) -> Outcome:
    """ENV-INIT-C7."""
    return _new(probe, _begins_with("_agent_state", None))


CHECKS: Final[dict[str, Check]] = {
    "ENV-INIT-P1": a_configuration_that_does_not_resolve_is_refused,
    "ENV-INIT-P2": a_part_without_its_members_is_refused,
    "ENV-INIT-P3": a_grid_without_cells_is_refused,
    "ENV-INIT-P4": a_maximum_of_no_steps_is_refused,
    "ENV-INIT-P5": a_goal_radius_that_is_not_positive_is_refused,
    "ENV-INIT-P6": an_unknown_render_mode_is_refused,
    "ENV-INIT-C1": a_new_environment_is_created,
    "ENV-INIT-C2": a_new_environment_has_no_episode,
    "ENV-INIT-C3": a_new_environment_has_taken_no_step,
    "ENV-INIT-C4": a_new_environment_has_all_its_parts,
    "ENV-INIT-C5": the_action_space_is_the_processors_own,
    "ENV-INIT-C6": the_observation_space_is_the_models_own,
    "ENV-INIT-C7": a_new_environment_has_no_agent,
}
