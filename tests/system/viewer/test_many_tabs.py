"""Many tabs of one browser: one that is not seen has no stream of events, so that none takes the connections of the others."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.system.viewer.browser import Windows
from tests.system.viewer.conftest import Gallery
from tests.system.viewer.served import Site, Visit, apart, compare_place, serving

pytestmark = pytest.mark.system

TABS = 8
"""More than a browser has connections to a server."""
ANSWERED = """async () => (await fetch("api/lines", {signal: AbortSignal.timeout(5000)})).status"""

SEEN = """(isSeen) => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => !isSeen });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
"""Turns to a tab or away from it: all of them are seen where no browser has a window."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with serving(tmp_path / "home", "CartPole-v1") as site:
        yield site


def is_live(page: Page) -> None:
    expect(page.get_by_role("heading", name="Episodes", exact=True)).to_be_visible()
    expect(page.get_by_text("Live", exact=True).first).to_be_visible()


def opened(site: Site, windows: Windows) -> list[Page]:
    """Return tabs of which only the first is seen."""
    first = windows.page(site.link())
    is_live(first)
    others = [first.context.new_page() for _ in range(TABS - 1)]
    for each in others:
        each.goto(f"{site.url}/viewer/#/")
        is_live(each)
        each.evaluate(SEEN, False)
    return [first, *others]


def episode(site: Site) -> None:
    with site.client() as env:
        env.reset(seed=1)
        env.step({"action": 0})


def test_eight_tabs_are_all_answered_and_each_is_live_when_it_is_seen(site: Site, windows: Windows) -> None:
    first, *others = opened(site, windows)

    assert [tab.evaluate(ANSWERED) for tab in (first, others[-1])] == [200, 200]
    apart(episode, site)
    row = re.compile("CartPole")
    expect(first.get_by_role("row", name=row)).to_have_count(1)
    expect(others[0].get_by_role("row", name=row)).to_have_count(0)
    first.close()
    for tab in others:
        tab.evaluate(SEEN, True)
        expect(tab.get_by_role("row", name=row)).to_have_count(1)
        is_live(tab)
        tab.evaluate(SEEN, False)


def test_a_fork_says_what_it_runs_and_runs_nothing_unless_that_is_confirmed(
    viewer: Visit, gallery: Gallery, windows: Windows
) -> None:
    page = viewer.page(windows, compare_place(gallery["plume"], gallery["other"]))
    form = page.locator("form").filter(has_text="Fork")
    form.get_by_label("After step").fill("10")
    form.get_by_label("Actions").fill("[0, 0, 0]")

    form.get_by_role("button", name="Fork").click()
    question = page.get_by_role("dialog")
    expect(question).to_contain_text("proctor/PlumeSearch-v0")
    expect(question).to_contain_text("settings")
    question.get_by_role("button", name="Cancel").click()

    expect(question).to_have_count(0)
    expect(page.locator("main")).not_to_contain_text("~fork@10")
    form.get_by_role("button", name="Fork").click()
    question.get_by_role("button", name="Fork").click()
    expect(page.locator("main")).to_contain_text("~fork@10")
