"""A script that is played as it is written: each line is judged at once and held against its expectation."""

from proctor.episode import Judge, Settings
from proctor.episode.settings import Limits
from proctor.episode.verdicts import Verdict
from tests.episode.scripts import STATE, Line, Script


class Stage(Script):
    """An episode under way before a judge; `verdict` is the latest."""

    def __init__(self, settings: Settings | None = None, *, limits: Limits | None = None) -> None:
        self.judge = Judge(settings, limits=limits)
        self.verdict: Verdict
        super().__init__("corr_stage")

    def _add(
        self, line: Line, verdict: str, rules: tuple[str, ...], warnings: tuple[str, ...], state: str | None
    ) -> None:
        super()._add(line, verdict, rules, warnings, state)
        found = self.verdict = self.judge.apply(self.lines[-1])
        expected = (verdict == "accepted", sorted(rules), sorted(warnings), state and STATE[state])
        warned = sorted({finding.rule for finding in found.warnings})
        end = found.path[-1].value if found.path else None
        assert (found.accepted, sorted(found.rules), warned, end) == expected, found.reason

    @property
    def path(self) -> tuple[str, ...]:
        """The short names of the states of the latest path."""
        return tuple(state.value[:2] for state in self.verdict.path)
