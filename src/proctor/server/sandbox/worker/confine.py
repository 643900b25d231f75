"""What a process does to itself before it runs an environment: each step takes something away for good.

Rule 1: system calls by ctypes alone; no environment, and nothing that is large, is imported here.
Rule 2: a step that fails is an OSError that names it. Nobody goes on with less than was asked for.
Rule 3: the order is `become_nobody` and `load_filter` (the zygote, once, before it imports an environment),
    `own_namespaces` (a worker, strict only), `settle`.
"""

import ctypes
import errno
import os
import re
import resource
import signal
import stat
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from proctor.server.sandbox.tiers import NOBODY, SandboxLimits, Tier
from proctor.server.sandbox.worker import seccomp
from proctor.server.sandbox.worker.seccomp import FilterUse, here

PR_SET_PDEATHSIG: Final = 1
PR_SET_DUMPABLE: Final = 4
PR_CAPBSET_DROP: Final = 24
PR_SET_CHILD_SUBREAPER: Final = 36
PR_SET_NO_NEW_PRIVS: Final = 38
PR_CAP_AMBIENT: Final = 47
PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
CAPABILITY_VERSION_3: Final = 0x20080522
MOST_CAPABILITIES: Final = 64
SECCOMP_SET_MODE_FILTER: Final = 1
SECCOMP_FILTER_FLAG_TSYNC: Final = 1
INODES: Final = 16384
"""Files in one tmpfs: each takes memory of the kernel, however small it is."""
SIGNALS: Final = 256
"""Signals that wait, and timers: far less than the kernel gives to all sessions together."""
OWN: Final = ("/tmp", "/dev/shm")  # noqa: S108 - a tmpfs of the process's own is mounted on each
_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def _raise_on_error(code: int, what: str) -> None:
    if code != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _prctl(option: int, *values: int) -> int:
    # All are passed as 64 bits: the kernel refuses some options if the unused arguments are not zero.
    padded = (*values, 0, 0, 0, 0)[:4]
    return int(_LIBC.prctl(ctypes.c_int(option), *map(ctypes.c_ulong, padded)))


def die_with_parent() -> None:
    """Get SIGKILL when the thread that started this process ends."""
    _raise_on_error(_prctl(PR_SET_PDEATHSIG, signal.SIGKILL), "PR_SET_PDEATHSIG")


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends: a zygote reaps the workers that `own_namespaces` leaves."""
    _raise_on_error(_prctl(PR_SET_CHILD_SUBREAPER, 1), "PR_SET_CHILD_SUBREAPER")


def undumpable() -> None:
    """Let no other process of the same user trace this one or read its memory."""
    _raise_on_error(_prctl(PR_SET_DUMPABLE, 0), "PR_SET_DUMPABLE")


def no_new_privileges() -> None:
    """Let no program that this process starts gain rights by its set-uid bits."""
    _raise_on_error(_prctl(PR_SET_NO_NEW_PRIVS, 1), "PR_SET_NO_NEW_PRIVS")


def become_nobody(user: int = NOBODY) -> None:
    """Become a user of no rights, without groups and capabilities; only a process that is root can change who it is."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(user, user, user)
    drop_capabilities()


def drop_capabilities() -> None:
    """Give up every capability: effective, permitted, inheritable, ambient, and the bounding set where that is allowed."""
    for capability in range(MOST_CAPABILITIES):
        # Without CAP_SETPCAP it stays; with no_new_privileges there is no way left to use it.
        if _prctl(PR_CAPBSET_DROP, capability) != 0:
            break
    _prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = struct.pack("=Ii", CAPABILITY_VERSION_3, 0)
    _raise_on_error(_LIBC.capset(header, bytes(24)), "capset")


def own_namespaces(limits: SandboxLimits, ask_for_user: Callable[[], None] | None = None) -> None:
    """Return in a new process that is pid 1 of a pid namespace of its own, with user, ipc, network and mount namespaces.

    The network is empty: workers of one sandbox would share abstract sockets otherwise. `ask_for_user` returns when
    somebody who may has mapped nobody to a user of the host that no other worker is; without it, the user stays.

    The calling process ends here; the new one is a child of the nearest subreaper (`adopt_orphans`) or init. /tmp and
    /dev/shm are its own; /proc is empty.
    """
    uid, gid = os.getuid(), os.getgid()
    # The kernel gives a process that once changed its user no right to write its own maps until it is dumpable again.
    _raise_on_error(_prctl(PR_SET_DUMPABLE, 1), "PR_SET_DUMPABLE")
    _raise_on_error(_LIBC.unshare(ctypes.c_int(seccomp.WORKER_NAMESPACES)), "namespaces of its own")
    _write("/proc/self/setgroups", b"deny")
    _write("/proc/self/gid_map", b"%d %d 1" % (gid, gid))
    if ask_for_user is None:
        _write("/proc/self/uid_map", b"%d %d 1" % (uid, uid))
    else:
        ask_for_user()
        os.setresuid(NOBODY, NOBODY, NOBODY)
    if os.fork() != 0:
        os._exit(0)
    _raise_on_error(_LIBC.mount(None, b"/", None, ctypes.c_ulong(seccomp.PRIVATE), None), "making mounts private")
    kept = [(path, os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in _find_mounts_below(OWN)]
    for place in OWN:
        _mount_tmpfs(place, seccomp.WRITABLE, f"size={limits.tmp_bytes},nr_inodes={INODES},mode=700")
    for path, descriptor in kept:
        _mount_again(path, descriptor)
        os.close(descriptor)
    # Covered: bubblewrap covers parts of its own /proc, so that the kernel allows no fresh one below it.
    _mount_tmpfs("/proc", seccomp.COVER, "size=4096,nr_inodes=1,mode=555")
    os.chdir(OWN[0])


def _write(path: str, text: bytes) -> None:
    # Bytes: a text file would import its codec first, in every worker anew.
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text)
    finally:
        os.close(descriptor)


def _find_mounts_below(places: tuple[str, ...]) -> list[Path]:
    """Return what is mounted by name below folders that are about to be covered."""
    points = {row.split()[4] for row in Path("/proc/self/mountinfo").read_bytes().splitlines()}
    below = tuple(f"{place}/".encode() for place in places)
    return sorted(decode_mount_point(point) for point in points if point.startswith(below))


def decode_mount_point(point: bytes) -> Path:
    """Return the path that /proc/self/mountinfo writes so: it escapes a blank."""
    return Path(os.fsdecode(_ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), point)))


def _mount_again(path: Path, descriptor: int) -> None:
    """Mount what was opened before it was covered, at the same place; it stays read-only if it was."""
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        path.mkdir(parents=True, exist_ok=True)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(exist_ok=True)
    source = f"/proc/self/fd/{descriptor}".encode()
    _raise_on_error(_LIBC.mount(source, os.fsencode(path), None, ctypes.c_ulong(seccomp.BIND), None), f"keeping {path}")


def _mount_tmpfs(place: str, flags: int, options: str) -> None:
    code = _LIBC.mount(b"tmpfs", place.encode(), b"tmpfs", ctypes.c_ulong(flags), options.encode())
    _raise_on_error(code, f"a tmpfs on {place}")


def rlimits(limits: SandboxLimits, *, memory: bool) -> None:
    """Limit this process and its children; `memory` too, where no cgroup does it.

    Then the address space of each process may grow by so much: what the imports have mapped is there before.
    """
    _set_limit(resource.RLIMIT_CORE, 0)
    _set_limit(resource.RLIMIT_FSIZE, limits.file_bytes)
    _set_limit(resource.RLIMIT_NOFILE, limits.open_files)
    _set_limit(resource.RLIMIT_MEMLOCK, 0)
    _set_limit(resource.RLIMIT_MSGQUEUE, 0)
    if memory:
        pages = int(Path("/proc/self/statm").read_bytes().split()[0])
        _set_limit(resource.RLIMIT_AS, pages * resource.getpagesize() + limits.memory_bytes)


def _set_limit(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    lowest = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (lowest, lowest))


def settle(tier: Tier, limits: SandboxLimits, *, network: bool = False) -> None:
    """Take the last steps of a worker in its tier; after this it runs the environment.

    In `strict` a cgroup limits the memory, and the process is in namespaces of its own before this is called.
    """
    rlimits(limits, memory=tier is not Tier.STRICT)
    no_new_privileges()
    undumpable()
    if tier is Tier.STRICT:
        _set_limit(resource.RLIMIT_SIGPENDING, SIGNALS)
        drop_capabilities()
        load_filter(FilterUse.WORKER, network=network)


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def load_filter(use: FilterUse, *, network: bool = False) -> None:
    """Put every thread of this process, and all that it starts, under a seccomp filter; an OSError if that cannot be.

    Needs `no_new_privileges` first.
    """
    architecture = here()
    if architecture is None:
        raise OSError(errno.ENOSYS, "there is no seccomp filter for this machine's architecture")
    instructions = seccomp.program(architecture, use, network=network)
    given = _Program(len(instructions) // 8, instructions)
    number = seccomp.NUMBERS[architecture]["seccomp"]
    code = _LIBC.syscall(number, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, ctypes.byref(given))
    if code < 0:
        raise OSError(ctypes.get_errno(), "the kernel refuses the seccomp filter")
    if code > 0:
        raise OSError(errno.EBUSY, "a thread has another seccomp filter")
