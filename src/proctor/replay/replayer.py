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
from proctor.replay import comparison
from proctor.replay.driver import Driver, DriverCache, EnvironmentFailure


def replay_rows(
    opened: SessionOpened, rows: Iterable[Row], *, driver_cache: DriverCache | None = None
) -> Iterator[comparison.RowComparison]:
    """Yield every row of one episode that moved the environment, compared with what comes now.

    The environment is made in this process; a ValidationError says why it cannot be made, or that nobody knows the seed.
    With a `driver_cache` it may be the one that the episode before has left, and stays there for the next.
    """
    if driver_cache is None:
        with DriverCache() as own:
            yield from replay_rows(opened, rows, driver_cache=own)
            return
    reader = comparison.RecordReader(opened.num_envs)
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
        except comparison.MALFORMED_ROW_ERRORS as problem:
            raise ValidationError(f"row {row.seq} of {row.chain} cannot be read: {problem}") from problem
        if each.found is None:
            driver_cache.drop()
        if is_unseeded and each.differences:
            # That it goes on from the episode before was no more than a hope.
            raise _unknown_seed_error()
        yield each
        if each.found is None:
            return


def _carry_out(driver: Driver, request: comparison.EnvironmentRequest) -> comparison.RowComparison:
    try:
        return comparison.compare_row(request, driver.carry_out(request))
    except EnvironmentFailure as problem:
        difference = comparison.Difference("step" if request.reset is None else "reset", "an answer", str(problem))
        return comparison.RowComparison(request.row, request.event, request.step, None, (difference,))


def _lacks_seed(request: comparison.EnvironmentRequest, resets: int) -> bool:
    """Return whether nobody knows the seed of a reset, but its environment may draw it again; raise if it cannot."""
    if request.reset is None or request.reset.is_seeded:
        return False
    if not resets or resets != request.reset.nth - 1:
        raise _unknown_seed_error()
    return True


def _unknown_seed_error() -> ValidationError:
    return ValidationError(
        "this episode cannot be replayed: it was begun without a seed, and its environment does not say which it drew",
        expected='a seed, or an environment that reports the one it drew as info["seed"]',
    )


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
    first: comparison.Difference | None = None
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
        with DriverCache() as own:
            return _replay_once(ledger, chain, progress, own)
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
    begin: comparison.RowComparison | None = None
    last: comparison.RowComparison | None = None
    redrawn = 0
    why_not = ""
    try:
        with open_rows(ledger, chain) as rows:
            for last in replay_rows(read_opening(rows, chain), rows, driver_cache=driver_cache):
                begin = begin or last
                redrawn += last.redrawn
                if last.differences:
                    break
                if progress is not None and not last.step % PROGRESS_EVERY:
                    progress(last.step)
    except ValidationError as problem:
        why_not = str(problem)
    if begin is None or last is None:
        why_not = why_not or "this episode cannot be replayed: its record has no reset"
        return ReplayResult(
            chain,
            0,
            identical=False,
            seconds=time.perf_counter() - started,
            why_not=why_not,
            notes=driver_cache.notes,
        )
    differs = bool(last.differences)
    pictures = "one picture is" if redrawn == 1 else f"{redrawn} pictures are"
    redrawn_note = (f"{pictures} not as recorded; pixels are for people, and make no difference",) if redrawn else ()
    return ReplayResult(
        chain,
        last.step,
        identical=not differs and not why_not,
        first=last.differences[0] if differs else None,
        at_step=last.step if differs else None,
        seq=last.row.seq if differs else None,
        seconds=time.perf_counter() - started,
        recorded_seconds=last.event.at - begin.event.at,
        by_digest=not begin.row.values,
        why_not=why_not,
        notes=(*driver_cache.notes, *redrawn_note),
    )


class UntrustedRecord(ValidationError):
    """A record names what is made only for who trusts it."""


def check_episode(ledger: Ledger, chain: str, *, trusting: str) -> None:
    """Raise an UntrustedRecord if a replay of the episode needs trust; `trusting` is the command that has it.

    An episode whose beginning cannot be read is another ValidationError.
    """
    with open_rows(ledger, chain) as rows:
        opened = read_opening(rows, chain)
    if not is_registered(opened.target):
        raise UntrustedRecord(
            "to make the environment of this episode would import and run what its record names, which is no environment "
            f"that is registered here; if you trust the record: `{trusting}`",
            found=opened.target[:80],
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
