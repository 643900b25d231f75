"""JSON values of a record, decoded in order to be told in words.

Rule: a long value is never decoded. Whoever wrote the file decides what is in it, and as Python's objects it can take more than twenty
    times its bytes of memory.
"""

from typing import Any, Final

import msgspec
from msgspec import Raw

LONGEST: Final = 2**21
"""Bytes of a value that is decoded: the rewards of the largest batch have fewer."""


def decode_short(value: Raw, otherwise: Any) -> Any:
    """Return what a value says, or `otherwise` where it is long or cannot be decoded."""
    if memoryview(value).nbytes > LONGEST:
        return otherwise
    try:
        return msgspec.json.decode(value)
    # A whole number of more than 4300 digits is JSON, too.
    except (msgspec.DecodeError, RecursionError):
        return otherwise


def told_size(value: Raw) -> str:
    """Return the size of a value, which stands for one that is not told itself."""
    return f"{memoryview(value).nbytes:,} bytes"
