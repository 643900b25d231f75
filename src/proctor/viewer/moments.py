"""The rows of a chain as what can be compared: moments (resets and steps) and the lines of a governed episode. Pure.

Rule 1: nothing large is read here: a value that a row does not hold is named by its digest, and looked up when somebody asks for it.
Rule 2: a row that cannot be read is passed over, and whoever reads is told of it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, TypeAlias

import msgspec

from proctor.errors import ValidationError
from proctor.ledger.files import Stored
from proctor.ledger.rows import Told, lacks_value, told_in
from proctor.models.events import BatchReset, BatchStepped, EpisodeReset, EpisodeStepped, PacketJudged
from proctor.viewer.counting import StepCount

NULL: Final = b"null"
MARK: Final = b"packet_judged"
"""Stands in the body of every row that holds a judged line, so that the others need not be read."""
Lookup: TypeAlias = Callable[[str], bytes | None]
"""Finds a value by its digest; None: it was not stored."""
Values: TypeAlias = tuple[bytes | None, bytes | None]
"""An observation and a picture as JSON; None: it was not stored."""
Unread: TypeAlias = Callable[[int], object]
"""Is told the number of a row that cannot be read."""
Moving: TypeAlias = EpisodeReset | EpisodeStepped | BatchReset | BatchStepped

NO_BODY: Final = Told()
"""Of a row that was not read because it is no line."""
_encode: Final = msgspec.json.Encoder().encode


def ignored(number: int) -> None:
    """Pass over a row of which nobody wants to know."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A reset or a step, as far as it is compared."""

    number: int
    step: int
    """Counted from the reset that began the chain."""
    action: bytes
    observation: str
    """Its digest."""
    reward: bytes | None
    """As it was paid; None: nobody knows, and it is not compared."""
    parts: bytes
    """Of the reward; compared where that is."""
    raw_reward: bytes
    terminated: bytes
    truncated: bytes
    scene: str
    """The digest of the picture; empty: there is none, and it is not compared."""
    values: Callable[[], Values]
    """Looks behind the digests."""
    after_gap: bool = False
    """Whether a row before it could not be read."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """A line of a governed episode; `own` is what stands in the ids that its proctor made."""

    number: int
    step: int
    kind: str
    accepted: bool
    rules: tuple[str, ...]
    state: str
    line: bytes
    own: str


def readable(content: bytes) -> Told | None:
    """Return what a row says, None if it cannot be read."""
    try:
        return told_in(content)
    except (ValidationError, TypeError):
        return None


def moments(rows: Iterable[Stored], lookup: Lookup, unread: Unread = ignored, *, paid: bool = True) -> Iterator[Moment]:
    """Yield the resets and the steps in these rows; without `paid` the rewards as they were paid are not compared."""
    steps = StepCount()
    gap = False
    for number, _, _, content, _ in rows:
        if MARK in content[:80]:
            continue
        body = readable(content)
        if body is None:
            unread(number)
            gap = True
            continue
        event = body.event
        if isinstance(event, EpisodeReset | EpisodeStepped | BatchReset | BatchStepped):
            if isinstance(event, EpisodeStepped | BatchStepped):
                steps.stepped(event.step)
            else:
                steps.begun()
            yield _moment(number, steps.count, event, body, lookup, paid, gap)
            gap = False


def lines(rows: Iterable[Stored], unread: Unread = ignored) -> Iterator[Spoken]:
    """Yield the lines of a governed episode in these rows."""
    for number, _, _, content, _ in rows:
        body = readable(content) if MARK in content else NO_BODY
        if body is None:
            unread(number)
            continue
        event = body.event
        if isinstance(event, PacketJudged):
            yield Spoken(
                number,
                event.step,
                event.kind,
                event.accepted,
                tuple(event.rules),
                event.state,
                bytes(event.line),
                f"_{event.session}_{event.epoch}_",
            )


def _moment(number: int, step: int, event: Moving, body: Told, lookup: Lookup, paid: bool, gap: bool) -> Moment:
    action, reward, raw_reward, terminated, truncated = _said(event)
    scene = b"" if isinstance(event, BatchReset | BatchStepped) else bytes(event.scene)
    return Moment(
        number,
        step,
        action,
        body.digest or "",
        reward if paid else None,
        _encode({}) if isinstance(event, EpisodeReset | BatchReset) else _encode(event.parts),
        raw_reward,
        terminated,
        truncated,
        body.scene or (sha256(scene).hexdigest() if scene not in (b"", NULL) else ""),
        lambda: _values(event, body, lookup),
        gap,
    )


def _said(event: Moving) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    """Return what was done, and what was given for it, as JSON; a reset says null."""
    if isinstance(event, EpisodeStepped):
        flags = (_encode(event.terminated), _encode(event.truncated))
        return bytes(event.action), _encode(event.reward), _encode(event.raw_reward), *flags
    if isinstance(event, BatchStepped):
        arrays = (event.actions, event.rewards, event.raw_rewards, event.terminations, event.truncations)
        action, reward, raw_reward, terminated, truncated = map(bytes, arrays)
        return action, reward, raw_reward, terminated, truncated
    return NULL, NULL, NULL, NULL, NULL


def _values(event: Moving, body: Told, lookup: Lookup) -> Values:
    absent = body.digest is not None and lacks_value(event, body.digest)
    seen = event.observations if isinstance(event, BatchReset | BatchStepped) else event.observation
    observation = lookup(body.digest or "") if absent else bytes(seen)
    if isinstance(event, BatchReset | BatchStepped):
        return observation, None
    scene = bytes(event.scene) if body.scene is None else lookup(body.scene)
    return observation, None if scene == NULL else scene
