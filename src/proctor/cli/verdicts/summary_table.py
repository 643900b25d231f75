"""What became of each episode: rows by campaign, and the totals.

Rule 1: rows are printed one by one, as in `verdict_table.py`: a hundred thousand episodes are no burden.
Rule 2: an episode that has no campaign stands before those that have one.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from proctor.cli.output import printable
from proctor.cli.verdicts.verdict_json import encode_line
from proctor.cli.verdicts.verdict_table import TableLayout, format_remark, shorten, style_text
from proctor.episode.explanations import describe_obligation, join_words
from proctor.episode.judge import JudgeSummary
from proctor.episode.verdicts import Outcome, Verdict

STATE: Final = 13
OUTCOME: Final = 10
COUNT: Final = 8
COLOURS: Final = {Outcome.CONFORMING: "green", Outcome.VIOLATED: "red", Outcome.OPEN: "yellow"}
HEADINGS: Final = ("episode", "outcome", "state", "packets", "refused", "warnings")


class VerdictTally(Struct):
    """What is counted over all lines; `stray` lines belong to no episode that anybody could name."""

    lines: int = 0
    accepted: int = 0
    refused: int = 0
    warnings: int = 0
    stray: int = 0
    broken: dict[str, int] = {}

    def add(self, verdict: Verdict) -> None:
        """Count one verdict."""
        self.lines += 1
        self.warnings += len(verdict.warnings)
        if verdict.accepted:
            self.accepted += 1
            return
        self.refused += 1
        self.stray += verdict.correlation_id is None
        for rule in verdict.rules:
            self.broken[rule] = self.broken.get(rule, 0) + 1


class SummaryTotals(Struct, frozen=True):
    """The last object of a summary in JSON."""

    totals: VerdictTally
    episodes: dict[str, int]


def summary_as_text(form: TableLayout, summaries: Iterable[JudgeSummary], tally: VerdictTally) -> Iterator[str]:
    """Yield the summary, a line or a few at a time."""
    outcomes: Counter[str] = Counter()
    yield style_text(_format_row(form, *HEADINGS), form, bold=True)
    for campaign, episodes in _group_by_campaign(summaries):
        own = Counter[str](episode.outcome for episode in episodes)
        outcomes += own
        if campaign is not None:
            yield style_text(f"{printable(campaign)}: {_format_outcomes(own)}\n", form, bold=True)
        for episode in episodes:
            yield from _episode_rows(form, episode)
    yield from format_totals(form, tally, outcomes)


def summary_as_json(summaries: Iterable[JudgeSummary], tally: VerdictTally) -> Iterator[bytes]:
    """Yield one object for each episode, and the totals."""
    outcomes: Counter[str] = Counter()
    for _, episodes in _group_by_campaign(summaries):
        outcomes.update(episode.outcome for episode in episodes)
        yield from map(encode_line, episodes)
    yield encode_line(SummaryTotals(tally, {outcome: outcomes[outcome] for outcome in Outcome}))


def format_totals(form: TableLayout, tally: VerdictTally, outcomes: Counter[str]) -> Iterator[str]:
    """Yield what all lines come to."""
    verdicts = f"{tally.accepted:,} accepted, {tally.refused:,} refused, {_format_count(tally.warnings, 'warning')}"
    yield style_text(f"{_format_count(tally.lines, 'line')}: {verdicts}\n", form, bold=True)
    yield style_text(f"{_format_count(outcomes.total(), 'episode')}: {_format_outcomes(outcomes)}\n", form, bold=True)
    if tally.stray:
        yield style_text(f"{_format_count(tally.stray, 'line')} of no known episode\n", form, bold=True)
    if tally.broken:
        yield format_remark(form, "rules broken", _format_broken_rules(tally.broken), indent="")


def _group_by_campaign(summaries: Iterable[JudgeSummary]) -> Iterator[tuple[str | None, list[JudgeSummary]]]:
    grouped: dict[str | None, list[JudgeSummary]] = defaultdict(list)
    for each in summaries:
        grouped[each.campaign_id].append(each)
    for campaign in sorted(grouped, key=lambda name: name or ""):
        yield campaign, grouped[campaign]


def _episode_rows(form: TableLayout, episode: JudgeSummary) -> Iterator[str]:
    numbers = (f"{number:,}" for number in (episode.packets, episode.refusals, episode.warnings))
    text = _format_row(form, episode.correlation_id, episode.outcome, episode.state, *numbers)
    yield style_text(text, form, fg=COLOURS[episode.outcome])
    if episode.broken:
        yield format_remark(form, "rules broken", _format_broken_rules(episode.broken))
    for owed in episode.obligations:
        yield format_remark(form, "open", describe_obligation(owed))


def _format_row(form: TableLayout, name: str, outcome: str, state: str, *numbers: str) -> str:
    width = max(form.id, len(HEADINGS[0]))
    cells = (shorten(printable(name), width).ljust(width), outcome.ljust(OUTCOME), state.ljust(STATE))
    return " ".join([*cells, *(number.rjust(COUNT) for number in numbers)]) + "\n"


def _format_outcomes(outcomes: Counter[str]) -> str:
    return ", ".join(f"{outcomes[outcome]:,} {outcome}" for outcome in Outcome)


def _format_count(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _format_broken_rules(broken: dict[str, int]) -> str:
    return join_words(rule if count == 1 else f"{rule} ({count:,} times)" for rule, count in sorted(broken.items()))
