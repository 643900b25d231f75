"""A window shows frames, listens to its user and can be closed by anybody."""

import sys
from collections.abc import Iterator

import numpy as np
import pygame
import pytest
from numpy.typing import NDArray

from proctor.envs.drawing.frames import Window
from proctor.errors import MissingExtraError, RenderingError

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
