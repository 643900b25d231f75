"""A session: one running environment with its transforms and its recorder. The only owner of an environment.

Rule 1: one call at a time; whoever holds the session sees to it.
Rule 2: an outcome is on record before its reply exists. What cannot be recorded did not happen: the episode is lost.
Rule 3: when nobody can know where the episode stands (an exception inside, a time-out, a call given up while it ran, a
    record that failed) the environment is let go. Steps and states are refused with EPISODE_LOST until a reset, which
    makes a new environment. Nothing goes on in silence.
"""

import asyncio
import logging
import platform
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import gymnasium
import msgspec
import numpy as np
from msgspec import UNSET, Raw

from proctor import __version__
from proctor.contracts.recorder import Recorder
from proctor.errors import ComponentError
from proctor.models.control import Code, Problem, Reset
from proctor.models.events import Event, Failed, SessionClosed, SessionOpened
from proctor.server.accounts import Account, Stand
from proctor.server.answers import RAISED, NotDone, failed, refused
from proctor.server.answers import Failed as NotFinished
from proctor.server.desk import ResetOrder
from proctor.server.opening import Opening
from proctor.server.places import Place

LOG: Final = logging.getLogger("proctor.session")
Result = TypeVar("Result")
CLOSE_SECONDS: Final = 10.0
"""How long an environment may take to close before it is abandoned."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Why an episode cannot go on."""

    code: str
    message: str


class Session:
    """One environment, from its making to its end."""

    def __init__(
        self,
        name: str,
        opening: Opening,
        account: Account,
        recorder: Recorder,
        *,
        clock: Callable[[], float],
        boot: str,
        step_timeout: float | None,
    ) -> None:
        self.name: Final = name
        self.epoch = 0
        self.step_count = 0
        self.total_steps = 0
        self.episode_id: str | None = None
        self.loss: Loss | None = None
        self.opening: Final = opening
        self.step_timeout: Final = step_timeout
        self._account = account
        self._recorder = recorder
        self._clock = clock
        self._boot = boot
        self._place: Place | None = None
        self._closed = False

    @property
    def immediate(self) -> bool:
        """Whether a step ends before it gives way to anybody else."""
        return self._place is not None and self._place.immediate

    async def open(self) -> None:
        """Make the environment and state that it is there."""
        place = await self.opening.place(self.name)
        try:
            await self._recorded(self._opened())
            self._place = place
        finally:
            if self._place is None:
                place.abandon()

    async def reset(self, reset: Reset, request_id: int | None) -> bytes:
        """Begin an episode; return the reply's data."""
        try:
            order = _order(reset, f"{self.name}.{self.epoch + 1}")
            if self._place is None:
                self._place = await self._new_place()
            place = self._place
            outcome = await (place.reset(order) if place.immediate else self._timed(place.reset(order)))
            stand = Stand(self.name, self.epoch + 1, 0, order.episode_id, self._clock(), request_id)
            data, event = self._account.begun(outcome, order, stand)
            await self._recorded(event)
        except (NotDone, ComponentError, asyncio.CancelledError) as problem:
            raise await self._judged(problem, "reset", request_id) from None
        self.loss = None
        self.epoch, self.step_count, self.episode_id = stand.epoch, 0, order.episode_id
        return data

    async def step(self, data: bytes, request_id: int | None) -> bytes:
        """Carry out an action; return the reply's data."""
        try:
            place = self._standing_place()
            outcome = await (place.step(data) if place.immediate else self._timed(place.step(data)))
            stand = Stand(self.name, self.epoch, self.step_count + 1, self.episode_id or "", self._clock(), request_id)
            answer, event = self._account.stepped(outcome, data, stand)
            await self._recorded(event)
        except (NotDone, ComponentError, asyncio.CancelledError) as problem:
            raise await self._judged(problem, "step", request_id, data) from None
        self.step_count += 1
        self.total_steps += 1
        return answer

    async def state(self, request_id: int | None) -> bytes:
        """Return the state as the reply's data."""
        try:
            place = self._standing_place()
            return await (place.state() if place.immediate else self._timed(place.state()))
        except (NotDone, asyncio.CancelledError) as problem:
            raise await self._judged(problem, "state", request_id) from None

    async def close(self, reason: str) -> None:
        """Close the environment and state the end; calling it again does nothing."""
        if self._closed:
            return
        self._closed = True
        place, self._place = self._place, None
        if place is not None:
            await self._left(place)
        await self._noted(
            SessionClosed(
                session=self.name, at=self._clock(), reason=reason, episodes=self.epoch, steps=self.total_steps
            )
        )

    async def _left(self, place: Place) -> None:
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await place.close()
        except TimeoutError:
            place.abandon()
        except RAISED:
            LOG.warning("an environment failed to close", extra={"session": self.name}, exc_info=True)

    async def _new_place(self) -> Place:
        if self._closed:
            raise refused(Code.SESSION_ERROR, "this session is closed")
        return await self.opening.place(self.name)

    def _standing_place(self) -> Place:
        """Return where the episode stands, or refuse: there is none that could go on."""
        if self.loss is not None:
            raise refused(
                Code.EPISODE_LOST, f"this episode is lost: {self.loss.message}", lost=True, expected="a reset"
            )
        if self._place is None:
            raise refused(Code.SESSION_ERROR, "this session is closed")
        return self._place

    async def _timed(self, answer: Awaitable[Result]) -> Result:
        """Return the answer in time, or give the environment up."""
        task = asyncio.ensure_future(answer)
        task.add_done_callback(_retrieved)
        try:
            # Not `asyncio.timeout`: an environment may swallow the cancellation by which that one works.
            await asyncio.wait([task], timeout=self.step_timeout)
            if task.done():
                return task.result()
        finally:
            task.cancel()
        raise failed(Code.STEP_TIMEOUT, f"the environment did not answer within {self.step_timeout:g} seconds")

    async def _judged(
        self, problem: BaseException, request: str, request_id: int | None, data: bytes = b"null"
    ) -> BaseException:
        """Return what to raise for a call that did not end well; it is on record, and a failure has lost the episode."""
        told = self._told(problem, request)
        lost = isinstance(told, NotFinished)
        if lost:
            self.lose(told.problem.code, told.problem.message)
        await self._noted(self._failure(told.problem, request, request_id, data if lost else b"null"))
        return problem if isinstance(problem, asyncio.CancelledError) else told

    def _told(self, problem: BaseException, request: str) -> NotDone:
        if isinstance(problem, NotDone):
            return problem
        if isinstance(problem, asyncio.CancelledError):
            return failed(Code.CANCELLED, f"a {request} was given up while it ran")
        # A transform of rewards failed after the environment had moved.
        return self._broken(problem, Code.EXECUTION_ERROR, "the rewards could not be transformed")

    def _broken(self, problem: BaseException, code: Code, message: str) -> NotFinished:
        incident = self.opening.incident()
        LOG.error("%s, incident %s", message, incident, extra={"session": self.name}, exc_info=problem)
        return failed(code, message, incident=incident)

    def lose(self, code: str, message: str) -> None:
        """Let the environment go, because nobody can know where the episode stands."""
        self.loss = Loss(code, message)
        place, self._place = self._place, None
        if place is not None:
            place.abandon()

    def _failure(self, problem: Problem, request: str, request_id: int | None, data: bytes) -> Failed:
        return Failed(
            session=self.name,
            at=self._clock(),
            request_id=request_id,
            epoch=self.epoch,
            step=self.step_count,
            code=problem.code,
            request=request,
            clause=None if problem.clause is UNSET else problem.clause,
            incident=None if problem.incident is UNSET else problem.incident,
            lost=problem.lost is True,
            action=Raw(data),
        )

    def _opened(self) -> SessionOpened:
        opening = self.opening
        return SessionOpened(
            session=self.name,
            at=self._clock(),
            environment=opening.card.name,
            environment_version=opening.card.version,
            target=opening.target.text,
            settings=opening.target.settings,
            server=__version__,
            boot=self._boot,
            num_envs=opening.num_envs,
            autoreset_mode=opening.autoreset_mode,
            transforms=opening.transforms,
            place=opening.kind,
            python=platform.python_version(),
            gymnasium=gymnasium.__version__,
            numpy=np.__version__,
        )

    async def _recorded(self, event: Event) -> None:
        """Return when the event is safe; what cannot be recorded has lost the episode."""
        try:
            waiting = self._recorder.record(event)
            if waiting is not None:
                await waiting
        except ComponentError as problem:
            message = "what happened could not be put on record"
            raise self._broken(problem, Code.RECORDING_FAILED, message) from None

    async def _noted(self, event: Event) -> None:
        """Put on record what happened anyway; a record that fails here is logged, and changes nothing."""
        with suppress(NotDone):
            await self._recorded(event)


def _retrieved(task: "asyncio.Future[Any]") -> None:
    """Look at the end of an answer that nobody waits for any more, so that it is not reported as forgotten."""
    if not task.cancelled():
        task.exception()


def _order(reset: Reset, episode_id: str) -> ResetOrder:
    """Return what a reset asks for, or refuse what is no options or no mask."""
    try:
        options = msgspec.json.decode(reset.options, type=dict | None)
        mask = msgspec.json.decode(reset.mask, type=list[bool] | None)
    except msgspec.DecodeError as problem:
        raise refused(Code.VALIDATION_ERROR, f"not a reset: {problem}", expected="options and a mask") from None
    return ResetOrder(reset.seed, episode_id if reset.episode_id is None else reset.episode_id, options or None, mask)
