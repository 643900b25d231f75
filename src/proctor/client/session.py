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

from proctor.client.continuity import Doubt, Loss, Place
from proctor.client.conversation import Carrier, Conversation
from proctor.client.pending import Pending
from proctor.client.problems import FORGOTTEN, exception_of, is_loss, loss_of, problem_of, read_reply
from proctor.contracts.lifecycle import EnvironmentState, Method, guard
from proctor.errors import (
    ConnectionFailed,
    EpisodeLost,
    ProctorError,
    RemoteError,
    RequestTimeout,
    StateError,
    ValidationError,
)
from proctor.models.control import Closed, Code, Kind, Open, Opened, RawReply, Resumed, Seen, SeenBatch
from proctor.models.grants import Granted, Revoked

T = TypeVar("T")
SeenT = TypeVar("SeenT", Seen, SeenBatch)
NOTHING = b""


class Standing(Enum):
    """How a session is tied to its server."""

    NEW = auto()
    ATTACHED = auto()
    SUSPENDED = auto()
    """The connection broke; what is asked now is sent when the session was found again."""
    GONE = auto()
    """The server does not know it any more: a reset opens another."""
    CLOSED = auto()


class Session(Generic[SeenT]):
    """One environment or one batch on a server; `Connection.session` and `Connection.batch` make it."""

    def __init__(self, carrier: Carrier, order: Open, answer: type[SeenT]) -> None:
        self.place = Place()
        self.standing = Standing.NEW
        self.greeted = False
        self.opened: Opened | None = None
        self.name: str | None = None
        self.name_json: bytes | None = None
        self.boot: str | None = None
        """The run of the server that opened it."""
        self.episode_id: str | None = None
        self.head: str | None = None
        """The head of the record in the last reply to a reset or a close; None where the server keeps no ledger."""
        self._carrier = carrier
        self._order = order
        self._answer_type = "observation" if answer is Seen else "batch"
        self._decode: Callable[[Raw], SeenT] = msgspec.json.Decoder(answer).decode
        self._turn = asyncio.Lock()
        self._conversation = Conversation(carrier, self)

    @property
    def grace_seconds(self) -> float:
        """How long the server keeps the session when the connection breaks."""
        return 0.0 if self.opened is None else self.opened.grace_seconds

    async def open(self) -> None:
        """Have the server make the environment; a session without `hello` begins with its first request."""
        async with self._turn:
            if self.standing is Standing.NEW:
                await self._open()

    async def reset(self, data: bytes) -> SeenT:
        """Begin an episode: the only way on after EpisodeLost."""
        async with self._turn:
            await self._conversation.settled()
            self._may(Method.RESET)
            if self.standing not in (Standing.NEW, Standing.GONE):
                return await self._reset(data, known=True)
            await self._open()
            return await self._reset(data)

    async def step(self, data: bytes) -> SeenT:
        """Take one step, exactly once."""
        async with self._turn:
            if self._conversation.unsettled:
                await self._conversation.settled()
            self._may(Method.STEP)
            reply = await self._conversation.exchange(Kind.STEP, data, self.place.epoch if self.greeted else None)
            self._check_reply(Kind.STEP, reply)
            seen = self._read(reply)
            if self.greeted:
                self._check(self.place.wrong_step(reply.epoch, seen.step))
            to = seen.step if self.greeted and isinstance(seen.step, int) else None
            self.place.advance(ended=isinstance(seen, Seen) and seen.done, to=to)
            return seen

    async def state(self) -> Raw:
        """Return the environment's state as JSON."""
        async with self._turn:
            await self._conversation.settled()
            self._may(None)
            if self.standing is Standing.NEW:
                await self._open()
            reply = await self._conversation.exchange(Kind.STATE, NOTHING, None)
            self._check_reply(Kind.STATE, reply)
            if reply.type != Kind.STATE:
                raise self._lost(f"a request for the state was answered with {reply.type!r}", Doubt.UNREADABLE)
            self._check(self.place.wrong_epoch(reply.epoch))
            return reply.data

    async def grant(self, data: bytes) -> Granted:
        """Have the server give an agent the tools of the episode that runs."""
        async with self._turn:
            await self._conversation.settled()
            self._may(None)
            self.running_epoch()
            if self.place.ended:
                raise StateError("the episode is over: an agent could do nothing in it", expected="a reset before")
            reply = await self._conversation.exchange(Kind.GRANT, data, self.place.epoch)
            granted = self._told(Kind.GRANT, reply, "granted", Granted)
            self.place.agents = True
            return granted

    async def revoke(self, data: bytes) -> Revoked:
        """Have the server take a grant back; a loss of the episode is no reason to leave an agent its tools."""
        async with self._turn:
            await self._conversation.settled()
            self.running_epoch()
            reply = await self._conversation.exchange(Kind.REVOKE, data, None)
            return self._told(Kind.REVOKE, reply, "revoked", Revoked)

    def check_agents(self) -> None:
        """Raise if this session is on a server that can have no agents."""
        if self.standing is Standing.ATTACHED and not self.greeted:
            raise RemoteError("this server has no agents: it does not answer `hello`", code=Code.NO_AGENT_PLANE)

    def running_epoch(self) -> int:
        """Return the number of the latest episode, or raise if there is none whose agents could be asked about."""
        if self.standing is Standing.CLOSED:
            guard(EnvironmentState.CLOSED, Method.STEP)
        self.check_agents()
        if self.standing is Standing.GONE and self.place.loss is not None:
            raise self.place.loss.exception()
        if self.place.epoch == 0:
            raise StateError("no episode has begun", expected="a reset before")
        return self.place.epoch

    async def poll(self, kind: str, data: bytes, epoch: int, wait_seconds: float) -> RawReply:
        """Return the reply to a question about an episode that changes nothing, waits in no queue, and may take a while."""
        self.running_epoch()
        pending = self._carrier.ask(kind, data, session=self, epoch=epoch)
        try:
            reply = await pending.answer(wait_seconds + self._carrier.settings.request_timeout)
        finally:
            self._carrier.forget(pending)
        if reply is None:
            raise RequestTimeout(f"the server did not answer {kind} in time", expected="nothing happened: ask again")
        if reply.type == "error" and problem_of(reply.data).code in FORGOTTEN:
            raise self.place.lose(loss_of(problem_of(reply.data))).exception()
        if reply.type != "error" and reply.session != self.name:
            raise ConnectionFailed("the reply is for another session", found=reply.session)
        return reply

    async def close(self) -> None:
        """End the session and whatever is under way in it; calling it again does nothing.

        A server that does not answer changes nothing: it closes the session by itself when the connection ends.
        """
        before, self.standing = self.standing, Standing.CLOSED
        self._carrier.detach(self)
        if before is Standing.ATTACHED and self.greeted:
            await self._say_goodbye()

    def suspend(self) -> None:
        """Learn that the connection broke and is sought again."""
        if self.standing is Standing.ATTACHED:
            self.standing = Standing.SUSPENDED

    def lose(self, message: str, code: str) -> Loss:
        """Learn that the server does not know this session any more, or cannot be believed about it."""
        loss = self.place.lose(Loss(message, code))
        if self.standing is not Standing.CLOSED:
            self.standing = Standing.GONE
        self._carrier.detach(self)
        return loss

    def come_back(self, reply: RawReply, resumed: Resumed, waiting: list[Pending]) -> None:
        """Go on where the session stands, if that is where it can stand; `waiting` has not been answered.

        Of these, what the server never began has changed nothing.
        """
        kinds = {pending.kind for pending in waiting if (pending.number or 0) <= resumed.last_id}
        self.standing = Standing.ATTACHED
        if resumed.lost:
            self.place.lose(Loss("the episode was lost while the connection was broken", Code.EPISODE_LOST))
        if self.place.loss is None:
            wrong = self.place.wrong_return(
                reply.epoch, resumed.step, resets=Kind.RESET in kinds, steps=Kind.STEP in kinds
            )
            if wrong is not None:
                self.lose(wrong, Doubt.WRONG_EPISODE)

    async def _open(self) -> None:
        await self._carrier.ready()
        self.greeted = self._carrier.greeted
        if self.greeted:
            reply = await self._opened()
            self.opened = read_reply(reply, "opened", Opened)
            if not reply.session:
                raise ConnectionFailed("the server opened a session and gave it no name")
            self.name, self.name_json = reply.session, msgspec.json.encode(reply.session)
            self.boot = self._carrier.boot
        elif self._order.num_envs is not None:
            raise ValidationError("this server has no batches: it does not answer `hello`", expected="num_envs=None")
        elif self._order.shared:
            raise ValidationError("this server has no agents: it does not answer `hello`", expected="shared=False")
        self._carrier.attach(self)
        self.place = Place(loss=self.place.loss)
        self.standing = Standing.ATTACHED

    async def _opened(self) -> RawReply:
        pending = self._carrier.ask(Kind.OPEN, msgspec.json.encode(self._order))
        try:
            reply = await pending.answer(self._carrier.settings.request_timeout)
        finally:
            self._carrier.forget(pending)
        if reply is None:
            raise RequestTimeout("the server did not open a session in time")
        return reply

    def _may(self, method: Method | None) -> None:
        """Raise if the call is not legal now, or the episode is lost."""
        place = self.place
        if self.standing is Standing.CLOSED:
            guard(EnvironmentState.CLOSED, method or Method.STEP)
        if method is Method.RESET:
            return
        if place.loss is not None:
            raise place.loss.exception()
        if method is Method.STEP and (place.epoch == 0 or place.ended):
            guard(EnvironmentState.CREATED if place.epoch == 0 else EnvironmentState.TERMINATED, method)

    async def _reset(self, data: bytes, *, known: bool = False) -> SeenT:
        epoch = self.place.epoch if self.greeted and self.place.loss is None else None
        reply = await self._conversation.exchange(Kind.RESET, data, epoch)
        if known and self.greeted and reply.type == "error" and problem_of(reply.data).code in FORGOTTEN:
            self.lose("the server does not know this session any more", Code.EPISODE_LOST)
            await self._open()
            return await self._reset(data)
        self._check_reply(Kind.RESET, reply)
        seen = self._read(reply)
        if self.greeted:
            self._check(self.place.wrong_reset(reply.epoch, seen.step))
        self.place.begin(reply.epoch or self.place.epoch + 1, ended=isinstance(seen, Seen) and seen.done)
        self.place.agents = isinstance(seen, Seen) and isinstance(seen.grant, Granted)
        self.episode_id = seen.episode_id if isinstance(seen.episode_id, str) else None
        self.head = seen.head if isinstance(seen.head, str) else None
        return seen

    def _check_reply(self, kind: str, reply: RawReply) -> None:
        """Raise what an error says, and refuse a reply that is not for this session."""
        if reply.type == "error":
            raise self._refusal(kind, reply)
        if self.greeted and reply.session != self.name:
            self._check("the reply is for another session")

    def _refusal(self, kind: str, reply: RawReply) -> ProctorError:
        problem = problem_of(reply.data)
        if is_loss(problem, kind, greeted=self.greeted) or (self.greeted and problem.code in FORGOTTEN):
            return self.place.lose(loss_of(problem)).exception()
        if self.place.loss is None:
            self._check(self.place.wrong_epoch(reply.epoch))
        return exception_of(problem)

    def _read(self, reply: RawReply) -> SeenT:
        try:
            if reply.type == self._answer_type:
                return self._decode(reply.data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
        raise self._lost(f"a reply of type {reply.type!r} cannot be read", Doubt.UNREADABLE)

    def _told(self, kind: str, reply: RawReply, expected: str, model: type[T]) -> T:
        """Return what was said of a grant; an answer that cannot be read leaves a token in unknown hands."""
        self._check_reply(kind, reply)
        if self.place.loss is None:
            self._check(self.place.wrong_epoch(reply.epoch))
        try:
            return read_reply(reply, expected, model)
        except ConnectionFailed as problem:
            raise self._lost(problem.message, Doubt.UNREADABLE) from None

    def _check(self, wrong: str | None) -> None:
        if wrong is not None:
            raise self.lose(wrong, Doubt.WRONG_EPISODE).exception()

    def _lost(self, message: str, code: str) -> EpisodeLost:
        return self.place.lose(Loss(message, code)).exception()

    async def _say_goodbye(self) -> None:
        goodbye = self._carrier.ask(Kind.CLOSE, NOTHING, session=self)
        try:
            reply = await goodbye.answer(self._carrier.settings.cancel_timeout)
            if reply is not None:
                closed = read_reply(reply, "closed", Closed)
                self.head = closed.head if isinstance(closed.head, str) else None
        except ProctorError:
            pass  # the connection broke, or the answer is none: the server closes the session by itself
        finally:
            self._carrier.forget(goodbye)


AnySession = Session[Any]
