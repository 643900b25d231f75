"""What a governor remembers of its episode besides what the judge does: made from the lines on record, and from nothing else.

Rule: `EpisodeMemory.note` is told of every line, in order, when it is stated and when it is read back from the record; so a
governor that was rebuilt knows what the one before knew.
"""

import re
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Final, TypeAlias

import msgspec
from msgspec import Raw, Struct

from proctor.episode.episode_state import BEGINNING
from proctor.episode.packets import fields
from proctor.episode.packets.enums import DecisionOutcome, Level, RecordKind
from proctor.episode.packets.reader import AnyPacket, Packet
from proctor.episode.transition_table import ProtocolState
from proctor.models.events import PacketJudged
from proctor.server.governed.policy import GuardedAction

MOST_STATED: Final = 200
"""Agents' own ids of packets that are remembered, the latest."""
MOST_BELIEFS: Final = 1000
"""Whose last value is remembered."""
LONGEST_NAME: Final = 1024
LONGEST_VALUE: Final = 1024
"""Bytes of a value that are remembered and repeated; a longer one is named by its digest."""


class TokenRequest(Struct, frozen=True, tag="token_request"):
    """An agent's request of a token, which waits for an operator: what is put on record of it."""

    id: str
    tools: list[str]
    operations: list[str]
    uses: int
    rationale: str
    grant: str | None = None
    since: float = 0.0


class TokenDenial(Struct, frozen=True, tag="token_denied"):
    """An operator's no to such a request."""

    id: str
    text: str = ""


Note: TypeAlias = TokenRequest | TokenDenial
"""What is on record of a governed episode without being a line of the judge's stream."""
NOTES: Final = {"token_request": TokenRequest, "token_denied": TokenDenial}
REQUEST: Final = "_request"
"""The note of a token that names the request which it answers."""
PACKET_ID: Final = re.compile(f"pkt_{fields.ID_TAIL}")
STATED_ID: Final = "_stated_id"
"""The note of a packet that keeps what its agent calls it."""


class OperatorAnswer(Struct, frozen=True):
    """What an operator answered to an escalation."""

    choice: str | None = None
    text: str = ""
    escalation: str = ""


@dataclass(frozen=True, slots=True)
class LatestObservation:
    """The latest observation: its packet, and what it says."""

    packet_id: str
    at: datetime
    data: bytes
    tool: str | None


@dataclass(slots=True)
class EpisodeMemory:
    """What is remembered."""

    lines: int = 0
    """How many there have been, for ids."""
    refusals: int = 0
    at: datetime = BEGINNING
    """The time of the latest line."""
    previous: str | None = None
    """The latest packet that was accepted."""
    seen: LatestObservation | None = None
    decision: str | None = None
    stakes: Level | None = None
    """Of the latest decision."""
    escalation: AnyPacket | None = None
    asker: str | None = None
    """Whose agent escalated."""
    answer: OperatorAnswer | None = None
    """The latest answer of an operator."""
    leave: bool = False
    """Whether the asker has decided no ACT since that answer."""
    asked: bool = False
    """Whether the asker decided the latest ACT, after an answer of its own."""
    verified: bool = False
    """Whether a verification was completed in this episode."""
    verified_since_act: bool = False
    """Whether no ACT was decided since."""
    times: dict[str, datetime] = field(default_factory=dict)
    """When evidence was stated, by packet."""
    beliefs: dict[tuple[str, str], Raw] = field(default_factory=dict)
    """The last value of each; of a long one the digest."""
    requests: dict[str, TokenRequest] = field(default_factory=dict)
    """Tokens that were asked for and neither issued nor denied."""
    issued: dict[str, str] = field(default_factory=dict)
    """The tokens that answered requests."""
    denied: dict[str, TokenDenial] = field(default_factory=dict)
    decided: dict[str, str] = field(default_factory=dict)
    """The latest request of each grant that was issued or denied."""
    stated: dict[tuple[str | None, str], str] = field(default_factory=dict)
    """What packets are called, by the grants of their agents and the agents' own ids."""

    def allows(self, grant: str | None, deed: GuardedAction) -> bool:
        """Return whether an operator has answered before what this agent does; an answer is for the agent who asked."""
        return self.asker == grant and (self.leave if deed is GuardedAction.ACT else self.asked)

    def note(self, event: PacketJudged, said: AnyPacket | fields.Record | Note | None) -> None:
        """Remember a line; `said` is what it says, None if nobody can read it."""
        self.lines += 1
        if not event.accepted:
            self.refusals += 1
        match said:
            case Packet() if event.judged:
                self.at = max(self.at, said.header.created_at)
                if event.accepted:
                    self._remember_packet(event, said)
            case fields.Record() if event.judged:
                self.at = max(self.at, said.at)
                if event.accepted and said.record is RecordKind.USER_INPUT:
                    self.answer, self.leave = _parse_answer(said), True
            case TokenRequest() if event.accepted:
                self.requests[said.id] = said
            case TokenDenial():
                self.denied[said.id] = said
                self._close_request(said.id)
        if event.state == ProtocolState.SAFEMODE:
            # What was asked before is over with it.
            for request in list(self.requests):
                self._close_request(request)

    def _remember_packet(self, event: PacketJudged, packet: AnyPacket) -> None:
        name, at, payload = packet.header.packet_id, packet.header.created_at, packet.payload
        self.previous = name
        if STATED_ID in packet.notes:
            self._remember_agent_id(event.grant, packet.notes[STATED_ID], name)
        match payload:
            case fields.ObservationPayload():
                self.seen = LatestObservation(name, at, msgspec.json.encode(payload.data), payload.source_tool)
                self.times[name] = at
            case fields.TaskResult():
                self.times[name] = at
            case fields.Decision():
                self._remember_decision(event, packet)
            case fields.BeliefUpdate():
                self._remember_beliefs(event, payload)
            case fields.Escalation():
                self.escalation, self.asker, self.leave = packet, event.grant, False
            case fields.Token() if REQUEST in packet.notes:
                request = msgspec.json.decode(packet.notes[REQUEST], type=str)
                self.issued[request] = payload.token_id
                self._close_request(request)

    def _remember_agent_id(self, grant: str | None, note: Raw, packet_id: str) -> None:
        """Remember what an agent calls its packet, if that could be an id."""
        stated = msgspec.json.decode(note)
        if isinstance(stated, str) and PACKET_ID.fullmatch(stated):
            self.stated.pop((grant, stated), None)
            self.stated[grant, stated] = packet_id
            if len(self.stated) > MOST_STATED:
                del self.stated[next(iter(self.stated))]

    def _close_request(self, request: str) -> None:
        asked = self.requests.pop(request, None)
        if asked is not None:
            self.decided[asked.grant or ""] = request

    def _remember_decision(self, event: PacketJudged, packet: AnyPacket) -> None:
        self.decision, self.stakes = packet.header.packet_id, packet.compliance.stakes.stakes_level
        if packet.payload.decision_outcome is DecisionOutcome.ACT:
            self.verified_since_act = False
            self.asked = self.allows(event.grant, GuardedAction.ACT)
            self.leave = self.leave and not self.asked
        # Whoever decides anew goes on without what it had asked for.
        self.requests = {name: asked for name, asked in self.requests.items() if asked.grant != event.grant}

    def _remember_beliefs(self, event: PacketJudged, payload: fields.BeliefUpdate) -> None:
        if event.path[:1] == [ProtocolState.VERIFY]:
            self.verified = self.verified_since_act = True
        for change in payload.belief_changes:
            name = (change.domain, change.key)
            known = name in self.beliefs or len(self.beliefs) < MOST_BELIEFS
            if known and len(change.domain) + len(change.key) <= LONGEST_NAME:
                # A copy, which holds on to nothing else of its line.
                value = bytes(change.new_value)
                long = len(value) > LONGEST_VALUE
                self.beliefs[name] = Raw(msgspec.json.encode(name_by_digest(value)) if long else value)


def name_by_digest(said: bytes) -> dict[str, object]:
    """Return what stands for something too long to be repeated."""
    return {"sha256": sha256(said).hexdigest(), "bytes": len(said)}


def _parse_answer(record: fields.Record) -> OperatorAnswer:
    """Return what an operator's record says; the proctor wrote it, so anything else in it says nothing."""
    try:
        return msgspec.json.decode(msgspec.json.encode(record.data), type=OperatorAnswer)
    except msgspec.MsgspecError:
        return OperatorAnswer()
