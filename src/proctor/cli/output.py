"""What commands share: standard output, and a browser that is opened.

Rule 1: text goes out in blocks, or at once if somebody waits for it.
Rule 2: nothing that could steer a terminal leaves a command: text that somebody else wrote is shown by `printable`, JSON by
    `printable_json`.
Rule 3: if the reader of a pipe has gone, the command ends without a message. A full disk is a message.
Rule 4: an address that holds a code is in no command line, which others on the machine can read: the browser is given a file
    that only its owner can read, and that is removed after a while.
"""

import atexit
import os
import re
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from html import escape
from pathlib import Path
from typing import IO, Any, Final

import msgspec
import typer

from proctor.errors import ValidationError

BROKEN_PIPE_EXIT: Final = 141
"""What the shell says of a process that wrote to nobody."""
BLOCK_BYTES: Final = 1 << 16

KEPT_SECONDS: Final = 10.0
"""How long the file is there after the browser was asked to open it."""
PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Proctor</title>
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={address}"></head>
<body><p><a href="{address}">To the pages</a></p></body></html>
"""


def printable(text: str, escape: Callable[[str], str] | None = None) -> str:
    """Return `text` with everything escaped that is no printable sign: the one rule for all that is printed.

    Not printable are controls of terminals (C0, C1, DEL), of the direction of writing, and every break of a line.
    """
    if text.isprintable():
        return text
    escaped = escape or (lambda sign: sign.encode("unicode_escape").decode("ascii"))
    return "".join(sign if sign.isprintable() else escaped(sign) for sign in text)


def printable_json(text: bytes) -> bytes:
    """Return JSON of one line that says the same, with everything escaped that is no printable sign; the line's end stays."""
    # The one sign of ASCII that JSON lets pass and nobody can see is DEL.
    if text.isascii() and b"\x7f" not in text:
        return text
    line = text.removesuffix(b"\n")
    # JSON escapes a sign with four digits for each of its halves.
    shown = printable(line.decode(), lambda sign: re.sub("....", r"\\u\g<0>", sign.encode("utf-16-be").hex()))
    return shown.encode() + text[len(line) :]


def encode_line(value: Any) -> bytes:
    """Return `value` as one line of printable JSON, with its end."""
    return printable_json(msgspec.json.encode(value)) + b"\n"


def make_app(about: str | None = None) -> typer.Typer:
    """Return a command line without commands yet; errors are printed in `cli/main.py`."""
    return typer.Typer(help=about, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def print_note(*lines: str, style: str = "dim") -> None:
    """Say something beside the result, on standard error; a break within a line is shown as such and breaks nothing."""
    from rich.console import Console

    shown = "\n".join(map(printable, lines))
    Console(stderr=True, highlight=False, soft_wrap=True).print(shown, style=style, markup=False, emoji=False)


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

    def print(self, text: str) -> None:
        """Write text in the encoding of standard output."""
        self.write(text.encode(sys.stdout.encoding or "utf-8", "replace"))

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


def open_in_browser(address: str) -> threading.Thread:
    """Open a browser at an address; the thread that is returned ends when nothing of it is left."""
    descriptor, name = tempfile.mkstemp(prefix="proctor-", suffix=".html")  # for its owner only
    with os.fdopen(descriptor, "w", encoding="utf-8") as page:
        page.write(PAGE.format(address=escape(address)))
    file = Path(name)
    # A program that ends before the thread does takes the file with it.
    atexit.register(file.unlink, missing_ok=True)
    thread = threading.Thread(target=_open_file, args=(file,), name="browser", daemon=True)
    thread.start()
    return thread


def _open_file(file: Path) -> None:
    try:
        # No browser is no error: the address was printed, too.
        with suppress(webbrowser.Error, OSError):
            webbrowser.open(file.as_uri())
        threading.Event().wait(KEPT_SECONDS)
    finally:
        file.unlink(missing_ok=True)
