"""Gymnasium's `info` as JSON: what can be said is said exactly, what cannot is left out by name.

Rule 1: numpy's numbers and arrays become plain ones; floats that are not finite become their names (see `arrays`).
Rule 2: a key is kept whole or left out whole; those left out are listed under `OMITTED`. Nothing here raises.
Rule 3: who serves an environment and who replays it say its metadata with the same function (`encode_info`), byte for byte.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import numpy as np
from pydantic import JsonValue

from proctor.models.arrays import DTYPES, array_to_lists, float_to_json, pack_array
from proctor.models.wire import Encoding

OMITTED: Final = "_omitted"
DEEPEST: Final = 32
"""Beyond this depth a value is left out; so is one that holds itself."""
SEED_KEYS: Final = ("seed", "_seed")
FINAL_KEYS: Final = ("final_info", "_final_info", "_final_obs")
"""The keys of a batch's infos that a learner needs whatever else it wants to know."""
Converter = Callable[[Any, int], JsonValue]
"""How a kind of value is said at a depth."""

_encode: Final = msgspec.json.Encoder().encode
_msgpack: Final = msgspec.msgpack.Encoder().encode
_NOT_FINITE: Final = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]", re.DOTALL)
"""How msgpack begins a float whose exponent is all ones; a text may look like one, a float that is finite never does."""
_SMALLEST, _LARGEST = -(2**63), 2**64 - 1  # what JSON's readers take for an integer without loss


class _NotJson(Exception):
    """JSON cannot say this value."""


def info_to_json(info: Mapping[Any, Any]) -> dict[str, JsonValue]:
    """Return `info` as JSON, with the keys that JSON cannot say listed under `OMITTED`."""
    plain: dict[str, JsonValue] = {}
    omitted: list[str] = []
    for key, value in info.items():
        # Spelt out, because this runs for every key of every step.
        way = _CONVERTERS.get(type(value)) or _find_converter(type(value))
        try:
            plain[key if type(key) is str and key.isascii() else _convert_key(key)] = way(value, 0)
        except _NotJson:
            text = key if isinstance(key, str) else type(key).__name__
            omitted.append(text.encode("utf-8", "replace").decode())
    if omitted:
        plain[OMITTED] = sorted(omitted)  # type: ignore[assignment]  # a list of strings is JSON
    return plain


def encode_info(metadata: Mapping[str, Any]) -> bytes:
    """Return metadata as JSON; a number that is not finite is named, never said to be null."""
    told = _encode(metadata)
    # A null is a None, which stays one, or such a number, which msgpack would keep.
    if b"null" in told and _NOT_FINITE.search(_msgpack(metadata)):
        return _encode(info_to_json(metadata))
    return told


def encode_infos(
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
    told = {key: _convert_batch_value(infos[key], encoding) for key in keys}
    if "final_obs" in infos:
        index = np.flatnonzero(infos["_final_obs"]).tolist()
        told["final_obs"] = {"index": index, "values": [said(infos["final_obs"][i]) for i in index]}
    return _encode(told)


def _convert_batch_value(value: Any, encoding: Encoding) -> Any:
    """Return a value of a batch's info as JSON can say it, numeric arrays as the encoding says; what it cannot is null."""
    if isinstance(value, Mapping):
        return {str(key): _convert_batch_value(each, encoding) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "biuf":
            return pack_array(value, encoding.compress) if encoding.packed else array_to_lists(value)
        return [_convert_batch_value(each, encoding) for each in value.tolist()]
    if isinstance(value, np.generic):
        return array_to_lists(np.asarray(value))
    if isinstance(value, list | tuple):
        return [_convert_batch_value(each, encoding) for each in value]
    return value if value is None or isinstance(value, str | bool | int | float) else None


def _convert(value: Any, depth: int) -> JsonValue:
    way = _CONVERTERS.get(type(value)) or _find_converter(type(value))
    return way(value, depth)


def _find_converter(kind: type) -> Converter:
    return next((_CONVERTERS[each] for each in kind.__mro__ if each in _CONVERTERS), _refuse)


def _refuse(value: Any, depth: int) -> JsonValue:
    raise _NotJson


def _convert_integer(value: int, depth: int) -> int:
    if not _SMALLEST <= value <= _LARGEST:
        raise _NotJson
    return int(value)


def _convert_float(value: float, depth: int) -> float | str:
    return float(value) if math.isfinite(value) else float_to_json(value)


def _convert_text(value: str, depth: int) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:  # half a surrogate pair
            raise _NotJson from None
    return str.__str__(value)


def _convert_scalar(value: np.generic, depth: int) -> JsonValue:
    if value.dtype.newbyteorder("<").str not in DTYPES:
        raise _NotJson
    return _convert(value.item(), depth)


def _convert_array(value: np.ndarray[Any, Any], depth: int) -> JsonValue:
    if value.dtype.newbyteorder("<").str in DTYPES:
        said: JsonValue = array_to_lists(np.asarray(value))
        return said
    # Texts and objects, each of which may be JSON.
    return _convert(value.tolist(), depth)


def _convert_list(value: Any, depth: int) -> JsonValue:
    inner = _next_depth(depth)
    return [_convert(each, inner) for each in value]


def _convert_object(value: Mapping[Any, Any], depth: int) -> JsonValue:
    inner = _next_depth(depth)
    # Spelt out, as above.
    return {
        key if type(key) is str and key.isascii() else _convert_key(key): (
            _CONVERTERS.get(type(each)) or _find_converter(type(each))
        )(each, inner)
        for key, each in value.items()
    }


def _next_depth(depth: int) -> int:
    if depth >= DEEPEST:
        raise _NotJson
    return depth + 1


def _convert_key(key: Any) -> str:
    if not isinstance(key, str):
        raise _NotJson
    return _convert_text(key, 0)


_CONVERTERS: Final[dict[type, Converter]] = {
    **dict.fromkeys((type(None), bool), lambda value, depth: value),
    int: _convert_integer,
    float: _convert_float,
    str: _convert_text,
    dict: _convert_object,
    list: _convert_list,
    tuple: _convert_list,
    np.generic: _convert_scalar,
    # Their own rows, so that nothing is searched for in a step.
    **{dtype.type: _convert_scalar for dtype in DTYPES.values()},
    np.ndarray: _convert_array,
}
