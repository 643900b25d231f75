"""The terminal of a game: the only file of the command line that changes a terminal, and puts it back.

Rule 1: whatever ends the game, the terminal is as it was: its attributes, its cursor, its screen.
Rule 2: signals arrive as values in `wait`, never as exceptions in the midst of something: their handlers do nothing
    but wake the wait up.
Rule 3: a terminal that is gone is no error: the game is over.
"""

import os
import select
import signal
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[2J"
"""To the alternate screen, without a cursor."""
LEAVE: Final = "\x1b[0m\x1b[?25h\x1b[?1049l"
WATCHED: Final = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGTSTP,
    signal.SIGCONT,
    signal.SIGWINCH,
)
GONE: Final = (OSError, termios.error)


@dataclass(frozen=True, slots=True)
class Event:
    """What a wait brought: bytes from the keyboard, signals, and whether the keyboard is gone."""

    read: bytes = b""
    signals: frozenset[int] = frozenset()
    closed: bool = False


class Terminal:
    """A terminal to draw on and to read keys from; see `opened`."""

    def __init__(self, source: int, sink: int, inbox: int) -> None:
        self._source = source
        self._sink = sink
        self._inbox = inbox
        self._saved: list[Any] | None = None

    def size(self) -> tuple[int, int]:
        """Return the columns and rows; 80 by 24 where the terminal does not say."""
        try:
            size = os.get_terminal_size(self._sink)
        except OSError:
            return 80, 24
        return size.columns or 80, size.lines or 24

    def enter(self) -> None:
        """Take the terminal: keys come at once and unseen."""
        self._saved = termios.tcgetattr(self._source)
        tty.setcbreak(self._source)
        self.write(ENTER)

    def leave(self) -> None:
        """Put the terminal back; doing it twice is harmless. Keys that nobody read are dropped."""
        saved, self._saved = self._saved, None
        if saved is not None:
            with suppress(*GONE):
                self.write(LEAVE)
            with suppress(*GONE):
                termios.tcsetattr(self._source, termios.TCSAFLUSH, saved)

    def suspend(self) -> None:
        """Put the terminal back and stop the process; when it goes on, take the terminal again."""
        self.leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        self.enter()

    def write(self, text: str) -> None:
        """Write all of `text`."""
        rest = text.encode("utf-8", "replace")
        while rest:
            rest = rest[os.write(self._sink, rest) :]

    def wait(self, seconds: float | None) -> Event:
        """Return what comes within `seconds`, as soon as it does; None waits for ever."""
        ready, _, _ = select.select([self._source, self._inbox], [], [], seconds)
        signals = frozenset(os.read(self._inbox, 512)) if self._inbox in ready else frozenset()
        if self._source not in ready:
            return Event(signals=signals)
        try:
            read = os.read(self._source, 1024)
        except OSError:
            read = b""
        return Event(read, signals, closed=not read)


@contextmanager
def opened(source: int, sink: int) -> Iterator[Terminal]:
    """Take the terminal behind these file descriptors, and put it back at the end."""
    with _signals() as inbox:
        terminal = Terminal(source, sink, inbox)
        try:
            terminal.enter()
            yield terminal
        finally:
            terminal.leave()


@contextmanager
def _signals() -> Iterator[int]:
    """Have every watched signal written to a pipe; yield its end to read from."""
    inbox, outbox = os.pipe()
    for end in (inbox, outbox):
        os.set_blocking(end, False)
    before = {number: signal.signal(number, lambda *_: None) for number in WATCHED}
    waker = signal.set_wakeup_fd(outbox, warn_on_full_buffer=False)
    try:
        yield inbox
    finally:
        signal.set_wakeup_fd(waker)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(inbox)
        os.close(outbox)
