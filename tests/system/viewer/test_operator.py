"""The operator in the browser: what an agent asks appears by itself, is answered there, and the answer arrives."""

import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from proctor.client import Grant, GrantWish
from proctor.ledger.reader import Ledger
from proctor.models.events import EpisodeStepped
from tests.examples.governed import AGENT, variables
from tests.server.live_server import until
from tests.system.viewer.browser import Windows
from tests.system.viewer.served import Site, episode_place, serving

pytestmark = pytest.mark.system
PLUME = "proctor/PlumeSearch-v0"
POLICY = """
name = "careful"
[tokens]
issuer = "human"
max_uses = 5
[escalation]
when = ["act at LOW stakes"]
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    policy = tmp_path / "careful.toml"
    policy.write_text(POLICY)
    with serving(tmp_path / "home", PLUME, "--governed", str(policy), "--agent-port", "0") as site:
        yield site


@contextmanager
def acting(grant: Grant, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run the reference agent, which is given nothing but its grant."""
    process = subprocess.Popen(
        [sys.executable, str(AGENT), *arguments],
        env=variables(grant),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def confirm(page: Page, action: str) -> None:
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("goes on record as the operator's act")
    dialog.get_by_role("button", name=action, exact=True).click()
    expect(dialog).to_have_count(0)


def steps_of(site: Site, chain: str) -> int:
    with Ledger.open(site.ledger) as ledger:
        return sum(isinstance(row.event, EpisodeStepped) for row in ledger.rows(chain))


def test_a_question_and_a_request_are_answered_in_the_page_and_the_agent_goes_on(site: Site, windows: Windows) -> None:
    page = site.visit().page(windows, "#/operator")
    expect(page.get_by_text("Nothing waits.")).to_be_visible()

    with site.client() as client:
        client.reset(seed=8, grant=GrantWish(agent="reference"))
        chain = f"{client.client.session.name}.1"
        with acting(client.granted, "--ask", "60", "--uses", "2") as agent:
            question = page.locator(".waiting").filter(has_text="May I act?")
            expect(question).to_be_visible(timeout=30_000)
            expect(page.get_by_role("link", name=re.compile("Operator.*1.*waiting"))).to_be_visible()
            question.get_by_label("go on").check()
            question.get_by_label("What you say to the agent").fill("slowly, please")
            question.get_by_role("button", name="Answer").click()
            assert steps_of(site, chain) == 0
            confirm(page, "Answer")
            expect(page.locator("main").get_by_text("Answered.")).to_be_visible()

            # The request of a token is answered on the episode's own page.
            page.goto(page.url.partition("#")[0] + episode_place(chain))
            request = page.locator(".waiting").filter(has_text="Token request")
            expect(request).to_be_visible(timeout=30_000)
            request.get_by_role("button", name="Approve").click()
            confirm(page, "Approve")
            until(lambda: steps_of(site, chain) > 0)
            out, _ = agent.communicate(timeout=300)

    assert agent.returncode == 0, out
    acts = [packet for packet in site.packets(chain) if packet.principal == "operator"]
    assert [act.accepted for act in acts] == [True] * len(acts)
    assert any(act.kind == "user_input" and b"slowly, please" in bytes(act.line) for act in acts)
    assert any("oken" in act.kind for act in acts)
    assert re.search(r"move +accepted", out)


def test_nothing_is_done_by_cancelling(site: Site, windows: Windows) -> None:
    with site.client() as client:
        client.reset(seed=8, grant=GrantWish(agent="reference"))
        with acting(client.granted, "--ask", "60"):
            page = site.visit().page(windows, "#/operator")
            question = page.locator(".waiting").filter(has_text="May I act?")
            expect(question).to_be_visible(timeout=30_000)
            question.get_by_label("go on").check()

            for cancelling in ("Cancel", "Escape"):
                question.get_by_role("button", name="Answer").click()
                if cancelling == "Escape":
                    page.keyboard.press("Escape")
                else:
                    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
                expect(page.get_by_role("dialog")).to_have_count(0)

            expect(question).to_be_visible()
            assert len(site.operator.pending()) == 1


def test_after_an_answer_by_keyboard_the_focus_is_on_what_came_of_it(site: Site, windows: Windows) -> None:
    with site.client() as client:
        client.reset(seed=8, grant=GrantWish(agent="reference"))
        with acting(client.granted, "--ask", "60"):
            page = site.visit().page(windows, "#/operator")
            question = page.locator(".waiting").filter(has_text="May I act?")
            expect(question).to_be_visible(timeout=30_000)

            question.get_by_label("go on").press("Space")
            question.get_by_role("button", name="Answer").press("Enter")
            expect(page.get_by_role("dialog").get_by_role("button", name="Cancel")).to_be_focused()
            page.keyboard.press("Tab")
            page.keyboard.press("Enter")

            notice = page.locator(".outcome-notice")
            expect(notice).to_contain_text("Answered.")
            expect(question).to_have_count(0)
            expect(notice).to_be_focused()
            page.keyboard.press("Tab")
            page.keyboard.press("Enter")
            expect(notice).to_have_count(0)
            expect(page.get_by_role("heading", name="Operator")).to_be_focused()


def test_cards_name_the_agent_that_asks_and_those_of_the_episode(site: Site, windows: Windows) -> None:
    with site.client() as client, site.client() as other:
        client.reset(seed=8, grant=GrantWish(agent="scout <b>"))
        other.reset(seed=8, grant=GrantWish())
        with acting(client.granted, "--ask", "60"):
            page = site.visit().page(windows, "#/operator")

            expect(page.locator(".waiting .waiting-head strong")).to_have_text("scout <b>", timeout=30_000)
            names = page.locator(".governed-session .session-head strong")
            expect(names).to_have_text(["scout <b>", ""])
            expect(names.last).to_be_hidden()


def test_an_alert_stops_an_episode_and_clearing_lets_it_go_on(site: Site, windows: Windows) -> None:
    with site.client() as client:
        client.reset(seed=1, grant=GrantWish(agent="reference"))
        chain = f"{client.client.session.name}.1"
        page = site.visit().page(windows, "#/operator")
        card = page.locator(".governed-session")
        card.get_by_text("Raise an alert, or lift safe mode").click()
        card.get_by_label("What is wrong, or why it is safe").fill("it runs in circles")
        clearing = card.get_by_role("button", name="Clear safe mode", include_hidden=True)
        expect(clearing).to_be_hidden()

        card.get_by_role("button", name="Raise alert").click()
        confirm(page, "Stop the agents")
        state = card.locator(".session-head .badge")
        expect(state).to_have_text("Safe mode")
        stopped = [packet.state for packet in site.packets(chain)][-1]
        card.get_by_label("What is wrong, or why it is safe").fill("looked at it")
        expect(page.locator(".outcome-notice")).to_contain_text("The agents are stopped.")
        clearing.click()
        confirm(page, "Lift safe mode")
        expect(state).to_have_text("Review")
        # What was said of the act before is not there any more; the button went, so the focus is on what came of it.
        expect(page.locator(".outcome-notice")).to_have_text([re.compile("Safe mode is lifted.")])
        expect(page.locator(".outcome-notice")).to_be_focused()
        expect(clearing).to_be_hidden()

    acts = [packet for packet in site.packets(chain) if packet.principal == "operator"]
    assert stopped == "S9_SAFEMODE"
    assert [(act.kind, act.accepted, act.state) for act in acts] == [
        ("IntegrityAlertPacket", True, "S9_SAFEMODE"),
        ("IntegrityAlertPacket", True, "S7_REVIEW"),
    ]


def test_a_post_without_the_pages_own_token_is_refused(site: Site, windows: Windows) -> None:
    with site.client() as client:
        client.reset(seed=1, grant=GrantWish(agent="reference"))
        session = client.client.session.name
        page = site.visit().page(windows, "#/operator")
        expect(page.get_by_role("heading", name="Operator")).to_be_visible()
        windows.wanting(page, "403")

        found = page.evaluate(
            """async ([session]) => {
              const body = JSON.stringify({ session, severity: "CRITICAL", summary: "forged" });
              const post = (headers) => fetch("../operator/alert", { method: "POST", body, headers });
              const tries = [{}, { "X-Proctor-CSRF": "" }, { "X-Proctor-CSRF": "0".repeat(64) }];
              return Promise.all(tries.map(async (headers) => (await post(headers)).status));
            }""",
            [session],
        )

        assert found == [403, 403, 403]
        assert [packet for packet in site.packets(f"{session}.1") if packet.principal == "operator"] == []


def test_a_cookie_alone_from_outside_a_page_acts_for_nobody(site: Site) -> None:
    visit = site.visit()
    (cookie,) = visit.state["cookies"]
    body = b'{"session":"any","severity":"CRITICAL","summary":"forged"}'
    headers = {"Cookie": f"{cookie['name']}={cookie['value']}", "X-Proctor-CSRF": visit.csrf}

    for origin in (None, "http://evil.example"):
        request = urllib.request.Request(f"{site.url}/operator/alert", body, headers)
        if origin is not None:
            request.add_header("Origin", origin)
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=10)
        assert caught.value.code == 403
        caught.value.close()


def test_the_visit_asks_for_no_links(site: Site, windows: Windows) -> None:
    page = site.visit().page(windows, "#/operator")
    expect(page.get_by_role("heading", name="Operator")).to_be_visible()
    windows.wanting(page, "401|403")

    status = page.evaluate("fetch('../operator/link', {method: 'POST'}).then((answer) => answer.status)")

    assert status in (401, 403)
