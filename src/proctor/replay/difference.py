"""Where two JSON texts part: equal to the last bit, or the first place where they are not, with both values.

Rule 1: equal means equal values: 1 is not 1.0, 0.0 is not -0.0 and true is not 1, but the order of an object's keys, and
    how a compressed array was compressed, say nothing.
Rule 2: texts that are the same byte for byte are never parsed.
Rule 3: what was recorded is parsed only if it is about as long as what came now, or short: as Python's objects a text of a stranger can take
    many times its bytes. Of a longer one the length is the difference.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import msgspec

from proctor.errors import ValidationError
from proctor.models.arrays import listed, packed_form, unpacked

SHORT: Final = 2**21
"""Bytes of a recorded text that is parsed, however long the other is."""
ABSENT: Final = "(nothing)"
"""Stands for a value that one of the two does not have."""

_decode: Final = msgspec.json.Decoder().decode
_sorted: Final = msgspec.json.Encoder(order="deterministic").encode


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs, where in it (a JSON pointer; empty: the whole), and both values, which JSON can say."""

    what: str
    recorded: Any
    found: Any
    where: str = ""

    def __str__(self) -> str:
        """Return one line for people."""
        return f"{self.what}{self.where}: recorded {shown(self.recorded)}, found {shown(self.found)}"


def shown(value: Any, most: int = 120) -> str:
    """Return a value as JSON, in its beginning and its end if it is long."""
    text = _sorted(value).decode()
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-most // 2 :]}"


def canonical(text: bytes) -> bytes:
    """Return a JSON text with its objects' keys in order and every number as this process writes it."""
    return _sorted(_decode(text))


def parted(what: str, recorded: bytes, found: bytes) -> Difference | None:
    """Return how two JSON texts differ, None if they say the same."""
    if recorded == found:
        return None
    # Both are written by one encoder, so that what says the same is as long, but for how an array was compressed.
    if len(recorded) > max(SHORT, 2 * len(found)):
        return Difference(what, f"{len(recorded)} bytes", f"{len(found)} bytes")
    # What was recorded has been put in order before, so that most often only one of the two is parsed.
    ordered = canonical(found)
    if recorded == ordered or canonical(recorded) == ordered:
        return None
    return values_parted(what, _decode(recorded), _decode(found))


def digest_parted(what: str, recorded: str, found: bytes) -> Difference | None:
    """Return how the digest of a text differs from the recorded one, None if they are the same."""
    digest = sha256(found).hexdigest()
    return None if digest == recorded else Difference(what, f"sha256:{recorded}", f"sha256:{digest}")


def values_parted(what: str, recorded: Any, found: Any) -> Difference | None:
    """Return the first place where two values that JSON can say differ."""
    place = _place(unfolded(recorded), unfolded(found), "")
    return None if place is None else Difference(what, place[1], place[2], place[0])


def unfolded(value: Any) -> Any:
    """Return a value with every packed array in it as nested lists."""
    if isinstance(value, list):
        return [unfolded(each) for each in value]
    if not isinstance(value, dict):
        return value
    array = _unpacked(value)
    return {key: unfolded(each) for key, each in value.items()} if array is None else array


def _unpacked(value: dict[str, Any]) -> Any:
    if "dtype" not in value:
        return None
    try:
        packed_form(value)
        return listed(unpacked(value))
    except ValidationError:
        return None  # an object that only looks like one


def _place(recorded: Any, found: Any, where: str) -> tuple[str, Any, Any] | None:
    """Return where two plain values first differ, and what stands there."""
    if recorded is ABSENT or found is ABSENT:
        return where, recorded, found
    parts = _parts(recorded, found)
    if parts is None:
        return None if _sorted(recorded) == _sorted(found) else (where, recorded, found)
    places = (_place(one, other, f"{where}/{name}") for name, one, other in parts)
    return next((place for place in places if place is not None), None)


def _parts(recorded: Any, found: Any) -> Iterator[tuple[str, Any, Any]] | None:
    """Return what two values hold under each name; None where they are not made alike."""
    if isinstance(recorded, dict) and isinstance(found, dict):
        keys = sorted({*recorded, *found})
        return ((_escaped(key), recorded.get(key, ABSENT), found.get(key, ABSENT)) for key in keys)
    if isinstance(recorded, list) and isinstance(found, list) and len(recorded) == len(found):
        return ((str(i), *pair) for i, pair in enumerate(zip(recorded, found, strict=True)))
    return None


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
