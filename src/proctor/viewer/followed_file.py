"""One file of a ledger that is followed: its episodes' lines, and its rows by number.

Rule 1: no row is read twice for a line: chains that the server ended say in four rows what they came to, and open ones are
    folded on from the last row that was read.
Rule 2: a file is opened again when somebody begins to write it, and read anew when it is another file than before.
Rule 3: reading changes nothing, asks for no lock, and takes no longer than what is new.
Rule 4: no more than about `AT_ONCE_BYTES` of rows are held at a time, whatever the file says.
"""

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec import UNSET

from proctor.episode.transition_table import ProtocolState
from proctor.errors import ValidationError
from proctor.ledger.chain import SERVER_PREFIX, is_episode_chain
from proctor.ledger.reader import EpisodeSummary, SummaryBuilder, build_summaries, parse_optional_statement
from proctor.ledger.rows import (
    ChainEnded,
    ObservationStorage,
    RunBegan,
    RunEnded,
    Tombstone,
    find_observation_storage,
    parse_partial_row,
)
from proctor.ledger.storage import sqlite
from proctor.ledger.storage.ledger_file import BODY, COLUMNS, HASH, ChainEntry, LedgerFile, Row, StoredRow
from proctor.ledger.storage.lock import has_writer
from proctor.viewer.documents import EpisodeLine

FRESH_SECONDS: Final = 60.0
"""An open episode that was written so lately is live, if it cannot be seen who writes it."""
AT_ONCE: Final = 10_000
"""So many rows are read with one statement, so that a log beside the file is not held for long."""
AT_ONCE_BYTES: Final = 2**24
"""Of so many bytes of rows, too."""
LOOKED_UP: Final = 500
"""So many values are."""
WORK_EACH: Final = 100_000
"""After so many instructions SQLite asks whether it may go on."""
WORK_AT_LEAST: Final = 100
"""So often it may, besides once for so many bytes of the file: a row has more bytes than instructions are needed to look at it."""

MOST_BODY: Final = 2**23
"""Bytes of a row that a page can show. Values that are stored apart are larger."""

_NEW: Final = f"SELECT {COLUMNS} FROM rows WHERE number > :after ORDER BY number LIMIT :most"
_IN_CHAIN: Final = f"SELECT number, seq, {BODY} FROM rows WHERE number > :after AND number <= :upto AND chain = :first ORDER BY number LIMIT :most"
_BACKWARDS: Final = (
    f"SELECT {BODY} FROM rows WHERE number BETWEEN :first AND :upto AND chain = :first ORDER BY number DESC"
)
_LATEST: Final = f"SELECT number, {HASH} FROM rows ORDER BY number DESC LIMIT 1"
_STEPPED: Final = {"step": b'"event":"episode_stepped"', "batch": b'"event":"batch_stepped"'}
_STEPS: Final = (
    "SELECT count(*) FROM rows WHERE number > :after AND number <= :upto AND chain = :first AND typeof(body) = 'blob' AND length(body) <= :most_body"
    " AND (instr(substr(body, 1, 200), :step) OR instr(substr(body, 1, 200), :batch))"
)
"""What an event is called stands at its beginning."""
_VALUES: Final = (
    "SELECT digest, packed, sum, content FROM blobs WHERE typeof(content) = 'blob' AND length(content) <= ?"
)
_HASH: Final = re.compile(r"[0-9a-f]{64}")

LOST: Final = "lost"
OPEN: Final = "open"
EXACT: Final = 2**53
"""The integers up to here are the same in a browser."""
_SAME: Final = tuple(name for name in EpisodeLine.__struct_fields__ if name in EpisodeSummary.__annotations__)
"""What a line says as the ledger's own list does, unless it is said below."""


def build_line(fold: SummaryBuilder, path: Path, chain: ChainEntry, *, live: bool) -> EpisodeLine:
    """Return the line of a chain in the file at `path`; it is live as long as it is open and somebody writes to its file."""
    told = fold.summary(path, chain)
    end = "terminated" if told.terminated else "truncated" if told.truncated else None
    state = end or ("ready" if told.reason == "" else "closed")
    if told.governed:
        state = told.state or ProtocolState.IDLE
    if fold.totals.lost or told.reason == LOST:
        state = LOST
    own: dict[str, Any] = {
        "state": state,
        "outcome": told.outcome or OPEN if told.governed else end,
        "last_at": max(fold.at, told.opened_at),
        "live": live and chain.last is None,
        "seed": str(told.seed) if told.seed is not None and told.seed > EXACT else told.seed,
        "last": fold.number,
    }
    return EpisodeLine(**{name: getattr(told, name) for name in _SAME} | own)


class _OpenChain(NamedTuple):
    """A chain that may still grow, and what was gathered of it."""

    chain: ChainEntry
    fold: SummaryBuilder


class FollowedFile:
    """The file at `path`; `wall` is the time in seconds since 1970."""

    def __init__(self, path: Path, wall: Callable[[], float]) -> None:
        self.path: Final = path
        self.lines: dict[str, EpisodeLine] = {}
        self.chains: dict[str, ChainEntry] = {}
        """The episodes' chains, by name."""
        self.news: dict[str, None] = {}
        """The names of the lines that have changed since somebody took them."""
        self.missing_chains: dict[str, None] = {}
        """The names of those that were there and are not any more, since somebody took them."""
        self._wall = wall
        self._file: LedgerFile | None = None
        self._stamp: tuple[object, ...] = ()
        self._mark: tuple[int, bytes] = (0, b"")
        """Number and hash of the last row that was read."""
        self._open: dict[int, _OpenChain] = {}
        self._servers: set[int] = set()
        self._touched: dict[int, None] = {}
        """The open chains that have grown, and whose lines do not say so yet."""
        self._counted: dict[int, tuple[int, int]] = {}
        """How many steps batches had up to a row, the last that was asked for: the first rows of their chains, number and count."""
        self._running = False
        """Whether the last run of a server has not said that it ended."""

    @property
    def file(self) -> LedgerFile:
        """The file, open for reading."""
        if self._file is None:
            raise ValidationError(f"the ledger {self.path} is closed")
        return self._file

    def close(self) -> None:
        """Let go of the file; calling it again does nothing."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def catch_up(self) -> None:
        """Read what is new; a ValidationError if the file cannot be read, which the next time may mend."""
        try:
            self._open_current()
            self._read_new_rows()
        except ValidationError:
            self._stamp = ()
            raise
        self._check_writer()

    # ------------------------------------------------------------------------------------------------------ the file
    def _open_current(self) -> None:
        seen = sqlite.file_fingerprint(self.path)
        if self._file is not None and seen == self._stamp:
            return
        self.close()
        self._file = LedgerFile(self.path, most_body=MOST_BODY)
        self._stamp = seen
        number, row_hash = self._mark
        last = self._file.read_row(number) if number else None
        if last is None or last[4] != row_hash:
            self._begin(self._file)

    def _begin(self, file: LedgerFile) -> None:
        self._mark = (0, b"")
        self._counted.clear()
        self.missing_chains |= dict.fromkeys(self.lines)
        self.lines.clear()
        self.chains.clear()
        self._open.clear()
        self._touched.clear()
        with sqlite.translate_errors(self.path, ValidationError):
            file.connection.execute("BEGIN")
            try:
                found = file.connection.execute(_LATEST).fetchone()
                chains = file.chains()
                episodes = [chain for chain in chains if is_episode_chain(chain.name)]
                gathered = build_summaries(file, episodes)
            finally:
                file.connection.execute("ROLLBACK")
        servers = [chain for chain in chains if chain.name.startswith(SERVER_PREFIX)]
        self._servers = {chain.first for chain in chains if not is_episode_chain(chain.name)}
        self._running = bool(servers) and servers[-1].last is None
        for chain in episodes:
            fold = gathered[chain.first]
            if chain.last is None:
                self._open[chain.first] = _OpenChain(chain, fold)
            self._update_line(chain, fold, live=False)
        # At last, for what could not be read as a whole is read anew.
        self._mark = (0, b"") if found is None else (found[0], found[1])

    def _update_line(self, chain: ChainEntry, fold: SummaryBuilder, *, live: bool) -> None:
        self.chains[chain.name] = chain
        self.lines[chain.name] = build_line(fold, self.path, chain, live=live)
        self.news[chain.name] = None
        self.missing_chains.pop(chain.name, None)

    # ---------------------------------------------------------------------------------------------------- what is new
    def _read_new_rows(self) -> None:
        for stored in sqlite.check_ascending(self._new_rows()):
            first = stored[1]
            if first not in self._open and first not in self._servers:
                self._start_chain(first)
            if first in self._open:
                self._open[first].fold.add_row(stored)
                self._touched[first] = None
            else:
                self._apply_server_row(stored[3])
            self._mark = (stored[0], stored[4])
        for each in (self._open[first] for first in self._touched if first in self._open):
            told = self.lines.get(each.chain.name)
            self._update_line(each.chain, each.fold, live=told is not None and told.live)
        self._touched.clear()

    def _new_rows(self) -> Iterator[StoredRow]:
        is_cut = True
        while is_cut:
            with sqlite.translate_errors(self.path, ValidationError):
                found, is_cut = _fetch(self._execute(_NEW, after=self._mark[0], most=AT_ONCE), AT_ONCE, body=3)
            yield from found

    def _start_chain(self, first: int) -> None:
        with sqlite.translate_errors(self.path, ValidationError):
            found = self.file.connection.execute("SELECT name FROM chains WHERE first = ?", (first,)).fetchone()
        if found is not None and is_episode_chain(found[0]):
            chain = self.chains[found[0]] = ChainEntry(first, found[0], None)
            self._open[first] = _OpenChain(chain, SummaryBuilder())
        else:
            self._servers.add(first)

    def _apply_server_row(self, body: bytes) -> None:
        match parse_optional_statement(body):
            case ChainEnded(chain=name) if name in self.chains:
                ended = self._open.pop(self.chains[name].first, None)
                if ended is not None:
                    self._update_line(replace(ended.chain, last=ended.fold.number), ended.fold, live=False)
            case Tombstone(chain=name):
                self.chains.pop(name, None)
                if self.lines.pop(name, None) is not None:
                    self.missing_chains[name] = None
            case RunBegan():
                self._running = True
            case RunEnded():
                self._running = False

    def _check_writer(self) -> None:
        held = has_writer(self.path) if self._running and self._open else False
        now = self._wall()
        for each in self._open.values():
            fresh = now - each.fold.at < FRESH_SECONDS
            live = fresh if held is None else held
            if live is not self.lines[each.chain.name].live:
                self._update_line(each.chain, each.fold, live=live)

    # -------------------------------------------------------------------------------------------------- rows and values
    def rows(self, chain: ChainEntry, after: int, upto: int, most: int) -> tuple[list[tuple[int, int, bytes]], bool]:
        """Return number, place and body of the first `most` rows of a chain with `after < number <= upto`.

        There are fewer where they are large. The flag says whether there may be more of them.
        """
        after = max(after, chain.first - 1)
        with self._limit_work():
            found = self._execute(_IN_CHAIN, after=after, upto=upto, first=chain.first, most=most)
            return _fetch(found, most, body=2)

    def opening(self, chain: ChainEntry) -> list[Row]:
        """Return what can be read of the two rows that a chain begins with: the session's opening and the reset."""
        rows: list[Row] = []
        for stored in (self.file.read_row(chain.first), self.file.read_row(chain.first + 1)):
            if stored is not None and stored[1] == chain.first:
                with suppress(ValidationError):
                    rows.append(self.file.row(chain.name, stored))
        return rows

    def keeps(self, chain: ChainEntry) -> ObservationStorage:
        """Return how a chain keeps observations."""
        first = self.file.read_row(chain.first)
        return "all" if first is None else find_observation_storage(first[3])

    def steps_between(self, chain: ChainEntry, after: int, upto: int) -> int:
        """Return how many steps of a chain have rows with `after < number <= upto`."""
        after = max(after, chain.first - 1)
        with self._limit_work():
            (found,) = self._execute(_STEPS, after=after, upto=upto, first=chain.first, **_STEPPED).fetchone()
        return int(found)

    def step_before(self, chain: ChainEntry, number: int) -> int:
        """Return at which step a chain stands at the row of this number."""
        if self.lines[chain.name].num_envs is not None:
            known, count = self._counted.get(chain.first, (0, 0))
            if known > number:
                known, count = 0, 0
            count += self.steps_between(chain, known, number)
            self._counted[chain.first] = (number, count)
            return count
        with self._limit_work():
            for (body,) in self._execute(_BACKWARDS, first=chain.first, upto=number):
                step = _read_step(body)
                if step is not None:
                    return step
        return 0

    def values(self, digests: Iterable[str], most: int) -> dict[str, bytes | None]:
        """Return the stored values with these hashes, without those that are not there or longer than `most`.

        One that is not as it was written is None.
        """
        wanted = [bytes.fromhex(digest) for digest in {*digests} if _HASH.fullmatch(digest)]
        found: dict[str, bytes | None] = {}
        for place in range(0, len(wanted), LOOKED_UP):
            part = wanted[place : place + LOOKED_UP]
            statement = f"{_VALUES} AND digest IN ({','.join('?' * len(part))})"
            with sqlite.translate_errors(self.path, ValidationError):
                blobs: list[sqlite.BlobRow] = self.file.connection.execute(statement, (most, *part)).fetchall()
            for blob in blobs:
                try:
                    found[blob[0].hex()] = sqlite.decode_blob(*blob, most)
                except sqlite.ValueTooLarge:
                    continue
                except ValidationError:
                    found[blob[0].hex()] = None
        return found

    def _execute(self, statement: str, **asked: object) -> sqlite3.Cursor:
        return self.file.connection.execute(statement, {**asked, "most_body": self.file.most_body})

    @contextmanager
    def _limit_work(self) -> Iterator[None]:
        """Have SQLite leave off after more work than the file has bytes: in a damaged tree it would look for rows without end."""
        connection = self.file.connection
        # New rows wait in the log beside the file.
        log = self.path.resolve().with_name(f"{self.path.resolve().name}-wal")
        with sqlite.translate_errors(self.path, ValidationError):
            size = self.path.stat().st_size + (log.stat().st_size if log.exists() else 0)
            left = iter(range(size // WORK_EACH + WORK_AT_LEAST))
            connection.set_progress_handler(lambda: next(left, None) is None, WORK_EACH)
            try:
                yield
            finally:
                connection.set_progress_handler(None, 0)


def _fetch(rows: sqlite3.Cursor, most: int, *, body: int) -> tuple[list[Any], bool]:
    """Return the rows up to `AT_ONCE_BYTES` of the column `body`, and whether there may be more; `most` were asked for.

    The cursor is closed, so that it holds no log.
    """
    found: list[Any] = []
    size = 0
    with closing(rows):
        for row in rows:
            found.append(row)
            size += len(row[body])
            if size >= AT_ONCE_BYTES:
                return found, True
    return found, len(found) == most


_WITH_STEP: Final = frozenset({"episode_stepped", "batch_stepped", "packet_judged", "failed", "session_resumed"})


def _read_step(body: bytes) -> int | None:
    try:
        event = parse_partial_row(body).event
    except (ValidationError, TypeError):
        return None
    return None if event is UNSET or event.event not in _WITH_STEP else event.step
