"""The file that holds a grant: where the agent plane is, and the token that opens it.

Rule 1: a file that others can read holds no token: it is refused, with the command that mends it.
Rule 2: no error shows what is in the file.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from proctor.access.credentials import check_secret, read_private
from proctor.errors import ValidationError

MOST_BYTES: Final = 256 * 1024
"""Tools are named in it, and there may be many."""


@dataclass(frozen=True, slots=True)
class SavedGrant:
    """What opens an agent plane."""

    address: str
    token: str = field(repr=False)


class _GrantFile(msgspec.Struct):
    address: str
    token: str


def read_grant(path: Path) -> SavedGrant:
    """Return what the file says, or raise a ValidationError that says what is wrong with the file."""
    try:
        text = read_private(path, follow_links=True, most=MOST_BYTES)
    except FileNotFoundError:
        raise ValidationError(f"there is no file {path}", expected="a file that an orchestrator saved") from None
    try:
        written = msgspec.json.decode(text, type=_GrantFile)
    except msgspec.DecodeError:
        raise ValidationError(
            f"{path} does not hold a grant", expected="a JSON object with an address and a token"
        ) from None
    check_secret(written.token, where=f"the token in {path}")
    return SavedGrant(_check_address(written.address, path), written.token)


def _check_address(address: str, path: Path) -> str:
    try:
        parts = urlsplit(address)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0 and "@" not in parts.netloc
    except ValueError:
        usable = False
    if not usable:
        raise ValidationError(f"the address in {path} is not one of an agent plane", expected="http://HOST:PORT/mcp")
    return address
