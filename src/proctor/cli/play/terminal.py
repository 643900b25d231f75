"""The terminal of a game: the only file of the command line that changes a terminal, and puts it back; and the keys it sends.

Rule 1: whatever ends the game, the terminal is as it was: its attributes, its cursor, its screen.
Rule 2: signals arrive as values in `wait`, never as exceptions in the midst of something: their handlers do nothing
    but wake the wait up.
Rule 3: a terminal that is gone is no error: the game is over.
Rule 4: a key that is a letter is its lower case, an arrow is its name; what no game asks for is left out.
Rule 5: bytes come in pieces: an escape sequence that has only begun is kept until the rest is there. A lone escape means
    nothing to any game, so nobody has to wait for what may follow it.
"""

import os
import re
import select
import signal
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

KEYS: Final = {b" ": "space", b"\r": "enter", b"\n": "enter"} | {
    bytes([code]): chr(code).lower() for code in range(0x21, 0x7F)
}
ARROWS: Final = {b"A": "up", b"B": "down", b"C": "right", b"D": "left"}
LONGEST: Final = 32
"""Bytes of a sequence that are waited for; what goes on longer is no key."""

# An arrow with or without modifiers, in either mode of the cursor keys; any other sequence; one byte.
TOKEN: Final = re.compile(
    rb"\x1b(?:\[[0-9;]*|O)(?P<arrow>[ABCD])|\x1b\[[0-?]*[ -/]*[@-~]|\x1bO[ -~]|(?P<byte>.)", re.DOTALL
)
UNFINISHED_KEY: Final = re.compile(rb"\x1b(?:O|\[[0-?]*[ -/]*)?\Z")


class Keyboard:
    """Remembers the bytes of a sequence that has only begun."""

    def __init__(self) -> None:
        self._begun = b""

    def keys(self, read: bytes) -> list[str]:
        """Return the keys that are complete with the bytes just read."""
        text = self._begun + read
        begun = UNFINISHED_KEY.search(text)
        end = len(text) if begun is None else begun.start()
        self._begun = text[end:] if len(text) - end <= LONGEST else b""
        found = (ARROWS.get(token["arrow"]) or KEYS.get(token["byte"]) for token in TOKEN.finditer(text[:end]))
        return [key for key in found if key is not None]


ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[2J"
"""To the alternate screen, without a cursor."""
HOME: Final = "\x1b[H"
LEAVE: Final = "\x1b[0m\x1b[?25h\x1b[?1049l"
WATCHED_SIGNALS: Final = (
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
class TerminalEvent:
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

    def wait(self, seconds: float | None) -> TerminalEvent:
        """Return what comes within `seconds`, as soon as it does; None waits for ever."""
        ready, _, _ = select.select([self._source, self._inbox], [], [], seconds)
        signals = frozenset(os.read(self._inbox, 512)) if self._inbox in ready else frozenset()
        if self._source not in ready:
            return TerminalEvent(signals=signals)
        try:
            read = os.read(self._source, 1024)
        except OSError:
            read = b""
        return TerminalEvent(read, signals, closed=not read)


@contextmanager
def open_terminal(source: int, sink: int) -> Iterator[Terminal]:
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
    before = {number: signal.signal(number, lambda *_: None) for number in WATCHED_SIGNALS}
    waker = signal.set_wakeup_fd(outbox, warn_on_full_buffer=False)
    try:
        yield inbox
    finally:
        signal.set_wakeup_fd(waker)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(inbox)
        os.close(outbox)
