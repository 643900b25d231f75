"""Exactly once: which request of a session is new, which runs, and what was answered to those before.

Rule 1: ids grow. One that is not greater than the greatest seen was seen before, or will never run.
Rule 2: a repeated request gets the reply that was kept; the same id with other content, or an id whose reply is no longer
    kept, is refused. Nothing ever runs twice. One that is not spent had no effect, and may come once more.
Rule 3: pure memory with a bound: the last `most` replies, and fewer if they are large, but always the last one. Requests
    that run are bounded by whoever admits them.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Final

MOST_BYTES: Final = 4 * 2**20
"""Of kept replies in one session; light ones may come on top."""


class Admission(Enum):
    """What is to be done with a request."""

    NEW = "new"
    RUNNING = "running"
    REUSED = "reused"


class ReplyCache:
    """The memory of one session."""

    def __init__(self, most: int) -> None:
        self.last_id = 0
        self._most = most
        self._bytes = 0
        self._running: dict[int, int] = {}
        self._kept: dict[int, tuple[int, bytes]] = {}
        self._unspent: set[int] = set()

    def admit(self, request_id: int, content: int) -> Admission | bytes:
        """Return the kept reply, or what is to be done; a NEW request counts as seen from now on."""
        if request_id > self.last_id or request_id in self._unspent:
            self.last_id = max(self.last_id, request_id)
            self._unspent.discard(request_id)
            self._running[request_id] = content
            return Admission.NEW
        if request_id in self._running:
            return Admission.RUNNING if self._running[request_id] == content else Admission.REUSED
        said, reply = self._kept.get(request_id, (None, b""))
        return reply if said == content else Admission.REUSED

    def restore(self, last_id: int, unspent: Iterable[int]) -> None:
        """Know that requests up to this one have come before, all of which are spent but these."""
        self.last_id = last_id
        self._unspent = set(unspent)

    @property
    def is_full(self) -> bool:
        """Whether as many replies are kept as there is room for."""
        return len(self._kept) >= self._most

    def is_running(self, request_id: int) -> bool:
        """Return whether this request was admitted and has no reply yet."""
        return request_id in self._running

    def keeps(self, request_id: int) -> bool:
        """Return whether the reply to this request is still there."""
        return request_id in self._kept

    def keep(self, request_id: int, reply: bytes, *, light: bool = False) -> None:
        """Keep the reply to an admitted request; the oldest replies make room.

        A `light` one, to a cancel, makes no large one be forgotten, of which it may just have said that it is kept.
        """
        self._kept[request_id] = (self._running.pop(request_id), reply)
        self._bytes += len(reply)
        most_bytes = self._bytes if light else MOST_BYTES
        while len(self._kept) > 1 and (len(self._kept) > self._most or self._bytes > most_bytes):
            _, oldest = self._kept.pop(next(iter(self._kept)))
            self._bytes -= len(oldest)
