"""The requests of a connection that wait for their answers, by their ids, and the one timer that ends their waiting.

Rule 1: with `hello`, ids are counted over the whole connection: an id alone tells whose reply it is.
Rule 2: without `hello` there are no ids, and so there is one request at a time.
Rule 3: an answer is kept until it is read, also when the one who waited for it has given up; so none is lost in between.
Rule 4: the text of a request is made once and repeated byte for byte.
Rule 5: the timer is set anew only when it rings, or when something is due earlier; so most requests never touch it. Nothing is
    woken early, and all that is due is woken when the timer rings.
"""

from typing import TYPE_CHECKING, Final

import msgspec

from proctor.client.continuity import EpisodeLoss
from proctor.errors import ConnectionFailed, StateError, ValidationError
from proctor.models.control import MessageKind, RawReply

if TYPE_CHECKING:
    from proctor.client.session import AnySession


import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proctor.client.session import AnySession


from math import inf
from typing import Protocol


class Sleeper(Protocol):
    """What can be woken."""

    def wake(self) -> None:
        """Learn that the time is over."""


class Alarm:
    """Wakes whoever has waited for too long."""

    def __init__(self) -> None:
        self._due: dict[Sleeper, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = inf

    def watch(self, sleeper: Sleeper, seconds: float) -> None:
        """Wake `sleeper` in so many seconds, unless it is let alone before."""
        due = self._due[sleeper] = asyncio.get_running_loop().time() + seconds
        if due < self._rings_at:
            self._set(due)

    def unwatch(self, sleeper: Sleeper) -> None:
        """Do not wake `sleeper` any more."""
        self._due.pop(sleeper, None)

    def stop(self) -> None:
        """Wake nobody any more, until somebody is to be watched."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._rings_at = None, inf

    def _set(self, due: float) -> None:
        self.stop()
        self._timer, self._rings_at = asyncio.get_running_loop().call_at(due, self._ring), due

    def _ring(self) -> None:
        now = self._rings_at
        self._timer, self._rings_at = None, inf
        for sleeper in [each for each, due in self._due.items() if due <= now]:
            del self._due[sleeper]
            sleeper.wake()
        if self._due:
            self._set(min(self._due.values()))


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

    __slots__ = ("_alarm", "_failure", "_waiter", "kind", "message", "number", "reply", "session")

    def __init__(
        self, kind: str, message: bytes, number: int | None, session: "AnySession | None", alarm: Alarm
    ) -> None:
        self.kind = kind
        self.message = message
        self.number = number
        self.session = session
        self.reply: RawReply | None = None
        self._alarm = alarm
        self._failure: EpisodeLoss | ConnectionFailed | None = None
        self._waiter: asyncio.Future[None] | None = None

    def settle(self, reply: RawReply) -> None:
        """Take the answer."""
        self.reply = reply
        self.wake()

    def fail(self, failure: EpisodeLoss | ConnectionFailed) -> None:
        """Take the reason why there will be no answer."""
        self._failure = failure
        self.wake()

    async def answer(self, seconds: float) -> RawReply | None:
        """Return the answer, or None if there is none in time; raise what `fail` was given.

        May be called again after it returned None or was cancelled.
        """
        if self.reply is None and self._failure is None:
            waiter = self._waiter = asyncio.get_running_loop().create_future()
            self._alarm.watch(self, seconds)
            try:
                await waiter
            finally:
                self._alarm.unwatch(self)
                self._waiter = None
        if self._failure is not None:
            raise self._failure.exception() if isinstance(self._failure, EpisodeLoss) else self._failure
        return self.reply

    def wake(self) -> None:
        """End the waiting, with an answer or without."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class PendingRequests:
    """What was asked and not answered yet."""

    def __init__(self) -> None:
        self.alarm: Final = Alarm()
        self._waiting: dict[int | None, PendingRequest] = {}
        self._last = 0

    def add_with_id(
        self, kind: str, data: bytes, session: "AnySession | None", epoch: int | None, most_bytes: int
    ) -> PendingRequest:
        """Return a new request with an id of its own."""
        number = self._last = self._last + 1
        name = None if session is None else session.name_json
        message = encode_request(kind, data, number, name, epoch)
        if len(message) > most_bytes:
            raise ValidationError(
                "this message is too large for the server", found=len(message), expected=f"at most {most_bytes} bytes"
            )
        pending = self._waiting[number] = PendingRequest(kind, message, number, session, self.alarm)
        return pending

    def add_without_id(self, kind: str, data: bytes, session: "AnySession | None" = None) -> PendingRequest:
        """Return a new request without an id."""
        if None in self._waiting:
            raise StateError("this server answers one request at a time", expected="the answer to the one before")
        pending = self._waiting[None] = PendingRequest(
            kind, encode_request(kind, data, None, None, None), None, session, self.alarm
        )
        return pending

    def answer(self, reply: RawReply) -> bool:
        """Hand a reply to the one who waits for it; False if nobody does."""
        pending = self._waiting.pop(reply.id, None)
        if pending is not None:
            pending.settle(reply)
        return pending is not None

    def farewell(self, session: str | None) -> bytes:
        """Return the message that closes a session, to whose answer nobody listens."""
        self._last += 1
        return encode_request(MessageKind.CLOSE, b"", self._last, msgspec.json.encode(session), None)

    def blame(self, reply: RawReply) -> None:
        """Hand an error without an id to the request that it must be about: the only one, if there is only one."""
        if len(self._waiting) == 1:
            _, pending = self._waiting.popitem()
            pending.settle(reply)

    def renew(self, pending: PendingRequest) -> None:
        """Wait for the answer again."""
        self._waiting[pending.number] = pending

    def forget(self, pending: PendingRequest) -> None:
        """Wait for the answer no longer."""
        if self._waiting.get(pending.number) is pending:
            del self._waiting[pending.number]

    def waiting(self) -> list[PendingRequest]:
        """Return all that is waited for, in the order in which it was asked."""
        return list(self._waiting.values())

    def of(self, session: "AnySession | None") -> list[PendingRequest]:
        """Return what a session waits for, in the order in which it was asked; None: the connection itself."""
        return [pending for pending in self._waiting.values() if pending.session is session]

    def fail(self, session: "AnySession | None", reason: EpisodeLoss | str) -> None:
        """Tell the session, or the connection itself, why there will be no answers."""
        for pending in self.of(session):
            self.forget(pending)
            pending.fail(reason if isinstance(reason, EpisodeLoss) else ConnectionFailed(reason))
