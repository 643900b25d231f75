"""Verdicts as rows of fixed width, printed as they come, so that a table of a million rows needs no memory.

Rule 1: the widths are chosen once, for the terminal; what is too long for its column is shortened, and remarks beneath a
    row are wrapped. Where there is no terminal, remarks stay whole, one a line.
Rule 2: no text of a packet reaches the terminal before `printable` has seen it.
"""

import textwrap
from collections.abc import Iterator
from typing import Final, NamedTuple

import typer

from proctor.cli.output import printable
from proctor.cli.verdicts.explanation import Remark, explain_verdict
from proctor.cli.verdicts.json_lines import InputLine
from proctor.cli.verdicts.verdict_json import ACCEPTED, REFUSED, find_record_kind
from proctor.episode.explanations import describe_finding
from proctor.episode.legal_moves import event_label
from proctor.episode.verdicts import Verdict

NUMBER: Final = 6
VERDICT: Final = 8
PATH: Final = 8
# How wide the other columns can be.
KIND: Final = (10, 31)
ID: Final = (8, 48)
INDENT: Final = " " * (NUMBER + 1)
COLOURS: Final = {ACCEPTED: "green", REFUSED: "red"}
HEADINGS: Final = ("line", "verdict", "path", "what", "packet", "episode")


class TableLayout(NamedTuple):
    """The widths of the columns that adapt, and how remarks are set: `wrapped` is a width, or None for no wrapping."""

    kind: int
    id: int
    wrapped: int | None
    coloured: bool


def fit_layout(width: int, *, terminal: bool, coloured: bool) -> TableLayout:
    """Return the layout for a terminal, or a page, of this width."""
    rest = width - NUMBER - VERDICT - PATH - 3
    kind = _clamp(KIND, rest * 2 // 5)
    return TableLayout(kind, _clamp(ID, (rest - kind - 2) // 2), max(width, 40) if terminal else None, coloured)


def _clamp(bounds: tuple[int, int], value: int) -> int:
    return min(max(value, bounds[0]), bounds[1])


def format_heading(form: TableLayout) -> str:
    """Return the line above the table."""
    return style_text(_format_cells(form, *HEADINGS), form, bold=True)


def format_verdict(form: TableLayout, line: InputLine, verdict: Verdict, *, explain: bool = False) -> str:
    """Return the row of `verdict`, and what is remarked beneath it, each line with its end."""
    word = ACCEPTED if verdict.accepted else REFUSED
    path = ">".join(state.partition("_")[0] for state in verdict.path)
    cells = _format_cells(
        form, str(line.number), word, path, describe_kind(line, verdict), verdict.packet_id, verdict.correlation_id
    )
    remarks = explain_verdict(verdict) if explain else _brief_remarks(verdict)
    # The first cells have fixed widths, so the word stands where it stands in every row.
    start = max(NUMBER, len(str(line.number))) + 1
    coloured = cells[:start] + style_text(word, form, fg=COLOURS[word]) + cells[start + len(word) :]
    return "".join([coloured, *(format_remark(form, *each) for each in remarks)])


def _format_cells(form: TableLayout, number: str, *words: str | None) -> str:
    widths = (VERDICT, PATH, form.kind, form.id, form.id)
    cells = (shorten(printable(word or "-"), width).ljust(width) for word, width in zip(words, widths, strict=True))
    return " ".join([number.rjust(NUMBER), *cells]).rstrip() + "\n"


def describe_kind(line: InputLine, verdict: Verdict) -> str:
    """Return what a line is, in a few letters."""
    if verdict.event is not None:
        return event_label(verdict.event).replace("Packet", "", 1)
    record = find_record_kind(line) if verdict.packet_id is None else None
    if isinstance(record, str):
        return f"{record} record"
    return "not JSON" if verdict.rules[:1] == ("JSON",) else "malformed"


def _brief_remarks(verdict: Verdict) -> Iterator[Remark]:
    """Yield what is said of a verdict when nobody asked for an explanation."""
    if not verdict.accepted:
        yield Remark(", ".join(verdict.rules), describe_finding(verdict.findings[0]))
    for made in verdict.synthetic:
        yield Remark(made.rule, f"{made.event}: {made.reason}")
    for warning in verdict.warnings:
        yield Remark(f"warning {warning.rule}", describe_finding(warning))


def format_remark(form: TableLayout, heading: str, text: str, *, indent: str = INDENT) -> str:
    """Return a remark as it is set beneath a row."""
    words = printable(f"{heading}: {text}")
    parts = [words] if form.wrapped is None else textwrap.wrap(words, form.wrapped - len(indent) - 1)
    return "".join(style_text(f"{indent}{part}\n", form, dim=True) for part in parts)


def style_text(text: str, form: TableLayout, **style: str | bool) -> str:
    """Return `text` in a style, where styles are shown."""
    return typer.style(text, **style) if form.coloured else text  # type: ignore[arg-type]  # keywords of one function


def shorten(text: str, width: int) -> str:
    """Return `text` in `width` signs, without its middle if it is longer: ids differ at their ends."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"
