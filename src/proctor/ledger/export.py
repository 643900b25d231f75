"""Episodes for other programs: which, where they are written, and three of the forms: lines of JSON, Parquet, and a bundle.

Rule 1: an export appears whole or not at all: it is written beside its place under another name and moved there. Nothing is ever
    overwritten.
Rule 2: a package that only one format needs is imported when that format is written, never before.
Rule 3: a line of JSON says what the ledger says of its row, and no more: number, chain, seq, hash, event. `digest` is there where
    an observation is, and `"values": false` where its values were not kept.
Rule 4: of governed episodes the packets and records can be had alone, in the bytes in which they were judged, so that they
    can be judged again: `proctor ledger export LEDGER --packets | proctor judge -`.
Rule 5: a bundle is a ledger of one episode, which can be handed over, verified and replayed alone.
Rule 6: Parquet has steps, one row a step, in typed columns. A reset is step 0, without an action and a reward: the first
    observation belongs to what a learner needs. Actions and observations are JSON texts, as they crossed the wire. A step of a
    batch is one row, too: its rewards and flags are lists over the sub-environments, in the columns whose names are plural.
    What is missing is null: an observation of which only the digest was kept, a reward that was never given.
"""

import errno
import os
import secrets
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from importlib import import_module
from itertools import chain
from pathlib import Path
from types import UnionType
from typing import IO, Any, Final, TypeAlias

import msgspec
from msgspec import Raw, Struct

from proctor.errors import ComponentError, MissingExtraError, ValidationError
from proctor.ledger.chain import is_episode_chain
from proctor.ledger.reader import EpisodeSummary, Ledger, Row
from proctor.ledger.rows import decode_value, find_value_hashes
from proctor.ledger.storage.sqlite import BUNDLE_APPLICATION_ID, INSERT_BLOB, check_ascending, migrate, translate_errors
from proctor.models.control import MOST_ENVS
from proctor.models.events import BatchReset, BatchStepped, EpisodeReset, EpisodeStepped, PacketJudged

EXTRA: Final = "export"
PROGRESS_EVERY: Final = 256
Progress: TypeAlias = Callable[[int], object]
"""Is told how many more rows were read."""


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
        if draft.is_dir():
            # A look before the move, because a move would replace an empty folder.
            _check_free(path)
            draft.rename(path)
        else:
            os.link(draft, path)  # replaces nothing, whoever was quicker
    except FileExistsError:
        raise _already_there(path) from None
    except OSError as problem:
        reason = "the disk is full" if problem.errno == errno.ENOSPC else problem.strerror or type(problem).__name__
        raise ValidationError(
            f"cannot write {str(path)!r}: {reason}", expected="a new name in a folder that can be written to"
        ) from problem
    finally:
        with suppress(FileNotFoundError, NotADirectoryError):
            draft.unlink() if not draft.is_dir() else shutil.rmtree(draft)


def _check_free(path: Path) -> None:
    if os.path.lexists(path):
        raise _already_there(path)
    if not path.parent.is_dir():
        raise ValidationError(f"there is no folder {str(path.parent)!r}", expected="a folder to write to")


def _already_there(path: Path) -> ValidationError:
    return ValidationError(f"{str(path)!r} is there already", expected="a name that is free")


def encode_row(row: Row) -> bytes:
    """Return a row as one line of JSON, with its end."""
    event = Raw(remove_line_breaks(msgspec.json.encode(row.event)))
    line = {"number": row.number, "chain": row.chain, "seq": row.seq, "hash": row.hash.hex(), "event": event}
    if row.digest is not None:
        line["digest"] = row.digest
    if not row.values:
        line["values"] = False
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


ROWS_PER_GROUP: Final = 4096
MOST_GROUP_BYTES: Final = 2**26
MOST_ARRAY_BYTES: Final = 8 * MOST_ENVS


class ParquetRow(Struct, frozen=True, kw_only=True, gc=False):
    """A row of the file; `at` is in microseconds since 1970."""

    chain: str
    session: str
    epoch: int
    step: int
    at: int
    principal: str
    action: str | None = None
    observation: str | None
    digest: str | None
    reward: float | None = None
    raw_reward: float | None = None
    terminated: bool | None = None
    truncated: bool | None = None
    tool: str | None = None
    grant: str | None = None
    rewards: list[float] | None = None
    raw_rewards: list[float] | None = None
    terminations: list[bool] | None = None
    truncations: list[bool] | None = None


def write_parquet(
    ledger: Ledger, episodes: Iterable[EpisodeSummary], path: Path, more: Progress = ignore_progress
) -> int:
    """Write the steps of these episodes to a new file and return how many rows that was."""
    arrow = import_extra("pyarrow", "an export to Parquet")
    parquet = import_extra("pyarrow.parquet", "an export to Parquet")
    schema = _schema(arrow)
    written = 0
    steps = chain.from_iterable(convert_steps(report_progress(ledger.rows(each.chain), more)) for each in episodes)
    with new_file(path) as file, parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        while group := _read_group(steps):
            rows = [msgspec.structs.asdict(step) for step in group]
            writer.write_table(arrow.Table.from_pylist(rows, schema=schema))
            written += len(group)
    return written


def _read_group(steps: Iterator[ParquetRow]) -> list[ParquetRow]:
    group: list[ParquetRow] = []
    size = 0
    for row in steps:
        group.append(row)
        size += len(row.observation or "") + len(row.action or "")
        if len(group) == ROWS_PER_GROUP or size > MOST_GROUP_BYTES:
            break
    return group


_STEP_COLUMNS: Final = ("reward", "raw_reward", "terminated", "truncated", "tool", "grant")
_ARRAY_COLUMNS: Final = ("rewards", "raw_rewards", "terminations", "truncations")


def convert_steps(rows: Iterable[Row]) -> Iterator[ParquetRow]:
    """Yield the resets and steps among these rows."""
    for row in rows:
        match row.event:
            case EpisodeReset() as event:
                yield _make_row(row, event, 0, event.observation)
            case EpisodeStepped() as event:
                said = {name: getattr(event, name) for name in _STEP_COLUMNS}
                yield _make_row(row, event, event.step, event.observation, action=_text(event.action), **said)
            case BatchReset() as event:
                yield _make_row(row, event, 0, event.observations)
            case BatchStepped() as event:
                said = {name: _parse_array(getattr(event, name)) for name in _ARRAY_COLUMNS}
                yield _make_row(row, event, event.step, event.observations, action=_text(event.actions), **said)


def _make_row(
    row: Row, event: EpisodeReset | EpisodeStepped | BatchReset | BatchStepped, step: int, observation: Raw, **rest: Any
) -> ParquetRow:
    return ParquetRow(
        chain=row.chain,
        session=event.session,
        epoch=event.epoch,
        step=step,
        at=round(event.at * 1e6),
        principal=event.principal,
        observation=_text(observation) if row.values else None,
        digest=row.digest,
        **rest,
    )


def _text(value: Raw) -> str:
    return bytes(value).decode()


def _parse_array(value: Raw) -> list[Any]:
    """Return an array over the sub-environments as a list, whichever way it was written."""
    said = decode_value(value)
    if isinstance(said, dict):
        # Only a packed array needs numpy.
        from proctor.models.arrays import unpack_array

        said = unpack_array(said, most=MOST_ARRAY_BYTES).tolist()
    return list(said)


def _schema(arrow: Any) -> Any:
    kinds = {
        str: arrow.string(),
        int: arrow.int64(),
        float: arrow.float64(),
        bool: arrow.bool_(),
        list[float]: arrow.list_(arrow.float64()),
        list[bool]: arrow.list_(arrow.bool_()),
    }
    columns = []
    for field in msgspec.structs.fields(ParquetRow):
        optional = isinstance(field.type, UnionType)
        held = field.type.__args__[0] if optional else field.type
        kind = arrow.timestamp("us", tz="UTC") if field.name == "at" else kinds[held]
        columns.append(arrow.field(field.name, kind, nullable=optional))
    return arrow.schema(columns)


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
        connection.executemany("INSERT INTO rows (number, chain, seq, body, hash) VALUES (?, ?, ?, ?, ?)", stored)
        numbers = {each[0] for each in stored}
        seals = file.connection.execute(
            "SELECT number, key, signature FROM seals WHERE number BETWEEN ? AND ? ORDER BY number",
            (found.first, stored[-1][0]),
        )
        connection.executemany(
            "INSERT INTO seals (number, key, signature) VALUES (?, ?, ?)",
            [seal for seal in check_ascending(seals) if seal[0] in numbers],
        )
        select = "SELECT digest, packed, sum, content FROM blobs WHERE digest = ?"
        for digest in sorted({digest for each in stored for digest in find_value_hashes(each[3])}):
            connection.executemany(INSERT_BLOB, file.connection.execute(select, (digest,)))
        connection.execute("COMMIT")


@contextmanager
def _new_bundle(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a connection to an empty ledger that appears at `path` when the block ends well, and not at all if it does not."""
    with _draft(path) as draft, translate_errors(path, ComponentError):
        os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
            # One file, and no log beside it: it goes by post.
            connection.execute("PRAGMA journal_mode = DELETE")
            migrate(connection, path, mark=BUNDLE_APPLICATION_ID)
            yield connection
