"""A desk in a worker of the sandbox, seen from the server.

Rule 1: a worker that ends, hangs, floods or talks nonsense has lost its episode and is killed; nobody else notices.
Rule 2: nothing that a worker says is believed but in its form: what becomes part of a reply is checked, a code or an
    incident that is none of ours is replaced.
Rule 3: nothing of an answer is built here but its frame: the texts in it stay texts, and what takes long to check is checked by
    another process (`checker`).
Rule 4: what an environment raised comes with the answer (`trace`), goes to the log with the incident's number, and
    never to a peer. A worker cannot fill the log.
"""

import asyncio
import logging
import re
import socket
from typing import Any, Final, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from proctor.errors import ComponentError, ValidationError
from proctor.models.control import Code, Problem
from proctor.server.answers import Failed, NotDone, Refused, ToolAnswer, failed, refused
from proctor.server.desk import ResetOrder
from proctor.server.incidents import new_incident
from proctor.server.places import AnyOutcome
from proctor.server.sandbox.checker import AnswerChecker, CheckFailed, is_costly
from proctor.server.sandbox.line import Break, Broken, Line
from proctor.server.sandbox.pipe import (
    LONGEST_MESSAGE,
    LONGEST_TRACE,
    MOST_BYTES,
    Answer,
    Call,
    Describe,
    FirstMessage,
    Work,
    WorkerProblem,
    answer_in,
    framed,
    from_arrays,
    sound,
)
from proctor.server.sandbox.words import plain

LONGEST_SECRET: Final = 2048
LOG: Final = logging.getLogger("proctor.environment")
CODES: Final = frozenset(Code)
INCIDENT: Final = re.compile(r"[0-9a-f]{12}")
CLOSE_SECONDS: Final = 5.0
MOST_TRACES: Final = 20
"""How many traces of one worker go to the log."""
OUT_OF_MEMORY: Final = "ended: it needed more memory than it may have"


class Held(Protocol):
    """What a place needs of whoever holds its process; see `hold.Hold`."""

    def kill(self) -> None:
        """End the process, without waiting; calling it again does nothing."""
        ...

    def out_of_memory(self) -> bool:
        """Return whether it was ended for want of memory."""
        ...


class InWorker:
    """A desk in another process."""

    kind = "process"
    immediate = False
    keeps_time = True

    def __init__(
        self,
        channel: socket.socket,
        hold: Held,
        session: str = "",
        *,
        checker: AnswerChecker,
        most: int = MOST_BYTES,
    ) -> None:
        self._checker = checker
        self._most = most
        self._num_envs: int | None = None
        self._hold = hold
        self._session = session
        self._traces = 0
        self._hungry = False
        self._slow = False
        """Whether an answer took long to check: from then on only its like wait for it."""
        self._ending: asyncio.Future[None] | None = None
        self._asking = False
        self._line = Line(channel, self._broken, checker.room)

    @property
    def patience(self) -> float | None:
        """Seconds that an answer may take before the worker is killed and the call fails; None: no limit."""
        return self._line.patience

    @patience.setter
    def patience(self, seconds: float | None) -> None:
        self._line.patience = seconds

    async def make(self, first: FirstMessage) -> Answer:
        """Have the environment made, or raise a refusal and kill the worker."""
        try:
            made = await self._asked(first)
            if isinstance(first, Work):
                self._num_envs = first.num_envs
            self._line.most = min(MOST_BYTES, self._most * (self._num_envs or 1))
            return made
        except Failed as problem:
            message = f"the environment could not be made: {problem.problem.message}"
            raise refused(Code.FACTORY_ERROR, message, incident=problem.problem.incident) from None
        except NotDone:
            self.abandon()
            raise

    async def described(self, first: Describe, seconds: float) -> bytes:
        """Return what the environment says of itself (`cards.Card` in msgpack), or raise why not; the worker is gone then."""
        # A space with bounds of its own for each number has a long description.
        self._line.most = MOST_BYTES
        try:
            async with asyncio.timeout(seconds):
                answer = await self.make(first)
        except NotDone as problem:
            raise ValidationError(problem.problem.message) from None
        except TimeoutError:
            raise ComponentError(f"the environment was not made within {seconds:g} seconds") from None
        finally:
            self.abandon()
        if answer.card is None:
            raise ComponentError("the environment's process gave no card")
        return answer.card

    async def reset(self, order: ResetOrder) -> AnyOutcome:
        """Begin an episode."""
        return self._outcome(await self._asked(Call("reset", order)), stepped=False)

    async def step(self, data: bytes) -> AnyOutcome:
        """Carry out an action."""
        return self._outcome(await self._asked(Call("step", None, data)), stepped=True)

    async def call(self, tool: str, arguments: bytes) -> ToolAnswer:
        """Use a tool."""
        return self._tool(await self._asked(Call("call", None, arguments, tool)))

    async def act(self, action: bytes) -> ToolAnswer:
        """Carry out an action that a call left to be done."""
        return self._tool(await self._asked(Call("act", None, action)))

    async def state(self) -> bytes:
        """Return the state as JSON."""
        answer = await self._asked(Call("state"))
        if answer.state is None:
            raise self._lost(Break.UNSOUND)
        return answer.state

    async def close(self) -> None:
        """Close the environment and end the process; one that does not answer in time is killed."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._asked(Call("close"))
        except (TimeoutError, NotDone):
            return
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Kill the process, whatever it does; calling it again does nothing."""
        self._line.cut(Break.LEFT)

    def _broken(self, how: Break) -> None:
        if how is Break.ENDED:
            # Elsewhere, because a container takes a moment to say how it ended.
            self._ending = asyncio.get_running_loop().run_in_executor(None, self._find_reason)
        else:
            self._hold.kill()
        if how is Break.UNASKED and not self._asking:
            # Whether anything will be asked of it again, so that somebody is told, is not known.
            LOG.error("a worker %s", how.value, extra=self._fields())

    def _find_reason(self) -> None:
        """Find out why the process ended; only then is it cleared away, because its group goes with it."""
        try:
            self._hungry = self._hold.out_of_memory()
        finally:
            self._hold.kill()

    async def _asked(self, message: Any) -> Answer:
        try:
            frame = framed(message)
        except OverflowError:
            raise refused(Code.VALIDATION_ERROR, "a number is too large", expected="integers of 64 bits") from None
        self._asking = True
        try:
            answer = await self._sound(await self._line.asked(frame))
        except Broken as problem:
            if self._ending is not None:
                await asyncio.shield(self._ending)
            raise self._lost(problem.how) from None
        except msgspec.DecodeError:
            raise self._lost(Break.UNSOUND) from None
        except CheckFailed:
            raise self._lost(Break.UNCHECKED) from None
        finally:
            self._line.let_go()
        self._asking = False
        if answer.refused is not None or answer.failed is not None or answer.trace is not None:
            self._raise_if_not_done(answer)
        return answer

    async def _sound(self, body: memoryview) -> Answer:
        """Return the answer, or raise a DecodeError; one that takes long is checked elsewhere."""
        if not is_costly(body):
            return sound(answer_in(body))
        self._slow |= await self._checker.check(body, slow=self._slow)
        return answer_in(body)

    def _raise_if_not_done(self, answer: Answer) -> None:
        said = answer.failed or answer.refused
        problem = None if said is None else self._known(said, lost=answer.failed is not None)
        if answer.trace is not None:
            self._log(answer.trace, None if problem is None else problem.incident)
        if problem is not None:
            raise Failed(problem) if answer.failed is not None else Refused(problem)

    def _known(self, said: WorkerProblem, *, lost: bool) -> Problem:
        """Return a problem as one of ours may look; a process invents neither codes nor incidents."""
        if said.code not in CODES:
            raise self._lost(Break.UNSOUND)
        incident = said.incident
        if incident is not UNSET and not INCIDENT.fullmatch(incident):
            incident = new_incident()
        return Problem(
            plain(said.message[:LONGEST_MESSAGE]),
            said.code,
            errors=msgspec.to_builtins(said.errors) if said.errors else UNSET,
            clause=_plain_if_set(said.clause),
            expected=_plain_if_set(said.expected),
            incident=incident,
            lost=True if lost else UNSET,
        )

    def _outcome(self, answer: Answer, *, stepped: bool) -> AnyOutcome:
        if self._num_envs is None and answer.outcome is not None:
            return answer.outcome
        if self._num_envs is not None and answer.batch is not None:
            try:
                return from_arrays(answer.batch, self._num_envs, stepped=stepped)
            except msgspec.DecodeError:
                pass
        raise self._lost(Break.UNSOUND)

    def _tool(self, answer: Answer) -> ToolAnswer:
        if answer.tool is None:
            raise self._lost(Break.UNSOUND)
        return answer.tool

    def _lost(self, how: Break) -> Failed:
        """Kill the worker, and return what its session learns."""
        self._line.cut(how)
        reason = OUT_OF_MEMORY if self._hungry else how.value
        number = new_incident()
        LOG.error("a worker %s, incident %s", reason, number, extra=self._fields())
        if how is Break.LATE:
            message = f"the environment did not answer within {self.patience:g} seconds"
            return failed(Code.STEP_TIMEOUT, message, incident=number)
        if how is Break.TOO_MUCH:
            message = f"the environment's answer is larger than {self._line.most} bytes"
            return failed(Code.TOO_LARGE, message, incident=number, expected="a smaller answer, or a higher answer_mb")
        return failed(Code.EXECUTION_ERROR, f"the environment's process {reason}", incident=number)

    def _log(self, trace: str, incident: Any) -> None:
        """Put what a worker logged into our log, as a traceback: indented, so that it cannot look like a line of ours."""
        self._traces += 1
        if self._traces > MOST_TRACES or not LOG.isEnabledFor(logging.ERROR):
            return
        number = incident if isinstance(incident, str) else new_incident()
        record = LOG.makeRecord(
            LOG.name, logging.ERROR, __file__, 0, "in a worker, incident %s", (number,), None, extra=self._fields()
        )
        # A trace that was cut may begin in the middle of a secret, which nobody would know for one.
        record.exc_text = trace[-LONGEST_TRACE:][LONGEST_SECRET:] if len(trace) >= LONGEST_TRACE else trace
        LOG.handle(record)

    def _fields(self) -> dict[str, str]:
        return {"session": self._session} if self._session else {}


def _plain_if_set(text: str | UnsetType) -> str | UnsetType:
    return text if text is UNSET else plain(text)
