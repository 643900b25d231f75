"""A file of a ledger whose rows are read only if they are of a size that a page can show.

Rule 1: a row's body of more than `MOST_BODY` bytes is never read: it is empty, which is no row that could be understood. Few bytes of a
    file can say hundreds of mebibytes, and as Python's objects they take twenty times as many; values that are stored apart are larger.
Rule 2: everything else of a row is bounded as well, and so are the names of chains.
"""

import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Final

from proctor.errors import ValidationError
from proctor.ledger.files import Chain, LedgerFile, Row, Stored

MOST_BODY: Final = 2**23
MOST_HASH: Final = 64
MOST_NAME: Final = 1024

BODY: Final = f"CASE WHEN length(body) <= {MOST_BODY} THEN body ELSE x'' END"
"""The body of a row in a statement."""
HASH: Final = f"CASE WHEN length(hash) <= {MOST_HASH} THEN hash ELSE x'' END"
"""The hash of a row in a statement."""
COLUMNS: Final = f"number, chain, seq, {BODY}, {HASH}"

_ONE: Final = f"SELECT {COLUMNS} FROM rows WHERE number = ?"
_OF: Final = (
    f"SELECT {COLUMNS} FROM rows WHERE number >= ? AND chain IN (SELECT value FROM json_each(?)) ORDER BY number"
)
_ENDS: Final = (
    f"SELECT chains.first, {COLUMNS} FROM chains JOIN rows "
    "ON number IN (chains.first, chains.first + 1, chains.last, chains.last + 1) "
    "WHERE chains.last IS NOT NULL ORDER BY chains.first, number"
)
_LONG_NAME: Final = f"SELECT 1 FROM chains WHERE length(CAST(name AS BLOB)) > {MOST_NAME} LIMIT 1"


class BoundedFile(LedgerFile):
    """One file, of whose rows those that are very large cannot be read."""

    def chains(self) -> list[Chain]:
        """Return all chains, in order of their first rows."""
        with self._translated():
            if self.connection.execute(_LONG_NAME).fetchone() is not None:
                raise ValidationError(f"the ledger {self.path} is damaged: the name of a chain is too long")
        return super().chains()

    def stored_at(self, number: int) -> Stored | None:
        """Return the row of this number."""
        with self._translated():
            found: Stored | None = self.connection.execute(_ONE, (number,)).fetchone()
        return found

    def stored_of(self, firsts: Iterable[int], *, start: int | None = None) -> Iterator[Stored]:
        """Yield the rows of the chains that begin at these numbers, by number, from the number `start` on."""
        chains = sorted(firsts)
        if not chains:
            return iter(())
        return self._selected(_OF, chains[0] if start is None else start, json.dumps(chains))

    def ends(self) -> Iterator[tuple[int, list[Stored]]]:
        """Yield of each chain that has ended its first row's number, its first two rows, its last, and the one after it."""
        with self._translated():
            found = self.connection.execute(_ENDS)
            for first, rows in groupby(found, key=itemgetter(0)):
                yield first, [row[1:] for row in rows]

    def row(self, name: str, stored: Stored) -> Row:
        """Return a row of the chain `name`, with its values."""
        if not stored[3]:
            raise ValidationError(f"row {stored[0]} is too large to be shown", expected=f"at most {MOST_BODY} bytes")
        return super().row(name, stored)
