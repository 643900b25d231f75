"""Large answers of workers are checked by processes beside the server, so that nobody's steps wait for them.

Rule 1: what is checked here never holds up the event loop: the bytes go out, a verdict comes back.
Rule 2: there are three processes, each of which checks one answer after the other: one for answers of more than `LARGE` bytes, one
    for all others, and one for the sessions whose answers took long for their size. Those wait for each other, and nobody else
    waits for them.
Rule 3: a process is started for the first answer that needs it, and ends with the server, also if that is killed: it sees
    its socket close. One that ends is replaced, and asked once more.
"""

import asyncio
import os
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

import msgspec

from proctor.server.sandbox import messages
from proctor.server.sandbox.pool.worker_socket import AnswerBudget

SMALL: Final = 4 * 2**10
"""Bytes of an answer that is checked at once, whatever it is made of."""
MEDIUM: Final = 64 * 2**10
"""Bytes of an answer that is checked at once if its numbers are quickly checked."""
LARGE: Final = 256 * 2**10
"""Bytes of an answer that is checked at once if it has few values."""
QUICK_SECONDS: Final = 0.005
SECONDS_A_BYTE: Final = 40e-9
"""Of a processor, for an answer that is checked quickly: lists take a quarter of this, numbers near the largest one four times as much."""
CHECK_SECONDS: Final = 60.0
END_SECONDS: Final = 5.0
ENTRY: Final = "import sys; sys.path[:] = sys.argv[2:]; from proctor.server.sandbox.pool.answer_checker import main; main(int(sys.argv[1]))"


class CheckVerdict(msgspec.Struct, frozen=True, array_like=True):
    """What a process says of an answer, and how many seconds of a processor it took."""

    sound: bool
    seconds: float


class CheckFailed(Exception):
    """Nobody could say whether an answer is sound."""


def is_costly(body: memoryview) -> bool:
    """Return whether an answer is not to be checked on the event loop."""
    size = body.nbytes
    if not SMALL < size <= LARGE:
        return size > LARGE
    whole: Any = body.obj
    if size > MEDIUM:
        return not (messages.has_few_values(whole) and messages.has_few_headers(whole))
    return not messages.has_few_values(whole) and messages.has_large_marks(whole)


class AnswerChecker:
    """Checks the large answers of one server."""

    def __init__(self) -> None:
        self._for_large = CheckerProcess()
        self._for_slow = CheckerProcess()
        self._for_others = CheckerProcess()
        self.room: Final = AnswerBudget()
        """For answers that come and wait to be checked."""

    async def check(self, body: memoryview, *, slow: bool = False) -> bool:
        """Return whether this took long, or raise a DecodeError if the answer is not sound; a CheckFailed if nobody can say.

        `slow` is for a session of which an answer took long before.
        """
        process = self._for_slow if slow else self._for_large if body.nbytes > LARGE else self._for_others
        verdict = await process.check(body)
        if not verdict.sound:
            raise msgspec.DecodeError("an answer that is not sound")
        return verdict.seconds > QUICK_SECONDS + SECONDS_A_BYTE * body.nbytes

    def close(self) -> None:
        """End the processes; calling it again does nothing."""
        for process in (self._for_large, self._for_slow, self._for_others):
            process.close()


class CheckerProcess:
    """One process that checks, and the next one if it ends; a thread talks to it, for one answer after the other."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="proctor-checker")
        self._guard = threading.Lock()
        self._closed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None

    async def check(self, body: memoryview) -> CheckVerdict:
        """Return the verdict on an answer, or raise a CheckFailed. Whoever gives up before its turn leaves nothing behind."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._check, body)
        except RuntimeError:  # it is closed
            raise CheckFailed from None

    def close(self) -> None:
        """End the process; from any thread, and calling it again does nothing."""
        with self._guard:
            self._closed = True
            if self._process is not None:
                self._process.kill()
        self._thread.shutdown()
        self._stop()

    def _check(self, body: memoryview) -> CheckVerdict:
        for _ in range(2):
            with suppress(OSError, msgspec.DecodeError):
                return self._ask(body)
            self._stop()
        raise CheckFailed

    def _ask(self, body: memoryview) -> CheckVerdict:
        channel = self._start() if self._channel is None else self._channel
        until = time.monotonic() + CHECK_SECONDS
        channel.settimeout(CHECK_SECONDS)
        # The whole frame, with its length in front: nothing is copied.
        whole: Any = body.obj
        channel.sendall(whole)
        said = messages.read_message(channel, 100, until)
        if said is None:
            raise ConnectionResetError("the process ended")
        return messages.decode_message(said, CheckVerdict)

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs, self._guard:
            self._channel = ours
            if self._closed:
                raise CheckFailed
            self._process = subprocess.Popen(  # noqa: S603  # this Python, and its own paths
                messages.python_command(ENTRY, theirs.fileno()),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                # A signal that a terminal sends to the server is not for this process.
                start_new_session=True,
            )
        return ours

    def _stop(self) -> None:
        with self._guard:
            process, self._process = self._process, None
            channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()
        if process is not None:
            process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)


def main(descriptor: int) -> None:
    """Say of each answer that comes over this descriptor whether it is sound, until the other side closes it."""
    os.nice(5)  # steps come first
    with socket.socket(fileno=descriptor) as channel, suppress(ConnectionError):
        while (body := messages.read_message(channel, 2 * messages.MOST_BYTES)) is not None:
            begun = time.process_time()
            verdict = is_sound(body)
            channel.sendall(messages.encode_frame(CheckVerdict(verdict, time.process_time() - begun)))


def is_sound(body: memoryview) -> bool:
    """Return whether an answer is one, its texts can be believed in their form, and nothing in it is said twice.

    The server reads a sound answer on its event loop. Of keys that are repeated only the last counts, but all take time.
    """
    try:
        answer = messages.check_reply(messages.decode_message(body, messages.WorkerReply))
    except msgspec.DecodeError:
        return False
    return len(messages.encode_frame(answer)) - messages.LENGTH.size >= body.nbytes
