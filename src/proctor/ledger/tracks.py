"""Where a chain stands: what the writer goes on from. Values only."""

from math import isfinite
from typing import Final

from msgspec import Struct

from proctor.ledger.rows import Observations, Own
from proctor.models.events import BatchStepped, EpisodeStepped, Event

TERMINATED: Final = 1
TRUNCATED: Final = 2


class Tally(Struct, frozen=True, gc=False):
    """What can be said of an episode without reading it again: its steps, rewards and flags so far."""

    steps: int = 0
    total: float | None = None
    """None: no step had a reward."""
    ended: int = 0
    """TERMINATED, TRUNCATED, both or neither."""


NOTHING: Final = Tally()


def tallied(tally: Tally, event: Event | Own) -> Tally:
    """Return the tally after an event."""
    if type(event) is EpisodeStepped:
        return stepped(tally, event.step, event.reward, event.terminated, event.truncated)
    if type(event) is BatchStepped:
        return batch_stepped(tally)
    return tally


def stepped(tally: Tally, step: int, reward: float | None, terminated: bool, truncated: bool) -> Tally:
    """Return the tally after a step of one environment."""
    total = tally.total
    if reward is not None:
        total = reward if total is None else total + reward
    return Tally(step, total, tally.ended | terminated | truncated << 1)


def batch_stepped(tally: Tally) -> Tally:
    """Return the tally after a step of a batch, whose own count begins anew when some of it are reset."""
    return Tally(tally.steps + 1, tally.total, tally.ended)


def told_total(tally: Tally) -> float | None:
    """Return the sum of the rewards as a row can say it; None: there is none, or it is no finite number."""
    return tally.total if tally.total is not None and isfinite(tally.total) else None


class Track(Struct, frozen=True, gc=False):
    """A session and its latest chain, or the server and its own."""

    opened: bytes = b""
    """The session's SessionOpened as the body of a first row; empty: it was never stated."""
    name: str = ""
    """Of the latest chain; empty: there is none."""
    first: int = 0
    seq: int = -1
    number: int = 0
    """Of the last row."""
    hash: bytes = b""
    open: bool = False
    keeps: Observations = "all"
    tally: Tally = NOTHING
    gone: bool = False
    """The session is closed."""
