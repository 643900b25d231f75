"""One writer a file: an advisory lock on a file beside it, which readers look at and never ask for.

Rule 1: the lock is a regular file with one name. A link could lead to a lock that somebody holds for another purpose, and make a
    stranger's ledger look as if a server wrote to it.
Rule 2: it belongs to the open file and not to a process, so that it is seen by everybody who has the file, in a container as well. Only
    Linux tells who holds it.
"""

import fcntl
import os
import stat
import struct
import sys
from pathlib import Path
from typing import Final

from proctor.errors import ComponentError

_FLAGS: Final = os.O_CLOEXEC | os.O_NOCTTY | os.O_NOFOLLOW | os.O_NONBLOCK
_LOCK: Final = struct.Struct("hhqqi4x")
"""What Linux calls `struct flock`: kind, from where on, first byte, length (0: to the end), process."""
_WHOLE_FILE: Final = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


def has_writer(path: Path) -> bool | None:
    """Return whether somebody holds the lock of the file at `path`; None where that cannot be seen.

    The lock is looked at, not asked for: one who asks, even for a moment, would turn a writer away that comes just then.
    """
    if sys.platform != "linux":
        return None
    beside = path.with_name(path.name + ".lock")
    try:
        if not stat.S_ISREG(beside.lstat().st_mode):
            return False  # no writer made that
        file = os.open(beside, os.O_RDONLY | _FLAGS)
        try:
            kind = _LOCK.unpack(fcntl.fcntl(file, fcntl.F_OFD_GETLK, _WHOLE_FILE))[0]
            is_one_name = os.fstat(file).st_nlink == 1
        finally:
            os.close(file)
    except FileNotFoundError:
        return False  # whoever writes makes one
    except OSError:
        return None
    if kind != fcntl.F_WRLCK:
        return False  # nobody's, or one that only keeps writers away
    return True if is_one_name else None


class WriterLock:
    """Held from its making to `release`, or to the death of the process."""

    def __init__(self, path: Path) -> None:
        beside = path.with_name(path.name + ".lock")
        try:
            self._file = os.open(beside, os.O_RDWR | os.O_CREAT | _FLAGS, 0o600)
        except OSError as problem:
            raise ComponentError(f"the ledger {path} cannot be written: {beside.name}: {problem.strerror}") from problem
        try:
            if sys.platform == "linux":
                fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _WHOLE_FILE)
            else:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            os.close(self._file)
            if not isinstance(problem, BlockingIOError | PermissionError):
                raise ComponentError(f"the ledger {path} cannot be locked: {problem.strerror}") from problem
            raise ComponentError(f"the ledger {path} has a writer already", expected="one server a file") from problem

    def release(self) -> None:
        """Let the next writer in; calling it again does nothing."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)
