"""The key that signs the ledger's heads: one for the server and the commands, in a file that only its owner reads.

Rule 1: the key is never in the ledger, and no command prints it; what is printed is its public half.
Rule 2: it is made once, where none is there; PROCTOR_LEDGER_KEY in the environment goes before the file.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from proctor.access.credentials import LEDGER_KEY, default_state_file, read_or_make_private
from proctor.errors import ValidationError
from proctor.ledger.keys import Signer, new_seed
from proctor.small_files import read_small_text

_KEY: Final = re.compile(r"[0-9a-fA-F]{64}")
_LONGEST_KEY_FILE: Final = 4096
_WORDS: Final = "64 hexadecimal digits"


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


def load_signing_key(environment: Mapping[str, str] | None = None) -> SigningKey:
    """Return the key with where it was found; `environment` is that of the process by default."""
    known = os.environ if environment is None else environment
    named = known.get(LEDGER_KEY.variable)
    if named is not None:
        return SigningKey(_parse_seed(named, LEDGER_KEY.variable), None, False)
    path = default_state_file(known, LEDGER_KEY)
    text, made = read_or_make_private(path, lambda: new_seed().hex())
    return SigningKey(_parse_seed(text, str(path)), path, made)


def _parse_seed(text: str, where: str) -> bytes:
    if not _KEY.fullmatch(text):
        raise ValidationError(f"{where} does not hold the key of a ledger", expected=_WORDS)
    return bytes.fromhex(text)


def parse_public_key(text: str) -> bytes:
    """Return the public key that `text` says in hexadecimal digits, or that stands in the file of this name."""
    expected = f"a public key: {_WORDS}, as `proctor ledger key` prints them, or their file"
    said = text if _KEY.fullmatch(text) else read_small_text(text, expected=expected, most=_LONGEST_KEY_FILE).strip()
    if not _KEY.fullmatch(said):
        raise ValidationError(f"{text!r} holds no public key", expected=expected)
    return bytes.fromhex(said)
