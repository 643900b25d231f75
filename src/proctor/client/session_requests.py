"""One request after the other in a session, each with a known end.

Rule 1: a request that takes too long is taken back with `cancel`. Dropped: it never ran, and the episode goes on. Finished:
    its reply is fetched. Anything else (unknown may mean that it ran and is forgotten), and no answer to that either:
    the episode is lost.
Rule 2: a request whose caller is cancelled is taken back as well, and the next call waits for that. If it took place after
    all, the episode is lost: the caller would go on from a step that nobody saw. A grant that nobody got is revoked.
Rule 3: without `hello` nothing can be taken back: the connection is broken off, so that no late reply is ever heard.
"""

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from proctor.client.continuity import EpisodeLoss, LossReason
from proctor.client.replies import is_loss, loss_from_problem, read_problem
from proctor.client.requests import PendingRequest
from proctor.client.settings import ConnectionSettings
from proctor.errors import ProctorError, RequestTimeout
from proctor.models.control import Cancel, Cancelled, MessageKind, RawReply
from proctor.models.grants import Granted, Revoke

if TYPE_CHECKING:
    from proctor.client.session import AnySession

FINISHED: Final = "finished"
NEVER_RAN: Final = "dropped"
"""The outcome that says that the request was taken from the queue."""


class SessionConnection(Protocol):
    """What a session needs of its connection."""

    @property
    def settings(self) -> ConnectionSettings:
        """How long it waits."""

    @property
    def greeted(self) -> bool:
        """Whether the server answered `hello`."""

    @property
    def boot(self) -> str | None:
        """Which run of the server answered `hello`; None: it did not."""

    async def ensure_connection(self) -> None:
        """Return when the connection is there, or raise ConnectionFailed."""

    def ask(
        self, kind: str, data: bytes, *, session: "AnySession | None" = None, epoch: int | None = None
    ) -> PendingRequest:
        """Send a request, or keep it until its session is attached again."""

    def repeat(self, pending: PendingRequest) -> None:
        """Send a request again, with the same id."""

    def forget(self, pending: PendingRequest) -> None:
        """Wait no longer for the answer."""

    def attach(self, session: "AnySession") -> None:
        """Tell this session when the connection breaks."""

    def detach(self, session: "AnySession") -> None:
        """Undo `attach`, and fail what the session still waits for."""

    def hang_up(self) -> None:
        """Break the connection, so that nothing that is still on its way is heard."""


class SessionRequests:
    """The requests of one session; only one is under way at a time."""

    def __init__(self, carrier: SessionConnection, session: "AnySession") -> None:
        self._connection = carrier
        self._session = session
        self._seconds = carrier.settings.request_timeout
        self._cancel_seconds = carrier.settings.cancel_timeout
        self._ending: asyncio.Task[RawReply | None] | None = None
        self._abandoned: PendingRequest | None = None

    async def exchange(self, kind: str, data: bytes, epoch: int | None) -> RawReply:
        """Return the reply, which may be an error; raise RequestTimeout if nothing happened, else EpisodeLost."""
        pending = self._connection.ask(kind, data, session=self._session, epoch=epoch)
        try:
            reply = await pending.answer(self._seconds)
            if reply is None:
                reply = await asyncio.shield(self._start_withdrawal(pending))
                self._ending = None
        except asyncio.CancelledError:
            if self._ending is None:
                self._start_withdrawal(pending)
            self._abandoned = pending
            raise
        except ProctorError:
            self._ending = None
            raise
        if reply is None:
            raise RequestTimeout(
                f"the server did not answer {kind} within {self._seconds:g} seconds",
                expected="nothing happened: ask again",
            )
        return reply

    @property
    def has_orphan(self) -> bool:
        """Whether the request of a caller who has gone is still to be judged."""
        return self._ending is not None

    async def settle_orphan(self) -> None:
        """Return when the request of a caller who has gone is over, with what that means for the episode noted."""
        if self._ending is None:
            return
        try:
            reply = await asyncio.shield(self._ending)
        except ProctorError:
            reply = None  # noted where it was raised
        abandoned, self._ending, self._abandoned = self._abandoned, None, None
        if reply is not None and abandoned is not None:
            self._judge_unheard(abandoned.kind, reply)
            if reply.type == "granted":
                await self._revoke_orphan(reply)

    async def _revoke_orphan(self, reply: RawReply) -> None:
        """Revoke a grant whose caller has gone, lest it stands in the way of others until the episode ends."""
        try:
            order = Revoke(msgspec.json.decode(reply.data, type=Granted).grant)
            revoke = self._connection.ask(MessageKind.REVOKE, msgspec.json.encode(order), session=self._session)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        try:
            await revoke.answer(self._cancel_seconds)
        except ProctorError:
            pass  # the session is gone, and its grants with it
        finally:
            self._connection.forget(revoke)

    def _judge_unheard(self, kind: str, reply: RawReply) -> None:
        place = self._session.position
        if reply.type != "error":
            if kind in (MessageKind.RESET, MessageKind.STEP):
                place.lose(EpisodeLoss(f"a {kind} took place after its caller had gone", LossReason.UNHEARD))
            return
        problem = read_problem(reply.data)
        if is_loss(problem, kind, greeted=self._session.greeted):
            place.lose(loss_from_problem(problem))

    def _start_withdrawal(self, pending: PendingRequest) -> "asyncio.Task[RawReply | None]":
        self._ending = asyncio.get_running_loop().create_task(self._withdraw(pending))
        # Its failure is noted in the session's place; there may be nobody left to hear it.
        self._ending.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._ending

    async def _withdraw(self, pending: PendingRequest) -> RawReply | None:
        """Return the reply if there is one after all, or None if the request was taken back."""
        if pending.reply is not None:
            return pending.reply
        outcome = await self._cancel(pending)
        if outcome == FINISHED and pending.reply is None:
            self._connection.repeat(pending)
            await pending.answer(self._cancel_seconds)
        self._connection.forget(pending)
        if outcome == NEVER_RAN:
            return None
        if pending.reply is not None:
            return pending.reply
        raise self._record_loss(pending).exception()

    def _record_loss(self, pending: PendingRequest) -> EpisodeLoss:
        loss = EpisodeLoss(f"no answer to {pending.kind} in time, and it was not taken back", LossReason.NO_ANSWER)
        return self._session.position.lose(loss)

    async def _cancel(self, pending: PendingRequest) -> str:
        """Return what has become of a request that is to be taken back; empty if nobody says."""
        if not self._session.greeted:
            self._record_loss(pending)
            self._connection.hang_up()
            return ""
        order = msgspec.json.encode(Cancel(pending.number or 0))
        cancel = self._connection.ask(MessageKind.CANCEL, order, session=self._session)
        try:
            reply = await cancel.answer(self._cancel_seconds)
        except ProctorError:
            return ""
        finally:
            self._connection.forget(cancel)
        if reply is None or reply.type != "cancelled":
            return ""
        try:
            return msgspec.json.decode(reply.data, type=Cancelled).outcome
        except (msgspec.DecodeError, UnicodeDecodeError):
            return ""
