"""Walks one file from end to end, and finds what is not as it was written; what does not hold is a `LedgerFinding`.

Rule 1: every column of every table is held against something: a hash, a signature, or what is derived again from the rows.
Rule 2: nothing that a file holds makes the walk raise.
Rule 3: a file that says so is a bundle: one episode, whole, whose numbers have gaps. Every other has a server's chain.
Rule 4: a signed run seals what it ends, and its own first row. Where a key is given, what is closed is sealed by that key.
Rule 5: rows of open chains that no seal and no head covers are gathered in `unsealed`. Whether they are a finding depends on whether
    a server is writing, which is not known here. Rows after the end of a chain are a finding always: no server writes any.
Rule 6: how much memory and time the walk takes depends on the size of the file, whatever the file says.
Rule 7: a chain that is spoken of is there as it is spoken of, or has a tombstone that says the same. It has no row after the one at
    which a server's chain said that it ends.
"""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import UNSET

from proctor.errors import ValidationError
from proctor.ledger.chain import (
    PRUNED_PREFIX,
    SERVER_PREFIX,
    TERMINATED,
    TRUNCATED,
    ChainWalk,
    Head,
    count_event,
    format_head,
    is_episode_chain,
    parse_head,
    seal_message,
)
from proctor.ledger.keys import verify_signature
from proctor.ledger.rows import (
    SEAL_EVERY,
    ChainEnded,
    ChainOpened,
    LedgerStatement,
    PartialEvent,
    PartialRow,
    RunBegan,
    RunEnded,
    Tombstone,
    parse_partial_row,
    parse_statement,
)
from proctor.ledger.storage.sqlite import (
    SQLITE_ERRORS,
    SUFFIX,
    check_ascending,
    decompress_pieces,
    has_tables,
    is_bundle,
)
from proctor.models.events import NULL

ReportProgress: TypeAlias = Callable[[int, int], None]

PROGRESS_EVERY: Final = 5000
MAX_LISTED: Final = 20
_WORKER_PREFIX: Final = "worker-"
_DOUBLE_REFERENCE: Final = "2nd reference to page"
"""How SQLite begins to say that a page is part of two things."""
_COLUMN_TYPES: Final = (int, int, int, bytes, bytes)


@dataclass(frozen=True, slots=True)
class LedgerFinding:
    """One thing that is wrong, and where, as far as it is known."""

    file: Path
    chain: str | None
    seq: int | None
    number: int | None
    what: str

    def __str__(self) -> str:
        row = "" if self.number is None else f" row {self.number}"
        place = self.chain if self.seq is None else f"{self.chain}, {self.seq}"
        return f"{self.file.name}:{row}{'' if self.chain is None else f' ({place})'}: {self.what}"


@dataclass(frozen=True, slots=True)
class UnsealedRows:
    """The rows of an open chain for which no seal and no head speaks."""

    file: Path
    chain: str
    seq: int
    """Of the first of them."""
    rows: int
    """0: all of a server's run are sealed, and its end is missing."""

    def to_finding(self) -> LedgerFinding:
        """Return what they are if no server writes to the file."""
        if self.rows == 0:
            what = "the run of the server has no end: it was killed, or its end was dropped"
        elif self.seq == 0:
            what = f"no row of the chain is sealed, so that nothing proves its {format_row_count(self.rows)}"
        else:
            what = f"{format_row_count(self.rows)} after the last seal of the chain, which nothing proves"
        return LedgerFinding(self.file, self.chain, None, None, f"{what}; no server is seen writing to the file")


def format_row_count(rows: int) -> str:
    """Return a number of rows in words."""
    return "1 row" if rows == 1 else f"{rows} rows"


AddFinding: TypeAlias = Callable[[str, str | None, int | None, int | None], None]
"""Takes a finding: what, chain, seq, number."""


class StatementChecker:
    """Hears the ledger's own statements in the order of their numbers."""

    def __init__(self, links: dict[str, ChainWalk], public: bytes | None, note: AddFinding) -> None:
        self.key: bytes | None = None
        self.tombstones: dict[str, Tombstone] = {}
        self.runs: set[tuple[str, int]] = set()
        self._chain_walks = links
        self._public = public
        self._add_finding = note
        self._missing_heads: dict[str, tuple[int, Head]] = {}
        """Of chains that are not there: the row that spoke last of each, and what it said."""
        self._run: ChainWalk | None = None

    def check_statement(self, walk: ChainWalk, number: int, own: LedgerStatement) -> None:
        """Hold a statement in the chain `walk` against the chains as they are at its row."""
        if walk.name.startswith(PRUNED_PREFIX) != isinstance(own, Tombstone) or is_episode_chain(walk.name):
            self._add_finding("a statement that does not belong into this chain", walk.name, walk.seq, number)
        match own:
            case RunBegan():
                self._check_run_start(walk, number, own)
            case RunEnded():
                walk.ended = True
                walk.set_end(number)
                for each in self._chain_walks.values():
                    if each.seq >= 0 and not each.ended and is_episode_chain(each.name):
                        self.expect_seal(each)
            case ChainOpened():
                opened = self._check_head(number, own.head)
                if opened is not None:
                    opened.named = True
            case ChainEnded():
                self._check_chain_end(number, own)
            case Tombstone():
                self.tombstones[own.chain] = own

    def _check_run_start(self, walk: ChainWalk, number: int, own: RunBegan) -> None:
        before = self._run
        if before is not None:
            if own.previous != format_head(before.name, before.seq + 1, before.hash):
                what = f"the end of the run before is missing: {own.previous}"
                self._add_finding(what, before.name, before.seq, before.number)
            before.followed = True  # its end is said by a row that a signed run seals
            before.set_end(number)
        self._run = walk
        self.runs.add((own.boot, own.worker))
        self.key = walk.key = None if own.public is None else bytes.fromhex(own.public)
        if self._public is not None and self.key != self._public:
            said = "nobody" if own.public is None else f"another key, {own.public}"
            self._add_finding(f"this run of the server is signed by {said}", walk.name, walk.seq, number)

    def _check_chain_end(self, number: int, own: ChainEnded) -> None:
        walk = self._check_head(number, own.head)
        if walk is None:
            return
        walk.ended = True
        walk.set_end(number)
        self.expect_seal(walk)
        totals, place = walk.totals, (walk.name, walk.seq, walk.number)
        ended = (bool(totals.ended & TERMINATED), bool(totals.ended & TRUNCATED))
        if (totals.steps, totals.finite, *ended) != (own.steps, own.total_reward, own.terminated, own.truncated):
            self._add_finding("what the server says of its steps and rewards is another", *place)
        said = (own.refusals, own.agents, own.state)
        # A writer of an earlier version said none of the three; one that says some says all.
        if said != (None, None, None) and said != (totals.refusals, list(totals.agents), totals.state):
            self._add_finding("what the server says of its agents and refusals is another", *place)

    def _check_head(self, number: int, text: str) -> ChainWalk | None:
        """Return the chain that a head is of, after a look at whether it stands there; None: there is none."""
        head = parse_head(text)
        walk = self._chain_walks.get(head.chain)
        if walk is None or walk.seq < 0:
            self._missing_heads[head.chain] = (number, head)
        elif walk.seq + 1 < head.rows:
            self._add_finding(
                f"the rows {walk.seq + 1} to {head.rows - 1} of the chain are missing", walk.name, walk.seq + 1, number
            )
        elif (walk.seq + 1, walk.hash) != (head.rows, head.hash):
            self._add_finding(f"row {number} says another head of the chain: {text}", walk.name, walk.seq, walk.number)
        return walk

    def expect_seal(self, walk: ChainWalk) -> None:
        """Note that the last row of a chain should have been sealed, if it is not."""
        if self.key is not None and walk.sealed != walk.seq:
            walk.lacks_seal = True
            self._add_finding("its seal is missing", walk.name, walk.seq, walk.number)

    def check_missing_chains(self) -> None:
        """Look for tombstones of the chains that were spoken of and are not there."""
        for chain, (number, head) in self._missing_heads.items():
            stone = self.tombstones.get(chain)
            if stone is None:
                self._add_finding(f"the chain is missing, of which row {number} speaks: {head}", chain, None, None)
            elif stone.head != str(head):
                self._add_finding(f"its tombstone says another head than row {number}: {head}", chain, None, None)
        for chain in self.tombstones.keys() & self._chain_walks.keys():
            self._add_finding("the chain is there, and has a tombstone", chain, None, None)


class FileAudit:
    """What is found in one file, and what was looked at."""

    def __init__(self, path: Path, wanted: list[Head], public: bytes | None) -> None:
        self.path: Final = path
        self.findings: list[LedgerFinding] = []
        self.rows = 0
        self.seals = 0
        self.found_heads: set[Head] = set()
        """The heads that were wanted and are here, as they should be or not."""
        self.chain_walks: dict[int, ChainWalk] = {}
        self.statements = StatementChecker({}, public, self.add_finding)
        self._public = public
        self._wanted: dict[tuple[str, int], list[Head]] = {}
        for head in wanted:
            self._wanted.setdefault((head.chain, head.rows - 1), []).append(head)
        self._seals: dict[int, tuple[bytes, bytes]] = {}
        """Seals by the number of their row, of the rows that are still to come."""
        self.keys: set[bytes] = set()
        self.unsealed: list[UnsealedRows] = []
        self._blobs: set[bytes] = set()
        self._gaps: list[range] = []
        self.bundle = False
        self.live = False

    def add_finding(
        self, what: str, chain: str | None = None, seq: int | None = None, number: int | None = None
    ) -> None:
        """Add a finding."""
        self.findings.append(LedgerFinding(self.path, chain, seq, number, what))

    def run(self, connection: sqlite3.Connection, tell: ReportProgress | None) -> None:
        """Look at everything in the file, as it is at one moment."""
        self._connection = connection
        # A name that was changed is no reason to stop.
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        try:
            connection.execute("BEGIN")
            if self._has_structure():
                self._load_tables()
                self._check_rows(tell)
                self._check_ends()
        except (*SQLITE_ERRORS, ValidationError) as problem:
            self.add_finding(f"the file cannot be read: {problem}")

    def _has_structure(self) -> bool:
        """Return whether the file has the tables of a ledger, each once: only then its rows are looked at.

        Other tables can be anything, such as views whose queries never end, and a page that is reached on two ways can be
        reached on millions.
        """
        if not has_tables(self._connection):
            self.add_finding("the tables of the file are not those of a ledger")
            return False
        self.bundle = is_bundle(self._connection)
        # Some texts that SQLite says are of several lines.
        said = [text for (text,) in self._connection.execute(f"PRAGMA integrity_check({MAX_LISTED})") if text != "ok"]
        for problem in said:
            self.add_finding(f"the file is damaged: {problem}")
        return not any(_DOUBLE_REFERENCE in problem for problem in said)

    def _load_tables(self) -> None:
        names: dict[str, ChainWalk] = {}
        chains = self._connection.execute("SELECT first, name, last FROM chains ORDER BY first")
        for first, name, last in check_ascending(chains):
            if type(name) is str and isinstance(last, int | None):
                self.chain_walks[first] = names[name] = ChainWalk(first, name, last)
            else:
                what = "the table of chains is damaged: a name or an end is of another kind"
                self.add_finding(what, None, None, first)
        seals = self._connection.execute("SELECT number, key, signature FROM seals ORDER BY number")
        for number, key, signature in check_ascending(seals):
            if type(key) is bytes is type(signature):
                self._seals[number] = (key, signature)
            else:
                self.add_finding("its seal is not good: a key or a signature is of another kind", None, None, number)
        self.seals = len(self._seals)
        self.statements = StatementChecker(names, self._public, self.add_finding)
        if self.bundle:
            self._check_bundle(names)
        elif names and not any(name.startswith(SERVER_PREFIX) for name in names):
            self.add_finding("the server's chain is missing: only a bundle has none")

    def _check_bundle(self, names: dict[str, ChainWalk]) -> None:
        if len(names) != 1 or not all(map(is_episode_chain, names)):
            self.add_finding("a bundle has one episode, and nothing else")
        if self.path.name.startswith(_WORKER_PREFIX) and self.path.suffix == SUFFIX:
            self.add_finding("a worker's file says that it is a bundle: the server's chain is missing")
        if self._seals or self._public is not None:
            self.statements.key = next(iter(self._seals.values()))[0] if self._public is None else self._public

    def _check_rows(self, tell: ReportProgress | None) -> None:
        (total,) = self._connection.execute("SELECT max(number) FROM rows").fetchone()
        before = 0
        rows = self._connection.execute("SELECT number, chain, seq, body, hash FROM rows ORDER BY number")
        for row in check_ascending(rows):
            number = row[0]
            if number != before + 1:
                self._gaps.append(range(before + 1, number))
            before = number
            self.rows += 1
            if tell is not None and self.rows % PROGRESS_EVERY == 0:
                tell(number, total)
            self._check_row(*row)

    def _check_row(self, number: int, first: int, seq: int, body: bytes, stored: bytes) -> None:
        walk = self.chain_walks.get(first)
        if (type(number), type(first), type(seq), type(body), type(stored)) != _COLUMN_TYPES or seq < 0 or number < 0:
            name = None if walk is None else walk.name
            self.add_finding("not as it was written: its columns are of other kinds", name, None, number)
        elif walk is None:
            self.add_finding("in a chain that is not there", None, seq, number)
        else:
            problem = walk.check_row(number, seq, body, stored)
            if problem:
                self.add_finding(problem, walk.name, seq, number)
            self._check_body(walk, number, body, quiet=bool(problem))
            self._check_row_seal(walk, number, stored)
            self._check_heads(walk, stored)

    def _check_body(self, walk: ChainWalk, number: int, body: bytes, *, quiet: bool) -> None:
        """Look at what a row says; one that was changed need not make sense."""
        try:
            partial_row = parse_partial_row(body)
            if partial_row.observations is not None:
                walk.keeps = partial_row.observations
            if partial_row.own is not UNSET:
                self.statements.check_statement(walk, number, parse_statement(partial_row.own))
            elif partial_row.event is not UNSET:
                self._check_event(walk, partial_row, partial_row.event)
        except ValueError as problem:  # a ValidationError, or digits that are none
            if not quiet:
                self.add_finding(str(problem), walk.name, walk.seq, number)

    def _check_event(self, walk: ChainWalk, partial_row: PartialRow, event: PartialEvent) -> None:
        walk.totals = count_event(walk.totals, event)
        walk.closed = event.event == "episode_closed"
        if walk.closed and is_episode_chain(walk.name):
            walk.set_end(walk.number)
        value, digest = event.observations if event.observation is UNSET else event.observation, partial_row.digest
        if value is not UNSET and sha256(value).hexdigest() != digest:
            # It is elsewhere, or it is another.
            if value != NULL or digest is None:
                raise ValidationError("its observation has another hash than it says")
            if walk.keeps == "all":
                self._check_value(bytes.fromhex(digest))
        if partial_row.scene is not None and walk.keeps == "all":
            self._check_value(bytes.fromhex(partial_row.scene))

    def _check_value(self, digest: bytes) -> None:
        if digest in self._blobs:
            return
        self._blobs.add(digest)
        select = "SELECT packed, sum, content FROM blobs WHERE digest = ?"
        found = self._connection.execute(select, (digest,)).fetchone()
        if found is None:
            raise ValidationError(f"a value that it names is missing: {digest.hex()}")
        hashed = sha256()
        for piece in decompress_pieces(*found):
            hashed.update(piece)
        if hashed.digest() != digest:
            raise ValidationError(f"a value that it names is not as it was written: {digest.hex()}")

    def _check_row_seal(self, walk: ChainWalk, number: int, stored: bytes) -> None:
        mark = self._seals.pop(number, None)
        if mark is not None:
            walk.sealed = walk.proved = walk.seq
            self.keys.add(mark[0])
            self._check_seal(walk, number, stored, *mark)
        elif walk.seq % SEAL_EVERY == SEAL_EVERY - 1 or (walk.seq == 0 and walk.name.startswith(SERVER_PREFIX)):
            # A signed run seals such a row, whatever comes after it.
            self.statements.expect_seal(walk)

    def _check_seal(self, walk: ChainWalk, number: int, stored: bytes, key: bytes, signature: bytes) -> None:
        if self._public is not None and key != self._public:
            self.add_finding("sealed by another key than the one that was given", walk.name, walk.seq, number)
        elif key != self.statements.key and not walk.name.startswith(PRUNED_PREFIX):
            self.add_finding("sealed by another key than that of the run of the server", walk.name, walk.seq, number)
        if not verify_signature(key, seal_message(walk.name, walk.seq, stored), signature):
            self.add_finding("its seal is not good", walk.name, walk.seq, number)

    def _check_heads(self, walk: ChainWalk, stored: bytes) -> None:
        for head in self._wanted.get((walk.name, walk.seq), ()):
            self.found_heads.add(head)
            if head.hash == stored:
                walk.proved = walk.seq
            else:
                self.add_finding(f"another row than the head says: {head}", walk.name, walk.seq, walk.number)

    def _check_ends(self) -> None:
        for walk in self.chain_walks.values():
            self._check_chain_end(walk)
        for number in self._seals:
            self.add_finding("the seal of a row that is not there", None, None, number)
        self.statements.check_missing_chains()
        pruned = sum(stone.rows for stone in self.statements.tombstones.values())
        if not self.bundle and sum(map(len, self._gaps)) != pruned:
            for gap in filter(len, self._gaps[:MAX_LISTED]):
                what = f"rows are missing: the numbers {gap.start} to {gap.stop - 1}"
                self.add_finding(what, None, None, gap.start)
        (count,) = self._connection.execute("SELECT count(*) FROM blobs").fetchone()
        if count != len(self._blobs):
            stored = (digest for (digest,) in self._connection.execute("SELECT digest FROM blobs"))
            for digest in [each for each in stored if each not in self._blobs][:MAX_LISTED]:
                self.add_finding(f"a value that no row names: {digest!r}")

    def _check_chain_end(self, walk: ChainWalk) -> None:
        if walk.seq < 0:
            self.add_finding("a chain without rows", walk.name, None, walk.first)
            return
        if walk.end is not None and walk.seq > walk.end[0]:
            rows, number = walk.seq - walk.end[0], walk.end[1]
            what = f"{format_row_count(rows)} after the end of the chain, which row {number} states"
            self.add_finding(what, walk.name, walk.end[0] + 1, walk.late)
        ended = walk.ended or self.bundle or walk.name.startswith(PRUNED_PREFIX)
        if walk.last != (walk.number if ended else None):
            said = "open" if walk.last is None else f"row {walk.last}"
            self.add_finding(f"the table of chains says another end: {said}", walk.name, walk.seq, walk.number)
        if walk.sealed != walk.seq and self._should_be_sealed(walk):
            self.add_finding("its seal is missing", walk.name, walk.seq, walk.number)
        elif self._may_be_unsealed(walk):
            rows = walk.seq - walk.proved
            if rows > 0 or walk.name.startswith(SERVER_PREFIX):
                self.unsealed.append(UnsealedRows(self.path, walk.name, walk.proved + 1, rows))
        if self.bundle or not is_episode_chain(walk.name):
            return
        if walk.closed and not walk.ended:
            self.add_finding("it is closed, and the server's chain does not say so", walk.name, walk.seq, walk.number)
        if not walk.named:
            self.add_finding("the server's chain does not say that it was opened", walk.name, 0, walk.first)

    def _may_be_unsealed(self, walk: ChainWalk) -> bool:
        """Return whether a server could still be about to seal the chain's end; otherwise a missing seal is a finding of its own."""
        signed = self._public is not None or self.statements.key is not None
        return signed and not (walk.ended or walk.followed or walk.lacks_seal or walk.name.startswith(PRUNED_PREFIX))

    def _should_be_sealed(self, walk: ChainWalk) -> bool:
        """Return whether the end of a chain is sealed, of which no server's chain speaks."""
        if walk.name.startswith(SERVER_PREFIX):
            return walk.ended and walk.key is not None
        if walk.name.startswith(PRUNED_PREFIX):
            return True
        return walk.closed and (self._public is not None or (self.bundle and self.statements.key is not None))
