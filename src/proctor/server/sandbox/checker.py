"""Large answers of workers are checked by processes beside the server, so that nobody's steps wait for them.

Rule 1: what is checked here never holds up the event loop: the bytes go out, a verdict comes back.
Rule 2: there are two processes, one for answers of more than `LARGE` bytes and one for all others: each checks one answer after the
    other, and what takes half a second does not hold up what takes milliseconds.
Rule 3: a process is started for the first answer that needs it, and ends with the server, also if that is killed: it sees
    its socket close. One that ends is replaced, and asked once more.
"""

import asyncio
import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from proctor.server.sandbox.line import Break, Broken, Line
from proctor.server.sandbox.pipe import (
    MOST_BYTES,
    answer_in,
    framed,
    has_few_values,
    has_large_marks,
    read,
    sound,
    spoken,
)

SMALL: Final = 4 * 2**10
"""Bytes of an answer that is checked at once, whatever it is made of."""
MEDIUM: Final = 64 * 2**10
"""Bytes of an answer that is checked at once if its numbers are quickly checked."""
LARGE: Final = 256 * 2**10
"""Bytes of an answer that is checked at once if it has few values."""
CHECK_SECONDS: Final = 60.0
END_SECONDS: Final = 5.0
NICENESS: Final = 5
"""Steps come first."""
ENTRY: Final = (
    "import sys; sys.path[:] = sys.argv[2:]; from proctor.server.sandbox.checker import main; main(int(sys.argv[1]))"
)


class CheckFailed(Exception):
    """Nobody could say whether an answer is sound."""


def is_costly(body: memoryview) -> bool:
    """Return whether an answer is not to be checked on the event loop."""
    size = body.nbytes
    if size <= SMALL:
        return False
    whole: Any = body.obj
    if size > LARGE:
        return True
    return not has_few_values(whole) and (size > MEDIUM or has_large_marks(whole))


class AnswerChecker:
    """Checks the large answers of one server; made anywhere, used on one event loop after the other."""

    def __init__(self) -> None:
        self._for_large = CheckerProcess()
        self._for_others = CheckerProcess()

    async def check(self, body: memoryview) -> None:
        """Return if an answer is sound, or raise a DecodeError; a CheckFailed if nobody can say."""
        process = self._for_large if body.nbytes > LARGE else self._for_others
        if not await process.check(body):
            raise msgspec.DecodeError("an answer that is not sound")

    def close(self) -> None:
        """End the processes; calling it again does nothing."""
        self._for_large.close()
        self._for_others.close()


class CheckerProcess:
    """One process that checks, and the next one if it ends."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._guard = threading.Lock()
        self._closed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._line: Line | None = None
        self._channel: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def check(self, body: memoryview) -> bool:
        """Return whether an answer is sound, or raise a CheckFailed."""
        # Whoever gives up before its turn leaves nothing behind; after that, it does not break the conversation for the others.
        await self._turn.acquire()
        work = asyncio.ensure_future(self._check(body))
        work.add_done_callback(self._end_turn)
        return await asyncio.shield(work)

    def close(self) -> None:
        """End the process; from any thread, and calling it again does nothing."""
        with self._guard:
            self._closed = True
            process, line, channel, loop = self._process, self._line, self._channel, self._loop
            self._process = self._line = self._channel = self._loop = None
        if line is not None and channel is not None and loop is not None:
            try:
                loop.call_soon_threadsafe(line.cut, Break.LEFT)
            except RuntimeError:  # the loop is closed
                channel.close()
        if process is not None:
            _end(process)

    def _end_turn(self, work: "asyncio.Future[bool]") -> None:
        self._turn.release()
        if not work.cancelled():
            work.exception()  # if nobody waits for it any more, it is reported as forgotten otherwise

    async def _check(self, body: memoryview) -> bool:
        with suppress(Broken):
            return await self._ask(body)
        try:
            return await self._ask(body)
        except Broken as problem:
            raise CheckFailed from problem

    async def _ask(self, body: memoryview) -> bool:
        line = self._line
        # What an environment says of itself was checked on a loop that is no more.
        if line is None or line.how is not None or self._loop is not asyncio.get_running_loop():
            line = await self._start()
        # The whole frame, with its length in front: nothing is copied.
        whole: Any = body.obj
        return spoken(await line.asked(whole), bool)

    async def _start(self) -> Line:
        """Start the process in place of the one before, and return its line."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = await asyncio.to_thread(_start_process, theirs.fileno())
        except OSError:
            ours.close()
            raise CheckFailed from None
        line = Line(ours, lambda how: None)
        line.patience = CHECK_SECONDS
        with self._guard:
            before, self._process = self._process, process
            if self._channel is not None:
                self._channel.close()
            self._line, self._channel, self._loop = line, ours, asyncio.get_running_loop()
            closed = self._closed
        if before is not None:
            await asyncio.to_thread(_end, before)
        if closed:
            self.close()
        return line


def _start_process(descriptor: int) -> "subprocess.Popen[bytes]":
    # Isolated: no variable and no file of the working directory has a say in what is imported.
    paths = [str(Path(each).absolute()) for each in sys.path]
    return subprocess.Popen(  # noqa: S603  # this Python, and its own paths
        [sys.executable, "-I", "-B", "-c", ENTRY, str(descriptor), *paths],
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={},
        # A signal that a terminal sends to the server is not for this process.
        start_new_session=True,
    )


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_SECONDS)


# ------------------------------------------------------------------------------------------------------ in the process
def main(descriptor: int) -> None:
    """Say of each answer that comes over this descriptor whether it is sound, until the other side closes it."""
    os.nice(NICENESS)
    with socket.socket(fileno=descriptor) as channel, suppress(ConnectionError):
        while (body := read(channel, 2 * MOST_BYTES)) is not None:
            channel.sendall(framed(is_sound(body)))


def is_sound(body: memoryview) -> bool:
    """Return whether an answer is one, and its texts can be believed in their form."""
    try:
        sound(answer_in(body))
    except msgspec.DecodeError:
        return False
    return True
