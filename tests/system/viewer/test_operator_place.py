"""The operator's part of an episode's page belongs to that episode, and a dialog to what it asks about."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from proctor.client import GrantWish
from tests.system.viewer.browser import Windows
from tests.system.viewer.served import Site, serving
from tests.system.viewer.test_operator import PLUME, POLICY, acting

pytestmark = pytest.mark.system


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    policy = tmp_path / "careful.toml"
    policy.write_text(POLICY)
    with serving(tmp_path / "home", PLUME, "--governed", str(policy), "--agent-port", "0") as site:
        yield site


def test_an_episode_that_is_over_offers_no_acts_on_the_next_one_of_its_session(site: Site, windows: Windows) -> None:
    with site.client() as client:
        client.reset(seed=8, grant=GrantWish(agent="first"))
        session = client.client.session.name
        page = site.visit().episode(windows, f"{session}.1")
        part = page.get_by_role("region", name="Operator")
        raising = part.get_by_role("button", name="Raise alert")
        part.get_by_label("What is wrong, or why it is safe").fill("halt")
        raising.click()
        expect(page.get_by_role("dialog")).to_be_visible()

        client.reset(seed=9, grant=GrantWish(agent="second"))

        expect(page.get_by_role("dialog")).to_have_count(0)
        expect(raising).to_have_count(0)
        expect(part).to_contain_text("This episode is over. Its session goes on as")
        part.get_by_role("link").click()
        expect(raising).to_be_visible()
        assert [packet for packet in site.packets(f"{session}.2") if packet.principal == "operator"] == []
    expect(part).to_have_count(0)


def test_a_dialog_about_what_somebody_else_settled_closes_by_itself(site: Site, windows: Windows) -> None:
    with site.client() as client:
        client.reset(seed=8, grant=GrantWish(agent="reference"))
        page = site.visit().page(windows, "#/operator")
        with acting(client.granted, "--ask", "60"):
            card = page.locator(".waiting")
            card.get_by_role("radio").first.check()
            card.get_by_role("button", name="Answer").click()
            expect(page.get_by_role("dialog")).to_be_visible()

            (waiting,) = site.operator.pending()
            site.operator.answer(waiting.id, text="go on")

            expect(page.get_by_role("dialog")).to_have_count(0)
            expect(page.locator("main").get_by_text("nothing was sent")).to_be_visible()
