"""What the server holds of a process in a sandbox: a descriptor that is this process and no other, and its cgroup.

Rule 1: a process is ended by its descriptor, never by its number, which may be another's by now. Where the kernel takes
    a number only, it is checked before and after that it still is this process's own.
Rule 2: `kill` never waits. The rest, until nothing is left of the process and its group, happens on a thread.
"""

import logging
import os
import secrets
import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import IO, Final

from proctor.server.sandbox import messages
from proctor.server.sandbox.pool.cgroups import Cgroups, ControlGroup, write_kernel_file
from proctor.server.sandbox.tiers import NOBODY, SandboxLimits

LOG: Final = logging.getLogger("proctor.sandbox")
WHOLE_GROUP: Final = 4
"""PIDFD_SIGNAL_PROCESS_GROUP, since Linux 6.9: the process and what it has started."""
BURIAL_SECONDS: Final = 10.0
FIRST_USER: Final = 2**29
MOST_USERS: Final = 2**28
"""Users of the host that nobody is: what the kernel counts for each user, one session cannot use up for another."""
MAPPED_USERS: Final = (20_000, 40_000)
"""The first, and how many, where an engine has a range of users of its own that is no larger than 65536."""
DEEPEST: Final = 100
LOOKS: Final = 20


class WorkerProcess:
    """One process, from its first word to its end; `over` is called when nothing is left of it."""

    def __init__(self, undertaker: Executor, over: Callable[["WorkerProcess"], object]) -> None:
        self._undertaker = undertaker
        self._over = over
        self._descriptor = -1
        self._group: ControlGroup | None = None
        self._ended = False
        self._guard = threading.Lock()
        # Between the thread that makes a group and the one that removes it; held for longer.
        self._grouping = threading.Lock()

    def attach(self, process: int) -> None:
        """Hold the process of this descriptor from now on, and the one before no more; the caller keeps the descriptor."""
        descriptor = os.dup(process)
        with self._guard:
            if self._ended:
                # Too late: it was given up while it came.
                _kill_process(descriptor)
            else:
                descriptor, self._descriptor = self._descriptor, descriptor
        if descriptor >= 0:
            os.close(descriptor)

    def put_into_group(self, cgroups: Cgroups, name: str, limits: SandboxLimits) -> None:
        """Give the process a group of its own, or raise an OSError; this may take some time."""
        with self._grouping:
            if not self._ended:
                group = cgroups.make(name, limits)
                if not move_to_group(self._descriptor, group):
                    raise ProcessLookupError("the process ended before it had a group of its own")
                self._group = group

    def has_member(self, process: int) -> bool:
        """Return whether the process of this descriptor is in the group; without a group, it is not known."""
        if self._group is None:
            return False
        pid = find_pid(process)
        return pid in self._group.pids() and find_pid(process) == pid

    def map_user(self, user: int) -> None:
        """Have nobody, in the process's user namespace, be this user of the host; only root can. Raises an OSError."""
        pid = find_pid(self._descriptor)
        folder = os.open(f"/proc/{pid}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # From now on the folder is this process's and no other's; was it when it was opened?
            if find_pid(self._descriptor) != pid:
                raise ProcessLookupError("the process ended before it had a user of its own")
            write_kernel_file(Path("uid_map"), f"{NOBODY} {user} 1", folder)
        finally:
            os.close(folder)

    def out_of_memory(self) -> bool:
        """Return whether the kernel ended a process of the group for want of memory."""
        return self._group is not None and self._group.was_out_of_memory()

    def kill(self) -> None:
        """End the process and all that belongs to it, and see to its burial; calling it again does nothing."""
        with self._guard:
            if self._ended:
                return
            self._ended = True
            if self._descriptor >= 0:
                _kill_process(self._descriptor)
        try:
            self._undertaker.submit(self._clean_up)
        except RuntimeError:
            # The undertaker has gone: the sandbox was closed while this process came.
            self._clean_up()

    def _clean_up(self) -> None:
        with self._grouping:
            if self._descriptor >= 0:
                poll = select.poll()
                poll.register(self._descriptor, select.POLLIN)
                poll.poll(BURIAL_SECONDS * 1000)
                os.close(self._descriptor)
            if self._group is not None and not self._group.end():
                LOG.error("the cgroup of a worker could not be removed", extra={"cgroup": str(self._group.folders[0])})
        self._over(self)


def _kill_process(descriptor: int) -> None:
    """Kill a process and its group, unless it has ended already."""
    with suppress(ProcessLookupError):
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL, None, WHOLE_GROUP)
        except OSError:
            # An older kernel, or a process that leads no group.
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)


def load_target_in(channel: socket.socket, start: messages.StartMessage, deadline: float) -> messages.LoadReport:
    """Tell a zygote, or a container's worker, what it is for, and return what it says then; an OSError if it ends."""
    body = None
    with suppress(ConnectionError):
        channel.sendall(messages.encode_frame(start))
        body = messages.read_message(channel, 2**16, deadline)
    if body is None:
        raise ConnectionResetError("it ended while it imported the environment")
    return messages.decode_message(body, messages.LoadReport)


def read_complaint(pipe: IO[bytes] | None) -> str:
    """Return the end of what a process wrote to its error stream so far; nobody waits for more."""
    if pipe is None or pipe.closed:
        return ""
    os.set_blocking(pipe.fileno(), False)
    with suppress(BlockingIOError):
        said = os.read(pipe.fileno(), 2**16)[-2000:]
        return messages.printable_text(said.decode("utf-8", "replace").strip())
    return ""


def find_pid(descriptor: int) -> int:
    """Return the number of a process now; 0 when nothing is left of it, or if it cannot be seen from here."""
    with suppress(OSError):
        told = Path(f"/proc/self/fdinfo/{descriptor}").read_text(encoding="ascii")
        return max(0, *(int(line[4:]) for line in told.splitlines() if line.startswith("Pid:")), 0)
    return 0


def is_descendant(descriptor: int, ancestor: int) -> bool:
    """Return whether a process was started by another one, by what that one started, and so on."""
    pid = find_pid(descriptor)
    line = _find_ancestors(pid)
    for _ in range(LOOKS):
        # Looked at until it stays the same: the number of a parent that ended meanwhile may be another's.
        before, line = line, _find_ancestors(pid)
        if before == line:
            return ancestor in line and find_pid(descriptor) == pid
    return False


def _find_ancestors(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        while pid > 1 and len(found) < DEEPEST:
            told = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
            pid = int(told.rpartition(")")[2].split()[1])
            found.append(pid)
    return found


def move_to_group(descriptor: int, group: ControlGroup) -> bool:
    """Move a process into a new group, which is removed if it cannot be; return whether it was this process that moved."""
    pid = find_pid(descriptor)
    try:
        if pid > 1:
            group.add(pid)
            if find_pid(descriptor) == pid:
                return True
            # It ended, and its number may have become another's just before: whoever is in there is none of ours.
            group.release()
    except OSError:
        group.release()
        group.remove()
        raise
    group.remove()
    return False


def generate_users(*, mapped: bool = False) -> Iterator[int]:
    """Return users that are likely to be nobody else's, a new one each time; `mapped`: an engine gives them other numbers."""
    first, most = MAPPED_USERS if mapped else (FIRST_USER, MOST_USERS)
    return (first + number % most for number in count(secrets.randbelow(most)))
