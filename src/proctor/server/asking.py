"""What a peer asks over HTTP, read from a body or a query: as what it must be, or refused with a code.

Rule: what cannot be read reaches nobody, and the refusal does not repeat more of it than a name.
"""

from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct
from starlette.requests import Request

from proctor.door.limits import has_duplicate_keys, too_deep
from proctor.models.control import Code
from proctor.server.answers import Refused, refused

JSON: Final = "application/json"
LONGEST: Final = 200
T = TypeVar("T", bound=Struct)


async def body_of(request: Request, most: int) -> bytes:
    """Return the body, or refuse one that has more than `most` bytes."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            raise refused(Code.TOO_LARGE, f"a body may have {most} bytes")
    return bytes(body)


def order_of(kind: type[T], raw: bytes, max_depth: int) -> T:
    """Return a body as what it must be, or refuse it."""
    if too_deep(raw, max_depth):
        raise refused(Code.TOO_DEEP, f"a body may nest {max_depth} levels deep")
    try:
        order = msgspec.convert(_whole(msgspec.json.decode(raw)), kind)
    except msgspec.ValidationError as problem:
        raise _misshapen(problem) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise refused(Code.INVALID_JSON, "this is not JSON") from None
    if has_duplicate_keys(raw):
        raise refused(Code.INVALID_JSON, "an object has the same key twice")
    return order


def _whole(body: Any) -> Any:
    """Return a body in which a whole number is an integer, however it is written: to JSON Schema 3.0 is one."""
    if not isinstance(body, dict):
        return body
    return {
        key: int(value) if isinstance(value, float) and value.is_integer() else value for key, value in body.items()
    }


def query_of(kind: type[T], items: Iterable[tuple[str, str]]) -> T:
    """Return what a query asks for, or refuse it."""
    pairs = list(items)
    if len(dict(pairs)) != len(pairs):
        raise refused(Code.VALIDATION_ERROR, "a parameter is there twice")
    try:
        return msgspec.convert(dict(pairs), kind, strict=False)
    except msgspec.ValidationError as problem:
        raise _misshapen(problem) from None


def _misshapen(problem: msgspec.ValidationError) -> Refused:
    # The text may repeat a name that the peer made up.
    return refused(Code.VALIDATION_ERROR, f"this is not what is asked for: {str(problem)[:LONGEST]}")
