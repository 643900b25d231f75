"""Actions as the command line lists them: a JSON text, or a file with one."""

from pathlib import Path
from typing import Any

import msgspec

from proctor.errors import ValidationError


def listed_actions(text: str) -> list[Any]:
    """Return the actions that a text or a file lists, or raise a ValidationError."""
    try:
        said = text if text.lstrip().startswith("[") else Path(text).read_text("utf-8")
        return msgspec.json.decode(said, type=list[Any])
    except (OSError, ValueError, RecursionError) as problem:
        raise ValidationError(
            f"these are no actions: {problem}", found=text, expected="a JSON list, or a file with one"
        ) from None
