"""From a line of JSON to a packet, a record, or the list of everything that is wrong with it.

Rule 1: `read` never raises; what is malformed is a value, with every error and its JSON pointer.
Rule 2: the line is split once: header and envelope typed, the payload raw until its kind is known. Only a line that
    fails is read a second time, slowly, to list every error (`validation.py`).
Rule 3: no text of a library's exception leaves this file.
Rule 4: the ids of fields are joined to one text and matched at once; those in lists one by one. The text has as many
    separators as its pattern, so none can stand inside an id, and a match proves every id. In place of an absent id
    stands one that matches. Where a payload has ids is told by its Struct.
"""

import re
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct, inspect
from msgspec.structs import replace

from proctor.episode.packets.enums import PacketKind
from proctor.episode.packets.fields import (
    CONTENTS,
    ID_TAIL,
    PAYLOADS,
    Compliance,
    Header,
    PacketPart,
    Record,
    RecordLine,
)
from proctor.episode.packets.validation import (
    NOTE_PREFIX,
    ShapeError,
    list_packet_errors,
    list_record_errors,
    meets_conditions,
)
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

    @property
    def packet_id(self) -> str:
        """The packet's own name."""
        return self.header.packet_id

    @property
    def correlation_id(self) -> str:
        """The episode that it belongs to."""
        return self.header.correlation_id

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


ParsedLine: TypeAlias = AnyPacket | Record | Malformed


class _TypedPacket(PacketPart, frozen=True):
    """A packet without notes, its payload still raw."""

    header: Header
    mcp: Compliance
    payload: Raw


_TYPED_PACKET: Final = msgspec.json.Decoder(_TypedPacket)
_PARTS: Final = msgspec.json.Decoder(dict[str, Raw])
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


def read(line: bytes, most_errors: int = MOST_ERRORS) -> ParsedLine:
    """Return what `line` says; blank space around it does not matter. Of a malformed one so many errors are listed."""
    try:
        if not line.isascii():
            line.decode()
        split = _TYPED_PACKET.decode(line)
        header = split.header
        kind = header.packet_type
        payload = _PAYLOAD[kind](split.payload)
    except _UNREADABLE:
        return _read_again(line, most_errors)
    if ids_match(header, payload, kind) and meets_conditions(kind, split.mcp, payload):
        return Packet(header, split.mcp, payload)
    return _read_again(line, most_errors)


def _read_again(line: bytes, most_errors: int) -> ParsedLine:
    """Return what `line` says that is no plain packet: one with notes, a record, or something malformed."""
    try:
        line.decode()
        parts = _PARTS.decode(line)
    except msgspec.ValidationError:
        return _list_errors(line, most_errors)
    except _UNREADABLE:
        return _NOT_JSON
    if "record" in parts:
        try:
            stated = _RECORD.decode(line)
            content = _CONTENT[stated.record](stated.data)
        except _UNREADABLE:
            return _list_errors(line, most_errors)
        if _match_ids("corr")(stated.correlation_id) is None:
            return _list_errors(line, most_errors)
        return Record(stated.record, stated.correlation_id, stated.at, stated.by, content)
    notes = {key: parts.pop(key).copy() for key in tuple(parts) if key.startswith(NOTE_PREFIX)}
    found = read(msgspec.json.encode(parts)) if notes else None
    return replace(found, notes=notes) if isinstance(found, Packet) else _list_errors(line, most_errors)


def _list_errors(line: bytes, most_errors: int) -> Malformed:
    """Return the errors of a line that is JSON and yet no packet and no record."""
    try:
        value = _UNTYPED.decode(line)
    except _UNREADABLE:
        return _NOT_JSON
    if isinstance(value, dict) and "record" in value:
        errors = list_record_errors(value, most_errors)
        return Malformed(errors or _TWICE, None, _id_in(value, "correlation_id", "corr"))
    errors = list_packet_errors(value, most_errors)
    header = value.get("header") if isinstance(value, dict) else None
    return Malformed(errors or _TWICE, _id_in(header, "packet_id", "pkt"), _id_in(header, "correlation_id", "corr"))


def _id_in(named: object, key: str, prefix: str) -> str | None:
    found = named.get(key) if isinstance(named, dict) else None
    return found if isinstance(found, str) and _match_ids(prefix)(found) else None


Match: TypeAlias = Callable[[Any], object]
# In a path: every item of a list.
_EACH: Final = "*"
# How the ids of one kind of packet are matched: those of its fields joined, each with what stands for it where it is
# absent; those that stand deeper one by one.
_IdChecks: TypeAlias = tuple[Match, tuple[tuple[Callable[[Any], str | None], str], ...], tuple[Match, ...]]


def _id_paths(described: inspect.Type, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    match described:
        case inspect.UnionType(types=options):
            for option in options:
                yield from _id_paths(option, path)
        case inspect.ListType(item_type=item):
            yield from _id_paths(item, (*path, _EACH))
        case inspect.StructType(fields=fields):
            for field in fields:
                yield from _id_paths(field.type, (*path, field.name))
        case inspect.Metadata(extra_json_schema={"pattern": str(pattern)}):
            yield path, pattern.removeprefix("^").partition("_")[0]


def _match_ids(*prefixes: str) -> Match:
    """Return a function that matches ids joined by the separator, and returns None if they are not such."""
    return re.compile(r"\|".join(f"{prefix}_{ID_TAIL}" for prefix in prefixes)).fullmatch


def _match_at(path: tuple[str, ...], match: Match) -> Match:
    """Return a function that matches what stands at `path` of a part; what is absent matches."""
    if not path:
        return match
    name, inner = path[0], _match_at(path[1:], match)
    if name == _EACH:
        return lambda items: all(map(inner, items))
    get = attrgetter(name)
    return lambda part: (found := get(part)) is None or inner(found)


def _prepare_id_checks(kind: PacketKind) -> _IdChecks:
    paths = tuple(_id_paths(inspect.type_info(PAYLOADS[kind])))
    fields = [(path[0], prefix) for path, prefix in paths if len(path) == 1]
    return (
        _match_ids("pkt", "corr", "pkt", *(prefix for _, prefix in fields)),
        tuple((attrgetter(name), f"|{prefix}_0") for name, prefix in fields),
        tuple(_match_at(path, _match_ids(prefix)) for path, prefix in paths if len(path) > 1),
    )


_ID_CHECKS: Final = {kind: _prepare_id_checks(kind) for kind in PacketKind}
_is_campaign_id: Final = _match_ids("camp")


def ids_match(header: Header, payload: Any, kind: PacketKind) -> bool:
    """Return whether every id in the header and the payload has its prefix and, after it, only what an id may hold."""
    if header.campaign_id is not None and not _is_campaign_id(header.campaign_id):
        return False
    joined, fields, deeper = _ID_CHECKS[kind]
    previous = header.previous_packet_id
    text = f"{header.packet_id}|{header.correlation_id}|{'pkt_0' if previous is None else previous}"
    for get, absent in fields:
        named = get(payload)
        text += absent if named is None else f"|{named}"
    if joined(text) is None:
        return False
    for match in deeper:  # noqa: SIM110  # a generator would take longer than most matches
        if not match(payload):
            return False
    return True
