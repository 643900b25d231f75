"""One writer a file: an advisory lock on a file beside it, which readers never ask for.

Rule 1: the lock is a regular file with one name. A link could lead to a lock that somebody holds for another purpose, and make a
    stranger's ledger look as if a server wrote to it.
"""

import fcntl
import os
import stat
from pathlib import Path
from typing import Final

from proctor.errors import ComponentError

_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | os.O_NOFOLLOW
_LOCKS: Final = Path("/proc/locks")
"""Where Linux lists all locks of processes that can be seen."""
_MOUNTS: Final = Path("/proc/self/mountinfo")
_PROCESSES: Final = Path("/proc/self/ns/pid")
_ALL_PROCESSES: Final = "pid:[4026531836]"
"""What Linux calls the room in which all processes of the machine are seen."""


def has_writer(path: Path) -> bool | None:
    """Return whether somebody holds the lock of the file at `path`; None where that cannot be seen.

    The lock is looked at, not asked for: one who asks, even for a moment, would turn a writer away that comes just then.
    """
    beside = path.with_name(path.name + ".lock")
    try:
        found = beside.lstat()
    except FileNotFoundError:
        return False  # whoever writes makes one
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return False  # no writer made that
    try:
        locks = _LOCKS.read_text().splitlines()
    except OSError:
        return None
    # As the list of locks names a file.
    places = {
        f"{os.major(device):02x}:{os.minor(device):02x}:{found.st_ino}"
        for device in (found.st_dev, _mount_device(beside))
        if device is not None
    }
    # 1: FLOCK  ADVISORY  WRITE 4711 fe:01:123456 0 EOF
    held = (line.split() for line in locks if "FLOCK" in line and "WRITE" in line and "->" not in line)
    if any(len(words) > 5 and words[5] in places for words in held):
        return True if found.st_nlink == 1 else None
    return None if _is_contained() else False


def _mount_device(path: Path) -> int | None:
    """Return the device of the mount that a file is on; None where that is not told.

    The list of locks has this one. On layered file systems (overlayfs, btrfs) the file itself tells another.
    """
    try:
        file = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            said = Path(f"/proc/self/fdinfo/{file}").read_text().split()
        finally:
            os.close(file)
        mount = said[said.index("mnt_id:") + 1]
        mounts = (line.split() for line in _MOUNTS.read_text().splitlines())
        major, minor = next(words[2] for words in mounts if words[0] == mount).split(":")
        return os.makedev(int(major), int(minor))
    except (OSError, ValueError, IndexError, StopIteration):
        return None


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
            raise ComponentError(f"the ledger {path} cannot be written: {beside.name}: {problem.strerror}") from problem
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
