"""One worker's socket, seen from the server's event loop: a message out, one message back.

Rule 1: what comes unasked, what is too long, and what comes after an answer breaks the line; a broken line stays broken.
Rule 2: no stream and no transport: a call is one `send` and one `recv` when it is small, and a steps' speed is made of
    these.
Rule 3: a call that is given up breaks the line, because its answer would be taken for the next one's.
Rule 4: all long answers of a server together take a bounded room. Who finds none is read when there is some; who holds room and sends
    nothing more while others wait for it is cut.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Final

from proctor.server.sandbox.messages import LENGTH, MOST_FIRST_BYTES, PIECE, is_whole_frame

SO_PASSRIGHTS: Final = 83
LONG: Final = 2**20
"""Bytes of an answer that needs room."""
MOST_HELD: Final = 64 * 2**20
"""Bytes of long answers that a server holds at once."""
STALL_SECONDS: Final = 10.0


class BreakReason(StrEnum):
    """Why a line is broken, in words that follow "the environment's process"."""

    ENDED = "ended"
    UNASKED = "spoke unasked"
    TOO_MUCH = "said too much at once"
    UNSOUND = "gave no sound answer"
    UNCHECKED = "gave an answer that could not be checked"
    LATE = "did not answer in time"
    STALLED = "began an answer and did not end it"
    LEFT = "was ended"


class SocketBroken(Exception):
    """The line is broken; `how` says why."""

    def __init__(self, how: BreakReason) -> None:
        super().__init__(how.value)
        self.reason: Final = how


class AnswerBudget:
    """The room for long answers, from their first bytes until they are checked; those who wait for it get it in turn."""

    def __init__(self, most: int = MOST_HELD) -> None:
        self._most = most
        self._held: dict[WorkerSocket, int] = {}
        self._waiting: dict[WorkerSocket, int] = {}
        self._received: dict[WorkerSocket, int] = {}
        """Of each line that was in an answer at the last look, what it had said by then."""
        self._timer: asyncio.TimerHandle | None = None

    def take(self, line: "WorkerSocket", size: int) -> bool:
        """Take room for an answer; if there is none, return False and let the line read on when there is."""
        if not self._waiting and self._fits(size):
            self._held[line] = size
            return True
        self._waiting[line] = size
        if self._timer is None:
            self._check_progress()
        return False

    def release(self, line: "WorkerSocket") -> None:
        """Give back what a line holds or waits for, if anything, to those who wait."""
        self._held.pop(line, None)
        self._waiting.pop(line, None)
        while self._waiting:
            first, size = next(iter(self._waiting.items()))
            if not self._fits(size):
                return
            del self._waiting[first]
            self._held[first] = size
            first.resume_reading()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fits(self, size: int) -> bool:
        return not self._held or sum(self._held.values()) + size <= self._most

    def _check_progress(self) -> None:
        for line in [each for each, heard in self._received.items() if each.received_bytes == heard]:
            line.cut(BreakReason.STALLED)
        self._received = {line: line.received_bytes for line in self._held if line.is_in_answer}
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(STALL_SECONDS, self._check_progress)


class WorkerSocket:
    """A connected socket; `broken` is called once, when it breaks, whoever broke it."""

    def __init__(
        self, channel: socket.socket, broken: Callable[[BreakReason], object], room: AnswerBudget | None = None
    ) -> None:
        channel.setblocking(False)
        with suppress(OSError):  # kernels before 6.16
            # A descriptor that comes with an answer would be closed here, and to close a large file takes long.
            channel.setsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS, 0)
        self.reason: BreakReason | None = None
        self.timeout: float | None = None
        """Seconds that an answer may take; None: as long as it likes."""
        self.most = MOST_FIRST_BYTES
        """Bytes that an answer may have."""
        self._loop = asyncio.get_running_loop()
        self._channel = channel
        self._on_break = broken
        self._room = AnswerBudget() if room is None else room
        self._has_room = False
        self.received_bytes = 0
        """Of all long answers."""
        self._answer: asyncio.Future[memoryview] | None = None
        self._received = bytearray()
        self._unsent = memoryview(b"")
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._loop.add_reader(channel, self._on_readable)

    async def ask(self, frame: bytes | bytearray) -> memoryview:
        """Send a message and return the body of the answer, or raise `SocketBroken`.

        The body is a view of the whole frame (`obj`), which is nobody else's from then on.
        """
        if self.reason is not None or self._answer is not None:
            raise SocketBroken(self.reason or BreakReason.UNASKED)
        answer: asyncio.Future[memoryview] = self._loop.create_future()
        self._answer = answer
        if self.timeout is not None:
            # One timer for many calls: most end long before it rings, and then it is set anew.
            self._due = self._loop.time() + self.timeout
            if self._timer is None:
                self._timer = self._loop.call_later(self.timeout, self._check_progress)
        sent = self._send_some(frame)
        if sent < len(frame) and self.reason is None:
            self._unsent = memoryview(frame)[sent:]
            self._loop.add_writer(self._channel, self._on_writable)
        try:
            return await answer
        except asyncio.CancelledError:
            self.cut(BreakReason.LEFT)
            raise

    @property
    def is_in_answer(self) -> bool:
        """Whether a part of an answer is there and the rest is not."""
        return bool(self._received)

    def resume_reading(self) -> None:
        """Read an answer for which there is room now."""
        self._loop.add_reader(self._channel, self._on_readable)

    def release_answer(self) -> None:
        """Give back the room that the last answer took."""
        if self._has_room:
            self._has_room = False
            self._room.release(self)

    def cut(self, how: BreakReason) -> None:
        """Break the line; calling it again does nothing."""
        if self.reason is not None:
            return
        self.reason = how
        self._loop.remove_reader(self._channel)
        self._loop.remove_writer(self._channel)
        if self._timer is not None:
            self._timer.cancel()
        self._channel.close()
        self._received = bytearray()
        self.release_answer()
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(SocketBroken(how))
            answer.exception()  # if whoever asked has just been cancelled, it is reported as forgotten otherwise
        self._on_break(how)

    def _on_writable(self) -> None:
        self._unsent = self._unsent[self._send_some(self._unsent) :]
        if not self._unsent and self.reason is None:
            self._loop.remove_writer(self._channel)

    def _send_some(self, body: bytes | bytearray | memoryview) -> int:
        try:
            return self._channel.send(body)
        except BlockingIOError:
            return 0
        except OSError:
            # What the worker said before it ended may still be there to be read, and then says more than this.
            return len(body)

    def _on_readable(self) -> None:
        try:
            piece = self._channel.recv(PIECE)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self.cut(BreakReason.ENDED)
        elif self._answer is None or self._answer.done():
            self.cut(BreakReason.UNASKED)
        elif not self._received and is_whole_frame(piece):
            self._deliver(piece)
        else:
            self._gather(piece)

    def _gather(self, piece: bytes) -> None:
        """Put a long message together, as far as it has come; memory is taken for what came, not for what is claimed."""
        heard = self._received
        heard += piece
        self.received_bytes += len(piece)
        if len(heard) < LENGTH.size:
            return
        whole = LENGTH.size + LENGTH.unpack_from(heard)[0]
        if whole > LENGTH.size + self.most:
            self.cut(BreakReason.TOO_MUCH)
        elif len(heard) > whole:
            self.cut(BreakReason.UNASKED)
        elif len(heard) == whole:
            self._received = bytearray()
            self._deliver(heard)
        elif whole > LONG and not self._has_room:
            self._has_room = True
            if not self._room.take(self, whole):
                self._loop.remove_reader(self._channel)

    def _deliver(self, frame: bytes | bytearray) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.set_result(memoryview(frame)[LENGTH.size :])

    def _check_progress(self) -> None:
        self._timer = None
        if self._answer is None:
            return
        left = self._due - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._check_progress)
        else:
            self.cut(BreakReason.LATE)
