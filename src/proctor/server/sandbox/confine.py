"""What a process does to itself before it runs an environment: each step takes something away for good.

Rule 1: system calls by ctypes alone; no environment, and nothing that is large, is imported here.
Rule 2: a step that fails is an OSError that names it. Nobody goes on with less than was asked for.
Rule 3: the order is `become_nobody` (the zygote, once), `own_namespaces` (a worker, strict only), `settle`.
"""

import ctypes
import errno
import os
import re
import resource
import signal
import stat
import struct
from pathlib import Path
from typing import Final

from proctor.server.sandbox import seccomp
from proctor.server.sandbox.syscalls import here
from proctor.server.sandbox.tiers import SandboxLimits, Tier

NOBODY: Final = 65534

CLONE_NEWNS: Final = 0x00020000
CLONE_NEWIPC: Final = 0x08000000
CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWPID: Final = 0x20000000
CLONE_NEWNET: Final = 0x40000000

MS_RDONLY: Final = 1
MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_NOEXEC: Final = 8
MS_BIND: Final = 0x1000
MS_REC: Final = 0x4000
MS_PRIVATE: Final = 0x40000

PR_SET_PDEATHSIG: Final = 1
PR_SET_DUMPABLE: Final = 4
PR_CAPBSET_DROP: Final = 24
PR_SET_CHILD_SUBREAPER: Final = 36
PR_SET_NO_NEW_PRIVS: Final = 38
PR_CAP_AMBIENT: Final = 47
PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
CAPABILITY_VERSION_3: Final = 0x20080522
MOST_CAPABILITIES: Final = 64

INODES: Final = 16384
"""Files in one tmpfs: each takes memory of the kernel, however small it is."""

OWN: Final = ("/tmp", "/dev/shm")  # noqa: S108 - a tmpfs of the process's own is mounted on each
_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")
"""How /proc/self/mountinfo writes a blank in a path."""

_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def _done(code: int, what: str) -> None:
    if code != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _prctl(option: int, *values: int) -> int:
    # All are passed as 64 bits: the kernel refuses some options if the unused arguments are not zero.
    padded = (*values, 0, 0, 0, 0)[:4]
    return int(_LIBC.prctl(ctypes.c_int(option), *map(ctypes.c_ulong, padded)))


def die_with_parent() -> None:
    """Get SIGKILL when the thread that started this process ends."""
    _done(_prctl(PR_SET_PDEATHSIG, signal.SIGKILL), "PR_SET_PDEATHSIG")


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends: a zygote reaps the workers that `own_namespaces` leaves."""
    _done(_prctl(PR_SET_CHILD_SUBREAPER, 1), "PR_SET_CHILD_SUBREAPER")


def undumpable() -> None:
    """Let no other process of the same user trace this one or read its memory."""
    _done(_prctl(PR_SET_DUMPABLE, 0), "PR_SET_DUMPABLE")


def no_new_privileges() -> None:
    """Let no program that this process starts gain rights by its set-uid bits."""
    _done(_prctl(PR_SET_NO_NEW_PRIVS, 1), "PR_SET_NO_NEW_PRIVS")


def become_nobody() -> None:
    """Become uid and gid 65534 without groups and capabilities; only a process that is root can change who it is."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    drop_capabilities()


def drop_capabilities() -> None:
    """Give up every capability: effective, permitted, inheritable, ambient, and the bounding set where that is allowed."""
    for capability in range(MOST_CAPABILITIES):
        # Without CAP_SETPCAP it stays; with no_new_privileges there is no way left to use it.
        if _prctl(PR_CAPBSET_DROP, capability) != 0:
            break
    _prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = struct.pack("=Ii", CAPABILITY_VERSION_3, 0)
    _done(_LIBC.capset(header, bytes(24)), "capset")


def own_namespaces(limits: SandboxLimits, *, network: bool = True) -> None:
    """Return in a new process that is pid 1 of a pid namespace of its own, with user, ipc and mount namespaces.

    Without `network` it has an empty network namespace, too: workers of one sandbox share abstract sockets otherwise.

    The calling process ends here; the new one is a child of the nearest subreaper (`adopt_orphans`) or init. /tmp and
    /dev/shm are its own; /proc is empty.
    """
    uid, gid = os.getuid(), os.getgid()
    # The kernel gives a process that once changed its user no right to write its own maps until it is dumpable again.
    _done(_prctl(PR_SET_DUMPABLE, 1), "PR_SET_DUMPABLE")
    flags = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWNS | (0 if network else CLONE_NEWNET)
    _done(_LIBC.unshare(ctypes.c_int(flags)), "namespaces of its own")
    _write("/proc/self/setgroups", b"deny")
    _write("/proc/self/uid_map", b"%d %d 1" % (uid, uid))
    _write("/proc/self/gid_map", b"%d %d 1" % (gid, gid))
    if os.fork() != 0:
        os._exit(0)
    _done(_LIBC.mount(None, b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None), "making mounts private")
    _own_folders(limits)
    _hide_processes()
    os.chdir(OWN[0])


def _write(path: str, text: bytes) -> None:
    # Bytes: a text file would import its codec first, in every worker anew.
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text)
    finally:
        os.close(descriptor)


def _own_folders(limits: SandboxLimits) -> None:
    kept = [(path, os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in _mounted_below(OWN)]
    for place in OWN:
        _tmpfs(place, MS_NOSUID | MS_NODEV, f"size={limits.tmp_bytes},nr_inodes={INODES},mode=700")
    for path, descriptor in kept:
        _bound_again(path, descriptor)
        os.close(descriptor)


def _mounted_below(places: tuple[str, ...]) -> list[Path]:
    """Return what is mounted by name below folders that are about to be covered."""
    points = {row.split()[4] for row in Path("/proc/self/mountinfo").read_bytes().splitlines()}
    below = tuple(f"{place}/".encode() for place in places)
    return sorted(_plain(point) for point in points if point.startswith(below))


def _plain(point: bytes) -> Path:
    return Path(os.fsdecode(_ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), point)))


def _bound_again(path: Path, descriptor: int) -> None:
    """Mount what was opened before it was covered, at the same place; it stays read-only if it was."""
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        path.mkdir(parents=True, exist_ok=True)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(exist_ok=True)
    source = f"/proc/self/fd/{descriptor}".encode()
    _done(_LIBC.mount(source, os.fsencode(path), None, ctypes.c_ulong(MS_BIND), None), f"keeping {path}")


def _hide_processes() -> None:
    """Cover /proc. Bubblewrap covers parts of its own, so that the kernel allows no fresh one below it: there is none."""
    _tmpfs("/proc", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=4096,nr_inodes=1,mode=555")


def _tmpfs(place: str, flags: int, options: str) -> None:
    code = _LIBC.mount(b"tmpfs", place.encode(), b"tmpfs", ctypes.c_ulong(flags), options.encode())
    _done(code, f"a tmpfs on {place}")


def rlimits(limits: SandboxLimits, *, memory: bool) -> None:
    """Limit this process and its children; `memory` too, where no cgroup does it.

    Then the address space of each process may grow by so much: what the imports have mapped is there before.
    """
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, limits.file_bytes)
    _limit(resource.RLIMIT_NOFILE, limits.open_files)
    _limit(resource.RLIMIT_MEMLOCK, 0)
    _limit(resource.RLIMIT_MSGQUEUE, 0)
    if memory:
        _limit(resource.RLIMIT_AS, _mapped_bytes() + limits.memory_bytes)


def _limit(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    lowest = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (lowest, lowest))


def _mapped_bytes() -> int:
    """Return how much address space this process has."""
    return int(Path("/proc/self/statm").read_bytes().split()[0]) * resource.getpagesize()


def settle(tier: Tier, limits: SandboxLimits, *, network: bool = False) -> None:
    """Take the last steps of a worker in its tier; after this it runs the environment.

    In `strict` a cgroup limits the memory, and the process is in namespaces of its own before this is called.
    """
    rlimits(limits, memory=tier is not Tier.STRICT)
    no_new_privileges()
    undumpable()
    if tier is Tier.STRICT:
        drop_capabilities()
        _filter(network)


def _filter(network: bool) -> None:
    architecture = here()
    if architecture is None:
        raise OSError(errno.ENOSYS, "there is no seccomp filter for this machine's architecture")
    seccomp.load(seccomp.program(architecture, network=network))
