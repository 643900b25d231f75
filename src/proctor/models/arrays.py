"""Arrays in JSON: as nested lists that people can read, or packed as base64; both are exact.

Rule 1: the lists of an array say its numbers exactly; the floats that JSON lacks are "NaN", "Infinity", "-Infinity".
Rule 2: what a peer sent is never trusted: the types, the shape and the length are checked before an array is made, and
    nothing is decompressed beyond the size that its shape claims and its reader allows.
Rule 3: numbers are never bent: a bool is no number, a float no integer, and what does not fit the dtype is refused.
Rule 4: in words for a language model, short arrays are told in full, with dtype and shape; long ones by shape, least, most, mean and
    first values. Parts are told one to a line, each under the names that lead to it. The exact values travel beside the text.
Rule 5: a scene of pixels is `{"environment": "pixels", "frame": {"pixels": <packed array>}}`, and a later frame of it is
    `{"pixels": <packed array>}`. Pixels are for people. They may be drawn with a clock, a font or another library than the time
    before, so that nothing depends on whether they are the same.
"""

import binascii
import math
import zlib
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

import msgspec
import numpy as np
from gymnasium.spaces import GraphInstance
from msgspec import UNSET, Raw, Struct, UnsetType
from numpy.typing import NDArray

from proctor.errors import ComponentError, ValidationError
from proctor.models.descriptions import FIRST, MOST_VALUES, describe_numbers, describe_value

Array = NDArray[Any]
Shape = tuple[int, ...]

DTYPES: Final = {
    np.dtype(name).str: np.dtype(name)
    for name in ("?", "i1", "u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8")
}
"""What can be packed, by its name on the wire: little-endian always."""

WORTH_ZIPPING: Final = 4096
"""Below this many bytes nothing is compressed."""

SHORT_ROW: Final = 64

MOST_BYTES: Final = 2**28
"""What compressed arrays of one message may unpack to, together."""

NON_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
PLAIN_KEYS: Final = {"dtype", "shape", "data"}
ZIPPED_KEYS: Final = {*PLAIN_KEYS, "zip"}
NUMBERS: Final[dict[str, set[type]]] = {"b": {bool}, "i": {int}, "u": {int}, "f": {int, float}}
KIND_WORDS: Final = {"b": "true or false", "i": "integers", "u": "integers", "f": "numbers"}


def wire_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the little-endian dtype that stands for `dtype` on the wire, or raise a ComponentError."""
    little = dtype.newbyteorder("<")
    if little.str not in DTYPES:
        raise ComponentError(
            "this dtype cannot cross the wire",
            found=str(dtype),
            expected="bool, an integer of up to 64 bits, or a float of up to 64 bits",
        )
    return little


def pack_array(array: Array, compress: bool = False) -> dict[str, Any]:
    """Return the array as dtype, shape and base64 data; compressed where that is asked for and helps."""
    little = wire_dtype(array.dtype)
    raw = array.astype(little, copy=False).tobytes()
    zipping = {}
    if compress and len(raw) >= WORTH_ZIPPING:
        zipped = zlib.compress(raw, 1)
        if len(zipped) < len(raw):
            raw, zipping = zipped, {"zip": "zlib"}
    data = binascii.b2a_base64(raw, newline=False).decode("ascii")
    # In this order: ledgers keep digests of these bytes.
    return {"dtype": little.str, "shape": list(array.shape), "data": data, **zipping}


def unpack_array(value: Any, *, most: int = MOST_BYTES) -> Array:
    """Return the array that a packed value holds, fresh, writable and of at most `most` bytes, or raise a ValidationError."""
    dtype, shape = read_packed_form(value)
    size = dtype.itemsize * math.prod(shape)
    if size > most:
        raise ValidationError("a packed array is too large", found=size, expected=f"at most {most} bytes")
    raw = _decode_data(value["data"], size, zipped="zip" in value)
    try:
        array: Array = np.frombuffer(raw, dtype).reshape(shape).copy()
    except (ValueError, OverflowError):  # sides that are too long beside one of 0
        raise ValidationError("not a shape", found=shape, expected="sides that an array can have") from None
    if dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
        raise ValidationError("packed bools are neither 0 nor 1", expected="bytes of 0 and 1")
    return array


def read_packed_form(value: Any) -> tuple[np.dtype[Any], Shape]:
    """Return the dtype and the shape that a packed value claims to have, or raise a ValidationError."""
    if type(value) is not dict or not (value.keys() == PLAIN_KEYS or value.keys() == ZIPPED_KEYS):
        raise ValidationError("not a packed array", found=value, expected="dtype, shape and data (and zip)")
    dtype = DTYPES.get(value["dtype"]) if type(value["dtype"]) is str else None
    if dtype is None:
        raise ValidationError("unknown dtype", found=value["dtype"], expected=f"one of {', '.join(DTYPES)}")
    shape = value["shape"]
    # numpy takes no more dimensions than 64.
    if type(shape) is not list or len(shape) > 64 or not all(type(each) is int and each >= 0 for each in shape):
        raise ValidationError("not a shape", found=shape, expected="a list of up to 64 integers of 0 or more")
    if value.get("zip", "zlib") != "zlib":
        raise ValidationError("unknown compression", found=value["zip"], expected="zlib")
    return dtype, tuple(shape)


def _decode_data(data: Any, size: int, *, zipped: bool) -> bytes:
    """Return the `size` bytes that `data` stands for; at most one byte more is ever decompressed."""
    expected = f"base64 of {size} bytes"
    if type(data) is not str:
        raise ValidationError("packed data are not text", found=data, expected=expected)
    try:
        raw = binascii.a2b_base64(data, strict_mode=True)
        if zipped:
            unzip = zlib.decompressobj()
            raw = unzip.decompress(raw, size + 1)
            # The byte of room makes the stream's end be read where it fits, and shows where it does not.
            if not unzip.eof or unzip.unused_data:
                raise ValidationError("compressed data do not fit the shape", expected=f"{size} bytes, and no more")
    except (ValueError, zlib.error):
        raise ValidationError("packed data cannot be read", found=data, expected=expected) from None
    if len(raw) != size:
        raise ValidationError("packed data do not fit the shape", found=len(raw), expected=f"{size} bytes")
    return raw


def array_to_lists(array: Array) -> Any:
    """Return the array as nested lists, a scalar as itself; non-finite floats become strings."""
    values = array.tolist()
    if array.dtype.kind != "f":
        return values
    # The sum of a short row takes a tenth of numpy's time, and is finite only if every number is.
    is_short = array.ndim == 1 and len(values) <= SHORT_ROW
    all_finite = math.isfinite(sum(values)) if is_short else np.isfinite(array).all()
    return values if all_finite else _name_non_finite(values)


def _name_non_finite(value: Any) -> Any:
    if type(value) is list:
        return [_name_non_finite(each) for each in value]
    return float_to_json(value)


def float_to_json(number: float) -> float | str:
    """Return a float as JSON says it: itself, or its name if it is not finite."""
    if math.isfinite(number):
        return number
    return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"


def array_from_lists(value: Any, dtype: np.dtype[Any], shape: Shape) -> Array:
    """Return the array of this dtype and shape that nested lists say, fresh, or raise a ValidationError."""
    # An array without elements is lists down to its first dimension of 0.
    depth = shape.index(0) + 1 if 0 in shape else len(shape)
    wanted = NUMBERS[dtype.kind]
    found = _find_types(value, depth)
    if found is not None and found <= wanted:
        array = _array_from_numbers(value, dtype, shape[:depth])
        if array is not None:
            return array.reshape(shape)
    if dtype.kind == "f":
        return np.array(_read_floats(value, shape[:depth], dtype), dtype).reshape(shape)
    raise _make_error(value, dtype, shape)


def _find_types(value: Any, depth: int) -> set[type] | None:
    """Return the types of what lies at this depth; None if something above it is no list."""
    if depth == 0:
        return {type(value)}
    if type(value) is not list:
        return None
    rows: Any = value
    for _ in range(depth - 1):
        rows = chain.from_iterable(rows)
    try:
        return set(map(type, rows))
    except TypeError:
        return None


def _array_from_numbers(value: Any, dtype: np.dtype[Any], shape: Shape) -> Array | None:
    """Return numbers as an array, or None where numpy's own reading does not fit: the slow way says why."""
    try:
        found: Array = np.array(value)
    except ValueError:  # ragged
        return None
    if found.shape != shape:
        return None
    if not found.size:
        return np.empty(shape, dtype)
    if dtype.kind in "iu" and found.dtype.kind not in "iu":
        # Integers beyond int64 among others, which numpy would round.
        found = np.array(value, object)
    return _cast_exactly(found, dtype)


def _cast_exactly(found: Array, dtype: np.dtype[Any]) -> Array | None:
    """Return the numbers in the dtype, rounded where it is a float; None if one does not fit."""
    if dtype.kind == "f":
        if found.dtype.kind == "O":
            return None
        with np.errstate(over="ignore"):
            made = found.astype(dtype, copy=False)
        return made if np.isfinite(made).all() else None
    if found.dtype != dtype and dtype.kind != "b":
        limits = np.iinfo(dtype)
        if int(found.min()) < limits.min or int(found.max()) > limits.max:
            return None
    return found.astype(dtype, copy=False)


def _read_floats(value: Any, shape: Shape, dtype: np.dtype[Any]) -> Any:
    """Return nested lists of floats, one by one, so that what is wrong is named where it is."""
    if not shape:
        return _read_float(value, dtype)
    if type(value) is not list or len(value) != shape[0]:
        raise _make_error(value, dtype, shape)
    return [_read_floats(each, shape[1:], dtype) for each in value]


def _read_float(value: Any, dtype: np.dtype[Any]) -> float:
    if type(value) is str and value in NON_FINITE:
        return NON_FINITE[value]
    if type(value) is int or type(value) is float:
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        # A finite number that the dtype rounds to an infinity is not what was said.
        with np.errstate(over="ignore"):
            if math.isfinite(number) and np.isfinite(dtype.type(number)):
                return number
    raise ValidationError(
        "not a number of this dtype", found=value, expected=f"a finite {dtype.name} or one of {', '.join(NON_FINITE)}"
    )


def _make_error(value: Any, dtype: np.dtype[Any], shape: Shape) -> ValidationError:
    return ValidationError(
        "not an array of this kind",
        found=value,
        expected=f"{KIND_WORDS[dtype.kind]} of {dtype.name}" + (f", in lists of shape {shape}" if shape else ""),
    )


def describe_parts(name: str, value: Any) -> str:
    """Return one line for each part of what was observed: `name`, or the names of the parts."""
    return "\n".join(f"{path}: {describe_leaf(leaf)}" for path, leaf in _find_leaves(name, value))


def _find_leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, GraphInstance):
        value = value._asdict()
    if isinstance(value, tuple):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        yield path, value
        return
    for key, part in value.items():
        yield from _find_leaves(f"{path}.{key}", part)


DTYPE_NAMES: Final = {dtype.char: dtype.name for dtype in map(np.dtype, "?bBhHiIlLqQefdg")}
"""The names of dtypes: numpy makes each one anew, which takes longer than to tell a short array."""


def describe_leaf(value: Any) -> str:
    """Return a number, a text or an array as text."""
    if isinstance(value, np.ndarray):
        return _describe_array(value)
    return describe_value(value.item() if isinstance(value, np.generic) else value)


def _describe_array(array: Array) -> str:
    shape = " x ".join(map(str, array.shape))
    form = f"({DTYPE_NAMES.get(array.dtype.char, 'values')}, shape {shape})" if array.ndim else ""
    if array.size <= MOST_VALUES:
        return f"{describe_value(array.tolist())} {form}".rstrip()
    first = ", ".join([describe_value(each) for each in array.reshape(-1)[:FIRST].tolist()])
    with np.errstate(over="ignore", invalid="ignore"):
        mean = float(array.mean(dtype=np.float64))
        if np.isinf(mean) and np.isfinite(array).all():
            # It lies between the least and the most even where a sum would be beyond all numbers.
            mean = float((array / array.size).sum(dtype=np.float64))
    numbers = describe_numbers(array.size, array.min().item(), array.max().item(), mean)
    return f"[{first}, ...] {form}: {numbers}"


PIXELS: Final = "pixels"
"""What the environment of such a scene is called, and the key of its packed array."""
SOME_PIXELS: Final = Raw(b'{"pixels":true}')
"""Stands for a frame of pixels where they are fetched by themselves."""
MOST_PIXEL_BYTES: Final = 2**26
"""Of a picture that is unpacked."""
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_NOTHING: Final = Raw(b"")
_NAME: Final = Raw(b'"pixels"')
_MOST_SHAPE: Final = 1024
"""Bytes of a shape as it is written."""


class _Frame(Struct, frozen=True, gc=False):
    pixels: Raw = _NOTHING


class _Scene(Struct, frozen=True, gc=False):
    """As much of a scene, or of a frame, as says whether it is made of pixels; nothing of it is built before it is asked for."""

    environment: Raw = _NOTHING
    frame: _Frame | None = None
    pixels: Raw = _NOTHING


class _Packed(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A packed array whose shape is not built yet: that could be of any length."""

    dtype: str
    shape: Raw
    data: str
    zip: str | UnsetType = UNSET


_SCENE: Final = msgspec.json.Decoder(_Scene)
_PACKED: Final = msgspec.json.Decoder(_Packed)


def make_pixels_scene(packed: dict[str, Any], *, begins: bool) -> dict[str, Any]:
    """Return a packed picture as a scene or, later, as its frame."""
    frame = {PIXELS: packed}
    return {"environment": PIXELS, "frame": frame} if begins else frame


def is_pixels(scene: Raw | bytes) -> bool:
    """Return whether a whole scene is made of pixels."""
    try:
        return _SCENE.decode(scene).environment == _NAME
    except _UNREADABLE:
        return False


def read_packed_pixels(scene: Raw | bytes) -> Any:
    """Return the packed array in a scene of pixels or in a frame of it; None: there is none."""
    try:
        found = _SCENE.decode(scene)
        packed = found.pixels if found.frame is None else found.frame.pixels
        if packed == _NOTHING:
            return None
        array = _PACKED.decode(packed)
        if memoryview(array.shape).nbytes > _MOST_SHAPE:  # no array has so many sides
            return None
        zipped = {} if array.zip is UNSET else {"zip": array.zip}
        return {"dtype": array.dtype, "shape": msgspec.json.decode(array.shape), "data": array.data, **zipped}
    except _UNREADABLE:
        return None


def has_pixels(scene: Raw | bytes) -> bool:
    """Return whether a scene or a frame holds pixels."""
    try:
        found = _SCENE.decode(scene)
    except _UNREADABLE:
        return False
    return found.pixels != _NOTHING or (found.environment == _NAME and found.frame is not None)


def same_pixels(one: Raw | bytes, other: Raw | bytes) -> bool:
    """Return whether two scenes or frames show the same picture, however it was compressed."""
    if one == other:
        return True
    try:
        left, right = (unpack_array(read_packed_pixels(each), most=MOST_PIXEL_BYTES) for each in (one, other))
    except ValidationError:
        return False
    return left.dtype == right.dtype and bool(np.array_equal(left, right))
