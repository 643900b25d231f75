"""Things with details, one under the other: a line of columns for each, and beneath it, indented, what there is to say.

Rule 1: what stands in a column is never shortened: people copy it. What stands beneath is wrapped to the terminal.
Rule 2: no text of a peer reaches the terminal before `plain` has seen it.
Rule 3: every line of words that a peer chose freely begins with QUOTE, and no other line does: whatever they say, they are
    not taken for words of this program.
"""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.text import Text

from proctor.cli.output import plain

INDENT: Final = "    "
QUOTE: Final = "> "
NARROWEST: Final = 30
MOST_LINES: Final = 20


@dataclass(frozen=True, slots=True)
class Detail:
    """A paragraph beneath an entry, behind `word` where that says what it is; `quoted` if a peer wrote it."""

    text: str
    word: str = ""
    style: str = ""
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing: its columns, and what is said of it."""

    cells: Sequence[str]
    details: Sequence[Detail] = ()
    style: str = "bold"


def lines(headings: Sequence[str], entries: Sequence[Entry], width: int | None) -> Iterable[Text]:
    """Yield the lines; `width` None is for a page on which nothing is wrapped."""
    rows = [headings, *(tuple(map(plain, entry.cells)) for entry in entries)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    yield Text(_row(headings, widths), style="dim")
    for entry, cells in zip(entries, rows[1:], strict=True):
        yield Text(_row(cells, widths), style=entry.style)
        word = max((len(plain(detail.word)) for detail in entry.details), default=0)
        for detail in entry.details:
            yield from _paragraph(detail, word, width)


def shown(console: Console, headings: Sequence[str], entries: Sequence[Entry]) -> None:
    """Print the entries."""
    for line in lines(headings, entries, console.width if console.is_terminal else None):
        console.print(line, soft_wrap=True)


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _paragraph(detail: Detail, word: int, width: int | None) -> Iterable[Text]:
    mark = QUOTE if detail.quoted else ""
    indent = INDENT + (f"{plain(detail.word).ljust(word)}  " if detail.word else "")
    first, rest = indent + mark, " " * len(indent) + mark
    parts = [plain(part.rstrip()) for part in detail.text.split("\n")]
    wrapped = parts if width is None else [line for part in parts for line in _wrapped(part, width - len(first))]
    for number, line in enumerate(wrapped[:MOST_LINES]):
        yield Text(f"{rest if number else first}{line}".rstrip(), style=detail.style)
    if len(wrapped) > MOST_LINES:
        yield Text(f"{rest}... {len(wrapped) - MOST_LINES} more lines: --json has all of it", style="dim")


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, NARROWEST), break_on_hyphens=False) or [""]
