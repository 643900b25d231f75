"""Pixels on record as pictures for a browser."""

import struct
import zlib
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from msgspec import Raw

from proctor.errors import ValidationError
from proctor.models.arrays import is_pixels, pack_array
from proctor.viewer.catalog import NO_PIXELS, encode_png, png_from_scene

PICTURES = hnp.arrays(
    np.uint8,
    st.tuples(st.integers(1, 9), st.integers(1, 9))
    | st.tuples(st.integers(1, 9), st.integers(1, 9), st.sampled_from([1, 3, 4])),
)


def unpainted(file: bytes) -> Any:
    """Return the pixels of a PNG file whose rows have no filter, with every chunk's sum looked at."""
    found: dict[bytes, bytes] = {}
    place = 8
    while place < len(file):
        (length,) = struct.unpack(">I", file[place : place + 4])
        kind, content = file[place + 4 : place + 8], file[place + 8 : place + 8 + length]
        assert struct.unpack(">I", file[place + 8 + length : place + 12 + length]) == (zlib.crc32(kind + content),)
        found[kind] = content
        place += 12 + length
    width, height, depth, colour = struct.unpack(">IIBB", found[b"IHDR"][:10])
    channels = {0: 1, 2: 3, 6: 4}[colour]
    rows = np.frombuffer(zlib.decompress(found[b"IDAT"]), np.uint8).reshape(height, 1 + width * channels)
    assert depth == 8
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, channels)


@settings(max_examples=40)
@given(PICTURES)
def test_a_picture_comes_out_of_its_file_as_it_went_in(picture: Any) -> None:
    file = encode_png(picture)

    assert file.startswith(b"\x89PNG\r\n\x1a\n")
    assert file.endswith(b"IEND\xaeB`\x82")
    assert np.array_equal(unpainted(file).reshape(picture.shape), picture)


def test_a_scene_and_a_frame_hold_the_same_picture() -> None:
    picture = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    frame = {"pixels": pack_array(picture)}

    whole = png_from_scene(Raw(msgspec.json.encode({"environment": "pixels", "frame": frame})))

    assert whole == png_from_scene(Raw(msgspec.json.encode(frame))) == encode_png(picture)


@pytest.mark.parametrize(
    "scene",
    [
        b"null",
        b"[]",
        b"{}",
        b'{"pixels":true}',
        b'{"pixels":{"dtype":"<f8","shape":[1,1],"data":"AAAAAAAAAAA="}}',
        b'{"pixels":{"dtype":"|u1","shape":[0,1],"data":""}}',
        b'{"pixels":{"dtype":"|u1","shape":[1,1,2],"data":"AAA="}}',
        b'{"pixels":{"dtype":"|u1","shape":[99999,99999],"data":"","zip":"zlib"}}',
        b'{"frame":{"pixels":7}}',
        b"{",
    ],
)
def test_what_is_no_picture_is_refused(scene: bytes) -> None:
    with pytest.raises(ValidationError):
        png_from_scene(Raw(scene))


def test_only_a_scene_of_pixels_is_one() -> None:
    others = (b'{"environment":"plume"}', b"null", b'{"environment":["pixels"]}', b'{"environment":"pix')

    assert is_pixels(NO_PIXELS)
    assert not any(is_pixels(Raw(other)) for other in others)
