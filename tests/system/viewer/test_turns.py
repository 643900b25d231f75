"""Going from page to page in a hurry, or while the server is away: what is left behind never reaches into what is seen."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from tests.system.viewer.browser import Windows
from tests.system.viewer.conftest import Gallery
from tests.system.viewer.served import Visit, episode_place
from tests.system.viewer.test_episode import ready
from tests.system.viewer.test_single_file import exported, from_disk

pytestmark = pytest.mark.system
LATE = """(part) => {
  const fetched = window.fetch;
  window.late = 0;
  window.fetch = async (path, options) => {
    if (String(path).includes(part)) {
      await new Promise((resolve) => setTimeout(resolve, 600));
      setTimeout(() => { window.late += 1; }, 100);
    }
    return fetched(path, options);
  };
}"""
"""Makes answers late, and counts those that have come."""


def is_listed(page: Page) -> None:
    expect(page.get_by_role("heading", name="Episodes", exact=True)).to_be_visible()
    expect(page.locator("table.episodes tbody tr").first).to_be_visible()


def go(page: Page, place: str) -> None:
    page.evaluate("(place) => { location.hash = place; }", place)


def refusing(status: int) -> object:
    """Return who answers every request with a refusal."""
    body = json.dumps({"code": "BUSY", "message": "not now"})

    def refuse(route: Route) -> None:
        route.fulfill(status=status, content_type="application/json", body=body)

    return refuse


def test_a_page_that_nobody_waits_for_any_more_covers_no_other(
    viewer: Visit, gallery: Gallery, windows: Windows
) -> None:
    page = viewer.page(windows)
    is_listed(page)
    page.evaluate(LATE, "api/head")

    go(page, episode_place(gallery["plume"]))
    go(page, "#/")
    is_listed(page)
    page.evaluate("new Promise((resolve) => setInterval(() => window.late > 0 && resolve(), 20))")

    is_listed(page)
    expect(page.locator(".loading")).to_have_count(0)


def test_a_question_goes_with_its_page(viewer: Visit, gallery: Gallery, windows: Windows) -> None:
    page = viewer.page(windows)
    is_listed(page)
    go(page, episode_place(gallery["plume"]))
    page.get_by_role("button", name="Compare with…").click()
    expect(page.locator("dialog")).to_be_visible()

    page.go_back()

    is_listed(page)
    expect(page.locator("dialog")).to_have_count(0)


def test_a_visit_that_has_ended_leads_to_the_entrance(viewer: Visit, gallery: Gallery, windows: Windows) -> None:
    page = viewer.page(windows)
    is_listed(page)
    windows.wanting(page, "401")

    page.context.clear_cookies()
    go(page, episode_place(gallery["plume"]))

    expect(page.get_by_role("heading", name="How to get in")).to_be_visible()
    expect(page.locator("main")).to_contain_text("The visit has ended")


def test_a_failure_of_the_server_is_not_called_one_of_the_address(
    viewer: Visit, gallery: Gallery, windows: Windows
) -> None:
    page = viewer.page(windows)
    is_listed(page)
    windows.wanting(page, "500")
    page.route("**/api/head*", refusing(500))  # type: ignore[arg-type]

    go(page, episode_place(gallery["plume"]))

    expect(page.get_by_role("heading", name="The server could not do this")).to_be_visible()
    expect(page.locator("main")).not_to_contain_text("removed")


def test_who_cannot_compare_now_is_told_why(viewer: Visit, gallery: Gallery, windows: Windows) -> None:
    page = viewer.episode(windows, gallery["plume"])
    ready(page)
    windows.wanting(page, "503")
    page.route("**/api/lines", refusing(503))  # type: ignore[arg-type]

    page.get_by_role("button", name="Compare with…").click()

    expect(page.locator(".episode-head")).to_contain_text("The other episodes are not known now: not now")


def test_an_explanation_that_failed_is_asked_for_again(viewer: Visit, gallery: Gallery, windows: Windows) -> None:
    page = viewer.episode(windows, gallery["governed"])
    ready(page)
    windows.wanting(page, "503")
    page.route("**/api/explanation*", refusing(503))  # type: ignore[arg-type]
    said = page.get_by_role("article", name="The selected packet")
    page.keyboard.press("End")
    page.keyboard.press("[")
    expect(said).to_contain_text("was refused")  # the packet at the end may have been asked about before
    expect(said).to_contain_text("The explanation could not be read: not now")
    page.unroute("**/api/explanation*")

    said.get_by_role("button", name="Ask again").click()

    expect(said).to_contain_text("Legal now")
    expect(said).not_to_contain_text("could not be read")


def test_the_way_back_in_a_file_leads_to_its_episode(gallery: Gallery, windows: Windows, tmp_path: Path) -> None:
    page, _ = from_disk(windows, exported(gallery, tmp_path, gallery["plume"]))
    expect(page.locator(".episode")).to_be_visible()

    page.get_by_role("link", name="Episodes").first.click()
    is_listed(page)
    page.go_back()

    expect(page.locator(".episode")).to_be_visible()


def test_what_went_while_the_connection_was_lost_is_not_listed_any_more(
    viewer: Visit, gallery: Gallery, windows: Windows
) -> None:
    page = viewer.page(windows)
    is_listed(page)
    lines = page.evaluate("fetch('api/lines').then((answer) => answer.json())")["lines"]
    left = [line for line in lines if line["chain"] != gallery["plume"]]
    rows = page.locator("table.episodes tbody tr")
    streams: list[str] = []

    def cut_short(route: Route) -> None:
        streams.append(route.request.url)
        if len(streams) > 1:
            page.route("**/api/lines", lambda route: route.fulfill(json={"lines": left, "remarks": []}))
        route.fulfill(content_type="text/event-stream", body=": nothing\n\n")

    page.route("**/events", cut_short)
    page.reload()
    expect(rows).to_have_count(len(lines))

    expect(rows).to_have_count(len(left))


def test_more_episodes_are_added_below_and_no_row_is_made_again(viewer: Visit, windows: Windows) -> None:
    page = viewer.page(windows)
    is_listed(page)
    lines = page.evaluate("fetch('api/lines').then((answer) => answer.json())")["lines"]
    lines += [lines[0] | {"chain": f"many{each}.1", "session": f"many{each}"} for each in range(250 - len(lines))]
    page.route("**/api/lines", lambda route: route.fulfill(json={"lines": lines, "remarks": []}))
    page.reload()
    rows = page.locator("table.episodes tbody tr")
    expect(rows).to_have_count(100)
    page.evaluate("window.first = document.querySelector('table.episodes tbody tr')")

    page.get_by_role("button", name="Show 100 more").click()
    expect(rows).to_have_count(200)
    page.get_by_role("button", name="Show 50 more").click()

    expect(rows).to_have_count(250)
    expect(rows.nth(200).locator("a.episode-link")).to_be_focused()
    assert page.evaluate("window.first === document.querySelector('table.episodes tbody tr')")
    expect(page.get_by_role("button", name="Show", exact=False).filter(has_text="more of")).to_be_hidden()
