"""Where a chain stands and what its episode adds up to: what the writer goes on from, and a walk along its rows. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from proctor.ledger.chain import genesis_hash, row_hash
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

TERMINATED: Final = 1
TRUNCATED: Final = 2
MOST_AGENTS: Final = 16
"""So many names of agents are remembered."""
UNNAMED_AGENT: Final = "agent"
"""What an agent is called that was granted tools without a name."""


class NonStepTotals(Struct, frozen=True, gc=False):
    """What is counted besides steps. It is a value of its own, because a step, which comes often, changes nothing of it."""

    refusals: int = 0
    """Lines that the judge or the gate refused, and requests that were refused."""
    agents: tuple[str, ...] = ()
    """The names of those who were granted tools, each once, in order."""
    state: str = ""
    """Where the machine of a governed episode stands; empty: nothing was judged."""
    lost: bool = False
    """Whether the episode cannot go on."""


EMPTY_NON_STEP_TOTALS: Final = NonStepTotals()


class EpisodeTotals(Struct, frozen=True, gc=False):
    """What can be said of an episode without reading it again: its steps, rewards, flags and refusals so far."""

    steps: int = 0
    total: float | None = None
    """None: no step had a reward."""
    ended: int = 0
    """TERMINATED, TRUNCATED, both or neither."""
    non_step: NonStepTotals = EMPTY_NON_STEP_TOTALS


EMPTY_TOTALS: Final = EpisodeTotals()


def count_event(totals: EpisodeTotals, event: Event | LedgerStatement) -> EpisodeTotals:
    """Return the totals after an event."""
    if type(event) is EpisodeStepped:
        return count_step(totals, event)
    if type(event) is BatchStepped:
        return count_batch_step(totals)
    counter = _COUNTERS_BY_TYPE.get(type(event))
    return totals if counter is None else counter(totals, event)


def count_partial_event(totals: EpisodeTotals, event: PartialEvent) -> EpisodeTotals:
    """Return the totals after an event of which only so much was read."""
    if event.event == "episode_stepped":
        return count_step(totals, event)
    if event.event == "batch_stepped":
        return count_batch_step(totals)
    counter = _COUNTERS.get(event.event)
    return totals if counter is None else counter(totals, event)


def count_step(totals: EpisodeTotals, event: EpisodeStepped | PartialEvent) -> EpisodeTotals:
    """Return the totals after a step of one environment."""
    total, reward = totals.total, event.reward
    if reward is not None:
        total = reward if total is None else total + reward
    return EpisodeTotals(event.step, total, totals.ended | event.terminated | event.truncated << 1, totals.non_step)


def count_batch_step(totals: EpisodeTotals) -> EpisodeTotals:
    """Return the totals after a step of a batch, whose own count begins anew when some of it are reset."""
    return EpisodeTotals(totals.steps + 1, totals.total, totals.ended, totals.non_step)


def _count_verdict(totals: EpisodeTotals, event: Any) -> EpisodeTotals:
    refusals = totals.non_step.refusals + (not event.accepted)
    return replace(totals, non_step=replace(totals.non_step, refusals=refusals, state=event.state or ""))


def _count_failure(totals: EpisodeTotals, event: Any) -> EpisodeTotals:
    refusals = totals.non_step.refusals + (not event.lost)
    return replace(
        totals, non_step=replace(totals.non_step, refusals=refusals, lost=totals.non_step.lost or bool(event.lost))
    )


def _count_grant(totals: EpisodeTotals, event: Any) -> EpisodeTotals:
    agents, name = totals.non_step.agents, event.agent or UNNAMED_AGENT
    if name in agents or len(agents) >= MOST_AGENTS:
        return totals
    return replace(totals, non_step=replace(totals.non_step, agents=(*agents, name)))


def _count_resumption(totals: EpisodeTotals, event: Any) -> EpisodeTotals:
    return totals if event.lost in (None, False) else replace(totals, non_step=replace(totals.non_step, lost=True))


_COUNTERS_BY_TYPE: Final[dict[type, Callable[[EpisodeTotals, Any], EpisodeTotals]]] = {
    PacketJudged: _count_verdict,
    Failed: _count_failure,
    AgentGranted: _count_grant,
    SessionResumed: _count_resumption,
}
"""What is counted of events that are no steps."""
_COUNTERS: Final = {kind.__struct_config__.tag: counter for kind, counter in _COUNTERS_BY_TYPE.items()}  # type: ignore[attr-defined]


def finite_total(totals: EpisodeTotals) -> float | None:
    """Return the sum of the rewards as a row can say it; None: there is none, or it is no finite number."""
    return totals.total if totals.total is not None and isfinite(totals.total) else None


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
    """The session is closed."""


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
