"""What a replay amounts to: identical, or the first difference with both values; or why there was no replay.

Rule 1: an episode is identical only if every row that moved its environment was carried out again and is the same.
Rule 2: what the episode before has left of an environment may go on with the next one, which saves its resets; but no
    difference is reported before a new environment has shown it too.
"""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from proctor.errors import ValidationError
from proctor.ledger.reader import Ledger, Row
from proctor.models.events import SessionOpened
from proctor.replay.comparison import Compared
from proctor.replay.difference import Difference
from proctor.replay.redrive import redriven
from proctor.replay.supply import Supply

OFTEN: Final = 256
"""How many steps lie between two words about the progress."""
Progress = Callable[[int], None]
"""Called with the number of steps that are done."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result for one episode. `first` is the first difference, seen in row `seq` after `at_step` steps."""

    chain: str
    steps: int
    identical: bool
    first: Difference | None = None
    at_step: int | None = None
    seq: int | None = None
    seconds: float = 0.0
    recorded_seconds: float = 0.0
    """How long the session took for the same steps."""
    by_digest: bool = False
    """Whether the observations were compared by their digests, because their values were not stored."""
    why_not: str = ""
    """Why there was no replay; empty: there was one."""
    notes: tuple[str, ...] = ()

    @property
    def speed(self) -> float:
        """How many times faster than the session it was."""
        return self.recorded_seconds / max(self.seconds, 1e-9)


def replayed(ledger: Ledger, chain: str, *, progress: Progress | None = None, supply: Supply | None = None) -> Replayed:
    """Return the result of replaying one episode; no record and no environment makes this raise.

    A `supply` that is given is used on for the next episode, and is the caller's to drop.
    """
    if supply is None:
        own = Supply()
        try:
            return _replayed(ledger, chain, progress, own)
        finally:
            own.drop()
    result = _replayed(ledger, chain, progress, supply)
    if result.identical or result.why_not or not supply.continued:
        return result
    supply.drop()
    return _replayed(ledger, chain, progress, supply)


@contextmanager
def reading(ledger: Ledger, chain: str) -> Iterator[Iterator[Row]]:
    """Yield the rows of a chain for the block; what of them was not read is let go of at its end."""
    rows = ledger.rows(chain)
    try:
        yield rows
    finally:
        if isinstance(rows, Generator):
            rows.close()


def opening_of(rows: Iterator[Row], chain: str) -> SessionOpened:
    """Return the first row of an episode's chain, or raise a ValidationError."""
    first = next(rows, None)
    if first is None or not isinstance(first.event, SessionOpened):
        raise ValidationError("this chain is no episode", found=chain, expected="the chain of an episode")
    return first.event


def _replayed(ledger: Ledger, chain: str, progress: Progress | None, supply: Supply) -> Replayed:
    started = time.perf_counter()
    tally = _Tally()
    why_not = ""
    try:
        with reading(ledger, chain) as rows:
            tally.watch(redriven(opening_of(rows, chain), rows, supply=supply), progress)
    except ValidationError as problem:
        why_not = str(problem)
    return tally.result(chain, time.perf_counter() - started, supply.notes, why_not)


class _Tally:
    """What a replay has come to so far."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._at = 0.0
        self._steps = 0
        self._by_digest = False
        self._last: Compared | None = None
        self._redrawn = 0

    def watch(self, replay: Iterator[Compared], progress: Progress | None) -> None:
        """Follow a replay up to its end or to the first difference."""
        for each in replay:
            self._last = each
            self._steps = each.step
            self._at = each.event.at
            self._redrawn += each.redrawn
            if self._began is None:
                self._began = self._at
                self._by_digest = not each.row.values
            if each.differences:
                return
            if progress is not None and not each.step % OFTEN:
                progress(each.step)

    def result(self, chain: str, seconds: float, said: tuple[str, ...], why_not: str) -> Replayed:
        """Return the result."""
        last = self._last
        if last is None:
            why_not = why_not or "this episode cannot be replayed: its record has no reset"
        first = None if last is None or not last.differences else last
        return Replayed(
            chain,
            self._steps,
            identical=first is None and not why_not,
            first=None if first is None else first.differences[0],
            at_step=None if first is None else first.step,
            seq=None if first is None else first.row.seq,
            seconds=seconds,
            recorded_seconds=0.0 if self._began is None else self._at - self._began,
            by_digest=self._by_digest,
            why_not=why_not,
            notes=(*said, *self._notes()),
        )

    def _notes(self) -> list[str]:
        """Return what is no difference, and yet not as it was."""
        if not self._redrawn:
            return []
        pictures = "one picture is" if self._redrawn == 1 else f"{self._redrawn} pictures are"
        return [f"{pictures} not as recorded; pixels are for people, and make no difference"]
