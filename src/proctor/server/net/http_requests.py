"""What a peer asks over HTTP, read from a body or a query: as what it must be, or refused with a code.

Rule: what cannot be read reaches nobody, and the refusal does not repeat more of it than a name.
"""

from collections.abc import Iterable
from typing import Final, TypeVar

import msgspec
from msgspec import Struct
from starlette.requests import Request

from proctor.access.limits import has_duplicate_keys, is_too_deep
from proctor.models.control import Code
from proctor.server.runtime.results import RequestRefused, make_refusal

JSON: Final = "application/json"
LONGEST: Final = 200
T = TypeVar("T", bound=Struct)


async def read_body(request: Request, most: int) -> bytes:
    """Return the body, or refuse one that has more than `most` bytes."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            raise make_refusal(Code.TOO_LARGE, f"a body may have {most} bytes")
    return bytes(body)


def parse_body(kind: type[T], raw: bytes, max_depth: int) -> T:
    """Return a body as what it must be, or refuse it."""
    if is_too_deep(raw, max_depth):
        raise make_refusal(Code.TOO_DEEP, f"a body may nest {max_depth} levels deep")
    try:
        body = msgspec.json.decode(raw)
        if isinstance(body, dict):
            # A whole number is an integer, however it is written: to JSON Schema 3.0 is one.
            whole = {key: int(each) for key, each in body.items() if isinstance(each, float) and each.is_integer()}
            body |= whole
        order = msgspec.convert(body, kind)
    except msgspec.ValidationError as problem:
        raise _refuse_shape(problem) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise make_refusal(Code.INVALID_JSON, "this is not JSON") from None
    if has_duplicate_keys(raw):
        raise make_refusal(Code.INVALID_JSON, "an object has the same key twice")
    return order


def parse_query(kind: type[T], items: Iterable[tuple[str, str]]) -> T:
    """Return what a query asks for, or refuse it."""
    pairs = list(items)
    if len(dict(pairs)) != len(pairs):
        raise make_refusal(Code.VALIDATION_ERROR, "a parameter is there twice")
    try:
        return msgspec.convert(dict(pairs), kind, strict=False)
    except msgspec.ValidationError as problem:
        raise _refuse_shape(problem) from None


def _refuse_shape(problem: msgspec.ValidationError) -> RequestRefused:
    # The text may repeat a name that the peer made up.
    return make_refusal(Code.VALIDATION_ERROR, f"this is not what is asked for: {str(problem)[:LONGEST]}")
