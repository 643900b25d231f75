"""What agents did in one session, numbered, for whoever trains them: a bounded memory with readers that wait.

Rule 1: writing never waits. A reader that is slow misses rows, and is told how many.
Rule 2: rows are numbered from 1 and never renumbered; the oldest are forgotten first, by number and by bytes.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MOST_ROWS: Final = 10_000
MOST_BYTES: Final = 8 * 2**20
MOST_AT_ONCE: Final = 4 * 2**20
"""Of one answer to a reader; a single row may be larger."""


@dataclass(frozen=True, slots=True)
class RowPage:
    """Some rows in order; `missed` of those that were asked for are no longer kept."""

    rows: Sequence[bytes]
    missed: int


class RowLog:
    """The rows of one session."""

    def __init__(self, *, most: int = MOST_ROWS, most_bytes: int = MOST_BYTES) -> None:
        self.last = 0
        self._most = most
        self._most_bytes = most_bytes
        self._kept: deque[bytes] = deque()
        self._bytes = 0
        self._waiting: set[asyncio.Future[None]] = set()

    def add(self, row: bytes) -> None:
        """Keep a row, whose number is `last + 1`; what is too old is forgotten."""
        self.last += 1
        self._kept.append(row)
        self._bytes += len(row)
        while len(self._kept) > self._most or (self._bytes > self._most_bytes and len(self._kept) > 1):
            self._bytes -= len(self._kept.popleft())
        self.wake()

    def after(self, row: int, most: int) -> RowPage:
        """Return the rows after this one, at most so many, and no more bytes than a message should have."""
        first = self.last - len(self._kept) + 1
        begin = max(row + 1, first)
        missed = max(0, min(begin, self.last + 1) - row - 1)
        taken: list[bytes] = []
        size = 0
        for index in range(begin - first, min(len(self._kept), begin - first + most)):
            size += len(self._kept[index])
            if taken and size > MOST_AT_ONCE:
                break
            taken.append(self._kept[index])
        return RowPage(taken, missed)

    def wake(self) -> None:
        """Let every reader look again."""
        for reader in self._waiting:
            if not reader.done():
                reader.set_result(None)
        self._waiting.clear()

    async def wait_for_change(self, seconds: float) -> None:
        """Return when there is something new, or when so much time has passed."""
        reader: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(reader)
        try:
            await asyncio.wait([reader], timeout=seconds)
        finally:
            self._waiting.discard(reader)
