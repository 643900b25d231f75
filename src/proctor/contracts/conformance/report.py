"""What checks share, and what they say: kept, broken with a counterexample, or not checkable and why.

Rule 1: a check is a function from a `CheckProbe` to an `Outcome`; it tries small cases first and stops at the first one
    that fails, so that a counterexample is small.
Rule 2: `run_check` is the only place that catches what foreign code raises.
Rule 3: nothing here or in the checks reads a clock or draws from a global generator: the same subject gets the same
    report.
"""

import re
import reprlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

from gymnasium.error import DependencyNotInstalled

from proctor.contracts.clauses import CLAUSES, Clause
from proctor.errors import MissingExtraError

_SHORT: Final = reprlib.Repr()
_SHORT.maxstring, _SHORT.maxother = 80, 160
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")
_LONGEST: Final = 400


Outcome = str | None
"""What breaks a clause: the smallest case found, in words; None if no case did."""


class ClauseVerdict(StrEnum):
    """What is known of a clause."""

    KEPT = "kept"
    BROKEN = "broken"
    NOT_CHECKABLE = "not checkable"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found out about one clause; the reason is a counterexample, or why it cannot be checked."""

    clause: Clause
    verdict: ClauseVerdict
    reason: str = ""

    def __str__(self) -> str:
        head = f"{self.clause.id} {self.verdict}: {self.clause.sentence}"
        return f"{head}\n  {self.reason}" if self.reason else head


@dataclass(frozen=True, slots=True)
class Report:
    """All findings about one subject, in the order of the contract."""

    findings: tuple[Finding, ...]

    def count(self, verdict: str) -> int:
        """Return how many clauses got this verdict."""
        return sum(finding.verdict == verdict for finding in self.findings)

    @property
    def broken(self) -> tuple[Finding, ...]:
        """The clauses that do not hold."""
        return tuple(finding for finding in self.findings if finding.verdict is ClauseVerdict.BROKEN)


class CannotTell(Exception):
    """A check has nothing to look at; `run_check` turns it into a verdict, so it never leaves this room."""


Make = Callable[..., Any]


class CheckProbe:
    """A subject under test: how to make one, and what is being done to it at the moment."""

    def __init__(self, make: Make) -> None:
        self.make = make
        self.doing: object = "make()"
        """What a counterexample begins with; turned into text only when it is needed."""
        self.worlds: list[dict[str, Any]] | None = None
        """What environments are made with, smallest first; found out once (see `drives`)."""

    def broken(self, found: str) -> str:
        """Return the outcome for what was just done and what came of it."""
        words = f"{self.doing}: {found}"
        return words if len(words) <= _LONGEST else words[: _LONGEST - 1] + "…"


Check = Callable[[CheckProbe], Outcome]
FindProblem = Callable[..., Outcome]
"""Says what is wrong with one case; None: nothing."""
Cases = Callable[[CheckProbe], Iterable[tuple[Any, ...]]]
"""Yields the arguments of a `FindProblem`, small cases first, and notes in the probe what is being done."""
FindProblemT = TypeVar("FindProblemT", bound=FindProblem)


def probe_alone(probe: CheckProbe) -> Iterator[tuple[CheckProbe]]:
    """Yield the probe itself: the check makes its own cases."""
    yield (probe,)


def with_twin(cases: Cases) -> Cases:
    """Return `cases` with another subject of the kind as a further argument."""

    def iterate_pairs(probe: CheckProbe) -> Iterator[tuple[Any, ...]]:
        twin = probe.make()
        return ((*case, twin) for case in cases(probe))

    return iterate_pairs


def make_check(name: str, find_problem: FindProblem, cases: Cases = probe_alone) -> Check:
    """Return the check that a clause is kept if `find_problem` finds nothing in any of `cases`."""

    def check(probe: CheckProbe) -> Outcome:
        for case in cases(probe):
            found = find_problem(*case)
            if found is not None:
                return probe.broken(found)
        return None

    check.__name__ = name
    return check


class CheckTable(dict[str, Check]):
    """Checks by the id of their clause."""

    def add(self, clause: str, cases: Cases = probe_alone) -> Callable[[FindProblemT], FindProblemT]:
        """Return a decorator that makes a function the check of `clause`."""

        def decorate(find_problem: FindProblemT) -> FindProblemT:
            self[clause] = make_check(find_problem.__name__, find_problem, cases)
            return find_problem

        return decorate


def shorten(value: object) -> str:
    """Return `value` as one short line, without the addresses that differ from run to run."""
    text = value.value if isinstance(value, StrEnum) else _ADDRESS.sub("", _SHORT.repr(value))
    return " ".join(text.split())


def run_check(clause: Clause, check: Check, make: Make) -> Finding:
    """Return what `check` finds about the subject that `make` makes; never raises."""
    probe = CheckProbe(make)
    try:
        with warnings.catch_warnings():
            # A warning is no breach, and must not become one by the filters of whoever asks.
            warnings.simplefilter("ignore")
            outcome = check(probe)
    except CannotTell as silence:
        return Finding(clause, ClauseVerdict.NOT_CHECKABLE, str(silence))
    except (MissingExtraError, DependencyNotInstalled) as absent:
        return Finding(clause, ClauseVerdict.NOT_CHECKABLE, f"a dependency is not installed: {absent}")
    # The code under test is anybody's: whatever it raises is a finding about it, never a crash of the one who asks.
    except Exception as problem:  # noqa: BLE001
        outcome = probe.broken(f"raised {type(problem).__name__}: {problem}")
    return Finding(clause, ClauseVerdict.KEPT) if outcome is None else Finding(clause, ClauseVerdict.BROKEN, outcome)


def run_checks(checks: Mapping[str, Check], make: Make) -> Report:
    """Return the report of all `checks`, by clause id, on the subject that `make` makes."""
    return Report(tuple(run_check(CLAUSES[name], check, make) for name, check in checks.items()))


def expect_refusal(kinds: tuple[type[Exception], ...], call: Callable[..., Any], *arguments: Any) -> str | None:
    """Return None if `call` raises one of `kinds`, else what it answers; anything else that it raises passes through."""
    try:
        answer = call(*arguments)
    except kinds:
        return None
    return f"answers {shorten(answer)} instead of {kinds[0].__name__}"
