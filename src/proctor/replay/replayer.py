"""Replays episodes: carries out every recorded reset and action again, and says whether what comes now is identical.

Rule 1: an episode is identical only if every row that moved its environment was carried out again and is the same.
Rule 2: what the episode before has left of an environment may go on with the next one, which saves its resets; but no
    difference is reported before a new environment has shown it too.
Rule 3: rows that do not move the environment (packets and verdicts, grants, refusals) are passed over.
Rule 4: a difference does not end `replay_rows`; an environment that raises does, for there is nothing to go on with.
Rule 5: an episode whose seed nobody knows is replayed only where the episodes before it were, in the same environment: there
    its generator may draw what it drew. If that fails, the episode cannot be replayed, which is not a difference.
"""

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, cast

from proctor.errors import ValidationError
from proctor.ledger.reader import Ledger, Row
from proctor.models.events import BatchReset, BatchStepped, EpisodeReset, EpisodeStepped, SessionOpened
from proctor.replay.batch_driver import BatchOutput
from proctor.replay.comparison import (
    MALFORMED_ROW_ERRORS,
    Difference,
    EnvironmentEvent,
    RowComparison,
    compare_failure,
    compare_row,
)
from proctor.replay.driver import EnvironmentFailure, EnvOutput, SingleDriver
from proctor.replay.driver_cache import Driver, DriverCache
from proctor.replay.seeds import find_batch_seeds, find_seed, unknown_seed_error

ENVIRONMENT_EVENTS: Final = frozenset({EpisodeReset, EpisodeStepped, BatchReset, BatchStepped})


def replay_rows(
    opened: SessionOpened, rows: Iterable[Row], *, driver_cache: DriverCache | None = None
) -> Iterator[RowComparison]:
    """Yield every row of one episode that moved the environment, compared with what comes now.

    The environment is made in this process; a ValidationError says why it cannot be made, or that nobody knows the seed.
    With a `driver_cache` it may be the one that the episode before has left, and stays there for the next.
    """
    is_own = driver_cache is None
    own_cache = DriverCache() if driver_cache is None else driver_cache
    try:
        yield from _replay_rows(opened, rows, own_cache)
    finally:
        if is_own:
            own_cache.drop()


def _replay_rows(opened: SessionOpened, rows: Iterable[Row], driver_cache: DriverCache) -> Iterator[RowComparison]:
    driver: Driver | None = None
    goes_on = False
    step = 0
    for row in rows:
        kind = type(row.event)
        if kind not in ENVIRONMENT_EVENTS:
            continue
        event = cast("EnvironmentEvent", row.event)
        # Counted here: with a batch's reset by a mask the session's own count begins anew.
        step += kind is EpisodeStepped or kind is BatchStepped
        try:
            if driver is None:
                driver = driver_cache.driver(opened, _reset_number(event))
                goes_on = _continues_previous_episode(driver, event)
            each = compare_row(row, event, step, apply_event(driver, event))
        except EnvironmentFailure as problem:
            driver_cache.drop()
            each = compare_failure(row, event, step, problem)
        except ValidationError:
            raise
        except MALFORMED_ROW_ERRORS as problem:
            raise ValidationError(f"row {row.seq} of {row.chain} cannot be read: {problem}") from problem
        if goes_on and each.differences:
            # That it goes on from the episode before was no more than a hope.
            raise unknown_seed_error()
        yield each
        if each.found is None:
            return


def _continues_previous_episode(driver: Driver, event: EnvironmentEvent) -> bool:
    """Return whether nobody knows the seed of an episode, but its environment may draw it again; raise if it cannot."""
    if not isinstance(event, EpisodeReset) or find_seed(event) is not None:
        return False
    if driver.resets and driver.resets == event.nth - 1:
        return True
    raise unknown_seed_error()


def apply_event(driver: Driver, event: EnvironmentEvent) -> EnvOutput | BatchOutput:
    """Carry out what a row says; raise `EnvironmentFailure` if the environment does not answer."""
    if isinstance(driver, SingleDriver):
        if type(event) is EpisodeStepped:
            return driver.step(event)
        if isinstance(event, EpisodeReset):
            return driver.begin(event, find_seed(event))
    elif isinstance(event, BatchStepped):
        return driver.step(event)
    elif isinstance(event, BatchReset):
        return driver.begin(event, find_batch_seeds(event, driver.vector.num_envs))
    raise ValidationError(
        "this record mixes one environment and a batch", found=type(event).__name__, expected="one or the other"
    )


def _reset_number(event: EnvironmentEvent) -> int:
    """Return which reset of its environment an episode began with."""
    if not isinstance(event, EpisodeReset | BatchReset):
        raise ValidationError("this record does not begin with a reset", found=f"step {event.step}", expected="a reset")
    return event.nth


PROGRESS_EVERY: Final = 256
"""How many steps lie between two words about the progress."""
Progress = Callable[[int], None]
"""Called with the number of steps that are done."""


@dataclass(frozen=True, slots=True)
class ReplayResult:
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


def replay_episode(
    ledger: Ledger, chain: str, *, progress: Progress | None = None, driver_cache: DriverCache | None = None
) -> ReplayResult:
    """Return the result of replaying one episode; no record and no environment makes this raise.

    A `driver_cache` that is given is used on for the next episode, and is the caller's to drop.
    """
    if driver_cache is None:
        own = DriverCache()
        try:
            return _replay_once(ledger, chain, progress, own)
        finally:
            own.drop()
    result = _replay_once(ledger, chain, progress, driver_cache)
    if result.identical or result.why_not or not driver_cache.is_reused:
        return result
    driver_cache.drop()
    return _replay_once(ledger, chain, progress, driver_cache)


@contextmanager
def open_rows(ledger: Ledger, chain: str) -> Iterator[Iterator[Row]]:
    """Yield the rows of a chain for the block; what of them was not read is let go of at its end."""
    rows = ledger.rows(chain)
    try:
        yield rows
    finally:
        if isinstance(rows, Generator):
            rows.close()


def read_opening(rows: Iterator[Row], chain: str) -> SessionOpened:
    """Return the first row of an episode's chain, or raise a ValidationError."""
    first = next(rows, None)
    if first is None or not isinstance(first.event, SessionOpened):
        raise ValidationError("this chain is no episode", found=chain, expected="the chain of an episode")
    return first.event


def _replay_once(ledger: Ledger, chain: str, progress: Progress | None, driver_cache: DriverCache) -> ReplayResult:
    started = time.perf_counter()
    tally = _ReplayTotals()
    why_not = ""
    try:
        with open_rows(ledger, chain) as rows:
            tally.watch(replay_rows(read_opening(rows, chain), rows, driver_cache=driver_cache), progress)
    except ValidationError as problem:
        why_not = str(problem)
    return tally.result(chain, time.perf_counter() - started, driver_cache.notes, why_not)


class _ReplayTotals:
    """What a replay has come to so far."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._at = 0.0
        self._steps = 0
        self._by_digest = False
        self._last: RowComparison | None = None
        self._redrawn = 0

    def watch(self, replay: Iterator[RowComparison], progress: Progress | None) -> None:
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
            if progress is not None and not each.step % PROGRESS_EVERY:
                progress(each.step)

    def result(self, chain: str, seconds: float, said: tuple[str, ...], why_not: str) -> ReplayResult:
        """Return the result."""
        last = self._last
        if last is None:
            why_not = why_not or "this episode cannot be replayed: its record has no reset"
        first = None if last is None or not last.differences else last
        return ReplayResult(
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
