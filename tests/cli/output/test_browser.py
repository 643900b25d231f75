"""A browser is opened at an address whose code nobody else can read, and nobody waits for it."""

from __future__ import annotations

import stat
import threading
import webbrowser
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from proctor.cli.output import browser
from tests.server.live_server import PATIENCE

ADDRESS = "http://127.0.0.1:8000/viewer/#code=secret&to=%2Fepisode"


def test_the_browser_gets_a_private_file_that_leads_to_the_address_and_is_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[tuple[str, int, str]] = []

    def take(uri: str) -> bool:
        file = Path(unquote(urlsplit(uri).path))
        given.append((uri, stat.S_IMODE(file.stat().st_mode), file.read_text()))
        return True

    monkeypatch.setattr(webbrowser, "open", take)
    monkeypatch.setattr(browser, "KEPT_SECONDS", 0.0)
    thread = browser.open_in_browser(ADDRESS)
    thread.join(PATIENCE)

    ((uri, mode, page),) = given
    assert "secret" not in uri
    assert mode == 0o600
    assert f'content="0; url={ADDRESS}"' in unescape(page)
    assert not Path(unquote(urlsplit(uri).path)).exists()


def test_nobody_waits_for_a_browser_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = threading.Event(), threading.Event()

    def stay(uri: str) -> bool:
        begun.set()
        return go.wait(PATIENCE)

    monkeypatch.setattr(webbrowser, "open", stay)
    monkeypatch.setattr(browser, "KEPT_SECONDS", 0.0)
    thread = browser.open_in_browser(ADDRESS)

    assert begun.wait(PATIENCE)
    go.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_machine_without_a_browser_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(uri: str) -> bool:
        raise webbrowser.Error("could not locate runnable browser")

    monkeypatch.setattr(webbrowser, "open", fail)
    monkeypatch.setattr(browser, "KEPT_SECONDS", 0.0)
    thread = browser.open_in_browser(ADDRESS)
    thread.join(PATIENCE)

    assert not thread.is_alive()
