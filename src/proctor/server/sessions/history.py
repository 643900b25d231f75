"""What the record of a session says about where it stands: read, not believed yet (`rebuild` tries it). Pure."""

from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from proctor.models.control import Code
from proctor.models.events import (
    NULL,
    AgentGranted,
    AgentRevoked,
    BatchReset,
    BatchStepped,
    EpisodeClosed,
    EpisodeReset,
    EpisodeStepped,
    Event,
    Failed,
    PacketJudged,
    SessionResumed,
    encode_event,
)
from proctor.models.pixels import has_pixels
from proctor.server.sessions.episode_status import EpisodeStatus, Loss, SessionPosition
from proctor.server.sessions.resets import AnyReset
from proctor.server.sessions.response_builder import Caller

ENDED: Final = "ended"
"""The reason to close an episode that has come to its end: it stays as it is until the next."""
GOES_ON: Final = ("reset", "lost", ENDED)
"""The reasons to close an episode after which its session can have another."""
NO_NEXT_EPISODE: Final = Loss(
    Code.EPISODE_LOST, "it was closed, and the next one had not begun when the server was ended"
)
AnyStep = EpisodeStepped | BatchStepped
EventT = TypeVar("EventT", bound=Event)
_VALUES: Final[dict[type, str]] = {
    EpisodeReset: "observation",
    EpisodeStepped: "observation",
    BatchReset: "observations",
    BatchStepped: "observations",
}
_encode: Final = msgspec.json.Encoder().encode


@dataclass(slots=True)
class SessionHistory:
    """What can be told without the environment."""

    position: SessionPosition = field(default_factory=SessionPosition)
    granted: dict[str, AgentGranted] = field(default_factory=dict)
    """By name: the grants of the latest episode that nobody took back."""
    agents: dict[str, str] = field(default_factory=dict)
    """What the agents of all its grants are called."""
    packets: list[PacketJudged] = field(default_factory=list)
    closed: EpisodeClosed | None = None
    """What was said of the latest episode when it was closed."""
    closing: str | None = None
    """Why the session was being closed when the server was ended; None: it was not."""

    def caller(self, step: AnyStep) -> Caller | None:
        """Return the agent that took a step; None: it was the orchestrator."""
        if isinstance(step, BatchStepped) or step.grant is None:
            return None
        return Caller(step.grant, self.agents.get(step.grant, ""), step.tool or "")

    def _begin(self, event: AnyReset) -> None:
        was = self.position
        self.position = SessionPosition(
            event.epoch, 0, was.total_steps, event.episode_id, event.nth, False, None, EpisodeStatus()
        )

    def _step(self, event: AnyStep) -> None:
        self.position.step = event.step
        self.position.total_steps += 1
        if isinstance(event, EpisodeStepped):
            self.position.standing.move(event)

    def _grant(self, event: AgentGranted) -> None:
        self.granted[event.grant] = event
        self.agents[event.grant] = event.agent

    def _revoke(self, event: AgentRevoked) -> None:
        self.granted.pop(event.grant, None)

    def _fail(self, event: Failed) -> None:
        if event.lost:
            self._note_loss(event.code, f"a {event.request or 'request'} failed before the server was ended")

    def _resume(self, event: SessionResumed) -> None:
        if event.lost is not None:
            self._note_loss(Code.EPISODE_LOST, event.lost)

    def _close(self, event: EpisodeClosed) -> None:
        self.position.concluded = True
        self.closed = event
        if event.reason not in GOES_ON:
            self.closing = event.reason
        if event.reason != ENDED:
            self._note_loss(NO_NEXT_EPISODE.code, NO_NEXT_EPISODE.message)

    def _note_loss(self, code: str, message: str) -> None:
        """Note a loss; what was asked of a lost episode later is no other one."""
        if self.position.loss is None:
            self.position.loss = Loss(code, message)

    def take(self, event: Event) -> None:
        """Take the next event into account."""
        taken: Any = _HANDLERS.get(type(event))
        if taken is not None:
            taken(self, event)


_HANDLERS: Final[dict[type, Any]] = {
    EpisodeReset: SessionHistory._begin,
    BatchReset: SessionHistory._begin,
    EpisodeStepped: SessionHistory._step,
    BatchStepped: SessionHistory._step,
    AgentGranted: SessionHistory._grant,
    AgentRevoked: SessionHistory._revoke,
    PacketJudged: lambda history, event: history.packets.append(event),
    Failed: SessionHistory._fail,
    SessionResumed: SessionHistory._resume,
    EpisodeClosed: SessionHistory._close,
}


def read_history(events: list[Event], steps_before: int = 0) -> SessionHistory:
    """Return what the events of a session's latest episode say; `steps_before` were taken in earlier ones."""
    history = SessionHistory(SessionPosition(total_steps=steps_before))
    for event in events:
        history.take(event)
    return history


def find_difference(recorded: EventT, now: EventT, digest: str | None = None) -> str | None:
    """Return which fields are not as they were on record; None: all are the same, bit by bit.

    `digest` is the SHA-256 of the observation that was recorded, whose value may be null instead. A picture is compared
    where both have one, but never pixels: what people look at is no reason to lose an episode.
    """
    field = _VALUES.get(type(recorded))
    if field is not None and digest is not None and sha256(getattr(now, field)).hexdigest() == digest:
        recorded, now = _without(recorded, field), _without(now, field)
    if _is_unlike_by_nature(getattr(recorded, "scene", None), getattr(now, "scene", None)):
        recorded, now = _without(recorded, "scene"), _without(now, "scene")
    if encode_event(recorded) == encode_event(now):
        return None
    names = recorded.__struct_fields__
    return ", ".join(name for name in names if _encode(getattr(recorded, name)) != _encode(getattr(now, name)))


def _is_unlike_by_nature(recorded: Raw | None, now: Raw | None) -> bool:
    """Return whether two pictures are not compared: one is missing, or is made of pixels."""
    if recorded is None or now is None or recorded == now:
        return False
    return NULL in (recorded, now) or has_pixels(recorded) or has_pixels(now)


def _without(event: EventT, field: str) -> EventT:
    return replace(event, **{field: Raw(b"null")})
