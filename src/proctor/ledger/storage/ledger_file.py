"""One file of a ledger, open for reading: its chains, rows and values as they lie there.

Rule 1: which of many rows are wanted is decided here and not by SQLite. In a damaged tree it would look without end for rows that are
    not there, and say nothing meanwhile; here every row is seen to come after the one before it.
Rule 2: a body of more than `most_body` bytes is never read, and neither is a hash or a name of another length than a writer's: they are
    empty here, which is no row that could be understood.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Raw
from msgspec.structs import replace

from proctor.errors import ValidationError
from proctor.ledger.rows import (
    MAX_BODY_BYTES,
    LedgerStatement,
    find_observation_field,
    lacks_observation,
    parse_event_or_statement,
    read_body,
)
from proctor.ledger.storage.sqlite import (
    LONGEST_CELL,
    SUFFIX,
    check_ascending,
    connect_for_reading,
    decode_blob,
    has_tables,
    is_blank,
    translate_errors,
)
from proctor.models.events import EpisodeReset, EpisodeStepped, Event

StoredRow: TypeAlias = tuple[int, int, int, bytes, bytes]
"""A row of the table: number, chain, seq, body, hash."""

MOST_HASH: Final = 64
MOST_NAME: Final = 1024

BODY: Final = "CASE WHEN typeof(body) = 'blob' AND length(body) <= :most_body THEN body ELSE x'' END"
HASH: Final = f"CASE WHEN typeof(hash) = 'blob' AND length(hash) <= {MOST_HASH} THEN hash ELSE x'' END"
CHAIN: Final = "iif(typeof(chain) = 'integer', chain, -1)"
SEQ: Final = "iif(typeof(seq) = 'integer', seq, -1)"
"""A table's declared types bind who writes, not what a file that somebody made by hand holds."""
COLUMNS: Final = f"number, {CHAIN}, {SEQ}, {BODY}, {HASH}"

_ALL: Final = f"SELECT {COLUMNS} FROM rows ORDER BY number"
_ENDS: Final = (
    f"SELECT chains.first, last, {COLUMNS} FROM chains LEFT JOIN rows "
    "ON number IN (chains.first, chains.first + 1, chains.last, chains.last + 1) ORDER BY chains.first"
)
_MOST_ENDS: Final = 4
_ONE: Final = f"SELECT {COLUMNS} FROM rows WHERE number = :number"
_CHAIN: Final = (
    f"SELECT number, {CHAIN}, {SEQ}, iif(chain = :first, {BODY}, NULL), iif(chain = :first, {HASH}, NULL) FROM rows "
    "WHERE number BETWEEN :first AND :last ORDER BY number"
)
_CHAINS: Final = (
    f"SELECT number, {CHAIN}, {SEQ}, iif(chain IN (SELECT value FROM json_each(:chains)), {BODY}, NULL), "
    f"iif(chain IN (SELECT value FROM json_each(:chains)), {HASH}, NULL) FROM rows WHERE number >= :start ORDER BY number"
)
"""Both have all rows of a range, and what is long of those alone that are asked for."""
_CHAIN_ENTRIES: Final = (
    f"SELECT first, iif(typeof(name) = 'text' AND length(CAST(name AS BLOB)) <= {MOST_NAME}, name, NULL), "
    "iif(typeof(last) IN ('integer', 'null'), last, '') FROM chains ORDER BY first"
)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a ledger."""

    number: int
    chain: str
    seq: int
    """Counted in its chain, from 0."""
    event: Event | LedgerStatement
    digest: str | None
    """The SHA-256 of the observation's exact bytes in hexadecimal digits; None: there is no observation."""
    values: bool
    """False: the observation was not stored, and is null in `event`."""
    hash: bytes


@dataclass(frozen=True, slots=True)
class ChainEntry:
    """A chain as the table of chains has it; `last` is None while it is open."""

    first: int
    name: str
    last: int | None


def ledger_files(path: Path | str) -> tuple[Path, ...]:
    """Return the files of the ledger at `path`, or raise a ValidationError: there are none.

    Those of a folder that nothing was written to are passed over: a server that starts makes them so.
    """
    path = Path(path)
    if path.is_dir():
        files = tuple(each for each in sorted(path.glob(f"*{SUFFIX}")) if not is_blank(each))
    else:
        files = (path,) if path.is_file() else ()
    if not files:
        raise ValidationError(f"there is no ledger {path}", expected="a ledger's folder, or a file *.ledger")
    return files


class LedgerFile:
    """One file; it is closed by `close`.

    `live`: it is the server's own, which reads again whatever an earlier version wrote. The limits are for files of others.
    """

    def __init__(self, path: Path, *, live: bool = False, most_body: int = MAX_BODY_BYTES) -> None:
        self.path: Final = path
        self.trusted: Final = live
        self.most_body: Final = LONGEST_CELL if live else most_body
        self.connection: Final = connect_for_reading(path, live=live)
        try:
            with self._translate_errors():
                if not has_tables(self.connection):
                    # A column of another table could hold what no writer puts there.
                    raise ValidationError(f"the tables of {self.path} are not those of a ledger")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the file; calling it again does nothing."""
        self.connection.close()

    def chains(self) -> list[ChainEntry]:
        """Return all chains, in order of their first rows."""
        with self._translate_errors():
            found = list(check_ascending(self.connection.execute(_CHAIN_ENTRIES)))
        if any(type(name) is not str or not isinstance(last, int | None) for _, name, last in found):
            raise ValidationError(
                f"the ledger {self.path} is damaged: a chain has no name, no end, or a name that is too long"
            )
        return [ChainEntry(*each) for each in found]

    def chain(self, name: str) -> ChainEntry | None:
        """Return the chain of this name."""
        with self._translate_errors():
            found = self.connection.execute("SELECT first, name, last FROM chains WHERE name = ?", (name,)).fetchone()
        return None if found is None else ChainEntry(*found)

    def read_rows(self) -> Iterator[StoredRow]:
        """Yield every row by number."""
        return self._select(_ALL)

    def read_chain_rows(self, chain: ChainEntry) -> Iterator[StoredRow]:
        """Yield the rows of a chain."""
        last = sys.maxsize if chain.last is None else chain.last
        return self._select(_CHAIN, of={chain.first}, first=chain.first, last=last)

    def read_chain_ends(self) -> Iterator[tuple[int, list[StoredRow]]]:
        """Yield of each chain that has ended its first row's number, its first two rows, its last, and the one after it."""
        with self._translate_errors():
            groups = groupby(self.connection.execute(_ENDS, {"most_body": self.most_body}), key=itemgetter(0, 1))
            for (first, last), found in check_ascending(
                (key, list(islice(rows, _MOST_ENDS + 1))) for key, rows in groups
            ):
                if len(found) > _MOST_ENDS:
                    raise ValidationError("the file is damaged: a chain is there twice", found=first)
                rows = sorted(row[2:] for row in found if row[2] is not None)
                if last is not None and rows:
                    yield first, rows

    def read_rows_of_chains(self, firsts: Iterable[int], *, start: int | None = None) -> Iterator[StoredRow]:
        """Yield the rows of the chains that begin at these numbers, by number, from the number `start` on."""
        chains = set(firsts)
        if not chains:
            return iter(())
        start = min(chains) if start is None else start
        return self._select(_CHAINS, of=chains, chains=json.dumps(sorted(chains)), start=start)

    def _select(self, select: str, *, of: Set[int] | None = None, **parameters: object) -> Iterator[StoredRow]:
        with self._translate_errors():
            # Not `yield from`: one who leaves off would close the cursor, perhaps after its connection.
            for row in check_ascending(self.connection.execute(select, {**parameters, "most_body": self.most_body})):
                if of is None or row[1] in of:
                    yield row

    def read_row(self, number: int) -> StoredRow | None:
        """Return the row of this number."""
        with self._translate_errors():
            asked = {"number": number, "most_body": self.most_body}
            found: StoredRow | None = self.connection.execute(_ONE, asked).fetchone()
        return found

    def blob(self, digest: bytes) -> bytes | None:
        """Return the stored value with this hash, or raise a ValidationError: it is another one."""
        with self._translate_errors():
            select = "SELECT packed, sum, content FROM blobs WHERE digest = ?"
            found = self.connection.execute(select, (digest,)).fetchone()
        return None if found is None else decode_blob(digest, *found)

    def row(self, name: str, stored: StoredRow) -> Row:
        """Return a row of the chain `name`, with its values."""
        number, _, seq, body, row_hash = stored
        if not body:
            raise ValidationError(
                f"row {number} is empty, or too large to be read", expected=f"at most {self.most_body} bytes"
            )
        try:
            event, digest, values = self._parse_body(body)
        except (ValidationError, TypeError) as problem:
            raise ValidationError(f"row {number} of {self.path} ({name}, {seq}) cannot be read: {problem}") from problem
        return Row(number, name, seq, event, digest, values, row_hash)

    def _parse_body(self, body: bytes) -> tuple[Event | LedgerStatement, str | None, bool]:
        read = read_body(body)
        event = parse_event_or_statement(read, trusted=self.trusted)
        if read.scene is not None and isinstance(event, EpisodeReset | EpisodeStepped):
            scene = self.value(read.scene)
            event = event if scene is None else replace(event, scene=Raw(scene))
        if read.digest is None or not lacks_observation(event, read.digest):
            return event, read.digest, True
        value = self.value(read.digest)
        if value is None:
            return event, read.digest, False
        return replace(event, **{find_observation_field(event) or "": Raw(value)}), read.digest, True

    def value(self, digest: str) -> bytes | None:
        """Return the stored value with this hash in hexadecimal digits."""
        try:
            hashed = bytes.fromhex(digest)
        except ValueError as problem:
            raise ValidationError(f"not the hash of a value: {digest!r}") from problem
        return self.blob(hashed)

    def _translate_errors(self) -> AbstractContextManager[None]:
        return translate_errors(self.path, ValidationError)
