"""Two episodes side by side: one cursor, the first difference marked and said; a fork beside what was."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.system.viewer.browser import Windows, colours_in
from tests.system.viewer.conftest import Gallery
from tests.system.viewer.served import Visit, compare_place
from tests.system.viewer.test_episode import is_at, plume_at

pytestmark = pytest.mark.system


def compared(viewer: Visit, windows: Windows, one: str, other: str) -> Page:
    page = viewer.page(windows, compare_place(one, other))
    expect(page.locator("canvas").first).to_be_visible()
    return page


def test_the_first_difference_is_said_and_jumped_to(viewer: Visit, gallery: Gallery, windows: Windows) -> None:
    page = compared(viewer, windows, gallery["plume"], gallery["other"])

    expect(page.locator("main")).to_contain_text(re.compile(r"step 30\b"))
    expect(page.locator("main")).to_contain_text("action")
    page.keyboard.press("Home")
    page.get_by_role("button", name=re.compile("first difference", re.IGNORECASE)).click()

    is_at(page, 30)


def test_both_are_drawn_and_share_a_cursor(viewer: Visit, gallery: Gallery, windows: Windows) -> None:
    page = compared(viewer, windows, gallery["plume"], gallery["other"])
    stages = page.locator(".stage")

    expect(stages).to_have_count(2)
    pictures = [stages.nth(place).locator("canvas").first for place in range(2)]
    labels = [picture.get_attribute("aria-label") or "" for picture in pictures]
    page.keyboard.press("End")

    for picture, label in zip(pictures, labels, strict=True):
        expect(picture).not_to_have_attribute("aria-label", label)
    assert colours_in(page, ".stage canvas") > 50


def test_an_episode_and_itself_do_not_differ(viewer: Visit, gallery: Gallery, windows: Windows) -> None:
    page = compared(viewer, windows, gallery["popper"], gallery["popper"])

    same = re.compile(r"no difference|the same|identical|do not differ", re.IGNORECASE)
    expect(page.locator("main")).to_contain_text(same)


def test_episodes_of_different_environments_can_be_compared(viewer: Visit, gallery: Gallery, windows: Windows) -> None:
    page = compared(viewer, windows, gallery["plume"], gallery["governed"])

    expect(page.locator("main")).to_contain_text(re.compile("differ", re.IGNORECASE))


def fork_at(page: Page, step: int, actions: str) -> None:
    form = page.get_by_role("form", name="Fork A")
    form.get_by_label("After step").fill(str(step))
    form.get_by_label("Actions").fill(actions)
    form.get_by_role("button", name="Fork").click()
    page.get_by_role("dialog").get_by_role("button", name="Fork").click()


def test_a_fork_is_shown_beside_what_was(viewer: Visit, gallery: Gallery, windows: Windows) -> None:
    page = compared(viewer, windows, gallery["plume"], gallery["other"])

    fork_at(page, 10, "[0, 0, 0]")

    expect(page.locator("main")).to_contain_text("~fork@10")
    expect(page.locator(".stage")).to_have_count(2)
    expect(page.get_by_text("fork, not recorded")).to_be_visible()
    expect(page.get_by_role("heading", name="First difference")).to_be_focused()


def test_who_wants_to_fork_begins_with_what_is_to_be_done_there(
    viewer: Visit, gallery: Gallery, windows: Windows
) -> None:
    page = plume_at(viewer, gallery, windows, 20)

    page.get_by_role("button", name="Fork here…").click()

    form = page.get_by_role("form", name="Fork A")
    expect(form.get_by_label("Actions")).to_be_focused()
    expect(form.get_by_label("Actions")).to_be_in_viewport()
    expect(form.get_by_label("After step")).to_have_value("20")


def test_a_fork_that_is_refused_is_said_in_plain_words(viewer: Visit, gallery: Gallery, windows: Windows) -> None:
    page = compared(viewer, windows, gallery["plume"], gallery["other"])
    windows.wanting(page, "409")

    fork_at(page, 10, '["up"]')

    said = page.get_by_role("form", name="Fork A").get_by_role("alert")
    expect(said).to_contain_text("It was not forked: this action was not taken: it is none of this environment")
    expect(said).not_to_contain_text("pydantic")
