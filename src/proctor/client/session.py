"""One session on a connection: an environment, or a batch, that a server runs for this client.

Rule 1: a call ends with what the environment answered, with an error after which the episode is where it was, or with
    EpisodeLost. After EpisodeLost every step and state raises it again until a reset has succeeded.
Rule 2: a session that its server has forgotten is opened anew by a reset and by nothing else.
Rule 3: what may not be asked (a step before the reset, after the end) is refused here, whatever the server would do.
Rule 4: one request is under way at a time. One that takes too long is taken back with `cancel`. Dropped: it never ran, and the
    episode goes on. Finished: its reply is fetched. Anything else (unknown may mean that it ran and is forgotten), and no
    answer to that either: the episode is lost.
Rule 5: a request whose caller is cancelled is taken back as well, and the next call waits for that. If it took place after
    all, the episode is lost: the caller would go on from a step that nobody saw. A grant that nobody got is revoked.
Rule 6: without `hello` nothing can be taken back: the connection is broken off, so that no late reply is ever heard.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from msgspec import Raw

from proctor.client.replies import (
    FORGOTTEN_CODES,
    EpisodeLoss,
    EpisodePosition,
    LossReason,
    exception_from_problem,
    is_loss,
    loss_from_problem,
    read_problem,
    read_reply,
)
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
from proctor.models import control
from proctor.models.control import BatchReply, Code, Granted, MessageKind, ObservationReply, Open, RawReply, Revoked

if TYPE_CHECKING:
    from proctor.client.connection import Connection, PendingRequest

T = TypeVar("T")
SeenT = TypeVar("SeenT", ObservationReply, BatchReply)


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

    def __init__(self, connection: "Connection", order: Open, answer: type[SeenT]) -> None:
        self.position: EpisodePosition = EpisodePosition()
        self.status: SessionStatus = SessionStatus.NEW
        self.greeted: bool = False
        self.opened: control.Opened | None = None
        self.name: str | None = None
        self.name_json: bytes | None = None
        self.boot: str | None = None
        """The run of the server that opened it."""
        self.episode_id: str | None = None
        self.head: str | None = None
        """The head of the record in the last reply to a reset or a close; None where the server keeps no ledger."""
        self._connection: Connection = connection
        self._order: Open = order
        self._answer_type: str = "observation" if answer is ObservationReply else "batch"
        self._decode: Callable[[Raw], SeenT] = msgspec.json.Decoder(answer).decode
        self._turn: asyncio.Lock = asyncio.Lock()
        self._seconds = connection.settings.request_timeout
        self._cancel_seconds = connection.settings.cancel_timeout
        self._withdrawal: asyncio.Task[RawReply | None] | None = None
        self._abandoned: PendingRequest | None = None
        """The request of a caller who has gone."""

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
            await self._settle_withdrawal()
            self._check_legal(LifecycleMethod.RESET)
            if self.status not in (SessionStatus.NEW, SessionStatus.GONE):
                return await self._reset(data, known=True)
            await self._open()
            return await self._reset(data)

    async def step(self, data: bytes) -> SeenT:
        """Take one step, exactly once."""
        async with self._turn:
            if self._withdrawal is not None:
                await self._settle_withdrawal()
            place = self.position
            if place.loss is not None or place.epoch == 0 or place.ended or self.status is SessionStatus.CLOSED:
                self._check_legal(LifecycleMethod.STEP)
            reply = await self._exchange(MessageKind.STEP, data, place.epoch if self.greeted else None)
            seen = self._read(MessageKind.STEP, reply)
            place = self.position
            if self.greeted and (reply.epoch != place.epoch or seen.step != place.step + 1):
                wrong = place.wrong_step(reply.epoch, seen.step)
                if wrong is not None:
                    raise self._reject(wrong)
            place.step = seen.step if self.greeted and isinstance(seen.step, int) else place.step + 1
            place.ended = isinstance(seen, ObservationReply) and seen.done
            return seen

    async def state(self) -> Raw:
        """Return the environment's state as JSON."""
        async with self._turn:
            await self._settle_withdrawal()
            self._check_legal(None)
            if self.status is SessionStatus.NEW:
                await self._open()
            reply = await self._exchange(MessageKind.STATE, b"", None)
            self._check_reply(MessageKind.STATE, reply)
            if reply.type != MessageKind.STATE:
                raise self._lose_to(f"a request for the state was answered with {reply.type!r}", LossReason.UNREADABLE)
            self._check_epoch(reply)
            return reply.data

    async def grant(self, data: bytes) -> Granted:
        """Have the server give an agent the tools of the episode that runs."""
        async with self._turn:
            await self._settle_withdrawal()
            self._check_legal(None)
            self.running_epoch()
            if self.position.ended:
                raise StateError("the episode is over: an agent could do nothing in it", expected="a reset before")
            reply = await self._exchange(MessageKind.GRANT, data, self.position.epoch)
            granted = self._read_grant_reply(MessageKind.GRANT, reply, "granted", Granted)
            self.position.agents = True
            return granted

    async def revoke(self, data: bytes) -> Revoked:
        """Have the server take a grant back; a loss of the episode is no reason to leave an agent its tools."""
        async with self._turn:
            await self._settle_withdrawal()
            self.running_epoch()
            reply = await self._exchange(MessageKind.REVOKE, data, None)
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
        if before is not SessionStatus.ATTACHED or not self.greeted:
            return
        reply = await self._ask_briefly(MessageKind.CLOSE)
        if reply is not None:
            with suppress(ProctorError):
                closed = read_reply(reply, "closed", control.Closed)
                self.head = closed.head if isinstance(closed.head, str) else None

    def lose(self, message: str, code: str) -> EpisodeLoss:
        """Learn that the server does not know this session any more, or cannot be believed about it."""
        loss = self.position.lose(EpisodeLoss(message, code))
        if self.status is not SessionStatus.CLOSED:
            self.status = SessionStatus.GONE
        self._connection.detach(self)
        return loss

    def come_back(self, reply: RawReply, resumed: control.Resumed, waiting: "list[PendingRequest]") -> None:
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
        self.greeted = self._connection.welcome is not None
        if self.greeted:
            reply = await self._connection.request(MessageKind.OPEN, msgspec.json.encode(self._order))
            self.opened = read_reply(reply, "opened", control.Opened)
            if not reply.session:
                raise ConnectionFailed("the server opened a session and gave it no name")
            self.name, self.name_json = reply.session, msgspec.json.encode(reply.session)
            self.boot = None if self._connection.welcome is None else self._connection.welcome.boot
        elif self._order.num_envs is not None:
            raise ValidationError("this server has no batches: it does not answer `hello`", expected="num_envs=None")
        elif self._order.shared:
            raise ValidationError("this server has no agents: it does not answer `hello`", expected="shared=False")
        self._connection.attach(self)
        self.position = EpisodePosition(loss=self.position.loss)
        self.status = SessionStatus.ATTACHED

    def _check_legal(self, method: LifecycleMethod | None) -> None:
        """Raise if the call is not legal now, or the episode is lost."""
        if self.status is SessionStatus.CLOSED:
            guard(EnvironmentState.CLOSED, method or LifecycleMethod.STEP)
        if method is LifecycleMethod.RESET:
            return
        place = self.position
        if place.loss is not None:
            raise place.loss.exception()
        if method is LifecycleMethod.STEP and (place.epoch == 0 or place.ended):
            guard(EnvironmentState.CREATED if place.epoch == 0 else EnvironmentState.TERMINATED, method)

    async def _reset(self, data: bytes, *, known: bool = False) -> SeenT:
        epoch = self.position.epoch if self.greeted and self.position.loss is None else None
        reply = await self._exchange(MessageKind.RESET, data, epoch)
        if known and self.greeted and reply.type == "error" and read_problem(reply.data).code in FORGOTTEN_CODES:
            self.lose("the server does not know this session any more", Code.EPISODE_LOST)
            await self._open()
            return await self._reset(data)
        seen = self._read(MessageKind.RESET, reply)
        if self.greeted and (wrong := self.position.wrong_reset(reply.epoch, seen.step)) is not None:
            raise self._reject(wrong)
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
            problem = read_problem(reply.data)
            if is_loss(problem, kind, greeted=self.greeted) or (self.greeted and problem.code in FORGOTTEN_CODES):
                raise self.position.lose(loss_from_problem(problem)).exception()
            if self.position.loss is None:
                self._check_epoch(reply)
            raise exception_from_problem(problem)
        if self.greeted and reply.session != self.name:
            raise self._reject("the reply is for another session")

    def _check_epoch(self, reply: RawReply) -> None:
        wrong = self.position.wrong_epoch(reply.epoch)
        if wrong is not None:
            raise self._reject(wrong)

    def _read(self, kind: str, reply: RawReply) -> SeenT:
        if reply.type == "error" or (self.greeted and reply.session != self.name):
            self._check_reply(kind, reply)
        try:
            if reply.type == self._answer_type:
                return self._decode(reply.data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
        raise self._lose_to(f"a reply of type {reply.type!r} cannot be read", LossReason.UNREADABLE)

    def _read_grant_reply(self, kind: str, reply: RawReply, expected: str, model: type[T]) -> T:
        """Return what was said of a grant; an answer that cannot be read leaves a token in unknown hands."""
        self._check_reply(kind, reply)
        if self.position.loss is None:
            self._check_epoch(reply)
        try:
            return read_reply(reply, expected, model)
        except ConnectionFailed as problem:
            raise self._lose_to(problem.message, LossReason.UNREADABLE) from None

    def _reject(self, wrong: str) -> EpisodeLost:
        """Give the session up, whose server speaks of another episode; return what to raise."""
        return self.lose(wrong, LossReason.WRONG_EPISODE).exception()

    def _lose_to(self, message: str, code: str) -> EpisodeLost:
        return self.position.lose(EpisodeLoss(message, code)).exception()

    async def _exchange(self, kind: str, data: bytes, epoch: int | None) -> RawReply:
        """Return the reply, which may be an error; raise RequestTimeout if nothing happened, else EpisodeLost."""
        pending = self._connection.ask(kind, data, session=self, epoch=epoch)
        try:
            reply = await pending.answer(self._seconds)
            if reply is None:
                reply = await asyncio.shield(self._start_withdrawal(pending))
                self._withdrawal = None
        except asyncio.CancelledError:
            if self._withdrawal is None:
                self._start_withdrawal(pending)
            self._abandoned = pending
            raise
        except ProctorError:
            self._withdrawal = None
            raise
        if reply is None:
            raise RequestTimeout(
                f"the server did not answer {kind} within {self._seconds:g} seconds",
                expected="nothing happened: ask again",
            )
        return reply

    def _start_withdrawal(self, pending: "PendingRequest") -> "asyncio.Task[RawReply | None]":
        self._withdrawal = asyncio.get_running_loop().create_task(self._withdraw(pending))
        # Its failure is noted in the session's place; there may be nobody left to hear it.
        self._withdrawal.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._withdrawal

    async def _withdraw(self, pending: "PendingRequest") -> RawReply | None:
        """Return the reply if there is one after all, or None if the request was taken back."""
        if pending.reply is not None:
            return pending.reply
        outcome = await self._cancel(pending)
        if outcome == "finished" and pending.reply is None:
            self._connection.repeat(pending)
            await pending.answer(self._cancel_seconds)
        self._connection.forget(pending)
        if outcome == "dropped":
            return None
        if pending.reply is not None:
            return pending.reply
        raise self._give_up_on(pending)

    def _give_up_on(self, pending: "PendingRequest") -> EpisodeLost:
        return self._lose_to(f"no answer to {pending.kind} in time, and it was not taken back", LossReason.NO_ANSWER)

    async def _cancel(self, pending: "PendingRequest") -> str:
        """Return what has become of a request that is to be taken back; empty if nobody says."""
        if not self.greeted:
            self._give_up_on(pending)
            self._connection.hang_up()
            return ""
        reply = await self._ask_briefly(MessageKind.CANCEL, msgspec.json.encode(control.Cancel(pending.number or 0)))
        with suppress(ProctorError):
            return "" if reply is None else read_reply(reply, "cancelled", control.Cancelled).outcome
        return ""

    async def _ask_briefly(self, kind: str, data: bytes = b"") -> RawReply | None:
        """Return the reply to a request that tidies up; None if none comes in time, or there is no connection."""
        pending = self._connection.ask(kind, data, session=self)
        try:
            return await pending.answer(self._cancel_seconds)
        except ProctorError:
            return None
        finally:
            self._connection.forget(pending)

    async def _settle_withdrawal(self) -> None:
        """Return when the request of a caller who has gone is over, with what that means for the episode noted."""
        if self._withdrawal is None:
            return
        try:
            reply = await asyncio.shield(self._withdrawal)
        except ProctorError:
            reply = None  # noted where it was raised
        abandoned, self._withdrawal, self._abandoned = self._abandoned, None, None
        if reply is None or abandoned is None:
            return
        if reply.type == "error":
            problem = read_problem(reply.data)
            if is_loss(problem, abandoned.kind, greeted=self.greeted):
                self.position.lose(loss_from_problem(problem))
        elif abandoned.kind in (MessageKind.RESET, MessageKind.STEP):
            self._lose_to(f"a {abandoned.kind} took place after its caller had gone", LossReason.UNHEARD)
        if reply.type == "granted":
            # Lest it stands in the way of others until the episode ends.
            with suppress(ProctorError):
                order = control.Revoke(read_reply(reply, "granted", Granted).grant)
                await self._ask_briefly(MessageKind.REVOKE, msgspec.json.encode(order))


AnySession = ClientSession[Any]
