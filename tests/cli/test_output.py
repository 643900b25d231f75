"""Output goes out in blocks or at once, and what becomes of it is told rightly."""

from __future__ import annotations

import io
import sys

import pytest
import typer

from proctor.cli.output import BLOCK, UNREAD, Output, standard_output
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
    output.write(b"b" * BLOCK)
    output.write(b"c")

    assert file.writes == [b"a" + b"b" * BLOCK]


def test_a_hurried_output_holds_nothing_back() -> None:
    file = Watched()
    output = Output(file)
    output.write(b"a")

    output.hurry(True)
    output.write(b"b")
    output.hurry(False)
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

    assert getattr(found.value, "exit_code", UNREAD) == UNREAD
