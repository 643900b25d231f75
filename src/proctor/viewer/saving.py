"""A page on disk: there whole or not at all, also where an older one was.

Rule 1: it is written beside its place under another name, and moved there. A link stays, and what it leads to is another.
Rule 2: what is there and is no file, such as a device, is left alone.
"""

import os
import secrets
from pathlib import Path

from proctor.errors import ValidationError


def saved(path: Path | str, text: str) -> Path:
    """Write a text to `path`, over what was there, and return the path; a ValidationError if that cannot be."""
    path = Path(path)
    place = Path(os.path.realpath(path))
    if place.exists() and not place.is_file():
        kind = "a folder" if place.is_dir() else "no file that can be replaced"
        raise ValidationError(f"{str(path)!r} is {kind}", expected="the name of a file, such as episode.html")
    draft = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    try:
        with draft.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
        draft.replace(place)
    except OSError as problem:
        why = problem.strerror or type(problem).__name__
        raise ValidationError(
            f"cannot write {str(path)!r}: {why}", expected="a file in a folder that can be written to"
        ) from problem
    finally:
        draft.unlink(missing_ok=True)
    return path
