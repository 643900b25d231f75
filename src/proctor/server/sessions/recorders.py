"""The recorders that need no more than a file.

Rule 1: a file holds one event a line. A line is written with one call, under the file's lock, and taken back whole if it
    does not fit: several workers can record to one file, and a full disk leaves no torn line.
Rule 2: a torn last line, which a killed process can leave behind, is closed by the next writer and reported by
    `read_events`; it never spoils a line that was acknowledged.
"""

import fcntl
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proctor.errors import ComponentError, ValidationError
from proctor.ledger.storage_limits import DiskSpace, StorageBudget, StorageLimits
from proctor.models.events import Event, SessionClosed, decode_event, encode_event

NEW_FILE_MODE: Final = 0o600
LONGEST_LINE: Final = 2**24 + 1
"""Bytes of a line that is read: a server writes no longer one, unless it is told to (`max_step_bytes`)."""
SHOWN: Final = 1000
"""Bytes of a longer line that are reported."""
CLOSED: Final = "the recorder is closed"
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOCTTY


class NullRecorder:
    """Keeps nothing: every event is safe at once, because nobody asked for it."""

    def record(self, event: Event) -> None:
        """Return at once."""

    def head(self, session: str) -> None:
        """Return None: nothing here could prove anything."""

    def close(self) -> None:
        """Return at once."""


class JsonlRecorder:
    """Appends events to a file, one line each; a new file can be read by its owner only.

    Safe means: given to the operating system, so that a killed server loses nothing. With `sync` it means: on the disk,
    so that a power cut loses nothing; `record` then blocks for as long as the disk takes. A file that is removed or
    renamed while it is open goes on receiving events under its new name or none: rotate it when the server is down.
    `limits` and `space` say how much is stored: a RecordLimitError says that an event is too much.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        sync: bool = False,
        limits: StorageLimits | None = None,
        space: DiskSpace | None = None,
    ) -> None:
        self._sync = sync
        self._budget = StorageBudget(limits, space)
        self._over = ""
        """Why nothing more is taken; empty while events are."""
        self._file = _open_file(Path(path))
        if sync:
            # Have the disk keep the file's entry in its folder, too, without which a new file is lost in a power cut.
            folder = os.open(Path(path).resolve().parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        self._end = 0
        """Where the file ended after our last line; 0 makes the first record look at what is there."""

    def record(self, event: Event) -> None:
        """Append the event; a ComponentError says that it is not on record."""
        if self._over:
            raise ComponentError(self._over, expected="no more events")
        line = encode_event(event) + b"\n"
        self._budget.check(event, len(line))
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                self._append(line)
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)
        except OSError as problem:
            raise ComponentError("an event could not be recorded", found=problem.strerror) from problem
        if self._sync:
            self._flush()
        self._budget.begin(event)
        self._budget.add(event.session, len(line))
        if isinstance(event, SessionClosed):
            self._budget.forget(event.session)
        self._budget.count_written_bytes(len(line))

    def _append(self, line: bytes) -> None:
        """Write the whole line at the end of the file, or leave the file as it is and raise; the lock is held."""
        end = os.lseek(self._file, 0, os.SEEK_END)
        if end != self._end and end and os.pread(self._file, 1, end - 1) != b"\n":
            line = b"\n" + line  # another writer was killed in the middle of its line
        written = os.write(self._file, line)
        if written != len(line):
            os.ftruncate(self._file, end)
            raise OSError(0, "the line did not fit: the disk is full, or a limit is reached")
        self._end = end + written

    def _flush(self) -> None:
        """Wait until the disk has everything; after a failure nobody knows what it has, so nothing more is taken."""
        try:
            os.fdatasync(self._file)
        except OSError as problem:
            self._over = "the disk did not take the record"
            raise ComponentError(self._over, found=problem.strerror) from problem

    def head(self, session: str) -> None:
        """Return None: nothing here could prove anything."""

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, -1
        self._over = CLOSED
        if file >= 0:
            os.close(file)


@dataclass(frozen=True, slots=True)
class Torn:
    """A line that is no event: the end of a file whose writer was killed, or a line that somebody changed."""

    line: int
    """Counted from 1."""
    offset: int
    """In bytes from the start of the file."""
    text: bytes
    """The line; of one that is too long its beginning."""
    problem: str


def read_events(path: Path | str, *, longest: int = LONGEST_LINE) -> Iterator[Event | Torn]:
    """Yield what is on record, line by line; a line that cannot be read is a `Torn` in its place.

    So is a line of more than `longest` bytes, which is never held as a whole. What is no regular file is a ValidationError.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        raise ValidationError(
            "cannot read events: not a regular file", found=str(path), expected="a file of JSON lines"
        )
    number = offset = 0
    with path.open("rb") as file:
        while line := file.readline(longest + 1):
            number += 1
            size = len(line)
            if size > longest and not line.endswith(b"\n"):
                problem = f"the line is longer than {longest} bytes"
                yield Torn(line=number, offset=offset, text=line[:SHOWN], problem=problem)
                # Read to the end of the line.
                while rest := file.readline(longest):
                    size += len(rest)
                    if rest.endswith(b"\n"):
                        break
            elif not line.isspace():
                yield _read(line, number, offset)
            offset += size


def _read(line: bytes, number: int, offset: int) -> Event | Torn:
    try:
        return decode_event(line)
    except ValidationError as problem:
        return Torn(line=number, offset=offset, text=line.rstrip(b"\r\n"), problem=str(problem))


def _open_file(path: Path) -> int:
    """Return a descriptor of the regular file at `path`, which is made if need be; a ValidationError if there is none."""
    expected = "a file that can be written, in a folder that exists"
    try:
        file = os.open(path, _FLAGS, NEW_FILE_MODE)
    except OSError as problem:
        raise ValidationError(f"cannot record: {problem.strerror}", found=str(path), expected=expected) from problem
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise ValidationError("cannot record: not a regular file", found=str(path), expected=expected)
    return file
