"""Lines of JSON from files and from standard input.

Rule 1: what cannot be read is told before the first line is; a pipe is never opened to try it.
Rule 2: no more than LONGEST bytes of a line are ever held: the rest of a longer one is passed over.
Rule 3: lines of a stream come as they arrive.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Final, NamedTuple

from proctor.errors import ValidationError

MOST_LINE_BYTES: Final = 8 * 1024 * 1024
STANDARD_INPUT: Final = "-"
_MARK: Final = b"\xef\xbb\xbf"
"""What some editors write before the first line."""


class LineSource(NamedTuple):
    """Where lines come from; `size` is that of a file, in bytes, and None for what may still grow."""

    name: str
    size: int | None


class InputLine(NamedTuple):
    """A line that is not blank; `text` is None if it is too long to be held, `end` is how far the source was read."""

    number: int
    text: bytes | None
    end: int


def check_sources(names: Sequence[str]) -> tuple[LineSource, ...]:
    """Return what is named, once it is clear that each can be read; anything else is a ValidationError."""
    if names.count(STANDARD_INPUT) > 1:
        raise ValidationError("standard input can be read once only", found=" ".join(names), expected="one -")
    if STANDARD_INPUT in names and sys.stdin is None:
        raise ValidationError("standard input is closed", expected="a file, or something that writes to this command")
    return tuple(LineSource(name, None) if name == STANDARD_INPUT else _check_file(name) for name in names)


def _check_file(name: str) -> LineSource:
    path = Path(name)
    try:
        size = path.stat().st_size
    except (OSError, ValueError) as problem:
        raise _unreadable(name, problem) from problem
    if path.is_dir():
        raise ValidationError(f"cannot read {name!r}: it is a folder", expected="a file of JSON lines, or -")
    if not os.access(path, os.R_OK):
        raise ValidationError(f"cannot read {name!r}: permission denied", expected="a file that you may read")
    return LineSource(name, size if path.is_file() else None)


def _unreadable(name: str, problem: Exception) -> ValidationError:
    words = problem.strerror if isinstance(problem, OSError) else str(problem)
    return ValidationError(f"cannot read {name!r}: {words}", expected="a file of JSON lines, or -")


def read_lines(source: LineSource) -> Iterator[InputLine]:
    """Yield the lines of `source` that are not blank, with their numbers, from 1."""
    try:
        if source.name == STANDARD_INPUT:
            yield from _read_lines(sys.stdin.buffer)
            return
        with Path(source.name).open("rb") as file:
            yield from _read_lines(file)
    except OSError as problem:
        raise _unreadable(source.name, problem) from problem


def _read_lines(file: IO[bytes]) -> Iterator[InputLine]:
    read, number, end = file.readline, 0, 0
    while text := read(MOST_LINE_BYTES + 1):
        number += 1
        end += len(text)
        if number == 1:
            text = text.removeprefix(_MARK)
        if len(text) > MOST_LINE_BYTES and not text.endswith(b"\n"):
            end += _skip_line(file)
            yield InputLine(number, None, end)
        elif text and not text.isspace():
            yield InputLine(number, text, end)


def _skip_line(file: IO[bytes]) -> int:
    """Read to the end of the line and return how many bytes that was."""
    passed = 0
    while rest := file.readline(MOST_LINE_BYTES):
        passed += len(rest)
        if rest.endswith(b"\n"):
            break
    return passed
