"""A row read only as far as an audit or a list needs it, which most rows are. Pure."""

from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from proctor.errors import ValidationError
from proctor.ledger.rows import UNREADABLE, Observations


class GlancedEvent(Struct, frozen=True, gc=False, tag=False):
    """As much of an event as an audit or a list needs."""

    event: str
    at: float = 0.0
    step: int = 0
    reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    accepted: bool = True
    state: str | None = ""
    lost: bool | str | None = False
    """Of a session that was taken up again: why its episode cannot go on."""
    agent: str = ""
    observation: Raw | UnsetType = UNSET
    observations: Raw | UnsetType = UNSET


class Glance(Struct, frozen=True, gc=False):
    """A body whose event is read only as far as that, in one go; its own statement not at all."""

    digest: str | None = None
    event: GlancedEvent | UnsetType = UNSET
    observations: Observations | None = None
    own: Raw | UnsetType = UNSET
    scene: str | None = None


_GLANCE: Final = msgspec.json.Decoder(Glance)


def glanced(body: bytes) -> Glance:
    """Return the body at a glance, or raise a ValidationError."""
    try:
        glance = _GLANCE.decode(body)
    except UNREADABLE as problem:
        raise ValidationError(f"not a row of a ledger: {problem}") from problem
    if (glance.event is UNSET) == (glance.own is UNSET):
        raise ValidationError("not a row of a ledger", expected="either an event or a statement of the ledger's own")
    return glance
