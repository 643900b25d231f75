"""Episodes as they are printed: a table of all, one row each; and the page of one, with its facts, its timeline and its head.

Rule 1: in the table, numbers are always whole; on a narrow terminal names are folded, and then whole columns are left out.
Rule 2: on the page, no line is wider than the terminal. A result that must be read whole, such as the reason of a refusal, goes on
    beneath itself; everything else is cut with an ellipsis. Where there is no terminal, nothing is cut.
Rule 3: the lines of the page are printed as they come; an episode of a million steps needs no memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from proctor.cli.output import Output, printable
from proctor.cli.terminal import OutputFormat, clip, format_duration, format_time, pad, wrap_words
from proctor.ledger.reader import EpisodeSummary, Ledger
from proctor.models.descriptions import describe_value, format_count, format_number
from proctor.models.events import SessionOpened
from proctor.narration.events import EpisodeCounts, Narrator, ResultTone, TimelineEntry, timeline_entries

OPEN_REASON: Final = ""
"""The reason of an episode that is not over."""


def describe_ending(episode: EpisodeSummary) -> str:
    """Return how an episode ended, in one word."""
    if episode.reason == "lost":
        return "lost"
    if episode.terminated or episode.truncated:
        return "terminated" if episode.terminated else "truncated"
    return episode.reason or ("open" if episode.reason == OPEN_REASON else "left")


HEADINGS: Final = ("episode", "environment", "began", "took", "steps", "reward", "end", "judged")
NAMES: Final = frozenset({"episode", "environment"})
RIGHT_ALIGNED: Final = frozenset({"took", "steps", "reward"})
OPTIONAL_COLUMNS: Final = ("took", "began", "judged")
"""What is left out where a terminal is too narrow, in this order."""
NARROWEST_NAME: Final = 12
PAGE_WIDTH: Final = 4096
"""As good as no limit, where there is no terminal."""
CELL_STYLES: Final[Mapping[str, str]] = {
    "open": "yellow",
    "left": "yellow",
    "lost": "bold red",
    "conforming": "green",
    "violated": "red",
}


def print_episodes(output: Output, episodes: Sequence[EpisodeSummary]) -> None:
    """Print the table, and a line with the totals."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PAGE_WIDTH
    rows = [_episode_cells(each) for each in episodes]
    left_out = 0
    table = _make_table(rows, HEADINGS)
    while left_out < len(OPTIONAL_COLUMNS) and console.measure(table).minimum > console.width:
        left_out += 1
        table = _make_table(rows, [name for name in HEADINGS if name not in OPTIONAL_COLUMNS[:left_out]])
    still, steps = sum(each.reason == OPEN_REASON for each in episodes), sum(each.steps for each in episodes)
    totals = f"{format_count(len(episodes), 'episode')}, {still} open, {format_count(steps, 'step')}"
    with console.capture() as captured:
        console.print(table, Text(totals, "dim"), sep="\n")
    output.print("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def _make_table(rows: Sequence[Mapping[str, str]], headings: Sequence[str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in headings:
        table.add_column(
            name,
            justify="right" if name in RIGHT_ALIGNED else "left",
            no_wrap=name not in NAMES,
            overflow="fold",
            min_width=NARROWEST_NAME if name in NAMES else None,
        )
    for row in rows:
        table.add_row(*(Text(printable(row[name]), CELL_STYLES.get(row[name], "")) for name in headings))
    return table


def _episode_cells(episode: EpisodeSummary) -> dict[str, str]:
    batch = "" if episode.num_envs is None else f" x{episode.num_envs}"
    return {
        "episode": episode.chain,
        "environment": f"{episode.environment}{batch}",
        "began": format_time(episode.opened_at).removesuffix(" UTC"),
        "took": "" if episode.closed_at is None else format_duration(episode.closed_at - episode.opened_at),
        "steps": f"{episode.steps:,}",
        "reward": "" if episode.total_reward is None else format_number(episode.total_reward),
        "end": describe_ending(episode),
        "judged": episode.outcome or ("open" if episode.governed else "free"),
    }


ROWS_READ_AHEAD: Final = 200
"""Rows that are read to know who takes part."""
TIME: Final = 10
STEP: Final = 9
WHO: Final = (7, 24)
WHAT: Final = (8, 44)
GAP: Final = "  "
LABEL: Final = 11
NARROWEST: Final = 60
PRINCIPAL_COLOURS: Final = {"control": "cyan", "agent": "magenta", "operator": "yellow", "system": "blue"}
TONE_STYLES: Final[Mapping[ResultTone, dict[str, Any]]] = {
    ResultTone.PLAIN: {},
    ResultTone.GOOD: {"fg": "green"},
    ResultTone.BAD: {"fg": "red", "bold": True},
    ResultTone.ENDED: {"fg": "green", "bold": True},
    ResultTone.NOTED: {"fg": "yellow"},
}
ENDING_TONES: Final = {"lost": ResultTone.BAD, "open": ResultTone.NOTED}


def format_episode(
    form: OutputFormat, record: Ledger, episode: EpisodeSummary, wanted: range | None, *, folded: bool, verify: str
) -> Iterator[str]:
    """Yield the page of an episode, a line or a few at a time; `verify` is the command that proves it."""
    narrator = Narrator()
    # Who takes part is known after a few rows; the columns are set before the first is printed.
    for row in islice(record.rows(episode.chain), ROWS_READ_AHEAD):
        narrator.hear(row.event)
    page = EpisodePage(form, max((len(f"agent {name}") for name in narrator.agents.values()), default=0))
    yield from page.header(episode, narrator.opened, narrator.seed)
    narrator = Narrator()
    for entry in timeline_entries(record.rows(episode.chain), narrator, folded=folded, wanted=wanted):
        yield page.entry(entry)
    yield from page.footer(episode, narrator.count, verify)


class EpisodePage:
    """Sets the lines of an episode's page."""

    def __init__(self, form: OutputFormat, who: int) -> None:
        self._form = form
        width = max(form.width, NARROWEST)
        self._who = min(max(who, WHO[0]), WHO[1], width // 5)
        rest = width - TIME - STEP - self._who - 4 * len(GAP)
        self._what = min(max(rest * 2 // 5, WHAT[0]), WHAT[1])
        self._result = rest - self._what

    def header(self, episode: EpisodeSummary, opened: SessionOpened | None, seed: str) -> Iterator[str]:
        """Yield the facts of the episode, and the headings of the columns."""
        title = printable(f"Episode {episode.chain}")
        name = "" if opened is None else f"{GAP}{opened.environment}"
        yield self._form.style(title, bold=True) + clip(name, self._form.width - len(title)) + "\n"
        for label, text in _episode_facts(episode, opened, seed):
            yield self._fact(label, text)
        cells = ("time".rjust(TIME), "step".rjust(STEP), "who".ljust(self._who), "what".ljust(self._what), "result")
        yield "\n" + self._form.style(GAP.join(cells), bold=True) + "\n"

    def entry(self, entry: TimelineEntry) -> str:
        """Return the lines of one entry."""
        style = self._form.style
        first, *more = self._results(entry)
        cells = (
            style(f"+{format_duration(entry.at)}".rjust(TIME), dim=True),
            clip(entry.step, STEP).rjust(STEP),
            style(pad(entry.who, self._who), fg=PRINCIPAL_COLOURS.get(entry.who.partition(" ")[0])),
            pad(entry.what, self._what) if self._form.terminal else printable(entry.what).ljust(self._what),
            first,
        )
        indent = " " * (TIME + STEP + self._who + self._what + 4 * len(GAP))
        return "".join(f"{line.rstrip()}\n" for line in (GAP.join(cells), *(indent + each for each in more)))

    def _results(self, entry: TimelineEntry) -> list[str]:
        style = TONE_STYLES[entry.tone]
        if not self._form.terminal:
            return [GAP.join(filter(None, map(printable, (entry.result, entry.remark))))]
        if entry.whole:
            return [self._form.style(line, **style) for line in wrap_words(entry.result, self._result)] or [""]
        result = clip(entry.result, self._result)
        room = self._result - cell_len(result) - len(GAP)
        remark = clip(entry.remark, room) if room > 3 else ""
        return [GAP.join(filter(None, (self._form.style(result, **style), self._form.style(remark, dim=True))))]

    def footer(self, episode: EpisodeSummary, count: EpisodeCounts, verify: str) -> Iterator[str]:
        """Yield what the episode came to, its head, and what to do with it."""
        end = describe_ending(episode)
        style = TONE_STYLES[ENDING_TONES[end]] if end in ENDING_TONES else {"bold": True}
        yield f"\n{self._form.style(printable(end), **style)}: {printable(_describe_totals(episode, count))}\n"
        if count.rules:
            broken = ", ".join(f"{rule} x{times}" if times > 1 else rule for rule, times in sorted(count.rules.items()))
            yield self._fact("refused by", broken)
        yield f"{'head'.ljust(LABEL)}{self._form.style(printable(episode.head), bold=True)}\n"
        yield self._fact("verify", verify)

    def _fact(self, label: str, text: str) -> str:
        shown = clip(text, self._form.width - LABEL) if self._form.terminal else printable(text)
        return self._form.style(label.ljust(LABEL), dim=True) + shown + "\n"


def _episode_facts(episode: EpisodeSummary, opened: SessionOpened | None, seed: str) -> Iterator[tuple[str, str]]:
    took = None if episode.closed_at is None else episode.closed_at - episode.opened_at
    end = "still open" if took is None else f"{format_duration(took)} long"
    yield "began", f"{format_time(episode.opened_at)}, {end}"
    yield "seed", f"{seed or 'unknown'}{GAP}episode_id {episode.episode_id}"
    if opened is None:
        return
    batch = "" if opened.num_envs is None else f"{GAP}{opened.num_envs} environments, autoreset {opened.autoreset_mode}"
    yield "served", f"{opened.target} (version {opened.environment_version}){batch}"
    if opened.settings:
        yield "settings", describe_value(opened.settings)
    if opened.transforms:
        yield "transforms", describe_value(opened.transforms)
    governed = "no: agents are free"
    if opened.policy is not None:
        name = opened.policy.get("name")
        governed = f"by {name if isinstance(name, str) and name else describe_value(dict(opened.policy))}"
    yield "governed", governed
    yield "sandbox", f"{opened.tier}, in {_PLACES[opened.place]}"
    yield "with", f"Proctor {opened.server}, Python {opened.python}, Gymnasium {opened.gymnasium}, NumPy {opened.numpy}"
    yield "file", f"{episode.file.name}{GAP}run {episode.boot}"


_PLACES: Final = {"inline": "the server's loop", "thread": "a thread", "process": "a process of its own"}


def _describe_totals(episode: EpisodeSummary, count: EpisodeCounts) -> str:
    words = [format_count(episode.steps, "step")]
    if episode.total_reward is not None:
        words.append(f"reward {format_number(episode.total_reward)}")
    words.append(format_count(episode.rows, "row"))
    if count.packets:
        judged = f"{count.refused} refused, {format_count(count.warnings, 'warning')}"
        words.append(f"{format_count(count.packets, 'packet')} ({judged})")
    if count.failures:
        words.append(f"{format_count(count.failures, 'request')} refused or failed")
    if episode.outcome is not None:
        words.append(f"judged {episode.outcome}")
    return ", ".join(words)
