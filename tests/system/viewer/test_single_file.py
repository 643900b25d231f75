"""The single file: written by `proctor export`, opened from disk with every network forbidden, and all there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from proctor.viewer import Episode
from tests.server.commands import ROOT, variables
from tests.system.viewer.browser import Windows, colours_in
from tests.system.viewer.conftest import Gallery
from tests.system.viewer.test_episode import STAGE, is_at

pytestmark = pytest.mark.system


def exported(gallery: Gallery, home: Path, *arguments: str) -> Path:
    """Run `proctor export`; return the file."""
    file = home / "out.html"
    subprocess.run(
        [sys.executable, "-m", "proctor", "export", *arguments, "--ledger", str(gallery.folder), "--html", str(file)],
        cwd=ROOT,
        env=variables(home),
        check=True,
        capture_output=True,
        timeout=300,
    )
    return file


def from_disk(windows: Windows, file: Path) -> tuple[Page, list[str]]:
    """Open a file where nothing may be fetched; return the page and what it wanted to fetch."""
    context = windows.context()
    wanted: list[str] = []
    context.on("request", lambda request: wanted.append(request.url))
    context.route("**/*", lambda route: route.continue_() if route.request.url == file.as_uri() else route.abort())
    page = context.new_page()
    page.goto(file.as_uri())
    return page, wanted


def only(file: Path, wanted: list[str]) -> bool:
    """Return whether nothing but the file, and what is in it, was asked for."""
    return all(url == file.as_uri() or url.startswith(("data:", "blob:")) for url in wanted)


def test_a_governed_episode_opens_scrubs_and_explains_its_refusals(
    gallery: Gallery, windows: Windows, tmp_path: Path
) -> None:
    file = exported(gallery, tmp_path, gallery["governed"])

    page, wanted = from_disk(windows, file)
    expect(page.locator(STAGE).first).to_be_visible()
    page.keyboard.press("Home")
    page.keyboard.press("]")
    page.keyboard.press("]")

    is_at(page, 8)
    said = page.get_by_role("article", name="The selected packet")
    expect(said).to_contain_text("an agent may not state this")
    expect(said).to_contain_text("Legal now")
    assert colours_in(page, STAGE) > 50
    raw = page.get_by_role("region", name="Raw JSON")
    raw.get_by_text("Raw JSON").click()
    expect(raw).to_contain_text("episode_stepped")
    assert only(file, wanted)


def test_two_episodes_in_one_file_are_compared(gallery: Gallery, windows: Windows, tmp_path: Path) -> None:
    file = exported(gallery, tmp_path, gallery["plume"], "--beside", gallery["other"])

    page, wanted = from_disk(windows, file)

    expect(page.locator(".stage")).to_have_count(2)
    expect(page.locator("main")).to_contain_text(re.compile(r"step 30\b"))
    assert only(file, wanted)


def test_a_fork_in_a_file_is_beside_what_was(gallery: Gallery, windows: Windows, tmp_path: Path) -> None:
    file = exported(gallery, tmp_path, gallery["plume"], "--fork", "10", "--actions", "[0,0,0]")

    page, wanted = from_disk(windows, file)

    expect(page.locator(".stage")).to_have_count(2)
    expect(page.locator("main")).to_contain_text("~fork@10")
    expect(page.get_by_text("fork, not recorded")).to_have_count(1)
    expect(page.locator(".difference-text")).to_contain_text("At step 11 the action differs")
    expect(page.locator(".difference-text")).to_contain_text("would have paid for the new steps is not known")
    page.get_by_role("link", name="Open episode B").click()
    expect(page.locator(".episode-head")).to_contain_text("fork, not recorded")
    expect(page.locator(".episode-head")).not_to_contain_text("searcher")
    expect(page.locator(".notes")).to_contain_text("Here the record is left")
    assert only(file, wanted)


@pytest.mark.parametrize("name", ["popper", "pixels", "unknown", "batch", "plume"])
def test_every_kind_of_episode_opens_from_disk(name: str, gallery: Gallery, windows: Windows, tmp_path: Path) -> None:
    file = exported(gallery, tmp_path, gallery[name])

    page, wanted = from_disk(windows, file)
    page.keyboard.press("End")

    expect(page.locator(".stage").locator("canvas, img, table").first).to_be_visible()
    expect(page.get_by_role("slider", name="Step")).not_to_have_attribute("aria-valuetext", re.compile("^Step 0 of"))
    assert only(file, wanted)


def test_the_server_hands_the_same_file_out(gallery: Gallery, viewer: object, windows: Windows, tmp_path: Path) -> None:
    page = viewer.page(windows)  # type: ignore[attr-defined]  # a Visit
    found = page.request.get(page.url.partition("#")[0] + f"api/page?chain={gallery['plume']}")
    assert found.status == 200
    assert found.headers["content-disposition"] == "attachment"
    file = tmp_path / "handed.html"
    file.write_bytes(found.body())

    disk, wanted = from_disk(windows, file)

    expect(disk.locator(STAGE).first).to_be_visible()
    assert only(file, wanted)


def test_a_notebook_shows_the_player_in_a_frame_of_its_own(gallery: Gallery, windows: Windows, tmp_path: Path) -> None:
    file = tmp_path / "notebook.html"
    shown = Episode(gallery.folder, gallery["governed"])._repr_html_()
    file.write_text(f"<!doctype html><meta charset=utf-8><title>notebook</title>{shown}")

    page, wanted = from_disk(windows, file)

    frame = page.frame_locator("iframe")
    expect(frame.locator(STAGE).first).to_be_visible()
    frame.get_by_role("button", name="To the end").click()
    expect(frame.get_by_role("slider", name="Step")).to_have_attribute("aria-valuetext", "Step 215 of 215")
    frame.get_by_role("button", name="Previous refusal").click()
    expect(frame.get_by_role("article", name="The selected packet")).to_contain_text("an agent may not state this")
    assert all(url.startswith(("file:", "about:", "data:", "blob:")) for url in wanted)
