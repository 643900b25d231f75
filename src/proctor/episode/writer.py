"""The chain of one episode's packets: ids, times, layers and the envelope around any payload.

Rule 1: a packet that leaves here is valid: it is its own line, read back. `check=False` leaves that out, for speed.
Rule 2: no clock and no chance: the first time is passed in, later ones are counted in steps, and ids are counted too.
Rule 3: a mistake of the caller is a ValidationError that names the field, and it changes nothing.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final, TypedDict, Unpack

from proctor.episode.coercion import Grounds, checked, evidence, opaque, word
from proctor.episode.envelope import (
    Budgets,
    Compliance,
    Epistemics,
    Header,
    Intent,
    Layer,
    Quality,
    Routing,
    Stakes,
)
from proctor.episode.kinds import PacketKind, RecordKind, Speaker
from proctor.episode.packets import Packet, PayloadT
from proctor.episode.payloads import PAYLOADS, Opaque
from proctor.episode.policy import Policy
from proctor.episode.records import Record
from proctor.episode.shape import NOTE, escaped
from proctor.errors import ValidationError


class Said(TypedDict, total=False):
    """What can be said of any packet besides its payload; the policy and the chain say the rest."""

    layer: Layer
    at: datetime
    packet_id: str
    previous: str | None
    campaign_id: str | None
    intent: Intent
    stakes: Stakes
    quality: Quality
    budgets: Budgets
    epistemics: Epistemics
    evidence: Grounds
    routing: Routing
    notes: Mapping[str, object]


_SAYABLE: Final = frozenset(Said.__annotations__)
_KINDS: Final = {dict if payload is Opaque else payload: kind for kind, payload in PAYLOADS.items()}
# An operator answers, approves and halts; whatever runs the episode opens and closes it.
_BY_SYSTEM: Final = (RecordKind.OPEN, RecordKind.CLOSE)
_STEP: Final = timedelta(seconds=1)


class Writer:
    """Writes packets with any payload, and records, of one episode.

    Ids count up (`pkt_<tail>_1`, ...; `<tail>` is what follows `corr_`), `created_at` advances by `step` from `at` and
    never runs backwards by itself, and each packet names the one before it. A packet that was refused is no link of the
    chain: set `previous_packet_id` back to what it was before.
    """

    def __init__(
        self,
        correlation_id: str,
        *,
        at: datetime,
        policy: Policy | None = None,
        step: timedelta = _STEP,
        campaign_id: str | None = None,
        check: bool = True,
    ) -> None:
        self.correlation_id = correlation_id
        self.campaign_id = campaign_id
        self.policy = Policy() if policy is None else policy
        self.previous_packet_id: str | None = None
        self._at = at
        self._step = step
        self._check = check
        self._count = 0

    @property
    def now(self) -> datetime:
        """The time that the next packet will bear."""
        return self._at

    def packet(self, payload: PayloadT, **said: Unpack[Said]) -> Packet[PayloadT]:
        """Return a packet with this payload, whole; raw JSON by name is the content of a QueueUpdatePacket."""
        unknown = sorted(said.keys() - _SAYABLE)
        if unknown:
            expected = ", ".join(sorted(_SAYABLE))
            raise ValidationError("nothing of this name can be said of a packet", found=unknown[0], expected=expected)
        kind = _KINDS.get(dict if isinstance(payload, dict) else type(payload))
        if kind is None:
            raise ValidationError(
                "/payload is none that a packet carries", found=payload, expected="a payload's Struct"
            )
        packet = Packet(self._header(kind, said), self._compliance(kind, said), payload, _notes(said))
        return self._stated(checked(packet) if self._check else packet)

    def queue_update(self, content: Mapping[str, object], **said: Unpack[Said]) -> Packet[Opaque]:
        """Return a packet that says what waits; it is neutral."""
        return self.packet(opaque(content, "/payload"), **said)

    def record(
        self, kind: str, data: Mapping[str, object] | None = None, *, by: str | None = None, at: datetime | None = None
    ) -> Record:
        """Return a record of this episode: open, close, user_input, approval or safemode."""
        which = word(RecordKind, kind, "/record")
        speaker = Speaker.SYSTEM if which in _BY_SYSTEM else Speaker.OPERATOR
        if by is not None:
            speaker = word(Speaker, by, "/by")
        moment = self._at if at is None else at
        content = opaque({} if data is None else data, "/data")
        record = checked(Record(which, self.correlation_id, moment, speaker, content))
        self._at = self._following(moment, "/at")
        return record

    def next_id(self, prefix: str) -> str:
        """Return the id, under any prefix, that belongs to the next packet."""
        return f"{prefix}_{self.correlation_id.removeprefix('corr_')}_{self._count + 1}"

    def _header(self, kind: PacketKind, said: Said) -> Header:
        return Header(
            packet_id=said.get("packet_id", self.next_id("pkt")),
            packet_type=kind,
            created_at=said.get("at", self._at),
            layer_source=said.get("layer", self.policy.layer_of(kind)),
            correlation_id=self.correlation_id,
            campaign_id=said.get("campaign_id", self.campaign_id),
            previous_packet_id=said.get("previous", self.previous_packet_id),
        )

    def _compliance(self, kind: PacketKind, said: Said) -> Compliance:
        policy = self.policy
        return Compliance(
            intent=said.get("intent", policy.intent),
            stakes=said.get("stakes", policy.stakes),
            quality=said.get("quality", policy.quality),
            budgets=said.get("budgets", policy.budgets),
            epistemics=said.get("epistemics", policy.epistemics_of(kind)),
            evidence=evidence(said.get("evidence", ()), policy.evidence),
            routing=said.get("routing", policy.routing),
        )

    def _stated(self, packet: Packet[PayloadT]) -> Packet[PayloadT]:
        """Count `packet` as stated."""
        self._at = self._following(packet.header.created_at, "/header/created_at")
        self._count += 1
        self.previous_packet_id = packet.header.packet_id
        return packet

    def _following(self, moment: datetime, pointer: str) -> datetime:
        """Return the time of what comes after `moment`."""
        try:
            return max(self._at, moment + self._step)
        except (OverflowError, TypeError) as problem:
            raise ValidationError(
                f"{pointer} has no time after it",
                found=moment,
                expected="a time with an offset, before the end of time",
            ) from problem


def _notes(said: Said) -> Opaque:
    """Return the notes as JSON."""
    notes = opaque(said.get("notes", {}), "")
    for key in notes:
        if not str(key).startswith(NOTE):
            raise ValidationError(
                f"/{escaped(str(key))} is no note", found=key, expected=f"a key that begins with {NOTE}"
            )
    return notes
