"""Exactly once: which request of a session is new, which runs, and what was answered to those before.

Rule 1: ids grow. One that is not greater than the greatest seen was seen before, or will never run.
Rule 2: a repeated request gets the reply that was kept; the same id with other content, or an id whose reply is no longer
    kept, is refused. Nothing ever runs twice.
Rule 3: pure memory with a bound: the last `most` replies, and fewer if they are large, but always the last one.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

MOST_BYTES: Final = 4 * 2**20
"""Of kept replies in one session."""


class Admission(Enum):
    """What is to be done with a request."""

    NEW = "new"
    RUNNING = "running"
    REUSED = "reused"


@dataclass(slots=True)
class _Entry:
    content: int
    reply: bytes | None = None


class Replies:
    """The memory of one session."""

    def __init__(self, most: int) -> None:
        self.last_id = 0
        self._most = most
        self._bytes = 0
        self._entries: dict[int, _Entry] = {}

    def admit(self, request_id: int, content: int) -> Admission | bytes:
        """Return the kept reply, or what is to be done; a NEW request counts as seen from now on."""
        entry = self._entries.get(request_id)
        if entry is not None:
            if entry.content != content:
                return Admission.REUSED
            return Admission.RUNNING if entry.reply is None else entry.reply
        if request_id <= self.last_id:
            return Admission.REUSED
        self.last_id = request_id
        self._entries[request_id] = _Entry(content)
        return Admission.NEW

    def keep(self, request_id: int, reply: bytes) -> None:
        """Keep the reply to an admitted request; the oldest replies make room."""
        self._entries[request_id].reply = reply
        self._bytes += len(reply)
        while len(self._entries) > self._most or self._bytes > MOST_BYTES:
            oldest = next(iter(self._entries))
            kept = self._entries[oldest].reply
            if kept is None or oldest == request_id:
                return
            del self._entries[oldest]
            self._bytes -= len(kept)
