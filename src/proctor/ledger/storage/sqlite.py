"""The file: its tables, their version, and connections to it. The only place that knows SQLite's settings.

Rule 1: every column is covered: `rows` by the hashes, `blobs` by their own, `seals` by the signatures, and `chains` is
    derived again from the rows.
Rule 2: rows are appended by number, and nothing that is written with every row is an index: sixty-four sessions that write
    at the same time share a few pages.
Rule 3: the version is in `user_version`. An older file is brought forward by `MIGRATIONS`, which never touch a row's body; a newer
    one is refused.
Rule 4: no error of SQLite leaves this file: `translate_errors` makes it one of ours.
Rule 5: a bundle says in `application_id` that it is one, and nobody writes to it.
Rule 6: a file may be a stranger's: it is read with SQLite's guards up, only regular files are opened, no value is longer than the ledger
    writes, and rows that do not come in order end the reading, since a damaged tree can yield the same ones without end. For the
    list of tables, which SQLite reads whole before the first statement, the work has a limit.
Rule 7: a value is stored once, by the SHA-256 of its bytes, and never decompressed beyond what its reader takes: a few bytes can say a
    thousand times as many.
"""

import sqlite3
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec

from proctor.errors import ComponentError, ProctorError, ValidationError

BlobRow: TypeAlias = tuple[bytes, int, int, bytes]
"""A row of the table: digest, packed, sum, content."""

INSERT_BLOB: Final = "INSERT OR IGNORE INTO blobs (digest, packed, sum, content) VALUES (?, ?, ?, ?)"
_JSON: Final = msgspec.json.Decoder(msgspec.Raw)
MAX_VALUE_BYTES: Final = 2**28
"""Of a value and of a row, in bytes: no more is written, and no more is read from a file, whatever it says."""
_PIECE: Final = 2**20
_SAMPLE: Final = 2048
_WORTH: Final = 0.7
"""What is not shorter than this after compression is stored as it is: packed floats are not."""
LEDGER_APPLICATION_ID: Final = 0x50524C47  # "PRLG"
BUNDLE_APPLICATION_ID: Final = 0x50524C42  # "PRLB": one episode, taken from a ledger
VERSION: Final = 1
SUFFIX: Final = ".ledger"
BUSY_SECONDS: Final = 1.0
LONGEST_CELL: Final = MAX_VALUE_BYTES + 2**16
"""What SQLite may read at a time: a value or a body, and what lies around it."""
_SCHEMA_STEPS: Final = 5000
"""How many instructions of SQLite's machine reading the list of tables may take; that of a ledger takes fewer than a hundred."""
_LONGEST_ENTRY: Final = 2**16
Cells = TypeVar("Cells", bound=tuple[Any, ...])
Durability: TypeAlias = Literal["full", "normal", "off"]

SQLITE_ERRORS: Final = (sqlite3.Error, UnicodeDecodeError, MemoryError, OverflowError)
"""What SQLite's module raises for a damaged file: its own errors, and others that it makes of lengths and texts in it."""

TABLES: Final = {
    "rows": (
        "CREATE TABLE rows (number INTEGER PRIMARY KEY, chain INTEGER NOT NULL, seq INTEGER NOT NULL, "
        "body BLOB NOT NULL, hash BLOB NOT NULL) STRICT"
    ),
    "chains": "CREATE TABLE chains (first INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, last INTEGER) STRICT",
    "blobs": (
        "CREATE TABLE blobs (digest BLOB PRIMARY KEY, packed INTEGER NOT NULL, sum INTEGER NOT NULL, "
        "content BLOB NOT NULL) STRICT, WITHOUT ROWID"
    ),
    "seals": "CREATE TABLE seals (number INTEGER PRIMARY KEY, key BLOB NOT NULL, signature BLOB NOT NULL) STRICT",
}
"""`chain` in `rows` is the number of the chain's first row; `last` is null while a chain is open; `number` in `seals` is the
sealed row's; `packed` says whether the content is compressed with zlib, whose padding no hash of the value would cover:
`sum` is the CRC-32 of the content as it is stored."""
_SCHEMA: Final = "SELECT type, name, tbl_name, sql FROM sqlite_schema"


def _create_tables(connection: sqlite3.Connection) -> None:
    for statement in TABLES.values():
        connection.execute(statement)


Migrations: TypeAlias = Mapping[int, Callable[[sqlite3.Connection], None]]
MIGRATIONS: Final[Migrations] = {0: _create_tables}
"""From each version to the next; version 0 is an empty file."""


def connect_for_writing(path: Path, durability: Durability) -> sqlite3.Connection:
    """Return a connection with the settings of a writer, the tables in place; the caller holds the file's lock."""
    with translate_errors(path, ComponentError):
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            _load_schema(connection, path)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {durability.upper()}")
            connection.execute("PRAGMA wal_autocheckpoint = 4000")
            connection.execute("PRAGMA journal_size_limit = 67108864")
            connection.execute("PRAGMA cache_size = -16384")
            migrate(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def migrate(
    connection: sqlite3.Connection,
    path: Path,
    *,
    migrations: Migrations = MIGRATIONS,
    version: int = VERSION,
    mark: int = LEDGER_APPLICATION_ID,
) -> None:
    """Make the file one of this version, all or nothing; a ValidationError if it is newer, no ledger or a bundle."""
    found = _check_version(connection, path, version)
    if mark == LEDGER_APPLICATION_ID and is_bundle(connection):
        raise ValidationError(f"{path} is a bundle, which stays as it is", expected="a file of a ledger's folder")
    if found == version:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in range(found, version):
            migrations[step](connection)
        connection.execute(f"PRAGMA application_id = {mark}")
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def is_bundle(connection: sqlite3.Connection) -> bool:
    """Return whether the file says that it is a bundle."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    return bool(application == BUNDLE_APPLICATION_ID)


def has_tables(connection: sqlite3.Connection) -> bool:
    """Return whether the file has the tables of a ledger as this version makes them, and nothing else."""
    expected = _make_schema()
    found = connection.execute(f"{_SCHEMA} LIMIT {len(expected) + 1}").fetchall()
    return len(found) == len(expected) and set(found) == expected


@cache
def _make_schema() -> set[tuple[str, str, str, str | None]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        _create_tables(connection)
        return set(connection.execute(_SCHEMA))


def _load_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Have SQLite read the list of tables, or raise a ValidationError: it is longer than that of any ledger, or has no end."""
    longest = connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_ENTRY)
    connection.set_progress_handler(lambda: True, _SCHEMA_STEPS)
    try:
        connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
    except sqlite3.OperationalError as problem:
        if problem.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        raise ValidationError(
            f"{path} is not a ledger: its list of tables is too long, or has no end",
            expected="a file that a ledger's writer made",
        ) from problem
    finally:
        connection.set_progress_handler(None, 0)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest)


def _check_version(connection: sqlite3.Connection, path: Path, version: int) -> int:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application not in (LEDGER_APPLICATION_ID, BUNDLE_APPLICATION_ID) and (application or tables):
        raise ValidationError(f"{path} is not a ledger", expected="a file that a ledger's writer made")
    if not 0 <= found <= version:
        raise ValidationError(
            f"{path} is of a newer version",
            found=found,
            expected=f"at most version {version}: a newer Proctor reads it",
        )
    return int(found)


def connect_for_reading(path: Path, *, live: bool = False) -> sqlite3.Connection:
    """Return a connection that reads; a ValidationError if there is no ledger at `path`.

    It sees what is committed later if a server has the file open, which `live` says for sure.
    """
    if not path.is_file():
        raise ValidationError(f"there is no ledger {path}", expected="a ledger's folder, or a file *.ledger")
    with translate_errors(path, ValidationError):
        connection = _connect_safely(path, live=live)
        try:
            if _check_version(connection, path, VERSION) != VERSION:
                raise ValidationError(f"{path} is not a ledger", expected="a file that a ledger's writer made")
        except BaseException:
            connection.close()
            raise
    return connection


def _connect_safely(path: Path, *, live: bool) -> sqlite3.Connection:
    """Return a connection that reads a stranger's file, its list of tables read; a ValidationError if that cannot be done safely."""
    _check_log_files(path)
    real = path.resolve()
    # Without a log beside it nobody writes the file, and SQLite need not make one in order to read it (with `mode=ro` it
    # would, and leave it there). Somebody may begin to write it later: who must not miss that looks at `file_fingerprint`.
    alone = not live and not real.with_name(real.name + "-wal").exists()
    uri = f"file:{quote(str(real))}?{'immutable=1' if alone else 'mode=ro'}"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        # SQLite trusts nothing of what it reads, and changes nothing.
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_CELL)
        for pragma in ("query_only = ON", "trusted_schema = OFF", "cell_size_check = ON"):
            connection.execute(f"PRAGMA {pragma}")
        _load_schema(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_log_files(path: Path) -> None:
    """Raise a ValidationError if SQLite would open a pipe or a device beside the file, and wait for it."""
    real = path.resolve()
    for suffix in ("-wal", "-shm", "-journal"):
        beside = real.with_name(real.name + suffix)
        try:
            mode = beside.lstat().st_mode
        except OSError:
            continue
        if not stat.S_ISREG(mode):
            raise ValidationError(f"{beside} is not a regular file", expected="a log that SQLite wrote, or none")


def check_ascending(rows: Iterable[Cells]) -> Iterator[Cells]:
    """Yield rows of a table whose first column rises from row to row; a ValidationError where it does not."""
    before: int | None = None
    for row in rows:
        if before is not None and row[0] <= before:
            raise ValidationError("the file is damaged: rows do not come in order", found=row[0])
        before = row[0]
        yield row


def is_blank(path: Path) -> bool:
    """Return whether nothing was written to the file yet, not even tables; False for what cannot be read."""
    try:
        if not path.stat().st_size:
            return True
        with closing(_connect_safely(path, live=False)) as connection:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except (*SQLITE_ERRORS, OSError, ValidationError):
        return False
    return not application and not tables


def file_fingerprint(path: Path) -> tuple[object, ...]:
    """Return what changes when it is another file, when somebody begins to write it, or writes it where it is read without its log."""
    try:
        said = path.stat()
    except OSError:
        return ()
    real = path.resolve()
    logged = real.with_name(real.name + "-wal").exists()
    file = (logged, said.st_dev, said.st_ino)
    return file if logged else (*file, said.st_size, said.st_mtime_ns)


@contextmanager
def translate_errors(path: Path, kind: type[ProctorError]) -> Iterator[None]:
    """Raise what SQLite and the system say as an error of ours."""
    try:
        yield
    except (*SQLITE_ERRORS, OSError) as problem:
        raise kind(f"the ledger {path} cannot be used: {problem}") from problem


class ValueTooLarge(ValidationError):
    """A value of a ledger has more bytes than its reader takes."""


def encode_blob(digest: bytes, value: bytes) -> BlobRow:
    """Return the value as it is stored, compressed if a sample of it says that this helps."""
    packed, content = 0, value
    if len(zlib.compress(value[:_SAMPLE], 1)) <= _WORTH * min(len(value), _SAMPLE):
        short = zlib.compress(value, 1)
        if len(short) < len(value):
            packed, content = 1, short
    return digest, packed, zlib.crc32(content), content


def decode_blob(digest: bytes, packed: int, total: int, content: bytes, most: int = MAX_VALUE_BYTES) -> bytes:
    """Return the value of a blob, or raise a ValidationError: it is not the one that its name says, or no JSON.

    One of more than `most` bytes is a ValueTooLarge.
    """
    value = decompress_blob(packed, total, content, most)
    if sha256(value).digest() != digest:
        raise ValidationError("a value is not as it was written")
    try:
        _JSON.decode(value)
    # Whoever makes a file can name anything rightly; what is spliced into a page must be JSON all the same.
    except (msgspec.DecodeError, RecursionError) as problem:
        raise ValidationError("a value is no JSON") from problem
    return value


def decompress_blob(packed: int, total: int, content: bytes, most: int = MAX_VALUE_BYTES) -> bytes:
    """Return the value of a blob, or raise a ValidationError: it is not as it was stored, or has more than `most` bytes."""
    return b"".join(decompress_pieces(packed, total, content, most))


def decompress_pieces(packed: int, total: int, content: bytes, most: int = MAX_VALUE_BYTES) -> Iterator[bytes]:
    """Yield the value of a blob in pieces, so that who only hashes it never holds all of it; the errors are those of `unpacked`."""
    if type(content) is not bytes or packed not in (0, 1) or zlib.crc32(content) != total:
        raise ValidationError("a blob is damaged: its sum is another")
    if packed:
        yield from _decompress(content, most)
    elif len(content) > most:
        raise _too_large(most)
    else:
        yield content


def _decompress(content: bytes, most: int) -> Iterator[bytes]:
    unpacking, left = zlib.decompressobj(), most
    try:
        while not unpacking.eof and content:
            piece = unpacking.decompress(content, _PIECE)
            content = unpacking.unconsumed_tail
            left -= len(piece)
            if left < 0:
                raise _too_large(most)
            if not piece and not unpacking.eof:
                break  # the stream ends too early
            yield piece
    except zlib.error as problem:
        raise ValidationError(f"a blob is damaged: {problem}") from problem
    if not unpacking.eof or unpacking.unused_data:
        raise ValidationError("a blob is damaged: it has another length")


def _too_large(most: int) -> ValueTooLarge:
    return ValueTooLarge("a value is too large", expected=f"at most {most} bytes")
