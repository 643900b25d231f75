"""Text in columns of a terminal: padded, cut and coloured by what is seen, not by how many characters it takes.

Rule 1: nothing that is not printable reaches a terminal (`verdict_table.plain`).
Rule 2: a width is counted in cells: some signs take two.
"""

from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import typer
from rich.cells import cell_len, chop_cells, set_cell_size
from rich.console import Console

from proctor.cli.output import plain

ELLIPSIS: Final = "…"
WIDTH: Final = 140
"""How wide a page is where no terminal says."""


class Sheet(NamedTuple):
    """What is printed on: how wide it is, whether that is a limit, and whether it shows colours."""

    width: int
    terminal: bool
    coloured: bool

    def styled(self, text: str, **style: Any) -> str:
        """Return `text` in a style, where styles are shown."""
        return typer.style(text, **style) if self.coloured and style and text.strip() else text


def sheet() -> Sheet:
    """Return the sheet that standard output is."""
    console = Console()
    terminal = console.is_terminal
    return Sheet(console.width if terminal else WIDTH, terminal, terminal and not console.no_color)


def padded(text: str, width: int) -> str:
    """Return `text` in exactly `width` cells, with an ellipsis where it was cut."""
    return set_cell_size(clipped(text, width), width)


def clipped(text: str, width: int) -> str:
    """Return `text` in at most `width` cells."""
    text = plain(text)
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(width - 1, 0)).rstrip() + ELLIPSIS if width > 0 else ""


def shortened(text: str, width: int) -> str:
    """Return `text` in at most `width` signs, without its middle: names differ at their ends."""
    text = plain(text)
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}{ELLIPSIS}{text[len(text) - (width - 1 - head) :]}"


def wrapped(text: str, width: int) -> list[str]:
    """Return `text` in lines of at most `width` cells, broken between words where that is possible."""
    lines: list[str] = []
    line = ""
    for word in plain(text).split(" "):
        if line and cell_len(line) + 1 + cell_len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
        if cell_len(line) > width:
            *whole, line = chop_cells(line, width)
            lines += whole
    return [*lines, line]


def instant(at: float) -> str:
    """Return a moment as people and programs read it."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def elapsed(seconds: float) -> str:
    """Return a length of time in a few signs: 0.004 s, 1m02.5s, 2h03m."""
    if seconds < 60:
        return f"{seconds:.3f} s"
    # Rounded before it is divided, so that there is no minute of 60 seconds.
    minutes, tenths = divmod(round(seconds * 10), 600)
    if minutes < 60:
        return f"{minutes}m{tenths / 10:04.1f}s"
    return f"{minutes // 60}h{minutes % 60:02}m"


def many(count: int, what: str) -> str:
    """Return a number of things in words."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
