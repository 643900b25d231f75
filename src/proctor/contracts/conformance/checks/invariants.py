"""The checks of the environment's invariants (ENV-I), after every sequence of up to three calls, shortest first."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, product
from typing import Any, Final

from proctor.contracts.chance import SEED_LIMIT
from proctor.contracts.conformance.env_driver import EnvDriver, StateView, iterate_settings, reach_each_state
from proctor.contracts.conformance.report import KEPT, Check, CheckProbe, Outcome, shorten
from proctor.contracts.conformance.samples import non_members
from proctor.contracts.lifecycle import EnvironmentState
from proctor.contracts.spatial import AgentState
from proctor.errors import ProctorError

_CALLS: Final = 3
_WORLDS: Final = 3

_OPERATIONS: Final[dict[str, Callable[[EnvDriver], Any]]] = {
    "reset": lambda drive: drive.reset(seed=1),
    "step": lambda drive: drive.step(drive.legal_action),
    "a refused step": lambda drive: drive.step(non_members(drive.env.action_space)[0]),
    "render": EnvDriver.render,
    "close": EnvDriver.close,
}


@dataclass(frozen=True, slots=True)
class _CallRecord:
    """What an environment is like before and after the last call of a sequence."""

    before: StateView
    after: StateView
    was_reset: bool
    """Whether the last call was a reset that was accepted."""


def _accepts(drive: EnvDriver, operation: str) -> bool:
    try:
        _OPERATIONS[operation](drive)
    except (ProctorError, ValueError):
        return False
    return True


def _iterate_call_records(probe: CheckProbe) -> Iterator[_CallRecord]:
    """Yield the moment after each sequence of calls; its prefixes are sequences of their own."""
    for small in islice(iterate_settings(probe), _WORLDS):
        for length in range(_CALLS + 1):
            for operations in product(_OPERATIONS, repeat=length):
                drive = EnvDriver(probe, small)
                before, accepted = drive.view(), False
                for operation in operations:
                    before = drive.view()
                    accepted = _accepts(drive, operation)
                yield _CallRecord(before, drive.view(), accepted and operations[-1] == "reset")


def _check_always(probe: CheckProbe, problem: Callable[[_CallRecord], str | None]) -> Outcome:
    for moment in _iterate_call_records(probe):
        found = problem(moment)
        if found is not None:
            return probe.broken(found)
    return KEPT


def the_state_is_one_of_five(probe: CheckProbe) -> Outcome:
    """ENV-I1."""

    def problem(moment: _CallRecord) -> str | None:
        state = moment.after["_state"]
        return None if isinstance(state, EnvironmentState) else f"_state is {shorten(state)}"

    return _check_always(probe, problem)


def there_is_an_agent_while_ready(probe: CheckProbe) -> Outcome:
    """ENV-I2."""

    def problem(moment: _CallRecord) -> str | None:
        agent = moment.after["_agent_state"]
        if moment.after["_state"] is not EnvironmentState.READY:
            return None
        sound = isinstance(agent, AgentState) and 0.0 <= agent.orientation < 360.0
        return None if sound else f"_agent_state is {shorten(agent)}"

    return _check_always(probe, problem)


def close_is_the_end(probe: CheckProbe) -> Outcome:
    """ENV-I3."""
    for _, drive in reach_each_state(probe, *EnvironmentState):
        drive.close()
        # Twice round: a refused call must not open the environment again.
        found = drive.refuses("reset", "step", "render", "reset", "step", "render")
        if found is not None:
            return probe.broken(found)
    return KEPT


def the_episode_count_goes_up_with_every_reset(probe: CheckProbe) -> Outcome:
    """ENV-I4."""

    def problem(moment: _CallRecord) -> str | None:
        was, now = moment.before["_episode_count"], moment.after["_episode_count"]
        if now < 0:
            return f"_episode_count is {now}"
        return f"_episode_count was {was}, is {now}" if moment.was_reset and now <= was else None

    return _check_always(probe, problem)


def the_parts_are_always_there(probe: CheckProbe) -> Outcome:
    """ENV-I5."""

    def problem(moment: _CallRecord) -> str | None:
        names = ("_action_proc", "_obs_model", "_reward_fn", "_plume")
        absent = [name for name in names if moment.after[name] is None]
        return f"{absent[0]} is None" if absent else None

    return _check_always(probe, problem)


def the_step_count_starts_again_with_each_episode(probe: CheckProbe) -> Outcome:
    """ENV-I6."""

    def problem(moment: _CallRecord) -> str | None:
        now = moment.after["_step_count"]
        return f"_step_count is {now}" if now < 0 or (moment.was_reset and now != 0) else None

    return _check_always(probe, problem)


def the_step_count_is_bounded_while_ready(probe: CheckProbe) -> Outcome:
    """ENV-I7."""

    def problem(moment: _CallRecord) -> str | None:
        count, most = moment.after["_step_count"], moment.after["_max_steps"]
        over = moment.after["_state"] is EnvironmentState.READY and count > most
        return f"ready with _step_count {count}, _max_steps is {most}" if over else None

    return _check_always(probe, problem)


def the_episode_count_never_goes_down(probe: CheckProbe) -> Outcome:
    """ENV-I8."""

    def problem(moment: _CallRecord) -> str | None:
        was, now = moment.before["_episode_count"], moment.after["_episode_count"]
        return f"_episode_count was {was}, is {now}" if now < was else None

    return _check_always(probe, problem)


def the_seed_is_none_or_in_range(probe: CheckProbe) -> Outcome:
    """ENV-I9."""

    def problem(moment: _CallRecord) -> str | None:
        seed = moment.after["_seed"]
        sound = seed is None or (type(seed) is int and 0 <= seed < SEED_LIMIT)
        return None if sound else f"_seed is {shorten(seed)}"

    return _check_always(probe, problem)


CHECKS: Final[dict[str, Check]] = {
    "ENV-I1": the_state_is_one_of_five,
    "ENV-I2": there_is_an_agent_while_ready,
    "ENV-I3": close_is_the_end,
    "ENV-I4": the_episode_count_goes_up_with_every_reset,
    "ENV-I5": the_parts_are_always_there,
    "ENV-I6": the_step_count_starts_again_with_each_episode,
    "ENV-I7": the_step_count_is_bounded_while_ready,
    "ENV-I8": the_episode_count_never_goes_down,
    "ENV-I9": the_seed_is_none_or_in_range,
}
