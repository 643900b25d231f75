"""Standard output, as the commands that print much use it.

Rule 1: text goes out in blocks, or at once if somebody waits for it.
Rule 2: nothing that could steer a terminal leaves a command: text that somebody else wrote is shown by `printable`, JSON by `printable_json`.
Rule 3: a reader who has gone away is no mistake: the command ends without a word. A disk that is full is a message.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Final

import typer

from proctor.errors import ValidationError

# What the shell says of a process that wrote to nobody.
BROKEN_PIPE_EXIT: Final = 141
BLOCK_BYTES: Final = 1 << 16


_DELETE: Final = b"\x7f"
"""The one sign of ASCII that JSON lets pass and nobody can see."""


def escape_unprintable(text: str, escaping: Callable[[str], str]) -> str:
    """Return `text` with `escaping` applied to every sign that is not printable: the one rule for all that is printed.

    Not printable are controls of terminals (C0, C1, DEL), of the direction of writing, and every break of a line.
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else escaping(sign) for sign in text)


def printable(text: str) -> str:
    """Return `text` with everything escaped that is no printable sign."""
    return escape_unprintable(text, lambda sign: sign.encode("unicode_escape").decode("ascii"))


def printable_json(text: bytes) -> bytes:
    """Return JSON of one line that says the same, with everything escaped that is no printable sign; the line's end stays."""
    if text.isascii() and _DELETE not in text:
        return text
    line = text.removesuffix(b"\n")
    return escape_unprintable(line.decode(), _escape).encode() + text[len(line) :]


def _escape(sign: str) -> str:
    """Return a sign as JSON escapes it: four digits for each of its halves."""
    return re.sub("....", r"\\u\g<0>", sign.encode("utf-16-be").hex())


class Output:
    """Writes bytes, in blocks until it is hurried."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._held = bytearray()
        self._at_once = False

    def write_at_once(self, at_once: bool) -> None:
        """Write everything at once from now on, or in blocks again."""
        self._at_once = at_once
        if at_once:
            self.flush()

    def write(self, text: bytes) -> None:
        """Write `text`, now or with what comes after it."""
        self._held += text
        if self._at_once or len(self._held) >= BLOCK_BYTES:
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
        _detach_stdout()
        raise typer.Exit(BROKEN_PIPE_EXIT) from None
    except OSError as problem:
        _detach_stdout()
        raise ValidationError(f"cannot write to standard output: {problem.strerror}") from problem


def _detach_stdout() -> None:
    """Lead standard output nowhere, since Python itself writes to it once more when it ends."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
