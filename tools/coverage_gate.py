"""Holds every room of the package to its floor of branch coverage.

Rule 1: `FLOORS` names the rooms that differ; every other room, also one that does not exist yet, gets `FLOOR`.
Rule 2: what is read is coverage's JSON report; a report without the package is a failure, never a pass.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

PACKAGE = "proctor"
FLOOR = 90
FLOORS = {"contracts": 100}


@dataclass(slots=True)
class Tally:
    """Lines and branches of one room: how many there are, how many ran, and where the others are."""

    covered: int = 0
    total: int = 0
    gaps: list[str] | None = None

    def add(self, path: str, report: dict[str, Any]) -> None:
        """Count one file of the report in."""
        summary = report["summary"]
        covered = summary["covered_lines"] + summary.get("covered_branches", 0)
        total = summary["num_statements"] + summary.get("num_branches", 0)
        self.covered += covered
        self.total += total
        if covered < total:
            branches = [f"{start}->{end}" for start, end in report.get("missing_branches", [])]
            missing = ", ".join([*map(str, report["missing_lines"]), *branches])
            self.gaps = [*(self.gaps or []), f"{path}: {missing}"]

    def reaches(self, floor: int) -> bool:
        """Return whether the room keeps `floor` percent, in whole numbers so that 99.999 is not 100."""
        return self.covered * 100 >= floor * self.total

    @property
    def percent(self) -> float:
        """The share that ran; a room without statements is covered."""
        return 100 * self.covered / self.total if self.total else 100.0


def room_of(path: str) -> str:
    """Return the room that a file belongs to: the folder or module below the package, or the package for its own."""
    parts = PurePath(path).parts
    below = parts[len(parts) - parts[::-1].index(PACKAGE) :]
    return PACKAGE if below[0] in {"__init__.py", "__main__.py"} else PurePath(below[0]).stem


def tally(files: dict[str, Any]) -> dict[str, Tally]:
    """Return the tally of every room named by the report's `files`."""
    rooms: dict[str, Tally] = defaultdict(Tally)
    for path, report in sorted(files.items()):
        rooms[room_of(path)].add(path, report)
    return dict(sorted(rooms.items()))


def main(arguments: list[str]) -> int:
    """Print the table and the gaps of rooms below their floor; return the exit code."""
    report = Path(arguments[0] if arguments else "build/coverage.json")
    if not report.exists():
        print(f"coverage gate: there is no report at {report}; run `make test`", file=sys.stderr)
        return 1
    rooms = tally(json.loads(report.read_text(encoding="utf-8"))["files"])
    if not rooms:
        print(f"coverage gate: {report} names no file of {PACKAGE}", file=sys.stderr)
        return 1
    low = {}
    print(f"\n{'room':<16}{'covered':>10}{'of':>8}{'percent':>10}{'floor':>8}")
    for name, room in rooms.items():
        floor = FLOORS.get(name, FLOOR)
        kept = room.reaches(floor)
        print(f"{name:<16}{room.covered:>10}{room.total:>8}{room.percent:>10.2f}{floor:>8}{'' if kept else '  LOW'}")
        if not kept:
            low[name] = room
    for name, room in low.items():
        gaps = "\n  ".join(room.gaps or [])
        print(f"\ncoverage gate: room `{name}` is below its floor; not run:\n  {gaps}", file=sys.stderr)
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
