"""How much a peer may ask for: bytes, depth, requests a second.

Rule 1: every check costs next to nothing for an ordinary message and is bounded for a hostile one.
Rule 2: what is not JSON is nobody's business here: the decoder refuses it. A check only promises never to see less
    than a decoder would.
Rule 3: the depth is judged first; the other checks may then recurse.
"""

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from proctor.errors import ValidationError

MIB: Final = 1024 * 1024
DEEPEST: Final = 512
"""No limit on depth may be higher: decoders recurse."""

_BLOCK: Final = 256 * 1024
_QUOTE: Final = ord('"')
_NOT_STRUCTURE: Final = bytes(set(range(256)) - set(b'[]{}"'))
_FEW: Final = 4096
_CHANGE: Final = np.zeros(256, np.int8)
_CHANGE[list(b"[{")] = 1
_CHANGE[list(b"]}")] = -1


@dataclass(frozen=True, slots=True)
class Limits:
    """What one peer may send; `requests_per_second` None is no limit, `burst` is what may come at once."""

    max_message_bytes: int = 16 * MIB
    max_body_bytes: int = MIB
    max_depth: int = 64
    requests_per_second: float | None = None
    burst: int = 100

    def __post_init__(self) -> None:
        for name, highest in _HIGHEST.items():
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= highest:
                raise ValidationError(
                    f"{name} is out of range", found=value, expected=f"an integer from 1 to {highest}"
                )
        rate = self.requests_per_second
        if rate is not None and not (math.isfinite(rate) and rate > 0):
            raise ValidationError(
                "requests_per_second is out of range", found=rate, expected="a positive number or None"
            )

    def bucket(self, clock: Callable[[], float] = time.monotonic) -> "Bucket | None":
        """Return a full bucket for one peer; None if there is no limit on its rate."""
        rate = self.requests_per_second
        return None if rate is None else Bucket(rate, self.burst, clock)


_HIGHEST: Final = {
    "max_message_bytes": 1024 * MIB,
    "max_body_bytes": 1024 * MIB,
    "max_depth": DEEPEST,
    "burst": 10**9,
}


def too_deep(raw: bytes, limit: int) -> bool:
    """Return whether arrays and objects are nested more than `limit` deep in a JSON text."""
    # No text is deeper than it has opening brackets, wherever they stand: this settles nearly every message.
    if raw.count(b"[") + raw.count(b"{") <= limit:
        return False
    return _depth(raw, limit) > limit


def depth_of(raw: bytes) -> int:
    """Return how deep arrays and objects are nested in a JSON text; a lone number or string has depth 0."""
    return _depth(raw, len(raw))


def _depth(raw: bytes, enough: int) -> int:
    """Return the depth, or one that is more than `enough`."""
    if b"\\" in raw:
        # Pairs first, so that the quote after an escaped backslash still ends its string.
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = np.frombuffer(raw.translate(None, _NOT_STRUCTURE), np.uint8)
    depth, deepest, inside = 0, 0, False
    for start in range(0, marks.size, _BLOCK):
        block = marks[start : start + _BLOCK]
        levels, inside = _levels(block, inside)
        deepest = max(deepest, depth + int(levels.max()))
        if deepest > enough:
            break
        depth += int(levels[-1])
    return deepest


def _levels(marks: NDArray[np.uint8], inside: bool) -> tuple[NDArray[np.int32], bool]:
    """Return the depth after each mark, from 0, and whether the last one leaves a string open."""
    changes = _CHANGE[marks]
    quotes = marks == _QUOTE
    if inside or quotes.any():
        within = np.logical_xor.accumulate(quotes) ^ inside
        changes[within] = 0
        inside = bool(within[-1])
    return np.cumsum(changes, dtype=np.int32), inside


def has_duplicate_keys(raw: bytes) -> bool:
    """Return whether an object in a JSON text has a key twice; what is not JSON may get either answer.

    Decoders keep the last of the two, or the first: whoever checks and whoever acts might not read the same message.
    """
    if b"\\" not in raw and raw.count(b'"') <= _FEW:
        # Every other part is a string. Where all are different, so are the keys: this settles nearly every message.
        strings = raw.split(b'"')[1::2]
        if len(set(strings)) == len(strings):
            return False
    try:
        # Not the bytes: json.loads would guess at UTF-16, which no decoder of ours reads.
        _SEARCH.decode(raw.decode("utf-8", "surrogateescape"))
    except (_Twice, RecursionError):  # whoever did not judge the depth first gets the careful answer
        return True
    except ValueError:
        return False
    return False


class _Twice(Exception):
    """A key was found twice."""


def _check_once(pairs: list[tuple[str, Any]]) -> None:
    if len({key for key, _ in pairs}) != len(pairs):
        raise _Twice


# `bool` stands for every number, so that a long array of them costs no memory and a long integer no time.
_SEARCH: Final = json.JSONDecoder(
    object_pairs_hook=_check_once, parse_int=bool, parse_float=bool, parse_constant=bool, strict=False
)


_ROUNDING: Final = 1e-9
"""Who waits as long as was said is served then; what is given early is owed."""


class Bucket:
    """Requests that may still come: `burst` at once, `rate` more each second."""

    __slots__ = ("_clock", "_left", "_then", "burst", "rate")

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        if not (math.isfinite(rate) and rate > 0 and burst >= 1):
            raise ValidationError(
                "not a rate", found=(rate, burst), expected="a positive rate and a burst of at least 1"
            )
        self.rate = rate
        self.burst = burst
        self._clock = clock
        self._left = float(burst)
        self._then = clock()

    def take(self, n: int = 1) -> float:
        """Take `n` requests and return 0.0, or take none and return the seconds after which they could be taken.

        More than `burst` at once can never be taken: the wait is infinite.
        """
        now = self._clock()
        if now > self._then:  # a clock that is set back gives nothing
            self._left = min(self.burst, self._left + (now - self._then) * self.rate)
            self._then = now
        if n <= self._left + _ROUNDING:
            self._left -= n
            return 0.0
        return math.inf if n > self.burst else (n - self._left) / self.rate
