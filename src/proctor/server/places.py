"""Where a desk works: on the event loop, or on a thread of its own (in a process of its own: `sandbox/place`).

Rule 1: a place has one desk and does one thing at a time; the session in front of it sees to that.
Rule 2: only an environment that says it is quick, or whose steps are coroutines, works on the loop; all others can block
    as long as they like and stall nobody.
Rule 3: an abandoned place is waited for by nobody. A thread cannot be stopped, so it closes its environment when the
    call that it hangs in returns; `strays` counts those that have not.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from queue import SimpleQueue
from typing import Any, Final, Protocol, TypeVar

from proctor.server.answers import RAISED, BatchOutcome, Outcome, ToolAnswer
from proctor.server.desk import ResetOrder

AnyOutcome = Outcome | BatchOutcome
LOG: Final = logging.getLogger("proctor.environment")
Result = TypeVar("Result")
Job = tuple[Callable[[], Any], "asyncio.Future[Any]"] | None

strays: Final[set[int]] = set()
"""The threads that were abandoned and have not ended yet."""


class AnyDesk(Protocol):
    """What a place needs of a desk; see `desk.Desk`."""

    def reset(self, order: ResetOrder) -> AnyOutcome | Awaitable[AnyOutcome]:
        """Begin an episode."""
        ...

    def step(self, data: bytes) -> AnyOutcome | Awaitable[AnyOutcome]:
        """Carry out an action."""
        ...

    def call(self, tool: str, arguments: bytes) -> ToolAnswer | Awaitable[ToolAnswer]:
        """Use a tool."""
        ...

    def act(self, action: bytes) -> ToolAnswer | Awaitable[ToolAnswer]:
        """Carry out an action that a call left to be done."""
        ...

    def state(self) -> bytes:
        """Return the state as JSON."""
        ...

    def close(self) -> Awaitable[None] | None:
        """Close the environment."""
        ...


class Place(Protocol):
    """Where a desk works. `immediate`: a step ends before the call gives way to anybody else.

    `keeps_time`: an answer that takes longer than `patience` seconds is given up here, and nobody else need watch it.
    """

    kind: str
    immediate: bool
    keeps_time: bool
    patience: float | None

    async def reset(self, order: ResetOrder) -> AnyOutcome:
        """Begin an episode."""
        ...

    async def step(self, data: bytes) -> AnyOutcome:
        """Carry out an action."""
        ...

    async def call(self, tool: str, arguments: bytes) -> ToolAnswer:
        """Use a tool."""
        ...

    async def act(self, action: bytes) -> ToolAnswer:
        """Carry out an action that a call left to be done."""
        ...

    async def state(self) -> bytes:
        """Return the state as JSON."""
        ...

    async def close(self) -> None:
        """Close the environment; the place is no more."""
        ...

    def abandon(self) -> None:
        """Let go of it without waiting, whatever it does."""
        ...


class OnLoop:
    """A desk that works on the event loop."""

    kind = "inline"
    patience: float | None = None

    def __init__(self, desk: AnyDesk, *, immediate: bool) -> None:
        self.immediate = immediate
        # Nobody can interrupt what does not give way.
        self.keeps_time = immediate
        self._desk = desk

    @classmethod
    async def around(cls, making: "asyncio.Future[AnyDesk]", *, immediate: bool) -> "OnLoop":
        """Return a place for a desk that is being made; if nobody waits for it any more, it is closed once it is made."""
        try:
            return cls(await asyncio.shield(making), immediate=immediate)
        except asyncio.CancelledError:
            making.add_done_callback(_close_unwanted)
            raise

    async def reset(self, order: ResetOrder) -> AnyOutcome:
        """Begin an episode."""
        return await _awaited(self._desk.reset(order))

    async def step(self, data: bytes) -> AnyOutcome:
        """Carry out an action."""
        answer = self._desk.step(data)
        return answer if type(answer) is Outcome else await _awaited(answer)

    async def call(self, tool: str, arguments: bytes) -> ToolAnswer:
        """Use a tool."""
        return await _awaited(self._desk.call(tool, arguments))

    async def act(self, action: bytes) -> ToolAnswer:
        """Carry out an action that a call left to be done."""
        return await _awaited(self._desk.act(action))

    async def state(self) -> bytes:
        """Return the state as JSON."""
        return self._desk.state()

    async def close(self) -> None:
        """Close the environment."""
        await _awaited(self._desk.close())

    def abandon(self) -> None:
        """Close the environment without waiting for it; a coroutine that ran was cancelled before."""
        _close_soon(self._desk)


_CLOSING: Final[set["asyncio.Task[None]"]] = set()


def _close_soon(desk: AnyDesk) -> None:
    task = asyncio.get_running_loop().create_task(_closed(desk))
    _CLOSING.add(task)
    task.add_done_callback(_CLOSING.discard)


async def _closed(desk: AnyDesk) -> None:
    try:
        await _awaited(desk.close())
    except RAISED:
        LOG.warning("an environment failed to close", exc_info=True)


def _close_unwanted(making: "asyncio.Future[AnyDesk]") -> None:
    if not making.cancelled() and making.exception() is None:
        _close_soon(making.result())


async def _awaited(answer: Result | Awaitable[Result]) -> Result:
    return await answer if isinstance(answer, Awaitable) else answer


class OnThread:
    """A desk that was made, works and is closed on one thread of its own."""

    kind = "thread"
    immediate = False
    keeps_time = False
    patience: float | None = None

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._desk: AnyDesk | None = None
        self._abandoned = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def make(self, maker: Callable[[], AnyDesk]) -> None:
        """Make the desk; if that fails or is given up, the thread ends."""
        made = False
        try:
            await self._done(lambda: self._sit_down(maker))
            made = True
        finally:
            if not made:
                self.abandon()

    async def reset(self, order: ResetOrder) -> AnyOutcome:
        """Begin an episode."""
        outcome: AnyOutcome = await self._done(lambda: self._at_desk.reset(order))
        return outcome

    async def step(self, data: bytes) -> AnyOutcome:
        """Carry out an action."""
        outcome: AnyOutcome = await self._done(lambda: self._at_desk.step(data))
        return outcome

    async def call(self, tool: str, arguments: bytes) -> ToolAnswer:
        """Use a tool."""
        answer: ToolAnswer = await self._done(lambda: self._at_desk.call(tool, arguments))
        return answer

    async def act(self, action: bytes) -> ToolAnswer:
        """Carry out an action that a call left to be done."""
        answer: ToolAnswer = await self._done(lambda: self._at_desk.act(action))
        return answer

    async def state(self) -> bytes:
        """Return the state as JSON."""
        state: bytes = await self._done(self._at_desk.state)
        return state

    async def close(self) -> None:
        """Close the environment and end the thread; if that is given up, the thread is abandoned."""
        closed = False
        try:
            await self._done(self._at_desk.close)
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
            strays.add(id(self))
            for job in (self._leave, self._strike_off):
                self._jobs.put((job, self._loop.create_future()))
            self._jobs.put(None)

    def _sit_down(self, maker: Callable[[], AnyDesk]) -> None:
        self._desk = maker()

    def _leave(self) -> Awaitable[None] | None:
        return None if self._desk is None else _closed(self._desk)

    def _strike_off(self) -> None:
        strays.discard(id(self))

    @property
    def _at_desk(self) -> Any:
        return self._desk

    async def _done(self, call: Callable[[], Any]) -> Any:
        done = self._loop.create_future()
        self._jobs.put((call, done))
        return await done

    def _work(self) -> None:
        # Nothing is made for a desk that never answers with a coroutine.
        with closing(asyncio.Runner()) as runner:
            while (job := self._jobs.get()) is not None:
                self._do(*job, runner)

    def _do(self, call: Callable[[], Any], done: "asyncio.Future[Any]", runner: asyncio.Runner) -> None:
        try:
            result = call()
            if isinstance(result, Awaitable):
                result = runner.run(_awaited(result))
        except BaseException as problem:  # noqa: BLE001  # it is raised again where it is awaited
            self._tell(done, problem, failed=True)
        else:
            self._tell(done, result, failed=False)

    def _tell(self, done: "asyncio.Future[Any]", result: Any, *, failed: bool) -> None:
        with suppress(RuntimeError):  # the loop is closed: the server has gone, and nobody waits for the answer
            self._loop.call_soon_threadsafe(_settle, done, result, failed)


def on_thread(call: Callable[[], Result], name: str) -> "asyncio.Future[Result]":
    """Return what `call` will return; it runs on a thread for which nobody waits, not even the end of the process."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def work() -> None:
        try:
            result, failed = call(), False
        except BaseException as problem:  # noqa: BLE001  # it is raised again where it is awaited
            result, failed = problem, True  # type: ignore[assignment]  # told apart by the flag
        with suppress(RuntimeError):  # the loop is closed: the server has gone
            loop.call_soon_threadsafe(_settle, done, result, failed)

    threading.Thread(target=work, name=name, daemon=True).start()
    return done


def _settle(done: "asyncio.Future[Any]", result: Any, failed: bool) -> None:
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
