"""The two processes that read the ledger for the pages, started and asked from here: no reading takes time from a step.

Rule 1: one reads what is quick, the other what takes long: whoever scrubs never waits for somebody else's single file.
Rule 2: they are started when somebody comes to look, and end with the server, also if it is killed: they see their pipe close. They
    get nothing of the server but the ledger's path: no socket, no signal of the terminal, no variable that could hold a secret.
Rule 3: one that dies is replaced, and asked again once. A question that ends it twice has no answer.
Rule 4: requests wait in a `ThreadQueue`: so much runs at a time, so much waits, and no more. A peer that leaves frees no thread: what
    runs counts until it has ended.
"""

import asyncio
import fcntl
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from proctor.models.control import Code
from proctor.server.runtime.executors import run_on_thread
from proctor.server.runtime.results import make_refusal
from proctor.server.viewer_http.endpoints import LedgerSource, ReadEndpoint
from proctor.server.viewer_http.reader_process import (
    LINES,
    NEWLY,
    NEWS,
    OPENED,
    WHOLE,
    News,
    OpenLedger,
    ReadOutcome,
    ReadRequest,
    read_message,
    write_message,
)

AT_ONCE: Final = 1
"""Who reads does one thing after the other."""
MOST_WAITING: Final = 32
T = TypeVar("T")


class ThreadQueue:
    """Who works and who waits."""

    def __init__(self, at_once: int = AT_ONCE, most_waiting: int = MOST_WAITING) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._most_waiting = most_waiting
        self.waiting = 0

    async def run(self, work: Callable[[], T], *, must: bool = False) -> T:
        """Return what `work` returns, when it is its turn; refuses if too many wait before it, unless it `must` be done."""
        if self.waiting >= self._most_waiting and not must:
            raise make_refusal(Code.BUSY, f"no more than {self._most_waiting} can wait at once")
        self.waiting += 1
        try:
            await self._free.acquire()
        finally:
            self.waiting -= 1
        try:
            done = run_on_thread(work, "viewer")
        except BaseException:  # there may be no thread left to have
            self._free.release()
            raise
        done.add_done_callback(lambda _: self._free.release())
        # Shielded: otherwise whoever is cancelled would end the future, and not the thread.
        return await asyncio.shield(done)


LOG: Final = logging.getLogger("proctor.viewer")
END_SECONDS: Final = 5.0
PIPE_BYTES: Final = 1 << 20
"""Of the pipe that answers come through: with more at a time the server is woken up less often."""
KEPT: Final = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "PYTHONPATH", "LD_LIBRARY_PATH")
BEGIN: Final = (
    "import sys; sys.path += sys.argv[1:]; from proctor.server.viewer_http.reader_process import main; main()"
)
"""The server's own paths come last: a file of a user's that is called like a module of Python's is none of the reader's."""


class ReadingFailed(Exception):
    """There is no answer, for a reason that is for the log only."""


@dataclass(frozen=True, slots=True)
class ReaderAnswer:
    """The bytes that are sent, and whether they are packed."""

    body: bytes
    is_packed: bool = False


class ReaderProcess:
    """One of those who read; `ask` may be called by any thread, one at a time has its turn."""

    def __init__(self, opening: OpenLedger) -> None:
        self._opening = opening
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._guard = threading.Lock()
        self._turn = threading.Lock()

    @property
    def pid(self) -> int | None:
        """Its number, while there is one."""
        process = self._process
        return None if process is None else process.pid

    def ask(self, asked: ReadRequest, query: bytes = b"") -> ReaderAnswer:
        """Return the answer, or raise the error that it is."""
        with self._turn:
            told, body = self._exchange_twice(asked, query)
        if told.problem is not None:
            raise told.problem.error()
        if told.failed:
            raise ReadingFailed(body.decode(errors="replace"))
        return ReaderAnswer(body, told.is_packed)

    def close(self) -> None:
        """End it, in the middle of a reading too; calling it again does nothing."""
        with self._guard:
            self._closed = True
            process = self._process
        if process is not None:
            process.kill()
            # Whoever waits for an answer sees the pipe close, and gives up the turn.
            with self._turn:
                self._reap(process)

    def _exchange_twice(self, asked: ReadRequest, query: bytes) -> tuple[ReadOutcome, bytes]:
        try:
            return self._exchange(asked, query)
        except (OSError, EOFError, msgspec.DecodeError):
            LOG.warning("a process that reads for the pages has ended; another one is started")
        try:
            return self._exchange(asked, query)
        except (OSError, EOFError, msgspec.DecodeError) as problem:
            raise ReadingFailed(f"the process that reads for the pages ended twice over {asked.name}") from problem

    def _exchange(self, asked: ReadRequest, query: bytes) -> tuple[ReadOutcome, bytes]:
        process = self._ensure_running()
        try:
            if process.stdin is None or process.stdout is None:
                raise EOFError
            write_message(process.stdin, asked, query)
            return read_message(process.stdout, ReadOutcome)
        except BaseException:
            # Whatever came between question and answer, the next one must not be taken for this one's.
            process.kill()
            self._reap(process)
            if self._closed:
                raise make_refusal(Code.SHUTTING_DOWN, "the server is stopping") from None
            raise

    def _ensure_running(self) -> "subprocess.Popen[bytes]":
        with self._guard:
            if self._closed:
                raise make_refusal(Code.SHUTTING_DOWN, "the server is stopping")
            if self._process is None:
                self._process = _start_process(self._opening)
            return self._process

    def _reap(self, process: "subprocess.Popen[bytes]") -> None:
        """Let go of what is left of one that was killed."""
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):  # what it did not read any more
                    pipe.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
        with self._guard:
            if self._process is process:
                self._process = None


class ReaderPool:
    """The two who read the ledger at a path, and the turns of those who ask them."""

    def __init__(self, path: Path, *, live: bool = False) -> None:
        opening = OpenLedger(str(path), live)
        self.source: Final = LedgerSource(path, live=live)
        """For whoever reads in the server itself."""
        self.quick: Final = ReaderProcess(opening)
        self.long: Final = ReaderProcess(opening)
        self._quick_turns = ThreadQueue()
        self._long_turns = ThreadQueue()

    def open(self) -> None:
        """Return when the ledger was opened, or raise a ValidationError: there is none."""
        self.quick.ask(ReadRequest(OPENED))

    def begin(self) -> None:
        """Have the ledger opened by the time that somebody asks; on the loop."""
        run_on_thread(self.open, "viewer-begin")

    async def read(self, row: ReadEndpoint, query: Struct, *, packs: bool) -> ReaderAnswer:
        """Return what is asked for, as bytes."""
        reader, turns = (self.long, self._long_turns) if row.is_long else (self.quick, self._quick_turns)
        asked, body = ReadRequest(row.path, packs), msgspec.json.encode(query)
        return await turns.run(lambda: reader.ask(asked, body))

    async def lines(self, *, packs: bool) -> ReaderAnswer:
        """Return all lines."""
        return await self._quick_turns.run(lambda: self.quick.ask(ReadRequest(LINES, packs)))

    async def whole(self, newly: bool) -> bytes:
        """Return all lines as an event; `newly`: nobody has listened until now."""
        body = NEWLY if newly else b""
        return (await self._quick_turns.run(lambda: self.quick.ask(ReadRequest(WHOLE), body))).body

    async def news(self) -> News:
        """Return what has changed since the last news."""
        answer = await self._quick_turns.run(lambda: self.quick.ask(ReadRequest(NEWS)), must=True)
        return msgspec.msgpack.decode(answer.body, type=News)

    def close(self) -> None:
        """End both."""
        self.quick.close()
        self.long.close()
        self.source.close()


def _start_process(opening: OpenLedger) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(  # noqa: S603  # this Python, and its own paths
        # Without the folder that it happens to be in.
        [sys.executable, "-P", "-c", BEGIN, *(str(Path(each).absolute()) for each in sys.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={name: os.environ[name] for name in KEPT if name in os.environ},
        # A signal that a terminal sends to the server is not for those who read.
        start_new_session=True,
    )
    if process.stdin is None or process.stdout is None:  # for the types: both were asked for
        raise EOFError
    with suppress(OSError):  # the machine may have a lower limit
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    with suppress(BrokenPipeError):  # it is found out by whoever asks
        write_message(process.stdin, opening)
    return process
