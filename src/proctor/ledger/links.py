"""Whether rows follow on each other: one chain, row by row. Pure.

Rule 1: after a row that is not as it was written the walk goes on, so that one change is one finding and not a thousand.
"""

from typing import Final

from proctor.ledger.chain import genesis, row_hash
from proctor.ledger.rows import Observations
from proctor.ledger.tracks import NOTHING, Tally

_MOST_STANDS: Final = 4


class Link:
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
        "tally",
    )

    def __init__(self, first: int, name: str, last: int | None) -> None:
        self.first = first
        self.name = name
        self.last = last
        """What the table of chains says."""
        self.number = 0
        """Of the last row; 0: there is none."""
        self.stands: list[tuple[int, bytes]] = [(-1, genesis(name))]
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
        self.keeps: Observations = "all"
        self.tally: Tally = NOTHING

    @property
    def seq(self) -> int:
        """Of the last row."""
        return self.stands[0][0]

    @property
    def hash(self) -> bytes:
        """Of the last row."""
        return self.stands[0][1]

    def take(self, number: int, seq: int, body: bytes, stored: bytes) -> str:
        """Go on to a row; return what is wrong with it, and nothing if it follows."""
        if self.end is not None and not self.late:
            self.late = number
        for before, digest in self.stands:
            if seq == before + 1 and row_hash(digest, number, seq, body) == stored:
                self.stands = [(seq, stored)]
                self.number = number
                return ""
        problem = self._problem(number, seq, body, stored)
        self.number = number
        return problem

    def set_end(self, number: int) -> None:
        """Remember that the chain ends where it stands, as the row `number` says; the first to say so counts."""
        if self.end is None:
            self.end = (self.seq, number)

    def _problem(self, number: int, seq: int, body: bytes, stored: bytes) -> str:
        expected, before = self.seq + 1, self.hash
        if row_hash(before, number, expected, body) == stored:
            self.stands = [(expected, stored)]
            return f"its place in the chain was changed from {expected}"
        if seq < expected:
            return f"out of its place, or there twice: the chain goes on with {expected}"
        missing = f"the rows {expected} to {seq - 1} of the chain are missing before it"
        if seq == expected:
            self._allow((seq, row_hash(before, number, seq, body)))
        self._allow((seq, stored))
        return "not as it was written" if seq == expected else missing

    def _allow(self, stand: tuple[int, bytes]) -> None:
        self.stands = [stand, *self.stands][:_MOST_STANDS]
