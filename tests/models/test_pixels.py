"""Pixels: what holds some, and whether two show the same picture."""

from typing import Any

import msgspec
import numpy as np
import pytest

from proctor.models.arrays import has_pixels, is_pixels, make_pixels_scene, pack_array, read_packed_pixels, same_pixels
from tests.memory import measured_memory

GREY: Any = np.full((64, 80, 3), 7, np.uint8)


def scene(picture: Any, *, begins: bool = False, compress: bool = True) -> bytes:
    return msgspec.json.encode(make_pixels_scene(pack_array(picture, compress=compress), begins=begins))


@pytest.mark.parametrize("begins", [True, False])
def test_a_scene_and_a_frame_of_pixels_hold_some(begins: bool) -> None:
    found = scene(GREY, begins=begins)

    assert (has_pixels(found), is_pixels(found)) == (True, begins)
    assert read_packed_pixels(found) == pack_array(GREY, compress=True)


@pytest.mark.parametrize(
    "said", [b"null", b"[1]", b"7", b"{}", b'{"environment":"plume","frame":{"at":1}}', b'{"agent":1}', b"{"]
)
def test_other_scenes_hold_none(said: bytes) -> None:
    assert not has_pixels(said)
    assert read_packed_pixels(said) is None


LISTS = b"[" + b"[]," * 300_000 + b"[]]"


@pytest.mark.parametrize(
    "said",
    [
        b'{"environment":%b,"frame":{"pixels":true}}' % LISTS,
        b'{"environment":"pixels","frame":{"pixels":%b}}' % LISTS,
        b'{"pixels":{"dtype":"|u1","data":"","shape":%b}}' % LISTS,
    ],
    ids=["environment", "pixels", "shape"],
)
def test_what_is_no_picture_is_not_built(said: bytes) -> None:
    with measured_memory() as peak:
        found = read_packed_pixels(said)
        is_pixels(said)
        has_pixels(said)

    assert found is None
    assert peak() < 4 * len(said)


def test_pictures_are_the_same_however_they_are_packed() -> None:
    other = GREY.copy()
    other[3, 4, 1] = 8

    assert scene(GREY) != scene(GREY, compress=False)
    assert same_pixels(scene(GREY), scene(GREY, compress=False))
    assert not same_pixels(scene(GREY), scene(other))
    assert not same_pixels(scene(GREY), scene(GREY[:32]))
    assert not same_pixels(scene(GREY), b'{"pixels":"no"}')
