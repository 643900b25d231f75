"""Wakes whoever waits for an operator."""

import asyncio


class Bell:
    """Rings when something has changed; whoever waits looks again."""

    def __init__(self) -> None:
        self.waiting = 0
        """How many wait."""
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Wake all who wait."""
        rung, self._rung = self._rung, asyncio.Event()
        rung.set()

    async def heard(self, seconds: float) -> None:
        """Return when it rings, or when so much time has passed."""
        self.waiting += 1
        waiter = asyncio.ensure_future(self._rung.wait())
        try:
            await asyncio.wait([waiter], timeout=seconds)
        finally:
            waiter.cancel()
            self.waiting -= 1
