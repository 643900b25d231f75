"""Sessions without a server, and grants on them, for tests of what agents may do."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, TypeVar

from proctor.contracts.recorder import Recorder
from proctor.envs.targets import Target
from proctor.models.control import Granted, GrantWish, Reset
from proctor.models.events import Event
from proctor.server.agent_access import AgentAccess, AgentView
from proctor.server.grants import GrantRegistry
from proctor.server.net.metrics import Metrics
from proctor.server.rewards.pipeline import plan_of
from proctor.server.runtime.env_adapter import describe_target
from proctor.server.sessions.response_builder import SingleResponseBuilder
from proctor.server.sessions.session import Session
from proctor.server.sessions.session_spec import SessionSpec, choose_executor_kind
from tests.server.live_server import PATIENCE

ADDRESS = "http://127.0.0.1:1/mcp"
Result = TypeVar("Result")


class Diary:
    """A recorder that remembers."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def record(self, event: Event) -> None:
        self.events.append(event)

    def head(self, session: str) -> None:
        pass

    def close(self) -> None:
        pass


class Room:
    """One session of an environment, its grants, and time that passes when it is told to."""

    def __init__(
        self, target: str = "CartPole-v1", *, address: str | None = ADDRESS, name: str = "s", **settings: Any
    ) -> None:
        self.now = 100.0
        self.diary = Diary()
        self.session = _session(name, Target(target, settings), self.diary)
        self.grants = GrantRegistry(address, calls_per_second=None, clock=lambda: self.now, wall=lambda: self.now + 1e9)
        self.for_agents = AgentAccess(self.grants, Metrics())

    @classmethod
    async def start(cls, *args: Any, **settings: Any) -> Self:
        """Return a room in which an episode has begun."""
        room = cls(*args, **settings)
        await room.begin()
        return room

    async def begin(self, seed: int = 1) -> None:
        if self.session.epoch == 0:
            await self.session.open()
        await self.session.reset(Reset(seed=seed), None)

    def give(self, **wish: Any) -> Granted:
        return self.grants.issue(self.session, GrantWish(**wish))

    def view(self, granted: Granted) -> AgentView:
        view = self.for_agents.find_view(granted.token)
        if view is None:
            raise AssertionError("the grant is dead")
        return view


def _session(name: str, target: Target, diary: Recorder) -> Session:
    with ThreadPoolExecutor(1) as thread:  # where no event loop runs, as when a server starts
        card = thread.submit(describe_target, target).result(PATIENCE)
    opening = SessionSpec(target, card, choose_executor_kind(target, card, None, None))
    account = SingleResponseBuilder(plan_of([]).pipeline(None), extended=True)
    return Session(name, opening, account, diary, clock=lambda: 12.5, boot="boot", step_timeout=300.0)


def run(scenario: Coroutine[Any, Any, Result]) -> Result:
    async def bounded() -> Result:
        async with asyncio.timeout(PATIENCE):
            return await scenario

    return asyncio.run(bounded())
