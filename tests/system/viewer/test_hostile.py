"""Whatever an agent says stays text: in the list, among packets, in details and raw JSON, in files and in notebooks."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from proctor.client import GrantWish
from proctor.viewer import Episode
from tests.examples.governed import variables
from tests.system.viewer.browser import GONE, Windows, was_attacked
from tests.system.viewer.conftest import Gallery
from tests.system.viewer.served import Visit, compare_place, serving
from tests.system.viewer.test_episode import ready
from tests.system.viewer.test_single_file import exported, from_disk, only
from tests.viewer.ledgers import HOSTILE, IMG

pytestmark = pytest.mark.system

ASKING = """
import asyncio, json, os, sys
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

async def main():
    said = json.load(sys.stdin)
    headers = {"Authorization": "Bearer " + os.environ["PROCTOR_GRANT_TOKEN"]}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=300, trust_env=False) as http,
        Client(streamable_http_client(os.environ["PROCTOR_GRANT_ADDRESS"], http_client=http)) as client,
    ):
        for tool, arguments in said:
            await client.call_tool(tool, arguments)

asyncio.run(main())
"""


def everything_opened(page: Page) -> None:
    """Look at everything that can be looked at on an episode's page."""
    ready(page)
    page.keyboard.press("End")
    page.get_by_role("region", name="Raw JSON").get_by_text("Raw JSON").click()
    options = page.get_by_role("region", name="Packets and verdicts").get_by_role("option")
    for place in range(min(options.count(), 14)):
        options.nth(place).click()
        expect(page.get_by_role("article", name="The selected packet")).to_be_visible()
        # All at once: the page may draw them anew between two clicks.
        page.evaluate(
            """() => document.querySelectorAll("details:not([open])").forEach((each) => {
              if (each.checkVisibility()) each.open = true;
            })"""
        )
    page.keyboard.press("Home")
    page.keyboard.press("Shift+ArrowRight")


@pytest.mark.parametrize("name", ["hostile", "forged"])
def test_markup_stays_text_on_the_episodes_page(name: str, viewer: Visit, gallery: Gallery, windows: Windows) -> None:
    page = viewer.episode(windows, gallery[name])

    everything_opened(page)

    expect(page.locator("main")).to_contain_text("<img src=x")
    assert was_attacked(page) == []


def was_poisoned(page: Page) -> list[str]:
    """Return what keys, addresses, styles and sizes from a record have done to a page."""
    found: list[str] = page.evaluate(
        """() => [
          ...(({}).polluted === undefined ? [] : ["every object has a new key"]),
          ...[...document.querySelectorAll("a[href]")].filter((each) => each.protocol === "javascript:").map((each) => each.href),
          ...[...document.querySelectorAll("canvas, svg")].filter((each) => each.getBoundingClientRect().width > 20000
            || each.getBoundingClientRect().height > 20000).map((each) => each.tagName),
          ...(getComputedStyle(document.querySelector("main")).display === "none" ? ["a style was added"] : []),
        ]"""
    )
    return [*was_attacked(page), *found]


def test_keys_addresses_styles_and_sizes_do_nothing_to_the_pages(
    viewer: Visit, gallery: Gallery, windows: Windows, tmp_path: Path
) -> None:
    page = viewer.episode(windows, gallery["poisoned"])
    everything_opened(page)
    assert was_poisoned(page) == []

    listed = viewer.page(windows)
    expect(listed.get_by_role("table", name="Episodes")).to_contain_text("__proto__")
    listed.get_by_role("combobox", name="Environment").select_option("__proto__")
    assert was_poisoned(listed) == []

    compared = viewer.page(windows, compare_place(gallery["poisoned"], gallery["forged"]))
    expect(compared.get_by_role("slider").first).to_be_visible()
    assert was_poisoned(compared) == []

    file = exported(gallery, tmp_path, gallery["poisoned"])
    alone, wanted = from_disk(windows, file)
    everything_opened(alone)
    assert was_poisoned(alone) == []
    assert only(file, wanted)


def test_markup_stays_text_in_the_list(viewer: Visit, windows: Windows) -> None:
    page = viewer.page(windows)

    expect(page.get_by_role("table", name="Episodes")).to_contain_text(IMG)
    page.get_by_role("combobox", name="Environment").select_option(HOSTILE)
    for title in ("forged.1", "hostile.1"):
        page.get_by_role("searchbox").fill(title.partition(".")[0])
        page.get_by_role("combobox", name="Environment").select_option("")
        page.locator("tr", has=page.locator(f"[title='{title}']")).get_by_role("checkbox").check()

    assert was_attacked(page) == []


def test_markup_stays_text_side_by_side(viewer: Visit, gallery: Gallery, windows: Windows) -> None:
    page = viewer.page(windows, compare_place(gallery["hostile"], gallery["forged"]))

    expect(page.get_by_role("slider").first).to_be_visible()
    page.keyboard.press("End")

    assert was_attacked(page) == []


@pytest.mark.parametrize("name", ["hostile", "forged"])
def test_markup_stays_text_in_a_single_file(name: str, gallery: Gallery, windows: Windows, tmp_path: Path) -> None:
    file = exported(gallery, tmp_path, gallery[name])

    page, wanted = from_disk(windows, file)
    everything_opened(page)

    expect(page.locator("main")).to_contain_text("<img src=x")
    assert was_attacked(page) == []
    assert only(file, wanted)


@pytest.mark.parametrize("name", ["hostile", "forged"])
def test_markup_stays_text_in_a_notebook(name: str, gallery: Gallery, windows: Windows, tmp_path: Path) -> None:
    file = tmp_path / "notebook.html"
    episode = Episode(gallery.folder, gallery[name])
    file.write_text(f"<!doctype html><meta charset=utf-8><title>notebook</title>{episode._repr_html_()}")

    page, _ = from_disk(windows, file)
    frame = page.frame_locator("iframe")
    frame.get_by_role("button", name="To the end").click()

    expect(frame.locator("main")).to_contain_text("<img src=x")
    assert was_attacked(page) == []
    inner = next(each for each in page.frames if each != page.main_frame)
    assert inner.evaluate("[window.__pwned, document.querySelectorAll('img[src=x]').length]") in ([None, 0], [0])


def test_what_an_agent_asks_an_operator_stays_text(tmp_path: Path, windows: Windows) -> None:
    policy = tmp_path / "human.toml"
    policy.write_text('name = "human"\n[tokens]\nissuer = "human"\n')
    says = [
        ("believe", {"changes": {IMG: HOSTILE}}),
        ("decide", {"outcome": "ACT", "summary": HOSTILE}),
        ("request_token", {"tools": ["move"], "rationale": HOSTILE, "wait_seconds": 0}),
        ("believe", {"changes": {HOSTILE: HOSTILE}}),
        ("decide", {"outcome": "ESCALATE", "summary": HOSTILE}),
        ("escalate", {"question": HOSTILE, "options": [HOSTILE, "A" * 300], "gaps": [HOSTILE], "wait_seconds": 0}),
    ]
    arguments = ("--governed", str(policy), "--agent-port", "0")
    with serving(tmp_path / "home", "proctor/PlumeSearch-v0", *arguments) as site, site.client() as client:
        client.reset(seed=1, grant=GrantWish(agent=HOSTILE[:100]))
        subprocess.run(
            [sys.executable, "-c", ASKING],
            input=json.dumps(says),
            env=variables(client.granted),
            text=True,
            check=True,
            timeout=300,
        )
        page = site.visit().page(windows, "#/operator")
        windows.wanting(page, GONE)

        cards = page.locator(".waiting")
        expect(cards.first).to_contain_text(IMG)
        for place in range(cards.count()):
            cards.nth(place).get_by_text("All that the agent stated").click()
            cards.nth(place).get_by_role("button", name=re.compile("Approve|Answer")).click()
            dialog = page.get_by_role("dialog")
            if dialog.count():
                expect(dialog).to_be_visible()
                page.keyboard.press("Escape")

        assert was_attacked(page) == []
