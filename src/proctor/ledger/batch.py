"""What is committed together, in one transaction."""

import sqlite3
from asyncio import Future
from typing import Final, TypeAlias

from proctor.ledger.blobs import INSERT_BLOB, stored_blob
from proctor.ledger.tracks import Track

Key: TypeAlias = str | None
"""Whose chain it is: a session's, or the server's (None)."""

_INSERTS: Final = (
    ("rows", "INSERT INTO rows (number, chain, seq, body, hash) VALUES (?, ?, ?, ?, ?)"),
    ("chains", "INSERT INTO chains (first, name) VALUES (?, ?)"),
    ("ended", "UPDATE chains SET last = ? WHERE first = ?"),
    ("seals", "INSERT OR IGNORE INTO seals (number, key, signature) VALUES (?, ?, ?)"),
)


class Batch:
    """Rows of the tables, where the chains stand after them, and who waits for them."""

    __slots__ = ("after", "blobs", "chains", "ended", "rows", "seals", "waiting")

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, bytes, bytes]] = []
        self.chains: list[tuple[int, str]] = []
        self.ended: list[tuple[int, int]] = []
        self.blobs: list[tuple[bytes, bytes]] = []
        self.seals: list[tuple[int, bytes, bytes]] = []
        self.after: dict[Key, Track] = {}
        self.waiting: list[Future[None]] = []

    def insert(self, connection: sqlite3.Connection) -> None:
        """Put everything but the values into the open transaction."""
        for field, statement in _INSERTS:
            values = getattr(self, field)
            if values:
                connection.executemany(statement, values)

    def insert_blobs(self, connection: sqlite3.Connection) -> None:
        """Put the values into the open transaction; to compress them may take some time."""
        if self.blobs:
            connection.executemany(INSERT_BLOB, [stored_blob(*each) for each in self.blobs])
