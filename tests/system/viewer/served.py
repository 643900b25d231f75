"""`proctor serve` and `proctor view` as processes whose pages are visited, and who steps and asks there."""

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from playwright.sync_api import Page

from proctor.client import GenericClient, OperatorClient
from proctor.ledger.reader import Ledger
from proctor.models.events import PacketJudged
from tests.server.commands import ROOT, START_SECONDS, Command, serve, variables
from tests.system.viewer.browser import WIDE, Windows

Result = TypeVar("Result")
LINK = re.compile(r"http://\S+/viewer/#code=[\w-]+")


def apart(work: Callable[..., Result], *arguments: Any, **keywords: Any) -> Result:
    """Return what `work` returns on a thread of its own: where a browser is driven, no other event loop can be run."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work, *arguments, **keywords).result(START_SECONDS)


@dataclass(frozen=True)
class Visit:
    """A visitor who was let in, in whatever window."""

    address: str
    """Of the pages, up to `/viewer/`."""
    state: Any
    """The cookie and the token, as the browser takes them."""
    csrf: str

    def page(
        self, windows: Windows, place: str = "#/", size: tuple[int, int] = WIDE, theme: str = "light", **more: Any
    ) -> Page:
        return windows.page(f"{self.address}{place}", size, theme, storage_state=self.state, **more)

    def episode(self, windows: Windows, chain: str, **more: Any) -> Page:
        return self.page(windows, episode_place(chain), **more)


def episode_place(chain: str) -> str:
    return f"#/episode/{quote(chain, safe='')}"


def compare_place(one: str, other: str) -> str:
    return f"#/compare/{quote(one, safe='')}/{quote(other, safe='')}"


def visit_by(link: str) -> Visit:
    """Trade the code in a link, as the page does."""
    address, _, code = link.partition("#code=")
    host = urlsplit(address)
    request = urllib.request.Request(
        f"{address}enter",
        json.dumps({"code": code}).encode(),
        {"Content-Type": "application/json", "Origin": f"{host.scheme}://{host.netloc}"},
    )
    with urllib.request.urlopen(request, timeout=START_SECONDS) as answer:
        (cookie,) = SimpleCookie(answer.headers["Set-Cookie"]).values()
        csrf = json.load(answer)["csrf"]
    kept = {"name": cookie.key, "value": cookie.value, "domain": host.hostname, "path": cookie["path"] or "/"}
    kept |= {"expires": -1, "httpOnly": True, "secure": False, "sameSite": "Strict"}
    token = {"origin": f"{host.scheme}://{host.netloc}", "localStorage": [{"name": "proctor.token", "value": csrf}]}
    return Visit(address, {"cookies": [kept], "origins": [token]}, csrf)


@dataclass
class Site:
    """A server with pages."""

    command: Command
    url: str
    ledger: Path

    @property
    def state(self) -> Path:
        return self.command.home / "state" / "proctor"

    @property
    def operator_token(self) -> str:
        return (self.state / "operator-token").read_text().strip()

    @property
    def control_token(self) -> str:
        return (self.state / "control-token").read_text().strip()

    @property
    def operator(self) -> OperatorClient:
        return OperatorClient(self.url, token=self.operator_token)

    def client(self) -> Any:
        return GenericClient.blocking(self.url, token=self.control_token)

    def link(self) -> str:
        """Return an address with a one-time code, as the operator gets it."""
        request = urllib.request.Request(
            f"{self.url}/operator/link", method="POST", headers={"Authorization": f"Bearer {self.operator_token}"}
        )
        with urllib.request.urlopen(request, timeout=START_SECONDS) as answer:
            found: str = json.load(answer)["url"]
        return found

    def visit(self) -> Visit:
        return visit_by(self.link())

    def packets(self, chain: str) -> list[PacketJudged]:
        """Return the lines of an episode that are on record by now."""
        with Ledger.open(self.ledger) as ledger:
            events = [row.event for row in ledger.rows(chain)]
        return [event for event in events if isinstance(event, PacketJudged)]


@contextmanager
def serving(home: Path, target: str, *options: str) -> Iterator[Site]:
    """Run `proctor serve` with a ledger."""
    ledger = home / "ledger"
    with serve(home, target, *options, "--port", "0", "--json", "--ledger", str(ledger)) as command:
        yield Site(command, command.document["url"], ledger)


@contextmanager
def viewing(home: Path, ledger: Path) -> Iterator[str]:
    """Run `proctor view` over a ledger; yield the address with its one-time code."""
    home.mkdir(exist_ok=True)
    with (home / "out").open("wb") as out, (home / "err").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "proctor", "view", str(ledger), "--port", "0", "--no-open"],
            cwd=ROOT,
            env=variables(home, PYTHONUNBUFFERED="1"),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
    command = Command(process, home)
    with process:
        try:
            found = LINK.search(command.said("#code="))
            assert found, command.out
            yield found.group()
        finally:
            process.terminate()
            process.wait(START_SECONDS)
