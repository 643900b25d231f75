"""What an environment of coroutines will answer, waited for.

Rule: they run on an event loop in a thread of its own, so that a replay works where a loop runs already (a notebook, a
    server), and all of an environment's coroutines meet the same loop. Nothing is started for an environment without.
"""

import asyncio
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


class Coroutines:
    """Runs awaitables one by one."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._runner: asyncio.Runner | None = None

    def result(self, answer: Awaitable[Any]) -> Any:
        """Return what the awaitable returns, or raise what it raises."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "proctor-replay")
            self._runner = asyncio.Runner()
        return self._thread.submit(self._run, answer).result()

    def _run(self, answer: Awaitable[Any]) -> Any:
        async def awaited() -> Any:
            return await answer

        runner = self._runner
        return None if runner is None else runner.run(awaited())

    def close(self) -> None:
        """End the loop and the thread."""
        thread, self._thread = self._thread, None
        if thread is not None and self._runner is not None:
            thread.submit(self._runner.close).result()
            thread.shutdown()
