"""`proctor view`: what it says, what it opens, what it refuses, and how it ends."""

import json
import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

import httpx
import pytest

from proctor.cli.main import main
from proctor.cli.view import _make_announcer
from tests.cli.recordings import real, written
from tests.cli.said import Run, assert_mistake
from tests.server.commands import ROOT, START_SECONDS, Command, harmless, serve, variables
from tests.server.live_server import until
from tests.server.viewer_http.served_viewer import Browser

TARGET = "proctor/PlumeSearch-v0"
FREE = ("--port", "0", "--json")


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return written(tmp_path / "ledger", real("walk", TARGET, steps=2, settings={"grid_size": [16, 16]}))


@contextmanager
def viewing(home: Path, *arguments: str) -> Iterator[Command]:
    """Run `proctor view`; it is ended afterwards, whatever happens."""
    home.mkdir()
    with (home / "out").open("wb") as out, (home / "err").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "proctor", "view", *arguments],
            cwd=ROOT,
            env=variables(home),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
    with process:
        try:
            yield Command(process, home)
        finally:
            process.kill()


def addresses(command: Command) -> list[str]:
    return [json.loads(each)["viewer"] for each in command.out.splitlines() if each.endswith("}")]


def test_it_prints_an_address_that_is_good_once_and_then_the_next_and_ends_with_ctrl_c(
    ledger: Path, tmp_path: Path
) -> None:
    with viewing(tmp_path / "home", str(ledger), "--json") as command:
        until(lambda: addresses(command) or command.process.poll() is not None, START_SECONDS)
        url, _, code = addresses(command)[0].partition("/viewer/#code=")
        with Browser(url, code) as browser:
            lines = browser.get("/viewer/api/lines").json()["lines"]
        until(lambda: len(addresses(command)) == 2)
        ended = command.stopped(signal.SIGINT)

    assert len(lines) == 2
    assert url.startswith("http://127.0.0.1:")
    assert ended == 0
    assert command.log == ""


def test_it_opens_the_episode_that_is_named(ledger: Path, tmp_path: Path) -> None:
    with viewing(tmp_path / "home", str(ledger), "ep-walk-2") as command:
        said = command.said("Ctrl-C")
        ended = command.stopped()

    assert "can be looked at" in said
    _, _, way = said.partition("&to=")
    assert unquote(unquote(way.split()[0])) == "/episode/walk.2"
    assert ended == 0


def test_a_browser_is_opened_once_and_only_if_that_is_wanted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("proctor.cli.view.open_in_browser", opened.append)

    for opens in (False, True):
        tell = _make_announcer(Path("ledger"), as_json=False, opens=opens)
        tell("http://here/#code=a")
        tell("http://here/#code=b")

    assert opened == ["http://here/#code=a"]
    assert capsys.readouterr().out.count("the next address: http://here/#code=b") == 2


def test_the_name_of_a_file_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    _make_announcer(Path("a\x1b]0;owned\x07\u202eb"), as_json=False, opens=False)("http://here/#code=a")

    assert capsys.readouterr().out.startswith("a\\x1b]0;owned\\x07\\u202eb can be looked at")


def test_what_goes_wrong_is_logged_in_lines_that_cannot_steer_the_terminal(
    ledger: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(server_of: object) -> None:
        try:
            raise ValueError("\x1b]0;owned\x07")
        except ValueError:
            logging.getLogger("proctor.viewer").exception("\x1b[8mfailed")

    monkeypatch.setattr("proctor.server.viewer_http.standalone.run_viewer", fail)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        with harmless():
            code = main(["view", str(ledger)])
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)

    said = capsys.readouterr().err
    assert code == 0
    assert "\\x1b[8mfailed" in said
    assert "ValueError: \\x1b]0;owned\\x07" in said
    assert "\x1b" not in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["LEDGER", "nobody"], "nobody"),
        (["LEDGER", "--host", "192.0.2.1"], "cannot listen"),
        (["LEDGER", "--port", "70000"], "65535"),
    ],
)
def test_what_cannot_be_shown_is_said_in_one_line(
    ledger: Path, arguments: list[str], words: str, run_command: Run
) -> None:
    with harmless():
        assert_mistake(run_command("view", *(ledger if each == "LEDGER" else each for each in arguments)), words)


def test_serve_says_where_its_pages_are_and_the_operator_gets_more_addresses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def opening(address: str) -> threading.Thread:
        opened.append(address)
        thread = threading.Thread(target=bool)
        thread.start()
        return thread

    monkeypatch.setattr("proctor.cli.operator.open_in_browser", opening)
    with serve(tmp_path / "home", "CartPole-v1", *FREE, "--ledger", str(tmp_path / "kept")) as command:
        document = command.document
        monkeypatch.setenv("PROCTOR_OPERATOR_TOKEN", document["operator"]["token"])
        url, _, code = document["viewer"].partition("/viewer/#code=")
        with Browser(url, code) as browser:
            assert browser.visit["environment"] == "CartPole-v1"
            assert browser.visit["can_act"] is False
        assert main(["operator", "link", "--url", url]) == 0
        printed = capsys.readouterr().out.strip()
        assert main(["operator", "link", "--url", url, "--json", "--open"]) == 0
        told = json.loads(capsys.readouterr().out)["url"]
        for address in (printed, told):
            with Browser(url, address.partition("#code=")[2]) as browser:
                assert browser.get("/viewer/visit").status_code == 200
        # No episode is governed there: of the operator's side there is only the link.
        assert main(["operator", "pending", "--url", url]) == 2
        shown = command.out + command.log

    assert url == document["url"]
    assert opened == [told]
    assert not any(address.partition("#code=")[2] in shown for address in (printed, told))


@pytest.mark.slow
def test_serve_with_several_workers_says_how_to_look(tmp_path: Path) -> None:
    kept = str(tmp_path / "kept")
    with serve(tmp_path / "home", "CartPole-v1", "--port", "0", "--workers", "2", "--ledger", kept) as command:
        said = command.said("Ctrl-C stops it.")
        url = next(word for word in said.split() if word.startswith("http://127.0.0.1"))

        assert f"proctor view {kept}" in said
        assert "#code=" not in said
        assert httpx.get(f"{url}/viewer/", timeout=60.0).status_code == 401
