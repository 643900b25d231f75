"""One WebSocket to a server, with any number of sessions on it.

Rule 1: `hello` comes first. A server that does not know it is spoken to as OpenEnv speaks: one session, one request at a
    time, nothing beside `type` and `data`, and a broken connection is the end of the episode. A server that knows `hello` and
    refuses it, or has no room, is not spoken to at all.
Rule 2: a connection that breaks is made again (`Reconnection`) for as long as its server keeps a session; then the episode is
    lost. A message that is not JSON breaks the connection too.
Rule 3: whether a server knows a session is said by its answer to `resume`, and by nothing else: another run of it (`boot`)
    may have taken the session up from its ledger.
Rule 4: a session goes on only where it can stand (`continuity`); then what was not answered is repeated, same id, same
    bytes, in order.
Rule 5: what a session means is not known here.
"""

import asyncio
import logging
import os
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import msgspec

from proctor import __version__
from proctor.client.address import Address, follow_address, parse_address
from proctor.client.continuity import LossReason
from proctor.client.replies import FORGOTTEN_CODES, describe_problem, read_problem, read_reply
from proctor.client.requests import PendingRequest, PendingRequests
from proctor.client.session import AnySession, ClientSession, SessionStatus
from proctor.client.settings import ConnectionSettings
from proctor.client.socket import Socket, is_final, open_socket
from proctor.errors import ConnectionFailed, ProctorError, RemoteError, RequestTimeout, StateError, ValidationError
from proctor.models.control import (
    PROTOCOL,
    BatchReply,
    Code,
    Hello,
    MessageKind,
    Metadata,
    Notice,
    ObservationReply,
    Open,
    RawReply,
    Resume,
    Resumed,
    Schemas,
    Welcome,
)

if TYPE_CHECKING:
    from proctor.client.session import AnySession


RECONNECTION_LOG: Final = logging.getLogger("proctor.client")


class Reconnection:
    """The attempts of one connection to come back; at most one series of them runs."""

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._task: asyncio.Task[None] | None = None
        self._delays: Iterator[float] = iter(())
        self._back_since: float | None = None

    def start(self) -> None:
        """Begin to seek the sessions."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Give up at once."""
        if self._task is not None:
            self._task.cancel()

    async def wait_until_over(self) -> None:
        """Return when no attempt is under way; whether one succeeded is for the connection to say."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        connection = self._connection
        broke = connection.clock()
        self._renew_delays(broke)
        for delay in self._delays:
            left = self._remaining_seconds(broke)
            if left is None:
                return
            await connection.sleep(min(delay, left))
            try:
                await self._reconnect()
            except ProctorError as problem:
                RECONNECTION_LOG.info("no way back yet: %s", problem)
                if isinstance(problem, ConnectionFailed) and is_final(problem):
                    connection.lose_all(problem.message, LossReason.CONNECTION_LOST)
                continue
            if connection.mark_ready():
                self._back_since = connection.clock()
                return

    def _renew_delays(self, now: float) -> None:
        """Begin with short delays again, unless the connection broke soon after the last return."""
        backoff = self._connection.settings.backoff
        if self._back_since is None or now - self._back_since > backoff.longest:
            self._delays = backoff.delays(self._connection.chance)

    def _remaining_seconds(self, broke: float) -> float | None:
        """Return for how long some server still keeps a session; sessions beyond that are lost. None: none is left."""
        connection = self._connection
        gone = connection.clock() - broke
        left = {session: session.grace_seconds - gone for session in connection.sessions.values()}
        for session, seconds in left.items():
            if seconds <= 0:
                session.lose("the connection could not be made again in time", LossReason.CONNECTION_LOST)
        return max((seconds for seconds in left.values() if seconds > 0), default=None)

    async def _reconnect(self) -> None:
        """Connect and resume all sessions, or raise."""
        connection = self._connection
        await connection.greet(connection.home)
        if connection.welcome is None:
            connection.lose_all("the server was started anew and resumes nothing", LossReason.SERVER_RESTARTED)
            return
        asked = [(session, self._ask_resume(session)) for session in list(connection.sessions.values())]
        for session, pending in asked:
            await self._finish_resume(session, pending)

    def _ask_resume(self, session: "AnySession") -> PendingRequest:
        token = "" if session.opened is None else session.opened.resume_token
        order = Resume(session=session.name or "", resume_token=token)
        return self._connection.ask(MessageKind.RESUME, msgspec.json.encode(order))

    async def _finish_resume(self, session: "AnySession", pending: PendingRequest) -> None:
        connection = self._connection
        reply = await pending.answer(connection.settings.connect_timeout)
        if reply is None:
            connection.hang_up()
            raise ConnectionFailed("the server did not answer a resume")
        if reply.type == "error" and read_problem(reply.data).code in FORGOTTEN_CODES:
            same_run = connection.welcome is not None and connection.welcome.boot == session.boot
            session.lose(
                read_problem(reply.data).message, Code.EPISODE_LOST if same_run else LossReason.SERVER_RESTARTED
            )
            return
        waiting = connection.find_pending(session)
        session.come_back(reply, read_reply(reply, "resumed", Resumed), waiting)
        for each in connection.find_pending(session):
            connection.repeat(each)


NO_HELLO: Final = frozenset({Code.UNKNOWN_TYPE, Code.VALIDATION_ERROR, Code.INVALID_JSON})
"""How a server answers that does not know `hello`."""
NO_ROOM: Final = frozenset({Code.CAPACITY_REACHED, Code.FACTORY_ERROR})


def encode_hello(settings: ConnectionSettings) -> bytes:
    """Return the data of `hello`."""
    return msgspec.json.encode(Hello([PROTOCOL], f"proctor/{__version__}", settings.packed, settings.compression))


def read_welcome(reply: RawReply | None, address: Address) -> Welcome | None:
    """Return what was agreed on, None with a server that does not know `hello`; else raise."""
    if reply is None:
        raise ConnectionFailed(f"{address} did not answer hello")
    if reply.type != "error":
        return read_reply(reply, "hello", Welcome)
    problem = read_problem(reply.data)
    if problem.code in NO_HELLO:
        return None
    if problem.code in NO_ROOM:
        raise RemoteError(describe_problem(problem), code=problem.code)
    raise ConnectionFailed(f"{address} refused hello: {describe_problem(problem)}", found=problem.code)


LOG: Final = logging.getLogger("proctor.client")
SUPERSEDED: Final = 4000
"""The close code that says: another connection has resumed your session."""
RATE_SECONDS: Final = 1.0
"""When to ask again if a server limits the rate and does not say for how long."""
WARNING: Final = "warning"
_REPLY: Final = msgspec.json.Decoder(RawReply).decode
NoticeHandler = Callable[[Notice], None]


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
        settings: ConnectionSettings | None = None,
        on_notice: NoticeHandler | None = None,
        environment: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.address: Final = parse_address(
            url, token=token, environment=os.environ if environment is None else environment
        )
        self.settings: Final = ConnectionSettings() if settings is None else settings
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
        self._outbox = PendingRequests()
        self._opening = asyncio.Lock()
        self._recovery = Reconnection(self)

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
        await self.ensure_connection()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -------------------------------------------------------------------------------------------- for its users

    async def session(
        self, *, step_timeout_seconds: float | None = None, shared: bool = False
    ) -> ClientSession[ObservationReply]:
        """Return a new session of one environment; in a `shared` one agents and the orchestrator may both act."""
        session = ClientSession(self, Open(step_timeout_seconds=step_timeout_seconds, shared=shared), ObservationReply)
        await session.open()
        return session

    async def batch(
        self,
        num_envs: int,
        *,
        autoreset_mode: str | None = None,
        infos: bool = False,
        step_timeout_seconds: float | None = None,
    ) -> ClientSession[BatchReply]:
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
        session = ClientSession(self, order, BatchReply)
        await session.open()
        return session

    async def metadata(self) -> Metadata:
        """Return who serves what."""
        return read_reply(await self.request(MessageKind.METADATA), "metadata", Metadata)

    async def schema(self) -> Schemas:
        """Return the JSON Schemas of the wire types, and the spaces where there are some."""
        return read_reply(await self.request(MessageKind.SCHEMA), "schema", Schemas)

    async def request(self, kind: str, data: bytes = b"") -> RawReply:
        """Return the reply to a request that belongs to no session."""
        await self.ensure_connection()
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

    async def ensure_connection(self) -> None:
        """Return when the connection is there; a broken one is sought again first, within the time of a request."""
        if self._up:
            return
        try:
            async with asyncio.timeout(self.settings.request_timeout):
                await self._connect_once()
        except TimeoutError:
            raise RequestTimeout(f"there is no connection to {self.address} in time") from None

    async def _connect_once(self) -> None:
        await self._recovery.wait_until_over()
        async with self._opening:
            if self._closed:
                raise StateError("the connection is closed", expected="a new one")
            if not self._up:
                await self.greet(self.address)
                self._up = True
            if self._closed:
                self._drop_socket()
                raise StateError("the connection was closed meanwhile", expected="a new one")

    def ask(
        self, kind: str, data: bytes, *, session: AnySession | None = None, epoch: int | None = None
    ) -> PendingRequest:
        """Send a request, or keep it until its session is attached again."""
        if self.welcome is None:
            pending = self._outbox.add_without_id(kind, data, session)
        else:
            pending = self._outbox.add_with_id(kind, data, session, epoch, self.welcome.max_message_bytes)
        if self._socket is None:
            if session is None:
                self._outbox.fail(None, f"there is no connection to {self.address}")
        elif session is None or session.status is not SessionStatus.SUSPENDED:
            self._socket.say(pending.message)
        return pending

    def repeat(self, pending: PendingRequest) -> None:
        """Send a request again, byte for byte."""
        self._outbox.renew(pending)
        if self._socket is not None:
            self._socket.say(pending.message)

    def forget(self, pending: PendingRequest) -> None:
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
        self._outbox.fail(session, session.position.loss or "the session was closed")

    def find_pending(self, session: AnySession) -> list[PendingRequest]:
        """Return what a session still waits for, in the order in which it was asked."""
        return self._outbox.of(session)

    def hang_up(self) -> None:
        """Break the connection, so that nothing that is still on its way is heard."""
        if self._socket is not None:
            self._socket.abort()
            self.on_broken(self._socket)

    # ------------------------------------------------------------------------------------------- for its socket

    def on_message(self, message: bytes) -> None:
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
        if reply.type == "error" and self.welcome is not None and self._handle_retryable(reply):
            return
        if not self._outbox.answer(reply) and reply.type == "opened" and self._socket is not None:
            # Whoever asked for this session has gone; nobody else will ever close it.
            self._socket.say(self._outbox.farewell(reply.session))

    def on_broken(self, socket: Socket) -> None:
        """Seek the connection again, or give up what was on it."""
        if socket is not self._socket:
            return
        self._socket = None
        was_up, self._up = self._up, False
        self._outbox.fail(None, f"the connection to {self.address} broke")
        if not was_up:
            return
        if self.welcome is None:
            self.lose_all("the connection broke, and this server resumes nothing", LossReason.CONNECTION_LOST)
        elif socket.close_code == SUPERSEDED:
            self.lose_all("another connection has resumed this session", LossReason.SUPERSEDED)
        elif self.sessions:
            for session in self.sessions.values():
                session.suspend()
            self._recovery.start()

    # -------------------------------------------------------------------------------------------- for `Reconnection`

    @property
    def home(self) -> Address:
        """Where the sessions are: the address that the server gave, if the credential may go there."""
        return self._home

    def mark_ready(self) -> bool:
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
        said = self._outbox.add_without_id(MessageKind.HELLO, encode_hello(self.settings))
        seconds = self.settings.connect_timeout
        done = False
        try:
            self._socket = await open_socket(address, self, seconds=seconds, ping_seconds=self.settings.ping_interval)
            self._socket.say(said.message)
            reply = await said.answer(seconds) if self._socket.is_open else said.reply
            self.welcome = read_welcome(reply, address)
            done = True
        finally:
            self.forget(said)
            if not done:
                self._drop_socket()
        self._home = follow_address(self.address, None if self.welcome is None else self.welcome.address)

    def _drop_socket(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.abort()

    def _handle_retryable(self, reply: RawReply) -> bool:
        """Take care of an error that is not for whoever asked; return whether it was one.

        A limited rate means that nothing ran and to ask again later. An error without an id is about a request that the
        server did not read.
        """
        problem = read_problem(reply.data)
        if problem.code == Code.RATE_LIMITED:
            wait = problem.retry_after_seconds
            seconds = wait if isinstance(wait, float) else RATE_SECONDS
            asyncio.get_running_loop().call_later(seconds, self._ask_again, reply.id)
        elif reply.id is None:
            LOG.warning("%s did not read a request: %s", self.address, describe_problem(problem))
            self._outbox.blame(reply)
        else:
            return False
        return True

    def _ask_again(self, number: int | None) -> None:
        """Repeat what was not read; of what cannot be told apart, all but `open`, which is not to be done twice."""
        for pending in self._outbox.waiting():
            unknown = number is None and pending.kind != MessageKind.OPEN
            suspended = pending.session is not None and pending.session.status is SessionStatus.SUSPENDED
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
