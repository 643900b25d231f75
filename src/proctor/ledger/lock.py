"""One writer a file: an advisory lock on a file beside it, which readers never ask for."""

import fcntl
import os
from pathlib import Path
from typing import Final

from proctor.errors import ComponentError

_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY
_LOCKS: Final = Path("/proc/locks")
"""Where Linux lists all locks of processes that can be seen."""
_PROCESSES: Final = Path("/proc/self/ns/pid")
_ALL_PROCESSES: Final = "pid:[4026531836]"
"""What Linux calls the room in which all processes of the machine are seen."""


def has_writer(path: Path) -> bool | None:
    """Return whether somebody holds the lock of the file at `path`; None where that cannot be seen.

    The lock is looked at, not asked for: one who asks, even for a moment, would turn a writer away that comes just then.
    """
    try:
        place = path.with_name(path.name + ".lock").stat().st_ino
    except FileNotFoundError:
        return False  # whoever writes makes one
    except OSError:
        return None
    try:
        locks = _LOCKS.read_text().splitlines()
    except OSError:
        return None
    # 1: FLOCK  ADVISORY  WRITE 4711 fe:01:123456 0 EOF; the device is not compared: layered file systems tell another.
    held = (line.split() for line in locks if "FLOCK" in line and "WRITE" in line and "->" not in line)
    if any(len(words) > 5 and words[5].rpartition(":")[2] == str(place) for words in held):
        return True
    return None if _is_contained() else False


def _is_contained() -> bool:
    """Return whether there may be processes that this one does not see: then their locks are not listed either."""
    try:
        return _PROCESSES.readlink().name != _ALL_PROCESSES
    except OSError:
        return True


class WriterLock:
    """Held from its making to `release`, or to the death of the process."""

    def __init__(self, path: Path) -> None:
        beside = path.with_name(path.name + ".lock")
        try:
            self._file = os.open(beside, _FLAGS, 0o600)
        except OSError as problem:
            raise ComponentError(f"the ledger {path} cannot be written: {problem.strerror}") from problem
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            os.close(self._file)
            raise ComponentError(f"the ledger {path} has a writer already", expected="one server a file") from problem

    def release(self) -> None:
        """Let the next writer in; calling it again does nothing."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)
