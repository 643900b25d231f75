"""From what a caller passes to what a packet holds: words, raw JSON, references, and the last check.

Rule 1: a value that cannot stand in a packet is the caller's mistake: a ValidationError that names the field by its
    JSON pointer.
Rule 2: nothing is guessed: a word is one of its kind or it is refused, and a number that JSON has no form for (NaN, an
    infinity) is refused, not written as null.
"""

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Raw, Struct

from proctor.episode.envelope import Evidence, EvidenceRef
from proctor.episode.kinds import EvidenceKind, ObservationType, PacketKind
from proctor.episode.packets import AnyPacket, Malformed, Packet, read
from proctor.episode.payloads import Observation, Opaque
from proctor.episode.records import Record
from proctor.episode.shape import escaped
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


def word(kind: type[_Word], value: str, pointer: str) -> _Word:
    """Return `value` as a member of `kind`."""
    try:
        return kind(value)
    except ValueError:
        expected = ", ".join(kind)
        raise ValidationError(f"{pointer} has an unknown word", found=value, expected=expected) from None


def raw(value: object, pointer: str) -> Raw:
    """Return `value` as JSON."""
    if isinstance(value, Raw):
        return value
    try:
        said = msgspec.json.encode(value)
    except _UNWRITABLE as problem:
        raise _unwritable(pointer, value) from problem
    # The encoder writes such a number as null.
    if b"null" in said and not _is_finite(value):
        raise ValidationError(f"{pointer} holds a number that JSON has no form for", found=value)
    return Raw(said)


def opaque(values: Mapping[str, object], pointer: str) -> Opaque:
    """Return an object whose values are JSON."""
    if not isinstance(values, Mapping):
        raise ValidationError(f"{pointer} is no object", found=values, expected="a mapping")
    return {key: raw(value, f"{pointer}/{escaped(str(key))}") for key, value in values.items()}


def packet_id(packet: AnyPacket | str) -> str:
    """Return the id of a packet that is given as itself or by its id."""
    return packet.header.packet_id if isinstance(packet, Packet) else packet


def evidence(grounds: Grounds, default: Evidence) -> Evidence:
    """Return the section that states `grounds`; without any, `default`."""
    if isinstance(grounds, Evidence):
        return grounds
    references = [_reference(ground) for ground in grounds]
    return Evidence(evidence_refs=references) if references else default


def checked(line: _Line) -> _Line:
    """Return `line` as a reader will see it; what would not be read is the caller's mistake."""
    found = read(written(line))
    if isinstance(found, Malformed):
        errors = "; ".join(f"{error.pointer or 'the line'}: {error.reason}" for error in found.errors)
        raise ValidationError(f"this would not be valid: {errors}", clause=found.errors[0].rules[0])
    # A packet's line has a header and a record's has none: neither is ever read as the other.
    return cast(_Line, found)


def written(line: AnyPacket | Record) -> bytes:
    """Return the bytes of `line`."""
    try:
        return line.line()
    except _UNWRITABLE as problem:
        raise _unwritable(*_culprit(line)) from problem


def _unwritable(pointer: str, value: object) -> ValidationError:
    return ValidationError(f"{pointer} cannot be written as JSON", found=type(value).__name__)


def _reference(ground: AnyPacket | EvidenceRef) -> EvidenceRef:
    if isinstance(ground, EvidenceRef):
        return ground
    if not isinstance(ground, Packet):
        raise ValidationError(
            "/mcp/evidence/evidence_refs cannot hold this", found=ground, expected="a packet or an EvidenceRef"
        )
    kind = _EVIDENCE.get(ground.kind, EvidenceKind.DERIVED_CALC)
    if isinstance(ground.payload, Observation) and ground.payload.observation_type == ObservationType.USER_INPUT:
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


def _culprit(part: Any, pointer: str = "") -> tuple[str, object]:
    """Return the pointer and the value of the innermost part that cannot be written."""
    for name, value in _parts(part):
        if not _is_writable(value):
            return _culprit(value, f"{pointer}/{name}")
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
