"""How a browser is let in: a code that is good once, a cookie that scripts cannot read, nothing in the address, or a file from disk."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Page, expect

from proctor.cli import output as opening
from tests.server.live_server import PATIENCE
from tests.system.viewer.browser import Windows
from tests.system.viewer.served import Site, serving

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with serving(tmp_path_factory.mktemp("site") / "home", "CartPole-v1") as site:
        yield site


def is_in(page: Page) -> None:
    expect(page.get_by_role("heading", name="Episodes", exact=True)).to_be_visible()


def test_a_code_lets_a_browser_in_once_and_leaves_the_address(site: Site, windows: Windows) -> None:
    link = site.link()

    page = windows.page(link)
    is_in(page)

    assert "code" not in page.url
    second = windows.page(link)
    windows.wanting(second, "401|403")
    expect(second.get_by_role("heading", name="Episodes", exact=True)).to_have_count(0)
    expect(second.locator("main")).to_contain_text("That link has been used already")
    assert second.context.cookies() == []


def test_the_cookie_is_kept_from_scripts_and_from_other_sites(site: Site, windows: Windows) -> None:
    page = windows.page(site.link())
    is_in(page)

    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["domain"]) == (True, "Strict", "127.0.0.1")
    assert page.evaluate("document.cookie") == ""
    assert page.evaluate("JSON.stringify([localStorage, sessionStorage])").count(cookie["value"]) == 0


def test_a_reload_stays_in_and_another_window_of_the_same_browser_is_in(site: Site, windows: Windows) -> None:
    page = windows.page(site.link())
    is_in(page)

    page.reload()
    is_in(page)
    other = page.context.new_page()
    other.goto(page.url)

    is_in(other)


def test_a_visitor_without_a_code_sees_how_to_get_one_and_no_episode(site: Site, windows: Windows) -> None:
    page = windows.page(f"{site.url}/viewer/")
    windows.wanting(page, "401")

    expect(page.locator("main")).to_contain_text("a link that works once")
    expect(page.locator("main")).to_contain_text("proctor operator link")
    expect(page.get_by_role("table")).to_have_count(0)


def test_who_leaves_is_out(site: Site, windows: Windows) -> None:
    page = windows.page(site.link())
    is_in(page)

    csrf = page.evaluate("localStorage.getItem('proctor.token')")
    page.evaluate("(csrf) => fetch('leave', {method: 'POST', headers: {'X-Proctor-CSRF': csrf}})", csrf)
    windows.wanting(page, "401")
    page.reload()

    expect(page.get_by_role("heading", name="Episodes", exact=True)).to_have_count(0)


def test_pages_hold_the_operators_rights_and_never_the_orchestrators(site: Site, windows: Windows) -> None:
    page = windows.page(site.link())
    is_in(page)
    windows.wanting(page, "401|403|404|WebSocket")

    found = page.evaluate(
        """async () => {
          const status = async (path, options) => (await fetch(path, options)).status;
          const socket = new Promise((resolve) => {
            const tried = new WebSocket(`ws://${location.host}/ws`);
            tried.onopen = () => resolve("open");
            tried.onerror = () => resolve("refused");
          });
          const post = { method: "POST", body: "{}" };
          return [await status("/reset", post), await status("/step", post), await status("/state"), await socket];
        }"""
    )

    assert all(status in (401, 403) for status in found[:3])
    assert found[3] == "refused"


def test_the_private_file_leads_a_browser_in(
    site: Site, windows: Windows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy.html"

    def take(uri: str) -> bool:
        copy.write_bytes(Path(unquote(urlsplit(uri).path)).read_bytes())
        return True

    monkeypatch.setattr("webbrowser.open", take)
    monkeypatch.setattr(opening, "KEPT_SECONDS", 0.0)
    opening.open_in_browser(site.link()).join(PATIENCE)
    page = windows.page(copy.as_uri())

    expect(page.get_by_role("heading", name="Episodes", exact=True)).to_be_visible()
    assert "code" not in page.url


def test_an_address_without_the_last_part_leads_to_the_pages(site: Site, windows: Windows) -> None:
    for place in ("/", "/viewer"):
        page = windows.page(site.link().replace("/viewer/#", f"{place}#"))

        expect(page.get_by_role("heading", name="Episodes", exact=True)).to_be_visible()
