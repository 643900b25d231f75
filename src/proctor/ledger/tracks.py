"""Where a chain stands: what the writer goes on from. Values only."""

from collections.abc import Callable
from math import isfinite
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from proctor.ledger.glances import GlancedEvent
from proctor.ledger.rows import Observations, Own
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
UNNAMED: Final = "agent"
"""What an agent is called that was granted tools without a name."""


class Heard(Struct, frozen=True, gc=False):
    """What is tallied besides steps. It is a value of its own, because a step, which comes often, changes nothing of it."""

    refusals: int = 0
    """Lines that the judge or the gate refused, and requests that were refused."""
    agents: tuple[str, ...] = ()
    """The names of those who were granted tools, each once, in order."""
    state: str = ""
    """Where the machine of a governed episode stands; empty: nothing was judged."""
    lost: bool = False
    """Whether the episode cannot go on."""


SILENCE: Final = Heard()


class Tally(Struct, frozen=True, gc=False):
    """What can be said of an episode without reading it again: its steps, rewards, flags and refusals so far."""

    steps: int = 0
    total: float | None = None
    """None: no step had a reward."""
    ended: int = 0
    """TERMINATED, TRUNCATED, both or neither."""
    heard: Heard = SILENCE


NOTHING: Final = Tally()


def tallied(tally: Tally, event: Event | Own) -> Tally:
    """Return the tally after an event."""
    if type(event) is EpisodeStepped:
        return stepped(tally, event.step, event.reward, event.terminated, event.truncated)
    if type(event) is BatchStepped:
        return batch_stepped(tally)
    heard = _HEARD.get(type(event))
    return tally if heard is None else heard(tally, event)


def stepped(tally: Tally, step: int, reward: float | None, terminated: bool, truncated: bool) -> Tally:
    """Return the tally after a step of one environment."""
    total = tally.total
    if reward is not None:
        total = reward if total is None else total + reward
    return Tally(step, total, tally.ended | terminated | truncated << 1, tally.heard)


def batch_stepped(tally: Tally) -> Tally:
    """Return the tally after a step of a batch, whose own count begins anew when some of it are reset."""
    return Tally(tally.steps + 1, tally.total, tally.ended, tally.heard)


def judged(tally: Tally, accepted: bool, state: str) -> Tally:
    """Return the tally after the verdict on a line."""
    heard = tally.heard
    return replace(tally, heard=replace(heard, refusals=heard.refusals + (not accepted), state=state))


def failed(tally: Tally, lost: bool) -> Tally:
    """Return the tally after a request that was refused, or failed and lost the episode."""
    heard = tally.heard
    return replace(tally, heard=replace(heard, refusals=heard.refusals + (not lost), lost=heard.lost or lost))


def granted(tally: Tally, agent: str) -> Tally:
    """Return the tally after an agent was given tools."""
    heard, name = tally.heard, agent or UNNAMED
    if name in heard.agents or len(heard.agents) >= MOST_AGENTS:
        return tally
    return replace(tally, heard=replace(heard, agents=(*heard.agents, name)))


def resumed(tally: Tally, lost: bool) -> Tally:
    """Return the tally after another run of the server took the session up."""
    return replace(tally, heard=replace(tally.heard, lost=True)) if lost else tally


_HEARD: Final[dict[type, Callable[[Tally, Any], Tally]]] = {
    PacketJudged: lambda tally, event: judged(tally, event.accepted, event.state),
    Failed: lambda tally, event: failed(tally, event.lost),
    AgentGranted: lambda tally, event: granted(tally, event.agent),
    SessionResumed: lambda tally, event: resumed(tally, event.lost is not None),
}
"""What is tallied of events that are no steps."""


def tallied_at_a_glance(tally: Tally, event: GlancedEvent) -> Tally:
    """Return the tally after an event of which only so much was read."""
    glanced = _GLANCED.get(event.event)
    return tally if glanced is None else glanced(tally, event)


_GLANCED: Final[dict[str, Callable[[Tally, GlancedEvent], Tally]]] = {
    "episode_stepped": lambda tally, event: stepped(tally, event.step, event.reward, event.terminated, event.truncated),
    "batch_stepped": lambda tally, event: batch_stepped(tally),
    "packet_judged": lambda tally, event: judged(tally, event.accepted, event.state or ""),
    "failed": lambda tally, event: failed(tally, bool(event.lost)),
    "agent_granted": lambda tally, event: granted(tally, event.agent),
    "session_resumed": lambda tally, event: resumed(tally, event.lost is not None and event.lost is not False),
}


def told_total(tally: Tally) -> float | None:
    """Return the sum of the rewards as a row can say it; None: there is none, or it is no finite number."""
    return tally.total if tally.total is not None and isfinite(tally.total) else None


class Track(Struct, frozen=True, gc=False):
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
    keeps: Observations = "all"
    tally: Tally = NOTHING
    gone: bool = False
    """The session is closed."""
