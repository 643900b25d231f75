"""Where a chain ends and what its episode adds up to: what the writer goes on from. Values only."""

from collections.abc import Callable
from math import isfinite
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

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
        return count_step(totals, event.step, event.reward, event.terminated, event.truncated)
    if type(event) is BatchStepped:
        return count_batch_step(totals)
    counter = _COUNTERS.get(type(event))
    return totals if counter is None else counter(totals, event)


def count_step(
    totals: EpisodeTotals, step: int, reward: float | None, terminated: bool, truncated: bool
) -> EpisodeTotals:
    """Return the totals after a step of one environment."""
    total = totals.total
    if reward is not None:
        total = reward if total is None else total + reward
    return EpisodeTotals(step, total, totals.ended | terminated | truncated << 1, totals.non_step)


def count_batch_step(totals: EpisodeTotals) -> EpisodeTotals:
    """Return the totals after a step of a batch, whose own count begins anew when some of it are reset."""
    return EpisodeTotals(totals.steps + 1, totals.total, totals.ended, totals.non_step)


def count_verdict(totals: EpisodeTotals, accepted: bool, state: str) -> EpisodeTotals:
    """Return the totals after the verdict on a line."""
    non_step = totals.non_step
    return replace(totals, non_step=replace(non_step, refusals=non_step.refusals + (not accepted), state=state))


def count_failure(totals: EpisodeTotals, lost: bool) -> EpisodeTotals:
    """Return the totals after a request that was refused, or failed and lost the episode."""
    non_step = totals.non_step
    return replace(
        totals, non_step=replace(non_step, refusals=non_step.refusals + (not lost), lost=non_step.lost or lost)
    )


def count_grant(totals: EpisodeTotals, agent: str) -> EpisodeTotals:
    """Return the totals after an agent was given tools."""
    non_step, name = totals.non_step, agent or UNNAMED_AGENT
    if name in non_step.agents or len(non_step.agents) >= MOST_AGENTS:
        return totals
    return replace(totals, non_step=replace(non_step, agents=(*non_step.agents, name)))


def count_resumption(totals: EpisodeTotals, lost: bool) -> EpisodeTotals:
    """Return the totals after another run of the server took the session up."""
    return replace(totals, non_step=replace(totals.non_step, lost=True)) if lost else totals


_COUNTERS: Final[dict[type, Callable[[EpisodeTotals, Any], EpisodeTotals]]] = {
    PacketJudged: lambda totals, event: count_verdict(totals, event.accepted, event.state),
    Failed: lambda totals, event: count_failure(totals, event.lost),
    AgentGranted: lambda totals, event: count_grant(totals, event.agent),
    SessionResumed: lambda totals, event: count_resumption(totals, event.lost is not None),
}
"""What is counted of events that are no steps."""


def count_partial_event(totals: EpisodeTotals, event: PartialEvent) -> EpisodeTotals:
    """Return the totals after an event of which only so much was read."""
    counter = _PARTIAL_COUNTERS.get(event.event)
    return totals if counter is None else counter(totals, event)


_PARTIAL_COUNTERS: Final[dict[str, Callable[[EpisodeTotals, PartialEvent], EpisodeTotals]]] = {
    "episode_stepped": lambda totals, event: count_step(
        totals, event.step, event.reward, event.terminated, event.truncated
    ),
    "batch_stepped": lambda totals, event: count_batch_step(totals),
    "packet_judged": lambda totals, event: count_verdict(totals, event.accepted, event.state or ""),
    "failed": lambda totals, event: count_failure(totals, bool(event.lost)),
    "agent_granted": lambda totals, event: count_grant(totals, event.agent),
    "session_resumed": lambda totals, event: count_resumption(
        totals, event.lost is not None and event.lost is not False
    ),
}


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
