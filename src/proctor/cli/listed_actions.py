"""Actions as the command line lists them: a JSON text, or a file with one."""

from typing import Any, Final

import msgspec

from proctor.errors import ValidationError
from proctor.small_files import read_small_text

_EXPECTED: Final = "a JSON list, or a file with one"


def listed_actions(text: str) -> list[Any]:
    """Return the actions that a text or a file lists, or raise a ValidationError."""
    try:
        said = text if text.lstrip().startswith("[") else read_small_text(text, expected=_EXPECTED)
        return msgspec.json.decode(said, type=list[Any])
    except (ValueError, RecursionError) as problem:
        raise ValidationError(f"these are no actions: {problem}", found=text, expected=_EXPECTED) from None
