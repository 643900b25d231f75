"""The universal suites: subclass one, override `make`, and pytest runs one test for every clause.

    class TestMyActions(ActionProcessorSuite):
        def make(self) -> MyActions:
            return MyActions(step_size=2)

A name that does not begin with Test is not collected, so importing a suite runs nothing. A clause that cannot be
checked is skipped with the reason; a broken one fails with its id, its sentence and a counterexample. Neither pytest
nor Hypothesis is needed to import this.
"""

import unittest
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from proctor.contracts.clauses import CLAUSES, Subject, list_clauses
from proctor.contracts.conformance import popper_clock, popper_ledger, popper_moves, popper_settings
from proctor.contracts.conformance.checks import (
    construction,
    endings,
    fields,
    invariants,
    processors,
    resets,
    rewards,
    sensors,
    stepping,
    transitions,
)
from proctor.contracts.conformance.report import (
    Broken,
    Check,
    Finding,
    Make,
    NotCheckable,
    Report,
    run_check,
    run_checks,
)

_ALL: Mapping[str, Check] = {
    **construction.CHECKS,
    **endings.CHECKS,
    **fields.CHECKS,
    **invariants.CHECKS,
    **popper_clock.CHECKS,
    **popper_ledger.CHECKS,
    **popper_moves.CHECKS,
    **popper_settings.CHECKS,
    **processors.CHECKS,
    **resets.CHECKS,
    **rewards.CHECKS,
    **sensors.CHECKS,
    **stepping.CHECKS,
    **transitions.CHECKS,
}
CHECKS: Mapping[str, Check] = {name: _ALL[name] for name in CLAUSES}
"""One check for every clause, in the order of the contract."""
GAMES: Final = frozenset({Subject.COLUMN_POPPER})
"""The subjects that are environments with a contract of their own."""


def check_clause(name: str, make: Make) -> Finding:
    """Return what is found about one clause, by its id."""
    return run_check(CLAUSES[name], CHECKS[name], make)


def check_subject(subject: Subject, make: Make) -> Report:
    """Return what is found about all clauses that speak of `subject`; a game keeps those of an environment as well."""
    subjects = (Subject.ENVIRONMENT, subject) if subject in GAMES else (subject,)
    return run_checks({clause.id: CHECKS[clause.id] for each in subjects for clause in list_clauses(each)}, make)


class _Suite:
    """What the suites share."""

    def make(self) -> Any:
        """Return a new subject; override this. For an environment, `make(self, **settings)` lets more be checked."""
        raise NotImplementedError("override make() and return a new subject each time")


def _test_of(name: str, check: Check) -> Callable[[_Suite], None]:
    def test(self: _Suite) -> None:
        finding = run_check(CLAUSES[name], check, self.make)
        if isinstance(finding.outcome, NotCheckable):
            raise unittest.SkipTest(str(finding))
        if isinstance(finding.outcome, Broken):
            raise AssertionError(str(finding))

    test.__name__ = test.__qualname__ = f"test_{check.__name__}"
    test.__doc__ = f"{name}: {CLAUSES[name].sentence}"
    return test


SuiteT = TypeVar("SuiteT", bound=type[_Suite])


def _tests(subject: Subject, *more: tuple[str, Check]) -> Callable[[SuiteT], SuiteT]:
    """Give a suite one test for each clause of `subject`, and for each of `more`."""

    def decorate(suite: SuiteT) -> SuiteT:
        for name, check in (*((clause.id, CHECKS[clause.id]) for clause in list_clauses(subject)), *more):
            test = _test_of(name, check)
            setattr(suite, test.__name__, test)
        return suite

    return decorate


@_tests(Subject.ACTION_PROCESSOR, ("ACT-1", processors.corner_actions), ("ACT-1", processors.edge_actions))
class ActionProcessorSuite(_Suite):
    """The clauses of an action processor."""


@_tests(Subject.SENSOR)
class SensorSuite(_Suite):
    """The clauses of an observation model."""


@_tests(Subject.REWARD)
class RewardSuite(_Suite):
    """The clauses of a reward function."""


@_tests(Subject.FIELD)
class FieldSuite(_Suite):
    """The clauses of a concentration field or of a plume that varies; make it on a small grid."""


@_tests(Subject.ENVIRONMENT)
class EnvironmentSuite(_Suite):
    """The clauses of an environment; clauses about what a foreign one does not have are skipped."""


@_tests(Subject.COLUMN_POPPER)
class ColumnPopperSuite(EnvironmentSuite):
    """The clauses of Column Popper, and those of any environment."""
