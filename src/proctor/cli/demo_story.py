"""What a show tells of an episode: folded from the rows of its ledger, one after the other. Pure.

Rule 1: a story knows only what is on record. It is the same whether the rows are read while they are written or years later.
Rule 2: a row that means nothing to people changes nothing.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from proctor.cli.packet_words import packet_words, places
from proctor.ledger.reader import Row
from proctor.models.events import EpisodeClosed, EpisodeReset, EpisodeStepped, PacketJudged, SessionOpened

MOST_TRAIL: Final = 256
IDLE: Final = "S0_IDLE"
ESCALATED: Final = "S8_ESCALATED"


class Note(StrEnum):
    """What sort of line it is."""

    ACCEPTED = "accepted"
    ROUTINE = "routine"
    """The proctor's own word on what a tool did, where all went well."""
    REFUSED = "refused"
    QUESTION = "question"
    ANSWER = "answer"


_NOTES: Final = {"EscalationPacket": Note.QUESTION, "user_input": Note.ANSWER}
_ANSWERED: Final = "record user_input "
_ROUTINE: Final = ("TaskResultPacket SUCCESS", "ObservationPacket")


class _Intent(Struct):
    summary: str


class _Envelope(Struct):
    intent: _Intent


class _Asking(Struct):
    """The part of an escalation that people read first."""

    mcp: _Envelope


@dataclass(frozen=True, slots=True)
class Said:
    """One line of a governed episode with the verdict on it; `at` is in seconds since the reset."""

    at: float
    who: str
    tool: str
    words: str
    walk: str
    """The states that it led through, such as S2>S3."""
    note: Note
    why: str
    """Of a refusal: the rule, and the reason."""


@dataclass(frozen=True, slots=True)
class Moved:
    """One step of the environment, by which tool."""

    at: float
    step: int
    tool: str


Happened = Said | Moved


@dataclass(slots=True)
class Story:
    """An episode so far."""

    opened: SessionOpened | None = None
    scene: dict[str, Any] | None = None
    """As pictures want it: whole, with the trail."""
    state: str = IDLE
    step: int = 0
    total_reward: float = 0.0
    terminated: bool = False
    said: list[Said] = field(default_factory=list)
    closed: EpisodeClosed | None = None
    _began: float = 0.0
    _trail: deque[Any] = field(default_factory=lambda: deque(maxlen=MOST_TRAIL))

    @property
    def refusals(self) -> list[Said]:
        """The lines that were refused."""
        return [said for said in self.said if said.note is Note.REFUSED]

    @property
    def answers(self) -> list[Said]:
        """What a human answered."""
        return [said for said in self.said if said.note is Note.ANSWER]

    @property
    def asks(self) -> bool:
        """Whether a question waits for a human."""
        return self.state == ESCALATED

    def take(self, row: Row) -> Happened | None:
        """Go on by one row, and return what people may want to hear of it."""
        event = row.event
        if isinstance(event, PacketJudged):
            return self._judged(event)
        if isinstance(event, EpisodeStepped):
            return self._stepped(event)
        if isinstance(event, SessionOpened):
            self.opened = event
        elif isinstance(event, EpisodeReset):
            self._reset(event)
        elif isinstance(event, EpisodeClosed):
            self.closed = event
        return None

    def _reset(self, event: EpisodeReset) -> None:
        self._began = event.at
        self._trail.clear()
        scene = _decoded(event.scene)
        if scene is not None:
            self.scene = {**scene, "frame": self._followed(scene["frame"])}

    def _stepped(self, event: EpisodeStepped) -> Moved:
        self.step = event.step
        self.total_reward += event.reward or 0.0
        self.terminated = event.terminated
        frame = _decoded(event.scene)
        if frame is not None and self.scene is not None:
            self.scene = {**self.scene, "frame": self._followed(frame)}
        return Moved(event.at - self._began, event.step, event.tool or "")

    def _followed(self, frame: dict[str, Any]) -> dict[str, Any]:
        """Return a frame with the trail, which only the frames before it tell."""
        agent = frame.get("agent")
        if isinstance(agent, dict):
            self._trail.append(agent["at"])
            return {**frame, "trail": list(self._trail)}
        return frame

    def _judged(self, event: PacketJudged) -> Said:
        why = "" if event.accepted else f"{', '.join(event.rules)}: {event.reason}"
        words, walk = packet_words(event.kind, event.line), places(event.path)
        note = _note(event, words, walk)
        if note is Note.QUESTION:
            words = _question(event.line) or words
        elif note is Note.ANSWER:
            words = words.removeprefix(_ANSWERED)
        self.state = event.state or self.state
        said = Said(event.at - self._began, event.principal, event.tool or "", words, walk, note, why)
        self.said.append(said)
        return said


def _note(event: PacketJudged, words: str, walk: str) -> Note:
    if not event.accepted:
        return Note.REFUSED
    if event.principal == "system" and ">" not in walk and words.startswith(_ROUTINE):
        return Note.ROUTINE
    return _NOTES.get(event.kind, Note.ACCEPTED)


def _question(line: Raw) -> str:
    """Return what an escalation asks; empty where it does not say."""
    try:
        return msgspec.json.decode(line, type=_Asking).mcp.intent.summary
    except msgspec.DecodeError:
        return ""


def _decoded(scene: Raw) -> dict[str, Any] | None:
    found = msgspec.json.decode(scene)
    return found if isinstance(found, dict) else None
