"""Whether a part or an environment keeps its contract: one check for every clause, with a small counterexample.

Rule 1: needs neither pytest nor Hypothesis; the command line uses it with the core dependencies only.
Rule 2: knows no environment of ours: a subject is whatever a factory returns, and an environment with a contract of its own
    brings its checks (`proctor.envs.popper.conformance`).
"""

from proctor.contracts.conformance.report import ClauseVerdict, Finding, Report
from proctor.contracts.conformance.suites import (
    CHECKS,
    ActionProcessorSuite,
    EnvironmentSuite,
    FieldSuite,
    RewardSuite,
    SensorSuite,
    check_clause,
    check_subject,
)

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
    "check_clause",
    "check_subject",
]
