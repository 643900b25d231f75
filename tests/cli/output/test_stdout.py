"""Output goes out in blocks or at once, and what becomes of it is told rightly."""

from __future__ import annotations

import io
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from proctor.cli.main import main
from proctor.cli.output.stdout import BLOCK_BYTES, BROKEN_PIPE_EXIT, Output, standard_output
from proctor.errors import ValidationError


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
