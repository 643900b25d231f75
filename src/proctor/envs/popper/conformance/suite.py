"""The checks of Column Popper by clause, and the test class for an implementation of it."""

from collections.abc import Mapping

from proctor.contracts.clauses import Subject
from proctor.contracts.conformance.report import Check, Make, Report, run_checks
from proctor.contracts.conformance.suites import EnvironmentSuite, add_tests, select_checks
from proctor.envs.popper.conformance import clock_checks, move_checks, report_checks, settings_checks

CHECKS: Mapping[str, Check] = select_checks(
    Subject.COLUMN_POPPER,
    {**clock_checks.CHECKS, **move_checks.CHECKS, **report_checks.CHECKS, **settings_checks.CHECKS},
)
"""One check for every clause of Column Popper, in the order of the contract."""


def check_column_popper(make: Make) -> Report:
    """Return what is found about the clauses of an environment, then about those of Column Popper."""
    return run_checks({**select_checks(Subject.ENVIRONMENT), **CHECKS}, make)


@add_tests(Subject.COLUMN_POPPER, checks=CHECKS)
class ColumnPopperSuite(EnvironmentSuite):
    """The clauses of Column Popper, and those of any environment."""
