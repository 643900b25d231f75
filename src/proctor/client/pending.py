"""A request on its way: what was said, and the answer once there is one.

Rule 1: an answer is kept until it is read, also when the one who waited for it has given up; so none is lost in between.
Rule 2: the text of a request is made once and repeated byte for byte.
"""

import asyncio
from typing import TYPE_CHECKING

from proctor.client.alarm import Alarm
from proctor.client.continuity import Loss
from proctor.errors import ConnectionFailed
from proctor.models.control import RawReply

if TYPE_CHECKING:
    from proctor.client.session import AnySession


def composed(kind: str, data: bytes, number: int | None, session: bytes | None, epoch: int | None) -> bytes:
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


class Pending:
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
        self._failure: Loss | ConnectionFailed | None = None
        self._waiter: asyncio.Future[None] | None = None

    def settle(self, reply: RawReply) -> None:
        """Take the answer."""
        self.reply = reply
        self.wake()

    def fail(self, failure: Loss | ConnectionFailed) -> None:
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
                self._alarm.let_alone(self)
                self._waiter = None
        if self._failure is not None:
            raise self._failure.exception() if isinstance(self._failure, Loss) else self._failure
        return self.reply

    def wake(self) -> None:
        """End the waiting, with an answer or without."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
