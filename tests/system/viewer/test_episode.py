"""An episode's page: scrubbed by mouse and by keys, played, drawn; charts follow; every kind of environment is seen."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.system.viewer.browser import COUNT_COLOURS, Windows, colours_in, eventually, picture_of
from tests.system.viewer.conftest import Gallery
from tests.system.viewer.served import Visit

pytestmark = pytest.mark.system
STAGE = ".stage canvas"
COLOURS = f"({COUNT_COLOURS})(document.querySelector('{STAGE}'))"


def slider(page: Page) -> Locator:
    return page.get_by_role("slider", name="Step")


def is_at(page: Page, step: int) -> None:
    expect(slider(page)).to_have_attribute("aria-valuetext", re.compile(rf"^Step {step} of "))


def ready(page: Page) -> None:
    """Wait until every step is there."""
    eventually(page, "performance.getEntriesByName('proctor:track-complete').length > 0")


def plume_at(viewer: Visit, gallery: Gallery, windows: Windows, step: int = 0) -> Page:
    page = viewer.episode(windows, gallery["plume"])
    ready(page)
    page.get_by_role("spinbutton", name="Go to step").fill(str(step))
    page.keyboard.press("Enter")
    page.locator("h1").first.focus()
    is_at(page, step)
    return page


def test_keys_step_to_and_fro(viewer: Visit, gallery: Gallery, windows: Windows) -> None:
    page = plume_at(viewer, gallery, windows)

    for key, step in (
        ("ArrowRight", 1),
        ("ArrowRight", 2),
        ("Shift+ArrowRight", 12),
        ("ArrowLeft", 11),
        ("Shift+ArrowLeft", 1),
        ("End", 75),
        ("ArrowRight", 75),
        ("Home", 0),
    ):
        page.keyboard.press(key)
        is_at(page, step)


def test_buttons_do_what_their_names_say(viewer: Visit, gallery: Gallery, windows: Windows) -> None:
    page = plume_at(viewer, gallery, windows)

    for name, step in (
        ("Forward one step", 1),
        ("Forward ten steps", 11),
        ("Back one step", 10),
        ("To the end", 75),
        ("Back ten steps", 65),
        ("To the beginning", 0),
    ):
        page.get_by_role("button", name=name).click()
        is_at(page, step)


def test_the_mouse_drags_the_cursor_and_the_picture_follows(viewer: Visit, gallery: Gallery, windows: Windows) -> None:
    page = plume_at(viewer, gallery, windows)
    box = slider(page).bounding_box()
    assert box is not None
    before, label = picture_of(page, STAGE), page.locator(STAGE).first.get_attribute("aria-label")
    middle = box["y"] + box["height"] / 2

    page.mouse.move(box["x"] + 8, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, middle, steps=5)
    page.mouse.up()

    expect(slider(page)).to_have_attribute("aria-valuetext", re.compile(r"^Step (3[5-9]|4\d) of 75"))
    expect(page.locator(STAGE).first).not_to_have_attribute("aria-label", label or "")
    assert picture_of(page, STAGE) != before
    assert colours_in(page, STAGE) > 50


def test_it_plays_and_pauses_and_stops_at_the_end(viewer: Visit, gallery: Gallery, windows: Windows) -> None:
    page = plume_at(viewer, gallery, windows)
    page.get_by_role("combobox", name="Speed").select_option("50")

    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    is_at(page, 75)
    expect(page.get_by_role("button", name="Play")).to_be_visible()

    page.get_by_role("combobox", name="Speed").select_option("1")
    page.get_by_role("button", name="Play").click()
    expect(slider(page)).to_have_attribute("aria-valuetext", re.compile(r"^Step [1-9] of "))
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Play")).to_be_visible()


def test_charts_show_what_was_measured_and_follow_the_cursor(viewer: Visit, gallery: Gallery, windows: Windows) -> None:
    page = plume_at(viewer, gallery, windows, 10)
    charts = page.get_by_role("region", name="Charts")

    expect(charts).to_contain_text(re.compile("concentration", re.IGNORECASE))
    expect(charts).to_contain_text(re.compile("return", re.IGNORECASE))
    before = charts.inner_text()
    page.keyboard.press("End")
    is_at(page, 75)

    assert charts.inner_text() != before
    assert colours_in(page, ".charts canvas") > 2


def test_a_click_on_a_chart_moves_the_cursor(viewer: Visit, gallery: Gallery, windows: Windows) -> None:
    page = plume_at(viewer, gallery, windows)
    chart = page.locator(".charts canvas").first
    box = chart.bounding_box()
    assert box is not None

    chart.click(position={"x": box["width"] / 2, "y": box["height"] / 2})

    expect(slider(page)).not_to_have_attribute("aria-valuetext", "Step 0 of 75")


def test_the_address_can_name_a_step(viewer: Visit, gallery: Gallery, windows: Windows) -> None:
    page = viewer.page(windows, f"#/episode/{gallery['plume']}?step=42")

    is_at(page, 42)


def test_the_board_of_column_popper_is_drawn_and_described(viewer: Visit, gallery: Gallery, windows: Windows) -> None:
    page = viewer.episode(windows, gallery["popper"])
    ready(page)
    stage = page.locator(STAGE).first
    expect(stage).to_be_visible()
    before = stage.get_attribute("aria-label")

    page.keyboard.press("End")

    expect(stage).not_to_have_attribute("aria-label", before or "")
    assert colours_in(page, STAGE) > 5
    expect(page.get_by_role("region", name="Charts")).to_contain_text(re.compile("score", re.IGNORECASE))


def test_an_environment_that_draws_itself_is_shown_in_its_own_pixels(
    viewer: Visit, gallery: Gallery, windows: Windows
) -> None:
    page = viewer.episode(windows, gallery["pixels"])
    ready(page)
    picture = page.locator(STAGE).first
    eventually(page, f"document.querySelector('{STAGE}').width > 100")
    eventually(page, f"{COLOURS} > 3")
    before = picture_of(page, STAGE)

    page.keyboard.press("End")
    is_at(page, 20)

    expect(picture).to_be_visible()
    expect(picture).to_have_attribute("aria-label", re.compile(r"\w+"))
    eventually(page, f"document.querySelector('{STAGE}').toDataURL() !== '{before}'")


def test_an_environment_that_nobody_knows_is_a_table_of_what_was_observed(
    viewer: Visit, gallery: Gallery, windows: Windows
) -> None:
    page = viewer.episode(windows, gallery["unknown"])
    ready(page)
    table = page.locator(".stage table")
    before = table.inner_text()

    page.keyboard.press("End")
    is_at(page, 20)

    expect(table.locator("tr")).to_have_count(4)
    assert table.inner_text() != before


def test_a_batch_can_be_looked_at(viewer: Visit, gallery: Gallery, windows: Windows) -> None:
    page = viewer.episode(windows, gallery["batch"])
    ready(page)

    page.keyboard.press("End")

    is_at(page, 20)
    expect(page.locator("main")).to_contain_text("4")


def test_the_page_says_what_was_served_and_how(viewer: Visit, gallery: Gallery, windows: Windows) -> None:
    page = viewer.episode(windows, gallery["plume"])

    for words in ("proctor/PlumeSearch-v0", "searcher", "seed", "8"):
        expect(page.locator("main")).to_contain_text(words)
    expect(page).to_have_title(re.compile("Proctor"))


def test_the_question_mark_tells_the_keys(viewer: Visit, gallery: Gallery, windows: Windows) -> None:
    page = plume_at(viewer, gallery, windows)

    page.keyboard.press("?")

    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("refusal")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
