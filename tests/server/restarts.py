"""A server that is ended without a word, as far as its clients and its ledger can tell, and the next one in its place.

What a killed run leaves behind is what is on the disk: so the ledger is copied while the first server still runs, and the
second one is started on the copy. The clients' wire is then laid to the second.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from pydantic import Field

from proctor.client.connection import Backoff, Connection, ConnectionSettings
from proctor.contracts.environment import Environment
from proctor.ledger.reader import Ledger
from proctor.ledger.verify import verify
from proctor.models.events import Event
from proctor.models.wire import Action, Observation, State
from tests.client.wire_cutter import Wire, wire_to
from tests.server.live_server import Served, serving

QUICK = ConnectionSettings(backoff=Backoff(first=0.01, longest=0.05))


class Add(Action):
    """How much to add; -99 breaks the environment, 13 is refused by its model."""

    by: int = Field(default=1, le=12)


class Sum(Observation):
    """The sum so far, and how often it was begun."""

    total: int
    begun: int


class SumState(State):
    """The sum."""

    total: int = 0


class Adding(Environment[Add, Sum, SumState]):
    """Adds up from the seed on; does the same again as often as one likes. Ends at 100."""

    quick = True

    def __init__(self) -> None:
        self.total = self.begun = self.steps = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Sum:
        self.total, self.steps = seed or 0, 0
        self.begun += 1
        return self._seen(None)

    def step(self, action: Add) -> Sum:
        if action.by == -99:
            raise RuntimeError("a text from inside")
        self.total += action.by
        self.steps += 1
        return self._seen(float(action.by))

    def _seen(self, reward: float | None) -> Sum:
        return Sum(total=self.total, begun=self.begun, reward=reward, terminated=self.total >= 100)

    @property
    def state(self) -> SumState:
        return SumState(step_count=self.steps, total=self.total)


class Forgetful(Adding):
    """Does something else in every process, and in every instance."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        Forgetful.made += 1
        self.instance = Forgetful.made

    def step(self, action: Add) -> Sum:
        seen = super().step(action)
        return seen.model_copy(update={"metadata": {"instance": self.instance}})


class SharedAdding(Adding):
    """The same for two agents at once."""

    max_agents = 2


ADDING = f"{__name__}:Adding"
FORGETFUL = f"{__name__}:Forgetful"
SHARED = f"{__name__}:SharedAdding"


class Stage:
    """The server that runs now, and the wire to it."""

    def __init__(self, stack: ExitStack, folder: Path, target: str, settings: dict[str, Any]) -> None:
        self._stack = stack
        self._folder = folder
        self._target = target
        self._settings = settings
        self._runs = 0
        self.served = self._started(target, {})
        self.wire: Wire = stack.enter_context(wire_to(self.served.port))

    @property
    def ledger(self) -> Path:
        return self._folder / f"run-{self._runs}"

    @property
    def agents(self) -> str:
        address = self.served.server.agents_address
        assert address is not None
        return address

    def kill(self, target: str | None = None, *, cut: bool = True, **settings: Any) -> None:
        """Let the server that runs be gone, as if it had been killed, and start the next on what it has left."""
        left, self._runs = self.ledger, self._runs + 1
        shutil.copytree(left, self.ledger)
        self.served = self._started(target or self._target, settings)
        self.wire.target = self.served.port
        if cut:
            self.wire.cut()

    def events(self) -> list[Event]:
        """Return all that is on record, in order; the openings of chains are told once."""
        with Ledger.open(self.ledger) as ledger:
            rows = list(ledger.all_rows())
        return [row.event for row in rows if hasattr(row.event, "session") and row.seq != 0]  # type: ignore[misc]

    def of(self, *kinds: type[Any]) -> list[Any]:
        """Return the events of these kinds."""
        return [event for event in self.events() if isinstance(event, kinds)]

    def is_whole(self) -> bool:
        """Return whether nothing is wrong with the ledger."""
        report = verify(self.ledger)
        assert not report.findings, report.findings
        return True

    def _started(self, target: str, settings: dict[str, Any]) -> Served:
        told = {"allow_hosts": ["127.0.0.1"], "durability": "normal", **self._settings, **settings}
        return self._stack.enter_context(serving(target, ledger=self.ledger, **told))


@contextmanager
def staged(folder: Path, target: str = ADDING, **settings: Any) -> Iterator[Stage]:
    """Serve `target` with a ledger until the block ends."""
    with ExitStack() as stack:
        yield Stage(stack, folder, target, settings)


def run(test: Coroutine[Any, Any, Any]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(300):
            return await test

    return asyncio.run(bounded())


def connected(stage: Stage, **settings: Any) -> Connection:
    """Return a client's connection over the wire."""
    return Connection(stage.wire.url, settings=ConnectionSettings(backoff=QUICK.backoff, **settings))


def plain(seen: Any) -> Any:
    """Return what was seen but for what proves it: bytes and numbers, exactly."""
    return {
        name: bytes(value) if isinstance(value, msgspec.Raw) else value
        for name in seen.__struct_fields__
        if name not in ("head", "grant", "episode_id")
        for value in [getattr(seen, name)]
    }
