"""Films are whole, of the right length and small, or they are not there; a window shows frames and can be closed by anybody."""

import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np
import pygame
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from proctor.envs.drawing.frames import Window, check_place, write_video
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


FPS = 100_000.0


@pytest.fixture(autouse=True)
def no_screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    yield
    pygame.display.quit()
    monkeypatch.setattr(Window, "_owner", None)


def frame(width: int = 60, height: int = 40, colour: tuple[int, int, int] = (10, 200, 30)) -> NDArray[np.uint8]:
    return np.full((height, width, 3), colour, np.uint8)


def pixel(x: int, y: int) -> tuple[int, ...]:
    return tuple(pygame.display.get_surface().get_at((x, y))[:3])


def test_a_frame_appears_as_it_is() -> None:
    picture = frame()
    picture[0, 0] = (1, 2, 3)
    window = Window("a title", fps=FPS)

    assert window.show(picture)
    assert pygame.display.get_surface().get_size() == (60, 40)
    assert pixel(0, 0) == (1, 2, 3)
    assert pixel(59, 39) == (10, 200, 30)
    assert pygame.display.get_caption()[0] == "a title"


def test_a_resized_window_keeps_the_proportions_of_the_frame() -> None:
    window = Window("wide", fps=FPS)
    window.show(frame())
    pygame.display.set_mode((240, 80), pygame.RESIZABLE)
    window.show(frame())

    assert pixel(120, 40) == (10, 200, 30)
    assert pixel(5, 40) == pixel(235, 40) == (0, 0, 0)


def test_frames_of_another_size_still_fit() -> None:
    window = Window("grows", fps=FPS)
    window.show(frame())

    assert window.show(frame(600, 400))
    assert pygame.display.get_surface().get_size() == (60, 40)
    assert pixel(30, 20) == pytest.approx((10, 200, 30), abs=3)


@pytest.mark.parametrize(
    "event",
    [pygame.event.Event(pygame.QUIT), pygame.event.Event(pygame.KEYDOWN, key=pygame.K_ESCAPE)],
    ids=["close button", "escape"],
)
def test_the_user_closes_the_window_and_the_run_goes_on(event: pygame.event.Event) -> None:
    window = Window("closing", fps=FPS)
    window.show(frame())
    pygame.event.post(event)

    assert not window.show(frame())
    assert window.closed
    assert not window.show(frame())
    assert not pygame.display.get_init()


def test_other_events_close_nothing() -> None:
    window = Window("open", fps=FPS)
    window.show(frame())
    pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=pygame.K_a))
    pygame.event.post(pygame.event.Event(pygame.MOUSEMOTION, pos=(1, 1), rel=(0, 0), buttons=(0, 0, 0)))

    assert window.show(frame())


def test_closing_twice_or_unopened_is_harmless() -> None:
    window = Window("never opened", fps=FPS)
    window.close()
    window.close()

    assert window.closed
    assert not window.show(frame())


def test_the_last_window_owns_the_display() -> None:
    first, second = Window("first", fps=FPS), Window("second", fps=FPS)
    first.show(frame())
    second.show(frame())

    assert first.closed
    assert not first.show(frame())
    first.close()
    assert second.show(frame())


def test_frames_come_at_the_rate_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks: list[float] = []

    class Clock:
        def tick(self, rate: float) -> None:
            ticks.append(rate)

    monkeypatch.setattr(pygame.time, "Clock", Clock)
    window = Window("steady", fps=30)
    window.show(frame())
    window.show(frame())

    assert ticks == [30, 30]


def test_without_pygame_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)

    with pytest.raises(MissingExtraError, match=r"proctor-rl\[human\]") as missing:
        Window("missing", fps=FPS).show(frame())

    assert (missing.value.package, missing.value.extra) == ("pygame", "human")


def test_without_a_display_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pygame.display.quit()
    monkeypatch.setenv("SDL_VIDEODRIVER", "no such driver")

    with pytest.raises(RenderingError, match="no window"):
        Window("nowhere", fps=FPS).show(frame())
