"""The record carried out again: every reset and every action, in order, beside what was recorded of it.

Rule 1: rows that do not move the environment (packets and verdicts, grants, refusals) are passed over.
Rule 2: a difference does not end it; an environment that raises does, for there is nothing to go on with.
Rule 3: an episode whose seed nobody knows is replayed only where the episodes before it were, in the same environment: there
    its generator may draw what it drew. If that fails, the episode cannot be replayed, which is not a difference.
"""

from collections.abc import Iterable, Iterator
from typing import Final, cast

from proctor.errors import ValidationError
from proctor.ledger.reader import Row
from proctor.models.events import BatchReset, BatchStepped, EpisodeReset, EpisodeStepped, SessionOpened
from proctor.replay.batch_driver import FoundBatch
from proctor.replay.comparison import UNREADABLE, Compared, Moving, compared, failure
from proctor.replay.driver import Found, Raised, SingleDriver
from proctor.replay.seeds import no_seed, seed_of, seeds_of
from proctor.replay.supply import Driver, Supply

MOVING: Final = frozenset({EpisodeReset, EpisodeStepped, BatchReset, BatchStepped})


def redriven(opened: SessionOpened, rows: Iterable[Row], *, supply: Supply | None = None) -> Iterator[Compared]:
    """Yield every row of one episode that moved the environment, compared with what comes now.

    The environment is made in this process; a ValidationError says why it cannot be made, or that nobody knows the seed.
    With a `supply` it may be the one that the episode before has left, and stays there for the next.
    """
    own = supply is None
    supplied = Supply() if supply is None else supply
    try:
        yield from _redriven(opened, rows, supplied)
    finally:
        if own:
            supplied.drop()


def _redriven(opened: SessionOpened, rows: Iterable[Row], supply: Supply) -> Iterator[Compared]:
    driver: Driver | None = None
    goes_on = False
    step = 0
    for row in rows:
        kind = type(row.event)
        if kind not in MOVING:
            continue
        event = cast("Moving", row.event)
        # Counted here: with a batch's reset by a mask the session's own count begins anew.
        step += kind is EpisodeStepped or kind is BatchStepped
        try:
            if driver is None:
                driver = supply.driver(opened, _nth(event))
                goes_on = _goes_on(driver, event)
            each = compared(row, event, step, moved(driver, event))
        except Raised as problem:
            supply.drop()
            each = failure(row, event, step, problem)
        except ValidationError:
            raise
        except UNREADABLE as problem:
            raise ValidationError(f"row {row.seq} of {row.chain} cannot be read: {problem}") from problem
        if goes_on and each.differences:
            # That it goes on from the episode before was no more than a hope.
            raise no_seed()
        yield each
        if each.found is None:
            return


def _goes_on(driver: Driver, event: Moving) -> bool:
    """Return whether nobody knows the seed of an episode, but its environment may draw it again; raise if it cannot."""
    if not isinstance(event, EpisodeReset) or seed_of(event) is not None:
        return False
    if driver.resets and driver.resets == event.nth - 1:
        return True
    raise no_seed()


def moved(driver: Driver, event: Moving) -> Found | FoundBatch:
    """Carry out what a row says; raise `Raised` if the environment does not answer."""
    if isinstance(driver, SingleDriver):
        if type(event) is EpisodeStepped:
            return driver.step(event)
        if isinstance(event, EpisodeReset):
            return driver.begin(event, seed_of(event))
    elif isinstance(event, BatchStepped):
        return driver.step(event)
    elif isinstance(event, BatchReset):
        return driver.begin(event, seeds_of(event, driver.vector.num_envs))
    raise ValidationError(
        "this record mixes one environment and a batch", found=type(event).__name__, expected="one or the other"
    )


def _nth(event: Moving) -> int:
    """Return which reset of its environment an episode began with."""
    if not isinstance(event, EpisodeReset | BatchReset):
        raise ValidationError("this record does not begin with a reset", found=f"step {event.step}", expected="a reset")
    return event.nth
