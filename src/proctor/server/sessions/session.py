"""A session: one running environment with its transforms and its recorder. The only owner of an environment.

Rule 1: one call at a time, the orchestrator's and the agents' alike: whoever calls holds `turn`.
Rule 2: an outcome is on record before its reply exists. What cannot be recorded did not happen: the episode is lost. The
    reason is in the log; a limit that is reached has a code of its own. After the session's end nothing is stated any more.
Rule 3: when nobody can know where the episode stands (an exception inside, a time-out, a call given up while it ran, a
    record that failed) the environment is let go. Steps and states are refused with EPISODE_LOST until a reset, which
    makes a new environment, after a wait where environments of this session break again and again. Nothing goes on in silence.
"""

import asyncio
import logging
import platform
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Final, TypeVar

import gymnasium
import msgspec
import numpy

from proctor import __version__
from proctor.access.limits import Throttle
from proctor.access.redaction import hide_secrets
from proctor.contracts.recorder import Recorder
from proctor.errors import ComponentError, RecordLimitError
from proctor.models.control import Code, Reset, WatchedStep
from proctor.models.events import EpisodeClosed, EpisodeStepped, Event, SessionClosed, SessionOpened, SessionResumed
from proctor.server.runtime.executors import AnyOutcome, Executor, await_with_timeout, close_executor, consume_outcome
from proctor.server.runtime.results import (
    EnvOutcome,
    RequestError,
    RequestFailed,
    ToolOutcome,
    make_failure,
    make_refusal,
)
from proctor.server.sessions.episode_status import (
    MOST_ROW_BYTES,
    EpisodeConclusion,
    EpisodeObserver,
    EpisodeStatus,
    Loss,
    RowLog,
    SessionPosition,
)
from proctor.server.sessions.response_builder import (
    Caller,
    ResponseBuilder,
    StepContext,
    make_failed_event,
    parse_reset,
)
from proctor.server.sessions.session_spec import SessionSpec

__all__ = ["EpisodeConclusion", "EpisodeObserver", "Loss", "Session"]

LOG: Final = logging.getLogger("proctor.session")
encode: Final = msgspec.json.Encoder().encode
AnswerT = TypeVar("AnswerT")
LIMIT_CODES: Final = {"step": Code.RECORD_TOO_LARGE, "episode": Code.EPISODE_FULL, "disk": Code.DISK_LOW}
"""What a session answers when a limit of its recorder is reached."""
LIMITS: Final = frozenset(LIMIT_CODES.values())
CLOSE_SECONDS: Final = 10.0
"""How long an environment may take to close before it is abandoned."""
LOSSES_AT_ONCE: Final = 8
LOSSES_PER_SECOND: Final = 1.0
MOST_WAIT_SECONDS: Final = 2.0
"""An environment that breaks again and again is made anew so often, and no more."""


@dataclass(slots=True)
class PendingRecord:
    """Events that were handed over and may not be safe yet, and what is to be shown once they are."""

    promises: list[Awaitable[None]] = field(default_factory=list)
    when_safe: list[Callable[[], None]] = field(default_factory=list)

    def finish(self) -> None:
        """Show what is safe now; nothing is pending any more."""
        self.promises.clear()
        shown, self.when_safe = self.when_safe, []
        for show in shown:
            show()

    def abandon(self) -> None:
        """Wait for nothing any more: the episode is lost. A promise that is not kept is not reported as forgotten."""
        for promise in self.promises:
            asyncio.ensure_future(promise).add_done_callback(consume_outcome)
        self.promises.clear()


class Session(SessionPosition):
    """One environment, from its making to its end."""

    def __init__(
        self,
        name: str,
        spec: SessionSpec,
        response_builder: ResponseBuilder,
        recorder: Recorder,
        *,
        clock: Callable[[], float],
        boot: str,
        step_timeout: float | None,
        kept_bytes: int = MOST_ROW_BYTES,
        resume: str = "",
    ) -> None:
        super().__init__()
        self.name: Final = name
        self.rows: Final = RowLog(most_bytes=kept_bytes)
        self.shared = False
        """Whether the orchestrator may step while an agent may."""
        self.observer: EpisodeObserver | None = None
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
        self.spec: Final = spec
        self.step_timeout: Final = step_timeout
        self.responses: Final = response_builder
        self._recorder = recorder
        self._recorder_waits = False
        """Whether the recorder takes its time, as far as the last event showed."""
        self._sealed = False
        """Whether the session's last word is said."""
        self._limits_reached: set[str] = set()
        """Those of which the log knows."""
        self._clock = clock
        self._boot = boot
        self._executor: Executor | None = None
        self._losses = Throttle(LOSSES_PER_SECOND, LOSSES_AT_ONCE, MOST_WAIT_SECONDS)
        self._concluding = False
        self.closed = False

    @property
    def over(self) -> bool:
        """Whether no episode runs: none has begun, or it has ended, or it is lost."""
        return self.epoch == 0 or self.standing.ended or self.loss is not None or self.closed

    @property
    def immediate(self) -> bool:
        """Whether a step ends before it gives way to anybody else: the environment is quick, and the record is at hand."""
        return self._executor is not None and self._executor.immediate and not self._recorder_waits

    @property
    def head(self) -> str | None:
        """What proves that the record of the latest episode is whole, where there is a ledger."""
        return self._recorder.head(self.name)

    async def open(self) -> None:
        """Make the environment and state that it is there."""
        spec, executor = self.spec, await self.make_executor()
        try:
            await self._record(
                SessionOpened(
                    session=self.name,
                    at=self._clock(),
                    environment=spec.card.name,
                    environment_version=spec.card.version,
                    target=spec.target.text,
                    settings=hide_secrets(spec.target.settings),
                    server=__version__,
                    boot=self._boot,
                    num_envs=spec.num_envs,
                    autoreset_mode=spec.autoreset_mode,
                    transforms=spec.transforms,
                    place=spec.kind,
                    tier=spec.tier,
                    probe=dict(spec.probe),
                    code=spec.card.code,
                    policy=spec.policy,
                    resume=self.resume,
                    shared=self.shared,
                    packed=spec.encoding.packed,
                    compress=spec.encoding.compress,
                    infos=spec.infos,
                    step_timeout=self.step_timeout,
                    python=platform.python_version(),
                    gymnasium=gymnasium.__version__,
                    numpy=numpy.__version__,
                )
            )
            self._executor = executor
        finally:
            if self._executor is None:
                executor.abandon()

    async def make_executor(self) -> Executor:
        """Return an executor with a new environment, which gives up what takes longer than a step may."""
        executor = await self.spec.make_executor(self.name)
        executor.timeout = self.step_timeout
        return executor

    def recover(self, position: SessionPosition, executor: Executor | None) -> None:
        """Stand where the record says; `executor` has the environment that was brought there, None: the episode is lost."""
        for each in fields(SessionPosition):
            setattr(self, each.name, getattr(position, each.name))
        self._executor = executor

    async def record_resumption(self, lost: str | None) -> None:
        """State that this run of the server goes on with the session, or why its episode is `lost`."""
        await self.record(
            SessionResumed(
                session=self.name,
                at=self._clock(),
                principal="system",
                epoch=self.epoch,
                step=self.step_count,
                boot=self._boot,
                server=__version__,
                lost=lost,
            )
        )

    async def reset(self, reset: Reset, request_id: int | None) -> bytes:
        """Begin an episode; return the reply's data."""
        try:
            order = parse_reset(reset, f"{self.name}.{self.epoch + 1}")
            if self._executor is None:
                if self.closed:
                    raise make_refusal(Code.SESSION_ERROR, "this session is closed")
                self.resets = 0
                # To start a worker, and to end one, takes time from everybody on this machine.
                await asyncio.sleep(self._losses.wait_seconds())
                self._executor = await self.make_executor()
            outcome = await self.await_answer(self._executor, self._executor.reset(order))
            self.resets += 1
            if order.mask is None:
                await self.conclude("reset")
            at, nth = self._clock(), self.resets
            context = StepContext(self.name, self.epoch + 1, 0, order.episode_id, at, request_id, nth=nth)
            data, event = self.responses.build_reset(outcome, order, context)
            await self._record(event)
        except (RequestError, ComponentError, asyncio.CancelledError) as problem:
            raise await self._handle_failure(problem, "reset", request_id) from None
        self.loss = None
        self.concluded = False
        self.standing = EpisodeStatus()
        if isinstance(outcome, EnvOutcome):  # it may be over as it begins; a batch has no one episode
            self.standing = EpisodeStatus(outcome.terminated, outcome.truncated)
        self.epoch, self.step_count, self.episode_id = context.epoch, 0, order.episode_id
        self.rows.wake()
        return self.responses.add_head(data, self.head)

    async def step(self, data: bytes, request_id: int | None) -> bytes:
        """Carry out an action; return the reply's data."""
        try:
            executor = self._executor
            if executor is None or self.loss is not None:
                executor = self._find_executor()
            answer = executor.step(data)
            outcome = await (answer if executor.enforces_timeout else self.await_answer(executor, answer))
            return await self._record_step(outcome, data, request_id)
        except (RequestError, ComponentError, asyncio.CancelledError) as problem:
            raise await self._handle_failure(problem, "step", request_id, data) from None

    async def call(
        self, tool: str, arguments: bytes, caller: Caller, pending: PendingRecord | None = None
    ) -> ToolOutcome:
        """Let an agent use a tool; of one that acts, the first action is carried out.

        With a `pending` record the step may not be safe yet: it is once that has gone through `record`.
        """
        return await self._use_tool(lambda executor: executor.call(tool, arguments), caller, pending)

    async def act(self, action: bytes, caller: Caller, pending: PendingRecord | None = None) -> ToolOutcome:
        """Carry out an action that an agent's call left to be done; see `call`."""
        return await self._use_tool(lambda executor: executor.act(action), caller, pending)

    async def state(self, request_id: int | None) -> bytes:
        """Return the state as the reply's data."""
        try:
            executor = self._find_executor()
            return await self.await_answer(executor, executor.state())
        except (RequestError, asyncio.CancelledError) as problem:
            raise await self._handle_failure(problem, "state", request_id) from None

    async def conclude(self, reason: str) -> None:
        """State that the episode is over, if there is one of which that was not said; the turn is the caller's."""
        if self.concluded or self._concluding:
            return
        self._concluding = True
        try:
            observer, self.observer = self.observer, None
            said = EpisodeConclusion() if observer is None else await observer.conclude(reason)
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
            self.concluded = True
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
        rested = False
        # An agent's action that runs is finished first, if that takes no longer than a close may.
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                rested = await self.turn.acquire()
        try:
            executor, self._executor = self._executor, None
            if executor is not None and rested:
                await close_executor(executor, CLOSE_SECONDS, session=self.name)
            elif executor is not None:
                executor.abandon()
            with suppress(RequestError):
                await self.conclude(reason)
            at, episodes, steps = self._clock(), self.epoch, self.total_steps
            await self._note(SessionClosed(session=self.name, at=at, reason=reason, episodes=episodes, steps=steps))
            self._sealed = True
        finally:
            if rested:
                self.turn.release()

    async def _use_tool(
        self, use: Callable[[Executor], Awaitable[ToolOutcome]], caller: Caller, pending: PendingRecord | None
    ) -> ToolOutcome:
        try:
            executor = self._find_executor()
            answer = await self.await_answer(executor, use(executor))
            if answer.outcome is not None:
                await self._record_step(answer.outcome, answer.action or b"null", None, caller, pending)
            return answer
        except (RequestError, ComponentError, asyncio.CancelledError) as problem:
            raise await self._handle_failure(problem, "call", None, caller=caller) from None

    async def _record_step(
        self,
        outcome: AnyOutcome,
        action: bytes,
        request_id: int | None,
        caller: Caller | None = None,
        pending: PendingRecord | None = None,
    ) -> bytes:
        """Put a step on record and count it; return the reply's data."""
        step, at = self.step_count + 1, self._clock()
        context = StepContext(self.name, self.epoch, step, self.episode_id or "", at, request_id, caller)
        data, event = self.responses.build_step(outcome, action, context)
        promise = self._begin_record(event)
        if promise is not None and pending is not None:
            pending.promises.append(promise)
        elif promise is not None:
            try:
                await promise
            except ComponentError as problem:
                raise self._recording_failure(problem) from None
        self.step_count += 1
        self.total_steps += 1
        if isinstance(event, EpisodeStepped):
            self.standing.move(event)
            if caller is not None:
                if pending is None:
                    self.show_transition(event, caller)
                else:
                    pending.when_safe.append(partial(self.show_transition, event, caller))
            elif event.terminated or event.truncated:
                self.rows.wake()
        return data

    def show_transition(self, event: EpisodeStepped, caller: Caller) -> None:
        """Show a step that an agent caused to whoever watches."""
        seen = WatchedStep(
            self.rows.last + 1,
            event.epoch,
            event.step,
            event.at,
            caller.grant,
            caller.agent,
            caller.tool,
            event.action,
            event.observation,
            event.raw_reward,
            event.reward,
            event.terminated,
            event.truncated,
            event.metadata,
            event.parts,
        )
        self.rows.add(encode(seen))

    def _make_context(self, request_id: int | None, caller: Caller | None = None) -> StepContext:
        at = self._clock()
        return StepContext(self.name, self.epoch, self.step_count, self.episode_id or "", at, request_id, caller)

    def _find_executor(self) -> Executor:
        """Return where the episode stands, or refuse: there is none that could go on."""
        if self.loss is not None:
            raise make_refusal(
                Code.EPISODE_LOST, f"this episode is lost: {self.loss.message}", lost=True, expected="a reset"
            )
        if self._executor is None:
            raise make_refusal(Code.SESSION_ERROR, "this session is closed")
        return self._executor

    async def await_answer(self, executor: Executor, answer: Awaitable[AnswerT]) -> AnswerT:
        """Return what an executor answers, or raise a failure if that takes longer than a step may."""
        if executor.enforces_timeout:
            return await answer
        return await await_with_timeout(answer, self.step_timeout, incident=self.spec.incident, session=self.name)

    async def _handle_failure(
        self,
        problem: BaseException,
        request: str,
        request_id: int | None,
        data: bytes = b"null",
        caller: Caller | None = None,
    ) -> BaseException:
        """Return what to raise for a call that did not end well; it is on record, and a failure has lost the episode."""
        told = self._make_error(problem, request)
        lost = isinstance(told, RequestFailed)
        if lost:
            self.lose(told.problem.code, told.problem.message)
        context = self._make_context(request_id, caller)
        # What is too large for the record is not repeated there.
        kept = data if lost and told.problem.code not in LIMITS else b"null"
        try:
            await self._record(make_failed_event(told.problem, request, context, kept))
        except RequestFailed as refusal:
            if refusal.problem.code in LIMITS and kept != b"null":
                await self._note(make_failed_event(told.problem, request, context, b"null"))
        return problem if isinstance(problem, asyncio.CancelledError) else told

    def _make_error(self, problem: BaseException, request: str) -> RequestError:
        if isinstance(problem, RequestError):
            return problem
        if isinstance(problem, asyncio.CancelledError):
            return make_failure(Code.CANCELLED, f"a {request} was given up while it ran")
        # A transform of rewards failed after the environment had moved.
        return self._log_failure(problem, Code.EXECUTION_ERROR, "the rewards could not be transformed")

    def lose(self, code: str, message: str) -> None:
        """Let the environment go, because nobody can know where the episode stands."""
        self.loss = Loss(code, message)
        executor, self._executor = self._executor, None
        if executor is not None:
            self._losses.note()
            executor.abandon()
        self.rows.wake()

    async def record(self, *events: Event, pending: PendingRecord | None = None) -> None:
        """Return when what others state of this session is safe, and what was pending; if it cannot be, the episode is lost."""
        pending = PendingRecord() if pending is None else pending
        try:
            for event in events:
                promise = self._begin_record(event)
                if promise is not None:
                    pending.promises.append(promise)
            await self._settle(*pending.promises)
        except RequestFailed as problem:
            pending.abandon()
            if problem.problem.code in LIMITS:
                await self.break_off(problem)
            else:
                self.lose(problem.problem.code, problem.problem.message)
            raise
        pending.finish()

    async def _record(self, event: Event) -> None:
        promise = self._begin_record(event)
        if promise is not None:
            await self._settle(promise)

    def _begin_record(self, event: Event) -> Awaitable[None] | None:
        """Hand the event over; what is returned is for `_settle`, None: it is safe already."""
        if self._sealed:
            raise make_failure(Code.SESSION_ERROR, "this session is closed")
        try:
            promise = self._recorder.record(event)
        except (RecordLimitError, ComponentError) as problem:
            raise self._recording_failure(problem) from None
        self._recorder_waits = promise is not None
        return promise

    async def _settle(self, *promises: Awaitable[None]) -> None:
        try:
            for promise in promises:
                await promise
        except (RecordLimitError, ComponentError) as problem:
            raise self._recording_failure(problem) from None

    def _recording_failure(self, problem: ComponentError) -> RequestFailed:
        if not isinstance(problem, RecordLimitError):
            return self._log_failure(problem, Code.RECORDING_FAILED, "what happened could not be put on record")
        if problem.limit not in self._limits_reached:
            self._limits_reached.add(problem.limit)
            LOG.warning("an event is not put on record: %s", problem, extra={"session": self.name})
        expected = problem.expected or "a reset, once there is space on the server's disk again"
        return make_failure(LIMIT_CODES[problem.limit], problem.message, expected=expected)

    async def _note(self, event: Event) -> None:
        """Put on record what happened anyway; a record that fails here is logged, and changes nothing."""
        with suppress(RequestError):
            await self._record(event)

    def _log_failure(self, problem: BaseException, code: Code, message: str) -> RequestFailed:
        incident = self.spec.incident()
        LOG.error("%s, incident %s", message, incident, extra={"session": self.name}, exc_info=problem)
        return make_failure(code, message, incident=incident)

    async def break_off(self, problem: RequestFailed) -> None:
        """Lose the episode, and put on record why."""
        self.lose(problem.problem.code, problem.problem.message)
        await self._note(make_failed_event(problem.problem, "", self._make_context(None), b"null"))
