"""The recorder that keeps events in a ledger: one file a worker, one chain an episode, and one for the run of the server.

Rule 1: `record` encodes, numbers and hashes on the caller's thread; the commit is shared with all that came meanwhile. What "safe" means
    is said by `durability`:
        full     on the disk: a power cut loses nothing that was acknowledged
        normal   given to the operating system: a killed server loses nothing; a power cut may lose the last commits
        off      in memory for about 50 ms: a killed server loses that much; what a commit lost is said at the next event,
                 and a session whose opening was lost is refused from then on
Rule 2: a commit that fails leaves no trace: every chain goes on from its last row that is safe.
Rule 3: a reset begins a chain, which opens with the session's SessionOpened again, so that it stands alone. EpisodeClosed ends it.
    What a session says without one goes to the server's chain.
Rule 4: a session that an earlier run left open goes on where it stood.
"""

import asyncio
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from proctor.errors import ComponentError, ValidationError
from proctor.ledger.chain_state import ChainState
from proctor.ledger.keys import Signer
from proctor.ledger.recovery import UnfinishedSession, read_unfinished_sessions, recover_state
from proctor.ledger.rows import ObservationStorage, RunBegan, parse_event_or_statement, read_body
from proctor.ledger.storage.ledger_file import LedgerFile
from proctor.ledger.storage.lock import WriterLock
from proctor.ledger.storage.sqlite import SUFFIX, VERSION, Durability, connect_for_writing, translate_errors
from proctor.ledger.writing.group_commit import GroupCommitter
from proctor.ledger.writing.row_builder import RowBuilder
from proctor.ledger.writing.storage_limits import (
    LARGE_BYTES,
    DiskSpace,
    LargeEventThrottle,
    StorageBudget,
    StorageLimits,
)
from proctor.models.events import Event, SessionOpened

__all__ = ["LedgerWriter", "UnfinishedSession"]

OFF_SECONDS: Final = 0.05
_CLOSED: Final = "the recorder is closed"
_SUM_OF_BODIES: Final = "SELECT coalesce(sum(length(body)), 0) FROM rows WHERE number BETWEEN ? AND ? AND chain = ?"
_DURABILITIES: Final = ("full", "normal", "off")


class LedgerWriter:
    """A Recorder that appends to `worker-<n>.ledger` in a folder; see the rules at the head.

    `boot` names the run of the server, `server` is the version of Proctor, `wall` the time in seconds since 1970. With
    a `signer`, what ends is sealed. `limits` and `space` say how much is stored: a RecordLimitError from `record` says that
    an event is too much. A ComponentError says that the file cannot be written, a ValidationError that it is
    no ledger or of a newer version.
    """

    def __init__(
        self,
        folder: Path,
        *,
        worker: int = 0,
        boot: str,
        server: str,
        signer: Signer | None,
        durability: Durability = "full",
        observations: ObservationStorage = "all",
        wall: Callable[[], float] = time.time,
        limits: StorageLimits | None = None,
        space: DiskSpace | None = None,
    ) -> None:
        _check_settings(durability, observations)
        self.path: Final = Path(folder) / f"worker-{worker}{SUFFIX}"
        self._closed_reason = ""
        """Why nothing more is taken; empty while events are."""
        with ExitStack() as held:
            _make_file(self.path)
            held.callback(WriterLock(self.path).release)
            connection = connect_for_writing(self.path, durability)
            held.callback(_close_connection, connection)
            self._file = LedgerFile(self.path, live=True)
            held.callback(self._file.close)
            self._recovered = found = recover_state(self._file, observations)
            budget = StorageBudget(limits, space)
            _recount_stored_bytes(budget, self._file, found.states)
            self._row_builder = RowBuilder(
                found.states,
                found.next,
                keeps=observations,
                signer=signer,
                has=self._has_chain,
                wall=wall,
                budget=budget,
            )
            self._throttle = LargeEventThrottle()
            delay = OFF_SECONDS if durability == "off" else None
            self._committer = GroupCommitter(connection, self.path, self._row_builder, delay=delay, budget=budget)
            held.callback(self._committer.close)
            began = RunBegan(
                at=wall(),
                boot=boot,
                server=server,
                schema=VERSION,
                worker=worker,
                durability=durability,
                public=None if signer is None else signer.public.hex(),
                previous=found.previous,
                unfinished=list(found.opened.values()),
            )
            self._row_builder.begin_run(began)
            self._committer.commit_now()
            self._resources = held.pop_all()

    def record(self, event: Event) -> Awaitable[None] | None:
        """Take the event; what is returned ends when it is safe, and raises a ComponentError if it is not on record."""
        if self._closed_reason:
            raise ComponentError(self._closed_reason, expected="no more events")
        if self._committer.lost:
            self._committer.check(event)
        pace, gathered = self._throttle, self._row_builder.batch.gathered
        pace.note(event.session)
        self._row_builder.write(event)
        size = self._row_builder.batch.gathered - gathered
        promise = self._committer.request_commit()
        if size > LARGE_BYTES and asyncio._get_running_loop() is not None:
            return _wait_until_safe(promise, pace.wait_after(event.session, size))
        return promise

    def head(self, session: str) -> str | None:
        """Return the head of the session's latest chain, of what is safe; None if there is none, or nothing of it is."""
        return self._row_builder.head(session)

    def unfinished(self) -> list[UnfinishedSession]:
        """Return the sessions that earlier runs left open, in order of opening; ask before the first event of one."""
        return read_unfinished_sessions(self.path, self._recovered)

    def close(self) -> None:
        """Commit what is left, state and seal the end, and let go of the file; calling it again does nothing.

        A ComponentError says that the end could not be stated: what was acknowledged is there all the same, but for
        the last events of durability "off".
        """
        if self._closed_reason:
            return
        self._closed_reason = _CLOSED
        with self._resources:
            failure: ComponentError | None = None
            try:
                self._committer.commit_now()
            except ComponentError as problem:
                failure = problem
            self._row_builder.end_run()
            self._committer.commit_now()
            if failure is not None:
                raise failure

    def _has_chain(self, name: str) -> bool:
        try:
            return self._file.chain(name) is not None
        except ValidationError as problem:
            raise ComponentError(f"the ledger {self.path} cannot be read: {problem}") from problem


async def _wait_until_safe(promise: "asyncio.Future[None] | None", seconds: float) -> None:
    """Return when the promise has ended, and some time after."""
    if promise is not None:
        await promise
    await asyncio.sleep(seconds)


def _check_settings(durability: str, observations: str) -> None:
    for value, allowed in ((durability, _DURABILITIES), (observations, ("all", "digest"))):
        if value not in allowed:
            raise ValidationError("not a setting of a ledger", found=value, expected=" or ".join(allowed))


def _recount_stored_bytes(budget: StorageBudget, file: LedgerFile, chain_states: dict[str, ChainState]) -> None:
    """Count the rows that sessions of an earlier run stored in their latest episodes; their values count no more."""
    for track in chain_states.values():
        opened = parse_event_or_statement(read_body(track.opened), trusted=True)
        with translate_errors(file.path, ComponentError):
            (stored,) = file.connection.execute(_SUM_OF_BODIES, (track.first, track.number, track.first)).fetchone()
        if isinstance(opened, SessionOpened):
            budget.open(opened, stored)


def _close_connection(connection: sqlite3.Connection) -> None:
    with suppress(sqlite3.Error):
        connection.rollback()  # the transaction that waits for the next commit
        # SQLite does this by itself for the last one who closes the file. If somebody still reads it, that is not us, and
        # what came last would stay in the log beside it: who took the file away alone would lose that.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    with suppress(sqlite3.Error):
        connection.close()


def _make_file(path: Path) -> None:
    """Make the file if it is not there, for its owner only, and have the disk keep its name."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY, 0o600))
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as problem:
        raise ComponentError(f"the ledger {path} cannot be written: {problem.strerror}") from problem
