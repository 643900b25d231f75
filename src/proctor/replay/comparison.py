"""A row of the record beside what came now.

Rule 1: compared is what the environment decides: observation, metadata, raw reward, the two flags, and the scene where one
    was recorded. Observations that were not stored are compared by their digest.
Rule 2: rewards as they were paid belong to the server, which transformed them: of them only the sum of their parts is checked.
Rule 3: pixels are for people: that a picture is drawn differently now is told, and is no difference.
Rule 4: how many episodes a batch had before this one is no part of the record of this one, so it is not compared.
"""

import math
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import Struct

from proctor.ledger.reader import Row
from proctor.models.events import BatchReset, BatchStepped, EpisodeReset, EpisodeStepped
from proctor.models.pixels import has_pixels, same_pixels
from proctor.replay.batch_driver import FoundBatch
from proctor.replay.difference import Difference, digest_parted, parted, unfolded
from proctor.replay.driver import NULL, Found

CLOSE: Final = 1e-9
"""How exactly a reward is the sum of its parts: rounding is no difference."""
COUNTS: Final = ("episode", "_episode")
"""What a batch says of the episodes that it had in all."""

UNREADABLE: Final = (msgspec.DecodeError, ValueError, TypeError, LookupError, AttributeError)
"""What comes of a row that says something else than its fields promise; a server never wrote it."""

Moving = EpisodeReset | EpisodeStepped | BatchReset | BatchStepped
"""The events that move an environment."""


class Compared(Struct, frozen=True, gc=False):
    """A row that moved the environment, what came now (None: it raised), and how the two differ.

    `step` counts from the reset that began the chain; a batch's own count begins anew with every reset by a mask.
    """

    row: Row
    event: Moving
    step: int
    found: Found | FoundBatch | None
    differences: tuple[Difference, ...] = ()
    redrawn: bool = False
    """Whether its picture in pixels is another now, which is no difference."""

    @property
    def equal(self) -> bool:
        """Whether the record and the replay are the same here."""
        return not self.differences


def compared(row: Row, event: Moving, step: int, found: Found | FoundBatch) -> Compared:
    """Return the row beside what came now."""
    # Most steps are the same byte for byte; only of the others it is asked where they differ.
    if type(event) is EpisodeStepped and type(found) is Found and _is_same(row, event, found):
        return Compared(row, event, step, found)
    differences = tuple(_COMPARE[type(event)](row, event, found))
    return Compared(row, event, step, found, differences, _is_redrawn(event, found))


def _is_redrawn(event: Moving, found: Found | FoundBatch) -> bool:
    """Return whether a row and what came now have pixels, and not the same."""
    if isinstance(event, BatchReset | BatchStepped) or isinstance(found, FoundBatch):
        return False
    recorded = bytes(event.scene)
    return has_pixels(recorded) and has_pixels(found.scene) and not same_pixels(recorded, found.scene)


def _is_same(row: Row, event: EpisodeStepped, found: Found) -> bool:
    """Return whether a step is plainly the same; if not, it may still be, in other words."""
    return (
        row.values
        and event.reward == event.raw_reward
        and same_number(event.raw_reward, found.reward)
        and event.terminated is found.terminated
        and event.truncated is found.truncated
        and bytes(event.observation) == found.observation
        and bytes(event.metadata) == found.metadata
        and (found.scene == NULL or bytes(event.scene) == found.scene)
        and not event.parts
    )


def failure(row: Row, event: Moving, step: int, problem: Exception) -> Compared:
    """Return a row beside nothing, because the environment raised."""
    what = "reset" if isinstance(event, EpisodeReset | BatchReset) else "step"
    return Compared(row, event, step, None, (Difference(what, "an answer", str(problem)),))


def _reset(row: Row, event: EpisodeReset, found: Found) -> Iterator[Difference]:
    return _seen(row, event, found)


def _step(row: Row, event: EpisodeStepped, found: Found) -> Iterator[Difference]:
    yield from _seen(row, event, found)
    if not same_number(event.raw_reward, found.reward):
        yield Difference("reward", event.raw_reward, found.reward)
    if event.terminated is not found.terminated:
        yield Difference("terminated", event.terminated, found.terminated)
    if event.truncated is not found.truncated:
        yield Difference("truncated", event.truncated, found.truncated)
    if event.reward != event.raw_reward or event.parts:
        yield from _parts(event)


def _seen(row: Row, event: EpisodeReset | EpisodeStepped, found: Found) -> Iterator[Difference]:
    if row.values:
        observation = parted("observation", bytes(event.observation), found.observation)
    else:
        observation = digest_parted("observation", row.digest or "", found.observation)
    if observation is not None:
        yield observation
    metadata = parted("metadata", bytes(event.metadata), found.metadata)
    if metadata is not None:
        yield metadata
    if found.scene != NULL and not has_pixels(found.scene):
        scene = parted("scene", bytes(event.scene), found.scene)
        if scene is not None:
            yield scene


def same_number(recorded: float | None, found: float | None) -> bool:
    """Return whether two numbers are the same to the last bit; both may be missing."""
    if recorded is None or found is None:
        return recorded is found
    return recorded == found and (recorded != 0.0 or math.copysign(1.0, recorded) == math.copysign(1.0, found))


def _parts(event: EpisodeStepped) -> Iterator[Difference]:
    if event.raw_reward is None or event.reward is None:
        if event.raw_reward is not event.reward:
            yield Difference("paid reward", event.reward, event.raw_reward)
        return
    total = event.raw_reward + sum(event.parts.values())
    if not math.isclose(total, event.reward, rel_tol=CLOSE, abs_tol=CLOSE):
        yield Difference("paid reward", event.reward, total)


def _batch_reset(row: Row, event: BatchReset, found: FoundBatch) -> Iterator[Difference]:
    return _batch_seen(row, event, found)


def _batch_step(row: Row, event: BatchStepped, found: FoundBatch) -> Iterator[Difference]:
    yield from _batch_seen(row, event, found)
    pairs = (
        ("reward", event.raw_rewards, found.rewards),
        ("terminated", event.terminations, found.terminations),
        ("truncated", event.truncations, found.truncations),
    )
    for what, recorded, now in pairs:
        difference = parted(what, bytes(recorded), now)
        if difference is not None:
            yield difference
    if event.parts:
        yield from _batch_parts(event)


def _batch_seen(row: Row, event: BatchReset | BatchStepped, found: FoundBatch) -> Iterator[Difference]:
    if row.values:
        observations = parted("observation", bytes(event.observations), found.observations)
    else:
        observations = digest_parted("observation", row.digest or "", found.observations)
    if observations is not None:
        yield observations
    infos = parted("metadata", bytes(event.infos), found.infos)
    if infos is not None:
        # Only now: most infos say nothing of counts, and are the same byte for byte.
        infos = parted("metadata", _uncounted(bytes(event.infos)), _uncounted(found.infos))
    if infos is not None:
        yield infos


def _uncounted(infos: bytes) -> bytes:
    told = msgspec.json.decode(infos)
    return msgspec.json.encode({key: value for key, value in told.items() if key not in COUNTS})


def _batch_parts(event: BatchStepped) -> Iterator[Difference]:
    raw, paid, *parts = (numbers(each) for each in (event.raw_rewards, event.rewards, *event.parts.values()))
    total = sum(parts, start=raw)
    if not np.allclose(total, paid, rtol=CLOSE, atol=CLOSE):
        yield Difference("paid reward", paid.tolist(), total.tolist())


def numbers(said: bytes | msgspec.Raw) -> Any:
    """Return an array of a batch, listed or packed."""
    return np.asarray(unfolded(msgspec.json.decode(said)))


_COMPARE: Final[dict[type, Any]] = {
    EpisodeReset: _reset,
    EpisodeStepped: _step,
    BatchReset: _batch_reset,
    BatchStepped: _batch_step,
}
