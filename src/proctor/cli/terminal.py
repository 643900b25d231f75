"""What people see on a terminal: lists of things with details, text in columns, and progress bars on standard error.

Rule 1: nothing that is not printable reaches a terminal (`output.printable`). A width is counted in cells: some signs take two.
Rule 2: in a list, what stands in a column is never shortened: people copy it. What stands beneath is wrapped to the terminal.
Rule 3: every line of words that a peer chose freely begins with QUOTE, and no other line does: whatever they say, they are
    not taken for words of this program.
Rule 4: a bar is shown only if standard error is a terminal and the command was not asked for quiet. When the work is over, it is gone.
"""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import typer
from rich.cells import cell_len, chop_cells, set_cell_size
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from proctor.cli.output import printable

INDENT: Final = "    "
QUOTE: Final = "> "
NARROWEST: Final = 30
MOST_LINES: Final = 20
ELLIPSIS: Final = "…"
WIDTH: Final = 140
"""How wide a page is where no terminal says."""


@dataclass(frozen=True, slots=True)
class ListDetail:
    """A paragraph beneath an entry, behind `word` where that says what it is; `quoted` if a peer wrote it."""

    text: str
    word: str = ""
    style: str = ""
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class ListEntry:
    """One thing: its columns, and what is said of it."""

    cells: Sequence[str]
    details: Sequence[ListDetail] = ()
    style: str = "bold"


def list_lines(headings: Sequence[str], entries: Sequence[ListEntry], width: int | None) -> Iterable[Text]:
    """Yield the lines; `width` None is for a page on which nothing is wrapped."""
    rows = [headings, *(tuple(map(printable, entry.cells)) for entry in entries)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    yield Text(_format_list_row(headings, widths), style="dim")
    for entry, cells in zip(entries, rows[1:], strict=True):
        yield Text(_format_list_row(cells, widths), style=entry.style)
        word = max((len(printable(detail.word)) for detail in entry.details), default=0)
        for detail in entry.details:
            yield from _format_detail(detail, word, width)


def print_list(console: Console, headings: Sequence[str], entries: Sequence[ListEntry]) -> None:
    """Print the entries."""
    for line in list_lines(headings, entries, console.width if console.is_terminal else None):
        console.print(line, soft_wrap=True)


def _format_list_row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _format_detail(detail: ListDetail, word: int, width: int | None) -> Iterable[Text]:
    mark = QUOTE if detail.quoted else ""
    indent = INDENT + (f"{printable(detail.word).ljust(word)}  " if detail.word else "")
    first, rest = indent + mark, " " * len(indent) + mark
    parts = [printable(part.rstrip()) for part in detail.text.split("\n")]
    wrapped = parts if width is None else [line for part in parts for line in _wrap_line(part, width - len(first))]
    for number, line in enumerate(wrapped[:MOST_LINES]):
        yield Text(f"{rest if number else first}{line}".rstrip(), style=detail.style)
    if len(wrapped) > MOST_LINES:
        yield Text(f"{rest}... {len(wrapped) - MOST_LINES} more lines: --json has all of it", style="dim")


def _wrap_line(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, NARROWEST), break_on_hyphens=False) or [""]


class OutputFormat(NamedTuple):
    """What is printed on: how wide it is, whether that is a limit, and whether it shows colours."""

    width: int
    terminal: bool
    coloured: bool

    def style(self, text: str, **style: Any) -> str:
        """Return `text` in a style, where styles are shown."""
        return typer.style(text, **style) if self.coloured and style and text.strip() else text


def stdout_format() -> OutputFormat:
    """Return the sheet that standard output is."""
    console = Console()
    terminal = console.is_terminal
    return OutputFormat(console.width if terminal else WIDTH, terminal, terminal and not console.no_color)


def pad(text: str, width: int) -> str:
    """Return `text` in exactly `width` cells, with an ellipsis where it was cut."""
    return set_cell_size(clip(text, width), width)


def clip(text: str, width: int) -> str:
    """Return `text` in at most `width` cells."""
    text = printable(text)
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(width - 1, 0)).rstrip() + ELLIPSIS if width > 0 else ""


def shorten_middle(text: str, width: int) -> str:
    """Return `text` in at most `width` signs, without its middle: names differ at their ends."""
    text = printable(text)
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}{ELLIPSIS}{text[len(text) - (width - 1 - head) :]}"


def wrap_words(text: str, width: int) -> list[str]:
    """Return `text` in lines of at most `width` cells, broken between words where that is possible."""
    lines: list[str] = []
    line = ""
    for word in printable(text).split(" "):
        if line and cell_len(line) + 1 + cell_len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
        if cell_len(line) > width:
            *whole, line = chop_cells(line, width)
            lines += whole
    return [*lines, line]


def format_time(at: float) -> str:
    """Return a moment as people and programs read it."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def format_duration(seconds: float) -> str:
    """Return a length of time in a few signs: 0.004 s, 1m02.5s, 2h03m."""
    if seconds < 60:
        return f"{seconds:.3f} s"
    # Rounded before it is divided, so that there is no minute of 60 seconds.
    minutes, tenths = divmod(round(seconds * 10), 600)
    if minutes < 60:
        return f"{minutes}m{tenths / 10:04.1f}s"
    return f"{minutes // 60}h{minutes % 60:02}m"


def format_count(count: int, what: str) -> str:
    """Return a number of things in words."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


@dataclass(frozen=True, slots=True)
class ProgressBar:
    """One bar."""

    _progress: Progress
    _task: TaskID

    def update(self, done: int, total: int | None = None) -> None:
        """Show that so much is done, and of how much, if that is known by now."""
        self._progress.update(self._task, completed=done, total=total)

    def advance(self, more: int = 1) -> None:
        """Show that so much more is done."""
        self._progress.advance(self._task, more)


@contextmanager
def progress_bar(
    what: str, total: int | None = None, *, unit: str = "", in_bytes: bool = False, quiet: bool = False
) -> Iterator[ProgressBar]:
    """Yield one bar; without a `total` it says that something happens, until the total is told."""
    with _make_progress(unit, in_bytes, quiet) as progress:
        yield ProgressBar(progress, progress.add_task(what, total=total))


@contextmanager
def progress_bars(whats: list[str], total: int, *, quiet: bool = False) -> Iterator[dict[str, ProgressBar]]:
    """Yield a bar for each name, all with the same total."""
    with _make_progress("", in_bytes=False, quiet=quiet) as progress:
        yield {what: ProgressBar(progress, progress.add_task(what, total=total)) for what in whats}


def _make_progress(unit: str, in_bytes: bool, quiet: bool) -> Progress:
    console = Console(stderr=True)
    counts: list[ProgressColumn] = [MofNCompleteColumn(), TextColumn(unit)] if unit else [MofNCompleteColumn()]
    if in_bytes:
        counts = [DownloadColumn(), TransferSpeedColumn()]
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), *counts, TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)
