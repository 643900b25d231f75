"""Standard output, as the commands that print much use it.

Rule 1: text goes out in blocks, or at once if somebody waits for it.
Rule 2: a reader who has gone away is no mistake: the command ends without a word. A disk that is full is a message.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Final

import typer

from proctor.errors import ValidationError

# What the shell says of a process that wrote to nobody.
UNREAD: Final = 141
BLOCK: Final = 1 << 16


class Output:
    """Writes bytes, in blocks until it is hurried."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._held = bytearray()
        self._at_once = False

    def hurry(self, at_once: bool) -> None:
        """Write everything at once from now on, or in blocks again."""
        self._at_once = at_once
        if at_once:
            self.flush()

    def write(self, text: bytes) -> None:
        """Write `text`, now or with what comes after it."""
        self._held += text
        if self._at_once or len(self._held) >= BLOCK:
            self.flush()

    def flush(self) -> None:
        """Write everything that was held back."""
        held, self._held = self._held, bytearray()
        self._file.write(held)
        self._file.flush()


@contextmanager
def standard_output() -> Iterator[Output]:
    """Yield standard output, and write what was held back at the end, also if that is an interrupt.

    One that is closed is a ValidationError before anything is done.
    """
    if sys.stdout is None:
        raise ValidationError("standard output is closed", expected="a terminal, a file or a pipe to write to")
    output = Output(sys.stdout.buffer)
    try:
        try:
            yield output
        finally:
            output.flush()
    except BrokenPipeError:
        _let_go()
        raise typer.Exit(UNREAD) from None
    except OSError as problem:
        _let_go()
        raise ValidationError(f"cannot write to standard output: {problem.strerror}") from problem


def _let_go() -> None:
    """Lead standard output nowhere, since Python itself writes to it once more when it ends."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
