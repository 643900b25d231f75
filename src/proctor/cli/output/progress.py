"""Bars on standard error that say how far long work is.

Rule 1: a bar is there only where somebody looks: standard error is a terminal, and the command was not asked for quiet.
Rule 2: when the work is over, the bar is gone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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
