"""Whether an implementation of Column Popper keeps its contract: one check for every clause, with a small counterexample.

Rule: it judges anybody's implementation, so it shares no code with ours; `model` is the contract again, written for reading.
"""

from proctor.envs.popper.conformance.suite import CHECKS, ColumnPopperSuite, check_column_popper

__all__ = ["CHECKS", "ColumnPopperSuite", "check_column_popper"]
