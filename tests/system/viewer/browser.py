"""A real browser for tests of the pages: one Chromium, contexts that forget everything, and a watch over what goes wrong.

Rule 1: an error in the console, an exception in a page, a dialog of the browser's own or a violation of the page's policy fails
    the test that caused it, unless the test said beforehand that it wants it.
Rule 2: every wait is bounded by `PATIENCE`, which is the browser's, too.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, sync_playwright

PATIENCE = 10_000
"""Milliseconds that anything in a page may take."""
WIDE, NARROW = (1280, 900), (360, 780)
GONE = "net::ERR_"
"""What a browser says of a server that has ended before the page was closed."""
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage")
WATCHED = """
  window.__violations = [];
  document.addEventListener("securitypolicyviolation", (event) =>
    window.__violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`));
"""
COUNT_COLOURS = """(canvas) => {
  const { width, height } = canvas;
  if (width * height === 0) return 0;
  return new Set(new Uint32Array(canvas.getContext("2d").getImageData(0, 0, width, height).data.buffer)).size;
}"""


@contextmanager
def launched() -> Iterator[Browser]:
    """Yield the system's Chromium."""
    found = shutil.which("chromium")
    assert found, "there is no chromium: run this test with `make test-system`, which installs it"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Watch:
    """What went wrong in the pages of one context."""

    problems: list[str] = field(default_factory=list)
    wanted: list[str] = field(default_factory=list)
    """Patterns of problems that a test wants."""

    def console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.problems.append(f"console: {message.text} {message.location.get('url', '')}")

    def error(self, problem: Any) -> None:
        self.problems.append(f"exception: {problem}")

    def dialog(self, dialog: Dialog) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def over(self, page: Page) -> None:
        page.on("console", self.console)
        page.on("pageerror", self.error)
        page.on("dialog", self.dialog)

    def check(self, context: BrowserContext) -> None:
        """Fail if anything happened that nobody wanted."""
        for page in context.pages:
            self.problems += [f"policy: {each}" for each in page.evaluate("window.__violations ?? []")]
        found = [each for each in self.problems if not any(re.search(pattern, each) for pattern in self.wanted)]
        assert not found, "\n".join(found)


@dataclass
class Windows:
    """Opens contexts, each with a visitor who has never been here, and checks them all at the end."""

    browser: Browser
    opened: list[tuple[BrowserContext, Watch]] = field(default_factory=list)

    def context(self, size: tuple[int, int] = WIDE, theme: Any = "light", **more: Any) -> BrowserContext:
        context = self.browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=theme, accept_downloads=True, **more
        )
        context.set_default_timeout(PATIENCE)
        context.add_init_script(WATCHED)
        watch = Watch()
        context.on("page", watch.over)
        self.opened.append((context, watch))
        return context

    def page(self, address: str, size: tuple[int, int] = WIDE, theme: Any = "light", **more: Any) -> Page:
        """Return a page of a new context at an address."""
        page = self.context(size, theme, **more).new_page()
        page.goto(address)
        return page

    def wanting(self, page: Page, *patterns: str) -> None:
        """Say that problems like these are what the test is about."""
        self._watch(page.context).wanted.extend(patterns)

    def _watch(self, context: BrowserContext) -> Watch:
        return next(watch for each, watch in self.opened if each is context)

    def check(self) -> None:
        for context, watch in self.opened:
            watch.check(context)

    def close(self) -> None:
        for context, _ in self.opened:
            context.close()


def eventually(page: Page, expression: str) -> Any:
    """Return what an expression comes to as soon as it is true.

    In one go: the browser's own way to wait evaluates text again and again, which the pages' policy forbids.
    """
    return page.evaluate(
        f"""new Promise((resolve, reject) => {{
          const look = () => {{
            const found = {expression};
            if (found) resolve(found); else setTimeout(look, 20);
          }};
          setTimeout(() => reject(new Error("it never came true")), {PATIENCE});
          look();
        }})"""
    )


def axe_source() -> str:
    """Return the program that looks for what people with other senses would miss."""
    folder = os.environ.get("PROCTOR_NODE")
    assert folder, "PROCTOR_NODE names no folder: run this test with `make test-system`, which makes what it needs"
    return (Path(folder) / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")


def serious_problems(page: Page) -> list[str]:
    """Return what axe finds serious or critical in a page as it stands."""
    page.evaluate(axe_source())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['impact']}: {each['id']}: {node['html'][:200]} {node.get('failureSummary', '')[:300]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


def sideways(page: Page) -> int:
    """Return by how many pixels the page is wider than its window."""
    found: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return found


def colours_in(page: Page, selector: str = "canvas") -> int:
    """Return how many different colours a canvas shows; a blank one has one."""
    found: int = page.eval_on_selector(selector, COUNT_COLOURS)
    return found


def picture_of(page: Page, selector: str = "canvas") -> str:
    """Return what a canvas shows, to be compared."""
    found: str = page.eval_on_selector(selector, "canvas => canvas.toDataURL()")
    return found


def was_attacked(page: Page) -> list[str]:
    """Return what markup from a record has done to a page; nothing, if it stayed text."""
    found: list[str] = page.evaluate(
        """() => [
          ...(window.__pwned === undefined ? [] : [`a script ran: ${window.__pwned}`]),
          ...[...document.querySelectorAll("img[src='x'], [onerror]")].map((each) => each.outerHTML),
        ]"""
    )
    return found
