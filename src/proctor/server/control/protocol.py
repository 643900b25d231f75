"""Which message may come now, and what it says: the control protocol as a table, and a memory of what was answered.

Rule 1: a request that is not in `RULES` does not exist.
Rule 2: pure. This file reads bytes and values, never a socket, a session or a clock.
Rule 3: whatever cannot be taken is `RequestRefused` with a code before anything else happens.
Rule 4: exactly once. Ids grow: one that is not greater than the greatest seen was seen before, or will never run. A repeated
    request gets the reply that was kept; the same id with other content, or an id whose reply is no longer kept, is refused.
    One that is not spent had no effect, and may come once more.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar

import msgspec

from proctor.access.limits import RequestLimits, has_duplicate_keys, is_too_deep
from proctor.models import control
from proctor.models.control import PROTOCOL, Code, MessageKind, Reply, Request
from proctor.server.runtime.results import make_refusal

Read = TypeVar("Read", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class RequestRule:
    """One kind of request: what it needs once `hello` was answered, and whether it may come without."""

    kind: MessageKind
    without_hello: bool
    names_session: bool
    needs_epoch: bool = False
    data: type[msgspec.Struct] | None = None
    """What its data is; None if it has none, or if the environment alone can read it."""


RULES: Final = {
    rule.kind.value: rule
    for rule in (
        RequestRule(MessageKind.HELLO, without_hello=True, names_session=False, data=control.Hello),
        RequestRule(MessageKind.OPEN, without_hello=False, names_session=False, data=control.Open),
        RequestRule(MessageKind.RESUME, without_hello=False, names_session=False, data=control.Resume),
        RequestRule(MessageKind.RESET, without_hello=True, names_session=True, data=control.Reset),
        RequestRule(MessageKind.STEP, without_hello=True, names_session=True, needs_epoch=True),
        RequestRule(MessageKind.STATE, without_hello=True, names_session=True),
        RequestRule(MessageKind.CANCEL, without_hello=False, names_session=True, data=control.Cancel),
        RequestRule(
            MessageKind.GRANT, without_hello=False, names_session=True, needs_epoch=True, data=control.GrantWish
        ),
        RequestRule(MessageKind.REVOKE, without_hello=False, names_session=True, data=control.Revoke),
        RequestRule(MessageKind.WATCH, without_hello=False, names_session=True, data=control.Watch),
        RequestRule(MessageKind.WAIT_END, without_hello=False, names_session=True, data=control.WaitEnd),
        RequestRule(MessageKind.CLOSE, without_hello=True, names_session=False),
        RequestRule(MessageKind.METADATA, without_hello=True, names_session=False),
        RequestRule(MessageKind.SCHEMA, without_hello=True, names_session=False),
    )
}

LONGEST: Final = 200


_REQUEST: Final = msgspec.json.Decoder(Request).decode
_DECODERS: Final = {rule.data: msgspec.json.Decoder(rule.data).decode for rule in RULES.values() if rule.data}
encode: Final = msgspec.json.Encoder().encode


def read_request(raw: bytes, limits: RequestLimits) -> Request:
    """Return the request in a text frame, or refuse it."""
    if len(raw) > limits.max_message_bytes:
        raise make_refusal(Code.TOO_LARGE, f"a message may have {limits.max_message_bytes} bytes")
    if is_too_deep(raw, limits.max_depth):
        raise make_refusal(Code.TOO_DEEP, f"a message may nest {limits.max_depth} levels deep")
    try:
        request = _REQUEST(raw)
    except msgspec.ValidationError as problem:
        raise _refuse_shape(raw, _shorten(problem)) from None
    except (msgspec.DecodeError, RecursionError):
        raise make_refusal(Code.INVALID_JSON, "this is not JSON") from None
    if has_duplicate_keys(raw):
        raise make_refusal(Code.INVALID_JSON, "an object has the same key twice")
    return request


class _Typed(msgspec.Struct):
    type: str


def _refuse_shape(raw: bytes, message: str) -> Exception:
    """Return the refusal of JSON that is no request; what has a type that does not exist is told just that."""
    with suppress(msgspec.DecodeError, RecursionError):
        kind = msgspec.json.decode(raw, type=_Typed).type
        if kind not in RULES:
            return _unknown_type()
    return make_refusal(
        Code.VALIDATION_ERROR,
        f"this is not a request: {message}",
        errors=[{"loc": [], "msg": message, "type": "request"}],
    )


def _shorten(problem: Exception) -> str:
    """Return what msgspec says, which may repeat a name that the peer made up, in short."""
    text = str(problem)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _unknown_type() -> Exception:
    return make_refusal(Code.UNKNOWN_TYPE, "there is no such type of request", expected=", ".join(RULES))


def find_rule(request: Request, *, greeted: bool, fresh: bool) -> RequestRule:
    """Return the rule by which `request` may come now, or refuse it: after hello (`greeted`), or as the first (`fresh`)."""
    rule = RULES.get(request.type)
    if rule is None:
        raise _unknown_type()
    if rule.kind is MessageKind.HELLO:
        if not fresh:
            raise make_refusal(Code.PROTOCOL_ERROR, "hello is the first message or none")
    elif not greeted:
        if not rule.without_hello:
            raise make_refusal(Code.PROTOCOL_ERROR, f"{rule.kind} comes after hello only")
        if request.id is not None or request.session is not None or request.epoch is not None:
            raise make_refusal(
                Code.VALIDATION_ERROR,
                "without hello a message has a type and data, nothing else",
                errors=[{"loc": [], "msg": "id, session and epoch come after hello only", "type": "extra_forbidden"}],
            )
    elif request.id is None:
        raise make_refusal(Code.PROTOCOL_ERROR, "after hello every request has an id", expected="a positive integer")
    elif rule.names_session and request.session is None:
        raise make_refusal(Code.PROTOCOL_ERROR, f"after hello, {rule.kind} names its session")
    elif rule.needs_epoch and request.epoch is None:
        raise make_refusal(Code.PROTOCOL_ERROR, f"after hello, {rule.kind} names its epoch")
    return rule


def decode_data(request: Request, kind: type[Read]) -> Read:
    """Return the request's data as what it must be, or refuse it."""
    raw = bytes(request.data) or b"{}"
    try:
        return _DECODERS[kind](b"{}" if raw == b"null" else raw)  # type: ignore[return-value]  # by the table
    except msgspec.ValidationError as problem:
        raise make_refusal(
            Code.VALIDATION_ERROR,
            f"this is no data of {request.type}: {_shorten(problem)}",
            errors=[{"loc": ["data"], "msg": _shorten(problem), "type": "data"}],
        ) from None
    except (msgspec.DecodeError, RecursionError):
        raise make_refusal(Code.INVALID_JSON, "the data is not JSON") from None


def choose_protocol(hello: control.Hello) -> int:
    """Return the highest version that both sides know, or refuse."""
    if PROTOCOL not in hello.protocols:
        raise make_refusal(
            Code.UNSUPPORTED_PROTOCOL, "no common version of the protocol", expected=f"version {PROTOCOL}"
        )
    return PROTOCOL


def encode_reply(
    kind: str, data: Any, request_id: int | None = None, session: str | None = None, epoch: int | None = None
) -> bytes:
    """Return a reply as it is sent."""
    return encode(Reply(kind, data, request_id, session, epoch))


MOST_KEPT_BYTES: Final = 4 * 2**20
"""Of kept replies in one session; light ones may come on top."""


class Admission(Enum):
    """What is to be done with a request that was not answered yet, or not with this content."""

    NEW = "new"
    RUNNING = "running"
    REUSED = "reused"


class ReplyCache:
    """The replies of one session: the last `most`, and fewer if they are large, but always the last one.

    Requests that run are bounded by whoever admits them.
    """

    def __init__(self, most: int) -> None:
        self.last_id = 0
        self._most = most
        self._bytes = 0
        self._running: dict[int, int] = {}
        self._kept: dict[int, tuple[int, bytes]] = {}
        self._unspent: set[int] = set()

    def admit(self, request_id: int, content: int) -> Admission | bytes:
        """Return the kept reply, or what is to be done; a NEW request counts as seen from now on."""
        if request_id > self.last_id or request_id in self._unspent:
            self.last_id = max(self.last_id, request_id)
            self._unspent.discard(request_id)
            self._running[request_id] = content
            return Admission.NEW
        if request_id in self._running:
            return Admission.RUNNING if self._running[request_id] == content else Admission.REUSED
        said, reply = self._kept.get(request_id, (None, b""))
        return reply if said == content else Admission.REUSED

    def restore(self, last_id: int, unspent: Iterable[int]) -> None:
        """Know that requests up to this one have come before, all of which are spent but these."""
        self.last_id = last_id
        self._unspent = set(unspent)

    @property
    def is_full(self) -> bool:
        """Whether as many replies are kept as there is room for."""
        return len(self._kept) >= self._most

    def is_running(self, request_id: int) -> bool:
        """Return whether this request was admitted and has no reply yet."""
        return request_id in self._running

    def keeps(self, request_id: int) -> bool:
        """Return whether the reply to this request is still there."""
        return request_id in self._kept

    def keep(self, request_id: int, reply: bytes, *, light: bool = False) -> None:
        """Keep the reply to an admitted request; the oldest replies make room.

        A `light` one, to a cancel, makes no large one be forgotten, of which it may just have said that it is kept.
        """
        self._kept[request_id] = (self._running.pop(request_id), reply)
        self._bytes += len(reply)
        most_bytes = self._bytes if light else MOST_KEPT_BYTES
        while len(self._kept) > 1 and (len(self._kept) > self._most or self._bytes > most_bytes):
            _, oldest = self._kept.pop(next(iter(self._kept)))
            self._bytes -= len(oldest)
