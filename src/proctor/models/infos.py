"""Gymnasium's `info` as JSON: what can be said is said exactly, what cannot is left out by name.

Rule 1: numpy's numbers and arrays become plain ones; floats that are not finite become their names (see `arrays`).
Rule 2: a key is kept whole or left out whole; those left out are listed under `OMITTED`. Nothing here raises.
Rule 3: who serves an environment and who replays it say its metadata with the same function (`told_info`), byte for byte.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import numpy as np
from pydantic import JsonValue

from proctor.models.arrays import DTYPES, listed, named, packed_array
from proctor.models.wire import Encoding

OMITTED: Final = "_omitted"
DEEPEST: Final = 32
"""Beyond this depth a value is left out; so is one that holds itself."""
SEED_KEYS: Final = ("seed", "_seed")
FINAL_KEYS: Final = ("final_info", "_final_info", "_final_obs")
"""The keys of a batch's infos that a learner needs whatever else it wants to know."""
Way = Callable[[Any, int], JsonValue]
"""How a kind of value is said at a depth."""

_encode: Final = msgspec.json.Encoder().encode
_msgpack: Final = msgspec.msgpack.Encoder().encode
_NOT_FINITE: Final = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]", re.DOTALL)
"""How msgpack begins a float whose exponent is all ones; a text may look like one, a float that is finite never does."""
_SMALLEST, _LARGEST = -(2**63), 2**64 - 1  # what JSON's readers take for an integer without loss


class _Unspeakable(Exception):
    """JSON cannot say this value."""


def plain_info(info: Mapping[Any, Any]) -> dict[str, JsonValue]:
    """Return `info` as JSON, with the keys that JSON cannot say listed under `OMITTED`."""
    plain: dict[str, JsonValue] = {}
    omitted: list[str] = []
    for key, value in info.items():
        # Spelt out, because this runs for every key of every step.
        way = _WAYS.get(type(value)) or _way_of(type(value))
        try:
            plain[key if type(key) is str and key.isascii() else _key(key)] = way(value, 0)
        except _Unspeakable:
            omitted.append(_shown(key))
    if omitted:
        plain[OMITTED] = sorted(omitted)  # type: ignore[assignment]  # a list of strings is JSON
    return plain


def told_info(metadata: Mapping[str, Any]) -> bytes:
    """Return metadata as JSON; a number that is not finite is named, never said to be null."""
    told = _encode(metadata)
    # A null is a None, which stays one, or such a number, which msgpack would keep.
    if b"null" in told and _NOT_FINITE.search(_msgpack(metadata)):
        return _encode(plain_info(metadata))
    return told


def told_infos(
    infos: Mapping[str, Any], encoding: Encoding, said: Callable[[Any], Any], *, everything: bool, begun: bool
) -> bytes:
    """Return a batch's infos as JSON: `everything`, or what a learner cannot do without.

    That is the seeds where an episode has `begun`, and the last info and observations where one has ended; `said` gives
    one observation in its space's form.
    """
    if everything:
        keys = [key for key in infos if key != "final_obs"]
    else:
        keys = [key for key in (*(SEED_KEYS if begun else ()), *FINAL_KEYS) if key in infos]
    told = {key: _batch_value(infos[key], encoding) for key in keys}
    if "final_obs" in infos:
        index = np.flatnonzero(infos["_final_obs"]).tolist()
        told["final_obs"] = {"index": index, "values": [said(infos["final_obs"][i]) for i in index]}
    return _encode(told)


def _batch_value(value: Any, encoding: Encoding) -> Any:
    """Return a value of a batch's info as JSON can say it, numeric arrays as the encoding says; what it cannot is null."""
    if isinstance(value, Mapping):
        return {str(key): _batch_value(each, encoding) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "biuf":
            return packed_array(value, encoding.compress) if encoding.packed else listed(value)
        return [_batch_value(each, encoding) for each in value.tolist()]
    if isinstance(value, np.generic):
        return listed(np.asarray(value))
    if isinstance(value, list | tuple):
        return [_batch_value(each, encoding) for each in value]
    return value if value is None or isinstance(value, str | bool | int | float) else None


def _plain(value: Any, depth: int) -> JsonValue:
    way = _WAYS.get(type(value)) or _way_of(type(value))
    return way(value, depth)


def _way_of(kind: type) -> Way:
    """Return how the nearest parent of `kind` is said."""
    return next((_WAYS[each] for each in kind.__mro__ if each in _WAYS), _refuse)


def _refuse(value: Any, depth: int) -> JsonValue:
    raise _Unspeakable


def _itself(value: Any, depth: int) -> JsonValue:
    said: JsonValue = value
    return said


def _integer(value: int, depth: int) -> int:
    if not _SMALLEST <= value <= _LARGEST:
        raise _Unspeakable
    return int(value)


def _float(value: float, depth: int) -> float | str:
    return float(value) if math.isfinite(value) else named(value)


def _text(value: str, depth: int) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:  # half a surrogate pair
            raise _Unspeakable from None
    return str.__str__(value)


def _scalar(value: np.generic, depth: int) -> JsonValue:
    if value.dtype.newbyteorder("<").str not in DTYPES:
        raise _Unspeakable
    return _plain(value.item(), depth)


def _array(value: np.ndarray[Any, Any], depth: int) -> JsonValue:
    if value.dtype.newbyteorder("<").str in DTYPES:
        said: JsonValue = listed(np.asarray(value))
        return said
    # Texts and objects, each of which may be JSON.
    return _plain(value.tolist(), depth)


def _list(value: Any, depth: int) -> JsonValue:
    inner = _deeper(depth)
    return [_plain(each, inner) for each in value]


def _object(value: Mapping[Any, Any], depth: int) -> JsonValue:
    inner = _deeper(depth)
    # Spelt out, as above.
    return {
        key if type(key) is str and key.isascii() else _key(key): (_WAYS.get(type(each)) or _way_of(type(each)))(
            each, inner
        )
        for key, each in value.items()
    }


def _deeper(depth: int) -> int:
    if depth >= DEEPEST:
        raise _Unspeakable
    return depth + 1


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise _Unspeakable
    return _text(key, 0)


def _shown(key: Any) -> str:
    """Return a key that was left out as text that JSON can say."""
    text = key if isinstance(key, str) else type(key).__name__
    return text.encode("utf-8", "replace").decode()


_WAYS: Final[dict[type, Way]] = {
    type(None): _itself,
    bool: _itself,
    int: _integer,
    float: _float,
    str: _text,
    dict: _object,
    list: _list,
    tuple: _list,
    np.generic: _scalar,
    # Their own rows, so that nothing is searched for in a step.
    **{dtype.type: _scalar for dtype in DTYPES.values()},
    np.ndarray: _array,
}
