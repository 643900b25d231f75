"""One control group: what a worker's processes may use together, and the sure way to end all of them. Versions 1 and 2.

Rule 1: a limit is an `Order`: one line for one file; which there are is data.
Rule 2: nothing waits long: `kill` and `remove` try for some milliseconds, and `remove` says whether the group is gone.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proctor.server.sandbox.tiers import SandboxLimits

PREFIX: Final = "proctor-"
LEAF: Final = "-server"
PERIOD: Final = 100_000
"""Microseconds: the time over which a share of the processors is counted."""
SMALLEST_QUOTA: Final = 1000
CONTROLLERS: Final = ("memory", "pids", "cpu")
KILL_ROUNDS: Final = 50
REMOVE_ROUNDS: Final = 20
PAUSE_SECONDS: Final = 0.002


@dataclass(frozen=True, slots=True)
class Folders:
    """How a group's folder is made and removed; the kernel puts the files in it and takes them away."""

    make: Callable[[Path], None] = Path.mkdir
    remove: Callable[[Path], None] = Path.rmdir


KERNEL: Final = Folders()


@dataclass(frozen=True, slots=True)
class Order:
    """One line for one of a group's files; one that is not `needed` is left out where there is no such file."""

    controller: str
    file: str
    text: str
    needed: bool = True


@dataclass(frozen=True, slots=True)
class Group:
    """One worker's group: one folder in version 2, one per controller in version 1."""

    folders: tuple[Path, ...]
    version: int
    kernel: Folders = KERNEL

    def add(self, pid: int) -> None:
        """Move a process into the group; what it forks from now on is in it too."""
        for folder in self.folders:
            write(folder / "cgroup.procs", str(pid))

    def release(self) -> None:
        """Move whoever is in the group to where this process is, as far as that can be done; nobody is hurt."""
        for folder in self.folders:
            with suppress(OSError):
                for pid in read(folder / "cgroup.procs").split():
                    write(self._own(folder) / "cgroup.procs", pid)

    @staticmethod
    def _own(folder: Path) -> Path:
        """Return the folder of this process's own group in the same hierarchy: two above, or the leaf that it went into."""
        home = folder.parent.parent
        return next(home.glob(f"{PREFIX}{os.getpid()}-*{LEAF}"), home)

    def obey(self, order: Order) -> None:
        """Write a limit; one that is not needed only where the kernel has a file for it."""
        path = self._holding(order.controller) / order.file
        if order.needed or path.exists():
            write(path, order.text)

    def pids(self) -> tuple[int, ...]:
        """Return the processes in it, as far as this pid namespace sees them."""
        with suppress(OSError):
            # 0 is a process that this namespace does not see, and 1 is never in a group of ours.
            return tuple(pid for pid in map(int, read(self._holding("pids") / "cgroup.procs").split()) if pid > 1)
        return ()

    def kill(self) -> None:
        """Kill every process in it."""
        if self.version == 2 and (self.folders[0] / "cgroup.kill").exists():
            write(self.folders[0] / "cgroup.kill", "1")
            return
        # Nothing is forked any more, so that a finite number of rounds is enough.
        with suppress(OSError):
            write(self._holding("pids") / "pids.max", "0")
        for _ in range(KILL_ROUNDS):
            pids = self.pids()
            if not pids:
                return
            self._kill(pids)
            time.sleep(PAUSE_SECONDS)

    def _kill(self, pids: Iterable[int]) -> None:
        """Kill those of these processes that are in the group; a number may be another's by now, a descriptor may not."""
        with ExitStack() as stack:
            held = {pid: descriptor for pid in pids if (descriptor := _held(pid, stack)) is not None}
            for pid in held.keys() & set(self.pids()):
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(held[pid], signal.SIGKILL)

    def oom_killed(self) -> bool:
        """Return whether the kernel ended a process of it for want of memory."""
        name = "memory.events" if self.version == 2 else "memory.oom_control"
        with suppress(OSError):
            fields = dict(line.split()[:2] for line in read(self._holding("memory") / name).splitlines())
            return int(fields.get("oom_kill", 0)) > 0
        return False

    def remove(self) -> bool:
        """Remove the group, and return whether it is gone; one with processes in it stays."""
        for attempt in range(REMOVE_ROUNDS):
            if attempt:
                time.sleep(PAUSE_SECONDS)
            if all_removed(self.folders, self.kernel):
                return True
        return False

    def _holding(self, controller: str) -> Path:
        return self.folders[0] if self.version == 2 else self.folders[CONTROLLERS.index(controller)]


def orders(version: int, limits: SandboxLimits) -> tuple[Order, ...]:
    """Return what is written into a new group, in this order."""
    memory, processes = str(limits.memory_bytes), str(limits.processes)
    quota = max(SMALLEST_QUOTA, int(limits.cpus * PERIOD))
    if version == 2:
        return (
            Order("memory", "memory.max", memory),
            Order("memory", "memory.swap.max", "0", needed=False),
            Order("memory", "memory.oom.group", "1", needed=False),
            Order("pids", "pids.max", processes),
            Order("cpu", "cpu.max", f"{quota} {PERIOD}"),
        )
    return (
        Order("memory", "memory.limit_in_bytes", memory),
        # Memory and swap together: otherwise what is over the limit would be written to the disk.
        Order("memory", "memory.memsw.limit_in_bytes", memory, needed=False),
        Order("pids", "pids.max", processes),
        Order("cpu", "cpu.cfs_period_us", str(PERIOD)),
        Order("cpu", "cpu.cfs_quota_us", str(quota)),
    )


def all_removed(folders: Iterable[Path], kernel: Folders) -> bool:
    """Remove what can be removed; return whether nothing is left."""
    return not [folder for folder in folders if not removed(folder, kernel)]


def removed(folder: Path, kernel: Folders) -> bool:
    """Remove a folder once; return whether it is not there any more."""
    try:
        kernel.remove(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _held(pid: int, stack: ExitStack) -> int | None:
    """Return a descriptor of a process, until the stack is left; None if it is gone."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    stack.callback(os.close, descriptor)
    return descriptor


def read(path: Path) -> str:
    """Return what the kernel says in a file."""
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def write(path: Path, text: str) -> None:
    """Say something to the kernel; an OSError names the file."""
    # One write and no truncation: the kernel takes each write as one order.
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode("ascii"))
    except OSError as problem:
        problem.filename = str(path)
        raise
    finally:
        os.close(descriptor)
