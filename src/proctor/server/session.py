"""A session: one running environment with its transforms and its recorder. The only owner of an environment.

Rule 1: one call at a time, the orchestrator's and the agents' alike: whoever calls holds `turn`.
Rule 2: an outcome is on record before its reply exists. What cannot be recorded did not happen: the episode is lost.
Rule 3: when nobody can know where the episode stands (an exception inside, a time-out, a call given up while it ran, a
    record that failed) the environment is let go. Steps and states are refused with EPISODE_LOST until a reset, which
    makes a new environment, after a wait where environments of this session break again and again. Nothing goes on in silence.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeVar

from proctor.contracts.recorder import Recorder
from proctor.door.limits import Pace
from proctor.errors import ComponentError
from proctor.models.control import Code, Problem, Reset
from proctor.models.events import EpisodeClosed, EpisodeStepped, Event, SessionClosed
from proctor.server.accounts import Account, Caller, Stand
from proctor.server.answers import Failed, NotDone, Outcome, ToolAnswer, failed, refused
from proctor.server.companions import Companion, Conclusion
from proctor.server.minutes import CODES, Minutes
from proctor.server.opening import Opening
from proctor.server.orders import order_of
from proctor.server.patience import in_time, left
from proctor.server.places import AnyOutcome, Place
from proctor.server.rows import MOST_BYTES, Rows
from proctor.server.standing import Loss, Position, Standing
from proctor.server.statements import failure, opened, row_of

__all__ = ["Companion", "Conclusion", "Loss", "Session"]

Result = TypeVar("Result")
LIMITS: Final = frozenset(CODES.values())
CLOSE_SECONDS: Final = 10.0
"""How long an environment may take to close before it is abandoned."""
LOSSES_AT_ONCE: Final = 8
LOSSES_PER_SECOND: Final = 1.0
MOST_WAIT_SECONDS: Final = 2.0
"""An environment that breaks again and again is made anew so often, and no more."""


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
        kept_bytes: int = MOST_BYTES,
        resume: str = "",
    ) -> None:
        self.name: Final = name
        self.epoch = 0
        self.step_count = 0
        self.total_steps = 0
        self.episode_id: str | None = None
        self.loss: Loss | None = None
        self.standing = Standing()
        self.rows: Final = Rows(most_bytes=kept_bytes)
        self.shared = False
        """Whether the orchestrator may step while an agent may."""
        self.companion: Companion | None = None
        """Who goes with the episode that runs."""
        self.resume: Final = resume
        """The digest of the resume token, in hexadecimal digits."""
        self.turn: Final = asyncio.Lock()
        self.callers = 0
        """Calls of agents that run or wait."""
        self.calls = 0
        """All that there have been."""
        self.claims = 0
        """Requests of the orchestrator that wait to end the episode: agents' calls make way for them."""
        self.opening: Final = opening
        self.step_timeout: Final = step_timeout
        self._account = account
        self._minutes = Minutes(name, recorder, opening.incident)
        self._clock = clock
        self._boot = boot
        self._place: Place | None = None
        self._losses = Pace(LOSSES_PER_SECOND, LOSSES_AT_ONCE, MOST_WAIT_SECONDS)
        self._resets = 0
        """Of the environment that is there now."""
        self._concluded = True
        """Whether there is no episode whose end is still to be stated."""
        self._concluding = False
        self.closed = False

    @property
    def over(self) -> bool:
        """Whether no episode runs: none has begun, or it has ended, or it is lost."""
        return self.epoch == 0 or self.standing.ended or self.loss is not None or self.closed

    @property
    def concluded(self) -> bool:
        """Whether the end of the latest episode is on record."""
        return self._concluded

    @property
    def immediate(self) -> bool:
        """Whether a step ends before it gives way to anybody else: the environment is quick, and the record is at hand."""
        return self._place is not None and self._place.immediate and not self._minutes.waits

    @property
    def head(self) -> str | None:
        """What proves that the record of the latest episode is whole, where there is a ledger."""
        return self._minutes.head

    async def open(self) -> None:
        """Make the environment and state that it is there."""
        place = await self.opening.place(self.name)
        try:
            stated = opened(
                self.name,
                self._clock(),
                self.opening,
                self._boot,
                resume=self.resume,
                shared=self.shared,
                step_timeout=self.step_timeout,
            )
            await self._minutes.record(stated)
            self._place = self._told_time(place)
        finally:
            if self._place is None:
                place.abandon()

    def take_up(self, position: Position, place: Place | None) -> None:
        """Stand where the record says; `place` has the environment that was brought there, None: the episode is lost."""
        self.epoch, self.step_count, self.episode_id = position.epoch, position.step, position.episode_id
        self.total_steps = position.total_steps
        self.loss, self.standing = position.loss, position.standing
        self._resets, self._concluded = position.resets, position.concluded
        self._place = None if place is None else self._told_time(place)

    async def reset(self, reset: Reset, request_id: int | None) -> bytes:
        """Begin an episode; return the reply's data."""
        try:
            order = order_of(reset, f"{self.name}.{self.epoch + 1}")
            if self._place is None:
                self._place = await self._new_place()
            place = self._place
            outcome = await (place.reset(order) if place.keeps_time else self._timed(place.reset(order)))
            self._resets += 1
            if order.mask is None:
                await self.conclude("reset")
            at, nth = self._clock(), self._resets
            stand = Stand(self.name, self.epoch + 1, 0, order.episode_id, at, request_id, nth=nth)
            data, event = self._account.begun(outcome, order, stand)
            await self._minutes.record(event)
        except (NotDone, ComponentError, asyncio.CancelledError) as problem:
            raise await self._judged(problem, "reset", request_id) from None
        self.loss = None
        self._concluded = False
        self.standing = Standing(*_flags(outcome))
        self.epoch, self.step_count, self.episode_id = stand.epoch, 0, order.episode_id
        self.rows.wake()
        return self._account.headed(data, self.head)

    async def step(self, data: bytes, request_id: int | None) -> bytes:
        """Carry out an action; return the reply's data."""
        try:
            place = self._standing_place()
            outcome = await (place.step(data) if place.keeps_time else self._timed(place.step(data)))
            return await self._taken_down(outcome, data, request_id)
        except (NotDone, ComponentError, asyncio.CancelledError) as problem:
            raise await self._judged(problem, "step", request_id, data) from None

    async def call(self, tool: str, arguments: bytes, caller: Caller) -> ToolAnswer:
        """Let an agent use a tool; of one that acts, the first action is carried out."""
        return await self._used(lambda place: place.call(tool, arguments), caller)

    async def act(self, action: bytes, caller: Caller) -> ToolAnswer:
        """Carry out an action that an agent's call left to be done."""
        return await self._used(lambda place: place.act(action), caller)

    async def state(self, request_id: int | None) -> bytes:
        """Return the state as the reply's data."""
        try:
            place = self._standing_place()
            return await (place.state() if place.keeps_time else self._timed(place.state()))
        except (NotDone, asyncio.CancelledError) as problem:
            raise await self._judged(problem, "state", request_id) from None

    async def conclude(self, reason: str) -> None:
        """State that the episode is over, if there is one of which that was not said; the turn is the caller's."""
        if self._concluded or self._concluding:
            return
        self._concluding = True
        try:
            companion, self.companion = self.companion, None
            said = Conclusion() if companion is None else await companion.conclude(reason)
            await self.record(
                EpisodeClosed(
                    session=self.name,
                    at=self._clock(),
                    principal="system",
                    epoch=self.epoch,
                    steps=self.step_count,
                    reason=reason if self.loss is None else "lost",
                    outcome=said.outcome,
                    state=said.state,
                    obligations=list(said.obligations),
                )
            )
            self._concluded = True
        finally:
            # If it could not be said, whoever ends the session tries again.
            self._concluding = False
        self.rows.wake()

    async def close(self, reason: str) -> None:
        """Close the environment and state the end, after which nothing is stated; calling it again does nothing."""
        if self.closed:
            return
        self.closed = True
        self.rows.wake()
        async with self._last_turn() as rested:
            place, self._place = self._place, None
            if place is not None and rested:
                await left(place, CLOSE_SECONDS, session=self.name)
            elif place is not None:
                place.abandon()
            with suppress(NotDone):
                await self.conclude(reason)
            await self._minutes.note(
                SessionClosed(
                    session=self.name, at=self._clock(), reason=reason, episodes=self.epoch, steps=self.total_steps
                )
            )
            self._minutes.sealed = True

    @asynccontextmanager
    async def _last_turn(self) -> AsyncIterator[bool]:
        """Let an agent's action that runs be finished first, if that takes no longer than a close may; say whether it is."""
        held = False
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                held = await self.turn.acquire()
        try:
            yield held
        finally:
            if held:
                self.turn.release()

    async def _used(self, use: Callable[[Place], Awaitable[ToolAnswer]], caller: Caller) -> ToolAnswer:
        try:
            place = self._standing_place()
            answer = await (use(place) if place.keeps_time else self._timed(use(place)))
            if answer.outcome is not None:
                await self._taken_down(answer.outcome, answer.action or b"null", None, caller)
            return answer
        except (NotDone, ComponentError, asyncio.CancelledError) as problem:
            raise await self._judged(problem, "call", None, caller=caller) from None

    async def _taken_down(
        self, outcome: AnyOutcome, action: bytes, request_id: int | None, caller: Caller | None = None
    ) -> bytes:
        """Put a step on record and count it; return the reply's data."""
        stand = self._stand(self.step_count + 1, request_id, caller)
        data, event = self._account.stepped(outcome, action, stand)
        await self._minutes.record(event)
        self.step_count += 1
        self.total_steps += 1
        if isinstance(event, EpisodeStepped):
            self.standing.move(event)
            if caller is not None:
                self.rows.add(row_of(self.rows.last + 1, event, caller))
            elif self.standing.ended:
                self.rows.wake()
        return data

    def _stand(self, step: int, request_id: int | None, caller: Caller | None = None) -> Stand:
        return Stand(self.name, self.epoch, step, self.episode_id or "", self._clock(), request_id, caller)

    async def _new_place(self) -> Place:
        if self.closed:
            raise refused(Code.SESSION_ERROR, "this session is closed")
        self._resets = 0
        # To start a worker, and to end one, takes time from everybody on this machine.
        await asyncio.sleep(self._losses.wait_seconds())
        return self._told_time(await self.opening.place(self.name))

    def _told_time(self, place: Place) -> Place:
        place.patience = self.step_timeout
        return place

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
        return await in_time(answer, self.step_timeout, incident=self.opening.incident, session=self.name)

    async def _judged(
        self,
        problem: BaseException,
        request: str,
        request_id: int | None,
        data: bytes = b"null",
        caller: Caller | None = None,
    ) -> BaseException:
        """Return what to raise for a call that did not end well; it is on record, and a failure has lost the episode."""
        told = self._told(problem, request)
        lost = isinstance(told, Failed)
        if lost:
            self.lose(told.problem.code, told.problem.message)
        stand = self._stand(self.step_count, request_id, caller)
        # What is too large for the record is not repeated there.
        kept = data if lost and told.problem.code not in LIMITS else b"null"
        await self._note_failure(told.problem, request, stand, kept)
        return problem if isinstance(problem, asyncio.CancelledError) else told

    async def _note_failure(self, problem: Problem, request: str, stand: Stand, action: bytes) -> None:
        """Put on record that a request failed; without its action, if that is too much for the record."""
        try:
            await self._minutes.record(failure(problem, request, stand, action))
        except Failed as refusal:
            if refusal.problem.code in LIMITS and action != b"null":
                await self._minutes.note(failure(problem, request, stand, b"null"))

    def _told(self, problem: BaseException, request: str) -> NotDone:
        if isinstance(problem, NotDone):
            return problem
        if isinstance(problem, asyncio.CancelledError):
            return failed(Code.CANCELLED, f"a {request} was given up while it ran")
        # A transform of rewards failed after the environment had moved.
        return self._minutes.broken(problem, Code.EXECUTION_ERROR, "the rewards could not be transformed")

    def lose(self, code: str, message: str) -> None:
        """Let the environment go, because nobody can know where the episode stands."""
        self.loss = Loss(code, message)
        place, self._place = self._place, None
        if place is not None:
            self._losses.note()
            place.abandon()
        self.rows.wake()

    async def record(self, event: Event) -> None:
        """Put on record what others state of this session, or raise that it cannot be done: the episode is lost."""
        try:
            await self._minutes.record(event)
        except Failed as problem:
            if problem.problem.code in LIMITS:
                await self.break_off(problem)
            else:
                self.lose(problem.problem.code, problem.problem.message)
            raise

    async def break_off(self, problem: Failed) -> None:
        """Lose the episode, and put on record why."""
        self.lose(problem.problem.code, problem.problem.message)
        await self._minutes.note(failure(problem.problem, "", self._stand(self.step_count, None), b"null"))


def _flags(outcome: AnyOutcome) -> tuple[bool, bool]:
    """Return whether an episode is over as it begins; a batch has no one episode."""
    return (outcome.terminated, outcome.truncated) if isinstance(outcome, Outcome) else (False, False)
