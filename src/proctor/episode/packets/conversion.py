"""From what a caller passes to what a packet holds: words become parts (a belief, a target, an option), raw JSON or references.

Rule 1: whoever passes the whole part keeps it as it is; whoever passes a word gets a part made from it.
Rule 2: a value or a part that cannot stand in a packet is the caller's mistake: a ValidationError that names the field by its
    JSON pointer.
Rule 3: nothing is guessed: a word is one of its kind or it is refused, and a number that JSON has no form for (NaN, an
    infinity) is refused, not written as null.
"""

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Raw, Struct

from proctor.episode.packets.enums import EvidenceKind, ObservationType, OperationType, PacketKind
from proctor.episode.packets.envelope import Evidence, EvidenceRef
from proctor.episode.packets.payloads import (
    BeliefChange,
    EscalationOption,
    EvidenceGap,
    LoadBearingAssumption,
    ObservationPayload,
    Opaque,
    Record,
    Token,
    VerificationTarget,
)
from proctor.episode.packets.reader import AnyPacket, Malformed, Packet, read
from proctor.episode.packets.validation import escape_key
from proctor.errors import ValidationError

# What a packet can rest on: packets, references, or the whole section.
Grounds: TypeAlias = Evidence | Iterable[AnyPacket | EvidenceRef]

_Word = TypeVar("_Word", bound=StrEnum)
_Line = TypeVar("_Line", AnyPacket, Record)

# What an encoder raises for a value that JSON has no form for.
_UNWRITABLE: Final = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)
_SEQUENCES: Final = (list, tuple, set, frozenset)
_PLAIN: Final = (str, int, type(None))
# What packets of these kinds are as evidence; all others are what somebody derived.
_EVIDENCE: Final = {
    PacketKind.OBSERVATION: EvidenceKind.TOOL_OUTPUT,
    PacketKind.RESULT: EvidenceKind.TOOL_OUTPUT,
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


def packet_id(packet: AnyPacket | str) -> str:
    """Return the id of a packet that is given as itself or by its id."""
    return packet.header.packet_id if isinstance(packet, Packet) else packet


def build_evidence(grounds: Grounds, default: Evidence) -> Evidence:
    """Return the section that states `grounds`; without any, `default`."""
    if isinstance(grounds, Evidence):
        return grounds
    references = [_build_reference(ground) for ground in grounds]
    return Evidence(evidence_refs=references) if references else default


def read_back(line: _Line) -> _Line:
    """Return `line` as a reader will see it; what would not be read is the caller's mistake."""
    found = read(encode_line(line))
    if isinstance(found, Malformed):
        errors = "; ".join(f"{error.pointer or 'the line'}: {error.reason}" for error in found.errors)
        raise ValidationError(f"this would not be valid: {errors}", clause=found.errors[0].rules[0])
    # A packet's line has a header and a record's has none: neither is ever read as the other.
    return cast(_Line, found)


def encode_line(line: AnyPacket | Record) -> bytes:
    """Return the bytes of `line`."""
    try:
        return line.line()
    except _UNWRITABLE as problem:
        raise _unwritable_error(*_find_unwritable(line)) from problem


def _unwritable_error(pointer: str, value: object) -> ValidationError:
    return ValidationError(f"{pointer} cannot be written as JSON", found=type(value).__name__)


def _build_reference(ground: AnyPacket | EvidenceRef) -> EvidenceRef:
    if isinstance(ground, EvidenceRef):
        return ground
    if not isinstance(ground, Packet):
        raise ValidationError(
            "/mcp/evidence/evidence_refs cannot hold this", found=ground, expected="a packet or an EvidenceRef"
        )
    kind = _EVIDENCE.get(ground.kind, EvidenceKind.DERIVED_CALC)
    if isinstance(ground.payload, ObservationPayload) and ground.payload.observation_type == ObservationType.USER_INPUT:
        kind = EvidenceKind.USER_OBSERVATION
    return EvidenceRef(ref_type=kind, ref_id=ground.header.packet_id, timestamp=ground.header.created_at)


def _is_finite(value: object) -> bool:
    """Tell whether no number inside `value`, which can be written, is NaN or infinite."""
    # Not by recursion: a value of an agent may have thousands of parts, and each would be a call.
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, float):
            if not math.isfinite(part):
                return False
        elif isinstance(part, _SEQUENCES):
            waiting.extend(part)
        elif isinstance(part, dict) or (not isinstance(part, _PLAIN) and isinstance(part, Mapping)):
            waiting.extend(part.values())
    return True


def _find_unwritable(part: Any, pointer: str = "") -> tuple[str, object]:
    """Return the pointer and the value of the innermost part that cannot be written."""
    for name, value in _parts(part):
        if not _is_writable(value):
            return _find_unwritable(value, f"{pointer}/{name}")
    return pointer, part


def _parts(part: Any) -> Iterable[tuple[str, object]]:
    """Return the parts of a Struct, or of a list of Structs, under the names that they have on the wire."""
    if isinstance(part, Struct):
        return (("mcp" if name == "compliance" else name, getattr(part, name)) for name in part.__struct_fields__)
    if isinstance(part, list):
        return ((str(i), item) for i, item in enumerate(part) if isinstance(item, Struct))
    return ()


def _is_writable(value: object) -> bool:
    try:
        msgspec.json.encode(value)
    except _UNWRITABLE:
        return False
    return True


_Payload = TypeVar("_Payload")


def require_payload(payload: type[_Payload], packet: AnyPacket, pointer: str) -> _Payload:
    """Return what `packet` carries, which must be a `payload`."""
    found = packet.payload if isinstance(packet, Packet) else packet
    if not isinstance(found, payload):
        expected = f"the packet of a {payload.__name__}"
        raise ValidationError(f"{pointer} is not known", found=type(found).__name__, expected=expected)
    return found


def token_id(of: Packet[Token] | str, pointer: str) -> str:
    """Return the id of a token that is given as its packet or by its id."""
    return of if isinstance(of, str) else require_payload(Token, of, pointer).token_id


def build_belief_changes(changes: Mapping[str, object] | Iterable[BeliefChange], domain: str) -> list[BeliefChange]:
    """Return the changes; a mapping states new values in one `domain`, with nothing believed before."""
    if not isinstance(changes, Mapping):
        return list(changes)
    nothing = encode_raw(None, "")
    return [
        BeliefChange(domain, key, encode_raw(value, f"/payload/belief_changes/{index}/new_value"), nothing)
        for index, (key, value) in enumerate(changes.items())
    ]


def ids_to_integrate(grounds: Grounds, stated: Iterable[AnyPacket | str] | None) -> list[str] | None:
    """Return the ids of what a belief integrates: what is stated, or else the packets among its evidence."""
    if stated is None:
        stated = () if isinstance(grounds, Evidence) else [item for item in grounds if isinstance(item, Packet)]
    return [packet_id(packet) for packet in stated] or None


def build_assumptions(verified: Mapping[str, bool] | None) -> list[LoadBearingAssumption] | None:
    """Return the assumptions that bear the load, each with whether it is verified."""
    return None if verified is None else [LoadBearingAssumption(*item) for item in verified.items()]


def build_targets(stated: Iterable[str | VerificationTarget]) -> list[VerificationTarget]:
    """Return what is to be verified; a text is the assumption."""
    return [
        item if isinstance(item, VerificationTarget) else _build_target(i, item) for i, item in enumerate(stated, 1)
    ]


def _build_target(number: int, assumption: str) -> VerificationTarget:
    return VerificationTarget(
        target_id=f"target_{number}",
        description=f"verify: {assumption}",
        assumption_text=assumption,
        verification_method="read it again",
        success_criteria="it is seen again",
    )


def parse_operations(stated: Iterable[str]) -> list[OperationType]:
    """Return what a token allows to do."""
    pointer = "/payload/authorized_scope/operation_types"
    return [parse_word(OperationType, operation, f"{pointer}/{i}") for i, operation in enumerate(stated)]


def build_options(stated: Iterable[str | EscalationOption]) -> list[EscalationOption]:
    """Return what a human can choose; a text is the description."""
    return [item if isinstance(item, EscalationOption) else _build_option(i, item) for i, item in enumerate(stated, 1)]


def _build_option(number: int, description: str) -> EscalationOption:
    return EscalationOption(
        option_id=f"option_{number}", description=description, pros=["it is possible"], cons=["it is not certain"]
    )


def build_gaps(stated: Iterable[str | EvidenceGap]) -> list[EvidenceGap]:
    """Return what is not known; a text is the gap."""
    return [item if isinstance(item, EvidenceGap) else EvidenceGap(item, "the choice may be wrong") for item in stated]
