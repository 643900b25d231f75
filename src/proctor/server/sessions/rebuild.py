"""A session of an earlier run of the server, brought to where its record ends.

Rule 1: nothing is believed that does not come out again. Every reset and step on record is carried out once more, through
    the same response builder, and what would be stated now is compared with what was stated then, bit by bit; times and ids are
    taken from the record.
Rule 2: what differs, or cannot be done again, has lost its episode, and the reason is said plainly. The session lives on:
    a reset begins the next.
Rule 3: nothing is stated here, and nobody is answered. Whoever takes the session up does that.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from proctor.errors import ProctorError
from proctor.ledger.writer import UnfinishedSession
from proctor.models.control import Code
from proctor.models.events import (
    BatchReset,
    BatchStepped,
    EpisodeReset,
    EpisodeStepped,
    Event,
)
from proctor.server.rewards.pipeline import Pipeline
from proctor.server.runtime.executors import Executor
from proctor.server.runtime.results import EnvOutcome, RequestError
from proctor.server.runtime.timeouts import await_with_timeout
from proctor.server.sessions.episode_status import EpisodeStatus, Loss
from proctor.server.sessions.history import AnyStep, SessionHistory, find_difference, read_history
from proctor.server.sessions.resets import AnyReset, reset_for_replay, reset_from_event
from proctor.server.sessions.response_builder import ResponseBuilder, StepContext
from proctor.server.sessions.session import Session
from proctor.server.sessions.session_recorder import encode_transition

MOST_BYTES: Final = 4 * 2**20
"""Of the replies that are told again."""
ROWS_AT_ONCE: Final = 64
"""After so many rows others have their turn on the event loop."""
AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """A request on record: what it led to, and the data of its reply where the environment gave it."""

    event: Event
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class RebuiltSession:
    """What is left of a session besides itself."""

    history: SessionHistory
    answered: tuple[AnsweredRequest, ...]
    """The last requests of its latest episode that are on record, in order."""


async def rebuild_session(
    found: UnfinishedSession,
    session: Session,
    response_builder: ResponseBuilder,
    pipeline: Pipeline,
    *,
    most: int,
    seconds: float,
) -> RebuiltSession:
    """Bring the session to where its record ends, or have it lose its episode, and say what is left of it.

    At most the last `most` requests are told; it takes no longer than so many `seconds`.
    """
    history = read_history(found.events, found.steps_before)
    if found.damage:
        history.position.epoch = max(history.position.epoch, found.all_epochs)
        history.position.loss = Loss(Code.EPISODE_LOST, f"its record is damaged: {found.damage}")
    drive = _RecordedRun(found, session, response_builder, pipeline, history, most)
    executor = None if history.position.loss is not None else await drive.replay(seconds)
    session.recover(history.position, executor)
    session.rows.last = found.agent_steps_before
    for step in drive.steps if executor is not None else found.events:
        _add_row(session, history, step)
    return RebuiltSession(history, tuple(drive.answered if executor is not None else drive.list_last(most)))


def _add_row(session: Session, history: SessionHistory, step: Event) -> None:
    caller = history.caller(step) if isinstance(step, EpisodeStepped) else None
    if caller is not None and isinstance(step, EpisodeStepped):
        session.rows.add(encode_transition(session.rows.last + 1, step, caller))


class _RecordedRun:
    """The way through one record."""

    def __init__(
        self,
        found: UnfinishedSession,
        session: Session,
        response_builder: ResponseBuilder,
        pipeline: Pipeline,
        history: SessionHistory,
        most: int,
    ) -> None:
        self.answered: deque[AnsweredRequest] = deque(maxlen=most)
        self.steps: list[EpisodeStepped] = []
        """Those that agents took, as they came out now."""
        self._found = found
        self._session = session
        self._responses = response_builder
        self._pipeline = pipeline
        self._history = history
        self._episode_id = ""
        self._is_warm = False

    def list_last(self, most: int) -> list[AnsweredRequest]:
        """Return the last requests, of whose replies nothing is known."""
        return [AnsweredRequest(event) for event in self._found.events if event.request_id is not None][-most:]

    async def replay(self, seconds: float) -> Executor | None:
        """Return where the environment is that was brought to the end of the record; None: the episode is lost."""
        executor: Executor | None = None
        try:
            async with asyncio.timeout(seconds):
                executor = await self._session.spec.place(self._session.name)
                executor.timeout = self._session.step_timeout
                why = await self._replay_events(executor)
        except RequestError as problem:
            why = f"it could not be done again: {problem.problem.message} ({problem.problem.code})"
        except ProctorError as problem:
            why = f"it could not be done again: {problem.message}"
        except TimeoutError:
            why = f"it was not done again within {seconds:g} seconds"
        if why is None:
            return executor
        if executor is not None:
            executor.abandon()
        self._history.position.loss = Loss(Code.EPISODE_LOST, why)
        return None

    async def _replay_events(self, executor: Executor) -> str | None:
        """Carry out all that is on record; return what came out differently."""
        for index, (event, digest) in enumerate(zip(self._found.events, self._found.digests, strict=True)):
            data, why = b"", None
            if isinstance(event, EpisodeReset | BatchReset):
                data, why = await self._begin(executor, event, digest)
            elif isinstance(event, EpisodeStepped | BatchStepped):
                data, why = await self._step(executor, event, digest)
            if why is not None:
                return why
            if event.request_id is not None:
                self._keep(AnsweredRequest(event, data))
            if index % ROWS_AT_ONCE == ROWS_AT_ONCE - 1:
                await asyncio.sleep(0)
        return None

    def _keep(self, answered: AnsweredRequest) -> None:
        """Keep what was answered last; large replies leave room for fewer."""
        self.answered.append(answered)
        while len(self.answered) > 1 and sum(len(each.data) for each in self.answered) > MOST_BYTES:
            self.answered.popleft()

    async def _begin(self, executor: Executor, event: AnyReset, digest: str | None) -> tuple[bytes, str | None]:
        order = reset_for_replay(event)
        if not self._is_warm:
            await self._warm_up(executor, event)
        outcome = await self._await_answer(executor, executor.reset(order))
        context = StepContext(
            event.session, event.epoch, 0, event.episode_id, event.at, event.request_id, nth=event.nth
        )
        data, now = self._responses.build_reset(outcome, reset_from_event(event), context)
        self._episode_id = event.episode_id
        if isinstance(outcome, EnvOutcome) and self._history.position.step == 0:
            self._history.position.standing = EpisodeStatus(outcome.terminated, outcome.truncated)
        unseeded = "" if event.seed is not None else ", which was asked for without a seed"
        return self._responses.add_head(data, self._session.head), _describe_difference(
            f"the reset{unseeded}", event, now, digest
        )

    async def _warm_up(self, executor: Executor, event: AnyReset) -> None:
        """Do what came before the first reset on record: earlier resets, which some environments count, and rewards."""
        self._is_warm = True
        carried = msgspec.json.decode(event.pipeline)
        if self._pipeline and carried is not None:
            self._pipeline.restore(carried)
        order = reset_for_replay(event)
        for _ in range(event.nth - 1):
            await self._await_answer(executor, executor.reset(order))

    async def _step(self, executor: Executor, event: AnyStep, digest: str | None) -> tuple[bytes, str | None]:
        action = bytes(event.actions if isinstance(event, BatchStepped) else event.action)
        outcome = await self._await_answer(executor, executor.step(action))
        caller = self._history.caller(event)
        context = StepContext(
            event.session, event.epoch, event.step, self._episode_id, event.at, event.request_id, caller
        )
        data, now = self._responses.build_step(outcome, action, context)
        if caller is not None and isinstance(now, EpisodeStepped):
            self.steps.append(now)
        return data, _describe_difference(f"step {event.step}", event, now, digest)

    async def _await_answer(self, executor: Executor, answer: Awaitable[AnswerT]) -> AnswerT:
        if executor.enforces_timeout:
            return await answer
        session = self._session
        return await await_with_timeout(
            answer, session.step_timeout, incident=session.spec.incident, session=session.name
        )


def _describe_difference(what: str, recorded: Event, now: Event, digest: str | None) -> str | None:
    fields = find_difference(recorded, now, digest)
    return None if fields is None else f"{what} came out differently when it was done again: {fields}"
