import os
import sqlite3
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import ProctorError, ValidationError
from proctor.ledger.reader import Ledger
from proctor.ledger.storage.sqlite import (
    LEDGER_APPLICATION_ID,
    MIGRATIONS,
    VERSION,
    decompress_blob,
    encode_blob,
    migrate,
)
from proctor.ledger.verify import verify
from tests.ledger.session_events import session, writer, written


def made(path: Path, *statements: str) -> sqlite3.Connection:
    path.parent.mkdir(exist_ok=True)
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    return connection


def number(connection: sqlite3.Connection, pragma: str) -> int:
    (found,) = connection.execute(f"PRAGMA {pragma}").fetchone()
    return int(found)


def test_a_file_says_what_it_is(tmp_path: Path) -> None:
    connection = sqlite3.connect(written(tmp_path, session()))

    assert number(connection, "application_id") == LEDGER_APPLICATION_ID
    assert number(connection, "user_version") == VERSION
    connection.close()


def test_an_older_file_is_brought_forward_step_by_step_and_keeps_its_rows(tmp_path: Path) -> None:
    path = written(tmp_path, session())
    connection = sqlite3.connect(path, isolation_level=None)
    before = connection.execute("SELECT * FROM rows").fetchall()
    steps: list[int] = []
    migrations = {
        **MIGRATIONS,
        VERSION: lambda connection: steps.append(VERSION),
        VERSION + 1: lambda connection: connection.execute("CREATE TABLE more (this TEXT)"),
    }

    migrate(connection, path, migrations=migrations, version=VERSION + 2)

    assert steps == [VERSION]
    assert number(connection, "user_version") == VERSION + 2
    assert connection.execute("SELECT * FROM rows").fetchall() == before
    assert connection.execute("SELECT * FROM more").fetchall() == []
    connection.close()


def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, session())
    connection = sqlite3.connect(path, isolation_level=None)

    def fails(connection: sqlite3.Connection) -> None:
        connection.execute("DROP TABLE rows")
        raise sqlite3.OperationalError("no")

    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, path, migrations={VERSION: fails}, version=VERSION + 1)

    assert number(connection, "user_version") == VERSION
    connection.close()
    assert verify(path).ok


def test_an_empty_file_of_the_oldest_version_becomes_a_ledger(tmp_path: Path) -> None:
    made(tmp_path / "worker-0.ledger", f"PRAGMA application_id = {LEDGER_APPLICATION_ID}").close()

    with pytest.raises(ValidationError, match="not a ledger"):
        Ledger(tmp_path)
    writer(tmp_path).close()

    assert verify(tmp_path).ok


@pytest.mark.parametrize("version", [VERSION + 1, -1])
def test_a_newer_file_is_refused_by_all(tmp_path: Path, version: int) -> None:
    path = written(tmp_path, session())
    made(path, f"PRAGMA user_version = {version}").close()

    with pytest.raises(ValidationError, match="newer"):
        writer(tmp_path)
    with pytest.raises(ValidationError, match="newer"):
        Ledger(path)
    assert "newer" in verify(path).findings[0].what


@pytest.mark.parametrize("statements", [["CREATE TABLE mine (this TEXT)"], ["PRAGMA application_id = 7"]])
def test_a_file_of_somebody_else_is_refused_and_left_alone(tmp_path: Path, statements: list[str]) -> None:
    made(tmp_path / "worker-0.ledger", *statements).close()

    for use in (writer, Ledger):
        with pytest.raises(ValidationError, match="not a ledger"):
            use(tmp_path)
    again = sqlite3.connect(tmp_path / "worker-0.ledger")
    assert number(again, "user_version") == 0
    again.close()


def test_what_is_no_database_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "worker-0.ledger").write_bytes(b"this is a letter to my mother" * 99)

    for use in (writer, Ledger):
        with pytest.raises(ProctorError):
            use(tmp_path)


values = st.binary(max_size=600) | st.binary(min_size=1, max_size=4).map(lambda part: part * 700)


@given(values)
def test_a_value_comes_back(value: bytes) -> None:
    digest, packed, total, content = encode_blob(sha256(value).digest(), value)

    assert decompress_blob(packed, total, content) == value
    assert digest == sha256(value).digest()
    assert len(content) <= len(value)


def test_what_does_not_get_shorter_is_left_as_it_is() -> None:
    assert encode_blob(b"", os.urandom(5000))[1] == 0
    assert encode_blob(b"", b"board" * 500)[1] == 1
    assert (
        encode_blob(b"", b"x" * 2048 + os.urandom(90_000))[1] == 1
    )  # the sample deceived, and it got shorter all the same


@pytest.mark.parametrize("packed", [0, 1])
def test_every_bit_of_a_stored_value_counts(packed: int) -> None:
    value = b"0123456789" * 30 if packed else os.urandom(300)
    _, found, total, content = encode_blob(b"", value)
    assert found == packed

    for bit in range(len(content) * 8):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValidationError):
            decompress_blob(packed, total, bytes(flipped))
    for bit in range(63):
        with pytest.raises(ValidationError):
            decompress_blob(packed, total ^ 1 << bit, content)
        if packed ^ 1 << bit not in (0, 1):
            with pytest.raises(ValidationError):
                decompress_blob(packed ^ 1 << bit, total, content)


def test_what_follows_on_a_compressed_value_is_not_overlooked() -> None:
    import zlib

    content = zlib.compress(b"x" * 300) + b"more"

    with pytest.raises(ValidationError, match="length"):
        decompress_blob(1, zlib.crc32(content), content)
    with pytest.raises(ValidationError, match="damaged"):
        decompress_blob(1, zlib.crc32(b"none"), b"none")
