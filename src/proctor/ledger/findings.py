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


@dataclass(frozen=True, slots=True)
class UnsealedRows:
    """The rows of an open chain for which no seal and no head speaks."""

    file: Path
    chain: str
    seq: int
    """Of the first of them."""
    rows: int
    """0: all of a server's run are sealed, and its end is missing."""

    def finding(self) -> Finding:
        """Return what they are if no server writes to the file."""
        if self.rows == 0:
            what = "the run of the server has no end: it was killed, or its end was dropped"
        elif self.seq == 0:
            what = f"no row of the chain is sealed, so that nothing proves its {counted_rows(self.rows)}"
        else:
            what = f"{counted_rows(self.rows)} after the last seal of the chain, which nothing proves"
        return Finding(self.file, self.chain, None, None, f"{what}; no server is seen writing to the file")


def counted_rows(rows: int) -> str:
    """Return a number of rows in words."""
    return "1 row" if rows == 1 else f"{rows} rows"


Note: TypeAlias = Callable[[str, str | None, int | None, int | None], None]
"""Takes a finding: what, chain, seq, number."""
