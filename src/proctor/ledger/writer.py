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
Rule 5: rows are inserted on the caller's thread and committed on a thread of their own: the interpreter's lock is asked for once a
    commit and not once a row, and the event loop never waits for the disk. Between commits the transaction of the next one is open,
    so that nobody else can lock the file. Without a running event loop, a commit is done at once.
Rule 6: what is promised is kept after the commit, never before. A commit that fails takes with it what was gathered
    meanwhile, which stands on it. Whatever goes wrong in it, the thread lives on: those who wait are told, and the next one is tried.
"""

import asyncio
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final, TypeAlias

from proctor.errors import ComponentError, ValidationError
from proctor.ledger.chain import ChainState
from proctor.ledger.keys import Signer
from proctor.ledger.recovery import UnfinishedSession, read_unfinished_sessions, recover_state
from proctor.ledger.row_builder import CommitBatch, RowBuilder
from proctor.ledger.rows import ObservationStorage, RunBegan, parse_event_or_statement, read_body
from proctor.ledger.storage.ledger_file import LedgerFile
from proctor.ledger.storage.lock import WriterLock
from proctor.ledger.storage.sqlite import SUFFIX, VERSION, Durability, connect_for_writing, translate_errors
from proctor.ledger.storage_limits import LARGE_BYTES, DiskSpace, LargeEventThrottle, StorageBudget, StorageLimits
from proctor.models.events import Event, SessionClosed, SessionOpened

__all__ = ["LedgerWriter", "UnfinishedSession"]

Loop: TypeAlias = asyncio.AbstractEventLoop
OFF_SECONDS: Final = 0.05
MAX_PENDING_BYTES: Final = 64 * 2**20
"""So many bytes are gathered in memory while nobody waits for a commit; whoever brings more waits."""
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
        for value, allowed in ((durability, _DURABILITIES), (observations, ("all", "digest"))):
            if value not in allowed:
                raise ValidationError("not a setting of a ledger", found=value, expected=" or ".join(allowed))
        self.path: Final = Path(folder) / f"worker-{worker}{SUFFIX}"
        self._is_closed = False
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
        if self._is_closed:
            raise ComponentError("the recorder is closed", expected="no more events")
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
        if self._is_closed:
            return
        self._is_closed = True
        with self._resources:
            try:
                self._committer.commit_now()
            finally:
                self._row_builder.end_run()
                self._committer.commit_now()

    def _has_chain(self, name: str) -> bool:
        try:
            return self._file.chain(name) is not None
        except ValidationError as problem:
            raise ComponentError(f"the ledger {self.path} cannot be read: {problem}") from problem


async def _wait_until_safe(promise: "asyncio.Future[None] | None", seconds: float) -> None:
    if promise is not None:
        await promise
    await asyncio.sleep(seconds)


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


class GroupCommitter:
    """Commits what the row builder has written, which is told what became of it before those who wait are."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        row_builder: RowBuilder,
        *,
        delay: float | None,
        budget: StorageBudget,
    ) -> None:
        self.lost: dict[str, bool] = {}
        """Sessions whose last events nobody waited for, and were not kept; True: their opening is among them."""
        self._row_builder = row_builder
        self._connection = connection
        self._path = path
        self._budget = budget
        self._delay = delay
        """None: those who record wait for the commit, which begins at once; else it begins after so many seconds."""
        self._in_flight: CommitBatch | None = None
        self._is_scheduled = False
        self._orders: SimpleQueue[tuple[CommitBatch, bool, Loop | None] | None] = SimpleQueue()
        self._outcomes: SimpleQueue[Exception | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=f"commits to {path.name}", daemon=True)
        self._thread.start()

    def request_commit(self) -> "asyncio.Future[None] | None":
        """Return what ends when all that was gathered is safe; None: it is, or nobody waits for it."""
        loop = asyncio._get_running_loop()
        if loop is None:
            self.commit_now()
            return None
        if self._delay is not None and self._row_builder.batch.gathered < MAX_PENDING_BYTES:
            self._schedule(loop)
            return None
        future = loop.create_future()
        self._row_builder.batch.waiting.append(future)
        if not self._is_scheduled and self._in_flight is None:
            self._schedule(loop)
        return future

    def check(self, event: Event) -> None:
        """Raise a ComponentError if what the session said before was lost: once, or always if its opening was."""
        if event.session not in self.lost:
            return
        unopened = self.lost[event.session]
        if not unopened or isinstance(event, SessionOpened | SessionClosed):
            del self.lost[event.session]
        if unopened and not isinstance(event, SessionOpened):
            raise ComponentError("this session is not on record: its opening could not be kept")
        if not unopened:
            raise ComponentError("what was recorded of this session before could not be kept")

    def commit_now(self) -> None:
        """Return when everything is committed, or raise a ComponentError: what was gathered last is not."""
        if self._in_flight is not None:
            self._resolve_batch(self._outcomes.get())
        if self._start_commit(None):
            problem = self._outcomes.get()
            self._resolve_batch(problem)
            if problem is not None:
                raise self._error(problem)

    def close(self) -> None:
        """End the thread; what is still gathered is dropped."""
        self._orders.put(None)
        self._thread.join()

    def _schedule(self, loop: Loop) -> None:
        if self._is_scheduled:
            return
        self._is_scheduled = True
        if self._delay is None:
            loop.call_soon(self._start_commit, loop)
        else:
            loop.call_later(self._delay, self._start_commit, loop)

    def _start_commit(self, loop: Loop | None) -> bool:
        """Send the gathered batch off, if there is one and none is on its way; return whether it did."""
        self._is_scheduled = False
        if self._in_flight is not None or not self._row_builder.batch.rows:
            return False
        batch, self._row_builder.batch = self._row_builder.batch, CommitBatch()
        self._in_flight = batch
        self._orders.put((batch, self._try_insert(batch), loop))
        return True

    def _try_insert(self, batch: CommitBatch) -> bool:
        """Return whether the rows are in the transaction; if not, the thread does it, where it can wait for a lock."""
        if not self._connection.in_transaction:
            return False
        try:
            batch.insert(self._connection)
        except Exception:  # noqa: BLE001  # the thread meets it again, and says so
            self._roll_back()
            return False
        return True

    def _run(self) -> None:
        while (order := self._orders.get()) is not None:
            batch, inserted, loop = order
            self._outcomes.put(self._commit(batch, inserted=inserted))
            if loop is not None:
                with suppress(RuntimeError):  # the loop is closed: `settle` will look
                    loop.call_soon_threadsafe(self._finish_commit, loop)

    def _commit(self, batch: CommitBatch, *, inserted: bool) -> Exception | None:
        connection = self._connection
        try:
            if not inserted:
                connection.execute("BEGIN IMMEDIATE")
                batch.insert(connection)
            batch.insert_blobs(connection)
            connection.execute("COMMIT")
        except Exception as problem:  # noqa: BLE001  # a thread that ended would stop every session for good
            self._roll_back()
            return problem
        with suppress(sqlite3.Error, OSError):  # the batch is safe; the next one says what is wrong
            self._budget.count_written_bytes(sum(batch.stored.values()), self._growth)
        with suppress(Exception):  # the next batch tries again, and says what is wrong
            connection.execute("BEGIN IMMEDIATE")
        return None

    def _growth(self) -> int:
        (pages,) = self._connection.execute("PRAGMA page_count").fetchone()
        (size,) = self._connection.execute("PRAGMA page_size").fetchone()
        return int(max(0, pages * size - self._path.stat().st_size))

    def _roll_back(self) -> None:
        with suppress(Exception):
            self._connection.execute("ROLLBACK")

    def _finish_commit(self, loop: Loop) -> None:
        with suppress(Empty):  # somebody settled meanwhile
            self._resolve_batch(self._outcomes.get_nowait())
            if self._delay is None:
                self._start_commit(loop)
            elif self._row_builder.batch.rows:
                self._schedule(loop)

    def _resolve_batch(self, problem: Exception | None) -> None:
        batch, self._in_flight = self._in_flight, None
        if batch is None:
            return
        if problem is None:
            self._row_builder.mark_safe(batch)
            _resolve_waiting(batch.waiting, None)
            return
        after = self._row_builder.batch
        self._row_builder.roll_back()
        if self._delay is not None:
            self._remember_loss(batch)
            self._remember_loss(after)
        _resolve_waiting([*batch.waiting, *after.waiting], lambda: self._error(problem))

    def _remember_loss(self, batch: CommitBatch) -> None:
        """Remember whose events were in the batch, but for sessions that are over: nothing more comes of them."""
        for session, chain_state in batch.after.items():
            if session is not None and chain_state.is_closed:
                self.lost.pop(session, None)
            elif session is not None:
                self.lost[session] = bool(chain_state.opened) and not self._row_builder.is_safely_open(session)

    def _error(self, problem: Exception) -> ComponentError:
        said = str(problem) or type(problem).__name__
        return ComponentError(f"the ledger {self._path} did not take the record: {said}")


def _resolve_waiting(waiting: "list[asyncio.Future[None]]", error: Callable[[], ComponentError] | None) -> None:
    """End what was promised; one who gave up is not told, nor one whose loop is closed."""
    for future in waiting:
        if not future.done():
            with suppress(RuntimeError):
                if error is None:
                    future.set_result(None)
                else:
                    future.set_exception(error())
