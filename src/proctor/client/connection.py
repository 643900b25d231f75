"""One WebSocket to a server, with any number of sessions on it.

Rule 1: `hello` comes first. A server that does not know it is spoken to as OpenEnv speaks: one session, one request at a
    time, nothing beside `type` and `data`, and a broken connection is the end of the episode. A server that knows `hello` and
    refuses it, or has no room, is not spoken to at all.
Rule 2: with `hello`, ids are counted over the whole connection: an id alone tells whose reply it is. The text of a request is
    made once and repeated byte for byte. An answer is kept until it is read, also when the one who waited for it has given up.
Rule 3: a connection that breaks is made again for as long as its server keeps a session; then the episode is lost. A message
    that is not JSON breaks the connection too.
Rule 4: whether a server knows a session is said by its answer to `resume`, and by nothing else: another run of it (`boot`)
    may have taken the session up from its ledger. A session goes on only where it can stand; then what was not answered is
    repeated, in order.
Rule 5: what a session means is not known here.
"""

import asyncio
import logging
import os
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from math import inf
from types import TracebackType
from typing import Final, Self

import msgspec

from proctor import __version__
from proctor.client.address import Address, follow_address, parse_address
from proctor.client.replies import (
    FORGOTTEN_CODES,
    EpisodeLoss,
    LossReason,
    describe_problem,
    read_problem,
    read_reply,
)
from proctor.client.session import AnySession, ClientSession, SessionStatus
from proctor.client.socket import Socket, is_final, open_socket
from proctor.errors import ConnectionFailed, ProctorError, RemoteError, RequestTimeout, StateError, ValidationError
from proctor.models import control
from proctor.models.control import Code, MessageKind, Notice, ObservationReply, RawReply

LOG: Final = logging.getLogger("proctor.client")
NO_HELLO: Final = frozenset({Code.UNKNOWN_TYPE, Code.VALIDATION_ERROR, Code.INVALID_JSON})
"""How a server answers that does not know `hello`."""
NO_ROOM: Final = frozenset({Code.CAPACITY_REACHED, Code.FACTORY_ERROR})
SUPERSEDED: Final = 4000
"""The close code that says: another connection has resumed your session."""
RATE_SECONDS: Final = 1.0
"""When to ask again if a server limits the rate and does not say for how long."""
_REPLY: Final = msgspec.json.Decoder(RawReply).decode
NoticeHandler = Callable[[Notice], None]


@dataclass(frozen=True, slots=True)
class Backoff:
    """The first attempt comes at once; before attempt n + 1 lie `first * 2**n` seconds at most, never above `longest`.

    Chance takes away up to half of each delay.
    """

    first: float = 0.05
    longest: float = 5.0

    def delays(self, chance: Callable[[], float]) -> Iterator[float]:
        """Yield the seconds before each attempt, without end; `chance` draws from [0, 1)."""
        yield 0.0
        delay = self.first
        while True:
            yield delay * (1.0 - chance() / 2.0)
            delay = min(delay * 2.0, self.longest)


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """How long a client waits, and how arrays travel. All times are in seconds; one that is not positive is refused."""

    connect_timeout: float = 10.0
    """For the handshake, and again for what is said first."""
    request_timeout: float = 60.0
    """For one request, a reconnection in between included."""
    cancel_timeout: float = 5.0
    """For taking back a request that came to no end; without an answer the episode is lost."""
    ping_interval: float = 20.0
    """Between two signs of life; one that is not answered for as long breaks the connection."""
    backoff: Backoff = field(default_factory=Backoff)
    packed: bool = False
    """Ask for arrays as bytes; the models of a typed client read lists."""
    compression: bool = False
    """Ask for large arrays to be made smaller; only where they are packed."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, float | int) and not isinstance(value, bool) and not 0 < value < inf:
                raise ValidationError(f"not a time: {each.name}", found=value, expected="a positive number of seconds")


def encode_request(kind: str, data: bytes, number: int | None, session: bytes | None, epoch: int | None) -> bytes:
    """Return the text of a request; what is None is left out, as servers without `hello` demand.

    `data` and `session` are JSON; `data` is empty where the request has none.
    """
    text = b'{"type":"%b"' % kind.encode()
    if number is not None:
        text += b',"id":%d' % number
    if session is not None:
        text += b',"session":%b' % session
    if epoch is not None:
        text += b',"epoch":%d' % epoch
    return b'%b,"data":%b}' % (text, data) if data else text + b"}"


class PendingRequest:
    """One request; `session` is None for those of the connection itself."""

    __slots__ = ("_failure", "_waiter", "kind", "message", "number", "reply", "session")

    def __init__(self, kind: str, message: bytes, number: int | None, session: AnySession | None = None) -> None:
        self.kind = kind
        self.message = message
        self.number = number
        self.session = session
        self.reply: RawReply | None = None
        self._failure: EpisodeLoss | ConnectionFailed | None = None
        self._waiter: asyncio.Future[None] | None = None

    def settle(self, reply: RawReply) -> None:
        """Take the answer."""
        self.reply = reply
        self._wake()

    def fail(self, failure: EpisodeLoss | ConnectionFailed) -> None:
        """Take the reason why there will be no answer."""
        self._failure = failure
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def answer(self, seconds: float) -> RawReply | None:
        """Return the answer, or None if there is none in time; raise what `fail` was given.

        May be called again after it returned None or was cancelled.
        """
        if self.reply is None and self._failure is None:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = loop.call_later(seconds, self._wake)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        if self._failure is not None:
            raise self._failure.exception() if isinstance(self._failure, EpisodeLoss) else self._failure
        return self.reply


def read_welcome(reply: RawReply | None, address: Address) -> control.Welcome | None:
    """Return what was agreed on, None with a server that does not know `hello`; else raise."""
    if reply is None:
        raise ConnectionFailed(f"{address} did not answer hello")
    if reply.type != "error":
        return read_reply(reply, "hello", control.Welcome)
    problem = read_problem(reply.data)
    if problem.code in NO_HELLO:
        return None
    if problem.code in NO_ROOM:
        raise RemoteError(describe_problem(problem), code=problem.code)
    raise ConnectionFailed(f"{address} refused hello: {describe_problem(problem)}", found=problem.code)


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
        self.welcome: control.Welcome | None = None
        """What was agreed on; None before the first connection, and with a server that does not answer `hello`."""
        self._home = self.address
        """Where the sessions are: the address that the server gave, if the credential may go there."""
        self._clock, self._chance, self._sleep = clock, chance, sleep
        self._on_notice = on_notice
        self._sessions: dict[int, AnySession] = {}
        """Those that are attached or wait to be resumed."""
        self._waiting: dict[int | None, PendingRequest] = {}
        """By their ids, what was asked and not answered yet, in the order in which it was asked."""
        self._last_id = 0
        self._socket: Socket | None = None
        self._up = False
        self._closed = False
        self._opening = asyncio.Lock()
        self._reconnecting: asyncio.Task[None] | None = None
        self._delays: Iterator[float] = iter(())
        self._back_since: float | None = None

    def __repr__(self) -> str:
        return f"Connection({str(self.address)!r})"

    async def __aenter__(self) -> Self:
        await self.ensure_connection()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def session(
        self, *, step_timeout_seconds: float | None = None, shared: bool = False
    ) -> ClientSession[ObservationReply]:
        """Return a new session of one environment; in a `shared` one agents and the orchestrator may both act."""
        session = ClientSession(
            self, control.Open(step_timeout_seconds=step_timeout_seconds, shared=shared), ObservationReply
        )
        await session.open()
        return session

    async def batch(
        self,
        num_envs: int,
        *,
        autoreset_mode: str | None = None,
        infos: bool = False,
        step_timeout_seconds: float | None = None,
    ) -> ClientSession[control.BatchReply]:
        """Return a new session of `num_envs` environments that are stepped with one message."""
        wish = {"num_envs": num_envs, "autoreset_mode": autoreset_mode, "infos": infos}
        try:
            order = msgspec.convert({**wish, "step_timeout_seconds": step_timeout_seconds}, control.Open)
        except msgspec.ValidationError as problem:
            raise ValidationError(f"not a batch: {problem}", found=num_envs) from None
        session = ClientSession(self, order, control.BatchReply)
        await session.open()
        return session

    async def metadata(self) -> control.Metadata:
        """Return who serves what."""
        return read_reply(await self.request(MessageKind.METADATA), "metadata", control.Metadata)

    async def schema(self) -> control.Schemas:
        """Return the JSON Schemas of the wire types, and the spaces where there are some."""
        return read_reply(await self.request(MessageKind.SCHEMA), "schema", control.Schemas)

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
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        await asyncio.gather(*(session.close() for session in list(self._sessions.values())))
        self._up = False
        self._fail(None, "the connection was closed")
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
                if self._reconnecting is not None:
                    await asyncio.wait([self._reconnecting])
                async with self._opening:
                    if not (self._up or self._closed):
                        await self._greet(self.address)
                        self._up = True
                    if self._closed:
                        self._drop_socket()
                        raise StateError("the connection is closed", expected="a new one")
        except TimeoutError:
            raise RequestTimeout(f"there is no connection to {self.address} in time") from None

    def ask(
        self, kind: str, data: bytes, *, session: AnySession | None = None, epoch: int | None = None
    ) -> PendingRequest:
        """Send a request, or keep it until its session is attached again."""
        welcome = self.welcome
        if welcome is None:
            if None in self._waiting:
                raise StateError("this server answers one request at a time", expected="the answer to the one before")
            number, message = None, encode_request(kind, data, None, None, None)
        else:
            number = self._last_id = self._last_id + 1
            message = encode_request(kind, data, number, None if session is None else session.name_json, epoch)
            if len(message) > welcome.max_message_bytes:
                raise ValidationError(
                    "this message is too large for the server",
                    found=len(message),
                    expected=f"at most {welcome.max_message_bytes} bytes",
                )
        pending = self._waiting[number] = PendingRequest(kind, message, number, session)
        if self._socket is None:
            if session is None:
                self._fail(None, f"there is no connection to {self.address}")
        elif session is None or session.status is not SessionStatus.SUSPENDED:
            self._socket.say(message)
        return pending

    def repeat(self, pending: PendingRequest) -> None:
        """Send a request again, byte for byte, and wait for its answer again."""
        self._waiting[pending.number] = pending
        if self._socket is not None:
            self._socket.say(pending.message)

    def forget(self, pending: PendingRequest) -> None:
        """Wait no longer for the answer."""
        if self._waiting.get(pending.number) is pending:
            del self._waiting[pending.number]

    def attach(self, session: AnySession) -> None:
        """Tell this session when the connection breaks; without `hello` there is room for one."""
        if self.welcome is None and any(other is not session for other in self._sessions.values()):
            raise StateError("this server has one session on a connection", expected="a connection for each session")
        self._sessions[id(session)] = session

    def detach(self, session: AnySession) -> None:
        """Undo `attach`, and fail what the session still waits for."""
        self._sessions.pop(id(session), None)
        self._fail(session, session.position.loss or "the session was closed")

    def hang_up(self) -> None:
        """Break the connection, so that nothing that is still on its way is heard."""
        if self._socket is not None:
            self._socket.abort()
            self.on_broken(self._socket)

    def _find_pending(self, session: AnySession | None) -> list[PendingRequest]:
        """Return what a session, or the connection itself, waits for, in the order in which it was asked."""
        return [pending for pending in self._waiting.values() if pending.session is session]

    def _fail(self, session: AnySession | None, reason: EpisodeLoss | str) -> None:
        """Tell the session, or the connection itself, why there will be no answers."""
        for pending in self._find_pending(session):
            self.forget(pending)
            pending.fail(reason if isinstance(reason, EpisodeLoss) else ConnectionFailed(reason))

    def on_message(self, message: bytes) -> None:
        """Hand a reply to the one who waits for it."""
        try:
            reply = _REPLY(message)
        except (msgspec.DecodeError, UnicodeDecodeError):
            LOG.warning("%s sent something that is no message: the connection is broken off", self.address)
            self.hang_up()
            return
        if reply.type == "warning":
            self._notice(reply)
            return
        if reply.type == "error" and self.welcome is not None and self._handle_retryable(reply):
            return
        pending = self._waiting.pop(reply.id, None)
        if pending is not None:
            pending.settle(reply)
        elif reply.type == "opened" and self._socket is not None:
            # Whoever asked for this session has gone; nobody else will ever close it.
            self._last_id += 1
            name = msgspec.json.encode(reply.session)
            self._socket.say(encode_request(MessageKind.CLOSE, b"", self._last_id, name, None))

    def on_broken(self, socket: Socket) -> None:
        """Seek the connection again, or give up what was on it."""
        if socket is not self._socket:
            return
        self._socket = None
        was_up, self._up = self._up, False
        self._fail(None, f"the connection to {self.address} broke")
        if not was_up:
            return
        if self.welcome is None:
            self._lose_all("the connection broke, and this server resumes nothing", LossReason.CONNECTION_LOST)
        elif socket.close_code == SUPERSEDED:
            self._lose_all("another connection has resumed this session", LossReason.SUPERSEDED)
        elif self._sessions:
            for session in self._sessions.values():
                if session.status is SessionStatus.ATTACHED:
                    session.status = SessionStatus.SUSPENDED
            self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect())

    def _handle_retryable(self, reply: RawReply) -> bool:
        """Take care of an error that is not for whoever asked; return whether it was one.

        A limited rate means that nothing ran and to ask again later. An error without an id is about a request that the
        server did not read: the only one that waits, if there is only one.
        """
        problem = read_problem(reply.data)
        if problem.code == Code.RATE_LIMITED:
            wait = problem.retry_after_seconds
            seconds = wait if isinstance(wait, float) else RATE_SECONDS
            asyncio.get_running_loop().call_later(seconds, self._ask_again, reply.id)
        elif reply.id is None:
            LOG.warning("%s did not read a request: %s", self.address, describe_problem(problem))
            if len(self._waiting) == 1:
                self._waiting.popitem()[1].settle(reply)
        else:
            return False
        return True

    def _ask_again(self, number: int | None) -> None:
        """Repeat what was not read; of what cannot be told apart, all but `open`, which is not to be done twice."""
        for pending in list(self._waiting.values()):
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

    async def _greet(self, address: Address) -> None:
        """Connect and say `hello`, or raise ConnectionFailed; afterwards `welcome` says what was agreed on."""
        self._fail(None, "the connection is made anew")
        hello = control.Hello(
            [control.PROTOCOL], f"proctor/{__version__}", self.settings.packed, self.settings.compression
        )
        text = encode_request(MessageKind.HELLO, msgspec.json.encode(hello), None, None, None)
        said = self._waiting[None] = PendingRequest(MessageKind.HELLO, text, None)
        seconds = self.settings.connect_timeout
        done = False
        try:
            self._socket = await open_socket(address, self, seconds=seconds, ping_seconds=self.settings.ping_interval)
            self._socket.say(text)
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

    def _lose_all(self, message: str, code: str) -> None:
        for session in list(self._sessions.values()):
            session.lose(message, code)

    async def _reconnect(self) -> None:
        """Seek the sessions again, until they are found or their server keeps them no longer."""
        broke = self._clock()
        if self._back_since is None or broke - self._back_since > self.settings.backoff.longest:
            # Unless the connection broke soon after the last return, the delays are short again.
            self._delays = self.settings.backoff.delays(self._chance)
        for delay in self._delays:
            left = self._find_remaining_seconds(broke)
            if left is None:
                return
            await self._sleep(min(delay, left))
            try:
                await self._resume_all()
            except ProctorError as problem:
                LOG.info("no way back yet: %s", problem)
                if isinstance(problem, ConnectionFailed) and is_final(problem):
                    self._lose_all(problem.message, LossReason.CONNECTION_LOST)
                continue
            if self._socket is not None:  # else it broke again meanwhile
                self._up, self._back_since = True, self._clock()
                return

    def _find_remaining_seconds(self, broke: float) -> float | None:
        """Return for how long some server still keeps a session; sessions beyond that are lost. None: none is left."""
        gone = self._clock() - broke
        left = {session: session.grace_seconds - gone for session in self._sessions.values()}
        for session, seconds in left.items():
            if seconds <= 0:
                session.lose("the connection could not be made again in time", LossReason.CONNECTION_LOST)
        return max((seconds for seconds in left.values() if seconds > 0), default=None)

    async def _resume_all(self) -> None:
        await self._greet(self._home)
        if self.welcome is None:
            self._lose_all("the server was started anew and resumes nothing", LossReason.SERVER_RESTARTED)
            return
        asked = []
        for session in list(self._sessions.values()):
            token = "" if session.opened is None else session.opened.resume_token
            order = control.Resume(session=session.name or "", resume_token=token)
            asked.append((session, self.ask(MessageKind.RESUME, msgspec.json.encode(order))))
        for session, pending in asked:
            await self._finish_resume(session, pending, self.welcome.boot)

    async def _finish_resume(self, session: AnySession, pending: PendingRequest, boot: str) -> None:
        reply = await pending.answer(self.settings.connect_timeout)
        if reply is None:
            self.hang_up()
            raise ConnectionFailed("the server did not answer a resume")
        problem = read_problem(reply.data) if reply.type == "error" else None
        if problem is not None and problem.code in FORGOTTEN_CODES:
            session.lose(problem.message, Code.EPISODE_LOST if boot == session.boot else LossReason.SERVER_RESTARTED)
            return
        session.come_back(reply, read_reply(reply, "resumed", control.Resumed), self._find_pending(session))
        for each in self._find_pending(session):
            self.repeat(each)
