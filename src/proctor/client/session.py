"""One session on a connection: an environment, or a batch, that a server runs for this client.

Rule 1: a call ends with what the environment answered, with an error after which the episode is where it was, or with
    EpisodeLost. After EpisodeLost every step and state raises it again until a reset has succeeded.
Rule 2: a session that its server has forgotten is opened anew by a reset and by nothing else.
Rule 3: what may not be asked (a step before the reset, after the end) is refused here, whatever the server would do.
"""

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw

from proctor.client.continuity import EpisodeLoss, EpisodePosition, LossReason
from proctor.client.replies import (
    FORGOTTEN_CODES,
    exception_from_problem,
    is_loss,
    loss_from_problem,
    read_problem,
    read_reply,
)
from proctor.client.requests import PendingRequest
from proctor.client.session_requests import SessionConnection, SessionRequests
from proctor.contracts.lifecycle import EnvironmentState, LifecycleMethod, guard
from proctor.errors import (
    ConnectionFailed,
    EpisodeLost,
    ProctorError,
    RemoteError,
    RequestTimeout,
    StateError,
    ValidationError,
)
from proctor.models.control import (
    BatchReply,
    Closed,
    Code,
    MessageKind,
    ObservationReply,
    Open,
    Opened,
    RawReply,
    Resumed,
)
from proctor.models.grants import Granted, Revoked

T = TypeVar("T")
SeenT = TypeVar("SeenT", ObservationReply, BatchReply)
NOTHING = b""


class SessionStatus(Enum):
    """How a session is tied to its server."""

    NEW = auto()
    ATTACHED = auto()
    SUSPENDED = auto()
    """The connection broke; what is asked now is sent when the session was found again."""
    GONE = auto()
    """The server does not know it any more: a reset opens another."""
    CLOSED = auto()


class ClientSession(Generic[SeenT]):
    """One environment or one batch on a server; `Connection.session` and `Connection.batch` make it."""

    def __init__(self, carrier: SessionConnection, order: Open, answer: type[SeenT]) -> None:
        self.position = EpisodePosition()
        self.status = SessionStatus.NEW
        self.greeted = False
        self.opened: Opened | None = None
        self.name: str | None = None
        self.name_json: bytes | None = None
        self.boot: str | None = None
        """The run of the server that opened it."""
        self.episode_id: str | None = None
        self.head: str | None = None
        """The head of the record in the last reply to a reset or a close; None where the server keeps no ledger."""
        self._connection = carrier
        self._order = order
        self._answer_type = "observation" if answer is ObservationReply else "batch"
        self._decode: Callable[[Raw], SeenT] = msgspec.json.Decoder(answer).decode
        self._turn = asyncio.Lock()
        self._requests = SessionRequests(carrier, self)

    @property
    def grace_seconds(self) -> float:
        """How long the server keeps the session when the connection breaks."""
        return 0.0 if self.opened is None else self.opened.grace_seconds

    async def open(self) -> None:
        """Have the server make the environment; a session without `hello` begins with its first request."""
        async with self._turn:
            if self.status is SessionStatus.NEW:
                await self._open()

    async def reset(self, data: bytes) -> SeenT:
        """Begin an episode: the only way on after EpisodeLost."""
        async with self._turn:
            await self._requests.settle_orphan()
            self._check_legal(LifecycleMethod.RESET)
            if self.status not in (SessionStatus.NEW, SessionStatus.GONE):
                return await self._reset(data, known=True)
            await self._open()
            return await self._reset(data)

    async def step(self, data: bytes) -> SeenT:
        """Take one step, exactly once."""
        async with self._turn:
            if self._requests.has_orphan:
                await self._requests.settle_orphan()
            self._check_legal(LifecycleMethod.STEP)
            reply = await self._requests.exchange(MessageKind.STEP, data, self.position.epoch if self.greeted else None)
            self._check_reply(MessageKind.STEP, reply)
            seen = self._read(reply)
            if self.greeted:
                self._check_position(self.position.wrong_step(reply.epoch, seen.step))
            to = seen.step if self.greeted and isinstance(seen.step, int) else None
            self.position.advance(ended=isinstance(seen, ObservationReply) and seen.done, to=to)
            return seen

    async def state(self) -> Raw:
        """Return the environment's state as JSON."""
        async with self._turn:
            await self._requests.settle_orphan()
            self._check_legal(None)
            if self.status is SessionStatus.NEW:
                await self._open()
            reply = await self._requests.exchange(MessageKind.STATE, NOTHING, None)
            self._check_reply(MessageKind.STATE, reply)
            if reply.type != MessageKind.STATE:
                raise self._record_loss(
                    f"a request for the state was answered with {reply.type!r}", LossReason.UNREADABLE
                )
            self._check_position(self.position.wrong_epoch(reply.epoch))
            return reply.data

    async def grant(self, data: bytes) -> Granted:
        """Have the server give an agent the tools of the episode that runs."""
        async with self._turn:
            await self._requests.settle_orphan()
            self._check_legal(None)
            self.running_epoch()
            if self.position.ended:
                raise StateError("the episode is over: an agent could do nothing in it", expected="a reset before")
            reply = await self._requests.exchange(MessageKind.GRANT, data, self.position.epoch)
            granted = self._read_grant_reply(MessageKind.GRANT, reply, "granted", Granted)
            self.position.agents = True
            return granted

    async def revoke(self, data: bytes) -> Revoked:
        """Have the server take a grant back; a loss of the episode is no reason to leave an agent its tools."""
        async with self._turn:
            await self._requests.settle_orphan()
            self.running_epoch()
            reply = await self._requests.exchange(MessageKind.REVOKE, data, None)
            return self._read_grant_reply(MessageKind.REVOKE, reply, "revoked", Revoked)

    def check_agents(self) -> None:
        """Raise if this session is on a server that can have no agents."""
        if self.status is SessionStatus.ATTACHED and not self.greeted:
            raise RemoteError("this server has no agents: it does not answer `hello`", code=Code.NO_AGENT_PLANE)

    def running_epoch(self) -> int:
        """Return the number of the latest episode, or raise if there is none whose agents could be asked about."""
        if self.status is SessionStatus.CLOSED:
            guard(EnvironmentState.CLOSED, LifecycleMethod.STEP)
        self.check_agents()
        if self.status is SessionStatus.GONE and self.position.loss is not None:
            raise self.position.loss.exception()
        if self.position.epoch == 0:
            raise StateError("no episode has begun", expected="a reset before")
        return self.position.epoch

    async def poll(self, kind: str, data: bytes, epoch: int, wait_seconds: float) -> RawReply:
        """Return the reply to a question about an episode that changes nothing, waits in no queue, and may take a while."""
        self.running_epoch()
        pending = self._connection.ask(kind, data, session=self, epoch=epoch)
        try:
            reply = await pending.answer(wait_seconds + self._connection.settings.request_timeout)
        finally:
            self._connection.forget(pending)
        if reply is None:
            raise RequestTimeout(f"the server did not answer {kind} in time", expected="nothing happened: ask again")
        if reply.type == "error" and read_problem(reply.data).code in FORGOTTEN_CODES:
            raise self.position.lose(loss_from_problem(read_problem(reply.data))).exception()
        if reply.type != "error" and reply.session != self.name:
            raise ConnectionFailed("the reply is for another session", found=reply.session)
        return reply

    async def close(self) -> None:
        """End the session and whatever is under way in it; calling it again does nothing.

        A server that does not answer changes nothing: it closes the session by itself when the connection ends.
        """
        before, self.status = self.status, SessionStatus.CLOSED
        self._connection.detach(self)
        if before is SessionStatus.ATTACHED and self.greeted:
            await self._say_goodbye()

    def suspend(self) -> None:
        """Learn that the connection broke and is sought again."""
        if self.status is SessionStatus.ATTACHED:
            self.status = SessionStatus.SUSPENDED

    def lose(self, message: str, code: str) -> EpisodeLoss:
        """Learn that the server does not know this session any more, or cannot be believed about it."""
        loss = self.position.lose(EpisodeLoss(message, code))
        if self.status is not SessionStatus.CLOSED:
            self.status = SessionStatus.GONE
        self._connection.detach(self)
        return loss

    def come_back(self, reply: RawReply, resumed: Resumed, waiting: list[PendingRequest]) -> None:
        """Go on where the session stands, if that is where it can stand; `waiting` has not been answered.

        Of these, what the server never began has changed nothing.
        """
        kinds = {pending.kind for pending in waiting if (pending.number or 0) <= resumed.last_id}
        self.status = SessionStatus.ATTACHED
        if resumed.lost:
            self.position.lose(EpisodeLoss("the episode was lost while the connection was broken", Code.EPISODE_LOST))
        if self.position.loss is None:
            wrong = self.position.wrong_return(
                reply.epoch, resumed.step, resets=MessageKind.RESET in kinds, steps=MessageKind.STEP in kinds
            )
            if wrong is not None:
                self.lose(wrong, LossReason.WRONG_EPISODE)

    async def _open(self) -> None:
        await self._connection.ensure_connection()
        self.greeted = self._connection.greeted
        if self.greeted:
            reply = await self._ask_open()
            self.opened = read_reply(reply, "opened", Opened)
            if not reply.session:
                raise ConnectionFailed("the server opened a session and gave it no name")
            self.name, self.name_json = reply.session, msgspec.json.encode(reply.session)
            self.boot = self._connection.boot
        elif self._order.num_envs is not None:
            raise ValidationError("this server has no batches: it does not answer `hello`", expected="num_envs=None")
        elif self._order.shared:
            raise ValidationError("this server has no agents: it does not answer `hello`", expected="shared=False")
        self._connection.attach(self)
        self.position = EpisodePosition(loss=self.position.loss)
        self.status = SessionStatus.ATTACHED

    async def _ask_open(self) -> RawReply:
        pending = self._connection.ask(MessageKind.OPEN, msgspec.json.encode(self._order))
        try:
            reply = await pending.answer(self._connection.settings.request_timeout)
        finally:
            self._connection.forget(pending)
        if reply is None:
            raise RequestTimeout("the server did not open a session in time")
        return reply

    def _check_legal(self, method: LifecycleMethod | None) -> None:
        """Raise if the call is not legal now, or the episode is lost."""
        place = self.position
        if self.status is SessionStatus.CLOSED:
            guard(EnvironmentState.CLOSED, method or LifecycleMethod.STEP)
        if method is LifecycleMethod.RESET:
            return
        if place.loss is not None:
            raise place.loss.exception()
        if method is LifecycleMethod.STEP and (place.epoch == 0 or place.ended):
            guard(EnvironmentState.CREATED if place.epoch == 0 else EnvironmentState.TERMINATED, method)

    async def _reset(self, data: bytes, *, known: bool = False) -> SeenT:
        epoch = self.position.epoch if self.greeted and self.position.loss is None else None
        reply = await self._requests.exchange(MessageKind.RESET, data, epoch)
        if known and self.greeted and reply.type == "error" and read_problem(reply.data).code in FORGOTTEN_CODES:
            self.lose("the server does not know this session any more", Code.EPISODE_LOST)
            await self._open()
            return await self._reset(data)
        self._check_reply(MessageKind.RESET, reply)
        seen = self._read(reply)
        if self.greeted:
            self._check_position(self.position.wrong_reset(reply.epoch, seen.step))
        self.position.begin(
            reply.epoch or self.position.epoch + 1, ended=isinstance(seen, ObservationReply) and seen.done
        )
        self.position.agents = isinstance(seen, ObservationReply) and isinstance(seen.grant, Granted)
        self.episode_id = seen.episode_id if isinstance(seen.episode_id, str) else None
        self.head = seen.head if isinstance(seen.head, str) else None
        return seen

    def _check_reply(self, kind: str, reply: RawReply) -> None:
        """Raise what an error says, and refuse a reply that is not for this session."""
        if reply.type == "error":
            raise self._refusal(kind, reply)
        if self.greeted and reply.session != self.name:
            self._check_position("the reply is for another session")

    def _refusal(self, kind: str, reply: RawReply) -> ProctorError:
        problem = read_problem(reply.data)
        if is_loss(problem, kind, greeted=self.greeted) or (self.greeted and problem.code in FORGOTTEN_CODES):
            return self.position.lose(loss_from_problem(problem)).exception()
        if self.position.loss is None:
            self._check_position(self.position.wrong_epoch(reply.epoch))
        return exception_from_problem(problem)

    def _read(self, reply: RawReply) -> SeenT:
        try:
            if reply.type == self._answer_type:
                return self._decode(reply.data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
        raise self._record_loss(f"a reply of type {reply.type!r} cannot be read", LossReason.UNREADABLE)

    def _read_grant_reply(self, kind: str, reply: RawReply, expected: str, model: type[T]) -> T:
        """Return what was said of a grant; an answer that cannot be read leaves a token in unknown hands."""
        self._check_reply(kind, reply)
        if self.position.loss is None:
            self._check_position(self.position.wrong_epoch(reply.epoch))
        try:
            return read_reply(reply, expected, model)
        except ConnectionFailed as problem:
            raise self._record_loss(problem.message, LossReason.UNREADABLE) from None

    def _check_position(self, wrong: str | None) -> None:
        if wrong is not None:
            raise self.lose(wrong, LossReason.WRONG_EPISODE).exception()

    def _record_loss(self, message: str, code: str) -> EpisodeLost:
        return self.position.lose(EpisodeLoss(message, code)).exception()

    async def _say_goodbye(self) -> None:
        goodbye = self._connection.ask(MessageKind.CLOSE, NOTHING, session=self)
        try:
            reply = await goodbye.answer(self._connection.settings.cancel_timeout)
            if reply is not None:
                closed = read_reply(reply, "closed", Closed)
                self.head = closed.head if isinstance(closed.head, str) else None
        except ProctorError:
            pass  # the connection broke, or the answer is none: the server closes the session by itself
        finally:
            self._connection.forget(goodbye)


AnySession = ClientSession[Any]
