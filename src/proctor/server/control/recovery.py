"""The sessions that an earlier run of the server has left open: which go on, which have lost their episode, which end.

Rule 1: a session that can be rebuilt stands where it stood, with its grants, and what was answered is not done again. It
    waits for its client like one whose connection broke: for as long as `grace_seconds` say.
Rule 2: one whose episode cannot be rebuilt is there without it: EPISODE_LOST until a reset. One that nobody could come
    back to, or whose environment is not served any more, is closed.
Rule 3: whatever comes of it is on record, and says why.
Rule 4: sessions of workers that this run does not have are closed on record, once, and said in the log: nobody can come back to
    them. A file that another server has open is left alone.
"""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from proctor import __version__
from proctor.errors import ProctorError
from proctor.ledger.writer import LedgerWriter, UnfinishedSession
from proctor.models.control import Code
from proctor.models.events import BatchStepped, EpisodeStepped, SessionClosed, SessionResumed
from proctor.server.control.recorded_replies import RecordedReplies
from proctor.server.grants import GrantService
from proctor.server.runtime.results import RequestError
from proctor.server.sessions.episode_status import Loss
from proctor.server.sessions.rebuild import SessionHistory, read_history, rebuild_session
from proctor.server.sessions.session import Session
from proctor.server.sessions.session_factory import SessionFactory

_WORKER_FILE: Final = re.compile(r"worker-(\d+)\.ledger")


async def close_leftovers(
    folder: Path, workers: int, writer_of: Callable[[int], LedgerWriter], wall: Callable[[], float]
) -> None:
    """Close what workers with a number of `workers` or higher left open in the ledger."""
    found = [_WORKER_FILE.fullmatch(path.name) for path in folder.iterdir()]
    for number in sorted(int(each[1]) for each in found if each is not None):
        if number >= workers:
            await _close_sessions_of(writer_of, number, wall)


async def _close_sessions_of(writer_of: Callable[[int], LedgerWriter], number: int, wall: Callable[[], float]) -> None:
    try:
        writer = writer_of(number)
    except ProctorError as problem:
        LOG.warning("the ledger of worker %d could not be looked at: %s", number, problem.message)
        return
    try:
        left = writer.unfinished()
        for each in left:
            safe = writer.record(_make_closed_event(each, wall()))
            if safe is not None:
                await safe
    finally:
        writer.close()
    if left:
        LOG.warning("%d sessions of worker %d are lost: this run has fewer workers", len(left), number)


def _make_closed_event(left: UnfinishedSession, at: float) -> SessionClosed:
    steps = left.steps_before + sum(isinstance(event, EpisodeStepped | BatchStepped) for event in left.events)
    return SessionClosed(
        session=left.opened.session,
        at=at,
        principal="system",
        reason="lost",
        episodes=left.all_epochs,
        steps=steps,
    )


LOG: Final = logging.getLogger("proctor.sessions")
AT_ONCE: Final = 8
"""Sessions that are rebuilt at the same time."""
SHORTEST: Final = 5.0
"""Seconds that there are to rebuild a session, however short the server's patience with its clients is."""
UNJUDGED: Final = "the server was ended before its judge had seen the beginning"


class RecoveryResult(Enum):
    """What comes of a session; in the words of the log, of several."""

    GOES_ON = "go on"
    LOST = "have lost their episode"
    CLOSED = "are closed"


@dataclass(frozen=True, slots=True)
class CloseReason:
    """Why a session is closed and not taken up: the word for the record, and a sentence."""

    reason: str
    why: str


PLAIN: Final = CloseReason("disconnected", "the server was ended, and this session cannot be resumed")
IMPATIENT: Final = CloseReason("not resumed", "the server was ended, and waits for nobody")
FULL: Final = CloseReason("lost", "the server was ended, and has room for fewer sessions now")


class SessionRecovery:
    """Takes up what was left; `adopt` is given every session that clients can resume, `room` says for how many."""

    def __init__(
        self,
        openings: SessionFactory,
        granting: GrantService,
        *,
        boot: str,
        most_answers: int,
        patience: float,
        clock: Callable[[], float],
        wall: Callable[[], float],
        room: int,
        adopt: Callable[[Session, RecordedReplies], None],
    ) -> None:
        self._openings = openings
        self._granting = granting
        self._boot = boot
        self._most_answers = most_answers
        self._patience = patience
        self._clock = clock
        self._wall = wall
        self._room = room
        self._adopt = adopt
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._deadline = 0.0

    async def recover(self, found: Sequence[UnfinishedSession]) -> Counter[RecoveryResult]:
        """Return how many sessions had which fate."""
        begun = self._clock()
        self._deadline = begun + max(self._patience, SHORTEST)
        fates: Counter[RecoveryResult] = Counter()
        for each in await asyncio.gather(*map(self._recover_session, found), return_exceptions=True):
            fates[RecoveryResult.LOST if isinstance(each, BaseException) else each] += 1
            if isinstance(each, BaseException):
                LOG.error("a session of an earlier run could not be taken up", exc_info=each)
        counts = ", ".join(f"{fates[fate]} {fate.value}" for fate in RecoveryResult)
        LOG.info("an earlier run left %d sessions: %s (%.1f s)", len(found), counts, self._clock() - begun)
        return fates

    async def _recover_session(self, found: UnfinishedSession) -> RecoveryResult:
        end = self._find_close_reason(found)
        if end is not None:
            await self._close_session(found, end)
            return RecoveryResult.CLOSED
        async with self._at_once:
            return await self._rebuild(found)

    def _find_close_reason(self, found: UnfinishedSession) -> CloseReason | None:
        """Return why a session is not taken up at all; None: it is, and has its room."""
        closing = read_history(found.events).closing
        changed = self._openings.find_change(found.opened)
        if not found.opened.resume:
            return PLAIN
        if closing is not None:
            return CloseReason(closing, "the server was ended while this session was being closed")
        if changed is not None:
            return CloseReason("lost", changed)
        if self._patience <= 0:
            return IMPATIENT
        if self._room <= 0:
            return FULL
        self._room -= 1
        return None

    async def _close_session(self, found: UnfinishedSession, end: CloseReason) -> None:
        session = self._openings.create_for_end(found.opened)
        position = read_history(found.events, found.steps_before).position
        position.epoch = max(position.epoch, found.all_epochs)
        position.loss = position.loss or Loss(Code.EPISODE_LOST, end.why)
        session.recover(position, None)
        with suppress(RequestError):
            await self._record_resumption(session, end.why)
        with suppress(RequestError):  # the end is put on record where the rest could not be
            await session.close(end.reason)

    async def _rebuild(self, found: UnfinishedSession) -> RecoveryResult:
        made = self._openings.recreate(found.opened)
        session = made.session
        seconds = max(self._deadline - self._clock(), SHORTEST)
        again = await rebuild_session(
            found, session, made.response_builder, made.pipeline, most=self._most_answers, seconds=seconds
        )
        history = again.history
        if session.loss is None and not self._granting.has_begun(session, history):
            session.lose(Code.EPISODE_LOST, UNJUDGED)
        with suppress(RequestError):  # it has lost the episode then, and says so
            await self._record_resumption(session, None if session.loss is None else session.loss.message)
        await self._restore_grants(session, history)
        self._adopt(session, RecordedReplies(session, self._granting, again.answered, _last_id(found)))
        return RecoveryResult.GOES_ON if session.loss is None else RecoveryResult.LOST

    async def _record_resumption(self, session: Session, lost: str | None) -> None:
        await session.record(
            SessionResumed(
                session=session.name,
                at=self._wall(),
                principal="system",
                epoch=session.epoch,
                step=session.step_count,
                boot=self._boot,
                server=__version__,
                lost=lost,
            )
        )

    async def _restore_grants(self, session: Session, history: SessionHistory) -> None:
        """Have grants, and the judge of a governed episode, brought to where they stood."""
        try:
            await self._granting.restore(session, history)
        except (ProctorError, RequestError) as problem:
            LOG.error("the judge of an episode could not be brought back", exc_info=problem)
            session.observer = None
            session.lose(Code.EPISODE_LOST, "its judge could not be brought back to where it stood")


def _last_id(found: UnfinishedSession) -> int:
    """Return the last request that may have had an effect: what is on record outside an episode was refused."""
    if found.damage:
        return found.last_request_id
    return max((event.request_id or 0 for event in found.events), default=0)
