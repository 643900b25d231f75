"""How rows hang together: hashes, the names of chains and heads; where a chain stands and what its episode adds up to. Pure.

Rule 1: a row's hash covers the hash before it, its number, its place in the chain and its body; the first row of a chain
    stands on the hash of the chain's name. So no row can be changed, left out, moved or renamed without a trace.
Rule 2: what is hashed or signed begins with a tag that says what it is, so that a hash of one kind is never one of another.
Rule 3: a head proves that a chain has at least these rows; as text it is `<chain>@<rows>:<hex sha256>`.

    chain              is
    <session>.<epoch>  an episode, named by the epoch of its first reset
    server.<boot>      a run of the server
    pruned.<number>    what was removed, named by the number of its first row
"""

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from math import isfinite
from typing import Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from proctor.errors import ValidationError
from proctor.ledger.rows import LedgerStatement, ObservationStorage, PartialEvent
from proctor.models.events import (
    AgentGranted,
    BatchStepped,
    EpisodeStepped,
    Event,
    Failed,
    PacketJudged,
    SessionResumed,
)

_FORM: Final = re.compile(r"(?P<chain>.+)@(?P<rows>[1-9][0-9]{0,18}):(?P<hash>[0-9a-f]{64})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Head:
    """The hash of the last of `rows` rows of a chain."""

    chain: str
    rows: int
    hash: bytes

    def __str__(self) -> str:
        return format_head(self.chain, self.rows, self.hash)


def format_head(chain: str, rows: int, row: bytes) -> str:
    """Return a head as text."""
    return f"{chain}@{rows}:{row.hex()}"


def parse_head(text: str) -> Head:
    """Return the head that `text` says, or raise a ValidationError; blanks after it do not count."""
    found = _FORM.fullmatch(text.rstrip())  # before it they may be the beginning of a session's name
    if found is None:
        raise ValidationError("not a head of a chain", found=text, expected="<chain>@<rows>:<64 hexadecimal digits>")
    return Head(found["chain"], int(found["rows"]), bytes.fromhex(found["hash"]))


SERVER_PREFIX: Final = "server."
PRUNED_PREFIX: Final = "pruned."
REPEAT_MARK: Final = "~"
"""Before the count of a name that is there already, and before a session that is called like a chain of ours."""

_ROW: Final = b"proctor.ledger.row.1\0"
_CHAIN: Final = b"proctor.ledger.chain.1\0"
_SEAL: Final = b"proctor.ledger.seal.1\0"
_PLACE: Final = struct.Struct(">QQ").pack


def genesis_hash(name: str) -> bytes:
    """Return what the first row of a chain stands on."""
    return sha256(_CHAIN + name.encode()).digest()


def row_hash(before: bytes, number: int, seq: int, body: bytes) -> bytes:
    """Return the hash of a row; `before` is that of the row before it in its chain, or the chain's genesis."""
    return sha256(b"".join((_ROW, before, _PLACE(number, seq), body))).digest()


def seal_message(name: str, seq: int, row: bytes) -> bytes:
    """Return what is signed: that the row with this hash is the one at `seq` in the chain."""
    return b"".join((_SEAL, _PLACE(len(name.encode()), seq), name.encode(), row))


def episode_chain_name(session: str, epoch: int) -> str:
    """Return the name of an episode's chain."""
    name = f"{session}.{epoch}"
    return REPEAT_MARK + name if name.startswith((SERVER_PREFIX, PRUNED_PREFIX, REPEAT_MARK)) else name


def is_episode_chain(name: str) -> bool:
    """Return whether a chain of this name is an episode's."""
    return not name.startswith((SERVER_PREFIX, PRUNED_PREFIX))


def session_from_chain_name(name: str) -> str:
    """Return the session whose episode has this name."""
    return name.rpartition(".")[0].removeprefix(REPEAT_MARK)


def epoch_from_chain_name(name: str) -> int:
    """Return the epoch of the first reset of the episode with this name; 0 if it says none."""
    epoch = name.rpartition(".")[2].partition(REPEAT_MARK)[0]
    return int(epoch) if epoch.isascii() and epoch.isdigit() else 0


def find_free_name(name: str, taken: Callable[[str], bool]) -> str:
    """Return the name, or with the first count from 2 on that is not taken: an epoch whose reply was lost comes twice."""
    count, free = 1, name
    while taken(free):
        count += 1
        free = f"{name}{REPEAT_MARK}{count}"
    return free


TERMINATED: Final = 1
TRUNCATED: Final = 2
MOST_AGENTS: Final = 16
UNNAMED_AGENT: Final = "agent"
"""What an agent is called that was granted tools without a name."""


class EpisodeTotals(Struct, frozen=True, gc=False):
    """What can be said of an episode without reading it again: its steps, rewards, flags and refusals so far."""

    steps: int = 0
    total: float | None = None
    """None: no step had a reward."""
    ended: int = 0
    """TERMINATED, TRUNCATED, both or neither."""
    refusals: int = 0
    """Lines that the judge or the gate refused, and requests that were refused."""
    agents: tuple[str, ...] = ()
    """The names of those who were granted tools, each once, in order."""
    state: str = ""
    """Where the machine of a governed episode stands; empty: nothing was judged."""
    lost: bool = False

    @property
    def finite(self) -> float | None:
        """The sum of the rewards as a row can say it; None: there is none, or it is no finite number."""
        return self.total if self.total is not None and isfinite(self.total) else None


EMPTY_TOTALS: Final = EpisodeTotals()
EventCounter: TypeAlias = Callable[[EpisodeTotals, Any], EpisodeTotals]


def count_event(totals: EpisodeTotals, event: Event | LedgerStatement | PartialEvent) -> EpisodeTotals:
    """Return the totals after an event, of which no more than its `PartialEvent` may have been read."""
    counter = _COUNTERS.get(event.event if type(event) is PartialEvent else type(event))
    return totals if counter is None else counter(totals, event)


def _count_step(totals: EpisodeTotals, event: Any) -> EpisodeTotals:
    total, reward = totals.total, event.reward
    if reward is not None:
        total = reward if total is None else total + reward
    ended = totals.ended | event.terminated | event.truncated << 1
    return EpisodeTotals(event.step, total, ended, totals.refusals, totals.agents, totals.state, totals.lost)


def _count_batch_step(totals: EpisodeTotals, event: Any) -> EpisodeTotals:
    # Its own count begins anew when some of the batch are reset.
    return replace(totals, steps=totals.steps + 1)


def _count_verdict(totals: EpisodeTotals, event: Any) -> EpisodeTotals:
    return replace(totals, refusals=totals.refusals + (not event.accepted), state=event.state or "")


def _count_failure(totals: EpisodeTotals, event: Any) -> EpisodeTotals:
    return replace(totals, refusals=totals.refusals + (not event.lost), lost=totals.lost or bool(event.lost))


def _count_grant(totals: EpisodeTotals, event: Any) -> EpisodeTotals:
    agents, name = totals.agents, event.agent or UNNAMED_AGENT
    known = name in agents or len(agents) >= MOST_AGENTS
    return totals if known else replace(totals, agents=(*agents, name))


def _count_resumption(totals: EpisodeTotals, event: Any) -> EpisodeTotals:
    return totals if event.lost in (None, False) else replace(totals, lost=True)


_COUNTERS_BY_TYPE: Final[dict[type[Struct], EventCounter]] = {
    EpisodeStepped: _count_step,
    BatchStepped: _count_batch_step,
    PacketJudged: _count_verdict,
    Failed: _count_failure,
    AgentGranted: _count_grant,
    SessionResumed: _count_resumption,
}
_COUNTERS: Final[dict[object, EventCounter]] = dict(_COUNTERS_BY_TYPE.items())
_COUNTERS.update((kind.__struct_config__.tag, counter) for kind, counter in _COUNTERS_BY_TYPE.items())


class ChainState(Struct, frozen=True, gc=False):
    """A session and its latest chain, or the server and its own."""

    opened: bytes = b""
    """The session's SessionOpened as the body of a first row; empty: it was never stated."""
    name: str = ""
    """Of the latest chain; empty: there is none."""
    first: int = 0
    seq: int = -1
    number: int = 0
    """Of the last row."""
    hash: bytes = b""
    open: bool = False
    keeps: ObservationStorage = "all"
    totals: EpisodeTotals = EMPTY_TOTALS
    is_closed: bool = False

    @property
    def head(self) -> str:
        """The head of the chain, as text."""
        return format_head(self.name, self.seq + 1, self.hash)


_MAX_CANDIDATES: Final = 4


@dataclass(slots=True, eq=False)
class ChainWalk:
    """Where a walk along a chain stands. After a row that is not as it was written it goes on, so that one change is one finding."""

    first: int
    name: str
    last: int | None
    """What the table of chains says."""
    number: int = 0
    """Of the last row; 0: there is none."""
    stands: list[tuple[int, bytes]] = field(default_factory=list)
    """What the next row may stand on; after a row that was changed there are several."""
    sealed: int = -1
    proved: int = -1
    """Up to here a seal or a head speaks for the rows."""
    lacks_seal: bool = False
    """A seal that should be there is not, which was said."""
    followed: bool = False
    """Of a server's chain: the next run says where it ended."""
    named: bool = False
    """Of an episode's chain: the server says that it was opened."""
    closed: bool = False
    """Its last row is an EpisodeClosed."""
    ended: bool = False
    """The server says that nothing more comes."""
    end: tuple[int, int] | None = None
    """Where it ends, as soon as a row says so: the place of its last row, and the number of the row that says it."""
    late: int = 0
    """The number of the first row that comes after its end all the same; 0: none does."""
    key: bytes | None = None
    """Of a server's chain: who signs the run."""
    keeps: ObservationStorage = "all"
    totals: EpisodeTotals = EMPTY_TOTALS

    def __post_init__(self) -> None:
        self.stands.append((-1, genesis_hash(self.name)))

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
