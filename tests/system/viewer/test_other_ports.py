"""A page of another program on the same host: the browser shares its cookies with it, and nothing else."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import expect

from proctor.client import GrantWish
from tests.system.viewer.browser import PATIENCE, Windows
from tests.system.viewer.served import Site, serving

pytestmark = pytest.mark.system

TRIES = """async ([victim, alert]) => {
  const include = { credentials: "include" };
  const json = { "Content-Type": "application/json" };
  const late = (milliseconds) => new Promise((resolve) => setTimeout(() => resolve("nothing came"), milliseconds));
  const tried = async (attempt) => {
    try {
      return await Promise.race([attempt(), late(3000)]);
    } catch (problem) {
      return "refused";
    }
  };
  const heard = (source, good) => new Promise((resolve) => {
    source.addEventListener(good, () => resolve("reached"));
    source.addEventListener("error", () => resolve("refused"));
  });
  const framed = (address) => new Promise((resolve) => {
    const frame = document.createElement("iframe");
    frame.addEventListener("load", () => {
      try {
        resolve(frame.contentDocument.body.textContent.length > 0 ? "reached" : "refused");
      } catch (problem) {
        resolve("refused");
      }
    });
    frame.src = address;
    document.body.append(frame);
  });
  const posted = () => new Promise((resolve) => {
    const frame = Object.assign(document.createElement("iframe"), { name: "target" });
    const form = Object.assign(document.createElement("form"), { target: "target", method: "POST", enctype: "text/plain" });
    form.action = `${victim}/operator/alert`;
    form.append(Object.assign(document.createElement("input"), { name: alert.slice(0, -1) + ',"x":"', value: '"}' }));
    document.body.append(frame, form);
    frame.addEventListener("load", () => resolve("refused"));
    form.submit();
  });
  const post = { method: "POST", body: alert, ...include };
  return {
    "read": await tried(async () => (await fetch(`${victim}/viewer/api/lines`, include)).text()),
    "read the pending": await tried(async () => (await fetch(`${victim}/operator/pending`, include)).text()),
    "post": await tried(async () => (await fetch(`${victim}/operator/alert`, { ...post, headers: json })).text()),
    "post blindly": await tried(async () => (await fetch(`${victim}/operator/alert`, { ...post, mode: "no-cors" })).type),
    "form": await tried(posted),
    "socket": await tried(() => heard(new WebSocket(victim.replace("http", "ws") + "/ws"), "open")),
    "events": await tried(() => heard(new EventSource(`${victim}/viewer/events`, { withCredentials: true }), "open")),
    "frame": await tried(() => framed(`${victim}/viewer/`)),
    "cookie": document.cookie,
  };
}"""


class Neighbour:
    """Another program on this host, with a page; `seen` are the cookies that browsers brought."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        self.seen: list[str] = []


@contextmanager
def neighbour() -> Iterator[Neighbour]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            there.seen.append(self.headers.get("Cookie", ""))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>neighbour</title><body>")

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        there = Neighbour(server)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield there
        finally:
            server.shutdown()
            thread.join(PATIENCE)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    arguments = ("--governed", "open", "--agent-port", "0")
    with serving(tmp_path / "home", "proctor/PlumeSearch-v0", *arguments) as site:
        yield site


def test_a_page_of_another_port_neither_reads_nor_acts_and_a_cookie_that_it_saw_does_not_act(
    site: Site, windows: Windows
) -> None:
    with neighbour() as other, site.client() as client:
        client.reset(seed=8, grant=GrantWish(agent="reference"))
        session = client.client.session.name
        alert = {"session": session, "epoch": 1, "summary": "it is mine", "severity": "CRITICAL"}
        own = site.visit().page(windows)
        expect(own.get_by_role("heading", name="Episodes", exact=True)).to_be_visible()
        page = own.context.new_page()
        windows.wanting(page, "CORS|ERR_|40[0-9]|frame|WebSocket|refused")
        page.goto(other.url)
        told = page.evaluate(TRIES, [site.url, json.dumps(alert)])
        stolen = {"Cookie": other.seen[0]}
        visit = httpx.get(f"{site.url}/viewer/visit", headers=stolen, timeout=60.0).json()
        acts = [
            httpx.post(
                f"{site.url}/operator/alert", json=alert, headers={**stolen, "Origin": site.url, **more}, timeout=60.0
            )
            for more in ({}, {"X-Proctor-CSRF": "0" * 64}, {"Sec-Fetch-Site": "same-origin"})
        ]
        link = httpx.post(f"{site.url}/operator/link", headers={**stolen, "Origin": site.url}, timeout=60.0)
        safe = [each.safe_mode for each in site.operator.sessions()]
        packets = [packet for packet in site.packets(f"{session}.1") if packet.principal == "operator"]
        own.reload()
        expect(own.get_by_role("heading", name="Episodes", exact=True)).to_be_visible()

    assert "proctor_visit_" in other.seen[0]  # so the browser does share it
    assert told.pop("post blindly") in (
        "opaque",
        "refused",
        "nothing came",
    )  # it was sent, and its answer is closed to the page
    assert told.pop("cookie") == ""
    assert set(told.values()) <= {"refused", "nothing came"}, told
    assert visit["csrf"] is None
    assert [answer.status_code for answer in acts] == [403, 403, 403]
    assert link.status_code == 401
    assert (safe, packets) == ([False], [])


def test_a_cookie_that_another_port_plants_lets_nobody_in_and_takes_nothing_but_the_way_in(
    site: Site, windows: Windows
) -> None:
    with neighbour() as other:
        own = site.visit().page(windows)
        windows.wanting(own, "401")
        expect(own.get_by_role("heading", name="Episodes", exact=True)).to_be_visible()
        page = own.context.new_page()
        page.goto(other.url)
        name = f"proctor_visit_{urlsplit(site.url).port}"
        page.evaluate("(name) => { document.cookie = `${name}=planted; path=/`; }", name)
        own.reload()
        expect(
            own.get_by_role("heading", name="Episodes", exact=True)
        ).to_be_visible()  # one that scripts cannot see is not replaced

        page.evaluate("(name) => { document.cookie = `${name}=planted; path=/viewer`; }", name)
        own.reload()
        expect(own.get_by_text("proctor operator link")).to_be_visible()

        own.context.clear_cookies(name=name, path="/viewer")
        own.reload()
        expect(own.get_by_role("heading", name="Episodes", exact=True)).to_be_visible()
