"""Values that are stored once, by the SHA-256 of their bytes: how they lie in the file, and back. Pure."""

import zlib
from hashlib import sha256
from typing import Final, TypeAlias

import msgspec

from proctor.errors import ValidationError

Blob: TypeAlias = tuple[bytes, int, int, bytes]
"""A row of the table: digest, packed, sum, content."""

INSERT_BLOB: Final = "INSERT OR IGNORE INTO blobs (digest, packed, sum, content) VALUES (?, ?, ?, ?)"
_JSON: Final = msgspec.json.Decoder(msgspec.Raw)
"""Reads, and keeps nothing of it."""
_SAMPLE: Final = 2048
_WORTH: Final = 0.7
"""What is not shorter than this after compression is stored as it is: packed floats are not."""


def stored_blob(digest: bytes, value: bytes) -> Blob:
    """Return the value as it is stored, compressed if a sample of it says that this helps."""
    packed, content = _packed(value)
    return digest, packed, zlib.crc32(content), content


def _packed(value: bytes) -> tuple[int, bytes]:
    if len(zlib.compress(value[:_SAMPLE], 1)) > _WORTH * min(len(value), _SAMPLE):
        return 0, value
    short = zlib.compress(value, 1)
    return (1, short) if len(short) < len(value) else (0, value)


def value_of(digest: bytes, packed: int, total: int, content: bytes) -> bytes:
    """Return the value of a blob, or raise a ValidationError: it is not the one that its name says, or no JSON."""
    value = unpacked(packed, total, content)
    if sha256(value).digest() != digest:
        raise ValidationError("a value is not as it was written")
    try:
        _JSON.decode(value)
    # Whoever makes a file can name anything rightly; what is spliced into a page must be JSON all the same.
    except (msgspec.DecodeError, RecursionError) as problem:
        raise ValidationError("a value is no JSON") from problem
    return value


def unpacked(packed: int, total: int, content: bytes) -> bytes:
    """Return the value of a blob, or raise a ValidationError: it is not as it was stored."""
    if type(content) is not bytes or packed not in (0, 1) or zlib.crc32(content) != total:
        raise ValidationError("a blob is damaged: its sum is another")
    if not packed:
        return content
    unpacking = zlib.decompressobj()
    try:
        value = unpacking.decompress(content)
    except zlib.error as problem:
        raise ValidationError(f"a blob is damaged: {problem}") from problem
    if not unpacking.eof or unpacking.unused_data:
        raise ValidationError("a blob is damaged: it has another length")
    return value
