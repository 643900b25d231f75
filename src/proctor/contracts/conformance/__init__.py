"""Whether a part or an environment keeps its contract: one check for every clause, with a small counterexample.

Rule 1: needs neither pytest nor Hypothesis; the command line uses it with the core dependencies only.
Rule 2: knows no environment of ours: a subject is whatever a factory returns, and an environment with a contract of its own
    brings its checks (`proctor.envs.popper.conformance`).

Subclass a suite, override `make`, and pytest runs one test for every clause:

    class TestMyActions(ActionProcessorSuite):
        def make(self) -> MyActions:
            return MyActions(step_size=2)

A name that does not begin with Test is not collected, so importing a suite runs nothing. A clause that cannot be
checked is skipped with the reason; a broken one fails with its id, its sentence and a counterexample.
"""

import unittest
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from proctor.contracts.clauses import CLAUSES, Subject, list_clauses
from proctor.contracts.conformance import env_checks, lifecycle_checks, part_checks
from proctor.contracts.conformance.report import Check, ClauseVerdict, Finding, Make, Report, run_check, run_checks

__all__ = [
    "CHECKS",
    "ActionProcessorSuite",
    "ClauseVerdict",
    "EnvironmentSuite",
    "FieldSuite",
    "Finding",
    "Report",
    "RewardSuite",
    "SensorSuite",
    "add_tests",
    "check_clause",
    "check_subject",
    "select_checks",
]

_ALL = {**env_checks.CHECKS, **lifecycle_checks.CHECKS, **part_checks.CHECKS}
CHECKS: Mapping[str, Check] = {name: _ALL[name] for name in CLAUSES if name in _ALL}
"""One check for every clause of an environment and of its parts, in the order of the contract.

An environment with a contract of its own brings the checks of its clauses and passes them in as `checks`.
"""


def check_clause(name: str, make: Make, checks: Mapping[str, Check] = CHECKS) -> Finding:
    """Return what is found about one clause, by its id."""
    return run_check(CLAUSES[name], checks[name], make)


def check_subject(subject: Subject, make: Make) -> Report:
    """Return what is found about all clauses that speak of `subject`."""
    return run_checks(select_checks(subject), make)


def select_checks(subject: Subject, checks: Mapping[str, Check] = CHECKS) -> dict[str, Check]:
    """Return the checks of the clauses that speak of `subject`, in the order of the contract."""
    return {clause.id: checks[clause.id] for clause in list_clauses(subject)}


class _Suite:
    """What the suites share."""

    def make(self) -> Any:
        """Return a new subject; override this. For an environment, `make(self, **settings)` lets more be checked."""
        raise NotImplementedError("override make() and return a new subject each time")


def _test_of(name: str, check: Check) -> Callable[[_Suite], None]:
    def test(self: _Suite) -> None:
        finding = run_check(CLAUSES[name], check, self.make)
        if finding.verdict is ClauseVerdict.NOT_CHECKABLE:
            raise unittest.SkipTest(str(finding))
        if finding.verdict is ClauseVerdict.BROKEN:
            raise AssertionError(str(finding))

    test.__name__ = test.__qualname__ = f"test_{check.__name__}"
    test.__doc__ = f"{name}: {CLAUSES[name].sentence}"
    return test


SuiteT = TypeVar("SuiteT", bound=type[_Suite])


def add_tests(
    subject: Subject, *more: tuple[str, Check], checks: Mapping[str, Check] = CHECKS
) -> Callable[[SuiteT], SuiteT]:
    """Return a decorator that gives a suite one test for each clause of `subject`, and for each of `more`."""

    def decorate(suite: SuiteT) -> SuiteT:
        for name, check in (*select_checks(subject, checks).items(), *more):
            test = _test_of(name, check)
            setattr(suite, test.__name__, test)
        return suite

    return decorate


@add_tests(Subject.ACTION_PROCESSOR, ("ACT-1", part_checks.corner_actions), ("ACT-1", part_checks.edge_actions))
class ActionProcessorSuite(_Suite):
    """The clauses of an action processor."""


@add_tests(Subject.SENSOR)
class SensorSuite(_Suite):
    """The clauses of an observation model."""


@add_tests(Subject.REWARD)
class RewardSuite(_Suite):
    """The clauses of a reward function."""


@add_tests(Subject.FIELD)
class FieldSuite(_Suite):
    """The clauses of a concentration field or of a plume that varies; make it on a small grid."""


@add_tests(Subject.ENVIRONMENT)
class EnvironmentSuite(_Suite):
    """The clauses of an environment; clauses about what a foreign one does not have are skipped."""
