"""What several commands take: the key that signs the ledger, the option `--trust`, and lists of actions.

Rule 1: the key is never in the ledger, and no command prints it; what is printed is its public half. It is made once, where none is
    there, in a file that only its owner reads; PROCTOR_LEDGER_KEY in the environment goes before the file.
Rule 2: without `--trust` nothing is made that is not registered here (`replay/replayer.py`), and the error says which command does so.
"""

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import msgspec
import typer

from proctor.access.credentials import LEDGER_KEY, default_state_file, read_or_make_private
from proctor.errors import ValidationError
from proctor.ledger.keys import Signer, new_seed
from proctor.small_files import read_small_text

_KEY: Final = re.compile(r"[0-9a-fA-F]{64}")
_KEY_WORDS: Final = "64 hexadecimal digits"
_ACTIONS: Final = "a JSON list, or a file with one"


class SigningKey(NamedTuple):
    """The key's seed, the file that holds it (None: the environment does), and whether it was made now."""

    seed: bytes
    path: Path | None
    made: bool

    @property
    def signer(self) -> Signer:
        """Who signs with it."""
        return Signer.of(self.seed)

    def __repr__(self) -> str:
        return f"SigningKey(path={self.path!r}, made={self.made!r})"


def load_signing_key(environment: Mapping[str, str] = os.environ) -> SigningKey:
    """Return the key with where it was found."""
    text, path, made = environment.get(LEDGER_KEY.variable), None, False
    if text is None:
        path = default_state_file(environment, LEDGER_KEY)
        text, made = read_or_make_private(path, lambda: new_seed().hex())
    if not _KEY.fullmatch(text):
        raise ValidationError(f"{path or LEDGER_KEY.variable} does not hold the key of a ledger", expected=_KEY_WORDS)
    return SigningKey(bytes.fromhex(text), path, made)


def parse_public_key(text: str) -> bytes:
    """Return the public key that `text` says in hexadecimal digits, or that stands in the file of this name."""
    expected = f"a public key: {_KEY_WORDS}, as `proctor ledger key` prints them, or their file"
    said = text if _KEY.fullmatch(text) else read_small_text(text, expected=expected, most=4096).strip()
    if not _KEY.fullmatch(said):
        raise ValidationError(f"{text!r} holds no public key", expected=expected)
    return bytes.fromhex(said)


TrustOption: TypeAlias = Annotated[
    bool, typer.Option("--trust", help="Import and run whatever environment the record names.")
]


def command_with_trust(context: typer.Context) -> str:
    """Return the command line that runs now, with `--trust`."""
    path = context.command_path.split()
    # What was typed after `proctor COMMAND`; of a command with commands of its own the first word is one of these.
    typed = (context.find_root().obj or ())[len(path) - 2 :]
    return shlex.join([*path, "--trust", *typed])


def parse_actions(text: str) -> list[Any]:
    """Return the actions that a text or a file lists, or raise a ValidationError."""
    try:
        said = text if text.lstrip().startswith("[") else read_small_text(text, expected=_ACTIONS)
        return msgspec.json.decode(said, type=list[Any])
    except (ValueError, RecursionError) as problem:
        raise ValidationError(f"these are no actions: {problem}", found=text, expected=_ACTIONS) from None
