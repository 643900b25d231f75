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

from proctor.ledger.reader import Row
from proctor.models.events import EpisodeClosed, EpisodeReset, EpisodeStepped, PacketJudged, SessionOpened
from proctor.narration.values import describe_packet, format_path

MOST_TRAIL: Final = 256
IDLE: Final = "S0_IDLE"
ESCALATED: Final = "S8_ESCALATED"


class LineKind(StrEnum):
    """What sort of line it is."""

    ACCEPTED = "accepted"
    ROUTINE = "routine"
    """The proctor's own word on what a tool did, where all went well."""
    REFUSED = "refused"
    QUESTION = "question"
    ANSWER = "answer"


_LINE_KINDS: Final = {"EscalationPacket": LineKind.QUESTION, "user_input": LineKind.ANSWER}
_ANSWER_PREFIX: Final = "record user_input "
_ROUTINE: Final = ("TaskResultPacket SUCCESS", "ObservationPacket")


class _Intent(Struct):
    summary: str


class _Envelope(Struct):
    intent: _Intent


class _Escalation(Struct):
    """The part of an escalation that people read first."""

    mcp: _Envelope


@dataclass(frozen=True, slots=True)
class JudgedLine:
    """One line of a governed episode with the verdict on it; `at` is in seconds since the reset."""

    at: float
    who: str
    tool: str
    words: str
    walk: str
    """The states that it led through, such as S2>S3."""
    kind: LineKind
    why: str
    """Of a refusal: the rule, and the reason."""


@dataclass(frozen=True, slots=True)
class AgentMove:
    """One step of the environment, by which tool."""

    at: float
    step: int
    tool: str


StoryEvent = JudgedLine | AgentMove


@dataclass(slots=True)
class EpisodeStory:
    """An episode so far."""

    opened: SessionOpened | None = None
    scene: dict[str, Any] | None = None
    """As pictures want it: whole, with the trail."""
    state: str = IDLE
    step: int = 0
    total_reward: float = 0.0
    terminated: bool = False
    said: list[JudgedLine] = field(default_factory=list)
    closed: EpisodeClosed | None = None
    _began: float = 0.0
    _trail: deque[Any] = field(default_factory=lambda: deque(maxlen=MOST_TRAIL))

    @property
    def refusals(self) -> list[JudgedLine]:
        """The lines that were refused."""
        return [said for said in self.said if said.kind is LineKind.REFUSED]

    @property
    def answers(self) -> list[JudgedLine]:
        """What a human answered."""
        return [said for said in self.said if said.kind is LineKind.ANSWER]

    @property
    def asks(self) -> bool:
        """Whether a question waits for a human."""
        return self.state == ESCALATED

    def add_row(self, row: Row) -> StoryEvent | None:
        """Go on by one row, and return what people may want to hear of it."""
        event = row.event
        if isinstance(event, PacketJudged):
            return self._add_packet(event)
        if isinstance(event, EpisodeStepped):
            return self._add_step(event)
        if isinstance(event, SessionOpened):
            self.opened = event
        elif isinstance(event, EpisodeReset):
            self._add_reset(event)
        elif isinstance(event, EpisodeClosed):
            self.closed = event
        return None

    def _add_reset(self, event: EpisodeReset) -> None:
        self._began = event.at
        self._trail.clear()
        scene = _decode_scene(event.scene)
        if scene is not None:
            self.scene = {**scene, "frame": self._add_trail(scene["frame"])}

    def _add_step(self, event: EpisodeStepped) -> AgentMove:
        self.step = event.step
        self.total_reward += event.reward or 0.0
        self.terminated = event.terminated
        frame = _decode_scene(event.scene)
        if frame is not None and self.scene is not None:
            self.scene = {**self.scene, "frame": self._add_trail(frame)}
        return AgentMove(event.at - self._began, event.step, event.tool or "")

    def _add_trail(self, frame: dict[str, Any]) -> dict[str, Any]:
        """Return a frame with the trail, which only the frames before it tell."""
        agent = frame.get("agent")
        if isinstance(agent, dict):
            self._trail.append(agent["at"])
            return {**frame, "trail": list(self._trail)}
        return frame

    def _add_packet(self, event: PacketJudged) -> JudgedLine:
        why = "" if event.accepted else f"{', '.join(event.rules)}: {event.reason}"
        words, walk = describe_packet(event.kind, event.line), format_path(event.path)
        note = _classify_line(event, words, walk)
        if note is LineKind.QUESTION:
            words = _find_question(event.line) or words
        elif note is LineKind.ANSWER:
            words = words.removeprefix(_ANSWER_PREFIX)
        self.state = event.state or self.state
        said = JudgedLine(event.at - self._began, event.principal, event.tool or "", words, walk, note, why)
        self.said.append(said)
        return said


def _classify_line(event: PacketJudged, words: str, walk: str) -> LineKind:
    if not event.accepted:
        return LineKind.REFUSED
    if event.principal == "system" and ">" not in walk and words.startswith(_ROUTINE):
        return LineKind.ROUTINE
    return _LINE_KINDS.get(event.kind, LineKind.ACCEPTED)


def _find_question(line: Raw) -> str:
    """Return what an escalation asks; empty where it does not say."""
    try:
        return msgspec.json.decode(line, type=_Escalation).mcp.intent.summary
    except msgspec.DecodeError:
        return ""


def _decode_scene(scene: Raw) -> dict[str, Any] | None:
    found = msgspec.json.decode(scene)
    return found if isinstance(found, dict) else None
