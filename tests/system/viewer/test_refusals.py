"""What was judged: a refusal in words with what would be legal, the state machine and the path, raw JSON on demand."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.system.viewer.browser import Windows
from tests.system.viewer.conftest import Gallery
from tests.system.viewer.served import Visit
from tests.system.viewer.test_episode import is_at, ready

pytestmark = pytest.mark.system


@pytest.fixture
def page(viewer: Visit, gallery: Gallery, windows: Windows) -> Page:
    page = viewer.episode(windows, gallery["governed"])
    ready(page)
    page.locator("h1").first.focus()
    page.keyboard.press("Home")
    return page


def details(page: Page) -> Locator:
    return page.get_by_role("article", name="The selected packet")


def packets(page: Page) -> Locator:
    return page.get_by_role("region", name="Packets and verdicts")


def test_a_refusal_is_explained_with_its_rules_and_what_would_be_legal(page: Page) -> None:
    packets(page).get_by_text("Refused", exact=True).first.click()

    packets(page).get_by_role("option").filter(has_text="FSM").click()

    said = details(page)
    expect(said).to_contain_text("refused")
    expect(said).to_contain_text("is not legal in S1_SENSE")
    for rule in ("FSM", "E2", "E4"):
        expect(said.get_by_role("listitem").filter(has_text=re.compile(rf"^{rule} \w+"))).not_to_have_count(0)
    legal = said.locator("section", has=page.get_by_role("heading", name="Legal now"))
    expect(legal).to_contain_text("BeliefUpdatePacket")
    way = said.locator("section", has=page.get_by_role("heading", name="The shortest way there"))
    expect(way.get_by_role("listitem")).not_to_have_count(0)


def test_a_forged_token_is_refused_in_words(page: Page) -> None:
    packets(page).get_by_text("Refused", exact=True).first.click()

    packets(page).get_by_role("option").filter(has_text="GOV-1").click()

    expect(details(page)).to_contain_text("an agent may not state this")
    expect(details(page)).to_contain_text("GOV-1")


def test_brackets_go_from_refusal_to_refusal(page: Page) -> None:
    page.keyboard.press("]")
    expect(details(page)).to_contain_text("FSM")
    is_at(page, 0)
    page.keyboard.press("]")
    is_at(page, 8)
    expect(details(page)).to_contain_text("GOV-1")

    page.keyboard.press("[")
    is_at(page, 0)


def test_j_and_k_go_from_packet_to_packet(page: Page) -> None:
    before = details(page).inner_text()

    page.keyboard.press("j")
    expect(details(page)).not_to_have_text(before)
    page.keyboard.press("j")
    page.keyboard.press("k")

    expect(packets(page).locator("[aria-selected=true]")).to_have_count(1)


def test_the_machine_shows_the_current_state_and_the_path(page: Page) -> None:
    machine = page.get_by_role("region", name="State machine")
    current = machine.locator("[aria-current=true]")

    expect(current).to_have_count(1)
    before = current.get_attribute("aria-label") or ""
    page.keyboard.press("End")

    expect(machine.locator("[aria-current=true]")).not_to_have_attribute("aria-label", before)
    expect(machine).to_contain_text("Now in")
    machine.get_by_text("Path so far").click()
    expect(machine.get_by_role("button", name=re.compile("step 215"))).not_to_have_count(0)


def test_raw_json_is_there_on_demand_and_only_then(page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/api/raw" in request.url else None)
    raw = page.get_by_role("region", name="Raw JSON")
    page.keyboard.press("End")
    is_at(page, 215)
    assert asked == []

    raw.get_by_text("Raw JSON").click()

    expect(raw).to_contain_text("episode_stepped")
    expect(raw).to_contain_text("hash")
    expect(raw).to_contain_text("reward: 1.0")  # as it is on record, where a browser would say 1
    raw.get_by_text("Last packet").click()
    expect(raw).to_contain_text("packet_judged")
    assert asked


def test_the_operators_answer_is_among_the_packets(page: Page) -> None:
    packets(page).get_by_text("Operator", exact=True).first.click()

    expect(packets(page).get_by_role("option")).to_have_count(1)
    packets(page).get_by_role("option").click()
    expect(details(page)).to_contain_text("operator", ignore_case=True)
