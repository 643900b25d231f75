"""The requests of a connection that wait for their answers, by their ids.

Rule 1: with `hello`, ids are counted over the whole connection: an id alone tells whose reply it is.
Rule 2: without `hello` there are no ids, and so there is one request at a time.
"""

from typing import TYPE_CHECKING, Final

import msgspec

from proctor.client.alarm import Alarm
from proctor.client.continuity import Loss
from proctor.client.pending import Pending, composed
from proctor.errors import ConnectionFailed, StateError, ValidationError
from proctor.models.control import Kind, RawReply

if TYPE_CHECKING:
    from proctor.client.session import AnySession


class Outbox:
    """What was asked and not answered yet."""

    def __init__(self) -> None:
        self.alarm: Final = Alarm()
        self._waiting: dict[int | None, Pending] = {}
        self._last = 0

    def numbered(
        self, kind: str, data: bytes, session: "AnySession | None", epoch: int | None, most_bytes: int
    ) -> Pending:
        """Return a new request with an id of its own."""
        number = self._last = self._last + 1
        name = None if session is None else session.name_json
        message = composed(kind, data, number, name, epoch)
        if len(message) > most_bytes:
            raise ValidationError(
                "this message is too large for the server", found=len(message), expected=f"at most {most_bytes} bytes"
            )
        pending = self._waiting[number] = Pending(kind, message, number, session, self.alarm)
        return pending

    def plain(self, kind: str, data: bytes, session: "AnySession | None" = None) -> Pending:
        """Return a new request without an id."""
        if None in self._waiting:
            raise StateError("this server answers one request at a time", expected="the answer to the one before")
        pending = self._waiting[None] = Pending(kind, composed(kind, data, None, None, None), None, session, self.alarm)
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
        return composed(Kind.CLOSE, b"", self._last, msgspec.json.encode(session), None)

    def blame(self, reply: RawReply) -> None:
        """Hand an error without an id to the request that it must be about: the only one, if there is only one."""
        if len(self._waiting) == 1:
            _, pending = self._waiting.popitem()
            pending.settle(reply)

    def renew(self, pending: Pending) -> None:
        """Wait for the answer again."""
        self._waiting[pending.number] = pending

    def forget(self, pending: Pending) -> None:
        """Wait for the answer no longer."""
        if self._waiting.get(pending.number) is pending:
            del self._waiting[pending.number]

    def waiting(self) -> list[Pending]:
        """Return all that is waited for, in the order in which it was asked."""
        return list(self._waiting.values())

    def of(self, session: "AnySession | None") -> list[Pending]:
        """Return what a session waits for, in the order in which it was asked; None: the connection itself."""
        return [pending for pending in self._waiting.values() if pending.session is session]

    def fail(self, session: "AnySession | None", reason: Loss | str) -> None:
        """Tell the session, or the connection itself, why there will be no answers."""
        for pending in self.of(session):
            self.forget(pending)
            pending.fail(reason if isinstance(reason, Loss) else ConnectionFailed(reason))
