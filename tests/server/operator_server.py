"""A control plane with an operator's side on loopback, and a stand-in for the operator behind it that remembers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import uvicorn
from msgspec import Raw

from proctor.access.credentials import Credential
from proctor.access.limits import RequestLimits
from proctor.access.request_policy import AccessPolicy, policy_for
from proctor.envs.targets import Target
from proctor.models.control import Code
from proctor.models.operator import (
    Choice,
    Done,
    GovernedSession,
    InEpisode,
    JudgedPage,
    JudgedRow,
    NamedQuestion,
    Waiting,
)
from proctor.server.control.http_routes import OperatorRoutes, make_http_routes
from proctor.server.control.plane import ControlPlane
from proctor.server.control.session_registry import SessionRegistry
from proctor.server.governed.governance import Operator
from proctor.server.grants import GrantRegistry, GrantService
from proctor.server.net.metrics import Metrics
from proctor.server.net.uvicorn_http import LimitedHttpProtocol
from proctor.server.net.uvicorn_server import bind_tcp, port_of
from proctor.server.net.uvicorn_websocket import QuickWebSocketProtocol
from proctor.server.rewards.pipeline import plan_of
from proctor.server.runtime.env_adapter import EnvDescription, describe_target
from proctor.server.runtime.results import make_refusal
from proctor.server.sessions.episode_status import RowLog
from proctor.server.sessions.recorders import NullRecorder
from proctor.server.sessions.session_spec import SessionSpec
from proctor.server.settings import parse_settings
from tests.server.live_server import PATIENCE, until

TARGET: Final = Target("tests.server.environments:Counting")
CONTROL_SECRET: Final = "the-control-secret-0123456789"
OPERATOR_SECRET: Final = "the-operator-secret-0123456789"
GRANT_SECRET: Final = "the-token-of-a-grant-0123456789"
LIMITS: Final = RequestLimits(max_body_bytes=100_000, max_depth=16)
NOON: Final = 1_735_732_800.0


def row(number: int, **other: Any) -> JudgedRow:
    """Return a row as a governor makes it."""
    fields: dict[str, Any] = {
        "session": "a-session",
        "epoch": 1,
        "step": 0,
        "at": NOON,
        "principal": "agent",
        "kind": "BeliefUpdatePacket",
        "accepted": True,
        "judged": True,
        "state": "S2_MODEL",
        "line": Raw(b'{"header":{}}'),
        "packet_id": f"p{number}",
    }
    return JudgedRow(row=number, **{**fields, **other})


def question(name: str = "q1", **other: Any) -> Waiting:
    options = [Choice("go", "Go on as planned"), Choice("stop", "Stop here")]
    fields: dict[str, Any] = {"kind": "escalation", "question": "May I go on?", "options": options, "grant": "g1"}
    fields |= {"session": "a-session", "epoch": 1, "since": NOON, "packet": Raw(b'{"header":{}}')}
    return Waiting(id=name, **{**fields, **other})


def standing(**other: Any) -> GovernedSession:
    fields: dict[str, Any] = {
        "session": "a-session",
        "epoch": 1,
        "episode_id": "e1",
        "policy": "standard",
        "state": "S8_ESCALATED",
        "safe_mode": False,
        "legal_next": ["ObservationPacket"],
        "obligations": ["an answer"],
        "tokens": ["t1"],
        "steps": 3,
        "packets": 7,
        "refusals": 2,
        "over": False,
        "waiting": 1,
    }
    return GovernedSession(**{**fields, **other})


def name_of(episode: InEpisode) -> str:
    """Return how acts remember an episode."""
    return f"{episode.session}.{episode.epoch}"


@dataclass
class StandIn:
    """An operator without episodes: acts are remembered; what is not there is refused as the real one refuses it."""

    waiting: dict[str, Waiting] = field(default_factory=dict)
    standings: list[GovernedSession] = field(default_factory=list)
    acts: list[tuple[Any, ...]] = field(default_factory=list)
    rows: RowLog = field(default_factory=RowLog)
    watchers: int = 0
    judge: Callable[[], Done] = lambda: Done("a-session", 1, True, "S3_DECIDE", "p9")
    """What the judge says of an act; it may raise."""

    def say(self, **other: Any) -> None:
        """Add a row; only on the server's loop."""
        self.rows.add(msgspec.json.encode(row(self.rows.last + 1, **other)))

    def pending(self) -> list[Waiting]:
        return list(self.waiting.values())

    def sessions(self) -> list[GovernedSession]:
        return self.standings

    async def watch(self, after: int = 0, wait_seconds: float = 20.0) -> JudgedPage:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        self.watchers += 1
        try:
            while True:
                page = self.rows.after(after, 1000)
                left = deadline - loop.time()
                if page.rows or page.missed or left <= 0:
                    return JudgedPage([Raw(each) for each in page.rows], self.rows.last, page.missed)
                await self.rows.wait_for_change(left)
        finally:
            self.watchers -= 1

    async def answer(self, asked: NamedQuestion, *, choice: str | None = None, text: str = "") -> Done:
        return self._answered(asked, "answer", choice, text)

    async def approve(
        self, asked: NamedQuestion, *, uses: int | None = None, life_seconds: float | None = None, text: str = ""
    ) -> Done:
        return self._answered(asked, "approve", uses, life_seconds, text)

    async def deny(self, asked: NamedQuestion, *, text: str = "") -> Done:
        return self._answered(asked, "deny", text)

    async def alert(self, episode: InEpisode, severity: str, summary: str) -> Done:
        return self._acted(episode, "alert", severity, summary)

    async def clear(self, episode: InEpisode, summary: str = "") -> Done:
        return self._acted(episode, "clear", summary)

    async def revoke(self, episode: InEpisode, *, token_id: str | None = None, grant: str | None = None) -> Done:
        return self._acted(episode, "revoke", token_id, grant)

    async def approve_budget(self, episode: InEpisode, **amounts: Any) -> Done:
        return self._acted(episode, "budget", *amounts.values())

    def _answered(self, asked: NamedQuestion, act: str, *said: Any) -> Done:
        found = self.waiting.get(asked.id)
        if found is None or (found.session, found.epoch) != (asked.session, asked.epoch):
            raise make_refusal(Code.STALE_QUESTION, "this question does not wait", expected="one that `pending` lists")
        done = self._done((act, name_of(asked), asked.id, *said))
        del self.waiting[asked.id]
        return done

    def _acted(self, episode: InEpisode, act: str, *said: Any) -> Done:
        if episode.session not in [each.session for each in self.standings]:
            raise make_refusal(Code.VALIDATION_ERROR, "there is no such session with a governed episode")
        if episode.epoch not in [each.epoch for each in self.standings if each.session == episode.session]:
            raise make_refusal(Code.STALE_EPOCH, "this is not the episode that runs in the session")
        return self._done((act, name_of(episode), *said))

    def _done(self, act: tuple[Any, ...]) -> Done:
        done = self.judge()
        self.acts.append(act)
        return done


@dataclass
class Operated:
    """A running plane and who is behind it."""

    plane: ControlPlane
    metrics: Metrics
    operator: StandIn
    port: int
    loop: asyncio.AbstractEventLoop
    uvicorn: uvicorn.Server

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def on_loop(self, work: Callable[[], Any]) -> Any:
        """Return what `work` returns on the server's loop."""

        async def call() -> Any:
            answer = work()
            return await answer if asyncio.iscoroutine(answer) else answer

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(PATIENCE)

    def say(self, **other: Any) -> None:
        self.on_loop(lambda: self.operator.say(**other))


def policies(port: int, secret: str | None) -> dict[int | None, AccessPolicy]:
    return {port: policy_for("127.0.0.1", port, None if secret is None else Credential.of(secret))}


def made_plane(
    port: int,
    metrics: Metrics,
    operating: OperatorRoutes | None,
    *,
    control: str | None = CONTROL_SECRET,
    secret: str | None = OPERATOR_SECRET,
) -> ControlPlane:
    """Return the control plane of a server that was never started, joined as `server/app.py` joins it."""
    card = _card()
    sessions = SessionRegistry(
        parse_settings({"target": TARGET.text, "sandbox": "none"}),
        SessionSpec(TARGET, card, "thread"),
        plan_of([]),
        NullRecorder(),
        metrics,
        GrantService(GrantRegistry(None, calls_per_second=None, clock=lambda: 0.0, wall=lambda: 0.0)),
        boot="boot",
        clock=lambda: 0.0,
        wall=lambda: 0.0,
    )
    return ControlPlane(
        policies(port, control),
        sessions,
        card,
        make_http_routes(card, sessions, metrics, LIMITS.max_body_bytes, operating=operating),
        metrics,
        limits=LIMITS,
        max_pending=10,
        max_connections=10,
        own_port=None,
        operator_policies=None if operating is None else policies(port, secret),
        stopped=None if operating is None else operating.stop,
    )


@contextmanager
def operated(operator: Operator | None = None, *, governed: bool = True) -> Iterator[Operated]:
    """Serve an operator's side until the block ends; without a real one behind it, a stand-in."""
    stand_in, metrics = StandIn(), Metrics()
    behind: Any = stand_in if operator is None else operator
    listener = bind_tcp("127.0.0.1", 0)
    port = port_of(listener) or 0
    operating = OperatorRoutes(behind, metrics, LIMITS) if governed else None
    plane = made_plane(port, metrics, operating)
    config = uvicorn.Config(plane, http=LimitedHttpProtocol, ws=QuickWebSocketProtocol, lifespan="off", log_config=None)
    server, loop = uvicorn.Server(config), asyncio.new_event_loop()

    async def serve() -> None:
        task = asyncio.ensure_future(server._serve([listener]))
        while not (server.should_exit or task.done()):
            await asyncio.sleep(0.01)
        await plane.close_connections()
        await task

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    until(lambda: server.started or not thread.is_alive())
    try:
        yield Operated(plane, metrics, stand_in, port, loop, server)
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the server did not stop"
        loop.close()


def _card() -> EnvDescription:
    with ThreadPoolExecutor(1) as thread:  # where no event loop runs, as when a server starts
        return thread.submit(describe_target, TARGET).result(PATIENCE)
