"""Episodes as they are printed: a table of all, one row each; and the page of one, with its facts, its timeline and its head.

Rule 1: in the table, what adapts to the terminal are the names, which are shortened in the middle, and the number of columns.
    Numbers are always whole.
Rule 2: on the page, no line is wider than the terminal. A result that must be read whole, such as the reason of a refusal, goes on
    beneath itself; everything else is cut with an ellipsis. Where there is no terminal, nothing is cut.
Rule 3: lines are printed as they come; an episode of a million steps needs no memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from rich.cells import cell_len

from proctor.cli.narration.timeline import EpisodeCounts, ResultTone, TimelineEntry
from proctor.cli.terminal import (
    OutputFormat,
    clip,
    format_count,
    format_duration,
    format_time,
    pad,
    shorten_middle,
    wrap_words,
)
from proctor.cli.verdicts.verdict_json import encode_line
from proctor.ledger.reader import EpisodeSummary
from proctor.models.events import SessionOpened
from proctor.models.value_text import describe_value, format_number

TIME: Final = 10
STEP: Final = 9
WHO: Final = (7, 24)
WHAT: Final = (8, 44)
GAP: Final = "  "
LABEL: Final = 11
NARROWEST: Final = 60

PRINCIPAL_COLOURS: Final[Mapping[str, str]] = {
    "control": "cyan",
    "agent": "magenta",
    "operator": "yellow",
    "system": "blue",
}
TONE_STYLES: Final[Mapping[ResultTone, dict[str, Any]]] = {
    ResultTone.PLAIN: {},
    ResultTone.GOOD: {"fg": "green"},
    ResultTone.BAD: {"fg": "red", "bold": True},
    ResultTone.ENDED: {"fg": "green", "bold": True},
    ResultTone.NOTED: {"fg": "yellow"},
}
ENDING_STYLES: Final[Mapping[str, dict[str, Any]]] = {
    "lost": TONE_STYLES[ResultTone.BAD],
    "open": TONE_STYLES[ResultTone.NOTED],
}


def describe_ending(episode: EpisodeSummary) -> str:
    """Return how an episode ended, in one word."""
    if episode.reason == "lost":
        return "lost"
    if episode.terminated or episode.truncated:
        return "terminated" if episode.terminated else "truncated"
    return episode.reason or ("open" if episode.reason == "" else "left")


class EpisodePage:
    """Sets lines on a sheet."""

    def __init__(self, sheet: OutputFormat, who: int) -> None:
        self._sheet = sheet
        width = max(sheet.width, NARROWEST)
        self._who = min(max(who, WHO[0]), WHO[1], width // 5)
        rest = width - TIME - STEP - self._who - 4 * len(GAP)
        self._what = min(max(rest * 2 // 5, WHAT[0]), WHAT[1])
        self._result = rest - self._what

    def header(self, episode: EpisodeSummary, opened: SessionOpened | None, seed: str) -> Iterator[str]:
        """Yield the facts of the episode, and the headings of the columns."""
        title = _printable(f"Episode {episode.chain}")
        name = "" if opened is None else f"{GAP}{opened.environment}"
        yield self._sheet.style(title, bold=True) + clip(name, self._sheet.width - len(title)) + "\n"
        for label, text in _episode_facts(episode, opened, seed):
            yield self._fact(label, text)
        yield "\n"
        cells = ("time".rjust(TIME), "step".rjust(STEP), "who".ljust(self._who), "what".ljust(self._what), "result")
        yield self._sheet.style(GAP.join(cells), bold=True) + "\n"

    def entry(self, entry: TimelineEntry) -> str:
        """Return the lines of one entry."""
        first, *more = self._results(entry)
        who = pad(entry.who, self._who)
        what = pad(entry.what, self._what) if self._sheet.terminal else pad_uncut(entry.what, self._what)
        cells = (
            self._sheet.style(f"+{format_duration(entry.at)}".rjust(TIME), dim=True),
            clip(entry.step, STEP).rjust(STEP),
            self._sheet.style(who, fg=PRINCIPAL_COLOURS.get(entry.who.partition(" ")[0])),
            what,
            first,
        )
        indent = " " * (TIME + STEP + self._who + self._what + 4 * len(GAP))
        return "".join(f"{line.rstrip()}\n" for line in (GAP.join(cells), *(indent + each for each in more)))

    def _results(self, entry: TimelineEntry) -> list[str]:
        """Return the last column, with its colours, in one line or in several."""
        style = TONE_STYLES[entry.tone]
        if not self._sheet.terminal:
            return [GAP.join(filter(None, map(_printable, (entry.result, entry.remark))))]
        if entry.whole:
            return [self._sheet.style(line, **style) for line in wrap_words(entry.result, self._result)]
        result = clip(entry.result, self._result)
        room = self._result - cell_len(result) - len(GAP)
        remark = clip(entry.remark, room) if room > 3 else ""
        gap = GAP if result and remark else ""
        return [self._sheet.style(result, **style) + gap + self._sheet.style(remark, dim=True)]

    def footer(self, episode: EpisodeSummary, count: EpisodeCounts, command: str) -> Iterator[str]:
        """Yield what the episode came to, its head, and what to do with it."""
        yield "\n"
        end = describe_ending(episode)
        words = self._sheet.style(_printable(end), **ENDING_STYLES.get(end, {"bold": True}))
        yield f"{words}: {_printable(_describe_totals(episode, count))}\n"
        if count.rules:
            broken = ", ".join(f"{rule} x{times}" if times > 1 else rule for rule, times in sorted(count.rules.items()))
            yield self._fact("refused by", broken)
        yield f"{'head'.ljust(LABEL)}{self._sheet.style(_printable(episode.head), bold=True)}\n"
        yield self._fact("verify", command)

    def _fact(self, label: str, text: str) -> str:
        room = self._sheet.width - LABEL
        shown = clip(text, room) if self._sheet.terminal else _printable(text)
        return self._sheet.style(label.ljust(LABEL), dim=True) + shown + "\n"


def pad_uncut(text: str, width: int) -> str:
    """Return `text` in at least `width` cells, and never cut."""
    return _printable(text).ljust(width)


def _printable(text: str) -> str:
    # Wide enough for any text: only what cannot be printed is changed.
    return clip(text, 1 << 30)


def _episode_facts(episode: EpisodeSummary, opened: SessionOpened | None, seed: str) -> Iterator[tuple[str, str]]:
    end = (
        "still open" if episode.closed_at is None else f"{format_duration(episode.closed_at - episode.opened_at)} long"
    )
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
    yield "governed", "no: agents are free" if opened.policy is None else f"by {_describe_policy(opened.policy)}"
    yield "sandbox", f"{opened.tier}, in {_PLACES[opened.place]}"
    yield "with", f"Proctor {opened.server}, Python {opened.python}, Gymnasium {opened.gymnasium}, NumPy {opened.numpy}"
    yield "file", f"{episode.file.name}{GAP}run {episode.boot}"


_PLACES: Final = {"inline": "the server's loop", "thread": "a thread", "process": "a process of its own"}


def _describe_policy(policy: Mapping[str, Any]) -> str:
    name = policy.get("name")
    return str(name) if isinstance(name, str) and name else describe_value(dict(policy))


def _describe_totals(episode: EpisodeSummary, count: EpisodeCounts) -> str:
    words = [format_count(episode.steps, "step"), format_count(episode.rows, "row")]
    if episode.total_reward is not None:
        words.insert(1, f"reward {format_number(episode.total_reward)}")
    if count.packets:
        words.append(
            f"{format_count(count.packets, 'packet')} ({count.refused} refused, {format_count(count.warnings, 'warning')})"
        )
    if count.failures:
        words.append(f"{format_count(count.failures, 'request')} refused or failed")
    if episode.outcome is not None:
        words.append(f"judged {episode.outcome}")
    return ", ".join(words)


HEADINGS: Final = ("episode", "environment", "began", "took", "steps", "reward", "end", "judged")
RIGHT_ALIGNED: Final = frozenset({"took", "steps", "reward"})
SHORTENED_COLUMNS: Final = ("environment", "episode")
"""What is shortened where the terminal is narrow, in this order."""
OPTIONAL_COLUMNS: Final = ("took", "began", "judged")
"""What is left out where that is not enough."""
NARROWEST_COLUMN: Final = 12
OPEN_REASON: Final = ""
"""The reason of an episode that is not over."""
COLUMN_GAP: Final = "  "
CELL_COLOURS: Final[Mapping[str, dict[str, Any]]] = {
    "open": {"fg": "yellow"},
    "left": {"fg": "yellow"},
    "lost": {"fg": "red", "bold": True},
    "conforming": {"fg": "green"},
    "violated": {"fg": "red"},
}


def select_episodes(
    episodes: Sequence[EpisodeSummary], *, environment: str | None, is_open: bool, governed: bool
) -> list[EpisodeSummary]:
    """Return the episodes that these filters let through; a part of an environment's name is enough."""
    part = (environment or "").lower()
    return [
        each
        for each in episodes
        if part in each.environment.lower()
        and (each.reason == OPEN_REASON or not is_open)
        and (each.governed or not governed)
    ]


def episodes_as_json(episodes: Sequence[EpisodeSummary]) -> Iterator[bytes]:
    """Yield one object an episode, each with its line's end."""
    for each in episodes:
        yield encode_line({**asdict(each), "end": describe_ending(each), "file": str(each.file)})


def episodes_as_text(sheet: OutputFormat, episodes: Sequence[EpisodeSummary]) -> Iterator[str]:
    """Yield the table, a line at a time, and a line with the totals."""
    rows = [_episode_cells(each) for each in episodes]
    widths = _fit_widths(sheet, rows)
    yield sheet.style(_format_line(widths, dict(zip(HEADINGS, HEADINGS, strict=True))), bold=True) + "\n"
    for row in rows:
        yield _format_line(widths, row, sheet) + "\n"
    yield sheet.style(f"{_describe_list_totals(episodes)}\n", dim=True)


def _episode_cells(episode: EpisodeSummary) -> dict[str, str]:
    took = "" if episode.closed_at is None else format_duration(episode.closed_at - episode.opened_at)
    batch = "" if episode.num_envs is None else f" x{episode.num_envs}"
    return {
        "episode": episode.chain,
        "environment": f"{episode.environment}{batch}",
        "began": format_time(episode.opened_at).removesuffix(" UTC"),
        "took": took,
        "steps": f"{episode.steps:,}",
        "reward": "" if episode.total_reward is None else format_number(episode.total_reward),
        "end": describe_ending(episode),
        "judged": episode.outcome or ("open" if episode.governed else "free"),
    }


def _fit_widths(sheet: OutputFormat, rows: Sequence[Mapping[str, str]]) -> dict[str, int]:
    """Return how wide each column is; on a terminal names give way, and then whole columns, until the table fits."""
    widths = {name: max([len(name), *(len(row[name]) for row in rows)]) for name in HEADINGS}
    if not sheet.terminal:
        return widths
    spare = sum(max(widths[name] - NARROWEST_COLUMN, 0) for name in SHORTENED_COLUMNS)
    for name in OPTIONAL_COLUMNS:
        if _excess_width(widths, sheet) > spare:
            del widths[name]
    for name in SHORTENED_COLUMNS:
        widths[name] -= min(max(_excess_width(widths, sheet), 0), max(widths[name] - NARROWEST_COLUMN, 0))
    return widths


def _excess_width(widths: Mapping[str, int], sheet: OutputFormat) -> int:
    return sum(widths.values()) + len(COLUMN_GAP) * (len(widths) - 1) - sheet.width


def _format_line(widths: Mapping[str, int], row: Mapping[str, str], sheet: OutputFormat | None = None) -> str:
    cells = []
    for name, width in widths.items():
        text = shorten_middle(row[name], width)
        cell = text.rjust(width) if name in RIGHT_ALIGNED else pad(text, width)
        cells.append(cell if sheet is None else sheet.style(cell, **CELL_COLOURS.get(row[name], {})))
    return COLUMN_GAP.join(cells).rstrip()


def _describe_list_totals(episodes: Sequence[EpisodeSummary]) -> str:
    still = sum(each.reason == OPEN_REASON for each in episodes)
    steps = sum(each.steps for each in episodes)
    return f"{format_count(len(episodes), 'episode')}, {still} open, {format_count(steps, 'step')}"
