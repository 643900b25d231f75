"""Films are whole, of the right length and small, or they are not there."""

import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from proctor.envs.drawing.frames import check_place, write_video
from proctor.errors import MissingExtraError, RenderingError, ValidationError


def frames(count: int = 12, width: int = 64, height: int = 48) -> Iterator[NDArray[np.uint8]]:
    """Yield a smooth picture on which a white square moves."""
    ramp = np.linspace(0, 200, width).astype(np.uint8)
    for number in range(count):
        picture = np.zeros((height, width, 3), np.uint8)
        picture[..., 2] = ramp
        picture[10:18, number : number + 8] = 255
        yield picture


@pytest.mark.parametrize("size", [(64, 48), (63, 47)])
def test_an_mp4_has_every_frame_and_lasts_as_long_as_they_do(tmp_path: Path, size: tuple[int, int]) -> None:
    path = tmp_path / "film.mp4"
    write_video(path, frames(30, *size), fps=10)
    count, seconds = imageio_ffmpeg.count_frames_and_secs(str(path))

    assert count == 30
    assert seconds == pytest.approx(3.0, abs=0.11)


def test_a_gif_loops_and_keeps_its_colours(tmp_path: Path) -> None:
    path = tmp_path / "film.GIF"
    write_video(str(path), frames(12), fps=20)
    with Image.open(path) as film:
        count, loop, delay = getattr(film, "n_frames", 1), film.info["loop"], film.info["duration"]
        film.seek(6)
        shown = np.asarray(film.convert("RGB")).astype(int)
    expected = list(frames(12))[6].astype(int)

    assert (count, loop, delay) == (12, 0, 50)
    assert np.abs(shown - expected).mean() < 2.0


def test_a_gif_that_is_too_fast_for_browsers_keeps_its_running_time(tmp_path: Path) -> None:
    path = tmp_path / "fast.gif"
    write_video(path, frames(50), fps=100)
    with Image.open(path) as film:
        delays = []
        for number in range(getattr(film, "n_frames", 1)):
            film.seek(number)
            delays.append(film.info["duration"])

    assert min(delays) >= 20
    assert sum(delays) == pytest.approx(500, abs=40)


def test_what_stands_still_costs_little(tmp_path: Path) -> None:
    path = tmp_path / "still.gif"
    rng = np.random.default_rng(0)
    still = rng.integers(0, 255, (64, 64, 3), np.uint8)
    write_video(path, (still for _ in range(50)), fps=25)

    assert path.stat().st_size < 3 * still.nbytes


def test_frames_are_not_kept(tmp_path: Path) -> None:
    handed_out: list[weakref.ref[NDArray[np.uint8]]] = []
    alive: list[int] = []

    def watched() -> Iterator[NDArray[np.uint8]]:
        for picture in frames(40):
            handed_out.append(weakref.ref(picture))
            alive.append(sum(reference() is not None for reference in handed_out))
            yield picture

    write_video(tmp_path / "long.mp4", watched(), fps=10)

    assert len(alive) == 40
    assert max(alive) <= 4


@pytest.mark.parametrize("name", ["film.avi", "film", "film.mp4.txt"])
def test_an_unknown_suffix_is_refused_with_the_known_ones(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValidationError, match=r"\.gif, \.mp4"):
        write_video(tmp_path / name, frames(), fps=10)

    assert list(tmp_path.iterdir()) == []


@given(st.floats(max_value=0.0) | st.sampled_from([float("nan"), float("inf")]))
def test_a_film_needs_a_frame_rate(fps: float) -> None:
    with pytest.raises(ValidationError, match="frame rate"):
        write_video("never.mp4", frames(), fps=fps)


def test_a_film_needs_frames(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="needs frames"):
        write_video(tmp_path / "empty.gif", [], fps=10)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "bad",
    [
        np.zeros((48, 64), np.uint8),
        np.zeros((48, 64, 4), np.uint8),
        np.zeros((48, 64, 3), np.float64),
        np.zeros((50, 64, 3), np.uint8),
    ],
    ids=["grey", "transparent", "float", "other size"],
)
@pytest.mark.parametrize("name", ["film.gif", "film.mp4"])
def test_a_bad_frame_leaves_the_earlier_film_as_it_was(tmp_path: Path, name: str, bad: NDArray[Any]) -> None:
    path = tmp_path / name
    path.write_bytes(b"an earlier film")
    with pytest.raises(ValidationError, match="not a frame"):
        write_video(path, [*frames(3), bad], fps=10)

    assert path.read_bytes() == b"an earlier film"
    assert list(tmp_path.iterdir()) == [path]


def test_frames_in_any_memory_order_are_written(tmp_path: Path) -> None:
    flipped = (picture[::-1, ::-1] for picture in frames(3))
    write_video(tmp_path / "flipped.mp4", flipped, fps=10)

    assert (tmp_path / "flipped.mp4").stat().st_size > 0


@pytest.mark.parametrize("name", ["film.gif", "film.mp4"])
def test_without_imageio_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)

    with pytest.raises(MissingExtraError, match=r"proctor-rl\[video\]") as missing:
        write_video(tmp_path / name, frames(), fps=10)

    assert missing.value.extra == "video"


def trouble_with(path: Path, count: int = 3) -> str:
    with pytest.raises(RenderingError, match="could not be written") as trouble:
        write_video(path, frames(count), fps=10)
    return str(trouble.value)


@pytest.mark.parametrize("name", ["film.gif", "film.mp4"])
def test_a_place_that_cannot_be_written_to_is_one_clean_line(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    place = Path("/proc") / name

    said = trouble_with(place)

    assert f"found '{place}'; expected a file that can be written" in said
    assert "\n" not in said
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("count", [1, 500])
def test_an_encoder_that_fails_is_one_clean_line_and_leaves_the_earlier_film(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", "/bin/false")
    path = tmp_path / "film.mp4"
    path.write_bytes(b"an earlier film")

    said = trouble_with(path, count)

    assert said.endswith(f"; found '{path}'; expected a file that can be written")
    assert "\n" not in said
    assert capfd.readouterr() == ("", "")
    assert path.read_bytes() == b"an earlier film"
    assert list(tmp_path.iterdir()) == [path]


def test_half_a_film_never_takes_the_place_of_a_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = tmp_path / "encoder"
    encoder.write_text('#!/bin/sh\nfor last; do :; done\necho half > "$last"\ncat > /dev/null\nexit 28\n')
    encoder.chmod(0o755)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(encoder))

    said = trouble_with(tmp_path / "film.mp4")

    assert "the encoder ended with code 28" in said
    assert list(tmp_path.iterdir()) == [encoder]


def test_what_the_encoder_itself_cannot_open_stays_off_the_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    said = trouble_with(tmp_path / f"{'long' * 61}.gif", 50)

    assert "File name too long" in said
    assert capfd.readouterr() == ("", "")


def test_a_place_is_judged_before_there_is_a_frame(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=r"\.gif, \.mp4"):
        check_place(tmp_path / "film.txt")
    with pytest.raises(ValidationError, match="no such folder"):
        check_place(tmp_path / "nowhere" / "film.gif")
    with pytest.raises(RenderingError, match="could not be written"):
        check_place("/proc/film.gif")
    check_place(tmp_path / "film.gif")

    assert list(tmp_path.iterdir()) == []
