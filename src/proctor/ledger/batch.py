"""What is committed together, in one transaction, and how many bytes that stores for each session."""

import sqlite3
from asyncio import Future
from typing import Final, TypeAlias

from proctor.ledger.blobs import INSERT_BLOB, Blob, stored_blob
from proctor.ledger.rows import Written
from proctor.ledger.tracks import Track

Key: TypeAlias = str | None
"""Whose chain it is: a session's, or the server's (None)."""

_INSERTS: Final = (
    ("rows", "INSERT INTO rows (number, chain, seq, body, hash) VALUES (?, ?, ?, ?, ?)"),
    ("chains", "INSERT INTO chains (first, name) VALUES (?, ?)"),
    ("ended", "UPDATE chains SET last = ? WHERE first = ?"),
    ("seals", "INSERT OR IGNORE INTO seals (number, key, signature) VALUES (?, ?, ?)"),
)


ROW_BYTES: Final = 128
"""What a row takes besides its body: its hash, its numbers, its share of a page."""


class Batch:
    """Rows of the tables, where the chains stand after them, and who waits for them."""

    __slots__ = (
        "after",
        "blobs",
        "chains",
        "closed",
        "ended",
        "gathered",
        "owners",
        "rows",
        "seals",
        "stored",
        "waiting",
    )

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, bytes, bytes]] = []
        self.chains: list[tuple[int, str]] = []
        self.ended: list[tuple[int, int]] = []
        self.blobs: list[tuple[bytes, bytes]] = []
        self.seals: list[tuple[int, bytes, bytes]] = []
        self.after: dict[Key, Track] = {}
        self.waiting: list[Future[None]] = []
        self.gathered = 0
        """Bytes that the batch holds in memory."""
        self.stored: dict[str, int] = {}
        """Bytes that it stores for each session; those of the values are known once they are compressed."""
        self.owners: dict[bytes, str] = {}
        """Which session states a value first."""
        self.closed: list[str] = []
        """The sessions that it closes."""

    def count(self, session: str, written: Written) -> None:
        """Count what an event of a session stores."""
        body, blobs = written
        self.gathered += len(body)
        self.stored[session] = self.stored.get(session, 0) + len(body) + ROW_BYTES
        for digest, value in blobs or ():
            self.gathered += len(value)
            self.owners.setdefault(digest, session)

    def insert(self, connection: sqlite3.Connection) -> None:
        """Put everything but the values into the open transaction."""
        for field, statement in _INSERTS:
            values = getattr(self, field)
            if values:
                connection.executemany(statement, values)

    def insert_blobs(self, connection: sqlite3.Connection) -> None:
        """Put the values into the open transaction; to compress them may take some time."""
        if self.blobs:
            connection.executemany(INSERT_BLOB, [self._store_blob(*each) for each in self.blobs])

    def _store_blob(self, digest: bytes, value: bytes) -> Blob:
        blob = stored_blob(digest, value)
        session = self.owners[digest]
        self.stored[session] += len(blob[3])
        return blob
