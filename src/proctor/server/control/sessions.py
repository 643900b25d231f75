"""All sessions of one server: who has one, who waits for one, and when one ends.

Rule 1: a session is reached by the connection that holds it, or by its resume token; by nothing else.
Rule 2: a session ends when its client closes it, when nobody came back to it, when nobody used it, or with the server;
    never while a request runs or waits, but for the last of these.
Rule 3: `sweep` looks at the clock that it was given; it has no timer of its own.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from proctor.contracts.recorder import Recorder
from proctor.door.credentials import Credential, accepts, token
from proctor.ledger.storage import DiskSpace
from proctor.ledger.writer import Unfinished
from proctor.models.control import Code, Notice, Open, Opened, Problem, Resume
from proctor.models.wire import Encoding
from proctor.server.answers import Refused
from proctor.server.control.channel import STOPPING, Channel, Outlet
from proctor.server.control.granting import Granting
from proctor.server.control.openings import Openings
from proctor.server.control.past import Past
from proctor.server.control.survivors import Survivors
from proctor.server.metrics import Metrics
from proctor.server.opening import Opening
from proctor.server.session import Session
from proctor.server.settings import ServerSettings
from proctor.server.slots import Slots
from proctor.server.transforms import Plan

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


class Sessions:
    """The sessions of one server; `clock` counts seconds, `wall` tells the time for the record."""

    def __init__(
        self,
        settings: ServerSettings,
        opening: Opening,
        plan: Plan,
        recorder: Recorder,
        metrics: Metrics,
        granting: Granting,
        *,
        boot: str,
        clock: Callable[[], float],
        wall: Callable[[], float],
        space: DiskSpace | None = None,
    ) -> None:
        self.boot: Final = boot
        self.stopping = False
        self.channels: Final[dict[str, Channel]] = {}
        self.slots: Final = Slots(settings.max_sessions, settings.max_waiting, settings.wait_seconds)
        self._settings = settings
        self._openings = Openings(settings, opening, plan, recorder, boot=boot, wall=wall)
        self._metrics = metrics
        self._granting = granting
        self._clock = clock
        self._wall = wall
        self._space = space
        self._ending: set[asyncio.Task[None]] = set()

    async def open(self, wish: Open, outlet: Outlet, encoding: Encoding) -> tuple[Channel, Opened]:
        """Open a session for a client that said hello, or raise a refusal."""
        secret, credential = token()
        session = self._openings.wished(wish, encoding, credential.digest.hex())
        await self._made_ready(session)
        channel = self._channel(session, outlet, credential)
        self._has_begun(channel)
        return channel, Opened(
            secret,
            self._settings.grace_seconds,
            session.step_timeout,
            self._settings.idle_seconds,
            session.opening.num_envs,
            session.opening.autoreset_mode,
        )

    def plain(self, outlet: Outlet) -> Channel:
        """Return a channel for a client without hello; its session is opened by its first request."""
        session = self._openings.plain()

        async def prepare() -> None:
            await self._made_ready(session)
            self._has_begun(channel)

        channel = self._channel(session, outlet, None, prepare=prepare)
        return channel

    async def take_up(self, found: Sequence[Unfinished]) -> None:
        """Go on with the sessions that an earlier run has left open; for the time before anybody can connect."""
        if found:
            survivors = Survivors(
                self._openings,
                self._granting,
                boot=self.boot,
                most_answers=self._settings.max_pending + 1,
                patience=self._settings.grace_seconds,
                clock=self._clock,
                wall=self._wall,
                room=self.slots.most - self.slots.taken,
                adopt=self._adopt,
            )
            await survivors.take_up(found)
            for channel in self.channels.values():
                # Their clients can come back from now on, not since each was ready.
                channel.detached_at = channel.used_at = self._clock()

    def _adopt(self, session: Session, past: Past) -> None:
        """Keep a session that nobody has resumed yet."""
        self.slots.taken += 1
        self._has_begun(self._channel(session, None, Credential(bytes.fromhex(session.resume)), past=past))

    def resume(self, wish: Resume, outlet: Outlet) -> Channel:
        """Return the session to the client that holds its token; the connection that had it is closed."""
        channel = self.channels.get(wish.session)
        if channel is None or channel.credential is None or channel.closed:
            raise Refused(LOST)
        if not accepts(channel.credential, wish.resume_token):
            raise Refused(LOST)
        holder = channel.outlet
        if holder is not None and holder is not outlet:
            holder.end(SUPERSEDED, "resumed on another connection")
        channel.outlet = outlet
        channel.detached_at = None
        channel.used_at = self._clock()
        return channel

    def detach(self, channel: Channel, outlet: Outlet) -> None:
        """Note that a connection is gone: its session waits for its client, or ends if nobody can come back to it."""
        if channel.outlet is not outlet:
            return
        channel.outlet = None
        channel.detached_at = self._clock()
        if not channel.resumable or self._settings.grace_seconds == 0:
            self.start_ending(channel, "disconnected")

    def start_ending(self, channel: Channel, reason: str) -> None:
        """End a session without waiting for it; from now on its requests are told that it is gone."""
        if not channel.closed:
            channel.closed = True
            task = asyncio.create_task(self._finish(channel, reason))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def end(self, channel: Channel, reason: str) -> None:
        """End a session; doing it twice is harmless."""
        if not channel.closed:
            channel.closed = True
            await self._finish(channel, reason)

    async def _finish(self, channel: Channel, reason: str) -> None:
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
                self._metrics.ended(reason)
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
        await self._granting.wrap_up()
        self._granting.sweep()
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

    def _judge(self, channel: Channel, now: float) -> None:
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

    async def _made_ready(self, session: Session) -> None:
        """Take a slot and make the environment, or raise a refusal and hold neither."""
        if self.is_disk_low():
            raise Refused(NO_SPACE)
        await self.slots.take()
        opened = False
        try:
            await session.open()
            if self.stopping:
                await session.close("shutdown")
                raise Refused(STOPPING)
            opened = True
        finally:
            if not opened:
                self.slots.give_back()

    def _has_begun(self, channel: Channel) -> None:
        self.channels[channel.session.name] = channel
        self._metrics.opened()
        self.note()

    async def _closed_by_client(self, channel: Channel) -> None:
        await self.end(channel, "closed")

    def _channel(self, session: Session, outlet: Outlet | None, credential: Credential | None, **more: Any) -> Channel:
        return Channel(
            session,
            outlet,
            self._metrics,
            clock=self._clock,
            credential=credential,
            granting=self._granting,
            max_pending=self._settings.max_pending,
            ended=self._closed_by_client,
            **more,
        )
