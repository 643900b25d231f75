"""How much a peer may ask for: bytes, depth, requests a second.

Rule 1: every check costs next to nothing for an ordinary message and is bounded for a hostile one.
Rule 2: what is not JSON is nobody's business here: the decoder refuses it. A check only promises never to see less
    than a decoder would.
Rule 3: the depth is judged first; the other checks may then recurse.
"""

import json
import math
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from proctor.errors import ValidationError

KIB: Final = 1024
MIB: Final = 1024 * KIB
DEEPEST: Final = 512
"""No limit on depth may be higher: decoders recurse."""

_BLOCK: Final = 256 * 1024
_QUOTE: Final = ord('"')
_NOT_STRUCTURE: Final = bytes(set(range(256)) - set(b'[]{}"'))
_MARKS: Final = b",:[{"
_NOT_MARKS: Final = bytes(set(range(256)) - set(_MARKS + b'"'))
_NOT_BRACES: Final = bytes(set(range(256)) - set(b"{}"))
_STRINGS: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_COLON: Final = re.compile(rb"[ \t\r\n]*+:")
_FEW: Final = 4096
_LONG: Final = 64 * 1024
_CHANGE: Final = np.zeros(256, np.int8)
_CHANGE[list(b"[{")] = 1
_CHANGE[list(b"]}")] = -1


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What one peer may send; `requests_per_second` None is no limit, `burst` is what may come at once.

    `max_arguments_bytes` is for the arguments of one tool call; a tool can ask for more, up to `max_body_bytes`.
    `agent_bytes_per_second` is for everything that one agent sends.
    """

    max_message_bytes: int = 16 * MIB
    max_body_bytes: int = MIB
    max_arguments_bytes: int = 64 * KIB
    agent_bytes_per_second: int = 4 * MIB
    max_depth: int = 64
    requests_per_second: float | None = None
    burst: int = 100

    def __post_init__(self) -> None:
        for name, highest in _HIGHEST.items():
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= highest:
                expected = f"an integer from 1 to {highest}"
                raise ValidationError(f"{name} is out of range", found=value, expected=expected)
        rate = self.requests_per_second
        if rate is not None and not (math.isfinite(rate) and rate > 0):
            reason = "requests_per_second is out of range"
            raise ValidationError(reason, found=rate, expected="a positive number or None")

    def bucket(self, clock: Callable[[], float] = time.monotonic) -> "TokenBucket | None":
        """Return a full bucket for one peer; None if there is no limit on its rate."""
        rate = self.requests_per_second
        return None if rate is None else TokenBucket(rate, self.burst, clock)


_BYTES: Final = ("max_message_bytes", "max_body_bytes", "max_arguments_bytes", "agent_bytes_per_second")
_HIGHEST: Final = dict.fromkeys(_BYTES, 1024 * MIB) | {"max_depth": DEEPEST, "burst": 10**9}


def is_too_deep(raw: bytes, limit: int) -> bool:
    """Return whether arrays and objects are nested more than `limit` deep in a JSON text."""
    # No text is deeper than it has opening brackets, wherever they stand: this settles nearly every message.
    if raw.count(b"[") + raw.count(b"{") <= limit:
        return False
    depth = 0
    for marks in _find_marks(raw, _NOT_STRUCTURE):
        levels = np.cumsum(_CHANGE[marks], dtype=np.int32)
        if depth + int(levels.max()) > limit:
            return True
        depth += int(levels[-1])
    return False


def _find_marks(raw: bytes, others: bytes) -> Iterator[NDArray[np.uint8]]:
    """Yield what is left of a JSON text without strings and `others`, some at a time."""
    marks = np.frombuffer(_remove_escapes(raw).translate(None, others), np.uint8)
    inside = False
    for start in range(0, marks.size, _BLOCK):
        block = marks[start : start + _BLOCK]
        quotes = block == _QUOTE
        if inside or quotes.any():
            within = np.logical_xor.accumulate(quotes) ^ inside
            inside = bool(within[-1])
            block = block[~(within | quotes)]
        if block.size:
            yield block


def _remove_escapes(raw: bytes) -> bytes:
    """Return a JSON text in which every quote begins or ends a string."""
    # Pairs first, so that the quote after an escaped backslash still ends its string.
    return raw.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in raw else raw


def has_more_values(raw: bytes, limit: int) -> bool:
    """Return whether a JSON text has more than `limit` commas, colons, lists and objects; those in strings do not count.

    No text has more values and keys than these and one: this is what it takes to build it.
    """
    # Wherever they stand: this settles nearly every message.
    if len(raw) - len(raw.translate(None, _MARKS)) <= limit:
        return False
    count = 0
    for marks in _find_marks(raw, _NOT_MARKS):
        count += marks.size
        if count > limit:
            return True
    return False


def has_duplicate_keys(raw: bytes) -> bool:
    """Return whether an object in a JSON text has a key twice; what is not JSON may get either answer.

    Decoders keep the last of the two, or the first: whoever checks and whoever acts might not read the same message.
    """
    if b"\\" not in raw and raw.count(b'"') <= _FEW:
        # Every other part is a string. Where all are different, so are the keys: this settles nearly every message.
        strings = raw.split(b'"')[1::2]
        if len(set(strings)) == len(strings):
            return False
    if len(raw) > _LONG:
        return _has_key_twice(raw)
    try:
        # Not the bytes: json.loads would guess at UTF-16, which no decoder of ours reads.
        _SEARCH.decode(raw.decode("utf-8", "surrogateescape"))
    except (_DuplicateKey, RecursionError):  # whoever did not judge the depth first gets the careful answer
        return True
    except ValueError:
        return False
    return False


def _has_key_twice(raw: bytes) -> bool:
    """The same for a long text: nothing is built, and other threads get their turn, which they do not while `json` decodes."""
    open_objects: list[set[str]] = []
    end = 0
    for string in _STRINGS.finditer(raw):
        # Between two strings there are the ends of objects, empty ones, and at most one beginning: the next string is a key.
        braces = raw[end : string.start()].translate(None, _NOT_BRACES).replace(b"{}", b"")
        end = string.end()
        del open_objects[max(0, len(open_objects) - braces.count(b"}")) :]
        if braces.endswith(b"{"):
            open_objects.append(set())
        if open_objects and _COLON.match(raw, end):
            key = _decode_string(string[0])
            if key in open_objects[-1]:
                return True
            open_objects[-1].add(key)
    return False


def _decode_string(string: bytes) -> str:
    """Return what a JSON string says: two spellings of a key are the same key."""
    text = string[1:-1].decode("utf-8", "surrogateescape")
    try:
        return str(json.loads(f'"{text}"', strict=False)) if "\\" in text else text
    except ValueError:  # no JSON, which the decoder refuses
        return text


class _DuplicateKey(Exception):
    """A key was found twice."""


def _check_once(pairs: list[tuple[str, Any]]) -> None:
    if len({key for key, _ in pairs}) != len(pairs):
        raise _DuplicateKey


# `bool` stands for every number, so that a long array of them costs no memory and a long integer no time.
_SEARCH: Final = json.JSONDecoder(
    object_pairs_hook=_check_once, parse_int=bool, parse_float=bool, parse_constant=bool, strict=False
)
_LONG_EXPONENT: Final = re.compile(rb"[eE]\+?[0-9]{3}")
_DIGITS: Final = bytes.maketrans(b"0123456789", b"0000000000")
_MANY_DIGITS: Final = b"0" * 309
_NUMBER: Final = re.compile(rb"[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")


def has_infinite_number(raw: bytes) -> bool:
    """Return whether a number in a JSON text is too large for a float, so that some decoders read it as infinity.

    An integer of many digits is no such number: those who read it as a float refuse it by themselves.
    """
    # Only a number with a long exponent or with many digits can be so large; one expression for both would take long to say so.
    if _LONG_EXPONENT.search(raw) is None and _MANY_DIGITS not in raw.translate(_DIGITS):
        return False
    numbers = _NUMBER.findall(_STRINGS.sub(b"", raw))
    return any(math.isinf(float(number)) for number in numbers if not number.isdigit())


_ROUNDING: Final = 1e-9
"""Who waits as long as was said is served then; what is given early is owed."""


class Throttle:
    """Counts what happens too often, and says how long to wait because of it: not at all for the first `at_once`.

    What is more than `most_seconds` would take is forgotten.
    """

    __slots__ = ("_at_once", "_clock", "_free_at", "_most_seconds", "_per_second")

    def __init__(
        self, per_second: float, at_once: int, most_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_second = per_second
        self._at_once = at_once
        self._most_seconds = most_seconds
        self._clock = clock
        self._free_at = float("-inf")
        """When all that happened so far has had its time."""

    def note(self) -> float:
        """Count one, and return how many seconds to wait."""
        now = self._clock()
        free_at = max(self._free_at, now - self._at_once / self._per_second) + 1.0 / self._per_second
        self._free_at = min(free_at, now + self._most_seconds)
        return self.wait_seconds()

    def wait_seconds(self) -> float:
        """Return how many seconds to wait if nothing more happens."""
        return max(0.0, self._free_at - self._clock())


class TokenBucket:
    """Requests that may still come: `burst` at once, `rate` more each second."""

    __slots__ = ("_clock", "_left", "_then", "burst", "rate")

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        if not (math.isfinite(rate) and rate > 0 and burst >= 1):
            expected = "a positive rate and a burst of at least 1"
            raise ValidationError("not a rate", found=(rate, burst), expected=expected)
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


class LogBudget:
    """Lines that one peer may cause in the log: `burst` at once, `rate` more each second; the others are counted."""

    __slots__ = ("_bucket", "left_out")

    def __init__(self, rate: float = 1.0, burst: int = 20, clock: Callable[[], float] = time.monotonic) -> None:
        self._bucket = TokenBucket(rate, burst, clock)
        self.left_out = 0

    def take(self) -> dict[str, int] | None:
        """Return the fields of a line that may be logged, with the count of those left out before it; None: leave it out."""
        if self._bucket.take():
            self.left_out += 1
            return None
        count, self.left_out = self.left_out, 0
        return {"left_out": count} if count else {}
