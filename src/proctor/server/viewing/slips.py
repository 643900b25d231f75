"""What the server and those who read for it pass to each other through pipes: a slip, and the bytes that go with it.

Rule 1: a message is two lengths, the slip as MessagePack, and the body as it is: whoever passes it on copies it and reads nothing.
Rule 2: an error that was written for callers crosses as what it is; of any other only a text crosses, which is for the log.
"""

import struct
from typing import IO, Final, TypeVar

import msgspec
from msgspec import Struct

from proctor.errors import ComponentError, ProctorError, RenderingError, StateError, ValidationError

SIZES: Final = struct.Struct(">IQ")
KINDS: Final = {kind.__name__: kind for kind in (ValidationError, StateError, ComponentError, RenderingError)}
S = TypeVar("S", bound=Struct)
encode: Final = msgspec.msgpack.encode


class Opening(Struct):
    """Whose pages are read: the ledger at `path`, which with `live` need not be there yet."""

    path: str
    live: bool


class Asked(Struct):
    """Something to read; the body is the query as JSON. With `packs` a large answer may be packed."""

    name: str
    packs: bool = False


class Problem(Struct):
    """An error of ours; `kind` is its class."""

    kind: str
    message: str
    expected: str | None = None
    clause: str | None = None

    @classmethod
    def of(cls, error: ProctorError) -> "Problem":
        """Return what crosses of an error."""
        return cls(type(error).__name__, error.message, error.expected, error.clause)

    def error(self) -> ProctorError:
        """Return the error again."""
        return KINDS[self.kind](self.message, expected=self.expected, clause=self.clause)


class Told(Struct):
    """What came of it; the body is the answer, or the text for the log if it `failed`."""

    is_packed: bool = False
    failed: bool = False
    problem: Problem | None = None


class Change(Struct, array_like=True):
    """An episode whose line has changed, with the line as JSON."""

    chain: str
    line: bytes


class News(Struct):
    """What has changed since the last news: lines that are other ones, and episodes that are there no more."""

    lines: list[Change] = []
    gone: list[str] = []


def put(sink: IO[bytes], slip: Struct, body: bytes = b"") -> None:
    """Pass a message on."""
    head = encode(slip)
    sink.write(SIZES.pack(len(head), len(body)) + head)
    sink.write(body)
    sink.flush()


def taken(source: IO[bytes], kind: type[S]) -> tuple[S, bytes]:
    """Return the next message, or raise an EOFError: there is none."""
    head, body = SIZES.unpack(_exactly(source, SIZES.size))
    return msgspec.msgpack.decode(_exactly(source, head), type=kind), _exactly(source, body)


def _exactly(source: IO[bytes], size: int) -> bytes:
    found = source.read(size)
    if len(found) < size:
        raise EOFError
    return found
