"""Episodes for other programs: which, where they are written, and two of the forms: lines of JSON, and a bundle.

Rule 1: an export appears whole or not at all: it is written beside its place under another name and moved there. Nothing is ever
    overwritten.
Rule 2: a package that only one format needs is imported when that format is written, never before.
Rule 3: a line of JSON says what the ledger says of its row, and no more: number, chain, seq, hash, event. `digest` is there where
    an observation is, and `"values": false` where its values were not kept.
Rule 4: of governed episodes the packets and records can be had alone, in the bytes in which they were judged, so that they
    can be judged again: `proctor ledger export LEDGER --packets | proctor judge -`.
Rule 5: a bundle is a ledger of one episode, which can be handed over, verified and replayed alone.
"""

import errno
import os
import secrets
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from proctor.errors import ComponentError, MissingExtraError, ValidationError
from proctor.ledger.chain import is_episode_chain
from proctor.ledger.reader import EpisodeSummary, Ledger, Row
from proctor.ledger.rows import find_value_hashes
from proctor.ledger.storage.ledger_file import ChainEntry, LedgerFile, StoredRow
from proctor.ledger.storage.sqlite import BUNDLE_APPLICATION_ID, INSERT_BLOB, check_ascending, migrate, translate_errors
from proctor.models.events import PacketJudged

EXTRA: Final = "export"
PROGRESS_EVERY: Final = 256
"""Rows between two words about how far it is."""
Progress: TypeAlias = Callable[[int], object]
"""Is told how many more rows were read."""
_ROW: Final = "INSERT INTO rows (number, chain, seq, body, hash) VALUES (?, ?, ?, ?, ?)"
_SEAL: Final = "INSERT INTO seals (number, key, signature) VALUES (?, ?, ?)"


def select_episodes(ledger: Ledger, names: Sequence[str]) -> list[EpisodeSummary]:
    """Return the episodes that are named, each once, in their order; all of them where none is named."""
    if not names:
        return ledger.episodes()
    found = [ledger.find(name) for name in names]
    return list({each.chain: each for each in found}.values())


def ignore_progress(more: int) -> None:
    """Hear how far an export is, where nobody looks."""


def report_progress(rows: Iterable[Row], more: Progress) -> Iterator[Row]:
    """Yield the rows, and tell now and then how many they were."""
    number = 0
    for number, row in enumerate(rows, 1):
        yield row
        if not number % PROGRESS_EVERY:
            more(PROGRESS_EVERY)
    more(number % PROGRESS_EVERY)


def import_extra(package: str, what: str, *, extra: str = EXTRA) -> Any:
    """Return the package, or raise a MissingExtraError that names the extra which brings it."""
    try:
        return import_module(package)
    except ImportError as problem:
        # A package that is there and cannot import another one says so itself.
        if problem.name is not None and problem.name.partition(".")[0] != package.partition(".")[0]:
            raise
        raise MissingExtraError(what, package=package.partition(".")[0], extra=extra) from None


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file that stands at `path` once the block has ended well; a ValidationError if one is there already."""
    with _draft(path) as draft, draft.open("xb") as file:
        yield file


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a folder that stands at `path` once the block has ended well; a ValidationError if one is there already."""
    with _draft(path) as draft:
        draft.mkdir()
        yield draft


@contextmanager
def _draft(path: Path) -> Iterator[Path]:
    """Yield a free name beside `path`; what was made there is moved to `path`, or removed if the block failed."""
    _check_free(path)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        yield draft
        # A look before the move, because a move to an empty folder or a file would replace it.
        _check_free(path)
        draft.rename(path)
    except OSError as problem:
        raise ValidationError(
            f"cannot write {str(path)!r}: {_reason(problem)}", expected="a new name in a folder that can be written to"
        ) from problem
    finally:
        _remove(draft)


def _check_free(path: Path) -> None:
    if os.path.lexists(path):
        raise ValidationError(f"{str(path)!r} is there already", expected="a name that is free")
    if not path.parent.is_dir():
        raise ValidationError(f"there is no folder {str(path.parent)!r}", expected="a folder to write to")


def _remove(draft: Path) -> None:
    with suppress(FileNotFoundError, NotADirectoryError):
        draft.unlink() if not draft.is_dir() else shutil.rmtree(draft)


def _reason(problem: OSError) -> str:
    return "the disk is full" if problem.errno == errno.ENOSPC else problem.strerror or type(problem).__name__


class JsonlRow(Struct, frozen=True, gc=False):
    """A row as it is written."""

    number: int
    chain: str
    seq: int
    hash: str
    event: Raw
    digest: str | UnsetType = UNSET
    values: bool | UnsetType = UNSET


def encode_row(row: Row) -> bytes:
    """Return a row as one line of JSON, with its end."""
    line = JsonlRow(
        row.number,
        row.chain,
        row.seq,
        row.hash.hex(),
        Raw(remove_line_breaks(msgspec.json.encode(row.event))),
        UNSET if row.digest is None else row.digest,
        UNSET if row.values else False,
    )
    return msgspec.json.encode(line) + b"\n"


def remove_line_breaks(text: bytes) -> bytes:
    """Return a JSON text without breaks; JSON allows them wherever it allows a blank."""
    return msgspec.json.format(text, indent=-1) if b"\n" in text or b"\r" in text else text


def encode_packets(rows: Iterable[Row]) -> Iterator[bytes]:
    """Yield the packets and records that were judged, each as it was, with the line's end."""
    for row in rows:
        if isinstance(row.event, PacketJudged) and row.event.judged:
            yield remove_line_breaks(bytes(row.event.line)) + b"\n"


def read_rows(ledger: Ledger, episodes: Iterable[EpisodeSummary] | None) -> Iterator[Row]:
    """Yield the rows of these episodes, one after the other; None: all rows of the ledger, the server's own too."""
    if episodes is None:
        yield from ledger.all_rows()
        return
    for each in episodes:
        yield from ledger.rows(each.chain)


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
