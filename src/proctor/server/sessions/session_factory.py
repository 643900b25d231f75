"""Which session a client gets: as it wishes within what is served, or as the record says that it had it, brought there again.

Of a session of an earlier run:

Rule 1: nothing is believed that does not come out again. Every reset and step on record is carried out once more, as `replay` reads
    it, through the same response builder, and what would be stated now is compared with what was stated then; times and ids
    are taken from the record.
Rule 2: what differs, or cannot be done again, has lost its episode, and the reason is said plainly. The session lives on:
    a reset begins the next. An episode that was begun without a seed, and does not say which it drew, is tried without one.
Rule 3: nothing is stated here, and nobody is answered. Whoever takes the session up does that.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import msgspec

from proctor.access.redaction import hide_secrets
from proctor.contracts.recorder import Recorder
from proctor.envs.targets import MODES
from proctor.errors import ProctorError
from proctor.ledger.writer import UnfinishedSession
from proctor.models import events
from proctor.models.control import Code, Open
from proctor.models.events import Event, SessionOpened
from proctor.models.wire import Encoding
from proctor.replay.comparison import EnvironmentRequest, RecordedReset, RecordReader, compare_row, output_from_event
from proctor.server.rewards.pipeline import Plan
from proctor.server.runtime.env_adapter import ResetRequest
from proctor.server.runtime.executors import Executor
from proctor.server.runtime.results import EnvOutcome, RequestError, make_refusal
from proctor.server.sessions.episode_status import EpisodeStatus, Loss, SessionPosition
from proctor.server.sessions.response_builder import (
    AnyReset,
    BatchResponseBuilder,
    Caller,
    ResponseBuilder,
    SingleResponseBuilder,
    StepContext,
    reset_from_event,
)
from proctor.server.sessions.session import Session
from proctor.server.sessions.session_spec import SessionSpec, choose_executor_kind
from proctor.server.settings import ServerSettings

NAME_BYTES: Final = 8
"""Of a session's name, which opens nothing; it is typed on command lines, so it never begins with a dash."""


class SessionFactory:
    """Makes the sessions of one server; their environments are made when they are opened."""

    def __init__(
        self,
        settings: ServerSettings,
        spec: SessionSpec,
        plan: Plan,
        recorder: Recorder,
        *,
        boot: str,
        wall: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._spec = spec
        self._plan = plan
        self._recorder = recorder
        self._boot = boot
        self._wall = wall

    def create(self, wish: Open, encoding: Encoding, resume: str = "") -> Session:
        """Return a session, or refuse what is not served; `resume` is its token's digest, empty without hello."""
        spec = self._opening_for(wish, encoding)
        own, asked = self._settings.step_timeout_seconds, wish.step_timeout_seconds
        timeout = own if asked is None else asked if own is None else min(own, asked)
        session = self._make(secrets.token_hex(NAME_BYTES), spec, timeout, resume=resume)
        session.shared = wish.shared
        return session

    def recreate(self, opened: SessionOpened) -> Session:
        """Return a session as it was when it was opened, with what is served now."""
        wish = Open(num_envs=opened.num_envs, autoreset_mode=opened.autoreset_mode, infos=opened.infos)
        spec = self._opening_for(wish, Encoding(opened.packed, opened.compress))
        session = self._make(opened.session, spec, opened.step_timeout, resume=opened.resume)
        session.shared = opened.shared
        return session

    def create_for_end(self, opened: SessionOpened) -> Session:
        """Return a session that is of no use but to state the end of the one that was opened."""
        return self._make(opened.session, self._spec, None, resume=opened.resume)

    def find_change(self, opened: SessionOpened) -> str | None:
        """Return what is served otherwise than when the session was opened; None: nothing is."""
        now = self._spec
        pairs = {
            "another target": (opened.target, now.target.text),
            "other settings": (opened.settings, hide_secrets(now.target.settings)),
            "another environment": (opened.environment, now.card.name),
            "another version of the environment": (opened.environment_version, now.card.version),
            "other transforms": (opened.transforms, now.transforms),
            "another policy": (opened.policy, now.policy),
        }
        what = next((what for what, (was, is_now) in pairs.items() if was != is_now), None)
        return None if what is None else f"the server has {what} now"

    def _opening_for(self, wish: Open, encoding: Encoding) -> SessionSpec:
        spec = self._spec
        if wish.num_envs is None:
            return replace(spec, encoding=encoding)
        if not spec.card.can_batch:
            raise make_refusal(Code.VALIDATION_ERROR, "this environment cannot be batched", expected="no num_envs")
        if wish.autoreset_mode is not None and wish.autoreset_mode not in MODES:
            raise make_refusal(Code.VALIDATION_ERROR, "unknown autoreset mode", expected=f"one of {', '.join(MODES)}")
        wanted = None if self._settings.place == "auto" else self._settings.place
        sandboxed = spec.pool is not None
        return replace(
            spec,
            kind="process" if sandboxed else choose_executor_kind(spec.target, spec.card, wanted, wish.num_envs),
            encoding=encoding,
            num_envs=wish.num_envs,
            autoreset_mode=wish.autoreset_mode or "next_step",
            infos=wish.infos or self._plan.reads_outputs,
        )

    def _make(self, name: str, spec: SessionSpec, timeout: float | None, *, resume: str) -> Session:
        pipeline = self._plan.pipeline(spec.num_envs, packed=spec.encoding.packed, space=spec.card.observation_space)
        response_builder: ResponseBuilder = (
            SingleResponseBuilder(pipeline, extended=bool(resume))
            if spec.num_envs is None
            else BatchResponseBuilder(pipeline, spec.encoding)
        )
        return Session(
            name,
            spec,
            response_builder,
            self._recorder,
            clock=self._wall,
            boot=self._boot,
            step_timeout=timeout,
            kept_bytes=int(self._settings.watch_mb * 2**20),
            resume=resume,
        )


ENDED: Final = "ended"
"""The reason to close an episode that has come to its end: it stays as it is until the next."""
GOES_ON: Final = ("reset", "lost", ENDED)
"""The reasons to close an episode after which its session can have another."""
AnyStep = events.EpisodeStepped | events.BatchStepped
MOST_BYTES: Final = 4 * 2**20
"""Of the replies that are told again."""
ROWS_AT_ONCE: Final = 64
"""After so many rows others have their turn on the event loop."""
AnswerT = TypeVar("AnswerT")


@dataclass(slots=True)
class SessionHistory:
    """What can be told without the environment."""

    position: SessionPosition = field(default_factory=SessionPosition)
    granted: dict[str, events.AgentGranted] = field(default_factory=dict)
    """By name: the grants of the latest episode that nobody took back."""
    agents: dict[str, str] = field(default_factory=dict)
    """What the agents of all its grants are called."""
    packets: list[events.PacketJudged] = field(default_factory=list)
    closed: events.EpisodeClosed | None = None
    """What was said of the latest episode when it was closed."""
    closing: str | None = None
    """Why the session was being closed when the server was ended; None: it was not."""

    def caller(self, step: AnyStep) -> Caller | None:
        """Return the agent that took a step; None: it was the orchestrator."""
        if isinstance(step, events.BatchStepped) or step.grant is None:
            return None
        return Caller(step.grant, self.agents.get(step.grant, ""), step.tool or "")

    def take(self, event: Event) -> None:
        """Take the next event into account."""
        position = self.position
        match event:
            case events.EpisodeReset() | events.BatchReset():
                steps = position.total_steps
                self.position = SessionPosition(event.epoch, 0, steps, event.episode_id, event.nth, concluded=False)
            case events.EpisodeStepped() | events.BatchStepped():
                position.step_count = event.step
                position.total_steps += 1
                if isinstance(event, events.EpisodeStepped):
                    position.standing.move(event)
            case events.AgentGranted():
                self.granted[event.grant] = event
                self.agents[event.grant] = event.agent
            case events.AgentRevoked():
                self.granted.pop(event.grant, None)
            case events.PacketJudged():
                self.packets.append(event)
            case events.Failed(lost=True):
                self._note_loss(event.code, f"a {event.request or 'request'} failed before the server was ended")
            case events.SessionResumed(lost=str(why)):
                self._note_loss(Code.EPISODE_LOST, why)
            case events.EpisodeClosed():
                self._close(event)

    def _close(self, event: events.EpisodeClosed) -> None:
        self.position.concluded = True
        self.closed = event
        if event.reason not in GOES_ON:
            self.closing = event.reason
        if event.reason != ENDED:
            why = "it was closed, and the next one had not begun when the server was ended"
            self._note_loss(Code.EPISODE_LOST, why)

    def _note_loss(self, code: str, message: str) -> None:
        if self.position.loss is None:  # what was asked of a lost episode later is no other loss
            self.position.loss = Loss(code, message)


def read_history(stated: list[Event], steps_before: int = 0) -> SessionHistory:
    """Return what the events of a session's latest episode say; `steps_before` were taken in earlier ones."""
    history = SessionHistory(SessionPosition(total_steps=steps_before))
    for event in stated:
        history.take(event)
    return history


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """A request on record: what it led to, and the data of its reply where the environment gave it."""

    event: Event
    data: bytes = b""


async def rebuild_session(
    found: UnfinishedSession, session: Session, *, most: int, seconds: float
) -> tuple[SessionHistory, list[AnsweredRequest]]:
    """Bring the session to where its record ends, or have it lose its episode.

    Return what else is left of it: its history, and the last requests of its latest episode that are on record, at most
    `most`. It takes no longer than so many `seconds`.
    """
    history = read_history(found.events, found.steps_before)
    if found.damage:
        history.position.epoch = max(history.position.epoch, found.all_epochs)
        history.position.loss = Loss(Code.EPISODE_LOST, f"its record is damaged: {found.damage}")
    run = _RecordedRun(found, session, history, most)
    executor = None if history.position.loss is not None else await run.replay(seconds)
    session.recover(history.position, executor)
    session.rows.last = found.agent_steps_before
    for step in run.steps if executor is not None else found.events:
        caller = history.caller(step) if isinstance(step, events.EpisodeStepped) else None
        if caller is not None and isinstance(step, events.EpisodeStepped):
            session.show_transition(step, caller)
    if executor is not None:
        return history, list(run.answered)
    # Of the replies of a lost episode nothing is known.
    return history, [AnsweredRequest(event) for event in found.events if event.request_id is not None][-most:]


class _RecordedRun:
    """The way through one record."""

    def __init__(self, found: UnfinishedSession, session: Session, history: SessionHistory, most: int) -> None:
        self.answered: deque[AnsweredRequest] = deque(maxlen=most)
        self.steps: list[events.EpisodeStepped] = []
        """Those that agents took, as they came out now."""
        self._found = found
        self._session = session
        self._history = history
        self._episode_id = ""
        self._resets = 0
        """Of the environment that is there now."""

    async def replay(self, seconds: float) -> Executor | None:
        """Return where the environment is that was brought to the end of the record; None: the episode is lost."""
        executor: Executor | None = None
        try:
            async with asyncio.timeout(seconds):
                executor = await self._session.make_executor()
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
        reader = RecordReader(self._session.spec.num_envs)
        for index, row in enumerate(self._found.rows):
            request = reader.read(row)
            data = b""
            if request is not None:
                data, now = await self._carry_out(executor, request)
                differences = compare_row(request, output_from_event(now), paid=now).differences
                if differences:
                    names = ", ".join(dict.fromkeys(each.what for each in differences))
                    return f"{_name_request(request)} came out differently when it was done again: {names}"
            event: Any = row.event
            if event.request_id is not None:
                self.answered.append(AnsweredRequest(event, data))
                # Large replies leave room for fewer.
                while len(self.answered) > 1 and sum(len(each.data) for each in self.answered) > MOST_BYTES:
                    self.answered.popleft()
            if index % ROWS_AT_ONCE == ROWS_AT_ONCE - 1:
                await asyncio.sleep(0)
        return None

    async def _carry_out(self, executor: Executor, request: EnvironmentRequest) -> tuple[bytes, Any]:
        """Return the data of the reply to a recorded request, and the event that would be stated now."""
        event = request.event
        if isinstance(event, events.EpisodeReset | events.BatchReset):
            return await self._begin(executor, event, request.reset)  # type: ignore[arg-type]  # a reset has one
        outcome = await self._session.await_answer(executor, executor.step(bytes(request.action)))
        caller = self._history.caller(event)
        context = StepContext(
            event.session, event.epoch, event.step, self._episode_id, event.at, event.request_id, caller
        )
        data, now = self._session.responses.build_step(outcome, bytes(request.action), context)
        if caller is not None and isinstance(now, events.EpisodeStepped):
            self.steps.append(now)
        return data, now

    async def _begin(self, executor: Executor, event: AnyReset, reset: RecordedReset) -> tuple[bytes, Any]:
        carried = msgspec.json.decode(event.pipeline)
        if not self._resets and carried is not None:
            self._session.responses.restore_pipeline(carried)
        order = ResetRequest(reset.seed, event.episode_id, reset.options, reset.mask)
        # Some environments count their resets, so those before the first on record are done, too.
        for _ in range(reset.count_missing(self._resets)):
            await self._session.await_answer(executor, executor.reset(order))
            self._resets += 1
        outcome = await self._session.await_answer(executor, executor.reset(order))
        self._resets += 1
        context = StepContext(
            event.session, event.epoch, 0, event.episode_id, event.at, event.request_id, nth=event.nth
        )
        data, now = self._session.responses.build_reset(outcome, reset_from_event(event), context)
        self._episode_id = event.episode_id
        if isinstance(outcome, EnvOutcome) and self._history.position.step_count == 0:
            self._history.position.standing = EpisodeStatus(outcome.terminated, outcome.truncated)
        return self._session.responses.add_head(data, self._session.head), now


def _name_request(request: EnvironmentRequest) -> str:
    event: Any = request.event
    if request.reset is None:
        return f"step {event.step}"
    return "the reset" if event.seed is not None else "the reset, which was asked for without a seed"
