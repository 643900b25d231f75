"""Ledgers that somebody touched: changed column by column, or byte by byte."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from msgspec import Raw

from proctor.ledger.audit import FileAudit, LedgerFinding
from proctor.ledger.chain import genesis_hash, row_hash
from proctor.models.events import Event
from tests.ledger.session_events import SIGNER, altered, closed, left, opened, reset, step, written

COLUMNS = {
    "rows": ("number", "chain", "seq", "body", "hash"),
    "chains": ("first", "name", "last"),
    "blobs": ("digest", "packed", "sum", "content"),
    "seals": ("number", "key", "signature"),
}
LONG = b'"' + b"0123456789" * 30 + b'"'


def story(steps: int) -> Iterator[Event]:
    """Two sessions at the same time, one with long values; the second is left open."""
    yield opened("a")
    yield reset("a")
    yield opened("b")
    yield reset("b", observation=LONG)
    for number in range(1, steps + 1):
        yield step("a", 1, number)
        yield step("b", 1, number, scene=Raw(b'"%d%b' % (number, LONG[1:])))
    yield closed("a", 1, steps)
    yield left("a", 1, steps)


def story_file(folder: Path, steps: int) -> Path:
    """The story as a file, which nothing lies beside."""
    path = written(folder, story(steps))
    altered(path, "PRAGMA journal_mode = DELETE")
    return path


def drop_chains(path: Path, *names: str) -> None:
    """Remove chains with their rows and seals, as one without the key can."""
    connection = sqlite3.connect(path, isolation_level=None)
    for name in names:
        (first,) = connection.execute("SELECT first FROM chains WHERE name = ?", (name,)).fetchone()
        rows = "(SELECT number FROM rows WHERE chain = ?)"
        connection.execute(f"DELETE FROM seals WHERE number IN {rows}", (first,))
        connection.execute("DELETE FROM rows WHERE chain = ?", (first,))
        connection.execute("DELETE FROM chains WHERE first = ?", (first,))
    connection.close()


def append_row(path: Path, chain: str, body: bytes) -> None:
    """Add a row at the end of the file to a chain, with all that one without the key can make for it."""
    connection = sqlite3.connect(path, isolation_level=None)
    first, last = connection.execute("SELECT first, last FROM chains WHERE name = ?", (chain,)).fetchone()
    (number,) = connection.execute("SELECT max(number) + 1 FROM rows").fetchone()
    seq, before = connection.execute(
        "SELECT seq + 1, hash FROM rows WHERE chain = ? ORDER BY seq DESC", (first,)
    ).fetchone()
    digest = row_hash(before, number, seq, body)
    connection.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?)", (number, first, seq, body, digest))
    if last is not None:
        connection.execute("UPDATE chains SET last = ? WHERE first = ?", (number, first))
    connection.close()


def forge(path: Path, change: Callable[[bytes], bytes | None], *, keep: str = "") -> None:
    """Change bodies or, with None, leave rows out, and write numbers and hashes anew; one chain keeps its first seal."""
    connection = sqlite3.connect(path, isolation_level=None)
    names = dict(connection.execute("SELECT first, name FROM chains"))
    stands = {first: (-1, genesis_hash(name)) for first, name in names.items()}
    old = connection.execute("SELECT number, chain, body FROM rows ORDER BY number").fetchall()
    connection.execute("DELETE FROM rows")
    dropped = 0
    for each, first, body in old:
        changed = change(_reheaded(body, stands, names))
        if changed is None:
            dropped += 1
        else:
            number = each - dropped
            seq, before = stands[first][0] + 1, stands[first][1]
            stands[first] = seq, row_hash(before, number, seq, changed)
            connection.execute(
                "INSERT INTO rows VALUES (?, ?, ?, ?, ?)", (number, first, seq, changed, stands[first][1])
            )
    connection.execute("DELETE FROM seals WHERE number NOT IN (SELECT first FROM chains WHERE name = ?)", (keep,))
    connection.close()


def _reheaded(body: bytes, stands: dict[int, tuple[int, bytes]], names: dict[int, str]) -> bytes:
    """Make heads that a body says those of the chains as they stand now."""
    for first, (seq, digest) in stands.items():
        name = names[first].encode()
        head = b'"%b@%d:%b"' % (name, seq + 1, digest.hex().encode())
        body = re.sub(b'"%b@[0-9]+:[0-9a-f]{64}"' % re.escape(name), head, body)
    return body


@dataclass(frozen=True)
class Cell:
    """One value of one row of a table."""

    table: str
    column: str
    rowid: object
    value: int | str | bytes
    names: frozenset[object]
    """By what a finding may name the row: its number, or its chain and place."""

    @property
    def bits(self) -> int:
        if isinstance(self.value, int):
            return 64
        return len(self.value.encode() if isinstance(self.value, str) else self.value) * 8

    def flipped(self, bit: int) -> int | bytes:
        if isinstance(self.value, int):
            found = self.value ^ 1 << bit
            return found if bit < 63 else found - 2**64 if self.value >= 0 else found + 2**64
        changed = bytearray(self.value.encode() if isinstance(self.value, str) else self.value)
        changed[bit // 8] ^= 1 << bit % 8
        return bytes(changed)


class Touched:
    """A copy of a ledger's file that can be changed and mended again."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path = folder / "touched.ledger"
        shutil.copy(path, self.path)
        self.connection = sqlite3.connect(self.path, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode = OFF")
        self.connection.execute("PRAGMA synchronous = OFF")

    def cells(self) -> list[Cell]:
        found = self.connection.execute(
            "SELECT number, name, seq, body FROM rows JOIN chains ON rows.chain = chains.first"
        ).fetchall()
        places = {number: frozenset({number, (name, seq)}) for number, name, seq, _ in found}
        blobs = {
            digest: frozenset().union(
                *(places[number] for number, _, _, body in found if digest.hex().encode() in body)
            )
            for (digest,) in self.connection.execute("SELECT digest FROM blobs")
        }
        chains = {
            first: frozenset(
                {name, first, *(each for number, of, _, _ in found if of == name for each in places[number])}
            )
            for first, name in self.connection.execute("SELECT first, name FROM chains")
        }
        names = {"rows": places, "blobs": blobs, "seals": places, "chains": chains}
        return [
            Cell(table, column, key, value, names[table][key])
            for table, columns in COLUMNS.items()
            for key, *values in self.connection.execute(f"SELECT {columns[0]}, {', '.join(columns)} FROM {table}")
            for column, value in zip(columns, values, strict=True)
            if value is not None
        ]

    def findings(self) -> list[LedgerFinding]:
        audit = FileAudit(self.path, [], SIGNER.public)
        audit.run(self.connection, None)
        self.connection.execute("COMMIT")
        return audit.findings

    @contextmanager
    def flip(self, cell: Cell, bit: int) -> Iterator[bool]:
        """Change one bit for the block; False: the table does not take the change."""
        key, value = COLUMNS[cell.table][0], cell.flipped(bit)
        changed = "CAST(? AS TEXT)" if isinstance(cell.value, str) else "?"
        try:
            self.connection.execute(
                f"UPDATE {cell.table} SET {cell.column} = {changed} WHERE {key} = ?", (value, cell.rowid)
            )
        except sqlite3.IntegrityError:
            yield False
            return
        yield True
        self.connection.execute(
            f"UPDATE {cell.table} SET {cell.column} = ? WHERE {key} = ?",
            (cell.value, value if cell.column == key else cell.rowid),
        )

    def names(self, cell: Cell, bit: int) -> bool:
        """Whether a flip of this bit is found, and the row is named; or cannot be made."""
        with self.flip(cell, bit) as made:
            if not made:
                return True
            found = self.findings()
        told = {name for each in found for name in (each.number, each.chain, (each.chain, each.seq))}
        return bool(told & (cell.names | ({cell.flipped(bit)} if cell.column == COLUMNS[cell.table][0] else set())))
