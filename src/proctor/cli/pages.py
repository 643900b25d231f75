"""What `proctor judge` prints: JSON, or a table.

Rule 1: a page prints what comes when it comes; nothing is collected but the counts.
Rule 2: verdicts on a stream, and rows on a terminal, go out at once; those on a file in blocks.
"""

import shutil
import sys
from collections import Counter
from typing import Final, Protocol

from msgspec import UNSET, UnsetType
from rich.console import Console

from proctor.cli import episode_table, verdict_table
from proctor.cli.episode_table import Tally
from proctor.cli.lines import Line, Source
from proctor.cli.output import Output, plain
from proctor.cli.verdict_json import answer, encoded
from proctor.cli.verdict_table import Layout, layout, styled
from proctor.episode.judge import Judge
from proctor.episode.verdicts import Verdict

# How wide a table is where nobody says.
WIDTH: Final = 140


class Page(Protocol):
    """How verdicts are printed."""

    def begin(self, output: Output, *, several: bool, silent: bool) -> None:
        """Print what stands first; `silent` says that no line will come."""

    def turn(self, source: Source) -> None:
        """Go on with the lines of `source`."""

    def add(self, line: Line, verdict: Verdict) -> None:
        """Print one line's verdict."""

    def end(self, judging: Judge, tally: Tally, *, summary: bool) -> None:
        """Print what stands last."""


class JsonPage:
    """One object a line."""

    _output: Output

    def __init__(self, *, explain: bool) -> None:
        self._explain = explain
        self._several = False
        self._file: str | UnsetType = UNSET

    def begin(self, output: Output, *, several: bool, silent: bool) -> None:
        """Print nothing yet."""
        self._output = output
        self._several = several

    def turn(self, source: Source) -> None:
        """Name the file on every line, if there are several."""
        self._output.hurry(source.size is None)
        if self._several:
            self._file = _name(source)

    def add(self, line: Line, verdict: Verdict) -> None:
        """Print the object of one line."""
        self._output.write(encoded(answer(line, verdict, file=self._file, explain=self._explain)))

    def end(self, judging: Judge, tally: Tally, *, summary: bool) -> None:
        """Print the summary, if it was asked for."""
        if summary:
            for text in episode_table.as_json(judging.summaries(), tally):
                self._output.write(text)


class TextPage:
    """One row a line, with remarks beneath it."""

    _output: Output
    _form: Layout
    _encoding: str

    def __init__(self, *, explain: bool) -> None:
        self._explain = explain
        self._several = False
        self._silent = False

    def begin(self, output: Output, *, several: bool, silent: bool) -> None:
        """Print the heading."""
        console = Console()
        terminal = console.is_terminal
        width = shutil.get_terminal_size((WIDTH, 24)).columns
        self._form = layout(width, terminal=terminal, coloured=terminal and not console.no_color)
        self._output = output
        self._several = several
        self._silent = silent
        self._encoding = sys.stdout.encoding or "utf-8"
        if not silent:
            self._print(verdict_table.heading(self._form))

    def turn(self, source: Source) -> None:
        """Print the name of the file, if there are several."""
        self._output.hurry(source.size is None or sys.stdout.isatty())
        if self._several and not self._silent:
            self._print(styled(f"{plain(_name(source))}\n", self._form, bold=True))

    def add(self, line: Line, verdict: Verdict) -> None:
        """Print the row of one line."""
        self._print(verdict_table.row(self._form, line, verdict, explain=self._explain))

    def end(self, judging: Judge, tally: Tally, *, summary: bool) -> None:
        """Print the summary, or the totals alone."""
        self._output.hurry(False)
        if summary:
            parts = episode_table.as_text(self._form, judging.summaries(), tally)
        else:
            outcomes = Counter[str](each.outcome for each in judging.summaries())
            parts = episode_table.totals(self._form, tally, outcomes)
        for text in parts:
            self._print(text)

    def _print(self, text: str) -> None:
        self._output.write(text.encode(self._encoding, "replace"))


def _name(source: Source) -> str:
    """Return the name of a source as text, whatever its bytes are."""
    return source.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
