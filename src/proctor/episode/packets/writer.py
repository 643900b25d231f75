"""Writes the packets of one episode around any payload: ids, times, layers, the envelope, and values as JSON.

Rule 1: a packet that leaves here is valid: it is its own line, read back.
Rule 2: no clock and no chance: the first time is passed in, later ones are counted in steps, and ids are counted too.
Rule 3: a mistake of the caller is a ValidationError that names the field by its JSON pointer, and it changes nothing: a word
    is one of its kind or it is refused, and so is a number that JSON has no form for (NaN, an infinity).
Rule 4: defaults are values; `dataclasses.replace` and `msgspec.structs.replace` make others from them. They are modest: low
    stakes, ordinary quality, small budgets, and no claim to evidence.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypedDict, TypeVar, Unpack, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from proctor.episode.packets import enums, fields
from proctor.episode.packets.enums import PacketKind, RecordKind, RecordSource
from proctor.episode.packets.fields import Opaque, Record
from proctor.episode.packets.reader import AnyPacket, Malformed, Packet, PayloadT, read
from proctor.episode.packets.validation import NOTE_PREFIX, escape_key
from proctor.errors import ValidationError

INTENT: Final = fields.Intent(summary="carry the episode on", scope="this episode")
STAKES: Final = fields.Stakes(
    impact=enums.Level.LOW,
    irreversibility=enums.Irreversibility.REVERSIBLE,
    uncertainty=enums.Uncertainty.LOW,
    adversariality=enums.Adversariality.BENIGN,
    stakes_level=enums.Level.LOW,
)
QUALITY: Final = fields.Quality(
    quality_tier=enums.QualityTier.PAR,
    satisficing_mode=True,
    definition_of_done=fields.DefinitionOfDone(text="the episode is closed", checks=["nothing is open"]),
    verification_requirement=enums.VerificationRequirement.OPTIONAL,
)
BUDGETS: Final = fields.Budgets(
    token_budget=10_000,
    tool_call_budget=10,
    time_budget_seconds=600,
    risk_budget=fields.RiskBudget(envelope="low", max_loss=0.0),
)
EVIDENCE: Final = fields.Evidence(evidence_refs=[], evidence_absent_reason="stated by the author")
ROUTING: Final = fields.Routing(task_class=enums.TaskClass.LOOKUP, tools_state=enums.ToolsState.OK)


DERIVED: Final = fields.Epistemics(
    status=enums.EpistemicStatus.DERIVED,
    confidence=0.8,
    calibration_note="a default of the author's policy",
    freshness_class=enums.Freshness.OPERATIONAL,
    assumptions=[],
)
OBSERVED: Final = replace(DERIVED, status=enums.EpistemicStatus.OBSERVED, confidence=0.95)

# How each kind knows what it states: what was seen or done is observed, what was thought is derived.
EPISTEMICS: Final[Mapping[PacketKind, fields.Epistemics]] = MappingProxyType(
    {
        kind: OBSERVED if kind in (PacketKind.OBSERVATION, PacketKind.RESULT, PacketKind.ALERT) else DERIVED
        for kind in PacketKind
    }
)
# Who speaks: layer 6 senses and carries out, layer 3 models, layer 5 decides, and Integrity watches.
LAYERS: Final[Mapping[PacketKind, fields.Layer]] = MappingProxyType(
    {
        PacketKind.OBSERVATION: 6,
        PacketKind.BELIEF_UPDATE: 3,
        PacketKind.DECISION: 5,
        PacketKind.VERIFICATION_PLAN: 5,
        PacketKind.TOKEN: 5,
        PacketKind.DIRECTIVE: 5,
        PacketKind.RESULT: 6,
        PacketKind.ESCALATION: 5,
        PacketKind.ALERT: "Integrity",
        PacketKind.QUEUE_UPDATE: 4,
    }
)


@dataclass(frozen=True, slots=True)
class PacketDefaults:
    """The defaults of an author.

    `epistemics` and `layers` are by kind of packet; a kind that is missing there has the default of this module.
    `token_life` is how long after its issue a token expires.
    """

    intent: fields.Intent = INTENT
    stakes: fields.Stakes = STAKES
    quality: fields.Quality = QUALITY
    budgets: fields.Budgets = BUDGETS
    evidence: fields.Evidence = EVIDENCE
    routing: fields.Routing = ROUTING
    epistemics: Mapping[PacketKind, fields.Epistemics] = field(default_factory=lambda: EPISTEMICS)
    layers: Mapping[PacketKind, fields.Layer] = field(default_factory=lambda: LAYERS)
    token_life: timedelta = timedelta(hours=1)

    def epistemics_of(self, kind: PacketKind) -> fields.Epistemics:
        """Return how a packet of `kind` knows what it states."""
        return self.epistemics.get(kind, EPISTEMICS[kind])

    def layer_of(self, kind: PacketKind) -> fields.Layer:
        """Return the layer that states a packet of `kind`."""
        return self.layers.get(kind, LAYERS[kind])


# What a packet can rest on: packets, references, or the whole section.
Grounds: TypeAlias = fields.Evidence | Iterable[AnyPacket | fields.EvidenceRef]

_Word = TypeVar("_Word", bound=StrEnum)
_Line = TypeVar("_Line", AnyPacket, Record)

# What an encoder raises for a value that JSON has no form for.
_UNWRITABLE: Final = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)
# What packets of these kinds are as evidence; all others are what somebody derived.
_EVIDENCE: Final = {
    PacketKind.OBSERVATION: enums.EvidenceKind.TOOL_OUTPUT,
    PacketKind.RESULT: enums.EvidenceKind.TOOL_OUTPUT,
}


def parse_word(kind: type[_Word], value: str, pointer: str) -> _Word:
    """Return `value` as a member of `kind`."""
    try:
        return kind(value)
    except ValueError:
        expected = ", ".join(kind)
        raise ValidationError(f"{pointer} has an unknown word", found=value, expected=expected) from None


def encode_raw(value: object, pointer: str) -> Raw:
    """Return `value` as JSON."""
    if isinstance(value, Raw):
        return value
    try:
        said = msgspec.json.encode(value)
    except _UNWRITABLE as problem:
        raise _unwritable_error(pointer, value) from problem
    # The encoder writes such a number as null.
    if b"null" in said and not _is_finite(value):
        raise ValidationError(f"{pointer} holds a number that JSON has no form for", found=value)
    return Raw(said)


def encode_values(values: Mapping[str, object], pointer: str) -> Opaque:
    """Return an object whose values are JSON."""
    if not isinstance(values, Mapping):
        raise ValidationError(f"{pointer} is no object", found=values, expected="a mapping")
    return {key: encode_raw(value, f"{pointer}/{escape_key(str(key))}") for key, value in values.items()}


def read_back(line: _Line) -> tuple[_Line, bytes]:
    """Return `line` as a reader will see it, and as JSON; what would not be read is the caller's mistake."""
    try:
        text = line.line()
    except _UNWRITABLE as problem:
        raise _unwritable_error(*_find_unwritable(line)) from problem
    found = read(text)
    if isinstance(found, Malformed):
        errors = "; ".join(f"{error.pointer or 'the line'}: {error.reason}" for error in found.errors)
        raise ValidationError(f"this would not be valid: {errors}", clause=found.errors[0].rules[0])
    # A packet's line has a header and a record's has none: neither is ever read as the other.
    return cast(_Line, found), text


def _unwritable_error(pointer: str, value: object) -> ValidationError:
    return ValidationError(f"{pointer} cannot be written as JSON", found=type(value).__name__)


def _refer_to(ground: AnyPacket | fields.EvidenceRef) -> fields.EvidenceRef:
    if isinstance(ground, fields.EvidenceRef):
        return ground
    if not isinstance(ground, Packet):
        raise ValidationError(
            "/mcp/evidence/evidence_refs cannot hold this", found=ground, expected="a packet or an EvidenceRef"
        )
    kind = _EVIDENCE.get(ground.kind, enums.EvidenceKind.DERIVED_CALC)
    if (
        isinstance(ground.payload, fields.ObservationPayload)
        and ground.payload.observation_type == enums.ObservationType.USER_INPUT
    ):
        kind = enums.EvidenceKind.USER_OBSERVATION
    return fields.EvidenceRef(ref_type=kind, ref_id=ground.header.packet_id, timestamp=ground.header.created_at)


def _is_finite(value: object) -> bool:
    """Return whether no number inside `value`, which can be written, is NaN or infinite."""
    # Not by recursion: a value of an agent may have thousands of parts, and each would be a call.
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, float):
            if not math.isfinite(part):
                return False
        elif isinstance(part, list | tuple | set | frozenset):
            waiting.extend(part)
        elif not isinstance(part, str | int | None) and isinstance(part, Mapping):
            waiting.extend(part.values())
    return True


def _find_unwritable(part: Any, pointer: str = "") -> tuple[str, object]:
    """Return the pointer and the value of the innermost part, of Structs and lists of Structs, that cannot be written."""
    inner: Iterable[tuple[object, object]] = ()
    if isinstance(part, Struct):
        inner = (("mcp" if name == "compliance" else name, getattr(part, name)) for name in part.__struct_fields__)
    elif isinstance(part, list):
        inner = ((index, item) for index, item in enumerate(part) if isinstance(item, Struct))
    for name, value in inner:
        try:
            msgspec.json.encode(value)
        except _UNWRITABLE:
            return _find_unwritable(value, f"{pointer}/{name}")
    return pointer, part


class PacketFields(TypedDict, total=False):
    """What can be said of any packet besides its payload; the policy and the chain say the rest."""

    layer: fields.Layer
    at: datetime
    packet_id: str
    previous: str | None
    campaign_id: str | None
    intent: fields.Intent
    stakes: fields.Stakes
    quality: fields.Quality
    budgets: fields.Budgets
    epistemics: fields.Epistemics
    evidence: Grounds
    routing: fields.Routing
    notes: Mapping[str, object]


_FIELD_NAMES: Final = frozenset(PacketFields.__annotations__)
_KINDS: Final = {dict if payload is Opaque else payload: kind for kind, payload in fields.PAYLOADS.items()}
# An operator answers, approves and halts; whatever runs the episode opens and closes it.
_BY_SYSTEM: Final = (RecordKind.OPEN, RecordKind.CLOSE)
_STEP: Final = timedelta(seconds=1)


class PacketWriter:
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
        policy: PacketDefaults | None = None,
        step: timedelta = _STEP,
        campaign_id: str | None = None,
    ) -> None:
        self.correlation_id = correlation_id
        self.campaign_id = campaign_id
        self.policy = PacketDefaults() if policy is None else policy
        self.previous_packet_id: str | None = None
        self._at = at
        self._step = step
        self._count = 0

    @property
    def now(self) -> datetime:
        """The time that the next packet will bear."""
        return self._at

    def packet(self, payload: PayloadT, **said: Unpack[PacketFields]) -> Packet[PayloadT]:
        """Return a packet with this payload, whole; raw JSON by name is the content of a QueueUpdatePacket."""
        return self.write(payload, **said)[0]

    def write(self, payload: PayloadT, **said: Unpack[PacketFields]) -> tuple[Packet[PayloadT], bytes]:
        """Return such a packet, read back, and the line of JSON that it was read from."""
        packet, line = read_back(self._compose(payload, said))
        self._at = self._time_after(packet.header.created_at, "/header/created_at")
        self._count += 1
        self.previous_packet_id = packet.header.packet_id
        return packet, line

    def queue_update(self, content: Mapping[str, object], **said: Unpack[PacketFields]) -> Packet[Opaque]:
        """Return a packet that says what waits; it is neutral."""
        return self.packet(encode_values(content, "/payload"), **said)

    def record(
        self, kind: str, data: Mapping[str, object] | None = None, *, by: str | None = None, at: datetime | None = None
    ) -> Record:
        """Return a record of this episode: open, close, user_input, approval or safemode."""
        which = parse_word(RecordKind, kind, "/record")
        speaker = RecordSource.SYSTEM if which in _BY_SYSTEM else RecordSource.OPERATOR
        if by is not None:
            speaker = parse_word(RecordSource, by, "/by")
        moment = self._at if at is None else at
        content = encode_values({} if data is None else data, "/data")
        record, _ = read_back(Record(which, self.correlation_id, moment, speaker, content))
        self._at = self._time_after(moment, "/at")
        return record

    def next_id(self, prefix: str) -> str:
        """Return the id, under any prefix, that belongs to the next packet."""
        return f"{prefix}_{self.correlation_id.removeprefix('corr_')}_{self._count + 1}"

    def _compose(self, payload: PayloadT, said: PacketFields) -> Packet[PayloadT]:
        unknown = sorted(said.keys() - _FIELD_NAMES)
        if unknown:
            expected = ", ".join(sorted(_FIELD_NAMES))
            raise ValidationError("nothing of this name can be said of a packet", found=unknown[0], expected=expected)
        kind = _KINDS.get(dict if isinstance(payload, dict) else type(payload))
        if kind is None:
            raise ValidationError(
                "/payload is none that a packet carries", found=payload, expected="a payload's Struct"
            )
        policy = self.policy
        header = fields.Header(
            packet_id=said.get("packet_id", self.next_id("pkt")),
            packet_type=kind,
            created_at=said.get("at", self._at),
            layer_source=said.get("layer", policy.layer_of(kind)),
            correlation_id=self.correlation_id,
            campaign_id=said.get("campaign_id", self.campaign_id),
            previous_packet_id=said.get("previous", self.previous_packet_id),
        )
        compliance = fields.Compliance(
            intent=said.get("intent", policy.intent),
            stakes=said.get("stakes", policy.stakes),
            quality=said.get("quality", policy.quality),
            budgets=said.get("budgets", policy.budgets),
            epistemics=said.get("epistemics", policy.epistemics_of(kind)),
            evidence=self._evidence(said.get("evidence", ())),
            routing=said.get("routing", policy.routing),
        )
        notes = encode_values(said.get("notes", {}), "")
        for key in notes:
            if not str(key).startswith(NOTE_PREFIX):
                raise ValidationError(
                    f"/{escape_key(str(key))} is no note", found=key, expected=f"a key that begins with {NOTE_PREFIX}"
                )
        return Packet(header, compliance, payload, notes)

    def _evidence(self, grounds: Grounds) -> fields.Evidence:
        if isinstance(grounds, fields.Evidence):
            return grounds
        references = [_refer_to(ground) for ground in grounds]
        return fields.Evidence(evidence_refs=references) if references else self.policy.evidence

    def _time_after(self, moment: datetime, pointer: str) -> datetime:
        try:
            return max(self._at, moment + self._step)
        except (OverflowError, TypeError) as problem:
            raise ValidationError(
                f"{pointer} has no time after it",
                found=moment,
                expected="a time with an offset, before the end of time",
            ) from problem
