"""Group commit: what many sessions record while one commit is on its way goes into the next.

Rule 1: rows are inserted on the caller's thread and committed on a thread of their own: the interpreter's lock is asked for once a
    commit and not once a row, and the event loop never waits for the disk.
Rule 2: what is promised is kept after the commit, never before. A commit that fails takes with it what was gathered
    meanwhile, which stands on it.
Rule 3: between commits the transaction of the next one is open, so that nobody else can lock the file.
Rule 4: without a running event loop, a commit is done at once.
Rule 5: whatever goes wrong in a commit, the thread lives on: those who wait are told, and the next commit is tried.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final, TypeAlias

from proctor.errors import ComponentError
from proctor.ledger.writing.row_builder import CommitBatch, RowBuilder
from proctor.ledger.writing.storage_limits import StorageBudget
from proctor.models.events import Event, SessionClosed, SessionOpened

Loop: TypeAlias = asyncio.AbstractEventLoop
MAX_PENDING_BYTES: Final = 64 * 2**20
"""So many bytes are gathered in memory while nobody waits for a commit; whoever brings more waits."""


class GroupCommitter:
    """Commits what the row builder has written, which is told what became of it before those who wait are."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        row_builder: RowBuilder,
        *,
        delay: float | None,
        budget: StorageBudget | None = None,
    ) -> None:
        self.lost: dict[str, bool] = {}
        """Sessions whose last events nobody waited for, and were not kept; True: their opening is among them."""
        self._row_builder = row_builder
        self._connection = connection
        self._path = path
        self._budget = StorageBudget() if budget is None else budget
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
        """Return by how many bytes the file grows when the log beside it is copied into it."""
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
