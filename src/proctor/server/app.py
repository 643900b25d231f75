"""Where the parts of a server are joined, and the only place.

Rule 1: a server is ready when its target was made once, its recorder is open and its sockets listen; not before.
Rule 2: told to stop, it takes nothing new, lets run what runs, says goodbye, and closes what it opened.
"""

import asyncio
import gc
import logging
import secrets
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from proctor import __version__
from proctor.access.credentials import Credential
from proctor.access.request_policy import AccessPolicy, Visits, policy_for
from proctor.contracts.recorder import Recorder
from proctor.envs.targets import Target
from proctor.ledger.keys import Signer
from proctor.ledger.storage_limits import DiskSpace
from proctor.ledger.writer import LedgerWriter
from proctor.server.agent_access import AgentAccess
from proctor.server.control.http_routes import ExtraRoutes, OperatorRoutes, make_http_routes
from proctor.server.control.plane import ControlPlane
from proctor.server.control.recovery import close_leftovers
from proctor.server.control.session_registry import SessionRegistry
from proctor.server.governed.governance import Governance
from proctor.server.governed.packet_stream import PacketLimits
from proctor.server.governed.policy import load_policy
from proctor.server.grants import GrantRegistry, GrantService
from proctor.server.isolation import Isolation, choose_isolation
from proctor.server.net.connections import forget_agent, raise_open_files_limit
from proctor.server.net.metrics import Metrics
from proctor.server.net.uvicorn_http import LimitedHttpProtocol, SecondaryHttpProtocol
from proctor.server.net.uvicorn_server import DrainingServer, FairServer, make_uvicorn_config, new_event_loop, port_of
from proctor.server.net.uvicorn_websocket import choose_websocket_protocol
from proctor.server.rewards.pipeline import plan_of
from proctor.server.sessions.recorders import JsonlRecorder, NullRecorder
from proctor.server.sessions.session_spec import SessionSpec, choose_executor_kind
from proctor.server.settings import ServerSettings

if TYPE_CHECKING:
    from proctor.server.agents.plane import AgentPlane
    from proctor.server.viewer_http.routes import Application, ViewerRoutes

LOG: Final = logging.getLogger("proctor.server")
PING_SECONDS: Final = 20.0
SWITCH_SECONDS: Final = 0.0005
AGENT_BUFFER_BYTES: Final = 64 * 1024
SHORTEST_SWEEP, LONGEST_SWEEP = 0.05, 5.0


@dataclass(frozen=True, slots=True)
class Listening:
    """The sockets of one worker: what it listens on, the port that is its alone, and where it listens for agents."""

    sockets: Sequence[socket.socket]
    own_port: int | None = None
    agents: socket.socket | None = None
    worker: int = 0
    """Which of the workers it is."""


@dataclass(frozen=True, slots=True)
class Keys:
    """What opens a server's planes, and what signs its ledger; None where there is no such plane, or nothing to sign."""

    control: Credential | None = None
    operator: Credential | None = None
    ledger: bytes | None = field(default=None, repr=False)
    """The seed of the key, 32 bytes."""


class Server:
    """One worker's server: a plane, its sessions, and the uvicorn that runs them.

    `visits` are for the browsers that look at its ledger: without them, or without a ledger of its own, there is no viewer.
    """

    def __init__(
        self,
        settings: ServerSettings,
        keys: Keys,
        listening: Listening,
        *,
        recorder: Recorder | None = None,
        visits: Visits | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        target = Target(settings.target, dict(settings.settings))
        plan = plan_of(settings.transforms)
        policy = None if settings.governed is None else load_policy(settings.governed)
        boot = secrets.token_hex(8)
        storage = settings.storage
        packets = PacketLimits(storage.max_packet_bytes, storage.max_refused_bytes)
        self.governance: Final = (
            None if policy is None else Governance(policy, boot=boot, wall=wall, clock=clock, packet_limits=packets)
        )
        self.settings: Final = settings
        # First: a file that cannot be written is found out before a sandbox is started.
        self._wall = wall
        folder = settings.ledger if recorder is None else None
        recorded_in = settings.ledger if settings.record is None else settings.record.absolute().parent
        self.space: Final = (
            None if recorder is not None or recorded_in is None else DiskSpace(recorded_in, storage.min_free_bytes)
        )
        self._ledger_of = (
            None if folder is None else partial(_make_ledger, folder, settings, keys, boot, wall, self.space)
        )
        self._ledger = None if self._ledger_of is None else self._ledger_of(listening.worker)
        self.recorder: Final = recorder or self._ledger or _make_recorder(settings, self.space)
        self.isolation: Final = self._find_isolation(target)
        self.card: Final = self.isolation.card
        self.metrics: Final = Metrics()
        wanted = None if settings.place == "auto" else settings.place
        spec = SessionSpec(
            target,
            self.card,
            choose_executor_kind(target, self.card, wanted, None) if self.isolation.pool is None else "process",
            transforms=[dict(spec) for spec in plan.specs],
            scenes=settings.ledger is not None,
            policy=None if policy is None else policy.as_document(),
            pool=self.isolation.pool,
            tier=self.isolation.tier,
            probe=self.isolation.probe,
        )
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        self.agents_address: Final = (
            None if listening.agents is None else settings.agent_url or f"http://{host}:{port_of(listening.agents)}/mcp"
        )
        grants = GrantRegistry(
            self.agents_address, calls_per_second=settings.agent_calls_per_second, clock=clock, wall=wall
        )
        self.sessions: Final = SessionRegistry(
            settings,
            spec,
            plan,
            self.recorder,
            self.metrics,
            GrantService(grants, wall=wall, governance=self.governance),
            boot=boot,
            clock=clock,
            wall=wall,
            space=self.space,
        )
        limits = settings.limits.limits()
        self.viewing: Final = None if visits is None else self._viewing(settings, visits)
        operating = self._operating(visits)
        self.plane: Final = ControlPlane(
            _make_policies(settings, keys.control, listening.sockets),
            self.sessions,
            self.card,
            make_http_routes(
                self.card,
                self.sessions,
                self.metrics,
                limits.max_body_bytes,
                self.agents_address,
                operating,
                None if self.viewing is None else _describe_viewer(self.viewing),
            ),
            self.metrics,
            limits=limits,
            max_pending=settings.max_pending,
            max_connections=settings.max_connections,
            own_port=listening.own_port,
            operator_policies=None
            if operating is None
            else _make_policies(settings, keys.operator, listening.sockets, pages=self.viewing is not None),
            visits=None if self.viewing is None else visits,
            stopped=None if operating is None else partial(self._stop_pages, operating),
        )
        self._grants = grants
        self.agents: Final = self._agent_plane(settings, grants, listening.agents)
        self._listening = listening
        application: Application = self.plane
        if self.viewing is not None:
            from proctor.server.viewer_http.routes import add_headers

            application = add_headers(application)
        config = make_uvicorn_config(
            application,
            http=LimitedHttpProtocol,
            ws=choose_websocket_protocol(),
            ws_max_size=settings.limits.max_message_bytes,
            ws_ping_interval=PING_SECONDS,
            ws_ping_timeout=PING_SECONDS,
            ws_per_message_deflate=False,
        )
        self._uvicorn = DrainingServer(config, self._drain)

    def _find_isolation(self, target: Target) -> Isolation:
        """Return where environments will run; if nowhere, the record is closed, as of any run that ends."""
        try:
            found = choose_isolation(self.settings, target)
            try:
                if self.governance is not None:
                    self.governance.check(found.card.tools)
            except BaseException:
                if found.pool is not None:
                    found.pool.end()
                raise
        except BaseException:
            self.recorder.close()
            raise
        return found

    async def serve(self, ready: Callable[[], object] | None = None) -> None:
        """Serve until told to stop; `ready` is called when the sockets are being listened on."""
        if ready is not None:
            self._uvicorn.ready = ready
        try:
            await self._take_up()
            sweep = asyncio.create_task(self._sweep())
            try:
                async with self._serve_agents():
                    await self._uvicorn.serve(sockets=list(self._listening.sockets))
            finally:
                sweep.cancel()
                with suppress(asyncio.CancelledError):
                    await sweep
        finally:
            if self.isolation.pool is not None:
                await self.isolation.pool.close()
            if self.viewing is not None:
                self.viewing.close()
            self.recorder.close()

    async def _take_up(self) -> None:
        if self._ledger is None or self._ledger_of is None:
            return
        await self.sessions.recover(self._ledger.unfinished())
        if self._listening.worker == 0:
            await close_leftovers(self._ledger.path.parent, self.settings.workers, self._ledger_of, self._wall)

    def stop(self) -> None:
        """Begin to stop; `serve` returns when it is done."""
        self._uvicorn.should_exit = True

    async def _drain(self) -> None:
        if self.agents is not None:
            self.agents.stop()
        await self.sessions.drain()
        await self.plane.close_connections()

    def _stop_pages(self, operating: OperatorRoutes) -> None:
        operating.stop()
        if self.viewing is not None:
            self.viewing.stop()

    def _operating(self, visits: Visits | None) -> OperatorRoutes | None:
        """Return the operator's side: there is one if episodes are governed, or if there are pages to look at."""
        if self.governance is None and self.viewing is None:
            return None
        operator = None if self.governance is None else self.governance.operator
        code = None if visits is None or self.viewing is None else visits.code
        return OperatorRoutes(operator, self.metrics, self.settings.limits.limits(), code=code)

    def _viewing(self, settings: ServerSettings, visits: Visits) -> "ViewerRoutes | None":
        if self._ledger is None:
            return None
        # Here: most servers have nobody who looks.
        from proctor.server.viewer_http.readers import ReaderPool
        from proctor.server.viewer_http.routes import ViewerOffer, ViewerRoutes

        return ViewerRoutes(
            ReaderPool(self._ledger.path.parent, live=True),
            visits,
            self.metrics,
            settings.limits.limits(),
            offer=ViewerOffer(environment=settings.target),
            pending=None if self.governance is None else self.governance.operator.pending,
        )

    def _agent_plane(
        self, settings: ServerSettings, grants: GrantRegistry, listener: socket.socket | None
    ) -> "AgentPlane | None":
        port = None if listener is None else port_of(listener)
        if port is None:
            return None
        # Here: the MCP library takes a second to import, and most servers have no agents.
        from proctor.server.agents.mcp_server import McpServer
        from proctor.server.agents.plane import AgentPlane

        hosts, origins = settings.allow_hosts, settings.allow_origins
        limits = settings.limits.limits()
        plane = AgentPlane(
            {port: policy_for(settings.host, port, None, allow_hosts=hosts, allow_origins=origins, many_tokens=True)},
            AgentAccess(grants, self.metrics, limits),
            McpServer(self.card.name, self.card.version, limits=limits),
            limits=limits,
            refused=self.metrics.count_refusal,
        )
        grants.on_forget(plane.forget)
        return plane

    @asynccontextmanager
    async def _serve_agents(self) -> AsyncIterator[None]:
        if self.agents is None or self._listening.agents is None:
            yield
            return
        # Connections inherit it: what one peer can have read at once, however fast it sends.
        self._listening.agents.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, AGENT_BUFFER_BYTES)
        beside = _SecondServer(make_uvicorn_config(self.agents, http=SecondaryHttpProtocol, ws="none"))
        self._grants.on_forget(partial(forget_agent, beside.server_state))
        async with self.agents.running():
            task = asyncio.create_task(beside.serve(sockets=[self._listening.agents]))
            try:
                yield
            finally:
                # Its streams would keep uvicorn waiting.
                await self.agents.close()
                beside.should_exit = True
                await task

    async def _sweep(self) -> None:
        """Have the sessions looked at from time to time."""
        pauses = [self.settings.grace_seconds, self.settings.warn_after or LONGEST_SWEEP]
        pause = min(max(min(pauses) / 4, SHORTEST_SWEEP), LONGEST_SWEEP)
        while True:
            await asyncio.sleep(pause)
            try:
                await self.sessions.sweep()
            except Exception:  # whatever is wrong with one look at the sessions, there is a next one
                LOG.exception("the sessions could not be looked at")


def run(server_of: Callable[[], Server], ready: Callable[[str], object]) -> None:
    """Make a server and serve, on an event loop of its own, until told to stop; `ready` is told the tier."""
    raise_open_files_limit()
    # Made before there is a loop: an environment may run one of its own while it is made or closed.
    server = server_of()

    def begin() -> None:
        # What is here now stays until the end: no collection need look at it again.
        gc.collect()
        gc.freeze()
        ready(server.isolation.tier)

    # Threads commit and start workers: while one computes, the loop does not wait for it as long as Python would let it.
    sys.setswitchinterval(SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(server.serve(begin))


class _SecondServer(FairServer):
    """uvicorn on a second socket; signals are the first one's."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _describe_viewer(viewing: "ViewerRoutes") -> ExtraRoutes:
    from proctor.server.viewer_http.endpoints import describe_paths, describe_schemas

    return ExtraRoutes(viewing.routes(), describe_paths(can_fork=False), describe_schemas())


def _make_ledger(
    folder: Path,
    settings: ServerSettings,
    keys: Keys,
    boot: str,
    wall: Callable[[], float],
    space: DiskSpace | None,
    worker: int,
) -> LedgerWriter:
    return LedgerWriter(
        folder,
        worker=worker,
        boot=boot,
        server=__version__,
        signer=None if keys.ledger is None else Signer.of(keys.ledger),
        durability=settings.durability,
        observations=settings.observations,
        wall=wall,
        limits=settings.storage.storage_limits(),
        space=space,
    )


def _make_recorder(settings: ServerSettings, space: DiskSpace | None) -> Recorder:
    if settings.record is None:
        return NullRecorder()
    limits = settings.storage.storage_limits()
    return JsonlRecorder(settings.record, sync=settings.record_sync, limits=limits, space=space)


def _make_policies(
    settings: ServerSettings, credential: Credential | None, sockets: Sequence[socket.socket], *, pages: bool = False
) -> dict[int | None, AccessPolicy]:
    hosts, origins = settings.allow_hosts, settings.allow_origins
    return {
        port: policy_for(settings.host, port, credential, allow_hosts=hosts, allow_origins=origins, pages=pages)
        for port in map(port_of, sockets)
    }
