"""Waiting for an environment, and never for ever.

Rule: whoever is late is given up. What it answers afterwards is heard by nobody, and reported by nobody either.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from proctor.models.control import Code
from proctor.server.runtime.executors import Executor
from proctor.server.runtime.results import USER_CODE_ERRORS, make_failure

LOG: Final = logging.getLogger("proctor.session")
AnswerT = TypeVar("AnswerT")


async def await_with_timeout(
    answer: Awaitable[AnswerT], seconds: float | None, *, incident: Callable[[], str], session: str
) -> AnswerT:
    """Return the answer of an environment, or raise a failure if it takes longer than so many seconds."""
    task = asyncio.ensure_future(answer)
    task.add_done_callback(_consume_result)
    try:
        # Not `asyncio.timeout`: an environment may swallow the cancellation by which that one works.
        await asyncio.wait([task], timeout=seconds)
        if task.done():
            return task.result()
    finally:
        task.cancel()
    number = incident()
    message = f"the environment did not answer within {seconds:g} seconds"
    LOG.error("%s, incident %s", message, number, extra={"session": session})
    raise make_failure(Code.STEP_TIMEOUT, message, incident=number)


async def close_executor(executor: Executor, seconds: float, *, session: str) -> None:
    """Close an environment; one that takes longer than so many seconds is abandoned."""
    try:
        async with asyncio.timeout(seconds):
            await executor.close()
    except TimeoutError:
        executor.abandon()
    except USER_CODE_ERRORS:
        LOG.warning("an environment failed to close", extra={"session": session}, exc_info=True)


def _consume_result(task: "asyncio.Future[Any]") -> None:
    """Look at the end of an answer that nobody waits for any more, so that it is not reported as forgotten."""
    if not task.cancelled():
        task.exception()
