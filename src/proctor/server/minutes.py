"""A session's way to its recorder.

Rule 1: what is stated waits until it is safe. A record that fails is a failure in words for a peer; the reason is in the log.
Rule 2: after the end, nothing is stated any more.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from proctor.contracts.recorder import Recorder
from proctor.errors import ComponentError
from proctor.models.control import Code
from proctor.models.events import Event
from proctor.server.answers import Failed, NotDone, failed

LOG: Final = logging.getLogger("proctor.session")


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
        except ComponentError as problem:
            message = "what happened could not be put on record"
            raise self.broken(problem, Code.RECORDING_FAILED, message) from None

    async def note(self, event: Event) -> None:
        """Put on record what happened anyway; a record that fails here is logged, and changes nothing."""
        with suppress(NotDone):
            await self.record(event)

    def broken(self, problem: BaseException, code: Code, message: str) -> Failed:
        """Return the failure that a peer is told of; the problem itself goes to the log."""
        incident = self._incident()
        LOG.error("%s, incident %s", message, incident, extra={"session": self._session}, exc_info=problem)
        return failed(code, message, incident=incident)
