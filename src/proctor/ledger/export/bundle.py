"""One episode as a file of its own, which can be handed over, verified and replayed alone."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from proctor.errors import ComponentError, ValidationError
from proctor.ledger.chain import is_episode_chain
from proctor.ledger.reader import Ledger
from proctor.ledger.rows import find_value_hashes
from proctor.ledger.storage.blobs import INSERT_BLOB
from proctor.ledger.storage.ledger_file import ChainEntry, LedgerFile, StoredRow
from proctor.ledger.storage.sqlite import BUNDLE_APPLICATION_ID, check_ascending, migrate, translate_errors

_ROW: Final = "INSERT INTO rows (number, chain, seq, body, hash) VALUES (?, ?, ?, ?, ?)"
_SEAL: Final = "INSERT INTO seals (number, key, signature) VALUES (?, ?, ?)"


def write_bundle(ledger: Ledger, chain: str, path: Path | str) -> None:
    """Write the chain with its values and seals, among them the public key, to a new file at `path`.

    Its rows are as they are in the ledger, so every head of the chain holds for the bundle, too. What an open episode
    has so far is all that its bundle will have. A ValidationError if there is no such episode or a file is there already.
    """
    path = Path(path)
    file, found = ledger.find_chain(chain)
    if not is_episode_chain(chain):
        raise ValidationError("a bundle is of an episode", found=chain)
    with _new_bundle(path) as connection:
        stored = list(file.read_chain_rows(found))
        if not stored:
            raise ValidationError("a chain without rows", found=chain)
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(
            "INSERT INTO chains (first, name, last) VALUES (?, ?, ?)", (found.first, chain, stored[-1][0])
        )
        connection.executemany(_ROW, stored)
        _copy_seals(file, found, stored, connection)
        _copy_blobs(file, stored, connection)
        connection.execute("COMMIT")


def _copy_seals(file: LedgerFile, chain: ChainEntry, stored: list[StoredRow], into: sqlite3.Connection) -> None:
    numbers = {each[0] for each in stored}
    seals = file.connection.execute(
        "SELECT number, key, signature FROM seals WHERE number BETWEEN ? AND ? ORDER BY number",
        (chain.first, stored[-1][0]),
    )
    into.executemany(_SEAL, [seal for seal in check_ascending(seals) if seal[0] in numbers])


def _copy_blobs(file: LedgerFile, stored: list[StoredRow], into: sqlite3.Connection) -> None:
    for digest in sorted({digest for each in stored for digest in find_value_hashes(each[3])}):
        into.executemany(
            INSERT_BLOB,
            file.connection.execute("SELECT digest, packed, sum, content FROM blobs WHERE digest = ?", (digest,)),
        )


@contextmanager
def _new_bundle(path: Path) -> Iterator[sqlite3.Connection]:
    """Give a connection to an empty ledger that appears at `path` when the block ends well, and not at all if it does not."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    with translate_errors(path, ComponentError):
        try:
            os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            connection = sqlite3.connect(draft, isolation_level=None)
            try:
                # One file, and no log beside it: it goes by post.
                connection.execute("PRAGMA journal_mode = DELETE")
                migrate(connection, path, mark=BUNDLE_APPLICATION_ID)
                yield connection
            finally:
                connection.close()
            path.hardlink_to(draft)
        except FileExistsError:
            raise ValidationError(f"{path} is there already", expected="the name of a new file") from None
        finally:
            draft.unlink(missing_ok=True)
