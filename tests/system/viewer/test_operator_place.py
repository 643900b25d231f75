"""The operator's part of an episode's page belongs to that episode, and a dialog to what it asks about."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from proctor.client import GrantWish
from tests.system.viewer.browser import Windows
from tests.system.viewer.served import Site, serving
from tests.system.viewer.test_operator import PLUME, POLICY, acting, confirm

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
            site.operator.answer(waiting, text="go on")

            expect(page.get_by_role("dialog")).to_have_count(0)
            expect(page.locator("main").get_by_text("nothing was sent")).to_be_visible()


def test_what_was_typed_for_a_question_that_somebody_else_answered_is_kept(site: Site, windows: Windows) -> None:
    with site.client() as client:
        client.reset(seed=8, grant=GrantWish(agent="reference"))
        page = site.visit().page(windows, "#/operator")
        with acting(client.granted, "--ask", "60"):
            card = page.locator(".waiting").filter(has_text="May I act?")
            card.get_by_label("What you say to the agent").fill("slowly, and keep left")

            (waiting,) = site.operator.pending()
            site.operator.answer(waiting, text="go on")

            expect(card).to_have_count(0)
            kept = page.locator(".draft")
            expect(kept).to_contain_text("it was answered elsewhere")
            expect(kept).to_contain_text("May I act?")
            expect(kept.get_by_label("What you had typed")).to_have_value("slowly, and keep left")
            expect(kept).to_be_focused()
            kept.get_by_role("button", name="Close").click()
            expect(kept).to_have_count(0)


def test_what_oneself_has_answered_is_not_kept_as_a_draft(site: Site, windows: Windows) -> None:
    with site.client() as client:
        client.reset(seed=8, grant=GrantWish(agent="reference"))
        page = site.visit().page(windows, "#/operator")
        with acting(client.granted, "--ask", "60"):
            card = page.locator(".waiting").filter(has_text="May I act?")
            card.get_by_label("What you say to the agent").fill("go on")
            card.get_by_role("button", name="Answer").click()
            confirm(page, "Answer")

            expect(card).to_have_count(0)
            expect(page.locator(".outcome-notice")).to_contain_text("Answered.")
            expect(page.locator(".draft")).to_have_count(0)


def test_what_was_typed_outlives_the_episode_on_its_own_page(site: Site, windows: Windows) -> None:
    with site.client() as client:
        client.reset(seed=8, grant=GrantWish(agent="reference"))
        page = site.visit().episode(windows, f"{client.client.session.name}.1")
        part = page.get_by_role("region", name="Operator")
        with acting(client.granted, "--ask", "60"):
            words = part.locator(".waiting").get_by_label("What you say to the agent")
            words.fill("slowly, please")

    kept = part.locator(".draft")
    expect(kept.get_by_label("What you had typed")).to_have_value("slowly, please")
    expect(words).to_have_count(0)
    kept.get_by_role("button", name="Close").click()
    expect(part).to_have_count(0)


def test_safe_mode_is_cleared_on_an_episodes_page_only_while_it_is_on(site: Site, windows: Windows) -> None:
    with site.client() as client:
        client.reset(seed=8, grant=GrantWish(agent="reference"))
        session = client.client.session.name
        page = site.visit().episode(windows, f"{session}.1")
        clearing = page.get_by_role("button", name="Clear safe mode")
        expect(page.get_by_role("button", name="Raise alert")).to_be_visible()
        expect(clearing).to_have_count(0)

        site.operator.alert(f"{session}.1", "it runs in circles")

        expect(clearing).to_be_visible()
