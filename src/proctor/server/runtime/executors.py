"""Where an environment's adapter works, and how it is made: on the event loop, or on a thread of its own.

A process of its own is `sandbox/pool/worker_executor.py`.

Rule 1: an executor has one adapter and does one thing at a time; the session in front of it sees to that.
Rule 2: only an environment that says it is quick, or whose steps are coroutines, works on the loop; all others can block
    as long as they like and stall nobody.
Rule 3: an abandoned executor is waited for by nobody. A thread cannot be stopped, so it closes its environment when the
    call that it hangs in returns; `abandoned_threads` counts those that have not.
Rule 4: nobody waits for ever. Whoever is late is given up; what it answers afterwards is heard by nobody.
Rule 5: what a factory raises, an exit too, is logged with an incident's number; a peer learns the number and no more.
"""

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from proctor.envs.targets import Target, is_async
from proctor.errors import ComponentError
from proctor.models.control import Code
from proctor.models.wire import Encoding
from proctor.server.runtime.env_adapter import BatchAdapter, EnvAdapter, ResetRequest
from proctor.server.runtime.results import (
    USER_CODE_ERRORS,
    BatchOutcome,
    EnvOutcome,
    ToolOutcome,
    make_failure,
    make_refusal,
)

AnyOutcome = EnvOutcome | BatchOutcome
LOG: Final = logging.getLogger("proctor.environment")
SESSION_LOG: Final = logging.getLogger("proctor.session")
AnswerT = TypeVar("AnswerT")
ThreadJob = tuple[Callable[[], Any], "asyncio.Future[Any]"] | None

abandoned_threads: Final[set[int]] = set()
"""The threads that were abandoned and have not ended yet."""


AnyAdapter = EnvAdapter | BatchAdapter


class Executor(ABC):
    """Where an adapter works. `immediate`: a step ends before the call gives way to anybody else.

    `enforces_timeout`: an answer that takes longer than `timeout` seconds is given up here, and nobody else need watch it.
    """

    immediate: bool = False
    enforces_timeout: bool = False
    timeout: float | None = None

    async def ask(self, method: str, *arguments: Any) -> Any:
        """Return what a method of the adapter answers; an executor has this, or all the methods below."""
        raise NotImplementedError

    @abstractmethod
    def abandon(self) -> None:
        """Let go of it without waiting, whatever it does."""

    async def reset(self, order: ResetRequest) -> AnyOutcome:
        """Begin an episode."""
        outcome: AnyOutcome = await self.ask("reset", order)
        return outcome

    async def step(self, data: bytes) -> AnyOutcome:
        """Carry out an action."""
        outcome: AnyOutcome = await self.ask("step", data)
        return outcome

    async def call(self, tool: str, arguments: bytes) -> ToolOutcome:
        """Use a tool."""
        outcome: ToolOutcome = await self.ask("call", tool, arguments)
        return outcome

    async def act(self, action: bytes) -> ToolOutcome:
        """Carry out an action that a call left to be done."""
        outcome: ToolOutcome = await self.ask("act", action)
        return outcome

    async def state(self) -> bytes:
        """Return the state as JSON."""
        state: bytes = await self.ask("state")
        return state

    async def close(self) -> None:
        """Close the environment; the executor is no more."""
        await self.ask("close")


class LoopExecutor(Executor):
    """An adapter that works on the event loop."""

    def __init__(self, adapter: AnyAdapter, *, immediate: bool) -> None:
        self.immediate = immediate
        # Nobody can interrupt what does not give way.
        self.enforces_timeout = immediate
        self._adapter = adapter

    @classmethod
    async def around(cls, making: "asyncio.Future[AnyAdapter]", *, immediate: bool) -> "LoopExecutor":
        """Return an executor for an adapter that is being made; if nobody waits for it any more, it is closed once it is made."""
        try:
            return cls(await asyncio.shield(making), immediate=immediate)
        except asyncio.CancelledError:
            making.add_done_callback(_close_after_making)
            raise

    async def step(self, data: bytes) -> AnyOutcome:
        """Carry out an action."""
        answer = self._adapter.step(data)
        return answer if type(answer) is EnvOutcome else await _await_answer(answer)

    async def ask(self, method: str, *arguments: Any) -> Any:
        """Return what a method of the adapter answers."""
        return await _await_answer(getattr(self._adapter, method)(*arguments))

    def abandon(self) -> None:
        """Close the environment without waiting for it; a coroutine that ran was cancelled before."""
        _close_soon(self._adapter)


_CLOSING: Final[set["asyncio.Task[None]"]] = set()


def _close_soon(adapter: AnyAdapter) -> None:
    task = asyncio.get_running_loop().create_task(_close_adapter(adapter))
    _CLOSING.add(task)
    task.add_done_callback(_CLOSING.discard)


async def _close_adapter(adapter: AnyAdapter) -> None:
    try:
        await _await_answer(adapter.close())
    except USER_CODE_ERRORS:
        LOG.warning("an environment failed to close", exc_info=True)


def _close_after_making(making: "asyncio.Future[AnyAdapter]") -> None:
    if not making.cancelled() and making.exception() is None:
        _close_soon(making.result())


async def _await_answer(answer: AnswerT | Awaitable[AnswerT]) -> AnswerT:
    return await answer if isinstance(answer, Awaitable) else answer


class ThreadExecutor(Executor):
    """An adapter that was made, works and is closed on one thread of its own."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[ThreadJob] = SimpleQueue()
        self._adapter: AnyAdapter | None = None
        self._abandoned = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def make(self, maker: Callable[[], AnyAdapter]) -> None:
        """Make the adapter; if that fails or is given up, the thread ends."""
        made = False
        try:
            await self._run(lambda: self._make_adapter(maker))
            made = True
        finally:
            if not made:
                self.abandon()

    async def ask(self, method: str, *arguments: Any) -> Any:
        """Return what a method of the adapter answers."""
        return await self._run(partial(getattr(self._adapter, method), *arguments))

    async def close(self) -> None:
        """Close the environment and end the thread; if that is given up, the thread is abandoned."""
        closed = False
        try:
            await self.ask("close")
            closed = True
        finally:
            if closed:
                self._jobs.put(None)
            else:
                self.abandon()

    def abandon(self) -> None:
        """Let the thread close the environment and end when it can; calling it again does nothing."""
        if not self._abandoned:
            self._abandoned = True
            abandoned_threads.add(id(self))
            for job in (self._close_environment, partial(abandoned_threads.discard, id(self))):
                self._jobs.put((job, self._loop.create_future()))
            self._jobs.put(None)

    def _make_adapter(self, maker: Callable[[], AnyAdapter]) -> None:
        self._adapter = maker()

    def _close_environment(self) -> Awaitable[None] | None:
        return None if self._adapter is None else _close_adapter(self._adapter)

    async def _run(self, call: Callable[[], Any]) -> Any:
        done = self._loop.create_future()
        self._jobs.put((call, done))
        return await done

    def _work(self) -> None:
        # Nothing is made for an adapter that never answers with a coroutine.
        with closing(asyncio.Runner()) as runner:
            while (job := self._jobs.get()) is not None:
                _run_job(partial(self._run_call, job[0], runner), job[1], self._loop)

    def _run_call(self, call: Callable[[], Any], runner: asyncio.Runner) -> Any:
        result = call()
        return runner.run(_await_answer(result)) if isinstance(result, Awaitable) else result


async def await_with_timeout(
    answer: Awaitable[AnswerT], seconds: float | None, *, incident: Callable[[], str], session: str
) -> AnswerT:
    """Return the answer of an environment, or raise a failure if it takes longer than so many seconds."""
    task = asyncio.ensure_future(answer)
    task.add_done_callback(consume_outcome)
    try:
        # Not `asyncio.timeout`: an environment may swallow the cancellation by which that one works.
        await asyncio.wait([task], timeout=seconds)
        if task.done():
            return task.result()
    finally:
        task.cancel()
    number = incident()
    message = f"the environment did not answer within {seconds:g} seconds"
    SESSION_LOG.error("%s, incident %s", message, number, extra={"session": session})
    raise make_failure(Code.STEP_TIMEOUT, message, incident=number)


async def close_executor(executor: Executor, seconds: float, *, session: str) -> None:
    """Close an environment; one that takes longer than so many seconds is abandoned."""
    try:
        async with asyncio.timeout(seconds):
            await executor.close()
    except TimeoutError:
        executor.abandon()
    except USER_CODE_ERRORS:
        SESSION_LOG.warning("an environment failed to close", extra={"session": session}, exc_info=True)


def consume_outcome(task: "asyncio.Future[Any]") -> None:
    """Look at how something ended that nobody waits for any more, so that it is not reported as forgotten."""
    if not task.cancelled():
        task.exception()


def run_on_thread(call: Callable[[], AnswerT], name: str) -> "asyncio.Future[AnswerT]":
    """Return what `call` will return; it runs on a thread for which nobody waits, not even the end of the process."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[AnswerT] = loop.create_future()
    threading.Thread(target=_run_job, args=(call, done, loop), name=name, daemon=True).start()
    return done


def _run_job(call: Callable[[], Any], done: "asyncio.Future[Any]", loop: asyncio.AbstractEventLoop) -> None:
    try:
        result, failed = call(), False
    except BaseException as problem:  # noqa: BLE001  # it is raised again where it is awaited
        result, failed = problem, True
    with suppress(RuntimeError):  # the loop is closed: the server has gone, and nobody waits for the answer
        loop.call_soon_threadsafe(_set_result, done, result, failed)


def _set_result(done: "asyncio.Future[Any]", result: Any, failed: bool) -> None:
    if done.done():
        return
    if failed:
        # What is more than an exception would end the loop, or cannot be said by a future.
        plain = isinstance(result, Exception) and not isinstance(result, StopIteration)
        done.set_exception(result if plain else RuntimeError(type(result).__name__))
        # An abandoned call is awaited by nobody, and must not be reported as forgotten.
        done.exception()
    else:
        done.set_result(result)


def make_adapter(
    target: Target,
    encoding: Encoding,
    incident: Callable[[], str],
    *,
    num_envs: int | None,
    autoreset_mode: str | None,
    infos: bool,
    scenes: bool = False,
    coroutines: bool | None = None,
) -> AnyAdapter:
    """Return an adapter with a new environment, or raise a refusal; `coroutines` says what its steps must be, if anything."""
    try:
        if num_envs is None:
            environment = target.make()
            if coroutines is not None and is_async(environment) != coroutines:
                found = type(environment).__name__
                raise ComponentError("this factory makes different kinds of environments", found=found)
            return EnvAdapter(environment, encoding, incident, scenes=scenes)
        return BatchAdapter(target.make_batch(num_envs, autoreset_mode), encoding, incident, infos=infos)
    except USER_CODE_ERRORS as problem:
        number = incident()
        LOG.error("an environment could not be made, incident %s", number, exc_info=problem)
        raise make_refusal(Code.FACTORY_ERROR, "the environment could not be made", incident=number) from None
