"""An environment's adapter in a worker of the sandbox, seen from the server.

Rule 1: a worker that ends, hangs, floods or talks nonsense has lost its episode and is killed; nobody else notices.
Rule 2: nothing that a worker says is believed but in its form: what becomes part of a reply is checked, a code or an
    incident that is none of ours is replaced.
Rule 3: nothing of an answer is built here but its frame: the texts in it stay texts, and what takes long to check is checked by
    another process (`answer_checker`).
Rule 4: what an environment raised comes with the answer (`trace`), goes to the log with the incident's number, and
    never to a peer. A worker cannot fill the log.
"""

import asyncio
import logging
import re
import socket
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol, TypeVar

import msgspec
from msgspec import UNSET

from proctor.envs.targets import Target
from proctor.errors import ComponentError, ProctorError, ValidationError
from proctor.models.control import Code, Problem
from proctor.server.runtime import results
from proctor.server.runtime.env_adapter import ResetRequest
from proctor.server.runtime.executors import AnyOutcome, Executor
from proctor.server.sandbox import messages
from proctor.server.sandbox.pool.answer_checker import AnswerChecker, CheckFailed, is_costly
from proctor.server.sandbox.pool.worker_socket import BreakReason, SocketBroken, WorkerSocket
from proctor.server.sandbox.tiers import SandboxRequest

LONGEST_SECRET: Final = 2048
LOG: Final = logging.getLogger("proctor.environment")
POOL_LOG: Final = logging.getLogger("proctor.sandbox")
MOST_STARTS: Final = 8
"""Workers that are started at the same time."""
ReturnType = TypeVar("ReturnType")
CODES: Final = frozenset(Code)
INCIDENT: Final = re.compile(r"[0-9a-f]{12}")
CLOSE_SECONDS: Final = 5.0
MOST_TRACES: Final = 20
"""How many traces of one worker go to the log."""


class ProcessHandle(Protocol):
    """What an executor needs of whoever holds its process; see `worker_process.WorkerProcess`."""

    def kill(self) -> None:
        """End the process, without waiting; calling it again does nothing."""
        ...

    def out_of_memory(self) -> bool:
        """Return whether it was ended for want of memory."""
        ...


class WorkerExecutor(Executor):
    """An adapter in another process."""

    enforces_timeout = True

    def __init__(
        self,
        channel: socket.socket,
        process: ProcessHandle,
        session: str = "",
        *,
        checker: AnswerChecker,
        most: int = messages.MOST_BYTES,
    ) -> None:
        self._checker = checker
        self._most = most
        self._num_envs: int | None = None
        self._process = process
        self._session = session
        self._traces = 0
        self._ran_out_of_memory = False
        self._slow = False
        """Whether an answer took long to check: from then on only its like wait for it."""
        self._ending: asyncio.Future[None] | None = None
        self._asking = False
        self._socket = WorkerSocket(channel, self._on_break, checker.room)

    @property
    def timeout(self) -> float | None:
        """Seconds that an answer may take before the worker is killed and the call fails; None: no limit."""
        return self._socket.timeout

    @timeout.setter
    def timeout(self, seconds: float | None) -> None:
        self._socket.timeout = seconds

    async def make(self, first: messages.FirstMessage) -> messages.WorkerReply:
        """Have the environment made, or raise a refusal and kill the worker."""
        try:
            made = await self._ask(first)
            if isinstance(first, messages.Work):
                self._num_envs = first.num_envs
            self._socket.most = min(messages.MOST_BYTES, self._most * (self._num_envs or 1))
            return made
        except results.RequestFailed as problem:
            message = f"the environment could not be made: {problem.problem.message}"
            raise results.make_refusal(Code.FACTORY_ERROR, message, incident=problem.problem.incident) from None
        except results.RequestError:
            self.abandon()
            raise

    async def describe(self, first: messages.Describe, seconds: float) -> bytes:
        """Return what the environment says of itself (an `EnvDescription` in msgpack), or raise why not; the worker is gone then."""
        # A space with bounds of its own for each number has a long description.
        self._socket.most = messages.MOST_BYTES
        try:
            async with asyncio.timeout(seconds):
                answer = await self.make(first)
        except results.RequestError as problem:
            raise ValidationError(problem.problem.message) from None
        except TimeoutError:
            raise ComponentError(f"the environment was not made within {seconds:g} seconds") from None
        finally:
            self.abandon()
        if answer.card is None:
            raise ComponentError("the environment's process gave no card")
        return answer.card

    async def reset(self, order: ResetRequest) -> AnyOutcome:
        """Begin an episode."""
        return self._to_outcome(await self._ask(messages.WorkerCall("reset", order)), stepped=False)

    async def step(self, data: bytes) -> AnyOutcome:
        """Carry out an action."""
        return self._to_outcome(await self._ask(messages.WorkerCall("step", None, data)), stepped=True)

    async def call(self, tool: str, arguments: bytes) -> results.ToolOutcome:
        """Use a tool."""
        return self._to_tool_result(await self._ask(messages.WorkerCall("call", None, arguments, tool)))

    async def act(self, action: bytes) -> results.ToolOutcome:
        """Carry out an action that a call left to be done."""
        return self._to_tool_result(await self._ask(messages.WorkerCall("act", None, action)))

    async def state(self) -> bytes:
        """Return the state as JSON."""
        answer = await self._ask(messages.WorkerCall("state"))
        if answer.state is None:
            raise self._fail(BreakReason.UNSOUND)
        return answer.state

    async def close(self) -> None:
        """Close the environment and end the process; one that does not answer in time is killed."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._ask(messages.WorkerCall("close"))
        except (TimeoutError, results.RequestError):
            return
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Kill the process, whatever it does; calling it again does nothing."""
        self._socket.cut(BreakReason.LEFT)

    def _on_break(self, how: BreakReason) -> None:
        if how is BreakReason.ENDED:
            # Elsewhere, because a container takes a moment to say how it ended.
            self._ending = asyncio.get_running_loop().run_in_executor(None, self._find_reason)
        else:
            self._process.kill()
        if how is BreakReason.UNASKED and not self._asking:
            # Whether anything will be asked of it again, so that somebody is told, is not known.
            LOG.error("a worker %s", how.value, extra=self._log_fields())

    def _find_reason(self) -> None:
        """Find out why the process ended; only then is it cleared away, because its group goes with it."""
        try:
            self._ran_out_of_memory = self._process.out_of_memory()
        finally:
            self._process.kill()

    async def _ask(self, message: Any) -> messages.WorkerReply:
        try:
            frame = messages.encode_frame(message)
        except OverflowError:
            raise results.make_refusal(
                Code.VALIDATION_ERROR, "a number is too large", expected="integers of 64 bits"
            ) from None
        self._asking = True
        try:
            answer = await self._check_reply(await self._socket.ask(frame))
        except SocketBroken as problem:
            if self._ending is not None:
                await asyncio.shield(self._ending)
            raise self._fail(problem.reason) from None
        except msgspec.DecodeError:
            raise self._fail(BreakReason.UNSOUND) from None
        except CheckFailed:
            raise self._fail(BreakReason.UNCHECKED) from None
        finally:
            self._socket.release_answer()
        self._asking = False
        said = answer.failed or answer.refused
        told = None if said is None else self._to_problem(said, lost=answer.failed is not None)
        if answer.trace is not None:
            self._log(answer.trace, None if told is None else told.incident)
        if told is not None:
            raise results.RequestFailed(told) if answer.failed is not None else results.RequestRefused(told)
        return answer

    async def _check_reply(self, body: memoryview) -> messages.WorkerReply:
        if not is_costly(body):
            return messages.check_reply(messages.decode_message(body, messages.WorkerReply))
        self._slow |= await self._checker.check(body, slow=self._slow)
        return messages.decode_message(body, messages.WorkerReply)

    def _to_problem(self, said: messages.WorkerProblem, *, lost: bool) -> Problem:
        """Return a problem as one of ours may look; a process invents neither codes nor incidents."""
        if said.code not in CODES:
            raise self._fail(BreakReason.UNSOUND)
        incident = said.incident
        if incident is not UNSET and not INCIDENT.fullmatch(incident):
            incident = results.new_incident()
        return Problem(
            messages.printable_text(said.message[: messages.LONGEST_MESSAGE]),
            said.code,
            errors=msgspec.to_builtins(said.errors) if said.errors else UNSET,
            clause=said.clause if said.clause is UNSET else messages.printable_text(said.clause),
            expected=said.expected if said.expected is UNSET else messages.printable_text(said.expected),
            incident=incident,
            lost=True if lost else UNSET,
        )

    def _to_outcome(self, answer: messages.WorkerReply, *, stepped: bool) -> AnyOutcome:
        if self._num_envs is None and answer.outcome is not None:
            return answer.outcome
        if self._num_envs is not None and answer.batch is not None:
            try:
                return messages.decode_batch(answer.batch, self._num_envs, stepped=stepped)
            except msgspec.DecodeError:
                pass
        raise self._fail(BreakReason.UNSOUND)

    def _to_tool_result(self, answer: messages.WorkerReply) -> results.ToolOutcome:
        if answer.tool is None:
            raise self._fail(BreakReason.UNSOUND)
        return answer.tool

    def _fail(self, how: BreakReason) -> results.RequestFailed:
        """Kill the worker, and return what its session learns."""
        self._socket.cut(how)
        reason = "ended: it needed more memory than it may have" if self._ran_out_of_memory else how.value
        number = results.new_incident()
        LOG.error("a worker %s, incident %s", reason, number, extra=self._log_fields())
        if how is BreakReason.LATE:
            message = f"the environment did not answer within {self.timeout:g} seconds"
            return results.make_failure(Code.STEP_TIMEOUT, message, incident=number)
        if how is BreakReason.TOO_MUCH:
            message = f"the environment's answer is larger than {self._socket.most} bytes"
            expected = "a smaller answer, or a higher answer_mb"
            return results.make_failure(Code.TOO_LARGE, message, incident=number, expected=expected)
        return results.make_failure(Code.EXECUTION_ERROR, f"the environment's process {reason}", incident=number)

    def _log(self, trace: str, incident: Any) -> None:
        """Put what a worker logged into our log, as a traceback: indented, so that it cannot look like a line of ours."""
        self._traces += 1
        if self._traces > MOST_TRACES or not LOG.isEnabledFor(logging.ERROR):
            return
        number = incident if isinstance(incident, str) else results.new_incident()
        record = LOG.makeRecord(
            LOG.name, logging.ERROR, __file__, 0, "in a worker, incident %s", (number,), None, extra=self._log_fields()
        )
        # A trace that was cut may begin in the middle of a secret, which nobody would know for one.
        record.exc_text = (
            trace[-messages.LONGEST_TRACE :][LONGEST_SECRET:] if len(trace) >= messages.LONGEST_TRACE else trace
        )
        LOG.handle(record)

    def _log_fields(self) -> dict[str, str]:
        return {"session": self._session} if self._session else {}


class SandboxPool(ABC):
    """Where the executors of one target come from; left by `close` or `end`. `what` is the sandbox in a word."""

    what: str = "sandbox"

    def __init__(self, target: Target, wish: SandboxRequest, start_seconds: float) -> None:
        self._target = target
        self._wish = wish
        self._seconds = start_seconds
        self._checker = AnswerChecker()
        self._starts = asyncio.Semaphore(MOST_STARTS)
        self._undertaker = ThreadPoolExecutor(MOST_STARTS, thread_name_prefix="proctor-undertaker")

    def card(self) -> bytes:
        """Return what the environment says of itself (an `EnvDescription` in msgpack), from a worker that is gone then."""
        return run_blocking(self._describe())

    async def start_worker(self, work: messages.Work, name: str = "") -> WorkerExecutor:
        """Return an executor with a new environment at work in it, or raise a refusal; `name` is for the log."""
        try:
            executor = await self._start_executor(name)
        except (ProctorError, OSError) as problem:
            number = results.new_incident()
            said = messages.printable_line(str(problem))
            words = "a %s could not be started, incident %s: %s"
            POOL_LOG.error(words, self.what, number, said, extra={"session": name})
            message = f"the environment's {self.what} could not be started"
            raise results.make_refusal(Code.FACTORY_ERROR, message, incident=number) from None
        await executor.make(work)
        return executor

    async def close(self) -> None:
        """End all workers; nothing is left."""
        await asyncio.to_thread(self.end)

    @abstractmethod
    def end(self) -> None:
        """Do what `close` does, and wait for it; calling it again does nothing."""

    @abstractmethod
    async def _start_worker(self) -> tuple[socket.socket, ProcessHandle]:
        """Return the socket of a worker that is confined and waits for its first message, and what holds it."""

    async def _start_executor(self, name: str = "") -> WorkerExecutor:
        """Return an executor without an environment, or raise why there is none."""
        async with self._starts:
            channel, process = await self._start_worker()
            return WorkerExecutor(channel, process, name, checker=self._checker, most=self._wish.limits.answer_bytes)

    async def _describe(self) -> bytes:
        executor = await self._start_executor()
        return await executor.describe(messages.Describe(self._target.text, self._target.settings), self._seconds)


def run_blocking(work: Coroutine[Any, Any, ReturnType]) -> ReturnType:
    """Return what a coroutine returns; on a thread, because whoever asks may be inside an event loop of its own."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
