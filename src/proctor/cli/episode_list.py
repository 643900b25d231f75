"""Episodes as a table: one row each, the oldest first.

Rule: what adapts to the terminal are the names, which are shortened in the middle, and the number of columns. Numbers are
    always whole.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from proctor.cli.columns import Sheet, elapsed, instant, many, padded, shortened
from proctor.cli.timeline_page import ending
from proctor.cli.verdict_json import encoded
from proctor.ledger.reader import EpisodeSummary
from proctor.models.value_words import told_number

HEADINGS: Final = ("episode", "environment", "began", "took", "steps", "reward", "end", "judged")
RIGHT: Final = frozenset({"took", "steps", "reward"})
NAMES: Final = ("environment", "episode")
"""What is shortened where the terminal is narrow, in this order."""
DISPENSABLE: Final = ("took", "began", "judged")
"""What is left out where that is not enough."""
SHORTEST: Final = 12
OPEN: Final = ""
"""The reason of an episode that is not over."""
GAP: Final = "  "
COLOURS: Final[Mapping[str, dict[str, Any]]] = {
    "open": {"fg": "yellow"},
    "left": {"fg": "yellow"},
    "lost": {"fg": "red", "bold": True},
    "conforming": {"fg": "green"},
    "violated": {"fg": "red"},
}


def wanted(
    episodes: Sequence[EpisodeSummary], *, environment: str | None, is_open: bool, governed: bool
) -> list[EpisodeSummary]:
    """Return the episodes that these filters let through; a part of an environment's name is enough."""
    part = (environment or "").lower()
    return [
        each
        for each in episodes
        if part in each.environment.lower() and (each.reason == OPEN or not is_open) and (each.governed or not governed)
    ]


def as_json(episodes: Sequence[EpisodeSummary]) -> Iterator[bytes]:
    """Yield one object an episode, each with its line's end."""
    for each in episodes:
        yield encoded({**asdict(each), "end": ending(each), "file": str(each.file)})


def as_text(sheet: Sheet, episodes: Sequence[EpisodeSummary]) -> Iterator[str]:
    """Yield the table, a line at a time, and a line with the totals."""
    rows = [_cells(each) for each in episodes]
    widths = _widths(sheet, rows)
    yield sheet.styled(_line(widths, dict(zip(HEADINGS, HEADINGS, strict=True))), bold=True) + "\n"
    for row in rows:
        yield _line(widths, row, sheet) + "\n"
    yield sheet.styled(f"{_totals(episodes)}\n", dim=True)


def _cells(episode: EpisodeSummary) -> dict[str, str]:
    took = "" if episode.closed_at is None else elapsed(episode.closed_at - episode.opened_at)
    batch = "" if episode.num_envs is None else f" x{episode.num_envs}"
    return {
        "episode": episode.chain,
        "environment": f"{episode.environment}{batch}",
        "began": instant(episode.opened_at).removesuffix(" UTC"),
        "took": took,
        "steps": f"{episode.steps:,}",
        "reward": "" if episode.total_reward is None else told_number(episode.total_reward),
        "end": ending(episode),
        "judged": episode.outcome or ("open" if episode.governed else "free"),
    }


def _widths(sheet: Sheet, rows: Sequence[Mapping[str, str]]) -> dict[str, int]:
    """Return how wide each column is; on a terminal names give way, and then whole columns, until the table fits."""
    widths = {name: max([len(name), *(len(row[name]) for row in rows)]) for name in HEADINGS}
    if not sheet.terminal:
        return widths
    spare = sum(max(widths[name] - SHORTEST, 0) for name in NAMES)
    for name in DISPENSABLE:
        if _over(widths, sheet) > spare:
            del widths[name]
    for name in NAMES:
        widths[name] -= min(max(_over(widths, sheet), 0), max(widths[name] - SHORTEST, 0))
    return widths


def _over(widths: Mapping[str, int], sheet: Sheet) -> int:
    return sum(widths.values()) + len(GAP) * (len(widths) - 1) - sheet.width


def _line(widths: Mapping[str, int], row: Mapping[str, str], sheet: Sheet | None = None) -> str:
    cells = []
    for name, width in widths.items():
        text = shortened(row[name], width)
        cell = text.rjust(width) if name in RIGHT else padded(text, width)
        cells.append(cell if sheet is None else sheet.styled(cell, **COLOURS.get(row[name], {})))
    return GAP.join(cells).rstrip()


def _totals(episodes: Sequence[EpisodeSummary]) -> str:
    still = sum(each.reason == OPEN for each in episodes)
    steps = sum(each.steps for each in episodes)
    return f"{many(len(episodes), 'episode')}, {still} open, {many(steps, 'step')}"
