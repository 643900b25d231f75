"""Small text files that a user names: settings, rules, actions, keys.

Rule 1: a file is read only if it is a regular one: a pipe would make the command wait, a device would never end.
Rule 2: no more than `most` bytes are read, whatever the file's size is said to be.
"""

import os
import stat
from pathlib import Path
from typing import Final

from proctor.errors import ValidationError

MOST_BYTES: Final = 16 * 1024 * 1024
_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


def read_small_text(path: Path | str, *, expected: str, most: int = MOST_BYTES) -> str:
    """Return the text of a regular file in UTF-8, without the mark that some editors write before the first line.

    What cannot be read is a ValidationError that names the file; `expected` says what should be there.
    """
    name = str(path)
    try:
        return _read_content(name, most).decode("utf-8-sig")
    except UnicodeDecodeError:
        reason = "it is not text in UTF-8"
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
    except ValueError as problem:  # too long, no file, or a name that holds a null byte
        reason = str(problem)
    raise ValidationError(f"cannot read {name!r}: {reason}", expected=expected)


def _read_content(name: str, most: int) -> bytes:
    descriptor = os.open(name, _READ)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is not a regular file")
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"it is longer than {most} bytes")
    return content
