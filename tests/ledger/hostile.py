"""Files that a stranger made to harm who reads them."""

import shutil
import sqlite3
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

from msgspec import Raw

from proctor.ledger.export import write_bundle
from proctor.ledger.reader import Ledger
from tests.ledger.session_events import altered, session, step, written

MIB = 2**20
LONG = b'{"observation":"' + b"0123456789" * 60 + b'"}'


def bomb(mebibytes: int) -> bytes:
    """Return some bytes that say so many mebibytes of zeros to zlib; the stream has no good end."""
    press = zlib.compressobj(9)
    head = press.compress(bytes(MIB)) + press.flush(zlib.Z_FULL_FLUSH)
    again = press.compress(bytes(MIB)) + press.flush(zlib.Z_FULL_FLUSH)
    return head + again * (mebibytes - 1)


def long_story(folder: Path) -> Path:
    """Return a ledger of one episode, of which one observation is a value of its own."""
    events = list(session("s", steps=2))
    events.insert(3, step("s", number=2, observation=Raw(LONG)))
    return written(folder, events[:3] + events[3:4] + events[5:])


def bombed_bundle(folder: Path, mebibytes: int) -> Path:
    """Return a bundle of which one observation says so many mebibytes."""
    path = folder / "bomb.ledger"
    with Ledger.open(long_story(folder / "ledger")) as ledger:
        write_bundle(ledger, "s.1", path)
    content = bomb(mebibytes)
    altered(path, ("UPDATE blobs SET packed = 1, sum = ?, content = ?", (zlib.crc32(content), content)))
    return path


def endless_view(folder: Path, table: str) -> Path:
    """Return a ledger in which a view whose query never ends stands for a table."""
    path = long_story(folder / "ledger")
    connection = sqlite3.connect(path, isolation_level=None)
    columns = [each[1] for each in connection.execute(f"PRAGMA table_info({table})")]
    connection.execute(f"DROP TABLE {table}")
    names = ", ".join(f"n AS {name}" for name in columns)
    connection.execute(
        f"CREATE VIEW {table} AS WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers)"
        f" SELECT {names} FROM numbers"
    )
    connection.close()
    return path


def many_ways(folder: Path, table: str = "rows", change: str = "") -> Path:
    """Return a ledger with a table that is a tree of a few pages, in which every page but the last is reached on very many ways.

    `change` is done to the ledger before.
    """
    path = folder / "ways.ledger"
    shutil.copy(long_story(folder / "ledger"), path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute(change)
    (root,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    pages = bytearray(path.read_bytes())
    count = len(pages) // size
    leaf = pages[(root - 1) * size : root * size]
    depth, ways = 12, 200
    below = count + depth
    """The page of the leaf; the pages between it and the root come before it."""
    for level in range(depth):
        child = below if level == depth - 1 else count + level + 1
        page = _interior(size, child, ways)
        if level == 0:
            pages[(root - 1) * size : root * size] = page
        else:
            pages += page
    pages += bytes(size * (below - 1 - len(pages) // size)) + leaf
    pages[28:32] = struct.pack(">I", len(pages) // size)
    path.write_bytes(pages)
    return path


def endless_schema(folder: Path) -> Path:
    """Return a ledger whose list of tables is a tree of a few pages, in which one entry is reached on very many ways."""
    path = folder / "schema.ledger"
    shutil.copy(long_story(folder / "ledger"), path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = DELETE")
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    pages = bytearray(path.read_bytes())
    first, before, count = bytes(pages[:size]), len(pages) // size, struct.unpack_from(">H", pages, 103)[0]
    cells = struct.unpack_from(f">{count}H", first, 108)
    index = [each for each in cells if b"sqlite_autoindex" in first[each : each + 40]]
    depth, ways = 12, 200
    pages += _leaf(first, cells) + _leaf(first, index)
    for level in range(depth):
        pages += _interior(size, before + 2 + level, ways)
    root = _interior(size, before + 2 + depth, ways, head=first[:100])
    pages[:size] = root[:-5] + struct.pack(">I", before + 1) + b"\x7f"
    pages[112:114] = struct.pack(">H", size - 5)  # the first way leads to all tables, and the others to an index
    pages[28:32] = struct.pack(">I", len(pages) // size)
    path.write_bytes(pages)
    return path


def _leaf(first: bytes, cells: Sequence[int]) -> bytes:
    """Return a page with some of the cells of a file's first page."""
    start = min(cells)
    header = struct.pack(f">BHHHB{len(cells)}H", 13, 0, len(cells), start, 0, *cells)
    return header.ljust(start, b"\0") + first[start:]


def _interior(size: int, child: int, ways: int, head: bytes = b"") -> bytes:
    """Return an interior page of a table, every cell of which leads to the same child."""
    cell = struct.pack(">I", child) + b"\x7f"
    start = size - len(cell) * ways
    header = head + struct.pack(">BHHHBI", 5, 0, ways, start, 0, child)
    places = b"".join(struct.pack(">H", start + len(cell) * each) for each in range(ways))
    return (header + places).ljust(start, b"\0") + cell * ways


def written_by_hand(path: Path, change: str) -> None:
    """Change a ledger as nobody could whom its tables' types bind."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = DELETE")
    tables = connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    connection.close()
    lax = [(name, told.replace(" STRICT, ", " ").replace(") STRICT", ")")) for name, told in tables]
    for told, statement in ((lax, "SELECT 1"), (tables, change)):
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(statement)
        for name, sql in told:
            connection.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (sql, name))
        (version,) = connection.execute("PRAGMA schema_version").fetchone()
        connection.execute(f"PRAGMA schema_version = {version + 1}")
        connection.close()
