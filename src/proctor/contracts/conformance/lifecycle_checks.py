"""The checks of the environment's invariants (ENV-I), and of each rule of the lifecycle.

The invariants are looked at after every sequence of up to three calls, shortest first. The rules are derived from the
rows of `lifecycle.TABLE`: a call that the table allows must not raise, and one that it refuses must raise a StateError. That
is seen from outside; where a call leads can only be told of an environment that has `_state`.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, product
from typing import Any, Final

from proctor.contracts.chance import SEED_LIMIT
from proctor.contracts.conformance.env_driver import (
    PARTS,
    EnvDriver,
    StateView,
    in_each_state,
    iterate_settings,
    iterate_steps,
    reach_each_state,
)
from proctor.contracts.conformance.report import CannotTell, Check, CheckProbe, CheckTable, make_check, shorten
from proctor.contracts.conformance.samples import non_members
from proctor.contracts.lifecycle import TABLE, EnvironmentState, LifecycleMethod, LifecycleTransition
from proctor.contracts.spatial import AgentState
from proctor.errors import ProctorError

CHECKS: Final = CheckTable()


_MOST_CALLS: Final = 3
_OPERATIONS: Final[dict[str, Callable[[EnvDriver], Any]]] = {
    "reset": lambda drive: drive.reset(seed=1),
    "step": lambda drive: drive.step(drive.legal_action),
    "a refused step": lambda drive: drive.step(non_members(drive.env.action_space)[0]),
    "render": EnvDriver.render,
    "close": EnvDriver.close,
}


@dataclass(frozen=True, slots=True)
class CallRecord:
    """What an environment is like before and after the last call of a sequence."""

    before: StateView
    after: StateView
    was_reset: bool
    """Whether the last call was a reset that was accepted."""


def _always(probe: CheckProbe) -> Iterator[tuple[CallRecord]]:
    """Yield the moment after each sequence of calls; its prefixes are sequences of their own."""
    for small in islice(iterate_settings(probe), 3):
        for length in range(_MOST_CALLS + 1):
            for operations in product(_OPERATIONS, repeat=length):
                drive = EnvDriver(probe, small)
                before, accepted = drive.view(), ""
                for operation in operations:
                    before, accepted = drive.view(), ""
                    with suppress(ProctorError, ValueError):
                        _OPERATIONS[operation](drive)
                        accepted = operation
                yield (CallRecord(before, drive.view(), accepted == "reset"),)


@CHECKS.add("ENV-I1", _always)
def the_state_is_one_of_five(moment: CallRecord) -> str | None:
    state = moment.after["_state"]
    return None if isinstance(state, EnvironmentState) else f"_state is {shorten(state)}"


@CHECKS.add("ENV-I2", _always)
def there_is_an_agent_while_ready(moment: CallRecord) -> str | None:
    agent = moment.after["_agent_state"]
    if moment.after["_state"] is not EnvironmentState.READY:
        return None
    sound = isinstance(agent, AgentState) and 0.0 <= agent.orientation < 360.0
    return None if sound else f"_agent_state is {shorten(agent)}"


@CHECKS.add("ENV-I3", in_each_state(*EnvironmentState))
def close_is_the_end(drive: EnvDriver) -> str | None:
    drive.close()
    # Twice round: a refused call must not open the environment again.
    return drive.refuses("reset", "step", "render", "reset", "step", "render")


@CHECKS.add("ENV-I4", _always)
def the_episode_count_goes_up_with_every_reset(moment: CallRecord) -> str | None:
    was, now = moment.before["_episode_count"], moment.after["_episode_count"]
    if now < 0:
        return f"_episode_count is {now}"
    return f"_episode_count was {was}, is {now}" if moment.was_reset and now <= was else None


@CHECKS.add("ENV-I5", _always)
def the_parts_are_always_there(moment: CallRecord) -> str | None:
    absent = [name for name in PARTS if moment.after[name] is None]
    return f"{absent[0]} is None" if absent else None


@CHECKS.add("ENV-I6", _always)
def the_step_count_starts_again_with_each_episode(moment: CallRecord) -> str | None:
    now = moment.after["_step_count"]
    return f"_step_count is {now}" if now < 0 or (moment.was_reset and now != 0) else None


@CHECKS.add("ENV-I7", _always)
def the_step_count_is_bounded_while_ready(moment: CallRecord) -> str | None:
    count, most = moment.after["_step_count"], moment.after["_max_steps"]
    over = moment.after["_state"] is EnvironmentState.READY and count > most
    return f"ready with _step_count {count}, _max_steps is {most}" if over else None


@CHECKS.add("ENV-I8", _always)
def the_episode_count_never_goes_down(moment: CallRecord) -> str | None:
    was, now = moment.before["_episode_count"], moment.after["_episode_count"]
    return f"_episode_count was {was}, is {now}" if now < was else None


@CHECKS.add("ENV-I9", _always)
def the_seed_is_none_or_in_range(moment: CallRecord) -> str | None:
    seed = moment.after["_seed"]
    sound = seed is None or (type(seed) is int and 0 <= seed < SEED_LIMIT)
    return None if sound else f"_seed is {shorten(seed)}"


def _find_wrong_state(drive: EnvDriver, row: LifecycleTransition) -> str | None:
    return drive.find_other("_state", row.target)


def _find_deviation(drive: EnvDriver, row: LifecycleTransition) -> str | None:
    """Return what comes of the row's call, if it is not what the row says."""
    if row.target is not None:
        drive.call(row.method)
        return _find_wrong_state(drive, row)
    before = drive.view()
    answer = drive.refuses(row.method)
    changed = drive.find_changes(before)
    return answer or (f"the refused call changed {changed[0]}" if changed else None)


def _steps_that_end_nothing(probe: CheckProbe) -> Iterator[EnvDriver]:
    seen = False
    for (step,) in iterate_steps(probe):
        if not (step.result[2] or step.result[3]):
            seen = True
            yield step.drive
    if not seen:
        raise CannotTell("every first step ended its episode")


def _make_rule(rule: str) -> Check:
    name = "rule_" + rule.lower().replace("-", "_")
    rows = {row.source: row for row in TABLE if row.rule == rule}
    first = next(iter(rows.values()))
    target = first.target
    if first.method is not LifecycleMethod.STEP or target is None:
        return make_check(
            name,
            _find_deviation,
            lambda probe: ((drive, rows[state]) for state, drive in reach_each_state(probe, *rows)),
        )
    # Only a step has targets that depend on what it finds.
    if target is first.source:
        return make_check(name, _find_wrong_state, lambda probe: ((d, first) for d in _steps_that_end_nothing(probe)))
    return make_check(name, _find_wrong_state, lambda probe: ((d, first) for (d,) in in_each_state(target)(probe)))


for _rule in dict.fromkeys(row.rule for row in TABLE):
    CHECKS[_rule] = _make_rule(_rule)
