"""An episode's page says where it is, finds every refusal, and never calls a record running that nobody drives."""

import re

import pytest
from playwright.sync_api import expect

from tests.system.viewer.browser import Windows
from tests.system.viewer.conftest import Gallery
from tests.system.viewer.served import Visit, compare_place, episode_place
from tests.system.viewer.test_episode import is_at

pytestmark = pytest.mark.system


def test_the_address_follows_the_cursor_and_the_way_back_stays_short(
    viewer: Visit, gallery: Gallery, windows: Windows
) -> None:
    page = viewer.page(windows)
    page.locator(f"a[href='{episode_place(gallery['plume'])}']").first.click()
    is_at(page, 0)
    for _ in range(3):
        page.keyboard.press("ArrowRight")

    expect(page).to_have_url(re.compile(r"\?step=3$"))
    page.reload()
    is_at(page, 3)
    page.go_back()
    expect(page.get_by_role("heading", name="Episodes", exact=True)).to_be_visible()


def test_the_field_for_the_step_says_where_the_cursor_is(viewer: Visit, gallery: Gallery, windows: Windows) -> None:
    page = viewer.episode(windows, gallery["plume"])
    field = page.get_by_label("Go to step")
    field.fill("9999")
    field.press("Enter")
    is_at(page, 75)
    expect(field).to_have_value("75")

    field.fill("")
    field.press("Enter")

    is_at(page, 75)
    expect(field).to_have_value("75")


def test_the_first_refusal_is_found_from_the_beginning(viewer: Visit, gallery: Gallery, windows: Windows) -> None:
    page = viewer.episode(windows, gallery["governed"])
    chosen = page.locator(".packets [aria-selected=true]")
    page.keyboard.press("Home")
    is_at(page, 0)

    page.keyboard.press("]")

    expect(chosen).to_contain_text(re.compile("refused", re.IGNORECASE))
    is_at(page, 0)


def test_what_was_closed_in_a_state_says_both(viewer: Visit, gallery: Gallery, windows: Windows) -> None:
    page = viewer.episode(windows, gallery["governed"])

    expect(page.locator(".episode-badges")).to_contain_text(re.compile("^Closed in "))


def test_swapping_turns_the_sentence_but_not_what_is_on_record(
    viewer: Visit, gallery: Gallery, windows: Windows
) -> None:
    page = viewer.page(windows, compare_place(gallery["plume"], gallery["other"]))
    said = page.locator(".difference-text")
    expect(said).to_contain_text("on the left")
    before = said.inner_text()
    values = re.findall(r"(\S+) on the (left|right)", before)

    page.get_by_role("button", name="Swap A and B").click()

    expect(said).not_to_have_text(before)
    turned = dict(re.findall(r"(\S+) on the (left|right)", said.inner_text()))
    assert turned == {value: {"left": "right", "right": "left"}[side] for value, side in values}
