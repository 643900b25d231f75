"""What the table and results.json say about outcomes."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from io import StringIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from bench.machine import cpu_model, machine
from bench.measure import Probe, Samples
from bench.report import document, gap_lines, merged, readable, record_of, significant, summary_of, table_of
from bench.row import Better, Goal, Outcome, Row, chosen, ratio_at_least, value_below
from bench.rows import ROWS

FIELDS = ("row", "value", "unit", "anchor", "anchor_value", "ratio", "goal", "met", "tier", "durability", "gap")
FINITE = st.floats(min_value=1e-9, max_value=1e12)


def never_opened(_: ExitStack) -> Probe:
    raise AssertionError("a report opens nothing")


def row(name: str = "part.thing/other", goal: Goal | None = None, **more: Any) -> Row:
    return Row(name, never_opened, never_opened, "other", goal, **more)


def printed(*outcomes: Outcome) -> str:
    page = StringIO()
    Console(width=150, file=page).print(table_of(outcomes))
    return page.getvalue()


def test_a_measured_row_has_every_field() -> None:
    record = record_of(Outcome(row(goal=ratio_at_least(8.0)), Samples((90.0, 100.0, 95.0), (10.0, 10.0, 11.0))))

    assert set(FIELDS) <= set(record)
    assert (record["value"], record["anchor_value"], record["ratio"]) == (95.0, 10.0, 9.5)
    assert (record["goal"], record["met"]) == ("ratio >= 8", True)
    assert (record["tier"], record["durability"], record["gap"]) == ("in-process", "none", None)
    assert record["spread"] == [8.636, 10.0]


def test_a_gap_keeps_its_place_and_its_reason() -> None:
    gap = Outcome(row(goal=ratio_at_least(8.0)), gap="the peer is not installed")
    record = record_of(gap)

    assert (record["value"], record["ratio"], record["met"]) == (None, None, None)
    assert record["gap"] == "the peer is not installed"
    assert "gap" in printed(gap)
    assert gap_lines([gap]) == ["gap: part.thing/other: the peer is not installed"]


@pytest.mark.parametrize(
    ("goal", "met"),
    [
        (None, None),
        (ratio_at_least(2.0), True),
        (ratio_at_least(2.01), False),
        (value_below(10.0), False),
        (value_below(10.1), True),
    ],
)
def test_a_goal_is_held_against_the_ratio_or_the_value(goal: Goal | None, met: bool | None) -> None:
    assert Outcome(row(goal=goal), Samples((10.0,), (5.0,))).met is met


def test_the_table_shows_the_ratio_the_goal_and_whether_it_is_met() -> None:
    shown = printed(
        Outcome(row("a/b", ratio_at_least(4.0), note="N=2"), Samples((8e6,), (1e6,))),
        Outcome(row("c/d", value_below(0.3), unit="s", better=Better.LOWER), Samples((0.4,), (0.2,))),
    )

    assert re.search(r"a/b +N=2 .* 8 M steps/s .* 1 M steps/s .* 8 .* ratio >= 4 .* yes .* in-process, none", shown)
    assert re.search(r"c/d .* 0\.4 s .* 0\.2 s .* 2 .* value < 0\.3 .* no", shown)


def test_the_summary_counts_goals_and_gaps() -> None:
    outcomes = [
        Outcome(row(goal=ratio_at_least(1.0)), Samples((2.0,), (1.0,))),
        Outcome(row(goal=ratio_at_least(3.0)), Samples((2.0,), (1.0,))),
        Outcome(row(), gap="none"),
    ]

    assert summary_of(outcomes) == "1 of 2 goals met, 3 rows, 1 gap"


@given(FINITE)
def test_four_digits_are_close_enough(value: float) -> None:
    assert significant(value) == pytest.approx(value, rel=1e-3)


def test_an_infinite_ratio_stays_out_of_json() -> None:
    record = record_of(Outcome(row(), Samples((1.0,), (0.0,))))

    assert record["ratio"] is None
    json.dumps(record, allow_nan=False)


@given(FINITE)
def test_a_readable_number_reads_back(value: float) -> None:
    number, *letter, unit = readable(value, "x/s").split()
    scale = {"k": 1e3, "M": 1e6, "G": 1e9}[letter[0]] if letter else 1.0

    assert float(number) * scale == pytest.approx(value, rel=6e-3)
    assert unit == "x/s"


def run_of(*names: str, value: float = 1.0, cores: int = 2) -> dict[str, Any]:
    outcomes = [Outcome(row(name), Samples((value,), (1.0,))) for name in names]
    return document(outcomes, {"cores": cores}, {"python": "3"}, {"repeats": 1})


def test_a_partial_run_renews_its_rows_and_keeps_the_others_in_the_table_order() -> None:
    whole = merged(run_of("a", "b", "gone"), run_of("b", "c", value=2.0), ["c", "b", "a"])

    assert [(record["row"], record["value"]) for record in whole["rows"]] == [("c", 2.0), ("b", 2.0), ("a", 1.0)]


@pytest.mark.parametrize("old", [None, {}, run_of("a", cores=64)])
def test_rows_of_another_machine_are_never_mixed_in(old: dict[str, Any] | None) -> None:
    new = run_of("b")

    assert merged(old, new, ["a", "b"]) == new


def test_a_document_is_json_with_machine_and_versions_beside_the_rows() -> None:
    text = json.dumps(run_of("a"), allow_nan=False)

    assert list(json.loads(text)) == ["machine", "versions", "settings", "rows"]


def test_the_processor_is_named_and_the_host_is_not() -> None:
    assert cpu_model("processor\t: 0\nmodel name\t: A CPU 3000\nflags\t: x\n") == "A CPU 3000"
    assert cpu_model("nothing here") is None
    assert set(machine()) == {"cpu", "cores", "system"}


def test_row_names_are_unique_and_say_subject_and_anchor() -> None:
    names = [each.name for each in ROWS]

    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z]+\.[a-z0-9-]+/[a-z0-9-]+", name) for name in names)


@given(st.text(alphabet="plumesinge./", max_size=8))
def test_a_prefix_chooses_rows_and_keeps_their_order(prefix: str) -> None:
    found = chosen(ROWS, prefix)

    assert found == tuple(each for each in ROWS if each.name.startswith(prefix))
    assert chosen(ROWS, "") == ROWS
