"""What people see on a terminal: text in columns, times and durations, and progress bars on standard error.

Rule 1: nothing that is not printable reaches a terminal (`output.printable`). A width is counted in cells: some signs take two.
Rule 2: rich draws tables. Rows that are printed while they come are set here, in columns whose widths are known before.
Rule 3: a bar is shown only if standard error is a terminal and the command was not asked for quiet. When the work is over, it is gone.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import typer
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

WIDTH: Final = 140
"""How wide a page is where no terminal says."""


class OutputFormat(NamedTuple):
    """What is printed on: how wide it is, whether that is a limit, and whether it shows colours."""

    width: int
    terminal: bool
    coloured: bool

    def style(self, text: str, **style: Any) -> str:
        """Return `text` in a style, where styles are shown."""
        return typer.style(text, **style) if self.coloured and style and text.strip() else text

    def wrap(self, text: str, indent: str = "") -> list[str]:
        """Return `text` in lines that fit a terminal behind `indent`; elsewhere it stays one line."""
        room = max(self.width - len(indent), NARROWEST)
        return [indent + line for line in (wrap_words(text, room) if self.terminal else [printable(text)])]


NARROWEST: Final = 20
"""Cells that a wrapped text has at least."""


def stdout_format() -> OutputFormat:
    """Return what standard output can show."""
    console = Console()
    terminal = console.is_terminal
    return OutputFormat(console.width if terminal else WIDTH, terminal, terminal and not console.no_color)


def clip(text: str, width: int) -> str:
    """Return `text` in at most `width` cells, with an ellipsis where it was cut."""
    shown = Text(printable(text))
    shown.truncate(width, overflow="ellipsis" if width > 0 else "crop")
    return shown.plain


def pad(text: str, width: int) -> str:
    """Return `text` in exactly `width` cells."""
    shown = Text(clip(text, width))
    shown.truncate(width, pad=True)
    return shown.plain


def shorten_middle(text: str, width: int) -> str:
    """Return `text` in at most `width` signs, without its middle: names differ at their ends."""
    text = printable(text)
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def format_cells(cells: Iterable[str], widths: Iterable[int]) -> list[str]:
    """Return cells as wide as their columns; a name that is too long loses its middle. Numbers, in columns of negative width, are whole."""
    return [
        shorten_middle(cell, width).ljust(width) if width >= 0 else printable(cell).rjust(-width)
        for cell, width in zip(cells, widths, strict=True)
    ]


def wrap_words(text: str, width: int) -> list[str]:
    """Return `text` in lines of at most `width` cells, broken between words where that is possible."""
    return [line.plain.rstrip() for line in Text(printable(text)).wrap(_WRAPPING, width)]


_WRAPPING: Final = Console(width=WIDTH, color_system=None)


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
    console = Console(stderr=True)
    counts: tuple[ProgressColumn, ...] = (MofNCompleteColumn(), TextColumn(unit))
    if in_bytes:
        counts = (DownloadColumn(), TransferSpeedColumn())
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), *counts, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as progress:
        yield ProgressBar(progress, progress.add_task(what, total=total))
