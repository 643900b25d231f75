"""The list of episodes: filtered, sorted, chosen from; a live one appears and changes by itself."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.system.viewer.browser import GONE, NARROW, Windows, sideways
from tests.system.viewer.conftest import Gallery
from tests.system.viewer.served import Visit, serving

pytestmark = pytest.mark.system


def rows(page: Page) -> Locator:
    return page.get_by_role("table", name="Episodes").locator("tbody tr")


def column(page: Page, label: str) -> list[str]:
    return rows(page).locator(f"td[data-label='{label}']").all_inner_texts()


def test_every_episode_of_the_ledger_is_listed(viewer: Visit, gallery: Gallery, windows: Windows) -> None:
    page = viewer.page(windows)

    expect(rows(page)).to_have_count(len(gallery.chains))
    governed = rows(page).filter(has_text="governed_agent.py")
    expect(governed).to_contain_text("Conforming")
    expect(governed.locator("td[data-label=Refusals]")).to_have_text("2")
    expect(governed.locator("td[data-label=Steps]")).to_have_text("215")


def test_words_and_boxes_filter_the_list(viewer: Visit, windows: Windows) -> None:
    page = viewer.page(windows)

    page.get_by_role("searchbox").fill("columnpopper")
    expect(rows(page)).to_have_count(1)
    page.get_by_role("searchbox").fill("no such episode")
    expect(page.get_by_role("heading", name="No episode matches")).to_be_visible()
    page.get_by_role("button", name="Clear the filters").click()
    page.get_by_label("Governed", exact=True).check()

    expect(rows(page)).to_have_count(4)
    page.get_by_label("Refused", exact=True).check()
    expect(rows(page).filter(has_text="governed_agent.py")).to_have_count(1)
    expect(page.get_by_text("of 10 episodes")).to_be_visible()


def test_headings_sort_the_list_in_both_directions(viewer: Visit, windows: Windows) -> None:
    page = viewer.page(windows)
    button = page.get_by_role("button", name="Steps", exact=True)

    button.click()
    falling = [int(text.replace(",", "")) for text in column(page, "Steps")]
    heading = page.get_by_role("columnheader", name="Steps")
    expect(heading).to_have_attribute("aria-sort", "descending")
    button.click()
    expect(heading).to_have_attribute("aria-sort", "ascending")
    rising = [int(text.replace(",", "")) for text in column(page, "Steps")]

    assert falling == sorted(falling, reverse=True)
    assert rising == sorted(rising)


def test_two_episodes_are_chosen_and_compared(viewer: Visit, windows: Windows) -> None:
    page = viewer.page(windows)

    for name in ("plume.1", "other.1"):
        rows(page).filter(has=page.locator(f"[title='{name}']")).get_by_role("checkbox").check()
    page.get_by_role("button", name="Compare", exact=True).click()

    expect(page).to_have_url(re.compile("#/compare/"))
    expect(page.locator("canvas").first).to_be_visible()


def test_a_live_episode_appears_and_changes_while_a_client_steps(tmp_path: Path, windows: Windows) -> None:
    with serving(tmp_path / "home", "proctor/PlumeSearch-v0") as site:
        page = site.visit().page(windows)
        windows.wanting(page, GONE)
        expect(page.get_by_role("heading", name="No episodes yet")).to_be_visible()

        with site.client() as client:
            client.reset(seed=1)
            expect(rows(page)).to_have_count(1)
            steps = rows(page).locator("td[data-label=Steps]")
            state = rows(page).locator("td[data-label=State]")
            expect(state).to_contain_text("live")
            for number in range(1, 31):
                client.step({"action": number % 4})
            expect(steps).to_have_text("30")
        expect(state).not_to_contain_text("live")


def test_on_a_narrow_screen_rows_are_cards_and_nothing_is_cut_off(viewer: Visit, windows: Windows) -> None:
    page = viewer.page(windows, size=NARROW)

    expect(rows(page).first).to_be_visible()
    assert sideways(page) == 0
    page.get_by_label("Order").select_option(label="Most steps")
    expect(rows(page).first).to_contain_text("215")
