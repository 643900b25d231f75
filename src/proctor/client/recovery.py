"""Finding one's sessions again after the connection broke, or knowing that this cannot be.

Rule 1: a session is sought for as long as its server keeps it, no longer; then its episode is lost.
Rule 2: whether a server knows a session is said by its answer to `resume`, and by nothing else: another run of it (`boot`)
    may have taken the session up from its ledger.
Rule 3: a session goes on only where it can stand (`continuity`); then what was not answered is repeated, same id, same
    bytes, in order.
"""

import asyncio
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from proctor.client.continuity import Doubt
from proctor.client.pending import Pending
from proctor.client.problems import FORGOTTEN, problem_of, read_reply
from proctor.client.socket import is_final
from proctor.errors import ConnectionFailed, ProctorError
from proctor.models.control import Code, Kind, Resume, Resumed

if TYPE_CHECKING:
    from proctor.client.connection import Connection
    from proctor.client.session import AnySession

LOG: Final = logging.getLogger("proctor.client")


class Recovery:
    """The attempts of one connection to come back; at most one series of them runs."""

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._task: asyncio.Task[None] | None = None
        self._delays: Iterator[float] = iter(())
        self._back_since: float | None = None

    def start(self) -> None:
        """Begin to seek the sessions."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Give up at once."""
        if self._task is not None:
            self._task.cancel()

    async def over(self) -> None:
        """Return when no attempt is under way; whether one succeeded is for the connection to say."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        connection = self._connection
        broke = connection.clock()
        self._renew_delays(broke)
        for delay in self._delays:
            left = self._seconds_left(broke)
            if left is None:
                return
            await connection.sleep(min(delay, left))
            try:
                await self._return()
            except ProctorError as problem:
                LOG.info("no way back yet: %s", problem)
                if isinstance(problem, ConnectionFailed) and is_final(problem):
                    connection.lose_all(problem.message, Doubt.CONNECTION_LOST)
                continue
            if connection.restored():
                self._back_since = connection.clock()
                return

    def _renew_delays(self, now: float) -> None:
        """Begin with short delays again, unless the connection broke soon after the last return."""
        backoff = self._connection.settings.backoff
        if self._back_since is None or now - self._back_since > backoff.longest:
            self._delays = backoff.delays(self._connection.chance)

    def _seconds_left(self, broke: float) -> float | None:
        """Return for how long some server still keeps a session; sessions beyond that are lost. None: none is left."""
        connection = self._connection
        gone = connection.clock() - broke
        left = {session: session.grace_seconds - gone for session in connection.sessions.values()}
        for session, seconds in left.items():
            if seconds <= 0:
                session.lose("the connection could not be made again in time", Doubt.CONNECTION_LOST)
        return max((seconds for seconds in left.values() if seconds > 0), default=None)

    async def _return(self) -> None:
        """Connect and resume all sessions, or raise."""
        connection = self._connection
        await connection.greet(connection.home)
        if connection.welcome is None:
            connection.lose_all("the server was started anew and resumes nothing", Doubt.SERVER_RESTARTED)
            return
        asked = [(session, self._resume(session)) for session in list(connection.sessions.values())]
        for session, pending in asked:
            await self._resumed(session, pending)

    def _resume(self, session: "AnySession") -> Pending:
        token = "" if session.opened is None else session.opened.resume_token
        order = Resume(session=session.name or "", resume_token=token)
        return self._connection.ask(Kind.RESUME, msgspec.json.encode(order))

    async def _resumed(self, session: "AnySession", pending: Pending) -> None:
        connection = self._connection
        reply = await pending.answer(connection.settings.connect_timeout)
        if reply is None:
            connection.hang_up()
            raise ConnectionFailed("the server did not answer a resume")
        if reply.type == "error" and problem_of(reply.data).code in FORGOTTEN:
            same_run = connection.welcome is not None and connection.welcome.boot == session.boot
            session.lose(problem_of(reply.data).message, Code.EPISODE_LOST if same_run else Doubt.SERVER_RESTARTED)
            return
        waiting = connection.waiting_of(session)
        session.come_back(reply, read_reply(reply, "resumed", Resumed), waiting)
        for each in connection.waiting_of(session):
            connection.repeat(each)
