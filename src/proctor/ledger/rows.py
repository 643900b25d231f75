"""What a row says: an event, or a statement of the ledger's own, as a body of canonical JSON and back. Pure.

Rule 1: a body is one JSON object in UTF-8 without blanks, its keys sorted; an event in it has its fields in the order in which they are
    declared. What was stated in some order (a pipeline's parts, a Raw field) keeps it, byte for byte, so that an event comes
    back equal: a body is canonical because there is one way to write an event, not because its content was put in order.
Rule 2: of an observation the body always has the SHA-256 of its exact bytes (`digest`). The bytes are in the event if they
    are short, and else null there and a blob of that hash; in a chain that keeps digests only they are nowhere.
    A scene that is not in the event is treated the same way (`scene`).
Rule 3: the first row of a chain says how the chain keeps observations.
Rule 4: reading a body takes a few times its bytes of memory, whatever it says: what would take more is refused, and never written.
Rule 5: most rows are read only as far as an audit or a list needs it: that is a `PartialRow`.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from proctor.errors import ComponentError, ValidationError
from proctor.ledger.storage.sqlite import MAX_VALUE_BYTES
from proctor.models.events import NULL, BatchReset, BatchStepped, EpisodeReset, EpisodeStepped, Event, decode_event

ObservationStorage: TypeAlias = Literal["all", "digest"]
SEAL_EVERY: Final = 1000
"""A chain is sealed after so many rows, besides at its end."""
INLINE_BYTES: Final = 256
MAX_BODY_BYTES: Final = 2**26
MAX_CONTAINER_BYTES: Final = 2**22
"""Bytes of the lists and objects in a body that are read into Python's own, which take up to thirty times as many."""
MOST_VALUES: Final = 2**21
"""Values of one field that are read into Python's own."""


class _LedgerStatement(
    Struct, frozen=True, kw_only=True, gc=False, tag_field="own", tag=str.lower, forbid_unknown_fields=True
):
    """A statement of the ledger's own; `at` is in seconds since 1970."""

    at: float


class RunBegan(_LedgerStatement, frozen=True, kw_only=True, gc=False):
    """The first row of a server chain: a run of the server opened the file."""

    boot: str
    server: str
    schema: int
    worker: int
    durability: str
    public: str | None
    """The key that signs this run's seals, in hexadecimal digits; None: nothing is signed."""
    previous: str | None
    """The head of the server chain before, None in a new file."""
    unfinished: list[int] = []
    """The rows that say SessionOpened of the sessions which earlier runs left open."""


class RunEnded(_LedgerStatement, frozen=True, kw_only=True, gc=False):
    """The last row of a server chain whose server was not killed."""


class ChainOpened(_LedgerStatement, frozen=True, kw_only=True, gc=False):
    """An episode's chain began; `head` is the one after its reset."""

    chain: str
    head: str


class ChainEnded(_LedgerStatement, frozen=True, kw_only=True, gc=False):
    """Nothing more comes in an episode's chain; with what can be listed without reading it.

    That an episode was lost is not said here: the reason in its `EpisodeClosed` does, which a server states of every lost one. A
    chain that was left without it may so be told as lost by who read all of it, and not by who reads its ends.
    """

    chain: str
    head: str
    steps: int
    total_reward: float | None
    terminated: bool
    truncated: bool
    refusals: int | None = None
    """None here and in the next two: the writer did not say it, which was of an earlier version; then the chain is read."""
    agents: list[str] | None = None
    state: str | None = None
    """Empty: nothing was judged."""


class Tombstone(_LedgerStatement, frozen=True, kw_only=True, gc=False):
    """The tombstone of a chain that was removed."""

    chain: str
    first: int
    rows: int
    head: str
    opened_at: float
    closed_at: float | None
    """None: it was left without a word."""
    why: str


LedgerStatement: TypeAlias = RunBegan | RunEnded | ChainOpened | ChainEnded | Tombstone

_OBSERVATION_FIELDS: Final[dict[type, str]] = {
    EpisodeStepped: "observation",
    EpisodeReset: "observation",
    BatchStepped: "observations",
    BatchReset: "observations",
}
NULL_DIGEST: Final = sha256(b"null").hexdigest()


class RowBody(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """A row's body, its event or own statement not read yet."""

    digest: str | None = None
    event: Raw | UnsetType = UNSET
    observations: ObservationStorage | None = None
    own: Raw | UnsetType = UNSET
    scene: str | None = None


_ENCODER: Final = msgspec.json.Encoder()
_BODY: Final = msgspec.json.Decoder(RowBody)
DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_ANY: Final = msgspec.json.Decoder(Raw)
_SCALARS: Final = (msgspec.inspect.RawType, msgspec.inspect.FloatType, msgspec.inspect.IntType, msgspec.inspect.StrType)


def _find_flat_fields() -> tuple[list[str], list[str]]:
    """Return the names of the fields that are no lists or objects in any statement, and of objects of such values."""
    fields = [field for kind in get_args(Event | LedgerStatement) for field in msgspec.inspect.type_info(kind).fields]  # type: ignore[attr-defined]
    containers = {field.name for field in fields if _is_container(field.type)}
    deep = {field.name for field in fields if _is_container(field.type) and not _is_shallow(field.type)}
    return sorted({field.name for field in fields} - containers), sorted(containers - deep)


def _is_container(kind: msgspec.inspect.Type) -> bool:
    if isinstance(kind, msgspec.inspect.UnionType):
        return any(map(_is_container, kind.types))
    return isinstance(kind, msgspec.inspect.CollectionType | msgspec.inspect.DictType)


def _is_shallow(kind: msgspec.inspect.Type) -> bool:
    return isinstance(kind, msgspec.inspect.DictType) and isinstance(kind.value_type, _SCALARS)


_FLAT_FIELDS, _SHALLOW_FIELDS = _find_flat_fields()
_Flat: Final = msgspec.defstruct(
    "_Flat", [(name, Raw, Raw(b"")) for name in (*_FLAT_FIELDS, *_SHALLOW_FIELDS)], frozen=True, gc=False
)
_FLAT: Final = msgspec.json.Decoder(_Flat)
ENTRY_BYTES: Final = 128
"""What one entry of an object takes, besides its value."""
_STATEMENT: Final[msgspec.json.Decoder[LedgerStatement]] = msgspec.json.Decoder(LedgerStatement)

HashedValues: TypeAlias = list[tuple[bytes, bytes]]
EncodedRow: TypeAlias = tuple[bytes, HashedValues | None]
"""A body, and the values that it names and does not hold."""


def encode_event_row(event: Event, keeps: ObservationStorage, *, first: bool = False) -> EncodedRow:
    """Return the event as a body; a ComponentError if it has no JSON form."""
    field = _OBSERVATION_FIELDS.get(type(event))
    blobs: HashedValues | None = None
    digest = scene = ""
    if field is not None:
        value: Raw = getattr(event, field)
        _check_size("an observation", memoryview(value).nbytes, MAX_VALUE_BYTES)
        hashed = sha256(value)
        digest = hashed.hexdigest()
        if keeps == "digest" or memoryview(value).nbytes >= INLINE_BYTES:
            blobs = [(hashed.digest(), bytes(value))]
            event = replace(event, **{field: NULL})
        # Most events say the very same null.
        if field == "observation" and event.scene is not NULL:  # type: ignore[union-attr]
            event, scene, blobs = _without_scene(event, keeps, blobs)  # type: ignore[arg-type]
    body = _wrap_event(_encode_json(event), digest, scene, keeps if first else "")
    try:
        _ANY.decode(body)
    except msgspec.DecodeError as problem:
        # A Raw in it is no JSON: nobody could read the row.
        raise ComponentError(f"an event has no JSON form: {problem}", expected="JSON values") from problem
    _check_size("an event", len(body), MAX_BODY_BYTES)
    if len(body) > MAX_CONTAINER_BYTES and count_container_bytes(_encode_json(event)) > MAX_CONTAINER_BYTES:
        raise ComponentError(
            "an event has too many values for the ledger", expected=f"at most {MAX_CONTAINER_BYTES} bytes of them"
        )
    return body, blobs if keeps == "all" else None


def _check_size(what: str, size: int, most: int) -> None:
    if size > most:
        raise ComponentError(f"{what} is too large for the ledger", found=size, expected=f"at most {most} bytes")


def count_container_bytes(statement: bytes | Raw) -> int:
    """Return how many bytes of a statement are lists and objects that reading it would build.

    What is no field that is known to build nothing counts as well, so a field that is there twice does.
    """
    fields = _FLAT.decode(statement)
    flat = sum(memoryview(getattr(fields, name)).nbytes for name in _FLAT_FIELDS)
    shallow = [bytes(getattr(fields, name)) for name in _SHALLOW_FIELDS]
    entries = sum(min(len(text), ENTRY_BYTES * text.count(b":")) for text in shallow)
    return memoryview(statement).nbytes - flat - sum(map(len, shallow)) + entries


def _check_container_bytes(statement: bytes | Raw) -> None:
    if memoryview(statement).nbytes > MAX_CONTAINER_BYTES and count_container_bytes(statement) > MAX_CONTAINER_BYTES:
        raise ValidationError("a row has too many values", expected=f"at most {MAX_CONTAINER_BYTES} bytes of them")


def decode_value(text: bytes | Raw, decode: Callable[[bytes | Raw], Any] = msgspec.json.decode) -> Any:
    """Return what a JSON text of a row says; see `check_value_count`."""
    check_value_count(text)
    return decode(text)


def check_value_count(text: bytes | Raw) -> None:
    """Raise a ValidationError for a JSON text of so many values that reading it would take much more memory than it has bytes."""
    if memoryview(text).nbytes > MOST_VALUES and sum(map(bytes(text).count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise ValidationError("a row has too many values", expected=f"at most {MOST_VALUES} of them in one field")


def _without_scene(
    event: EpisodeReset | EpisodeStepped, keeps: ObservationStorage, blobs: HashedValues | None
) -> tuple[EpisodeReset | EpisodeStepped, str, HashedValues | None]:
    """Return the event without a scene that is long, the scene's hash, and the blobs with it."""
    scene = bytes(event.scene)
    if scene == b"null" or (keeps == "all" and len(scene) < INLINE_BYTES):
        return event, "", blobs
    _check_size("a scene", len(scene), MAX_VALUE_BYTES)
    hashed = sha256(scene)
    return replace(event, scene=NULL), hashed.hexdigest(), [*(blobs or ()), (hashed.digest(), scene)]


def _wrap_event(event: bytes, digest: str, scene: str, keeps: str) -> bytes:
    """Return the body around an event: what msgspec would write of a `RowBody`, three times as fast."""
    if digest and not scene and not keeps:
        return b'{"digest":"%b","event":%b}' % (digest.encode(), event)
    parts = [b'"digest":"%b"' % digest.encode()] if digest else []
    parts.append(b'"event":%b' % event)
    if keeps:
        parts.append(b'"observations":"%b"' % keeps.encode())
    if scene:
        parts.append(b'"scene":"%b"' % scene.encode())
    return b"{%b}" % b",".join(parts)


def encode_statement_row(own: LedgerStatement, keeps: ObservationStorage, *, first: bool = False) -> bytes:
    """Return a statement of the ledger's own as a body."""
    return _encode_json(RowBody(own=Raw(_ENCODER.encode(own)), observations=keeps if first else None))


def encode_opening_row(body: RowBody, keeps: ObservationStorage) -> bytes:
    """Return the body of a SessionOpened as that of a first row."""
    return _wrap_event(bytes(body.event) if body.event is not UNSET else b"null", "", "", keeps)


def _encode_json(value: object) -> bytes:
    try:
        return _ENCODER.encode(value)
    # ValueError: text that is no UTF-8; RecursionError: settings that hold themselves.
    except (TypeError, ValueError, RecursionError) as problem:
        raise ComponentError(
            "an event has no JSON form", found=type(value).__name__, expected="JSON values"
        ) from problem


def read_body(body: bytes) -> RowBody:
    """Return the body, or raise a ValidationError."""
    try:
        return _BODY.decode(body)
    except DECODE_ERRORS as problem:
        raise ValidationError(f"not a row of a ledger: {problem}") from problem


class _ValueHashes(Struct, frozen=True, gc=False):
    """As much of a body as says which values it names."""

    digest: str | None = None
    scene: str | None = None
    observations: ObservationStorage | None = None


_VALUE_HASHES: Final = msgspec.json.Decoder(_ValueHashes)


def find_value_hashes(body: bytes) -> list[bytes]:
    """Return the hashes of the values that a body names, wherever they are; none if it cannot be read."""
    try:
        named = _VALUE_HASHES.decode(body)
        return [bytes.fromhex(digest) for digest in (named.digest, named.scene) if digest is not None]
    except (*DECODE_ERRORS, ValueError):
        return []


def find_observation_storage(body: bytes) -> ObservationStorage:
    """Return how the chain with this first row keeps observations; "all" if it cannot be read."""
    try:
        return _VALUE_HASHES.decode(body).observations or "all"
    except (*DECODE_ERRORS, ValueError):
        return "all"


def parse_event_or_statement(body: RowBody, *, trusted: bool = False) -> Event | LedgerStatement:
    """Return what the body says, its values null where they are elsewhere; a ValidationError if it cannot be read.

    A `trusted` body is one of the server's own file: whatever an earlier version wrote is read again.
    """
    if body.event is not UNSET and body.own is UNSET:
        return _parse_event(bytes(body.event), trusted=trusted)
    if body.own is UNSET or body.event is not UNSET:
        raise ValidationError("not a row of a ledger", expected="either an event or a statement of the ledger's own")
    return parse_statement(body.own)


def _parse_event(line: bytes, *, trusted: bool = False) -> Event:
    try:
        if not trusted:
            _check_container_bytes(line)
        return decode_event(line)
    except DECODE_ERRORS as problem:
        raise ValidationError(f"not an event: {problem}") from problem


class EventRow(Struct, frozen=True, gc=False):
    """A body whose event is read whole, in one go; its own statement not at all."""

    digest: str | None = None
    event: Event | UnsetType = UNSET
    own: Raw | UnsetType = UNSET
    scene: str | None = None


_EVENT_ROW: Final = msgspec.json.Decoder(EventRow)


def parse_event_row(body: bytes) -> EventRow:
    """Return the body with its event, or raise a ValidationError."""
    try:
        if len(body) <= MAX_CONTAINER_BYTES:
            return _EVENT_ROW.decode(body)
        read = read_body(body)  # once only: of a field that is there twice, the last one is read
        event = UNSET if read.event is UNSET else _parse_event(bytes(read.event))
        return EventRow(read.digest, event, read.own, read.scene)
    except (*DECODE_ERRORS, TypeError) as problem:
        raise ValidationError(f"not a row of a ledger: {problem}") from problem


def parse_statement(own: Raw) -> LedgerStatement:
    """Return a statement of the ledger's own, or raise a ValidationError."""
    try:
        _check_container_bytes(own)
        return _STATEMENT.decode(own)
    except DECODE_ERRORS as problem:
        raise ValidationError(f"not a row of a ledger: {problem}") from problem


def find_observation_field(event: Event | LedgerStatement) -> str | None:
    """Return the name of the event's field that is an observation; None: it has none."""
    return _OBSERVATION_FIELDS.get(type(event))


def lacks_observation(event: Event | LedgerStatement, digest: str | None) -> bool:
    """Return whether the event's observation is not in the body."""
    field = find_observation_field(event)
    return field is not None and digest != NULL_DIGEST and getattr(event, field) == NULL


class PartialEvent(Struct, frozen=True, gc=False, tag=False):
    """As much of an event as an audit, a list or a restart needs."""

    event: str
    at: float = 0.0
    session: str = ""
    request_id: int | None = None
    epoch: int = 0
    grant: str | None = None
    step: int = 0
    reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    accepted: bool = True
    state: str | None = ""
    lost: bool | str | None = False
    """Of a session that was taken up again: why its episode cannot go on."""
    agent: str = ""
    observation: Raw | UnsetType = UNSET
    observations: Raw | UnsetType = UNSET


class PartialRow(Struct, frozen=True, gc=False):
    """A body whose event is read only as far as that, in one go; its own statement not at all."""

    digest: str | None = None
    event: PartialEvent | UnsetType = UNSET
    observations: ObservationStorage | None = None
    own: Raw | UnsetType = UNSET
    scene: str | None = None


_PARTIAL_ROW: Final = msgspec.json.Decoder(PartialRow)


def parse_partial_row(body: bytes) -> PartialRow:
    """Return the body read only so far, or raise a ValidationError."""
    try:
        row = _PARTIAL_ROW.decode(body)
    except DECODE_ERRORS as problem:
        raise ValidationError(f"not a row of a ledger: {problem}") from problem
    if (row.event is UNSET) == (row.own is UNSET):
        raise ValidationError("not a row of a ledger", expected="either an event or a statement of the ledger's own")
    return row
