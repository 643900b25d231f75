"""A session's way to its recorder.

Rule 1: what is stated waits until it is safe. A record that fails is a failure in words for a peer; the reason is in the log.
    A limit that is reached has a code of its own, and nothing inside failed: it has no incident.
Rule 2: after the end, nothing is stated any more.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from proctor.contracts.recorder import Recorder
from proctor.errors import ComponentError, RecordLimitError
from proctor.models.control import Code
from proctor.models.events import Event
from proctor.server.answers import Failed, NotDone, failed

LOG: Final = logging.getLogger("proctor.session")
CODES: Final = {"step": Code.RECORD_TOO_LARGE, "episode": Code.EPISODE_FULL, "disk": Code.DISK_LOW}
"""What a session answers when a limit of its recorder is reached."""
LATER: Final = "a reset, once there is space on the server's disk again"


class Minutes:
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
            raise failed(Code.SESSION_ERROR, "this session is closed")
        try:
            waiting = self._recorder.record(event)
            self.waits = waiting is not None
            if waiting is not None:
                await waiting
        except RecordLimitError as problem:
            raise self._limit_failure(problem) from None
        except ComponentError as problem:
            message = "what happened could not be put on record"
            raise self.broken(problem, Code.RECORDING_FAILED, message) from None

    async def note(self, event: Event) -> None:
        """Put on record what happened anyway; a record that fails here is logged, and changes nothing."""
        with suppress(NotDone):
            await self.record(event)

    def _limit_failure(self, problem: RecordLimitError) -> Failed:
        """Return the failure for what is too much for the record; the log has each limit once a session."""
        if problem.limit not in self._reached:
            self._reached.add(problem.limit)
            LOG.warning("an event is not put on record: %s", problem, extra={"session": self._session})
        return failed(CODES[problem.limit], problem.message, expected=problem.expected or LATER)

    def broken(self, problem: BaseException, code: Code, message: str) -> Failed:
        """Return the failure that a peer is told of; the problem itself goes to the log."""
        incident = self._incident()
        LOG.error("%s, incident %s", message, incident, extra={"session": self._session}, exc_info=problem)
        return failed(code, message, incident=incident)
