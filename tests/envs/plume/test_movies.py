"""Recorded plumes: every file format, the step-to-frame rule, and what is wrong with a bad file."""

from __future__ import annotations

import copy
import json
import math
import pickle
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from proctor.contracts.chance import Chance
from proctor.contracts.components import ConcentrationField, VaryingPlume
from proctor.contracts.spatial import Coordinates, GridSize
from proctor.envs.plume import movies
from proctor.envs.plume.movies import MovieFrame, MoviePlume, load_movie
from proctor.errors import ComponentError, MissingExtraError, ValidationError
from tests.memory import measured_memory

CHANCE = Chance(0)


def film(frames: int = 4, height: int = 3, width: int = 5) -> NDArray[np.float64]:
    """Return a movie whose every value says where it stands."""
    return np.arange(frames * height * width).reshape(frames, height, width) / (frames * height * width)


def save_npy(path: Path, values: NDArray[Any]) -> Path:
    np.save(path / "film.npy", values)
    return path / "film.npy"


def save_npz(path: Path, values: NDArray[Any]) -> Path:
    np.savez_compressed(path / "film.npz", frames=values)
    return path / "film.npz"


def save_zarr(path: Path, values: Any) -> Path:
    zarr.save_array(str(path / "film.zarr"), values)
    return path / "film.zarr"


every_format = pytest.mark.parametrize("save", [save_npy, save_npz, save_zarr])
Save = Callable[[Path, NDArray[Any]], Path]


def shown(plume: MoviePlume, steps: int) -> list[int]:
    """Return the numbers of the frames at reset and after each step, advancing one by one."""
    field = plume.begin(CHANCE)
    numbers = [field.number]
    for time_step in range(1, steps + 1):
        field = plume.advance(field, CHANCE, time_step)
        numbers.append(field.number)
    return numbers


@every_format
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_a_movie_from_a_file_shows_what_was_saved(tmp_path: Path, save: Save, dtype: Any) -> None:
    values = film().astype(dtype)
    plume = MoviePlume(load_movie(save(tmp_path, values)))

    first = plume.begin(CHANCE)
    third = plume.advance(plume.advance(first, CHANCE, 1), CHANCE, 2)

    assert plume.grid_size == GridSize(5, 3)
    assert first.field_array.tolist() == values[0].tolist()
    assert third.field_array.tolist() == values[2].tolist()
    assert third.sample(Coordinates(4, 1)) == float(values[2, 1, 4])
    assert third.field_array.dtype == np.float64
    assert not third.field_array.flags.writeable


@every_format
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda plume: pickle.loads(pickle.dumps(plume))])
def test_a_copy_of_a_movie_goes_on_with_the_same_frames(tmp_path: Path, save: Save, copied: Any) -> None:
    plume = MoviePlume(load_movie(save(tmp_path, film())), at_end="loop")
    frame = plume.begin(CHANCE)

    twin, twin_frame = copied((plume, frame))

    assert twin_frame.field_array.tolist() == frame.field_array.tolist()
    assert not twin_frame.field_array.flags.writeable
    after = twin.advance(twin_frame, CHANCE, 3)
    assert after.field_array.tolist() == plume.advance(frame, CHANCE, 3).field_array.tolist()


def test_a_movie_on_disk_stays_there_also_in_a_pickle(tmp_path: Path) -> None:
    frames = load_movie(save_npy(tmp_path, film(50, 40, 30)))

    assert isinstance(frames, np.memmap)
    assert len(pickle.dumps(MoviePlume(frames))) < 1000


@given(
    count=st.integers(1, 6), steps_per_frame=st.integers(1, 4), at_end=st.sampled_from(["hold", "loop"]), data=st.data()
)
def test_each_frame_is_shown_for_its_steps_and_then_held_or_begun_again(
    count: int, steps_per_frame: int, at_end: str, data: st.DataObject
) -> None:
    first_frame = data.draw(st.integers(0, count - 1))
    plume = MoviePlume(np.zeros((count, 1, 1)), steps_per_frame, first_frame, at_end)
    once = [number for number in range(count) for _ in range(steps_per_frame)]
    reel = once * 40 if at_end == "loop" else once + [count - 1] * 100

    numbers = shown(plume, 30)

    assert numbers == reel[first_frame * steps_per_frame :][:31]


def test_a_frame_that_is_still_shown_is_the_same_object() -> None:
    plume = MoviePlume(film(), steps_per_frame=2)
    frame = plume.begin(CHANCE)

    same, other = plume.advance(frame, CHANCE, 1), plume.advance(frame, CHANCE, 2)

    assert same is frame
    assert other is not frame


def test_nested_lists_are_a_movie_too() -> None:
    plume = MoviePlume([[[0, 1]], [[1, 0]]])

    assert plume.grid_size == GridSize(2, 1)
    assert plume.begin(CHANCE).sample(Coordinates(1, 0)) == 1.0


@pytest.mark.parametrize("value", [-0.001, 1.001, math.nan, math.inf, -math.inf])
def test_a_frame_with_a_value_outside_the_unit_interval_is_a_component_s_fault_when_it_is_shown(value: float) -> None:
    values = film()
    values[1, 2, 3] = value
    plume = MoviePlume(values)
    frame = plume.begin(CHANCE)

    with pytest.raises(ComponentError, match="frame 1") as caught:
        plume.advance(frame, CHANCE, 1)

    assert caught.value.clause == "FIELD-2"
    assert caught.value.expected == "finite values in [0, 1]"


@pytest.mark.parametrize("frames", [np.zeros((2, 2, 2), complex), np.full((2, 2, 2), "x"), np.full((2, 2, 2), None)])
def test_a_movie_of_something_else_than_real_numbers_is_refused(frames: Any) -> None:
    with pytest.raises((ValidationError, ComponentError)):
        MoviePlume(frames).begin(CHANCE)


@pytest.mark.parametrize("shape", [(), (3,), (3, 3), (0, 3, 3), (2, 3, 3, 1), (2, 0, 3), (2, 3, 10_001)])
def test_an_array_of_another_shape_is_no_movie(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValidationError):
        MoviePlume(np.zeros(shape, np.float16))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps_per_frame", 0), ("steps_per_frame", 1.5), ("steps_per_frame", True), ("first_frame", -1),
        ("first_frame", 4), ("at_end", "stop"), ("at_end", None),
    ],
)  # fmt: skip
def test_an_option_out_of_range_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=name):
        MoviePlume(film(), **{name: value})


@pytest.mark.parametrize("name", ["film.npy", "film.npz", "film.zarr"])
def test_a_movie_that_is_not_there_is_refused_by_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValidationError, match="no such movie") as caught:
        load_movie(tmp_path / name)

    assert caught.value.found == name


@pytest.mark.parametrize("name", ["film.mp4", "film", "film.NPY.txt", ""])
def test_an_unknown_format_names_the_known_ones(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValidationError, match=r"unknown movie format.* expected \.npy or \.npz or \.zarr"):
        load_movie(tmp_path / name)


@pytest.mark.parametrize("name", ["film.npy", "film.npz", "film.zarr"])
@pytest.mark.parametrize("content", [b"", b"not a movie", b"\x93NUMPY", b"PK\x03\x04 broken"], ids=repr)
def test_a_file_of_something_else_is_refused_as_unreadable(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)

    with pytest.raises(ValidationError, match="not a readable movie") as caught:
        load_movie(tmp_path / name)

    assert caught.value.found == name
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(("save", "name"), [(save_npy, "film.npz"), (save_npz, "film.npy")])
def test_a_file_under_the_suffix_of_another_format_is_refused_as_unreadable(
    tmp_path: Path, save: Save, name: str
) -> None:
    save(tmp_path, film()).rename(tmp_path / name)

    with pytest.raises(ValidationError, match="not a readable movie"):
        load_movie(tmp_path / name)


def test_a_truncated_archive_is_refused_as_unreadable(tmp_path: Path) -> None:
    path = save_npz(tmp_path, film(40, 20, 20))
    content = bytearray(path.read_bytes())
    content[200:300] = bytes(100)
    path.write_bytes(content)

    with pytest.raises(ValidationError, match="not a readable movie"):
        load_movie(path)


def gigabytes_in_a_chunk(path: Path) -> None:
    zarr.create_array(str(path), shape=(1, 2**20, 2**20), chunks=(1, 2**20, 2**20), dtype="f8")


def pickled_objects(path: Path) -> None:
    np.save(path, np.array([{"surprise": 1}], object), allow_pickle=True)


@pytest.mark.parametrize(
    ("name", "write", "why"),
    [
        ("film.zarr", gigabytes_in_a_chunk, "too large to be unpacked"),
        ("film.zarr", Path.mkdir, "movie"),
        ("film.zarr", partial(zarr.open_group, mode="w"), "not a Zarr array"),
        ("film.npy", Path.mkdir, "not a readable movie"),
        ("film.npy", pickled_objects, "not a readable movie"),
    ],
)
def test_what_is_no_movie_or_must_not_be_read_is_refused(tmp_path: Path, name: str, write: Any, why: str) -> None:
    write(tmp_path / name)

    with pytest.raises(ValidationError, match=why):
        load_movie(tmp_path / name)


def test_an_archive_of_several_arrays_asks_which_one_is_the_movie(tmp_path: Path) -> None:
    np.savez(tmp_path / "film.npz", one=film(), two=film())

    with pytest.raises(ValidationError, match="which array") as caught:
        load_movie(tmp_path / "film.npz")

    assert caught.value.found == ["one", "two"]


def test_an_archive_that_says_more_than_can_be_unpacked_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_npz(tmp_path, np.zeros((40, 20, 20)))
    monkeypatch.setattr(movies, "MOST_UNPACKED", 100_000)

    assert path.stat().st_size < 10_000
    with pytest.raises(ValidationError, match="too large to be unpacked"):
        load_movie(path)


@pytest.mark.parametrize("way", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_archive_that_could_unpack_to_anything_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: int
) -> None:
    stored = save_npy(tmp_path, film())
    with zipfile.ZipFile(tmp_path / "film.npz", "w", way) as archive:
        archive.write(stored, "frames.npy")
    opened: list[object] = []
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *asked: opened.append(asked))

    with pytest.raises(ValidationError, match="compressed in a way that is not read"):
        load_movie(tmp_path / "film.npz")

    assert not opened


@pytest.mark.parametrize("name", ["film.npy", "film.npz"])
def test_a_header_that_claims_megabytes_is_not_read(tmp_path: Path, name: str) -> None:
    claimed = 64 * 2**20
    text = b"\x93NUMPY" + bytes([2, 0]) + claimed.to_bytes(4, "little") + bytes(claimed)
    if name == "film.npy":
        (tmp_path / name).write_bytes(text)
    else:
        with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("frames.npy", text)

    with measured_memory() as peak, pytest.raises(ValidationError, match="not a readable movie"):
        load_movie(tmp_path / name)

    assert peak() < claimed // 4


@pytest.mark.parametrize("version", [1, 2])
def test_an_array_that_says_more_than_its_archive_holds_is_refused(tmp_path: Path, version: int) -> None:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000, 1000, 1000), }".ljust(117) + b"\n"
    length = len(header).to_bytes(2 if version == 1 else 4, "little")
    with zipfile.ZipFile(tmp_path / "film.npz", "w") as archive:
        archive.writestr("frames.npy", b"\x93NUMPY" + bytes([version, 0]) + length + header)

    with pytest.raises(ValidationError, match="not a readable movie"):
        load_movie(tmp_path / "film.npz")


def test_without_zarr_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save_zarr(tmp_path, film())
    monkeypatch.setitem(sys.modules, "zarr", None)

    with pytest.raises(MissingExtraError) as caught:
        load_movie(path)

    assert caught.value.extra == "movies"


def test_the_movie_says_what_it_is() -> None:
    plume = MoviePlume(film(), steps_per_frame=3, first_frame=2, at_end="loop")

    assert isinstance(plume, VaryingPlume)
    assert isinstance(plume.begin(CHANCE), ConcentrationField)
    assert plume.describe() == {"kind": "image"}
    parameters = {"steps_per_frame": 3, "first_frame": 2, "at_end": "loop"}
    assert plume.get_metadata() == {"type": "movie", "parameters": parameters}


def test_a_frame_describes_itself_as_a_small_picture() -> None:
    frame = MovieFrame(np.zeros((300, 500)), 0)

    described = frame.describe_frame()

    assert described["covers"] == [500, 300]
    assert len(json.dumps(described)) < 4_000
