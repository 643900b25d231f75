"""The checks of the lifecycle's rules, one for each rule of `lifecycle.TABLE` and derived from its rows.

A call that the table allows must not raise, and one that it refuses must raise a StateError: that is seen from
outside. Where a call leads can only be told of an environment that has `_state`.
"""

from collections.abc import Iterable
from typing import Final

from proctor.contracts.conformance.drives import Drive, Step, each_state, each_step
from proctor.contracts.conformance.report import KEPT, CannotTell, Check, Outcome, Probe, short
from proctor.contracts.lifecycle import TABLE, Method, Transition


def _misplaced(drive: Drive, row: Transition) -> str | None:
    found = drive.get("_state")
    return None if found == row.target else f"_state is {short(found)}, expected {row.target}"


def _differing(drive: Drive, row: Transition) -> str | None:
    """Return what comes of the row's call, if it is not what the row says."""
    before = drive.view()
    if row.target is not None:
        drive.call(row.method)
        return _misplaced(drive, row)
    answer = drive.refuses(row.method)
    if answer is not None:
        return answer
    changed = [name for name, value in drive.view().items() if before[name] is not value and before[name] != value]
    return f"the refused call changed {changed[0]}" if changed else None


def _called(rows: Iterable[Transition], probe: Probe) -> Outcome:
    """Return the outcome of making the call of `rows` in each of their source states."""
    by_source = {row.source: row for row in rows}
    for state, drive in each_state(probe, *by_source):
        found = _differing(drive, by_source[state])
        if found is not None:
            return probe.broken(found)
    return KEPT


def _goes_on(row: Transition, probe: Probe) -> Outcome:
    """Return the outcome of steps that end nothing, which must lead to the target of `row`."""
    seen = False

    def problem(step: Step) -> str | None:
        nonlocal seen
        if step.result[2] or step.result[3]:
            return None
        seen = True
        return _misplaced(step.drive, row)

    outcome = each_step(probe, problem)
    if not seen:
        raise CannotTell("every first step ended its episode")
    return outcome


def _ends(row: Transition, probe: Probe) -> Outcome:
    """Return the outcome of a walk whose last step had the flags of `row`."""
    for _, drive in each_state(probe, *filter(None, [row.target])):
        found = _misplaced(drive, row)
        if found is not None:
            return probe.broken(found)
    return KEPT


def _check_of(rule: str) -> Check:
    rows = [row for row in TABLE if row.rule == rule]

    def check(probe: Probe) -> Outcome:
        # Only a step has targets that depend on what it finds.
        if rows[0].method is not Method.STEP or rows[0].target is None:
            return _called(rows, probe)
        return (_goes_on if rows[0].target is rows[0].source else _ends)(rows[0], probe)

    check.__name__ = "rule_" + rule.lower().replace("-", "_")
    check.__doc__ = f"{rule}."
    return check


CHECKS: Final[dict[str, Check]] = {rule: _check_of(rule) for rule in dict.fromkeys(row.rule for row in TABLE)}
