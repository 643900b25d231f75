"""What the commands that replay share: the option `--trust`, and lists of actions.

Rule: without `--trust` nothing is made that is not registered here (`replay/replayer.py`), and the error says which command does so.
"""

import shlex
from typing import Annotated, Any, Final, TypeAlias

import msgspec
import typer

from proctor.errors import ValidationError
from proctor.small_files import read_small_text

_EXPECTED: Final = "a JSON list, or a file with one"


def parse_actions(text: str) -> list[Any]:
    """Return the actions that a text or a file lists, or raise a ValidationError."""
    try:
        said = text if text.lstrip().startswith("[") else read_small_text(text, expected=_EXPECTED)
        return msgspec.json.decode(said, type=list[Any])
    except (ValueError, RecursionError) as problem:
        raise ValidationError(f"these are no actions: {problem}", found=text, expected=_EXPECTED) from None


TrustOption: TypeAlias = Annotated[
    bool, typer.Option("--trust", help="Import and run whatever environment the record names.")
]


def command_with_trust(context: typer.Context) -> str:
    """Return the command line that runs now, with `--trust`."""
    path = context.command_path.split()
    # What was typed after `proctor COMMAND`; of a command with commands of its own the first word is one of these.
    typed = (context.find_root().obj or ())[len(path) - 2 :]
    return shlex.join([*path, "--trust", *typed])
