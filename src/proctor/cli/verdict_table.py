"""Verdicts as rows of fixed width, printed as they come, so that a table of a million rows needs no memory.

Rule 1: the widths are chosen once, for the terminal; what is too long for its column is shortened, and remarks beneath a
    row are wrapped. Where there is no terminal, remarks stay whole, one a line.
Rule 2: no text of a packet reaches the terminal before `plain` has seen it.
"""

import textwrap
from collections.abc import Iterator
from typing import Final, NamedTuple

import typer

from proctor.cli.explanation import Remark, explained
from proctor.cli.lines import Line
from proctor.cli.output import plain
from proctor.cli.verdict_json import ACCEPTED, REFUSED, record_of
from proctor.episode.verdict_words import located
from proctor.episode.verdicts import Verdict
from proctor.episode.ways import label_of

NUMBER: Final = 6
VERDICT: Final = 8
PATH: Final = 8
# How wide the other columns can be.
KIND: Final = (10, 31)
ID: Final = (8, 48)
INDENT: Final = " " * (NUMBER + 1)
COLOURS: Final = {ACCEPTED: "green", REFUSED: "red"}
HEADINGS: Final = ("line", "verdict", "path", "what", "packet", "episode")


class Layout(NamedTuple):
    """The widths of the columns that adapt, and how remarks are set: `wrapped` is a width, or None for no wrapping."""

    kind: int
    id: int
    wrapped: int | None
    coloured: bool


def layout(width: int, *, terminal: bool, coloured: bool) -> Layout:
    """Return the layout for a terminal, or a page, of this width."""
    rest = width - NUMBER - VERDICT - PATH - 3
    kind = _within(KIND, rest * 2 // 5)
    return Layout(kind, _within(ID, (rest - kind - 2) // 2), max(width, 40) if terminal else None, coloured)


def _within(bounds: tuple[int, int], value: int) -> int:
    return min(max(value, bounds[0]), bounds[1])


def heading(form: Layout) -> str:
    """Return the line above the table."""
    return styled(_row(form, *HEADINGS), form, bold=True)


def row(form: Layout, line: Line, verdict: Verdict, *, explain: bool = False) -> str:
    """Return the row of `verdict`, and what is remarked beneath it, each line with its end."""
    word = ACCEPTED if verdict.accepted else REFUSED
    path = ">".join(state.partition("_")[0] for state in verdict.path)
    cells = _row(form, str(line.number), word, path, kind_of(line, verdict), verdict.packet_id, verdict.correlation_id)
    remarks = explained(verdict) if explain else _remarks(verdict)
    # The first cells have fixed widths, so the word stands where it stands in every row.
    start = max(NUMBER, len(str(line.number))) + 1
    coloured = cells[:start] + styled(word, form, fg=COLOURS[word]) + cells[start + len(word) :]
    return "".join([coloured, *(remark(form, *each) for each in remarks)])


def _row(form: Layout, number: str, *words: str | None) -> str:
    widths = (VERDICT, PATH, form.kind, form.id, form.id)
    cells = (short(plain(word or "-"), width).ljust(width) for word, width in zip(words, widths, strict=True))
    return " ".join([number.rjust(NUMBER), *cells]).rstrip() + "\n"


def kind_of(line: Line, verdict: Verdict) -> str:
    """Return what a line is, in a few letters."""
    if verdict.event is not None:
        return label_of(verdict.event).replace("Packet", "", 1)
    record = record_of(line) if verdict.packet_id is None else None
    if isinstance(record, str):
        return f"{record} record"
    return "not JSON" if verdict.rules[:1] == ("JSON",) else "malformed"


def _remarks(verdict: Verdict) -> Iterator[Remark]:
    """Yield what is said of a verdict when nobody asked for an explanation."""
    if not verdict.accepted:
        yield Remark(", ".join(verdict.rules), located(verdict.findings[0]))
    for made in verdict.synthetic:
        yield Remark(made.rule, f"{made.event}: {made.reason}")
    for warning in verdict.warnings:
        yield Remark(f"warning {warning.rule}", located(warning))


def remark(form: Layout, heading: str, text: str, *, indent: str = INDENT) -> str:
    """Return a remark as it is set beneath a row."""
    words = plain(f"{heading}: {text}")
    parts = [words] if form.wrapped is None else textwrap.wrap(words, form.wrapped - len(indent) - 1)
    return "".join(styled(f"{indent}{part}\n", form, dim=True) for part in parts)


def styled(text: str, form: Layout, **style: str | bool) -> str:
    """Return `text` in a style, where styles are shown."""
    return typer.style(text, **style) if form.coloured else text  # type: ignore[arg-type]  # keywords of one function


def short(text: str, width: int) -> str:
    """Return `text` in `width` signs, without its middle if it is longer: ids differ at their ends."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"
