"""Values that are stored once, by the SHA-256 of their bytes: how they lie in the file, and back. Pure.

Rule: nothing is decompressed beyond what its reader takes: a few bytes can say a thousand times as many.
"""

import zlib
from collections.abc import Iterator
from hashlib import sha256
from typing import Final, TypeAlias

import msgspec

from proctor.errors import ValidationError

BlobRow: TypeAlias = tuple[bytes, int, int, bytes]
"""A row of the table: digest, packed, sum, content."""

INSERT_BLOB: Final = "INSERT OR IGNORE INTO blobs (digest, packed, sum, content) VALUES (?, ?, ?, ?)"
_JSON: Final = msgspec.json.Decoder(msgspec.Raw)
"""Reads, and keeps nothing of it."""
MAX_VALUE_BYTES: Final = 2**28
"""Of a value and of a row, in bytes: no more is written, and no more is read from a file, whatever it says."""
_PIECE: Final = 2**20
_SAMPLE: Final = 2048
_WORTH: Final = 0.7
"""What is not shorter than this after compression is stored as it is: packed floats are not."""


class ValueTooLarge(ValidationError):
    """A value of a ledger has more bytes than its reader takes."""


def encode_blob(digest: bytes, value: bytes) -> BlobRow:
    """Return the value as it is stored, compressed if a sample of it says that this helps."""
    packed, content = _compress(value)
    return digest, packed, zlib.crc32(content), content


def _compress(value: bytes) -> tuple[int, bytes]:
    if len(zlib.compress(value[:_SAMPLE], 1)) > _WORTH * min(len(value), _SAMPLE):
        return 0, value
    short = zlib.compress(value, 1)
    return (1, short) if len(short) < len(value) else (0, value)


def decode_blob(digest: bytes, packed: int, total: int, content: bytes, most: int = MAX_VALUE_BYTES) -> bytes:
    """Return the value of a blob, or raise a ValidationError: it is not the one that its name says, or no JSON.

    One of more than `most` bytes is a ValueTooLarge.
    """
    value = decompress_blob(packed, total, content, most)
    if sha256(value).digest() != digest:
        raise ValidationError("a value is not as it was written")
    try:
        _JSON.decode(value)
    # Whoever makes a file can name anything rightly; what is spliced into a page must be JSON all the same.
    except (msgspec.DecodeError, RecursionError) as problem:
        raise ValidationError("a value is no JSON") from problem
    return value


def decompress_blob(packed: int, total: int, content: bytes, most: int = MAX_VALUE_BYTES) -> bytes:
    """Return the value of a blob, or raise a ValidationError: it is not as it was stored, or has more than `most` bytes."""
    return b"".join(decompress_pieces(packed, total, content, most))


def decompress_pieces(packed: int, total: int, content: bytes, most: int = MAX_VALUE_BYTES) -> Iterator[bytes]:
    """Yield the value of a blob in pieces, so that who only hashes it never holds all of it; the errors are those of `unpacked`."""
    if type(content) is not bytes or packed not in (0, 1) or zlib.crc32(content) != total:
        raise ValidationError("a blob is damaged: its sum is another")
    if packed:
        yield from _decompress(content, most)
    elif len(content) > most:
        raise _too_large(most)
    else:
        yield content


def _decompress(content: bytes, most: int) -> Iterator[bytes]:
    unpacking, left = zlib.decompressobj(), most
    try:
        while not unpacking.eof and content:
            piece = unpacking.decompress(content, _PIECE)
            content = unpacking.unconsumed_tail
            left -= len(piece)
            if left < 0:
                raise _too_large(most)
            if not piece and not unpacking.eof:
                break  # the stream ends too early
            yield piece
    except zlib.error as problem:
        raise ValidationError(f"a blob is damaged: {problem}") from problem
    if not unpacking.eof or unpacking.unused_data:
        raise ValidationError("a blob is damaged: it has another length")


def _too_large(most: int) -> ValueTooLarge:
    return ValueTooLarge("a value is too large", expected=f"at most {most} bytes")
