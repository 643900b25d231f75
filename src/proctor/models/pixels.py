"""Scenes that are pictures: how pixels are written, and what holds some. Pure.

Rule 1: a scene of pixels is `{"environment": "pixels", "frame": {"pixels": <packed array>}}`, and a later frame of it is
    `{"pixels": <packed array>}`.
Rule 2: pixels are for people. They may be drawn with a clock, a font or another library than the time before, so that nothing depends
    on whether they are the same.
"""

from typing import Any, Final

import msgspec
import numpy as np
from msgspec import UNSET, Raw, Struct, UnsetType

from proctor.errors import ValidationError
from proctor.models.arrays import unpack_array

PIXELS: Final = "pixels"
"""What the environment of such a scene is called, and the key of its packed array."""
SOME_PIXELS: Final = Raw(b'{"pixels":true}')
"""Stands for a frame of pixels where they are fetched by themselves."""
MOST_BYTES: Final = 2**26
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
        return None if packed == _NOTHING else _read_array(_PACKED.decode(packed))
    except _UNREADABLE:
        return None


def _read_array(packed: _Packed) -> dict[str, Any] | None:
    """Return a packed array as `unpacked` takes it, None if no array has so many sides."""
    if memoryview(packed.shape).nbytes > _MOST_SHAPE:
        return None
    zipped = {} if packed.zip is UNSET else {"zip": packed.zip}
    return {"dtype": packed.dtype, "shape": msgspec.json.decode(packed.shape), "data": packed.data, **zipped}


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
        left, right = (unpack_array(read_packed_pixels(each), most=MOST_BYTES) for each in (one, other))
    except ValidationError:
        return False
    return left.dtype == right.dtype and bool(np.array_equal(left, right))
