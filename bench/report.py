"""Outcomes as a table to read and as JSON to keep. Pure: `__main__` does the writing.

Rule 1: a row without numbers stays in the table, with its reason.
Rule 2: rows of an earlier run are kept beside new ones only if machine and versions are the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from bench.row import Outcome

Record = dict[str, Any]

_SCALES: Final = ((1e9, " G"), (1e6, " M"), (1e3, " k"))
_MARKS: Final = {True: ("yes", "green"), False: ("no", "bold red"), None: ("", "")}


def significant(value: float, digits: int = 4) -> float | None:
    """Return `value` rounded to so many significant digits; None for an infinity, which JSON cannot say."""
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def readable(value: float, unit: str) -> str:
    """Return a number as people read it: three digits, and with thousands and millions in words."""
    for scale, letter in _SCALES:
        if abs(value) >= scale:
            return f"{value / scale:.3g}{letter} {unit}".replace("  ", " ")
    return f"{value:.3g} {unit}"


def record_of(outcome: Outcome) -> Record:
    """Return one row as it stands in results.json; without samples the numbers are None and `gap` says why."""
    row, samples = outcome.row, outcome.samples
    return {
        "row": row.name,
        "value": None if samples is None else significant(samples.value),
        "unit": row.unit,
        "anchor": row.anchor_name,
        "anchor_value": None if samples is None else significant(samples.anchor_value),
        "ratio": None if samples is None else significant(samples.ratio),
        "spread": None if samples is None else [significant(ratio) for ratio in samples.spread],
        "better": str(row.better),
        "goal": None if row.goal is None else str(row.goal),
        "met": outcome.met,
        "gap": outcome.gap,
        "note": row.note,
        "tier": row.tier,
        "durability": row.durability,
        "values": [] if samples is None else [significant(value) for value in samples.subject],
        "anchor_values": [] if samples is None else [significant(value) for value in samples.anchor],
    }


def document(
    outcomes: Sequence[Outcome], machine: Mapping[str, Any], versions: Mapping[str, Any], settings: Mapping[str, Any]
) -> Record:
    """Return the whole of results.json."""
    return {
        "machine": dict(machine),
        "versions": dict(versions),
        "settings": dict(settings),
        "rows": [record_of(outcome) for outcome in outcomes],
    }


def merged(old: Record | None, new: Record, order: Sequence[str]) -> Record:
    """Return `new` with those rows of `old` that it does not have, in the table's order.

    Rows that the table no longer has are dropped, and so is everything of another machine or of other versions.
    """
    if old is None or any(old.get(key) != new[key] for key in ("machine", "versions")):
        return new
    rows = {record["row"]: record for record in (*old.get("rows", ()), *new["rows"])}
    return {**new, "rows": [rows[name] for name in order if name in rows]}


def table_of(outcomes: Sequence[Outcome]) -> Table:
    """Return the outcomes as a table; a row's name is its subject, a slash and its anchor."""
    table = Table(title="Proctor, measured in one run", title_justify="left", header_style="bold")
    table.add_column("row")
    for heading in ("value", "anchor", "ratio", "lowest .. highest"):
        table.add_column(heading, justify="right")
    table.add_column("goal")
    table.add_column("met")
    table.add_column("tier, durability", style="dim")
    for outcome in outcomes:
        table.add_row(*_cells(outcome))
    return table


def _cells(outcome: Outcome) -> tuple[str | Text, ...]:
    row, samples = outcome.row, outcome.samples
    name = Text(row.name).append(f"  {row.note}", style="dim")
    goal = "" if row.goal is None else str(row.goal)
    circumstances = f"{row.tier}, {row.durability}"
    if samples is None:
        return name, Text("gap", style="yellow"), "", "", "", goal, "", circumstances
    low, high = samples.spread
    word, style = _MARKS[outcome.met]
    return (
        name,
        readable(samples.value, row.unit),
        readable(samples.anchor_value, row.unit),
        f"{samples.ratio:.3g}",
        f"{low:.3g} .. {high:.3g}",
        goal,
        Text(word, style=style),
        circumstances,
    )


def gap_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """Return a line with its reason for every row without numbers."""
    return [f"gap: {outcome.row.name}: {outcome.gap}" for outcome in outcomes if outcome.samples is None]


def summary_of(outcomes: Sequence[Outcome]) -> str:
    """Return one sentence about goals and gaps."""
    goals = [outcome.met for outcome in outcomes if outcome.met is not None]
    gaps = sum(outcome.samples is None for outcome in outcomes)
    return f"{sum(goals)} of {len(goals)} goals met, {len(outcomes)} rows, {gaps} {'gap' if gaps == 1 else 'gaps'}"
