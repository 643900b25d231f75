"""Walks one file from end to end, and finds what is not as it was written.

Rule 1: every column of every table is held against something: a hash, a signature, or what is derived again from the rows.
Rule 2: nothing that a file holds makes the walk raise.
Rule 3: a file that says so is a bundle: one episode, whole, whose numbers have gaps. Every other has a server's chain.
Rule 4: where a key is given, what is closed is sealed by that key.
Rule 5: rows of open chains that no seal and no head covers are gathered in `unsealed`. Whether they are a finding depends on whether
    a server is writing, which is not known here. Rows after the end of a chain are a finding always: no server writes any.
Rule 6: how much memory and time the walk takes depends on the size of the file, whatever the file says.
"""

import sqlite3
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import UNSET, Raw

from proctor.errors import ValidationError
from proctor.ledger.blobs import unpacked_pieces
from proctor.ledger.chain import PRUNED, SERVER, is_episode, seal_message
from proctor.ledger.claims import Claims
from proctor.ledger.findings import Finding, UnsealedRows, counted_rows
from proctor.ledger.glances import Glance, GlancedEvent, glanced
from proctor.ledger.head import Head
from proctor.ledger.keys import verifies
from proctor.ledger.links import Link
from proctor.ledger.rows import SEAL_EVERY, own_in
from proctor.ledger.schema import SUFFIX, UNREADABLE, ascending, has_tables, is_bundle
from proctor.ledger.tracks import tallied_at_a_glance
from proctor.models.events import NULL

Tell: TypeAlias = Callable[[int, int], None]

TELL_EVERY: Final = 5000
MOST: Final = 20
"""Of what comes as a list, at most so many are named."""
_WORKER: Final = "worker-"
"""How the file of a worker is called, and no bundle."""
_TWICE: Final = "2nd reference to page"
"""How SQLite begins to say that a page is part of two things."""
_KINDS: Final = (int, int, int, bytes, bytes)


class Audit:
    """What is found in one file, and what was looked at."""

    def __init__(self, path: Path, wanted: list[Head], public: bytes | None) -> None:
        self.path: Final = path
        self.findings: list[Finding] = []
        self.rows = 0
        self.seals = 0
        self.met: set[Head] = set()
        """The heads that were wanted and are here, as they should be or not."""
        self.links: dict[int, Link] = {}
        self.claims = Claims({}, public, self.note)
        self._public = public
        self._wanted: dict[tuple[str, int], list[Head]] = {}
        for head in wanted:
            self._wanted.setdefault((head.chain, head.rows - 1), []).append(head)
        self._marks: dict[int, tuple[bytes, bytes]] = {}
        """Seals by the number of their row, of the rows that are still to come."""
        self.keys: set[bytes] = set()
        """By which the seals are."""
        self.unsealed: list[UnsealedRows] = []
        self._blobs: set[bytes] = set()
        self._gaps: list[range] = []
        self.bundle = False
        self.live = False
        """Whether a server was seen writing to the file."""

    def note(self, what: str, chain: str | None = None, seq: int | None = None, number: int | None = None) -> None:
        """Add a finding."""
        self.findings.append(Finding(self.path, chain, seq, number, what))

    def walk(self, connection: sqlite3.Connection, tell: Tell | None) -> None:
        """Look at everything in the file, as it is at one moment."""
        self._connection = connection
        connection.text_factory = lambda text: text.decode(
            "utf-8", "replace"
        )  # a name that was changed is no reason to stop
        try:
            connection.execute("BEGIN")
            if self._has_structure():
                self._load()
                self._scan(tell)
                self._conclude()
        except (*UNREADABLE, ValidationError) as problem:
            self.note(f"the file cannot be read: {problem}")

    def _has_structure(self) -> bool:
        """Return whether the file has the tables of a ledger, each once: only then its rows are looked at.

        Other tables can be anything, such as views whose queries never end, and a page that is reached on two ways can be
        reached on millions.
        """
        if not has_tables(self._connection):
            self.note("the tables of the file are not those of a ledger")
            return False
        self.bundle = is_bundle(self._connection)
        # Some texts that SQLite says are of several lines.
        said = [text for (text,) in self._connection.execute(f"PRAGMA integrity_check({MOST})") if text != "ok"]
        for problem in said:
            self.note(f"the file is damaged: {problem}")
        return not any(_TWICE in problem for problem in said)

    def _load(self) -> None:
        names: dict[str, Link] = {}
        for first, name, last in ascending(
            self._connection.execute("SELECT first, name, last FROM chains ORDER BY first")
        ):
            if type(name) is str and isinstance(last, int | None):
                self.links[first] = names[name] = Link(first, name, last)
            else:
                self.note("the table of chains is damaged: a name or an end is of another kind", None, None, first)
        for number, key, signature in ascending(
            self._connection.execute("SELECT number, key, signature FROM seals ORDER BY number")
        ):
            if type(key) is bytes is type(signature):
                self._marks[number] = (key, signature)
            else:
                self.note("its seal is not good: a key or a signature is of another kind", None, None, number)
        self.seals = len(self._marks)
        self.claims = Claims(names, self._public, self.note)
        if self.bundle:
            self._check_bundle(names)
        elif names and not any(name.startswith(SERVER) for name in names):
            self.note("the server's chain is missing: only a bundle has none")

    def _check_bundle(self, names: dict[str, Link]) -> None:
        if len(names) != 1 or not all(map(is_episode, names)):
            self.note("a bundle has one episode, and nothing else")
        if self.path.name.startswith(_WORKER) and self.path.suffix == SUFFIX:
            self.note("a worker's file says that it is a bundle: the server's chain is missing")
        if self._marks or self._public is not None:
            self.claims.key = next(iter(self._marks.values()))[0] if self._public is None else self._public

    def _scan(self, tell: Tell | None) -> None:
        (total,) = self._connection.execute("SELECT max(number) FROM rows").fetchone()
        before = 0
        for row in ascending(
            self._connection.execute("SELECT number, chain, seq, body, hash FROM rows ORDER BY number")
        ):
            number = row[0]
            if number != before + 1:
                self._gaps.append(range(before + 1, number))
            before = number
            self.rows += 1
            if tell is not None and self.rows % TELL_EVERY == 0:
                tell(number, total)
            self._row(*row)

    def _row(self, number: int, first: int, seq: int, body: bytes, stored: bytes) -> None:
        link = self.links.get(first)
        if (type(number), type(first), type(seq), type(body), type(stored)) != _KINDS or seq < 0 or number < 0:
            self.note(
                "not as it was written: its columns are of other kinds",
                None if link is None else link.name,
                None,
                number,
            )
        elif link is None:
            self.note("in a chain that is not there", None, seq, number)
        else:
            problem = link.take(number, seq, body, stored)
            if problem:
                self.note(problem, link.name, seq, number)
            self._read(link, number, body, quiet=bool(problem))
            self._sealed(link, number, stored)
            self._headed(link, stored)

    def _read(self, link: Link, number: int, body: bytes, *, quiet: bool) -> None:
        """Look at what a row says; one that was changed need not make sense."""
        try:
            glance = glanced(body)
            if glance.observations is not None:
                link.keeps = glance.observations
            if glance.own is not UNSET:
                self.claims.hear(link, number, own_in(glance.own))
            elif glance.event is not UNSET:
                self._event(link, glance, glance.event)
        except ValueError as problem:  # a ValidationError, or digits that are none
            if not quiet:
                self.note(str(problem), link.name, link.seq, number)

    def _event(self, link: Link, glance: Glance, event: GlancedEvent) -> None:
        link.tally = tallied_at_a_glance(link.tally, event)
        link.closed = event.event == "episode_closed"
        if link.closed and is_episode(link.name):
            link.set_end(link.number)
        value = event.observations if event.observation is UNSET else event.observation
        if value is not UNSET and sha256(value).hexdigest() != glance.digest:
            self._absent(link, value, glance.digest)
        if glance.scene is not None and link.keeps == "all":
            self._blob(bytes.fromhex(glance.scene))

    def _absent(self, link: Link, value: Raw, digest: str | None) -> None:
        """Look at a value that is not in the body, or raise: it is there, and another."""
        if value != NULL or digest is None:
            raise ValidationError("its observation has another hash than it says")
        if link.keeps == "all":
            self._blob(bytes.fromhex(digest))

    def _blob(self, digest: bytes) -> None:
        if digest in self._blobs:
            return
        self._blobs.add(digest)
        found = self._connection.execute(
            "SELECT packed, sum, content FROM blobs WHERE digest = ?", (digest,)
        ).fetchone()
        if found is None:
            raise ValidationError(f"a value that it names is missing: {digest.hex()}")
        hashed = sha256()
        for piece in unpacked_pieces(*found):
            hashed.update(piece)
        if hashed.digest() != digest:
            raise ValidationError(f"a value that it names is not as it was written: {digest.hex()}")

    def _sealed(self, link: Link, number: int, stored: bytes) -> None:
        mark = self._marks.pop(number, None)
        if mark is not None:
            link.sealed = link.proved = link.seq
            self.keys.add(mark[0])
            self._check_seal(link, number, stored, *mark)
        elif self.claims.key is not None and _is_sealed(link):
            self.claims.expect_seal(link)

    def _check_seal(self, link: Link, number: int, stored: bytes, key: bytes, signature: bytes) -> None:
        if self._public is not None and key != self._public:
            self.note("sealed by another key than the one that was given", link.name, link.seq, number)
        elif key != self.claims.key and not link.name.startswith(PRUNED):
            self.note("sealed by another key than that of the run of the server", link.name, link.seq, number)
        if not verifies(key, seal_message(link.name, link.seq, stored), signature):
            self.note("its seal is not good", link.name, link.seq, number)

    def _headed(self, link: Link, stored: bytes) -> None:
        for head in self._wanted.get((link.name, link.seq), ()):
            self.met.add(head)
            if head.hash == stored:
                link.proved = link.seq
            else:
                self.note(f"another row than the head says: {head}", link.name, link.seq, link.number)

    def _conclude(self) -> None:
        for link in self.links.values():
            self._conclude_chain(link)
        for number in self._marks:
            self.note("the seal of a row that is not there", None, None, number)
        self.claims.conclude()
        self._conclude_numbers()
        self._conclude_blobs()

    def _conclude_chain(self, link: Link) -> None:
        if link.seq < 0:
            self.note("a chain without rows", link.name, None, link.first)
            return
        if link.end is not None and link.seq > link.end[0]:
            rows, number = link.seq - link.end[0], link.end[1]
            what = f"{counted_rows(rows)} after the end of the chain, which row {number} states"
            self.note(what, link.name, link.end[0] + 1, link.late)
        ended = link.ended or self.bundle or link.name.startswith(PRUNED)
        if link.last != (link.number if ended else None):
            said = "open" if link.last is None else f"row {link.last}"
            self.note(f"the table of chains says another end: {said}", link.name, link.seq, link.number)
        if link.sealed != link.seq and self._should_be_sealed(link):
            self.note("its seal is missing", link.name, link.seq, link.number)
        elif self._may_be_unsealed(link):
            self._note_unsealed(link)
        if is_episode(link.name) and not self.bundle:
            self._conclude_episode(link)

    def _conclude_episode(self, link: Link) -> None:
        if link.closed and not link.ended:
            self.note("it is closed, and the server's chain does not say so", link.name, link.seq, link.number)
        if not link.named:
            self.note("the server's chain does not say that it was opened", link.name, 0, link.first)

    def _may_be_unsealed(self, link: Link) -> bool:
        """Return whether a server could still be about to seal the chain's end; otherwise a missing seal is a finding of its own."""
        signed = self._public is not None or self.claims.key is not None
        return signed and not (link.ended or link.followed or link.lacks_seal or link.name.startswith(PRUNED))

    def _note_unsealed(self, link: Link) -> None:
        rows = link.seq - link.proved
        if rows > 0 or link.name.startswith(SERVER):
            self.unsealed.append(UnsealedRows(self.path, link.name, link.proved + 1, rows))

    def _should_be_sealed(self, link: Link) -> bool:
        """Return whether the end of a chain is sealed, of which no server's chain speaks."""
        if link.name.startswith(SERVER):
            return link.ended and link.key is not None
        if link.name.startswith(PRUNED):
            return True
        return link.closed and (self._public is not None or (self.bundle and self.claims.key is not None))

    def _conclude_numbers(self) -> None:
        pruned = sum(stone.rows for stone in self.claims.tombstones.values())
        if self.bundle or sum(map(len, self._gaps)) == pruned:
            return
        for gap in self._gaps[:MOST]:
            if len(gap):
                self.note(f"rows are missing: the numbers {gap.start} to {gap.stop - 1}", None, None, gap.start)

    def _conclude_blobs(self) -> None:
        (count,) = self._connection.execute("SELECT count(*) FROM blobs").fetchone()
        if count == len(self._blobs):
            return
        more = [each for (each,) in self._connection.execute("SELECT digest FROM blobs") if each not in self._blobs]
        for digest in more[:MOST]:
            self.note(f"a value that no row names: {digest!r}")


def _is_sealed(link: Link) -> bool:
    """Return whether a signed run seals the row where the chain stands, whatever comes after it."""
    return link.seq % SEAL_EVERY == SEAL_EVERY - 1 or (link.seq == 0 and link.name.startswith(SERVER))
