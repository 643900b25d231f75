"""`python -m bench`: measure rows, print the table, keep results.json; `--profile` shows where the time goes."""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import sys
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from bench.machine import machine, versions
from bench.measure import Gap, interleaved
from bench.report import document, gap_lines, merged, summary_of, table_of
from bench.row import Outcome, Row, chosen
from bench.rows import ROWS

RESULTS: Final = Path(__file__).with_name("results.json")
WIDE: Final = 150


def arguments_of(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Proctor, each row as a ratio.")
    parser.add_argument("--rows", default="", metavar="PREFIX", help="only rows whose names start with this")
    parser.add_argument("--repeats", type=int, default=5, help="samples of subject and anchor each (default 5)")
    parser.add_argument("--seconds", type=float, default=0.5, help="seconds a sample (default 0.5)")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="FILE", help="default bench/results.json")
    parser.add_argument("--profile", metavar="ROW", help="profile the subject of this row instead")
    arguments = parser.parse_args(argv)
    if arguments.repeats < 1 or not arguments.seconds > 0.0:
        parser.error("--repeats must be at least 1 and --seconds more than 0")
    prefix = arguments.rows if arguments.profile is None else arguments.profile
    if not chosen(ROWS, prefix):
        parser.error(f"no row starts with {prefix!r}; there are: {', '.join(row.name for row in ROWS)}")
    return arguments


def outcome_of(row: Row, repeats: int, seconds: float) -> Outcome:
    """Return what became of `row`; a failure is told on standard error and does not end the other rows."""
    try:
        with ExitStack() as stack:
            subject = row.subject(stack)
            anchor = row.anchor(stack)
            return Outcome(row, interleaved(subject, anchor, repeats, seconds))
    except Gap as gap:
        return Outcome(row, gap=str(gap))
    except Exception as problem:  # noqa: BLE001  # this is the entry file: one broken row must not lose the others
        traceback.print_exc()
        return Outcome(row, gap=f"failed: {type(problem).__name__}: {problem}", failed=True)


def profile(row: Row, seconds: float) -> None:
    """Print where the subject of `row` spends its time."""
    with ExitStack() as stack:
        subject = row.subject(stack)
        subject(min(seconds, 0.05))
        profiler = cProfile.Profile()
        profiler.runcall(subject, seconds)
    print(f"{row.name}: the subject, by own time")
    pstats.Stats(profiler).strip_dirs().sort_stats("tottime").print_stats(25)


def kept(path: Path) -> Any:
    """Return what an earlier run wrote to `path`, or None."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print and keep; return 1 if a row broke. A missed goal or a gap is a result, not an error."""
    arguments = arguments_of(argv)
    if arguments.profile is not None:
        profile(chosen(ROWS, arguments.profile)[0], arguments.seconds)
        return 0
    outcomes = []
    progress = Console(stderr=True)
    for row in chosen(ROWS, arguments.rows):
        with progress.status(f"measuring {row.name}"):
            outcomes.append(outcome_of(row, arguments.repeats, arguments.seconds))
    settings = {"repeats": arguments.repeats, "seconds": arguments.seconds}
    found = document(outcomes, machine(), versions(), settings)
    whole = merged(kept(arguments.json), found, [row.name for row in ROWS])
    arguments.json.write_text(json.dumps(whole, indent=1) + "\n", "utf-8")
    console = Console()
    console = console if console.is_terminal else Console(width=WIDE)
    console.print(table_of(outcomes))
    for line in (*gap_lines(outcomes), summary_of(outcomes)):
        console.print(line, markup=False, highlight=False)
    return 1 if any(outcome.failed for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
