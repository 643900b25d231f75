"""A browser that looks at pages, and its own figures: marks, measures, long tasks, frames.

Rule 1: what is told is what the browser's clock says, never how long it took to ask.
Rule 2: a page is opened as a visitor opens it, with nothing of an earlier one at hand but the files that browsers keep.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import quantiles
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote
from weakref import WeakKeyDictionary

from bench.measure import Gap

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, ViewportSize

PATIENCE_MS: Final = 30_000.0
SIZE: Final[ViewportSize] = {"width": 1280, "height": 900}
ARGUMENTS: Final = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage")
READY: Final = "proctor:episode-ready"
COMPLETE: Final = "proctor:track-complete"
MOVES: Final = 20
"""Movements of the mouse from one end of the timeline to the other."""
WATCH: Final = """() => {
  const watched = { begun: performance.now(), frames: [], tasks: [] };
  const observer = new PerformanceObserver((list) =>
    watched.tasks.push(...list.getEntries().map((each) => each.duration)));
  observer.observe({ entryTypes: ["longtask"] });
  const frame = (now) => { watched.frames.push(now); watched.handle = requestAnimationFrame(frame); };
  watched.handle = requestAnimationFrame(frame);
  watched.observer = observer;
  window.__watched = watched;
  performance.clearMeasures("proctor:draw");
}"""
TOLD: Final = """() => {
  const { begun, frames, tasks, observer, handle } = window.__watched;
  tasks.push(...observer.takeRecords().map((each) => each.duration));
  cancelAnimationFrame(handle);
  observer.disconnect();
  const draws = performance.getEntriesByName("proctor:draw").map((each) => each.duration);
  return { seconds: (performance.now() - begun) / 1000, frames, tasks, draws };
}"""
_BROWSERS: Final[WeakKeyDictionary[ExitStack, Browser]] = WeakKeyDictionary()
"""One for both sides of a row: there cannot be two that are driven by one thread."""


@dataclass(frozen=True, slots=True)
class Watched:
    """What a browser noted while something was going on; times in milliseconds."""

    seconds: float
    frames: tuple[float, ...]
    tasks: tuple[float, ...]
    """How long those tasks took that took more than 50 ms."""
    draws: tuple[float, ...]

    @property
    def frames_a_second(self) -> float:
        """How many pictures were shown."""
        return len(self.frames) / self.seconds

    @property
    def longest_gap(self) -> float:
        """The longest time between two pictures."""
        return max((later - earlier for earlier, later in zip(self.frames, self.frames[1:], strict=False)), default=0.0)

    @property
    def longest_task(self) -> float:
        """The longest time in which the page answered to nobody; what takes less than 50 ms is not noted."""
        return max(self.tasks, default=0.0)

    @property
    def busy(self) -> float:
        """The share of the time that went into long tasks."""
        return sum(self.tasks) / 1000.0 / self.seconds

    @property
    def slow_draw(self) -> float:
        """The 95th percentile of what a redrawing took."""
        if len(self.draws) < 2:
            raise RuntimeError("the page was not drawn while it was watched")
        return quantiles(self.draws, n=20)[-1]


class Visitor:
    """Somebody who was let in."""

    def __init__(self, page: Page, link: str) -> None:
        self.page = page
        self._home = link.partition("#")[0]
        page.goto(link)
        # The list is there once the code has been traded; who leaves before that is not let in.
        self._eventually("document.querySelector('table.episodes') !== null")

    def open(self, chain: str) -> None:
        """Load an episode's page anew, and wait until it can be used."""
        self.page.goto("about:blank")
        self.page.goto(f"{self._home}#/episode/{quote(chain, safe='')}")
        self.mark(READY)

    def newest(self) -> str:
        """Return the newest episode of the ledger."""
        found: str = self.page.evaluate(
            "fetch('api/lines').then((each) => each.json()).then((each) => each.lines[0].chain)"
        )
        return found

    def mark(self, name: str) -> float:
        """Return when a mark was set, in milliseconds since the page was asked for."""
        return float(self._eventually(f"performance.getEntriesByName('{name}')[0]?.startTime"))

    def scrub(self, seconds: float) -> Watched:
        """Drag the timeline's handle to and fro for about so many seconds."""
        slider = self.page.locator("input[type=range]").first
        slider.scroll_into_view_if_needed()
        box = slider.bounding_box()
        if box is None:
            raise RuntimeError("there is no timeline")
        middle, left, right = box["y"] + box["height"] / 2, box["x"] + 2, box["x"] + box["width"] - 2
        mouse = self.page.mouse
        mouse.move(left, middle)
        self.page.evaluate(WATCH)
        mouse.down()
        while True:
            mouse.move(right, middle, steps=MOVES)
            mouse.move(left, middle, steps=MOVES)
            if self.page.evaluate("performance.now() - window.__watched.begun") >= seconds * 1000:
                break
        mouse.up()
        return self._told()

    def watch(self, seconds: float) -> Watched:
        """Look at the page for so many seconds."""
        self.page.evaluate(WATCH)
        self._eventually(f"performance.now() - window.__watched.begun > {seconds * 1000}")
        return self._told()

    def _eventually(self, expression: str) -> Any:
        """Return what an expression comes to as soon as it is true; in one go, since pages allow no text as a program."""
        return self.page.evaluate(
            f"""new Promise((resolve, reject) => {{
              const look = () => {{
                const found = {expression};
                if (found) resolve(found); else setTimeout(look, 20);
              }};
              setTimeout(() => reject(new Error("it never came true")), {PATIENCE_MS});
              look();
            }})"""
        )

    def _told(self) -> Watched:
        found: dict[str, Any] = self.page.evaluate(TOLD)
        return Watched(found["seconds"], tuple(found["frames"]), tuple(found["tasks"]), tuple(found["draws"]))


def visiting(stack: ExitStack, link: str) -> Visitor:
    """Return a visitor with a browser that `stack` closes; a Gap where there is none."""
    if stack not in _BROWSERS:
        _BROWSERS[stack] = _launched(stack)
    page = _BROWSERS[stack].new_page(viewport=SIZE)
    page.set_default_timeout(PATIENCE_MS)
    return Visitor(page, link)


def _launched(stack: ExitStack) -> Browser:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise Gap("pages are looked at with playwright, which is not installed") from None
    found = shutil.which("chromium")
    if found is None:
        raise Gap("pages are looked at with chromium, which is not installed")
    playwright = stack.enter_context(sync_playwright())
    browser = playwright.chromium.launch(executable_path=found, args=list(ARGUMENTS))
    stack.callback(browser.close)
    return browser
