"""An episode as a story: an entry for every row, or for several that repeat each other. Pure.

Rule 1: steps that repeat the step before them (the same actor, tool and action) are told together, up to an end.
Rule 2: times count from the reset; the session's opening is told by the header, not here.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from proctor.cli.narrator import Narrator
from proctor.cli.tellers import Entry, rewarded, told, told_step
from proctor.ledger.reader import Row
from proctor.models.events import EpisodeStepped, SessionOpened


class _Step(NamedTuple):
    """What two steps must share to be told together."""

    who: str
    tool: str | None
    action: bytes


@dataclass(slots=True)
class _Run:
    """Steps that are told together."""

    like: _Step
    first: EpisodeStepped
    last: EpisodeStepped
    values: bool
    steps: int = 1
    reward: float = 0.0


def entries(
    rows: Iterable[Row], narrator: Narrator, *, folded: bool = True, wanted: range | None = None
) -> Iterator[Entry]:
    """Yield the story of these rows, of which only those with a `seq` in `wanted` are told; `folded` is rule 1."""
    run: _Run | None = None
    for row in _heard(rows, narrator, wanted):
        event = row.event
        if folded and run is not None and _grows(run, row, narrator):
            continue
        if run is not None:
            yield _told_run(run, narrator)
            run = None
        if isinstance(event, EpisodeStepped):
            run = _Run(_like(event, narrator), event, event, row.values, reward=event.reward or 0.0)
        elif not isinstance(event, SessionOpened):
            yield told(row, narrator)
    if run is not None:
        yield _told_run(run, narrator)


def _heard(rows: Iterable[Row], narrator: Narrator, wanted: range | None) -> Iterator[Row]:
    """Yield the rows that are wanted; the narrator hears them all."""
    for row in rows:
        narrator.hear(row.event)
        if wanted is None or row.seq in wanted:
            yield row


def _like(event: EpisodeStepped, narrator: Narrator) -> _Step:
    return _Step(narrator.who(event), event.tool, bytes(event.action))


def _grows(run: _Run, row: Row, narrator: Narrator) -> bool:
    """Return whether a row is one step more of the run, which then has it."""
    event = row.event
    if run.last.terminated or run.last.truncated or not isinstance(event, EpisodeStepped):
        return False
    if run.like != _like(event, narrator):
        return False
    run.last = event
    run.values = row.values
    run.steps += 1
    run.reward += event.reward or 0.0
    return True


def _told_run(run: _Run, narrator: Narrator) -> Entry:
    entry = told_step(run.last, narrator, run.values)
    if run.steps == 1:
        return entry
    return replace(
        entry,
        at=narrator.since(run.first.at),
        step=f"{run.first.step}-{run.last.step}",
        what=f"{entry.what} x{run.steps}",
        result=entry.result if run.last.reward is None else rewarded(run.reward, run.last),
    )
