"""One writer a file: an advisory lock on a file beside it, which readers never ask for."""

import fcntl
import os
from pathlib import Path
from typing import Final

from proctor.errors import ComponentError

_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY


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
