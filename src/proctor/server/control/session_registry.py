"""All sessions of one server: who has one, who waits for one, and when one ends.

Rule 1: a session is reached by the connection that holds it, or by its resume token; by nothing else.
Rule 2: a session ends when its client closes it, when nobody came back to it, when nobody used it, or with the server;
    never while a request runs or waits, but for the last of these.
Rule 3: `sweep` looks at the clock that it was given; it has no timer of its own.
Rule 4: a free slot goes to the one who has waited longest. The queue has a limit, and waiting has one; beyond them
    CAPACITY_REACHED says how full it is.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from proctor.access.credentials import Credential, accepts, generate_secret
from proctor.contracts.recorder import Recorder
from proctor.ledger.storage_limits import DiskSpace
from proctor.ledger.writer import UnfinishedSession
from proctor.models.control import Code, Notice, Open, Opened, Problem, Resume
from proctor.models.wire import Encoding
from proctor.server.control.channel import STOPPING, Outlet, SessionChannel
from proctor.server.control.recovery import RecordedReplies, SessionRecovery
from proctor.server.grants import GrantService
from proctor.server.net.metrics import Metrics
from proctor.server.rewards.pipeline import Plan
from proctor.server.runtime.results import RequestRefused, make_refusal
from proctor.server.sessions.session import Session
from proctor.server.sessions.session_factory import SessionFactory
from proctor.server.sessions.session_spec import SessionSpec
from proctor.server.settings import ServerSettings


class SessionSlots:
    """`most` sessions at once; `most_waiting` may wait `wait_seconds` for one to end."""

    def __init__(self, most: int, most_waiting: int, wait_seconds: float) -> None:
        self.most = most
        self.taken = 0
        self._most_waiting = most_waiting
        self._wait_seconds = wait_seconds
        self._closed: Problem | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """How many wait for a slot."""
        return len(self._waiting)

    async def take(self) -> None:
        """Take a slot, now or when it is our turn, or raise a refusal."""
        if self._closed is not None:
            raise RequestRefused(self._closed)
        if self.taken < self.most and not self._waiting:
            self.taken += 1
            return
        if len(self._waiting) >= self._most_waiting or self._wait_seconds <= 0:
            raise self._full()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(self._wait_seconds):
                await turn
        except (TimeoutError, asyncio.CancelledError) as problem:
            if turn in self._waiting:
                self._waiting.remove(turn)
            elif turn.done() and not turn.cancelled() and turn.exception() is None:
                # It was our turn in the very moment in which we gave up.
                self.give_back()
            if isinstance(problem, TimeoutError):
                raise self._full() from None
            raise

    def close(self, problem: Problem) -> None:
        """Give out no more slots; whoever asks or waits is refused with `problem`."""
        self._closed = problem
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(RequestRefused(problem))

    def give_back(self) -> None:
        """Give a slot back; whoever waits longest has it now."""
        self.taken -= 1
        while self._waiting and self.taken < self.most:
            turn = self._waiting.popleft()
            if not turn.done():
                self.taken += 1
                turn.set_result(None)

    def _full(self) -> RequestRefused:
        return make_refusal(
            Code.CAPACITY_REACHED,
            "all sessions are taken",
            active_sessions=self.taken,
            max_sessions=self.most,
            retry_after_seconds=max(1.0, self._wait_seconds),
        )


LOG: Final = logging.getLogger("proctor.sessions")
SUPERSEDED: Final = 4000
IDLE: Final = 1008
LOST: Final = Problem(
    "this session cannot be resumed: it ended, or it belongs to another run of the server, or the token is wrong",
    Code.EPISODE_LOST,
    expected="a new session and a reset",
    lost=True,
)


NO_SPACE: Final = Problem(
    "the disk that holds the record is nearly full: no session is opened",
    Code.DISK_LOW,
    expected="another try, once there is space on the server's disk again",
)


class SessionRegistry:
    """The sessions of one server; `clock` counts seconds, `wall` tells the time for the record."""

    def __init__(
        self,
        settings: ServerSettings,
        spec: SessionSpec,
        plan: Plan,
        recorder: Recorder,
        metrics: Metrics,
        granting: GrantService,
        *,
        boot: str,
        clock: Callable[[], float],
        wall: Callable[[], float],
        space: DiskSpace | None = None,
    ) -> None:
        self.boot: Final = boot
        self.stopping = False
        self.channels: Final[dict[str, SessionChannel]] = {}
        self.slots: Final = SessionSlots(settings.max_sessions, settings.max_waiting, settings.wait_seconds)
        self._settings = settings
        self._openings = SessionFactory(settings, spec, plan, recorder, boot=boot, wall=wall)
        self._metrics = metrics
        self._granting = granting
        self._clock = clock
        self._space = space
        self._ending: set[asyncio.Task[None]] = set()

    async def open(self, wish: Open, outlet: Outlet, encoding: Encoding) -> tuple[SessionChannel, Opened]:
        """Open a session for a client that said hello, or raise a refusal."""
        secret, credential = generate_secret()
        session = self._openings.create(wish, encoding, credential.digest.hex())
        await self._make_ready(session)
        channel = self._channel(session, outlet, credential)
        self._has_begun(channel)
        return channel, Opened(
            secret,
            self._settings.grace_seconds,
            session.step_timeout,
            self._settings.idle_seconds,
            session.spec.num_envs,
            session.spec.autoreset_mode,
        )

    def create_plain(self, outlet: Outlet) -> SessionChannel:
        """Return a channel for a client without hello; its session is opened by its first request."""
        session = self._openings.create(Open(), Encoding())

        async def prepare() -> None:
            await self._make_ready(session)
            self._has_begun(channel)

        channel = self._channel(session, outlet, None, prepare=prepare)
        return channel

    async def recover(self, found: Sequence[UnfinishedSession]) -> None:
        """Go on with the sessions that an earlier run has left open; for the time before anybody can connect."""
        if found:
            room = self.slots.most - self.slots.taken
            recovery = SessionRecovery(
                self._settings, self._openings, self._granting, clock=self._clock, room=room, adopt=self._adopt
            )
            await recovery.recover(found)
            for channel in self.channels.values():
                # Their clients can come back from now on, not since each was ready.
                channel.detached_at = channel.used_at = self._clock()

    def _adopt(self, session: Session, past: RecordedReplies) -> None:
        """Keep a session that nobody has resumed yet."""
        self.slots.taken += 1
        self._has_begun(self._channel(session, None, Credential(bytes.fromhex(session.resume)), past=past))

    def resume(self, wish: Resume, outlet: Outlet) -> SessionChannel:
        """Return the session to the client that holds its token; the connection that had it is closed."""
        channel = self.channels.get(wish.session)
        if channel is None or channel.credential is None or channel.closed:
            raise RequestRefused(LOST)
        if not accepts(channel.credential, wish.resume_token):
            raise RequestRefused(LOST)
        holder = channel.outlet
        if holder is not None and holder is not outlet:
            holder.end(SUPERSEDED, "resumed on another connection")
        channel.outlet = outlet
        channel.detached_at = None
        channel.used_at = self._clock()
        return channel

    def detach(self, channel: SessionChannel, outlet: Outlet) -> None:
        """Note that a connection is gone: its session waits for its client, or ends if nobody can come back to it."""
        if channel.outlet is not outlet:
            return
        channel.outlet = None
        channel.detached_at = self._clock()
        if not channel.resumable or self._settings.grace_seconds == 0:
            self.start_ending(channel, "disconnected")

    def start_ending(self, channel: SessionChannel, reason: str) -> None:
        """End a session without waiting for it; from now on its requests are told that it is gone."""
        if not channel.closed:
            channel.closed = True
            task = asyncio.create_task(self._finish(channel, reason))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def end(self, channel: SessionChannel, reason: str) -> None:
        """End a session; doing it twice is harmless."""
        if not channel.closed:
            channel.closed = True
            await self._finish(channel, reason)

    async def _finish(self, channel: SessionChannel, reason: str) -> None:
        held = self.channels.pop(channel.session.name, None) is not None
        if channel.outlet is not None:
            channel.outlet.forget(channel.session.name)
        try:
            await channel.stop()
            if held:
                await channel.session.close(reason)
        finally:
            if held:
                self.slots.give_back()
                self._metrics.count_session_end(reason)
                self.note()

    async def sweep(self) -> None:
        """End what nobody came back to and what nobody used; warn those who are next."""
        now = self._clock()
        for channel in list(self.channels.values()):
            if channel.readers or channel.session.calls != channel.seen_calls:
                # Whoever waits uses the session, and so does an agent.
                channel.used_at, channel.seen_calls = now, channel.session.calls
            if not channel.busy:
                self._judge(channel, now)
        await self._granting.sweep()
        self.note()

    async def drain(self) -> None:
        """Take nothing new, let run what runs, then end every session."""
        self.stopping = True
        self.slots.close(STOPPING)
        notice = Notice("SHUTTING_DOWN", "the server is stopping", self._settings.drain_seconds)
        for channel in list(self.channels.values()):
            channel.stopping = True
            channel.warn(notice)
        deadline = self._clock() + self._settings.drain_seconds
        while any(channel.busy for channel in self.channels.values()) and self._clock() < deadline:
            await asyncio.sleep(0.01)
        await asyncio.gather(*(self.end(channel, "shutdown") for channel in list(self.channels.values())))
        if self._ending:
            await asyncio.wait(self._ending)

    def is_disk_low(self) -> bool:
        """Return whether the disk that holds the record is nearly full, so that no session is opened."""
        return self._space is not None and self._space.refresh()

    def note(self) -> None:
        """Tell the metrics how full it is."""
        if self._space is not None:
            self._space.refresh()
            self._metrics.note_disk(free=self._space.free, is_low=self._space.is_low)
        pending = sum(channel.pending for channel in self.channels.values())
        self._metrics.note(sessions=len(self.channels), waiting=self.slots.waiting, pending=pending)

    def _judge(self, channel: SessionChannel, now: float) -> None:
        settings = self._settings
        if channel.detached_at is not None and now - channel.detached_at >= settings.grace_seconds:
            self.start_ending(channel, "not resumed")
            return
        idle = now - channel.used_at
        if settings.idle_seconds is not None and idle >= settings.idle_seconds:
            LOG.info("a session was idle for too long", extra={"session": channel.session.name})
            if channel.outlet is not None and not channel.resumable:
                channel.outlet.end(IDLE, "idle")
            self.start_ending(channel, "idle")
        elif settings.warn_after is not None and idle >= settings.warn_after and not channel.warned:
            channel.warned = True
            left = (settings.idle_seconds or 0.0) - idle
            channel.warn(Notice("IDLE", "this session is not used and will be closed", left))

    async def _make_ready(self, session: Session) -> None:
        """Take a slot and make the environment, or raise a refusal and hold neither."""
        if self.is_disk_low():
            raise RequestRefused(NO_SPACE)
        await self.slots.take()
        opened = False
        try:
            await session.open()
            if self.stopping:
                await session.close("shutdown")
                raise RequestRefused(STOPPING)
            opened = True
        finally:
            if not opened:
                self.slots.give_back()

    def _has_begun(self, channel: SessionChannel) -> None:
        self.channels[channel.session.name] = channel
        self._metrics.count_session()
        self.note()

    def _channel(
        self, session: Session, outlet: Outlet | None, credential: Credential | None, **more: Any
    ) -> SessionChannel:
        return SessionChannel(
            session,
            outlet,
            self._metrics,
            clock=self._clock,
            credential=credential,
            granting=self._granting,
            max_pending=self._settings.max_pending,
            ended=partial(self.end, reason="closed"),
            **more,
        )
