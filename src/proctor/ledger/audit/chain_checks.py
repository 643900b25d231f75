"""What must hold of one chain, and of what the server's chains say of the others; what does not hold is a `LedgerFinding`. Pure.

Rule 1: after a row that is not as it was written the walk goes on, so that one change is one finding and not a thousand.
Rule 2: a chain that is spoken of is there as it is spoken of, or has a tombstone that says the same.
Rule 3: a signed run seals what it ends, and its own first row.
Rule 4: a chain has no row after the one at which a server's chain said that it ends.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from proctor.ledger.chain import PRUNED_PREFIX, Head, format_head, genesis_hash, is_episode_chain, parse_head, row_hash
from proctor.ledger.chain_state import EMPTY_TOTALS, TERMINATED, TRUNCATED, EpisodeTotals, finite_total
from proctor.ledger.rows import (
    ChainEnded,
    ChainOpened,
    LedgerStatement,
    ObservationStorage,
    RunBegan,
    RunEnded,
    Tombstone,
)


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


_MAX_CANDIDATES: Final = 4


class ChainWalk:
    """Where the walk stands in a chain."""

    __slots__ = (
        "closed",
        "end",
        "ended",
        "first",
        "followed",
        "keeps",
        "key",
        "lacks_seal",
        "last",
        "late",
        "name",
        "named",
        "number",
        "proved",
        "sealed",
        "stands",
        "totals",
    )

    def __init__(self, first: int, name: str, last: int | None) -> None:
        self.first = first
        self.name = name
        self.last = last
        """What the table of chains says."""
        self.number = 0
        """Of the last row; 0: there is none."""
        self.stands: list[tuple[int, bytes]] = [(-1, genesis_hash(name))]
        """What the next row may stand on; after a row that was changed there are several."""
        self.sealed = -1
        self.proved = -1
        """Up to here a seal or a head speaks for the rows."""
        self.lacks_seal = False
        """A seal that should be there is not, which was said."""
        self.followed = False
        """Of a server's chain: the next run says where it ended."""
        self.named = False
        """Of an episode's chain: the server says that it was opened."""
        self.closed = False
        """Its last row is an EpisodeClosed."""
        self.ended = False
        """The server says that nothing more comes."""
        self.end: tuple[int, int] | None = None
        """Where it ends, as soon as a row says so: the place of its last row, and the number of the row that says it."""
        self.late = 0
        """The number of the first row that comes after its end all the same; 0: none does."""
        self.key: bytes | None = None
        """Of a server's chain: who signs the run."""
        self.keeps: ObservationStorage = "all"
        self.totals: EpisodeTotals = EMPTY_TOTALS

    @property
    def seq(self) -> int:
        """Of the last row."""
        return self.stands[0][0]

    @property
    def hash(self) -> bytes:
        """Of the last row."""
        return self.stands[0][1]

    def check_row(self, number: int, seq: int, body: bytes, stored: bytes) -> str:
        """Go on to a row; return what is wrong with it, and nothing if it follows."""
        if self.end is not None and not self.late:
            self.late = number
        for before, digest in self.stands:
            if seq == before + 1 and row_hash(digest, number, seq, body) == stored:
                self.stands = [(seq, stored)]
                self.number = number
                return ""
        problem = self._find_problem(number, seq, body, stored)
        self.number = number
        return problem

    def set_end(self, number: int) -> None:
        """Remember that the chain ends where it stands, as the row `number` says; the first to say so counts."""
        if self.end is None:
            self.end = (self.seq, number)

    def _find_problem(self, number: int, seq: int, body: bytes, stored: bytes) -> str:
        expected, before = self.seq + 1, self.hash
        if row_hash(before, number, expected, body) == stored:
            self.stands = [(expected, stored)]
            return f"its place in the chain was changed from {expected}"
        if seq < expected:
            return f"out of its place, or there twice: the chain goes on with {expected}"
        missing = f"the rows {expected} to {seq - 1} of the chain are missing before it"
        if seq == expected:
            self._add_candidate((seq, row_hash(before, number, seq, body)))
        self._add_candidate((seq, stored))
        return "not as it was written" if seq == expected else missing

    def _add_candidate(self, stand: tuple[int, bytes]) -> None:
        self.stands = [stand, *self.stands][:_MAX_CANDIDATES]


class StatementChecker:
    """Hears the ledger's own statements in the order of their numbers."""

    def __init__(self, links: dict[str, ChainWalk], public: bytes | None, note: AddFinding) -> None:
        self.key: bytes | None = None
        """Who signs the present run."""
        self.tombstones: dict[str, Tombstone] = {}
        self.runs: set[tuple[str, int]] = set()
        """The runs of the server, by boot and worker."""
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
                self._check_run_end(walk, number)
            case ChainOpened():
                self._check_chain_start(number, own.head)
            case ChainEnded():
                self._check_chain_end(number, own)
            case Tombstone():
                self.tombstones[own.chain] = own

    def _check_run_start(self, walk: ChainWalk, number: int, own: RunBegan) -> None:
        if self._run is not None and own.previous != format_head(self._run.name, self._run.seq + 1, self._run.hash):
            self._add_finding(
                f"the end of the run before is missing: {own.previous}", self._run.name, self._run.seq, self._run.number
            )
        if self._run is not None:
            self._run.followed = True  # its end is said by a row that a signed run seals
            self._run.set_end(number)
        self._run = walk
        self.runs.add((own.boot, own.worker))
        self.key = walk.key = None if own.public is None else bytes.fromhex(own.public)
        if self._public is not None and self.key != self._public:
            said = "nobody" if own.public is None else f"another key, {own.public}"
            self._add_finding(f"this run of the server is signed by {said}", walk.name, walk.seq, number)

    def _check_run_end(self, walk: ChainWalk, number: int) -> None:
        walk.ended = True
        walk.set_end(number)
        for each in self._chain_walks.values():
            if each.seq >= 0 and not each.ended and is_episode_chain(each.name):
                self.expect_seal(each)

    def _check_chain_start(self, number: int, head: str) -> None:
        walk = self._check_head(number, head)
        if walk is not None:
            walk.named = True

    def _check_chain_end(self, number: int, own: ChainEnded) -> None:
        walk = self._check_head(number, own.head)
        if walk is None:
            return
        walk.ended = True
        walk.set_end(number)
        self.expect_seal(walk)
        totals = (
            walk.totals.steps,
            finite_total(walk.totals),
            bool(walk.totals.ended & TERMINATED),
            bool(walk.totals.ended & TRUNCATED),
        )
        if totals != (own.steps, own.total_reward, own.terminated, own.truncated):
            self._add_finding(
                "what the server says of its steps and rewards is another", walk.name, walk.seq, walk.number
            )
        non_step = walk.totals.non_step
        said = (own.refusals, own.agents, own.state)
        # A writer of an earlier version said none of the three; one that says some says all.
        if said != (None, None, None) and said != (non_step.refusals, list(non_step.agents), non_step.state):
            self._add_finding(
                "what the server says of its agents and refusals is another", walk.name, walk.seq, walk.number
            )

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
