"""What became of each episode: rows by campaign, and the totals.

Rule 1: rows are printed one by one, as in `verdict_table.py`: a hundred thousand episodes are no burden.
Rule 2: an episode that has no campaign stands before those that have one.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from proctor.cli.output import plain
from proctor.cli.verdict_json import encoded
from proctor.cli.verdict_table import Layout, remark, short, styled
from proctor.episode.cases import Summary
from proctor.episode.verdict_words import listed, obligation_words
from proctor.episode.verdicts import Outcome, Verdict

STATE: Final = 13
OUTCOME: Final = 10
COUNT: Final = 8
COLOURS: Final = {Outcome.CONFORMING: "green", Outcome.VIOLATED: "red", Outcome.OPEN: "yellow"}
HEADINGS: Final = ("episode", "outcome", "state", "packets", "refused", "warnings")


class Tally(Struct):
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


class Totals(Struct, frozen=True):
    """The last object of a summary in JSON."""

    totals: Tally
    episodes: dict[str, int]


def as_text(form: Layout, summaries: Iterable[Summary], tally: Tally) -> Iterator[str]:
    """Yield the summary, a line or a few at a time."""
    outcomes: Counter[str] = Counter()
    yield styled(_row(form, *HEADINGS), form, bold=True)
    for campaign, episodes in _by_campaign(summaries):
        own = Counter[str](episode.outcome for episode in episodes)
        outcomes += own
        if campaign is not None:
            yield styled(f"{plain(campaign)}: {_counts(own)}\n", form, bold=True)
        for episode in episodes:
            yield from _rows(form, episode)
    yield from totals(form, tally, outcomes)


def as_json(summaries: Iterable[Summary], tally: Tally) -> Iterator[bytes]:
    """Yield one object for each episode, and the totals."""
    outcomes: Counter[str] = Counter()
    for _, episodes in _by_campaign(summaries):
        outcomes.update(episode.outcome for episode in episodes)
        yield from map(encoded, episodes)
    yield encoded(Totals(tally, {outcome: outcomes[outcome] for outcome in Outcome}))


def totals(form: Layout, tally: Tally, outcomes: Counter[str]) -> Iterator[str]:
    """Yield what all lines come to."""
    verdicts = f"{tally.accepted:,} accepted, {tally.refused:,} refused, {_many(tally.warnings, 'warning')}"
    yield styled(f"{_many(tally.lines, 'line')}: {verdicts}\n", form, bold=True)
    yield styled(f"{_many(outcomes.total(), 'episode')}: {_counts(outcomes)}\n", form, bold=True)
    if tally.stray:
        yield styled(f"{_many(tally.stray, 'line')} of no known episode\n", form, bold=True)
    if tally.broken:
        yield remark(form, "rules broken", _times(tally.broken), indent="")


def _by_campaign(summaries: Iterable[Summary]) -> Iterator[tuple[str | None, list[Summary]]]:
    grouped: dict[str | None, list[Summary]] = defaultdict(list)
    for each in summaries:
        grouped[each.campaign_id].append(each)
    for campaign in sorted(grouped, key=lambda name: name or ""):
        yield campaign, grouped[campaign]


def _rows(form: Layout, episode: Summary) -> Iterator[str]:
    numbers = (f"{number:,}" for number in (episode.packets, episode.refusals, episode.warnings))
    text = _row(form, episode.correlation_id, episode.outcome, episode.state, *numbers)
    yield styled(text, form, fg=COLOURS[episode.outcome])
    if episode.broken:
        yield remark(form, "rules broken", _times(episode.broken))
    for owed in episode.obligations:
        yield remark(form, "open", obligation_words(owed))


def _row(form: Layout, name: str, outcome: str, state: str, *numbers: str) -> str:
    width = max(form.id, len(HEADINGS[0]))
    cells = (short(plain(name), width).ljust(width), outcome.ljust(OUTCOME), state.ljust(STATE))
    return " ".join([*cells, *(number.rjust(COUNT) for number in numbers)]) + "\n"


def _counts(outcomes: Counter[str]) -> str:
    return ", ".join(f"{outcomes[outcome]:,} {outcome}" for outcome in Outcome)


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _times(broken: dict[str, int]) -> str:
    return listed(rule if count == 1 else f"{rule} ({count:,} times)" for rule, count in sorted(broken.items()))
