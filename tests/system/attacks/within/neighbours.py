"""Other processes: of the host, of the server, and of the session next door."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from tests.system.attacks.within.tries import Tries, called, inside, syscall

HIGHEST_PID = 70_000
PTRACE_TRACEME, PTRACE_ATTACH, PTRACE_SEIZE = 0, 16, 0x4206
PRIO_PROCESS, PRIO_PGRP, PRIO_USER = 0, 1, 2
NOBODY = 65_534
LOW_PIDS = 24
COMMON = ctypes.create_string_buffer(64)
"""Made while the module is imported, so that it lies at the same place in every worker."""


def targets(tries: Tries) -> list[int]:
    """Return the numbers of others: as the host counts, and as this process sees its parent."""
    return [tries.clue.server_pid, *tries.clue.sandbox_pids, os.getppid()]


def all_targets(tries: Tries) -> list[int]:
    """Return those, and the numbers that a neighbour would have if there were no namespace between."""
    own = os.getpid()
    return [pid for pid in (*targets(tries), *range(1, LOW_PIDS)) if pid != own]


@inside
def processes_in_proc(tries: Tries) -> None:
    """Read what /proc says of all processes: command lines, variables, memory, roots, descriptors."""
    numbers = [path.name for path in Path("/proc").iterdir() if path.name.isdigit()]
    tries.held("processes in /proc", not numbers, f"{len(numbers)} are shown")
    for pid in ("self", "1", *map(str, targets(tries))):
        for name in ("environ", "cmdline", "mem", "maps", "root/etc/shadow", "fd/0", "cwd", "status"):
            tries.here(f"/proc/{pid}/{name}", partial(opened, f"/proc/{pid}/{name}"))
    for name in (
        *("kcore", "kmsg", "sysrq-trigger", "sys/kernel/core_pattern", "sys/vm/overcommit_memory", "mounts", "keys"),
    ):
        tries.here(f"/proc/{name}", partial(opened, f"/proc/{name}"))


def opened(path: str) -> None:
    """Open a file, and close it."""
    os.close(os.open(path, os.O_RDONLY))


@inside
def tracing_others(tries: Tries) -> None:
    """Attach to the parent, the server, the zygote and all workers with ptrace, and ask to be traced."""
    for pid in all_targets(tries):
        for name, request in (("attach", PTRACE_ATTACH), ("seize", PTRACE_SEIZE)):
            tries.in_child(f"ptrace {name} {pid}", partial(_traced, request, pid))
    tries.in_child("ptrace me", partial(_traced, PTRACE_TRACEME, 0))


def _traced(request: int, pid: int) -> None:
    called("ptrace", ctypes.c_long(request), ctypes.c_long(pid), None, None)


@inside
def tracing_ends_the_tracer(tries: Tries) -> None:
    """Attach to the parent from the worker itself, not from a child."""
    _traced(PTRACE_ATTACH, os.getppid() or 1)
    tries.reached.append("ptrace: it worked")


@inside
def memory_of_others(tries: Tries) -> None:
    """Read and write the memory of others with process_vm_readv and process_vm_writev."""
    vector = (ctypes.c_size_t * 2)(ctypes.addressof(COMMON), 64)
    one, none = ctypes.c_ulong(1), ctypes.c_ulong(0)
    for pid in all_targets(tries):
        for name in ("process_vm_readv", "process_vm_writev"):
            tries.in_child(f"{name} of {pid}", partial(called, name, pid, vector, one, vector, one, none))


@inside
def descriptors_of_others(tries: Tries) -> None:
    """Take the descriptors of others through pidfds, and compare objects of the kernel with theirs."""
    for pid in all_targets(tries):
        tries.in_child(f"pidfd_open and pidfd_getfd of {pid}", partial(_taken, pid))
        tries.in_child(f"kcmp with {pid}", partial(syscall, "kcmp", os.getpid(), pid, 0, 0, 0))
        tries.in_child(f"process_madvise of {pid}", partial(syscall, "process_madvise", pid, 0, 0, 21, 0))


def _taken(pid: int) -> None:
    descriptor = syscall("pidfd_open", pid, 0)
    for number in range(16):
        syscall("pidfd_getfd", descriptor, number, 0)


@inside
def signals_to_others(tries: Tries) -> None:
    """Send signals to the parent, the server, the zygote, all workers, and to every number that a process can have."""
    for pid in targets(tries):
        if pid > 1:
            for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP, signal.SIGUSR1):
                tries.here(f"signal {number} to {pid}", partial(os.kill, pid, number))
            tries.here(f"queued signal to {pid}", partial(_queued, pid))
    own = {os.getpid(), os.getpgid(0)}
    alive = [pid for pid in range(1, HIGHEST_PID) if pid not in own and _answers(partial(os.kill, pid, 0))]
    tries.held(f"processes 1 to {HIGHEST_PID}", not alive, f"alive: {alive[:10]}")
    groups = [pid for pid in range(2, HIGHEST_PID) if pid not in own and _answers(partial(os.killpg, pid, 0))]
    tries.held(f"groups 2 to {HIGHEST_PID}", not groups, f"alive: {groups[:10]}")


def _answers(do: Callable[[], object]) -> bool:
    with suppress(OSError):
        do()
        return True
    return False


def _queued(pid: int) -> None:
    descriptor = os.pidfd_open(pid)
    signal.pidfd_send_signal(descriptor, signal.SIGKILL)


@inside
def signals_to_all(tries: Tries) -> None:
    """Send SIGKILL and SIGSTOP to -1, to group 0, and to its own pid 1: to everybody whom one may signal."""
    for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGKILL):
        with suppress(OSError):
            os.kill(-1, number)
    tries.in_child("SIGKILL to all", _killed_all)
    tries.held("what was sent to all", True, "reached nobody but its own children")


def _killed_all() -> None:
    os.setpgid(0, 0)
    os.kill(-1, signal.SIGKILL)
    raise ProcessLookupError(3, "nobody is left")


@inside
def signals_to_itself(tries: Tries) -> None:
    """Stop and kill its own process, which is pid 1 of its namespace, and its own group."""
    os.kill(os.getpid(), signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGKILL)
    os.killpg(0, signal.SIGKILL)
    tries.held("signals to itself", True, "a pid 1 hears none of its own")
    os._exit(9)


@inside
def priorities_of_others(tries: Tries) -> None:
    """Make all other processes of the same user slow: their priority, their processors, their limits."""
    user = partial(os.setpriority, PRIO_USER, NOBODY, 19)
    with suppress(OSError):
        user()
    for pid in targets(tries):
        if pid > 1:
            tries.here(f"priority of {pid}", partial(os.setpriority, PRIO_PROCESS, pid, 19))
            tries.here(f"group's priority of {pid}", partial(os.setpriority, PRIO_PGRP, pid, 19))
            tries.here(f"processors of {pid}", partial(os.sched_setaffinity, pid, {0}))
            tries.here(f"limits of {pid}", partial(_limited, pid))
            tries.here(f"scheduler of {pid}", partial(os.sched_setscheduler, pid, os.SCHED_IDLE, os.sched_param(0)))
    tries.here("own priority", partial(os.nice, -10))
    tries.here("own scheduler", partial(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(50)))


def _limited(pid: int) -> None:
    import resource

    resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1))


@inside
def the_zygote(tries: Tries) -> None:
    """End the process from which all workers are forked: by its number, its group, its socket, and as an orphan's new parent."""
    for pid in tries.clue.sandbox_pids:
        tries.here(f"SIGKILL to {pid}", partial(os.kill, pid, signal.SIGKILL))
        tries.here(f"SIGKILL to the group of {pid}", partial(os.killpg, pid, signal.SIGKILL))
    tries.here("SIGKILL to the parent", lambda: os.kill(os.getppid(), signal.SIGKILL) if os.getppid() > 1 else _none())
    tries.held("the parent", os.getppid() == 0, "is in another namespace")
    tries.held("pid 1", os.getpid() == 1, "is this process itself")
    tries.held("the zygote's socket", not Path("/proc/self/fd").exists(), "is closed")


def _none() -> None:
    raise ProcessLookupError(3, "there is no such process")
