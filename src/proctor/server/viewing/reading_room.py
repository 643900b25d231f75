"""Where those sit who read for the pages: two processes beside the server, so that no reading takes time from a step.

Rule 1: one reads what is quick, the other what takes long: whoever scrubs never waits for somebody else's single file.
Rule 2: they are started when somebody comes to look, and end with the server, also if it is killed: they see their pipe close. They
    get nothing of the server but the ledger's path: no socket, no signal of the terminal, no variable that could hold a secret.
Rule 3: one that dies is replaced, and asked again once. Who dies of the same question twice has no answer to it.
"""

import fcntl
import logging
import os
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from proctor.models.control import Code
from proctor.server.answers import refused
from proctor.server.places import on_thread
from proctor.server.viewing.reader import LINES, NEWLY, NEWS, OPENED, WHOLE
from proctor.server.viewing.readings import Reading, Source
from proctor.server.viewing.slips import Asked, News, Opening, Told, put, taken
from proctor.server.viewing.turns import Turns

LOG: Final = logging.getLogger("proctor.viewer")
END_SECONDS: Final = 5.0
PIPE_BYTES: Final = 1 << 20
"""Of the pipe that answers come through: with more at a time the server is woken up less often."""
KEPT: Final = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "PYTHONPATH", "LD_LIBRARY_PATH")
BEGIN: Final = "import sys; sys.path += sys.argv[1:]; from proctor.server.viewing.reader import main; main()"
"""The server's own paths come last: a file of a user's that is called like a module of Python's is none of the reader's."""


class ReadingFailed(Exception):
    """There is no answer, for a reason that is for the log only."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The bytes that are sent, and whether they are packed."""

    body: bytes
    is_packed: bool = False


class ReaderProcess:
    """One of those who read; `ask` may be called by any thread, one at a time has its turn."""

    def __init__(self, opening: Opening) -> None:
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

    def ask(self, asked: Asked, query: bytes = b"") -> Answer:
        """Return the answer, or raise the error that it is."""
        with self._turn:
            told, body = self._told(asked, query)
        if told.problem is not None:
            raise told.problem.error()
        if told.failed:
            raise ReadingFailed(body.decode(errors="replace"))
        return Answer(body, told.is_packed)

    def close(self) -> None:
        """End it, in the middle of a reading too; calling it again does nothing."""
        with self._guard:
            self._closed = True
            process = self._process
        if process is not None:
            process.kill()
            # Whoever waits for an answer sees the pipe close, and gives up the turn.
            with self._turn:
                self._buried(process)

    def _told(self, asked: Asked, query: bytes) -> tuple[Told, bytes]:
        try:
            return self._exchanged(asked, query)
        except (OSError, EOFError, msgspec.DecodeError):
            LOG.warning("a process that reads for the pages has ended; another one is started")
        try:
            return self._exchanged(asked, query)
        except (OSError, EOFError, msgspec.DecodeError) as problem:
            raise ReadingFailed(f"the process that reads for the pages ended twice over {asked.name}") from problem

    def _exchanged(self, asked: Asked, query: bytes) -> tuple[Told, bytes]:
        process = self._running()
        try:
            if process.stdin is None or process.stdout is None:
                raise EOFError
            put(process.stdin, asked, query)
            return taken(process.stdout, Told)
        except BaseException:
            # Whatever came between question and answer, the next one must not be taken for this one's.
            process.kill()
            self._buried(process)
            if self._closed:
                raise refused(Code.SHUTTING_DOWN, "the server is stopping") from None
            raise

    def _running(self) -> "subprocess.Popen[bytes]":
        with self._guard:
            if self._closed:
                raise refused(Code.SHUTTING_DOWN, "the server is stopping")
            if self._process is None:
                self._process = _started(self._opening)
            return self._process

    def _buried(self, process: "subprocess.Popen[bytes]") -> None:
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


class ReadingRoom:
    """The two who read the ledger at a path, and the turns of those who ask them."""

    def __init__(self, path: Path, *, live: bool = False) -> None:
        opening = Opening(str(path), live)
        self.source: Final = Source(path, live=live)
        """For whoever reads in the server itself."""
        self.quick: Final = ReaderProcess(opening)
        self.long: Final = ReaderProcess(opening)
        self._quick_turns = Turns()
        self._long_turns = Turns()

    def open(self) -> None:
        """Return when the ledger was opened, or raise a ValidationError: there is none."""
        self.quick.ask(Asked(OPENED))

    def begin(self) -> None:
        """Have the ledger opened by the time that somebody asks; on the loop."""
        on_thread(self.open, "viewer-begin")

    async def read(self, row: Reading, query: Struct, *, packs: bool) -> Answer:
        """Return what is asked for, as bytes."""
        reader, turns = (self.long, self._long_turns) if row.is_long else (self.quick, self._quick_turns)
        asked, body = Asked(row.path, packs), msgspec.json.encode(query)
        return await turns.taken(lambda: reader.ask(asked, body))

    async def lines(self, *, packs: bool) -> Answer:
        """Return all lines."""
        return await self._quick_turns.taken(lambda: self.quick.ask(Asked(LINES, packs)))

    async def whole(self, newly: bool) -> bytes:
        """Return all lines as an event; `newly`: nobody has listened until now."""
        body = NEWLY if newly else b""
        return (await self._quick_turns.taken(lambda: self.quick.ask(Asked(WHOLE), body))).body

    async def news(self) -> News:
        """Return what has changed since the last news."""
        answer = await self._quick_turns.taken(lambda: self.quick.ask(Asked(NEWS)), must=True)
        return msgspec.msgpack.decode(answer.body, type=News)

    def close(self) -> None:
        """End both."""
        self.quick.close()
        self.long.close()
        self.source.close()


def _started(opening: Opening) -> "subprocess.Popen[bytes]":
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
        put(process.stdin, opening)
    return process
