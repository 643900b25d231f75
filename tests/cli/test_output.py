"""Output goes out in blocks or at once, and what becomes of it is told rightly."""

import io
import json
import shlex
import stat
import subprocess
import sys
import threading
import webbrowser
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from proctor.cli import output as browser
from proctor.cli.main import main
from proctor.cli.output import (
    BLOCK_BYTES,
    BROKEN_PIPE_EXIT,
    Output,
    encode_line,
    print_note,
    printable,
    standard_output,
)
from proctor.errors import ValidationError
from tests.server.live_server import PATIENCE

ADDRESS = "http://127.0.0.1:8000/viewer/#code=secret&to=%2Fepisode"


class Watched(io.BytesIO):
    """Remembers every write, and fails if told to."""

    def __init__(self, problem: OSError | None = None) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self._problem = problem

    def write(self, text: object) -> int:
        if self._problem is not None:
            raise self._problem
        self.writes.append(bytes(text))  # type: ignore[call-overload]  # whatever bytes are made of
        return len(self.writes[-1])


def test_text_is_held_back_until_a_block_is_full() -> None:
    file = Watched()
    output = Output(file)

    output.write(b"a")
    output.write(b"b" * BLOCK_BYTES)
    output.write(b"c")

    assert file.writes == [b"a" + b"b" * BLOCK_BYTES]


def test_a_hurried_output_holds_nothing_back() -> None:
    file = Watched()
    output = Output(file)
    output.write(b"a")

    output.write_at_once(True)
    output.write(b"b")
    output.write_at_once(False)
    output.write(b"c")

    assert file.writes == [b"a", b"b"]


def interrupted() -> None:
    with standard_output() as output:
        output.write(b"so far")
        raise KeyboardInterrupt


def test_what_is_held_is_written_on_an_interrupt_too(monkeypatch: pytest.MonkeyPatch) -> None:
    file = Watched()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(file))

    with pytest.raises(KeyboardInterrupt):
        interrupted()

    assert file.writes == [b"so far"]


@pytest.mark.parametrize(
    ("problem", "raised"),
    [(BrokenPipeError(32, "Broken pipe"), typer.Exit), (OSError(28, "No space left on device"), ValidationError)],
)
def test_a_write_that_fails_is_an_exit_or_a_message(
    problem: OSError, raised: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(Watched(problem)))

    with pytest.raises(raised) as found, standard_output() as output:
        output.write(b"to nobody")

    assert getattr(found.value, "exit_code", BROKEN_PIPE_EXIT) == BROKEN_PIPE_EXIT


@pytest.mark.parametrize(
    "arguments", [["judge", "/dev/null"], ["judge", "/dev/null", "--json"], ["diagram"], ["schema"]]
)
def test_a_standard_output_that_is_closed_is_a_message(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", None)

    code = main(arguments)

    assert code == 2
    assert capsys.readouterr().err.startswith("proctor: standard output is closed; expected a terminal")


def test_no_schema_is_written_if_nobody_can_be_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "stdout", None)

    assert main(["schema", "--out", str(tmp_path / "schemas")]) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "closed", "says"),
    [("judge -", "<&-", "standard input is closed"), ("judge /dev/null", ">&-", "standard output is closed")],
)
def test_a_process_that_was_given_nothing_to_read_or_write_says_so(arguments: str, closed: str, says: str) -> None:
    command = f"exec {shlex.quote(sys.executable)} -m proctor {arguments} {closed}"

    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, timeout=300, check=False)

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert says in done.stderr


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


@given(text=st.text())
def test_plain_text_is_printable_and_printable_text_is_plain(text: str) -> None:
    shown = printable(text)

    assert shown.isprintable()
    assert not text.isprintable() or shown == text


@given(text=st.text())
@pytest.mark.parametrize("signs", ["", "\u180e\ufff9\ufffb\U000e0001\U000e007f\x7f\u2028\u00a0"])
def test_json_hides_the_same_signs_and_still_says_the_same(signs: str, text: str) -> None:
    line = encode_line({"rule": "E1", "reason": text + signs})

    assert all(sign.isprintable() for sign in line.decode().removesuffix("\n"))
    assert json.loads(line) == {"rule": "E1", "reason": text + signs}


def test_a_break_within_a_note_breaks_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_note("a\n\x1b[2Jb", "[c]", style="red")

    assert capsys.readouterr() == ("", "a\\n\\x1b[2Jb\n[c]\n")
