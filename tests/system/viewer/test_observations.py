"""Observations that no painter knows, looked at: large ones are fetched and play, small ones are drawn at first sight."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, Space, Text, Tuple
from playwright.sync_api import Page, expect

from tests.system.viewer.browser import NARROW, Windows, eventually, sideways
from tests.system.viewer.served import Visit, apart, viewing, visit_by
from tests.viewer import ledgers

pytestmark = pytest.mark.system
STEPS = 40
SPACES: dict[str, Space[Any]] = {
    "picture": Box(0, 255, (64, 64, 3), np.uint8),
    "vector": Box(-np.inf, np.inf, (200,), np.float64),
    "bars": Box(0, 255, (40,), np.uint8),
    "mixed": Tuple((Discrete(500), Box(0, 1, (2, 2), np.float64), Text(200))),
}
LATE = """(milliseconds) => {
  const asked = window.fetch;
  const released = new Promise((resolve) => { window.release = resolve; });
  const passed = () => (milliseconds === null ? null : new Promise((resolve) => setTimeout(resolve, milliseconds)));
  window.fetch = async (path, ...more) => {
    if (String(path).includes("api/raw")) await (passed() ?? released);
    return asked(path, ...more);
  };
}"""
"""Rows come so much later; without a number not before they are released."""
CORNER = "document.querySelector('.seen-picture canvas')?.getContext('2d').getImageData(0, 0, 1, 1).data[0]"
PASSED = f"(window.seen ??= new Set()).add({CORNER}).size > 5 && document.querySelector('.step-entry').value < {STEPS}"
BARS_ARE_RIGHT = """(() => {
  const colourIn = (context, y) => context.getImageData(0, y, 1, 1).data.join();
  const bars = document.querySelector(".seen-bars canvas");
  const wanted = document.createElement("canvas").getContext("2d");
  wanted.fillStyle = getComputedStyle(bars).color;
  wanted.fillRect(0, 0, 1, 1);
  return colourIn(bars.getContext("2d"), bars.height - 1) === colourIn(wanted, 0);
})()"""


class Shown(gym.Env[Any, Any]):
    """Shows its step in whatever observation it is asked to make."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.observation_space, self.action_space = SPACES[kind], Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self._seen(), 1.0, False, False, {}

    def _seen(self) -> Any:
        if self.kind == "mixed":
            return self.steps, np.full((2, 2), 0.5), "W" * 150
        seen = np.full(self.observation_space.shape or (), self.steps, self.observation_space.dtype)
        if self.kind == "picture":
            seen[32:] = self.np_random.integers(0, 50, (32, 64, 3))  # dark, and too much for a slice
        if self.kind == "vector":
            seen[1:] = self.np_random.normal(size=199)
        if self.kind == "bars":
            seen[:] = 5
        return seen


@pytest.fixture(scope="module")
def visit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visit]:
    folder = tmp_path_factory.mktemp("observations") / "ledger"
    apart(lambda: [recorded(folder, kind) for kind in SPACES])
    with viewing(tmp_path_factory.mktemp("view"), folder) as link:
        yield visit_by(link)


def recorded(folder: Path, kind: str) -> str:
    target, actions = f"{__name__}:Shown", [{"action": 1}] * STEPS
    return ledgers.free_episode(folder, target, {"kind": kind}, actions, seed=1, session=kind)


def opened(visit: Visit, windows: Windows, kind: str, **more: Any) -> Page:
    page = visit.episode(windows, f"{kind}.1", **more)
    eventually(page, "performance.getEntriesByName('proctor:track-complete').length > 0")
    return page


def test_pictures_play_though_the_server_is_slower_than_the_steps(visit: Visit, windows: Windows) -> None:
    page = opened(visit, windows, "picture")
    page.evaluate(LATE, 250)
    page.get_by_role("combobox", name="Speed").select_option("1")
    page.get_by_role("button", name="Play").click()

    eventually(page, PASSED)
    page.keyboard.press("End")

    eventually(page, f"{CORNER} === {STEPS}")  # as dark as it was: bytes are not stretched


def test_the_words_are_those_of_the_observation_once_it_has_come(visit: Visit, windows: Windows) -> None:
    page = opened(visit, windows, "picture")
    words = page.locator(".stage-words")
    page.evaluate(LATE, None)

    page.keyboard.press("End")

    expect(words).to_contain_text(f"Step {STEPS}")
    expect(words).to_contain_text("The observation is being fetched.")
    page.evaluate("window.release()")
    expect(words).to_contain_text("The observation: an array of 64 × 64 × 3.")
    expect(page.locator(".seen-note")).to_be_hidden()


def test_an_observation_that_cannot_be_fetched_is_not_said_to_be_none(visit: Visit, windows: Windows) -> None:
    page = opened(visit, windows, "picture")
    windows.wanting(page, "503")
    page.route("**/api/raw*", lambda route: route.fulfill(status=503))

    page.keyboard.press("End")

    expect(page.locator(".seen-note")).to_contain_text("The observation cannot be fetched")
    expect(page.locator(".stage-words")).to_contain_text("The observation cannot be fetched")


def test_a_vector_with_whole_numbers_in_it_is_still_drawn(visit: Visit, windows: Windows) -> None:
    page = opened(visit, windows, "vector")

    page.keyboard.press("End")

    expect(page.locator(".stage-words")).to_contain_text("The observation: an array of 200.")
    expect(page.locator(".seen-bars canvas")).to_be_visible()


@pytest.mark.parametrize(("theme", "other"), [("light", "dark"), ("dark", "light")])
def test_bars_have_their_colour_at_first_sight_and_in_the_other_theme(
    visit: Visit, windows: Windows, theme: str, other: Any
) -> None:
    page = opened(visit, windows, "bars", theme=theme)
    assert page.evaluate(BARS_ARE_RIGHT)

    page.emulate_media(color_scheme=other)

    eventually(page, BARS_ARE_RIGHT)


def test_what_is_mixed_is_shown_by_its_parts_and_fits_a_narrow_window(visit: Visit, windows: Windows) -> None:
    page = opened(visit, windows, "mixed", size=NARROW)

    expect(page.locator(".seen-name")).to_have_text(["0", "1", "2"])
    expect(page.locator(".stage-words")).to_contain_text(f"2 {'W' * 40}….")
    assert sideways(page) == 0
