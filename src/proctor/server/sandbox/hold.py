"""What the server holds of a process in a sandbox: a descriptor that is this process and no other, and its cgroup.

Rule 1: a process is ended by its descriptor, never by its number, which may be another's by now.
Rule 2: `kill` never waits. The rest, until nothing is left of the process and its group, happens on a thread.
"""

import logging
import os
import select
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Final

from proctor.server.sandbox.cgroups import Cgroups
from proctor.server.sandbox.control_group import Group
from proctor.server.sandbox.tiers import SandboxLimits

LOG: Final = logging.getLogger("proctor.sandbox")
WHOLE_GROUP: Final = 4
"""PIDFD_SIGNAL_PROCESS_GROUP, since Linux 6.9: the process and what it has started."""
BURIAL_SECONDS: Final = 10.0


class Hold:
    """One process, from its first word to its end; `over` is called when nothing is left of it."""

    def __init__(self, undertaker: Executor, over: Callable[["Hold"], object]) -> None:
        self._undertaker = undertaker
        self._over = over
        self._descriptor = -1
        self._group: Group | None = None
        self._ended = False
        self._guard = threading.Lock()
        # Between the thread that makes a group and the one that removes it; held for longer.
        self._grouping = threading.Lock()

    def take(self, pid: int) -> None:
        """Hold this process from now on, and the one before no more; whoever calls knows that it is still there."""
        descriptor = os.pidfd_open(pid)
        with self._guard:
            if self._ended:
                # Too late: it was given up while it came.
                _signal(descriptor)
            else:
                descriptor, self._descriptor = self._descriptor, descriptor
        if descriptor >= 0:
            os.close(descriptor)

    def enclose(self, cgroups: Cgroups, name: str, limits: SandboxLimits, pid: int) -> None:
        """Give the process a group of its own, or raise an OSError; this may take some time."""
        with self._grouping:
            if not self._ended:
                self._group = cgroups.make(name, limits)
                self._group.add(pid)

    def out_of_memory(self) -> bool:
        """Return whether the kernel ended a process of the group for want of memory."""
        return self._group is not None and self._group.oom_killed()

    def kill(self) -> None:
        """End the process and all that belongs to it, and see to its burial; calling it again does nothing."""
        with self._guard:
            if self._ended:
                return
            self._ended = True
            if self._descriptor >= 0:
                _signal(self._descriptor)
        try:
            self._undertaker.submit(self._bury)
        except RuntimeError:
            # The undertaker has gone: the sandbox was closed while this process came.
            self._bury()

    def _bury(self) -> None:
        with self._grouping:
            if self._descriptor >= 0:
                _await_end(self._descriptor)
                os.close(self._descriptor)
            if self._group is not None and not removed(self._group):
                LOG.error("the cgroup of a worker could not be removed", extra={"cgroup": str(self._group.folders[0])})
        self._over(self)


def _signal(descriptor: int) -> None:
    """Kill a process and its group, unless it has ended already."""
    with suppress(ProcessLookupError):
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL, None, WHOLE_GROUP)
        except OSError:
            # An older kernel, or a process that leads no group.
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)


def _await_end(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.poll(BURIAL_SECONDS * 1000)


def removed(group: Group) -> bool:
    """Remove a group of which processes may still be ending; return whether it is gone."""
    for _ in range(20):
        with suppress(OSError):
            group.kill()
        if group.remove():
            return True
    return False
