"""Whether an implementation of Column Popper keeps its contract: one check for every clause, with a small counterexample.

Rule: it judges anybody's implementation, so it shares no code with ours; `games` has the contract again, written for reading.
"""

from collections.abc import Mapping

from proctor.contracts.clauses import Subject
from proctor.contracts.conformance import EnvironmentSuite, add_tests, select_checks
from proctor.contracts.conformance.report import Check, Make, Report, run_checks
from proctor.envs.popper.conformance import checks

CHECKS: Mapping[str, Check] = select_checks(Subject.COLUMN_POPPER, checks.CHECKS)
"""One check for every clause of Column Popper, in the order of the contract."""


def check_column_popper(make: Make) -> Report:
    """Return what is found about the clauses of an environment, then about those of Column Popper."""
    return run_checks({**select_checks(Subject.ENVIRONMENT), **CHECKS}, make)


@add_tests(Subject.COLUMN_POPPER, checks=CHECKS)
class ColumnPopperSuite(EnvironmentSuite):
    """The clauses of Column Popper, and those of any environment."""
