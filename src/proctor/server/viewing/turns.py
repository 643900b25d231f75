"""Slow work on threads: so much at a time, so much that waits, and no more.

Rule: a peer that leaves frees no thread: what runs counts until it has ended.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from proctor.models.control import Code
from proctor.server.answers import refused
from proctor.server.places import on_thread

AT_ONCE: Final = 1
"""Who reads does one thing after the other."""
MOST_WAITING: Final = 32
T = TypeVar("T")


class Turns:
    """Who works and who waits."""

    def __init__(self, at_once: int = AT_ONCE, most_waiting: int = MOST_WAITING) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._most_waiting = most_waiting
        self.waiting = 0

    async def taken(self, work: Callable[[], T], *, must: bool = False) -> T:
        """Return what `work` returns, when it is its turn; refuses if too many wait before it, unless it `must` be done."""
        if self.waiting >= self._most_waiting and not must:
            raise refused(Code.BUSY, f"no more than {self._most_waiting} can wait at once")
        self.waiting += 1
        try:
            await self._free.acquire()
        finally:
            self.waiting -= 1
        try:
            done = on_thread(work, "viewer")
        except BaseException:  # there may be no thread left to have
            self._free.release()
            raise
        done.add_done_callback(lambda _: self._free.release())
        # Shielded: otherwise whoever is cancelled would end the future, and not the thread.
        return await asyncio.shield(done)
