"""From a line of JSON to a packet, a record, or the list of everything that is wrong with it.

Rule 1: `read` never raises; what is malformed is a value, with every error and its JSON pointer.
Rule 2: the line is split once: header and envelope typed, the payload raw until its kind is known. Only a line that
    fails is read a second time, slowly, to list every error (`validation.py`).
Rule 3: no text of a library's exception leaves this file.
"""

import re
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct

from proctor.episode.packets.enums import PacketKind
from proctor.episode.packets.envelope import ID_TAIL, Compliance, Header, PacketPart
from proctor.episode.packets.field_conditions import ShapeError, find_unmet_conditions, ids_match
from proctor.episode.packets.payloads import CONTENTS, PAYLOADS, Payload, Record, RecordLine
from proctor.episode.packets.validation import NOTE_PREFIX, list_packet_errors, list_record_errors
from proctor.episode.settings import MOST_ERRORS

PayloadT = TypeVar("PayloadT")
NO_NOTES: Final[dict[str, Raw]] = {}


class Packet(Struct, Generic[PayloadT], frozen=True, gc=False):
    """A packet that was read; `notes` are the keys at the top that begin with an underscore, kept as they came."""

    header: Header
    compliance: Compliance
    payload: PayloadT
    notes: dict[str, Raw] = NO_NOTES

    @property
    def kind(self) -> PacketKind:
        """What the packet states."""
        return self.header.packet_type

    def line(self) -> bytes:
        """Return the packet as one line of JSON, without the line's end."""
        parts = {"header": self.header, "mcp": self.compliance, "payload": self.payload}
        return msgspec.json.encode({**parts, **self.notes})


AnyPacket: TypeAlias = Packet[Any]


class Malformed(Struct, frozen=True):
    """A line that is no packet and no record; the ids are those that could be read."""

    errors: tuple[ShapeError, ...]
    packet_id: str | None = None
    correlation_id: str | None = None


class _TypedPacket(PacketPart, frozen=True):
    """A packet without notes, its payload still raw."""

    header: Header
    mcp: Compliance
    payload: Raw


_TYPED_PACKET: Final = msgspec.json.Decoder(_TypedPacket)
_PARTS: Final = msgspec.json.Decoder(dict[str, Raw])
_HEADER: Final = msgspec.json.Decoder(Header)
_COMPLIANCE: Final = msgspec.json.Decoder(Compliance)
_PAYLOAD: Final = {kind: msgspec.json.Decoder(payload).decode for kind, payload in PAYLOADS.items()}
_RECORD: Final = msgspec.json.Decoder(RecordLine)
_CONTENT: Final = {kind: msgspec.json.Decoder(content).decode for kind, content in CONTENTS.items()}
# A number beyond all floats is JSON, too: it is told where it stands.
_UNTYPED: Final = msgspec.json.Decoder(float_hook=float)

# All that can be wrong with a line in which the slow reading finds no error.
_TWICE: Final = (ShapeError("", "a key stands twice, with another value the first time", ("SCHEMA",)),)
_NOT_JSON: Final = Malformed(
    errors=(ShapeError("", "the line is not JSON in UTF-8, or too deep or large to be read", ("JSON",)),)
)
# What is raised for bytes that are no JSON at all, too deep to read, or no text.
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def read(line: bytes, most_errors: int = MOST_ERRORS) -> AnyPacket | Record | Malformed:
    """Return what `line` says; blank space around it does not matter. Of a malformed one so many errors are listed."""
    try:
        if not line.isascii():
            line.decode()
        split = _TYPED_PACKET.decode(line)
        header = split.header
        kind = header.packet_type
        payload: Payload = _PAYLOAD[kind](split.payload)
    except _UNREADABLE:
        return _read_again(line, most_errors)
    if not ids_match(header, payload, kind) or find_unmet_conditions(kind, split.mcp, payload):
        return _read_again(line, most_errors)
    return Packet(header, split.mcp, payload)


def _read_again(line: bytes, most_errors: int) -> AnyPacket | Record | Malformed:
    """Return what `line` says that is no plain packet: one with notes, a record, or something malformed."""
    try:
        line.decode()
        parts = _PARTS.decode(line)
    except msgspec.ValidationError:
        return _list_errors(line, most_errors)
    except _UNREADABLE:
        return _NOT_JSON
    if "record" in parts:
        return _read_record(line, most_errors)
    if any(key.startswith(NOTE_PREFIX) for key in parts):
        return _read_packet_with_notes(line, parts, most_errors)
    return _list_errors(line, most_errors)


def _read_packet_with_notes(line: bytes, parts: dict[str, Raw], most_errors: int) -> AnyPacket | Malformed:
    notes = {key: parts.pop(key).copy() for key in tuple(parts) if key.startswith(NOTE_PREFIX)}
    try:
        header = _HEADER.decode(parts.pop("header"))
        compliance = _COMPLIANCE.decode(parts.pop("mcp"))
        kind = header.packet_type
        payload: Payload = _PAYLOAD[kind](parts.pop("payload"))
    except (KeyError, *_UNREADABLE):
        return _list_errors(line, most_errors)
    if parts or not ids_match(header, payload, kind) or find_unmet_conditions(kind, compliance, payload):
        return _list_errors(line, most_errors)
    return Packet(header, compliance, payload, notes)


def _read_record(line: bytes, most_errors: int) -> Record | Malformed:
    try:
        stated = _RECORD.decode(line)
        content = _CONTENT[stated.record](stated.data)
    except _UNREADABLE:
        return _list_errors(line, most_errors)
    if not _is_id(stated.correlation_id, "corr"):
        return _list_errors(line, most_errors)
    return Record(stated.record, stated.correlation_id, stated.at, stated.by, content)


def _list_errors(line: bytes, most_errors: int) -> Malformed:
    """Return the errors of a line that is JSON and yet no packet and no record."""
    try:
        value = _UNTYPED.decode(line)
    except _UNREADABLE:
        return _NOT_JSON
    if not isinstance(value, dict):
        return Malformed(list_packet_errors(value, most_errors) or _TWICE)
    if "record" in value:
        return Malformed(
            list_record_errors(value, most_errors) or _TWICE, correlation_id=_id_in(value, "correlation_id", "corr")
        )
    header = value.get("header")
    named = header if isinstance(header, dict) else {}
    return Malformed(
        list_packet_errors(value, most_errors) or _TWICE,
        packet_id=_id_in(named, "packet_id", "pkt"),
        correlation_id=_id_in(named, "correlation_id", "corr"),
    )


def _id_in(value: dict[str, object], key: str, prefix: str) -> str | None:
    """Return the id at `key` if it is one."""
    found = value.get(key)
    return found if isinstance(found, str) and _is_id(found, prefix) else None


def _is_id(text: str, prefix: str) -> bool:
    return re.fullmatch(f"{prefix}_{ID_TAIL}", text) is not None
