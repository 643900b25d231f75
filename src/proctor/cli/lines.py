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

LONGEST: Final = 8 * 1024 * 1024
STANDARD_INPUT: Final = "-"
_MARK: Final = b"\xef\xbb\xbf"
"""What some editors write before the first line."""


class Source(NamedTuple):
    """Where lines come from; `size` is that of a file, in bytes, and None for what may still grow."""

    name: str
    size: int | None


class Line(NamedTuple):
    """A line that is not blank; `text` is None if it is too long to be held, `end` is how far the source was read."""

    number: int
    text: bytes | None
    end: int


def sources(names: Sequence[str]) -> tuple[Source, ...]:
    """Return what is named, once it is clear that each can be read; anything else is a ValidationError."""
    if names.count(STANDARD_INPUT) > 1:
        raise ValidationError("standard input can be read once only", found=" ".join(names), expected="one -")
    if STANDARD_INPUT in names and sys.stdin is None:
        raise ValidationError("standard input is closed", expected="a file, or something that writes to this command")
    return tuple(Source(name, None) if name == STANDARD_INPUT else _file(name) for name in names)


def _file(name: str) -> Source:
    path = Path(name)
    try:
        size = path.stat().st_size
    except (OSError, ValueError) as problem:
        raise _unreadable(name, problem) from problem
    if path.is_dir():
        raise ValidationError(f"cannot read {name!r}: it is a folder", expected="a file of JSON lines, or -")
    if not os.access(path, os.R_OK):
        raise ValidationError(f"cannot read {name!r}: permission denied", expected="a file that you may read")
    return Source(name, size if path.is_file() else None)


def _unreadable(name: str, problem: Exception) -> ValidationError:
    words = problem.strerror if isinstance(problem, OSError) else str(problem)
    return ValidationError(f"cannot read {name!r}: {words}", expected="a file of JSON lines, or -")


def lines(source: Source) -> Iterator[Line]:
    """Yield the lines of `source` that are not blank, with their numbers, from 1."""
    try:
        if source.name == STANDARD_INPUT:
            yield from _lines(sys.stdin.buffer)
            return
        with Path(source.name).open("rb") as file:
            yield from _lines(file)
    except OSError as problem:
        raise _unreadable(source.name, problem) from problem


def _lines(file: IO[bytes]) -> Iterator[Line]:
    read, number, end = file.readline, 0, 0
    while text := read(LONGEST + 1):
        number += 1
        end += len(text)
        if number == 1:
            text = text.removeprefix(_MARK)
        if len(text) > LONGEST and not text.endswith(b"\n"):
            end += _pass_over(file)
            yield Line(number, None, end)
        elif text and not text.isspace():
            yield Line(number, text, end)


def _pass_over(file: IO[bytes]) -> int:
    """Read to the end of the line and return how many bytes that was."""
    passed = 0
    while rest := file.readline(LONGEST):
        passed += len(rest)
        if rest.endswith(b"\n"):
            break
    return passed
