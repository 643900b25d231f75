"""A page on disk: there whole or not at all, also where an older one was.

Rule 1: it is written beside its place under another name, and moved there.
"""

import secrets
from pathlib import Path

from proctor.errors import ValidationError


def saved(path: Path | str, text: str) -> Path:
    """Write a text to `path`, over what was there, and return the path; a ValidationError if that cannot be."""
    path = Path(path)
    if path.is_dir():
        raise ValidationError(f"{str(path)!r} is a folder", expected="the name of a file, such as episode.html")
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with draft.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
        draft.replace(path)
    except OSError as problem:
        why = problem.strerror or type(problem).__name__
        raise ValidationError(
            f"cannot write {str(path)!r}: {why}", expected="a file in a folder that can be written to"
        ) from problem
    finally:
        draft.unlink(missing_ok=True)
    return path
