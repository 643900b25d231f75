"""What the server's chains say of the others, held against them. Pure.

Rule 1: a chain that is spoken of is there as it is spoken of, or has a tombstone that says the same.
Rule 2: a signed run seals what it ends, and its own first row.
Rule 3: a chain has no row after the one at which a server's chain said that it ends.
"""

from proctor.ledger.chain import PRUNED, is_episode
from proctor.ledger.findings import Note
from proctor.ledger.head import Head, head_text, parsed_head
from proctor.ledger.links import Link
from proctor.ledger.rows import ChainEnded, ChainOpened, Own, RunBegan, RunEnded, Tombstone
from proctor.ledger.tracks import TERMINATED, TRUNCATED, told_total


class Claims:
    """Hears the ledger's own statements in the order of their numbers."""

    def __init__(self, links: dict[str, Link], public: bytes | None, note: Note) -> None:
        self.key: bytes | None = None
        """Who signs the present run."""
        self.tombstones: dict[str, Tombstone] = {}
        self.runs: set[tuple[str, int]] = set()
        """The runs of the server, by boot and worker."""
        self._links = links
        self._public = public
        self._note = note
        self._absent: dict[str, tuple[int, Head]] = {}
        """Of chains that are not there: the row that spoke last of each, and what it said."""
        self._run: Link | None = None

    def hear(self, link: Link, number: int, own: Own) -> None:
        """Hold a statement in the chain `link` against the chains as they are at its row."""
        if link.name.startswith(PRUNED) != isinstance(own, Tombstone) or is_episode(link.name):
            self._note("a statement that does not belong into this chain", link.name, link.seq, number)
        match own:
            case RunBegan():
                self._began(link, number, own)
            case RunEnded():
                self._ended_run(link, number)
            case ChainOpened():
                self._opened(number, own.head)
            case ChainEnded():
                self._ended(number, own)
            case Tombstone():
                self.tombstones[own.chain] = own

    def _began(self, link: Link, number: int, own: RunBegan) -> None:
        if self._run is not None and own.previous != head_text(self._run.name, self._run.seq + 1, self._run.hash):
            self._note(
                f"the end of the run before is missing: {own.previous}", self._run.name, self._run.seq, self._run.number
            )
        if self._run is not None:
            self._run.followed = True  # its end is said by a row that a signed run seals
            self._run.set_end(number)
        self._run = link
        self.runs.add((own.boot, own.worker))
        self.key = link.key = None if own.public is None else bytes.fromhex(own.public)
        if self._public is not None and self.key != self._public:
            said = "nobody" if own.public is None else f"another key, {own.public}"
            self._note(f"this run of the server is signed by {said}", link.name, link.seq, number)

    def _ended_run(self, link: Link, number: int) -> None:
        link.ended = True
        link.set_end(number)
        for each in self._links.values():
            if each.seq >= 0 and not each.ended and is_episode(each.name):
                self.expect_seal(each)

    def _opened(self, number: int, head: str) -> None:
        link = self._claimed(number, head)
        if link is not None:
            link.named = True

    def _ended(self, number: int, own: ChainEnded) -> None:
        link = self._claimed(number, own.head)
        if link is None:
            return
        link.ended = True
        link.set_end(number)
        self.expect_seal(link)
        tally = (
            link.tally.steps,
            told_total(link.tally),
            bool(link.tally.ended & TERMINATED),
            bool(link.tally.ended & TRUNCATED),
        )
        if tally != (own.steps, own.total_reward, own.terminated, own.truncated):
            self._note("what the server says of its steps and rewards is another", link.name, link.seq, link.number)
        heard = link.tally.heard
        said = (own.refusals, own.agents, own.state)
        # A writer of an earlier version said none of the three; one that says some says all.
        if said != (None, None, None) and said != (heard.refusals, list(heard.agents), heard.state):
            self._note("what the server says of its agents and refusals is another", link.name, link.seq, link.number)

    def _claimed(self, number: int, text: str) -> Link | None:
        """Return the chain that a head is of, after a look at whether it stands there; None: there is none."""
        head = parsed_head(text)
        link = self._links.get(head.chain)
        if link is None or link.seq < 0:
            self._absent[head.chain] = (number, head)
        elif link.seq + 1 < head.rows:
            self._note(
                f"the rows {link.seq + 1} to {head.rows - 1} of the chain are missing", link.name, link.seq + 1, number
            )
        elif (link.seq + 1, link.hash) != (head.rows, head.hash):
            self._note(f"row {number} says another head of the chain: {text}", link.name, link.seq, link.number)
        return link

    def expect_seal(self, link: Link) -> None:
        """Note that the last row of a chain should have been sealed, if it is not."""
        if self.key is not None and link.sealed != link.seq:
            link.lacks_seal = True
            self._note("its seal is missing", link.name, link.seq, link.number)

    def conclude(self) -> None:
        """Look for tombstones of the chains that were spoken of and are not there."""
        for chain, (number, head) in self._absent.items():
            stone = self.tombstones.get(chain)
            if stone is None:
                self._note(f"the chain is missing, of which row {number} speaks: {head}", chain, None, None)
            elif stone.head != str(head):
                self._note(f"its tombstone says another head than row {number}: {head}", chain, None, None)
        for chain in self.tombstones.keys() & self._links.keys():
            self._note("the chain is there, and has a tombstone", chain, None, None)
