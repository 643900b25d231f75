"""The checks of the lifecycle's rules, one for each rule of `lifecycle.TABLE` and derived from its rows.

A call that the table allows must not raise, and one that it refuses must raise a StateError: that is seen from
outside. Where a call leads can only be told of an environment that has `_state`.
"""

from collections.abc import Iterable
from typing import Final

from proctor.contracts.conformance.env_driver import EnvDriver, ObservedStep, check_each_step, reach_each_state
from proctor.contracts.conformance.report import KEPT, CannotTell, Check, CheckProbe, Outcome, shorten
from proctor.contracts.lifecycle import TABLE, LifecycleMethod, LifecycleTransition


def _find_wrong_state(drive: EnvDriver, row: LifecycleTransition) -> str | None:
    found = drive.get("_state")
    return None if found == row.target else f"_state is {shorten(found)}, expected {row.target}"


def _find_deviation(drive: EnvDriver, row: LifecycleTransition) -> str | None:
    """Return what comes of the row's call, if it is not what the row says."""
    before = drive.view()
    if row.target is not None:
        drive.call(row.method)
        return _find_wrong_state(drive, row)
    answer = drive.refuses(row.method)
    if answer is not None:
        return answer
    changed = [name for name, value in drive.view().items() if before[name] is not value and before[name] != value]
    return f"the refused call changed {changed[0]}" if changed else None


def _check_calls(rows: Iterable[LifecycleTransition], probe: CheckProbe) -> Outcome:
    """Return the outcome of making the call of `rows` in each of their source states."""
    by_source = {row.source: row for row in rows}
    for state, drive in reach_each_state(probe, *by_source):
        found = _find_deviation(drive, by_source[state])
        if found is not None:
            return probe.broken(found)
    return KEPT


def _check_continuing_steps(row: LifecycleTransition, probe: CheckProbe) -> Outcome:
    """Return the outcome of steps that end nothing, which must lead to the target of `row`."""
    seen = False

    def problem(step: ObservedStep) -> str | None:
        nonlocal seen
        if step.result[2] or step.result[3]:
            return None
        seen = True
        return _find_wrong_state(step.drive, row)

    outcome = check_each_step(probe, problem)
    if not seen:
        raise CannotTell("every first step ended its episode")
    return outcome


def _check_ending_steps(row: LifecycleTransition, probe: CheckProbe) -> Outcome:
    """Return the outcome of a walk whose last step had the flags of `row`."""
    for _, drive in reach_each_state(probe, *filter(None, [row.target])):
        found = _find_wrong_state(drive, row)
        if found is not None:
            return probe.broken(found)
    return KEPT


def _make_check(rule: str) -> Check:
    rows = [row for row in TABLE if row.rule == rule]

    def check(probe: CheckProbe) -> Outcome:
        # Only a step has targets that depend on what it finds.
        if rows[0].method is not LifecycleMethod.STEP or rows[0].target is None:
            return _check_calls(rows, probe)
        return (_check_continuing_steps if rows[0].target is rows[0].source else _check_ending_steps)(rows[0], probe)

    check.__name__ = "rule_" + rule.lower().replace("-", "_")
    check.__doc__ = f"{rule}."
    return check


CHECKS: Final[dict[str, Check]] = {rule: _make_check(rule) for rule in dict.fromkeys(row.rule for row in TABLE)}
