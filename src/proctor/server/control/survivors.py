"""The sessions that an earlier run of the server has left open: which go on, which have lost their episode, which end.

Rule 1: a session that can be rebuilt stands where it stood, with its grants, and what was answered is not done again. It
    waits for its client like one whose connection broke: for as long as `grace_seconds` say.
Rule 2: one whose episode cannot be rebuilt is there without it: EPISODE_LOST until a reset. One that nobody could come
    back to, or whose environment is not served any more, is closed.
Rule 3: whatever comes of it is on record, and says why.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Final

from proctor import __version__
from proctor.errors import ProctorError
from proctor.ledger.writer import Unfinished
from proctor.models.control import Code
from proctor.models.events import SessionResumed
from proctor.server.answers import NotDone
from proctor.server.control.granting import Granting
from proctor.server.control.openings import Openings
from proctor.server.control.past import Past
from proctor.server.histories import History, history_of
from proctor.server.rebuilding import rebuilt
from proctor.server.session import Session
from proctor.server.standing import Loss

LOG: Final = logging.getLogger("proctor.sessions")
AT_ONCE: Final = 8
"""Sessions that are rebuilt at the same time."""
SHORTEST: Final = 5.0
"""Seconds that there are to rebuild a session, however short the server's patience with its clients is."""
UNJUDGED: Final = "the server was ended before its judge had seen the beginning"


class Fate(Enum):
    """What comes of a session; in the words of the log, of several."""

    GOES_ON = "go on"
    LOST = "have lost their episode"
    CLOSED = "are closed"


@dataclass(frozen=True, slots=True)
class End:
    """Why a session is closed and not taken up: the word for the record, and a sentence."""

    reason: str
    why: str


PLAIN: Final = End("disconnected", "the server was ended, and this session cannot be resumed")
IMPATIENT: Final = End("not resumed", "the server was ended, and waits for nobody")
FULL: Final = End("lost", "the server was ended, and has room for fewer sessions now")


class Survivors:
    """Takes up what was left; `adopt` is given every session that clients can resume, `room` says for how many."""

    def __init__(
        self,
        openings: Openings,
        granting: Granting,
        *,
        boot: str,
        most_answers: int,
        patience: float,
        clock: Callable[[], float],
        wall: Callable[[], float],
        room: int,
        adopt: Callable[[Session, Past], None],
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

    async def take_up(self, found: Sequence[Unfinished]) -> Counter[Fate]:
        """Return how many sessions had which fate."""
        begun = self._clock()
        self._deadline = begun + max(self._patience, SHORTEST)
        fates: Counter[Fate] = Counter()
        for each in await asyncio.gather(*map(self._taken_up, found), return_exceptions=True):
            fates[Fate.LOST if isinstance(each, BaseException) else each] += 1
            if isinstance(each, BaseException):
                LOG.error("a session of an earlier run could not be taken up", exc_info=each)
        counts = ", ".join(f"{fates[fate]} {fate.value}" for fate in Fate)
        LOG.info("an earlier run left %d sessions: %s (%.1f s)", len(found), counts, self._clock() - begun)
        return fates

    async def _taken_up(self, found: Unfinished) -> Fate:
        end = self._end(found)
        if end is not None:
            await self._closed(found, end)
            return Fate.CLOSED
        async with self._at_once:
            return await self._rebuilt(found)

    def _end(self, found: Unfinished) -> End | None:
        """Return why a session is not taken up at all; None: it is, and has its room."""
        closing = history_of(found.events).closing
        changed = self._openings.changed(found.opened)
        if not found.opened.resume:
            return PLAIN
        if closing is not None:
            return End(closing, "the server was ended while this session was being closed")
        if changed is not None:
            return End("lost", changed)
        if self._patience <= 0:
            return IMPATIENT
        if self._room <= 0:
            return FULL
        self._room -= 1
        return None

    async def _closed(self, found: Unfinished, end: End) -> None:
        session = self._openings.left(found.opened)
        position = history_of(found.events, found.steps_before).position
        position.epoch = max(position.epoch, found.all_epochs)
        position.loss = position.loss or Loss(Code.EPISODE_LOST, end.why)
        session.take_up(position, None)
        with suppress(NotDone):
            await self._state(session, end.why)
        with suppress(NotDone):  # the end is put on record where the rest could not be
            await session.close(end.reason)

    async def _rebuilt(self, found: Unfinished) -> Fate:
        made = self._openings.recorded(found.opened)
        session = made.session
        seconds = max(self._deadline - self._clock(), SHORTEST)
        again = await rebuilt(found, session, made.account, made.pipeline, most=self._most_answers, seconds=seconds)
        history = again.history
        if session.loss is None and not self._granting.has_begun(session, history):
            session.lose(Code.EPISODE_LOST, UNJUDGED)
        with suppress(NotDone):  # it has lost the episode then, and says so
            await self._state(session, None if session.loss is None else session.loss.message)
        await self._granted_again(session, history)
        self._adopt(session, Past(session, self._granting, again.answered, _last_id(found)))
        return Fate.GOES_ON if session.loss is None else Fate.LOST

    async def _state(self, session: Session, lost: str | None) -> None:
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

    async def _granted_again(self, session: Session, history: History) -> None:
        """Have grants, and the judge of a governed episode, brought to where they stood."""
        try:
            await self._granting.restore(session, history)
        except (ProctorError, NotDone) as problem:
            LOG.error("the judge of an episode could not be brought back", exc_info=problem)
            session.companion = None
            session.lose(Code.EPISODE_LOST, "its judge could not be brought back to where it stood")


def _last_id(found: Unfinished) -> int:
    """Return the last request that may have had an effect: what is on record outside an episode was refused."""
    if found.damage:
        return found.last_request_id
    return max((event.request_id or 0 for event in found.events), default=0)
