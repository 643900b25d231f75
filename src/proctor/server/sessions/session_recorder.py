"""A session's way to its recorder, and the events that it states besides resets and steps.

Rule 1: what is stated waits until it is safe. A record that fails is a failure in words for a peer; the reason is in the log.
    A limit that is reached has a code of its own, and nothing inside failed: it has no incident.
Rule 2: after the end, nothing is stated any more.
"""

import logging
import platform
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import gymnasium
import msgspec
import numpy as np
from msgspec import UNSET, Raw

from proctor import __version__
from proctor.access.redaction import hide_secrets
from proctor.contracts.recorder import Recorder
from proctor.errors import ComponentError, RecordLimitError
from proctor.models.control import Code, Problem
from proctor.models.events import EpisodeStepped, Event, Failed, SessionOpened
from proctor.models.grants import WatchedStep
from proctor.server.runtime.results import RequestError, RequestFailed, make_failure
from proctor.server.sessions.response_builder import Caller, StepContext
from proctor.server.sessions.session_spec import SessionSpec


def make_opened_event(
    session: str, at: float, spec: SessionSpec, boot: str, *, resume: str, shared: bool, step_timeout: float | None
) -> SessionOpened:
    """Return the statement that a session is there."""
    return SessionOpened(
        session=session,
        at=at,
        environment=spec.card.name,
        environment_version=spec.card.version,
        target=spec.target.text,
        settings=hide_secrets(spec.target.settings),
        server=__version__,
        boot=boot,
        num_envs=spec.num_envs,
        autoreset_mode=spec.autoreset_mode,
        transforms=spec.transforms,
        place=spec.kind,
        tier=spec.tier,
        probe=dict(spec.probe),
        code=spec.card.code,
        policy=spec.policy,
        resume=resume,
        shared=shared,
        packed=spec.encoding.packed,
        compress=spec.encoding.compress,
        infos=spec.infos,
        step_timeout=step_timeout,
        python=platform.python_version(),
        gymnasium=gymnasium.__version__,
        numpy=np.__version__,
    )


def make_failed_event(problem: Problem, request: str, context: StepContext, action: bytes) -> Failed:
    """Return the statement that a request was refused, or failed, where the session stood."""
    return Failed(
        session=context.session,
        at=context.at,
        principal="control" if context.caller is None else "agent",
        request_id=context.request_id,
        epoch=context.epoch,
        step=context.step,
        code=problem.code,
        request=request,
        clause=None if problem.clause is UNSET else problem.clause,
        incident=None if problem.incident is UNSET else problem.incident,
        lost=problem.lost is True,
        action=Raw(action),
        grant=None if context.caller is None else context.caller.grant,
    )


def encode_transition(number: int, event: EpisodeStepped, caller: Caller) -> bytes:
    """Return what a trainer sees of a step that an agent caused, as JSON."""
    return msgspec.json.encode(
        WatchedStep(
            number,
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
    )


LOG: Final = logging.getLogger("proctor.session")
LIMIT_CODES: Final = {"step": Code.RECORD_TOO_LARGE, "episode": Code.EPISODE_FULL, "disk": Code.DISK_LOW}
"""What a session answers when a limit of its recorder is reached."""
LATER: Final = "a reset, once there is space on the server's disk again"


class SessionRecorder:
    """What one session puts on record; `incident` makes the number by which a log entry is found."""

    def __init__(self, session: str, recorder: Recorder, incident: Callable[[], str]) -> None:
        self.sealed = False
        """Whether the session is over, and its last word said."""
        self.waits = False
        """Whether the recorder takes its time, as far as the last event showed."""
        self._session = session
        self._recorder = recorder
        self._incident = incident
        self._reached: set[str] = set()
        """The limits of which the log knows."""

    @property
    def head(self) -> str | None:
        """What proves that the record of the latest episode is whole, where there is a ledger."""
        return self._recorder.head(self._session)

    async def record(self, event: Event) -> None:
        """Return when the event is safe; a failure says that it is not on record."""
        if self.sealed:
            raise make_failure(Code.SESSION_ERROR, "this session is closed")
        try:
            waiting = self._recorder.record(event)
            self.waits = waiting is not None
            if waiting is not None:
                await waiting
        except RecordLimitError as problem:
            raise self._limit_failure(problem) from None
        except ComponentError as problem:
            message = "what happened could not be put on record"
            raise self.log_failure(problem, Code.RECORDING_FAILED, message) from None

    async def note(self, event: Event) -> None:
        """Put on record what happened anyway; a record that fails here is logged, and changes nothing."""
        with suppress(RequestError):
            await self.record(event)

    def _limit_failure(self, problem: RecordLimitError) -> RequestFailed:
        """Return the failure for what is too much for the record; the log has each limit once a session."""
        if problem.limit not in self._reached:
            self._reached.add(problem.limit)
            LOG.warning("an event is not put on record: %s", problem, extra={"session": self._session})
        return make_failure(LIMIT_CODES[problem.limit], problem.message, expected=problem.expected or LATER)

    def log_failure(self, problem: BaseException, code: Code, message: str) -> RequestFailed:
        """Return the failure that a peer is told of; the problem itself goes to the log."""
        incident = self._incident()
        LOG.error("%s, incident %s", message, incident, extra={"session": self._session}, exc_info=problem)
        return make_failure(code, message, incident=incident)
