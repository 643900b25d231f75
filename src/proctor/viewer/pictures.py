"""Pictures of environments that we do not know, as PNG files. Pure.

Rule 1: what comes from a record is never trusted: what is no picture is a ValidationError.
Rule 2: how pixels are written is said in `models/pixels.py`.
"""

import struct
import zlib
from typing import Any, Final

import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from proctor.errors import ValidationError
from proctor.models.arrays import unpack_array
from proctor.models.pixels import MOST_BYTES, read_packed_pixels

NO_PIXELS: Final = Raw(b'{"environment":"pixels","frame":{"pixels":true}}')
"""A scene of pixels as pages get it, which ask for the pixels themselves one by one."""
_KINDS: Final = {1: 0, 3: 2, 4: 6}
"""PNG's name for grey, RGB and RGBA, by the number of channels."""
_BEGIN: Final = b"\x89PNG\r\n\x1a\n"


def png_from_scene(scene: Raw) -> bytes:
    """Return the picture in a scene or in a frame as a PNG file, or raise a ValidationError: there is none."""
    packed = read_packed_pixels(scene)
    if packed is None:
        raise ValidationError("there is no picture here", expected="a row with pixels")
    return encode_png(unpack_array(packed, most=MOST_BYTES))


def encode_png(pixels: NDArray[Any]) -> bytes:
    """Return an array of bytes, height by width, of 1, 3 or 4 channels or of none, as a PNG file."""
    if pixels.ndim == 2:
        pixels = pixels[:, :, np.newaxis]
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] not in _KINDS or not pixels.size:
        raise ValidationError(
            "not a picture", found=f"{pixels.dtype} of shape {pixels.shape}", expected="bytes: height, width, channels"
        )
    height, width, channels = pixels.shape
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # every row begins with its filter, which is none
    rows[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, _KINDS[channels], 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 3)), (b"IEND", b""))
    return _BEGIN + b"".join(_chunk(kind, content) for kind, content in parts)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
