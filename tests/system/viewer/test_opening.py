"""What `--open` gives a browser leads it in: a file from disk, though a page from elsewhere is no page of ours."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import expect

from proctor.cli import output as opening
from tests.server.live_server import PATIENCE
from tests.system.viewer.browser import Windows
from tests.system.viewer.served import Site, serving

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with serving(tmp_path_factory.mktemp("site") / "home", "CartPole-v1") as site:
        yield site


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
