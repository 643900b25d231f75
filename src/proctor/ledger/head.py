"""A head: what proves that a chain has at least these rows, as text `<chain>@<rows>:<hex sha256>`. Pure."""

import re
from dataclasses import dataclass
from typing import Final

from proctor.errors import ValidationError

_FORM: Final = re.compile(r"(?P<chain>.+)@(?P<rows>[1-9][0-9]{0,18}):(?P<hash>[0-9a-f]{64})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Head:
    """The hash of the last of `rows` rows of a chain."""

    chain: str
    rows: int
    hash: bytes

    def __str__(self) -> str:
        return head_text(self.chain, self.rows, self.hash)


def head_text(chain: str, rows: int, row: bytes) -> str:
    """Return a head as text."""
    return f"{chain}@{rows}:{row.hex()}"


def parsed_head(text: str) -> Head:
    """Return the head that `text` says, or raise a ValidationError; blanks after it do not count."""
    found = _FORM.fullmatch(text.rstrip())  # before it they may be the beginning of a session's name
    if found is None:
        raise ValidationError("not a head of a chain", found=text, expected="<chain>@<rows>:<64 hexadecimal digits>")
    return Head(found["chain"], int(found["rows"]), bytes.fromhex(found["hash"]))
