"""What an agent that attacks has in its hand, and what is looked at when it has finished."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from tests.server.live_server import Session, until
from tests.system.attacks.arena import CANARIES, Arena, without
from tests.system.attacks.book import Book
from tests.system.attacks.mcp_calls import Caller
from tests.system.attacks.vault import REWARD, hidden_by
from tests.system.attacks.victim import Victim
from tests.system.attacks.wire import Wire

FIRST_SEED: Final = 1_600_000_007
TRACES: Final = ("proctor.agents", "proctor.control", "proctor.server")
"""The loggers whose lines say that somebody was turned away."""
_seeds = count(FIRST_SEED, 1_000_003)


@dataclass
class Scene:
    """One attacker: its grant, two ports, and an orchestrator of its own that does not take part in the attack."""

    arena: Arena
    victim: Victim
    session: Session
    seed: int
    granted: dict[str, Any]
    agent: Caller
    control: Wire
    start: int
    """Where the log ended when the attack began."""
    steps: int = 0
    """How many steps the attacker's own episode must have had at the end; None: it has no episode any more."""
    over: bool = False
    """Whether the attack has ended its own episode."""
    more: list[Wire] = field(default_factory=list)
    """Further wires whose bytes are looked at."""

    @property
    def token(self) -> str:
        token: str = self.granted["token"]
        return token

    def another(self, token: str) -> Caller:
        """Return a caller with another token; what it hears is looked at, too."""
        caller = Caller(self.arena.agent_port, token)
        self.more.append(caller.wire)
        return caller

    def check(self) -> None:
        """Raise unless the attack got nothing, disturbed nobody and left a trace."""
        self.victim.check()

        assert self.arena.alive
        assert [Wire(port).ask("GET", "/health").status for port in self._ports] == [200, 200]
        if not self.over:
            ended = self.session.ask("wait_end", {"wait_seconds": 0})["data"]
            assert (ended["steps"], ended["lost"]) == (self.steps, False), ended
            assert self.session.ask("state")["data"]["step_count"] == self.steps
        for wire in (self.agent.wire, self.control, *self.more):
            without(self.canaries, bytes(wire.heard), "what the attacker heard")
        # A refusal that is left out of the log is in the count that comes some seconds later.
        until(self.traces)

    def traces(self) -> list[dict[str, Any]]:
        """Return what the server's log says of somebody who was turned away."""
        return [line for line in self.arena.log.lines(self.start) if line["logger"] in TRACES]

    @property
    def canaries(self) -> tuple[str, ...]:
        """All that an agent may not learn, of its own episode, of others and of the server."""
        own = (
            str(self.seed),
            hidden_by(self.seed),
            str(REWARD),
            self.session.name,
            self.session.opened["resume_token"],
        )
        return (*CANARIES, *own, *self.victim.canaries)

    @property
    def _ports(self) -> tuple[int, int]:
        return self.arena.control_port, self.arena.agent_port


@contextmanager
def scene_of(arena: Arena, victim: Victim, **wish: Any) -> Iterator[Scene]:
    """Give an attacker an episode of its own."""
    seed, start = next(_seeds), arena.log.end
    with arena.session() as session:
        begun = session.ask("reset", {"seed": seed, "grant": {"agent": "attacker", **wish}})
        granted = begun["data"]["grant"]
        agent = Caller(arena.agent_port, granted["token"])
        yield Scene(arena, victim, session, seed, granted, agent, Wire(arena.control_port), start)


AGENTS: Final[Book[Scene]] = Book()
"""The attacks from the agent's side."""
