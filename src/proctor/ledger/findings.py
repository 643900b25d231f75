"""What is not as it was written, one at a time."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, and where, as far as it is known."""

    file: Path
    chain: str | None
    seq: int | None
    number: int | None
    what: str

    def __str__(self) -> str:
        row = "" if self.number is None else f" row {self.number}"
        place = self.chain if self.seq is None else f"{self.chain}, {self.seq}"
        return f"{self.file.name}:{row}{'' if self.chain is None else f' ({place})'}: {self.what}"


Note: TypeAlias = Callable[[str, str | None, int | None, int | None], None]
"""Takes a finding: what, chain, seq, number."""
