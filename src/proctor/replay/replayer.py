"""Replays episodes: carries out every recorded reset and action again, and says whether what comes now is identical.

Rule 1: an episode is identical only if every row that moved its environment was carried out again and is the same.
Rule 2: what the episode before has left of an environment may go on with the next one, which saves its resets; but no
    difference is reported before a new environment has shown it too.
Rule 3: rows that do not move the environment (packets and verdicts, grants, refusals) are passed over.
Rule 4: a difference does not end `replay_rows`; an environment that raises does, for there is nothing to go on with.
Rule 5: an episode whose seed nobody knows is replayed only where the episodes before it were, in the same environment: there
    its generator may draw what it drew. If that fails, the episode cannot be replayed, which is not a difference.
"""

import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from proctor.envs.settings import is_registered
from proctor.errors import ValidationError
from proctor.ledger.reader import Ledger, Row
from proctor.models.events import SessionOpened
from proctor.replay.comparison import (
    MALFORMED_ROW_ERRORS,
    Difference,
    RowComparison,
    compare_failure,
    compare_row,
)
from proctor.replay.driver import Driver, DriverCache, EnvironmentFailure
from proctor.replay.recorded_requests import EnvironmentRequest, RecordReader, unknown_seed_error


def replay_rows(
    opened: SessionOpened, rows: Iterable[Row], *, driver_cache: DriverCache | None = None
) -> Iterator[RowComparison]:
    """Yield every row of one episode that moved the environment, compared with what comes now.

    The environment is made in this process; a ValidationError says why it cannot be made, or that nobody knows the seed.
    With a `driver_cache` it may be the one that the episode before has left, and stays there for the next.
    """
    own_cache = DriverCache() if driver_cache is None else driver_cache
    try:
        yield from _replay_rows(opened, rows, own_cache)
    finally:
        if driver_cache is None:
            own_cache.drop()


def _replay_rows(opened: SessionOpened, rows: Iterable[Row], driver_cache: DriverCache) -> Iterator[RowComparison]:
    reader = RecordReader(opened.num_envs)
    driver: Driver | None = None
    is_unseeded = False
    for row in rows:
        try:
            request = reader.read(row)
            if request is None:
                continue
            if driver is None:
                driver = driver_cache.driver(opened, 1 if request.reset is None else request.reset.nth)
            is_unseeded = is_unseeded or _lacks_seed(request, driver.resets)
            each = _carry_out(driver, request)
        except ValidationError:
            raise
        except MALFORMED_ROW_ERRORS as problem:
            raise ValidationError(f"row {row.seq} of {row.chain} cannot be read: {problem}") from problem
        if each.found is None:
            driver_cache.drop()
        if is_unseeded and each.differences:
            # That it goes on from the episode before was no more than a hope.
            raise unknown_seed_error()
        yield each
        if each.found is None:
            return


def _carry_out(driver: Driver, request: EnvironmentRequest) -> RowComparison:
    try:
        return compare_row(request, driver.carry_out(request))
    except EnvironmentFailure as problem:
        return compare_failure(request, problem)


def _lacks_seed(request: EnvironmentRequest, resets: int) -> bool:
    """Return whether nobody knows the seed of a reset, but its environment may draw it again; raise if it cannot."""
    if request.reset is None or request.reset.is_seeded:
        return False
    if not resets or resets != request.reset.nth - 1:
        raise unknown_seed_error()
    return True


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


SHOWN: Final = 80
"""Characters of a target that are told."""


class UntrustedRecord(ValidationError):
    """A record names what is made only for who trusts it."""


def check_episode(ledger: Ledger, chain: str, *, trusting: str) -> None:
    """Raise an UntrustedRecord if a replay of the episode needs trust; `trusting` is the command that has it.

    An episode whose beginning cannot be read is another ValidationError.
    """
    with open_rows(ledger, chain) as rows:
        check_opening(read_opening(rows, chain), trusting=trusting)


def check_opening(opened: SessionOpened, *, trusting: str) -> None:
    """Raise an UntrustedRecord if the environment of a session is made only with trust."""
    if not is_registered(opened.target):
        raise UntrustedRecord(
            "to make the environment of this episode would import and run what its record names, which is no environment "
            f"that is registered here; if you trust the record: `{trusting}`",
            found=opened.target[:SHOWN],
            expected="an episode of a registered environment",
        )
    if _names_a_file(opened.settings):
        raise UntrustedRecord(
            "to make the environment of this episode would open a file that its record names; "
            f"if you trust the record: `{trusting}`",
            expected="an episode whose settings name no file",
        )


def _names_a_file(setting: object) -> bool:
    """Return whether a setting, or one inside it, could be the name of something that lies on this machine."""
    if isinstance(setting, Mapping):
        return any(map(_names_a_file, setting.values()))
    if isinstance(setting, list):
        return any(map(_names_a_file, setting))
    if not isinstance(setting, str):
        return False
    return os.sep in setting or os.path.exists(setting)  # noqa: PTH110  # a Path raises for some texts
