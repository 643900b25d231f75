"""One WebSocket to a server, with any number of sessions on it.

Rule 1: `hello` comes first. A server that does not know it is spoken to as OpenEnv speaks: one session, one request at a
    time, nothing beside `type` and `data`, and a broken connection is the end of the episode.
Rule 2: a connection that breaks is sought again for as long as a session can still be resumed (`recovery`); what was not
    answered is then repeated with the same id. A message that is not JSON breaks the connection too.
Rule 3: what a session means is not known here.
"""

import asyncio
import logging
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Final, Self

import msgspec

from proctor.client.address import Address, address_of, followed
from proctor.client.continuity import Doubt
from proctor.client.greeting import hello, welcome_of
from proctor.client.outbox import Outbox
from proctor.client.pending import Pending
from proctor.client.problems import problem_of, read_reply, text_of
from proctor.client.recovery import Recovery
from proctor.client.session import AnySession, Session, Standing
from proctor.client.settings import Settings
from proctor.client.socket import Socket, dial
from proctor.errors import RequestTimeout, StateError, ValidationError
from proctor.models.control import Code, Kind, Metadata, Notice, Open, RawReply, Schemas, Seen, SeenBatch, Welcome

LOG: Final = logging.getLogger("proctor.client")
SUPERSEDED: Final = 4000
"""The close code that says: another connection has resumed your session."""
RATE_SECONDS: Final = 1.0
"""When to ask again if a server limits the rate and does not say for how long."""
WARNING: Final = "warning"
_REPLY: Final = msgspec.json.Decoder(RawReply).decode
Noticed = Callable[[Notice], None]


class Connection:
    """A connection that is made when it is first needed; `async with` makes it at once and closes it.

    `on_notice` hears what a server says unasked: that a session idles, that it shuts down. `clock`, `chance` and `sleep`
    are monotonic seconds, draws from [0, 1) and a pause, for reconnecting.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        settings: Settings | None = None,
        on_notice: Noticed | None = None,
        environment: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.address: Final = address_of(
            url, token=token, environment=os.environ if environment is None else environment
        )
        self.settings: Final = Settings() if settings is None else settings
        self.welcome: Welcome | None = None
        """What was agreed on; None before the first connection, and with a server that does not answer `hello`."""
        self.sessions: dict[int, AnySession] = {}
        """Those that are attached or wait to be resumed."""
        self.clock, self.chance, self.sleep = clock, chance, sleep
        self._on_notice = on_notice
        self._home = self.address
        self._socket: Socket | None = None
        self._up = False
        self._closed = False
        self._outbox = Outbox()
        self._opening = asyncio.Lock()
        self._recovery = Recovery(self)

    def __repr__(self) -> str:
        return f"Connection({str(self.address)!r})"

    @property
    def greeted(self) -> bool:
        """Whether the server answered `hello`."""
        return self.welcome is not None

    @property
    def boot(self) -> str | None:
        """Which run of the server answered `hello`; None: it did not."""
        return None if self.welcome is None else self.welcome.boot

    async def __aenter__(self) -> Self:
        await self.ready()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -------------------------------------------------------------------------------------------- for its users

    async def session(self, *, step_timeout_seconds: float | None = None, shared: bool = False) -> Session[Seen]:
        """Return a new session of one environment; in a `shared` one agents and the orchestrator may both act."""
        session = Session(self, Open(step_timeout_seconds=step_timeout_seconds, shared=shared), Seen)
        await session.open()
        return session

    async def batch(
        self,
        num_envs: int,
        *,
        autoreset_mode: str | None = None,
        infos: bool = False,
        step_timeout_seconds: float | None = None,
    ) -> Session[SeenBatch]:
        """Return a new session of `num_envs` environments that are stepped with one message."""
        try:
            order = msgspec.convert(
                {
                    "num_envs": num_envs,
                    "autoreset_mode": autoreset_mode,
                    "infos": infos,
                    "step_timeout_seconds": step_timeout_seconds,
                },
                Open,
            )
        except msgspec.ValidationError as problem:
            raise ValidationError(f"not a batch: {problem}", found=num_envs) from None
        session = Session(self, order, SeenBatch)
        await session.open()
        return session

    async def metadata(self) -> Metadata:
        """Return who serves what."""
        return read_reply(await self.request(Kind.METADATA), "metadata", Metadata)

    async def schema(self) -> Schemas:
        """Return the JSON Schemas of the wire types, and the spaces where there are some."""
        return read_reply(await self.request(Kind.SCHEMA), "schema", Schemas)

    async def request(self, kind: str, data: bytes = b"") -> RawReply:
        """Return the reply to a request that belongs to no session."""
        await self.ready()
        pending = self.ask(kind, data)
        try:
            reply = await pending.answer(self.settings.request_timeout)
        finally:
            self.forget(pending)
        if reply is None:
            raise RequestTimeout(f"the server did not answer {kind} in time")
        return reply

    async def close(self) -> None:
        """Close all sessions and the connection; calling it again does nothing."""
        if self._closed:
            return
        self._closed = True
        self._recovery.stop()
        await asyncio.gather(*(session.close() for session in list(self.sessions.values())))
        self._up = False
        self._outbox.fail(None, "the connection was closed")
        self._outbox.alarm.stop()
        if self._socket is not None:
            socket, self._socket = self._socket, None
            await socket.close()

    # ------------------------------------------------------------------------------------------ for its sessions

    async def ready(self) -> None:
        """Return when the connection is there; a broken one is sought again first, within the time of a request."""
        if self._up:
            return
        try:
            async with asyncio.timeout(self.settings.request_timeout):
                await self._made_ready()
        except TimeoutError:
            raise RequestTimeout(f"there is no connection to {self.address} in time") from None

    async def _made_ready(self) -> None:
        await self._recovery.over()
        async with self._opening:
            if self._closed:
                raise StateError("the connection is closed", expected="a new one")
            if not self._up:
                await self.greet(self.address)
                self._up = True
            if self._closed:
                self._drop_socket()
                raise StateError("the connection was closed meanwhile", expected="a new one")

    def ask(self, kind: str, data: bytes, *, session: AnySession | None = None, epoch: int | None = None) -> Pending:
        """Send a request, or keep it until its session is attached again."""
        if self.welcome is None:
            pending = self._outbox.plain(kind, data, session)
        else:
            pending = self._outbox.numbered(kind, data, session, epoch, self.welcome.max_message_bytes)
        if self._socket is None:
            if session is None:
                self._outbox.fail(None, f"there is no connection to {self.address}")
        elif session is None or session.standing is not Standing.SUSPENDED:
            self._socket.say(pending.message)
        return pending

    def repeat(self, pending: Pending) -> None:
        """Send a request again, byte for byte."""
        self._outbox.renew(pending)
        if self._socket is not None:
            self._socket.say(pending.message)

    def forget(self, pending: Pending) -> None:
        """Wait no longer for the answer."""
        self._outbox.forget(pending)

    def attach(self, session: AnySession) -> None:
        """Tell this session when the connection breaks; without `hello` there is room for one."""
        if self.welcome is None and any(other is not session for other in self.sessions.values()):
            raise StateError("this server has one session on a connection", expected="a connection for each session")
        self.sessions[id(session)] = session

    def detach(self, session: AnySession) -> None:
        """Undo `attach`, and fail what the session still waits for."""
        self.sessions.pop(id(session), None)
        self._outbox.fail(session, session.place.loss or "the session was closed")

    def waiting_of(self, session: AnySession) -> list[Pending]:
        """Return what a session still waits for, in the order in which it was asked."""
        return self._outbox.of(session)

    def hang_up(self) -> None:
        """Break the connection, so that nothing that is still on its way is heard."""
        if self._socket is not None:
            self._socket.abort()
            self.broken(self._socket)

    # ------------------------------------------------------------------------------------------- for its socket

    def heard(self, message: bytes) -> None:
        """Hand a reply to the one who waits for it."""
        try:
            reply = _REPLY(message)
        except (msgspec.DecodeError, UnicodeDecodeError):
            LOG.warning("%s sent something that is no message: the connection is broken off", self.address)
            self.hang_up()
            return
        if reply.type == WARNING:
            self._notice(reply)
            return
        if reply.type == "error" and self.welcome is not None and self._put_off(reply):
            return
        if not self._outbox.answer(reply) and reply.type == "opened" and self._socket is not None:
            # Whoever asked for this session has gone; nobody else will ever close it.
            self._socket.say(self._outbox.farewell(reply.session))

    def broken(self, socket: Socket) -> None:
        """Seek the connection again, or give up what was on it."""
        if socket is not self._socket:
            return
        self._socket = None
        was_up, self._up = self._up, False
        self._outbox.fail(None, f"the connection to {self.address} broke")
        if not was_up:
            return
        if self.welcome is None:
            self.lose_all("the connection broke, and this server resumes nothing", Doubt.CONNECTION_LOST)
        elif socket.close_code == SUPERSEDED:
            self.lose_all("another connection has resumed this session", Doubt.SUPERSEDED)
        elif self.sessions:
            for session in self.sessions.values():
                session.suspend()
            self._recovery.start()

    # -------------------------------------------------------------------------------------------- for `recovery`

    @property
    def home(self) -> Address:
        """Where the sessions are: the address that the server gave, if the credential may go there."""
        return self._home

    def restored(self) -> bool:
        """Note that all is in place again; False if it is broken already."""
        self._up = self._socket is not None
        return self._up

    def lose_all(self, message: str, code: str) -> None:
        """Tell every session that it is gone."""
        for session in list(self.sessions.values()):
            session.lose(message, code)

    async def greet(self, address: Address) -> None:
        """Connect and say `hello`, or raise ConnectionFailed; afterwards `welcome` says what was agreed on."""
        self._outbox.fail(None, "the connection is made anew")
        said = self._outbox.plain(Kind.HELLO, hello(self.settings))
        seconds = self.settings.connect_timeout
        done = False
        try:
            self._socket = await dial(address, self, seconds=seconds, ping_seconds=self.settings.ping_interval)
            self._socket.say(said.message)
            reply = await said.answer(seconds) if self._socket.is_open else said.reply
            self.welcome = welcome_of(reply, address)
            done = True
        finally:
            self.forget(said)
            if not done:
                self._drop_socket()
        self._home = followed(self.address, None if self.welcome is None else self.welcome.address)

    def _drop_socket(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.abort()

    def _put_off(self, reply: RawReply) -> bool:
        """Take care of an error that is not for whoever asked; return whether it was one.

        A limited rate means that nothing ran and to ask again later. An error without an id is about a request that the
        server did not read.
        """
        problem = problem_of(reply.data)
        if problem.code == Code.RATE_LIMITED:
            wait = problem.retry_after_seconds
            seconds = wait if isinstance(wait, float) else RATE_SECONDS
            asyncio.get_running_loop().call_later(seconds, self._ask_again, reply.id)
        elif reply.id is None:
            LOG.warning("%s did not read a request: %s", self.address, text_of(problem))
            self._outbox.blame(reply)
        else:
            return False
        return True

    def _ask_again(self, number: int | None) -> None:
        """Repeat what was not read; of what cannot be told apart, all but `open`, which is not to be done twice."""
        for pending in self._outbox.waiting():
            unknown = number is None and pending.kind != Kind.OPEN
            suspended = pending.session is not None and pending.session.standing is Standing.SUSPENDED
            if (unknown or pending.number == number) and not suspended:
                self.repeat(pending)

    def _notice(self, reply: RawReply) -> None:
        try:
            notice = msgspec.json.decode(reply.data, type=Notice)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        LOG.warning("%s: %s (%s, %g seconds left)", self.address, notice.message, notice.code, notice.seconds_left)
        if self._on_notice is not None:
            # Not from here: what a user's function raises is no reason for a connection to break.
            asyncio.get_running_loop().call_soon(self._on_notice, notice)
