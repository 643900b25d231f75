"""What a row says: an event, or a statement of the ledger's own, as a body of canonical JSON and back. Pure.

Rule 1: a body is one JSON object in UTF-8 without blanks, its keys sorted; an event in it has its fields in the order in which they are
    declared. What was stated in some order (a pipeline's parts, a Raw field) keeps it, byte for byte, so that an event comes
    back equal: a body is canonical because there is one way to write an event, not because its content was put in order.
Rule 2: of an observation the body always has the SHA-256 of its exact bytes (`digest`). The bytes are in the event if they
    are short, and else null there and a blob of that hash; in a chain that keeps digests only they are nowhere.
    A scene that is not in the event is treated the same way (`scene`).
Rule 3: the first row of a chain says how the chain keeps observations.
Rule 4: reading a body takes a few times its bytes of memory, whatever it says: what would take more is refused, and never written.
"""

from hashlib import sha256
from typing import Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from proctor.errors import ComponentError, ValidationError
from proctor.ledger.blobs import LARGEST
from proctor.models.events import (
    NULL,
    BatchReset,
    BatchStepped,
    EpisodeReset,
    EpisodeStepped,
    Event,
    decoded,
)

Observations: TypeAlias = Literal["all", "digest"]
SEAL_EVERY: Final = 1000
"""A chain is sealed after so many rows, besides at its end."""
SHORT: Final = 256
"""Values of fewer bytes stay in the body."""
MOST_BODY: Final = 2**26
"""Bytes of a row's body."""
MOST_BUILT: Final = 2**22
"""Bytes of the lists and objects in a body that are read into Python's own, which take up to thirty times as many."""


class _Own(Struct, frozen=True, kw_only=True, gc=False, tag_field="own", tag=str.lower, forbid_unknown_fields=True):
    """A statement of the ledger's own; `at` is in seconds since 1970."""

    at: float


class RunBegan(_Own, frozen=True, kw_only=True, gc=False):
    """The first row of a server chain: a run of the server opened the file."""

    boot: str
    server: str
    """The version of Proctor."""
    schema: int
    worker: int
    durability: str
    public: str | None
    """The key that signs this run's seals, in hexadecimal digits; None: nothing is signed."""
    previous: str | None
    """The head of the server chain before, None in a new file."""
    unfinished: list[int] = []
    """The rows that say SessionOpened of the sessions which earlier runs left open."""


class RunEnded(_Own, frozen=True, kw_only=True, gc=False):
    """The last row of a server chain whose server was not killed."""


class ChainOpened(_Own, frozen=True, kw_only=True, gc=False):
    """An episode's chain began; `head` is the one after its reset."""

    chain: str
    head: str


class ChainEnded(_Own, frozen=True, kw_only=True, gc=False):
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


class Tombstone(_Own, frozen=True, kw_only=True, gc=False):
    """The tombstone of a chain that was removed."""

    chain: str
    first: int
    rows: int
    head: str
    opened_at: float
    closed_at: float | None
    """None: it was left without a word."""
    why: str


Own: TypeAlias = RunBegan | RunEnded | ChainOpened | ChainEnded | Tombstone

_VALUE: Final[dict[type, str]] = {
    EpisodeStepped: "observation",
    EpisodeReset: "observation",
    BatchStepped: "observations",
    BatchReset: "observations",
}
"""Which field of an event is an observation."""
NULL_DIGEST: Final = sha256(b"null").hexdigest()


class Body(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """A row's body, its event or own statement not read yet."""

    digest: str | None = None
    event: Raw | UnsetType = UNSET
    observations: Observations | None = None
    own: Raw | UnsetType = UNSET
    scene: str | None = None


_ENCODER: Final = msgspec.json.Encoder()
_BODY: Final = msgspec.json.Decoder(Body)
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What reading a body may raise."""
_ANY: Final = msgspec.json.Decoder(Raw)


def _built_fields() -> tuple[str, ...]:
    """Return the names of the fields of all statements that are lists or objects, and no `Raw`."""
    fields = [field for kind in get_args(Event | Own) for field in msgspec.inspect.type_info(kind).fields]  # type: ignore[attr-defined]
    return tuple(sorted({field.name for field in fields if _is_built(field.type)}))


def _is_built(kind: msgspec.inspect.Type) -> bool:
    if isinstance(kind, msgspec.inspect.UnionType):
        return any(map(_is_built, kind.types))
    return isinstance(kind, msgspec.inspect.CollectionType | msgspec.inspect.DictType)


_BUILT_FIELDS: Final = _built_fields()
_Built: Final = msgspec.defstruct("_Built", [(name, Raw, NULL) for name in _BUILT_FIELDS], frozen=True, gc=False)
_BUILT: Final = msgspec.json.Decoder(_Built)
_OWN: Final[msgspec.json.Decoder[Own]] = msgspec.json.Decoder(Own)


Blobs: TypeAlias = list[tuple[bytes, bytes]]
"""Values with their hashes."""
Written: TypeAlias = tuple[bytes, Blobs | None]
"""A body, and the values that it names and does not hold."""


def written_event(event: Event, keeps: Observations, *, first: bool = False) -> Written:
    """Return the event as a body; a ComponentError if it has no JSON form."""
    field = _VALUE.get(type(event))
    blobs: Blobs | None = None
    digest = scene = ""
    if field is not None:
        value: Raw = getattr(event, field)
        _check_size("an observation", memoryview(value).nbytes, LARGEST)
        hashed = sha256(value)
        digest = hashed.hexdigest()
        if keeps == "digest" or memoryview(value).nbytes >= SHORT:
            blobs = [(hashed.digest(), bytes(value))]
            event = replace(event, **{field: NULL})
        # Most events say the very same null.
        if field == "observation" and event.scene is not NULL:  # type: ignore[union-attr]
            event, scene, blobs = _without_scene(event, keeps, blobs)  # type: ignore[arg-type]
    body = _wrapped(_encoded(event), digest, scene, keeps if first else "")
    _check(body)
    _check_size("an event", len(body), MOST_BODY)
    if len(body) > MOST_BUILT and built_bytes(_encoded(event)) > MOST_BUILT:
        raise ComponentError(
            "an event has too many values for the ledger", expected=f"at most {MOST_BUILT} bytes of them"
        )
    return body, blobs if keeps == "all" else None


def _check(body: bytes) -> None:
    """Raise a ComponentError if a Raw in the body is no JSON: nobody could read the row."""
    try:
        _ANY.decode(body)
    except msgspec.DecodeError as problem:
        raise ComponentError(f"an event has no JSON form: {problem}", expected="JSON values") from problem


def _check_size(what: str, size: int, most: int) -> None:
    """Raise a ComponentError for what is larger than a reader of the ledger takes."""
    if size > most:
        raise ComponentError(f"{what} is too large for the ledger", found=size, expected=f"at most {most} bytes")


def built_bytes(statement: bytes | Raw) -> int:
    """Return how many bytes of a statement are lists and objects that reading it would build."""
    fields = _BUILT.decode(statement)
    return sum(memoryview(getattr(fields, name)).nbytes for name in _BUILT_FIELDS)


def _check_built(statement: bytes | Raw) -> None:
    """Raise a ValidationError for a statement that would take much more memory than it has bytes."""
    if memoryview(statement).nbytes > MOST_BUILT and built_bytes(statement) > MOST_BUILT:
        raise ValidationError("a row has too many values", expected=f"at most {MOST_BUILT} bytes of them")


def _without_scene(
    event: EpisodeReset | EpisodeStepped, keeps: Observations, blobs: Blobs | None
) -> tuple[EpisodeReset | EpisodeStepped, str, Blobs | None]:
    """Return the event without a scene that is long, the scene's hash, and the blobs with it."""
    scene = bytes(event.scene)
    if scene == b"null" or (keeps == "all" and len(scene) < SHORT):
        return event, "", blobs
    _check_size("a scene", len(scene), LARGEST)
    hashed = sha256(scene)
    return replace(event, scene=NULL), hashed.hexdigest(), [*(blobs or ()), (hashed.digest(), scene)]


def _wrapped(event: bytes, digest: str, scene: str, keeps: str) -> bytes:
    """Return the body around an event: what msgspec would write of a `Body`, three times as fast."""
    if digest and not scene and not keeps:
        return b'{"digest":"%b","event":%b}' % (digest.encode(), event)
    parts = [b'"digest":"%b"' % digest.encode()] if digest else []
    parts.append(b'"event":%b' % event)
    if keeps:
        parts.append(b'"observations":"%b"' % keeps.encode())
    if scene:
        parts.append(b'"scene":"%b"' % scene.encode())
    return b"{%b}" % b",".join(parts)


def written_own(own: Own, keeps: Observations, *, first: bool = False) -> bytes:
    """Return a statement of the ledger's own as a body."""
    return _encoded(Body(own=Raw(_ENCODER.encode(own)), observations=keeps if first else None))


def written_opening(body: Body, keeps: Observations) -> bytes:
    """Return the body of a SessionOpened as that of a first row."""
    return _wrapped(bytes(body.event) if body.event is not UNSET else b"null", "", "", keeps)


def _encoded(value: object) -> bytes:
    try:
        return _ENCODER.encode(value)
    # ValueError: text that is no UTF-8; RecursionError: settings that hold themselves.
    except (TypeError, ValueError, RecursionError) as problem:
        raise ComponentError(
            "an event has no JSON form", found=type(value).__name__, expected="JSON values"
        ) from problem


def read_body(body: bytes) -> Body:
    """Return the body, or raise a ValidationError."""
    try:
        return _BODY.decode(body)
    except UNREADABLE as problem:
        raise ValidationError(f"not a row of a ledger: {problem}") from problem


class _Named(Struct, frozen=True, gc=False):
    """As much of a body as says which values it names."""

    digest: str | None = None
    scene: str | None = None
    observations: Observations | None = None


_NAMED: Final = msgspec.json.Decoder(_Named)


def named_values(body: bytes) -> list[bytes]:
    """Return the hashes of the values that a body names, wherever they are; none if it cannot be read."""
    try:
        named = _NAMED.decode(body)
        return [bytes.fromhex(digest) for digest in (named.digest, named.scene) if digest is not None]
    except (*UNREADABLE, ValueError):
        return []


def keeps_in(body: bytes) -> Observations:
    """Return how the chain with this first row keeps observations; "all" if it cannot be read."""
    try:
        return _NAMED.decode(body).observations or "all"
    except (*UNREADABLE, ValueError):
        return "all"


def statement_in(body: Body) -> Event | Own:
    """Return what the body says, its values null where they are elsewhere; a ValidationError if it cannot be read."""
    if body.event is not UNSET and body.own is UNSET:
        return _decoded(bytes(body.event))
    if body.own is UNSET or body.event is not UNSET:
        raise ValidationError("not a row of a ledger", expected="either an event or a statement of the ledger's own")
    return own_in(body.own)


def _decoded(line: bytes) -> Event:
    try:
        _check_built(line)
        return decoded(line)
    except UNREADABLE as problem:
        raise ValidationError(f"not an event: {problem}") from problem


class Told(Struct, frozen=True, gc=False):
    """A body whose event is read whole, in one go; its own statement not at all."""

    digest: str | None = None
    event: Event | UnsetType = UNSET
    own: Raw | UnsetType = UNSET
    scene: str | None = None


_TOLD: Final = msgspec.json.Decoder(Told)


def told_in(body: bytes) -> Told:
    """Return the body with its event, or raise a ValidationError."""
    try:
        if len(body) > MOST_BUILT:
            _check_built(read_body(body).event or b"{}")
        return _TOLD.decode(body)
    except (*UNREADABLE, TypeError) as problem:
        raise ValidationError(f"not a row of a ledger: {problem}") from problem


def own_in(own: Raw) -> Own:
    """Return a statement of the ledger's own, or raise a ValidationError."""
    try:
        _check_built(own)
        return _OWN.decode(own)
    except UNREADABLE as problem:
        raise ValidationError(f"not a row of a ledger: {problem}") from problem


def value_field(event: Event | Own) -> str | None:
    """Return the name of the event's field that is an observation; None: it has none."""
    return _VALUE.get(type(event))


def lacks_value(event: Event | Own, digest: str | None) -> bool:
    """Return whether the event's observation is not in the body."""
    field = value_field(event)
    return field is not None and digest != NULL_DIGEST and getattr(event, field) == NULL
