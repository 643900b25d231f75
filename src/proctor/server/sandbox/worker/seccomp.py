"""The seccomp filters of workers and zygotes: which system calls they may make, as classic BPF programs.

Rule 1: what is not allowed by name is refused. Refusing is EPERM, or ENOSYS where a library then takes another way
    (`clone3`, and whatever is newer than our table); the few calls that only an attack makes end the process.
Rule 2: the architecture is checked first; a foreign one, and the x32 calls of x86_64, end the process.
Rule 3: a zygote, in which an environment is imported, may make the calls of a worker and those by which its workers are
    confined: with the very arguments that they need, where the filter can see them.
Rule 4: `program` is pure; only `load` touches the process, and nothing takes a filter back.

The list is what CPython, NumPy, Numba and PyTorch on a CPU need, with threads, subprocesses and files in a tmpfs.
"""

import ctypes
import errno
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from itertools import pairwise
from typing import Final

from proctor.errors import ValidationError
from proctor.server.sandbox.tiers import NOBODY
from proctor.server.sandbox.worker.syscalls import NEWEST, NUMBERS, Architecture, here

KILL: Final = 0x80000000
ALLOW: Final = 0x7FFF0000
_ERRNO: Final = 0x00050000
REFUSE: Final = _ERRNO | errno.EPERM
ABSENT: Final = _ERRNO | errno.ENOSYS

AUDIT: Final = {Architecture.X86_64: 0xC000003E, Architecture.AARCH64: 0xC00000B7}
X32_BIT: Final = 0x40000000


def _split_names(text: str) -> frozenset[str]:
    return frozenset(text.split())


ALLOWED: Final = _split_names("""
    read write open close stat fstat lstat lseek pread64 pwrite64 readv writev preadv pwritev preadv2 pwritev2
    access faccessat faccessat2 openat creat truncate ftruncate rename renameat renameat2 mkdir mkdirat rmdir unlink
    unlinkat link linkat symlink symlinkat readlink readlinkat chmod fchmod fchmodat fchmodat2 umask utime utimes
    futimesat utimensat getdents getdents64 getcwd chdir fchdir statx newfstatat statfs fstatfs fsync fdatasync
    sync_file_range fallocate fadvise64 flock fcntl dup dup2 dup3 pipe pipe2 sendfile copy_file_range splice tee
    readahead close_range getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr

    mmap mprotect munmap mremap msync mincore madvise brk mlock munlock mlock2 mlockall munlockall get_mempolicy
    memfd_create membarrier rseq set_robust_list get_robust_list futex futex_waitv futex_wake futex_wait
    futex_requeue

    sched_yield sched_getaffinity sched_setaffinity sched_getparam sched_getscheduler sched_get_priority_max
    sched_get_priority_min sched_rr_get_interval sched_getattr getpriority setpriority ioprio_get getcpu

    fork vfork execve execveat exit exit_group wait4 waitid kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo
    pidfd_open pidfd_send_signal getpid getppid gettid getpgid getpgrp setpgid getsid setsid getuid geteuid getgid
    getegid getresuid getresgid getgroups uname sysinfo times getrusage getrlimit setrlimit prlimit64 capget
    arch_prctl set_tid_address restart_syscall rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending
    rt_sigtimedwait rt_sigsuspend sigaltstack

    clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time timer_create timer_settime timer_gettime
    timer_getoverrun timer_delete timerfd_create timerfd_settime timerfd_gettime getitimer setitimer alarm pause
    getrandom

    poll select pselect6 ppoll epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd
    eventfd2 signalfd signalfd4

    connect accept accept4 bind listen sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg shutdown getsockname
    getpeername setsockopt getsockopt
""")

KILLED: Final = _split_names("""
    ptrace process_vm_readv process_vm_writev pidfd_getfd kexec_load kexec_file_load bpf init_module finit_module
    delete_module mount umount2 pivot_root move_mount open_tree fsopen fsconfig fsmount fspick mount_setattr setns
    open_by_handle_at reboot swapon swapoff iopl ioperm
""")
"""Nothing tries these to find out what there is; all that is neither here nor allowed is merely refused."""

AS_IF_ABSENT: Final = frozenset(("clone3", "openat2"))
"""libc takes the older call instead, whose arguments can be seen; a filter cannot look into a struct."""

NAMESPACES: Final = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET."""


@dataclass(frozen=True, slots=True)
class OneOf:
    """Allowed if an argument's lower 32 bits, all that the kernel reads of it, are one of some values."""

    argument: int
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Without:
    """Allowed if none of the bits is set in an argument's lower 32 bits."""

    argument: int
    bits: int


ArgumentCheck = OneOf | Without

UNIX: Final = 1
INTERNET: Final = (2, 10, 16)
"""AF_INET, AF_INET6, and AF_NETLINK, by which libc asks for addresses."""

# SET_PDEATHSIG, GET_PDEATHSIG, GET_DUMPABLE, SET_NAME, GET_NAME, GET_SECCOMP, CAPBSET_READ, SET_TIMERSLACK,
# GET_TIMERSLACK, SET_NO_NEW_PRIVS, GET_NO_NEW_PRIVS, SET_THP_DISABLE, GET_THP_DISABLE, SVE_GET_VL,
# SET_TAGGED_ADDR_CTRL, GET_TAGGED_ADDR_CTRL, SET_VMA (a mapping's name).
PRCTL: Final = (1, 2, 3, 15, 16, 21, 23, 29, 30, 38, 39, 41, 42, 51, 55, 56, 0x53564D41)
CHECKED: Final[dict[str, ArgumentCheck]] = {
    "clone": Without(0, NAMESPACES),
    "socketpair": OneOf(0, (UNIX,)),
    # 0xFFFFFFFF asks which one it is; 0 is the plain one.
    "personality": OneOf(0, (0, 0xFFFFFFFF)),
    # TCGETS, FIONREAD, TIOCGWINSZ, FIONBIO, FIONCLEX, FIOCLEX, TCGETS2: what files and pipes are asked. Not TIOCSTI.
    "ioctl": OneOf(1, (0x5401, 0x541B, 0x5413, 0x5421, 0x5450, 0x5451, 0x802C542A)),
    "prctl": OneOf(0, PRCTL),
}


CLONE_NEWNS: Final = 0x00020000
CLONE_NEWIPC: Final = 0x08000000
CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWPID: Final = 0x20000000
CLONE_NEWNET: Final = 0x40000000
WORKER_NAMESPACES: Final = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWNS
"""What a strict worker has of its own."""
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REC = 1, 2, 4, 8, 0x4000
PRIVATE: Final = _REC | 0x40000
BIND: Final = 0x1000
WRITABLE: Final = _NOSUID | _NODEV
COVER: Final = _RDONLY | _NOSUID | _NODEV | _NOEXEC
"""How a strict worker mounts: what it inherits, what stays visible, what it may write to, and what it is not to see."""


class FilterUse(StrEnum):
    """Whom a filter is for; what a worker has on top of its zygote's filter is its own."""

    WORKER = "worker"
    SHARED = "shared"
    """A zygote whose workers have no filter but its own."""
    ALONE = "alone"
    """A zygote whose one worker takes a filter of its own, and no namespaces."""
    ZYGOTE = "zygote"
    """A zygote whose workers take namespaces and a filter of their own."""


# SET_DUMPABLE; then CAPBSET_DROP and CAP_AMBIENT, too.
_UNDUMPABLE: Final = OneOf(0, (*PRCTL, 4))
_UNPRIVILEGED: Final = OneOf(0, (*PRCTL, 4, 24, 47))
# One flag, that all threads are meant: no listener, by which another process would answer for the kernel.
_FILTERING: Final[dict[str, ArgumentCheck]] = {
    "prctl": _UNPRIVILEGED,
    "seccomp": OneOf(1, (1,)),
    "capset": Without(0, 0),
}
BESIDE: Final[dict[FilterUse, dict[str, ArgumentCheck]]] = {
    FilterUse.WORKER: {},
    FilterUse.SHARED: {"prctl": _UNDUMPABLE},
    FilterUse.ALONE: _FILTERING,
    FilterUse.ZYGOTE: _FILTERING
    | {
        "unshare": OneOf(0, (WORKER_NAMESPACES,)),
        "mount": OneOf(3, (PRIVATE, BIND, WRITABLE, COVER)),
        "setresuid": OneOf(0, (NOBODY,)),
    },
}
"""What is allowed beside a worker's calls."""


class Instruction(tuple[int, int, int, int]):
    """One instruction: code, jump if true, jump if false, constant."""

    __slots__ = ()

    def pack(self) -> bytes:
        """Return it as the kernel reads it."""
        return struct.pack("=HBBI", *self)


def _load_word(offset: int) -> Instruction:
    return Instruction((0x20, 0, 0, offset))


def _return_action(action: int) -> Instruction:
    return Instruction((0x06, 0, 0, action))


def _if_equal(value: int, yes: int, no: int) -> Instruction:
    return Instruction((0x15, yes, no, value))


def _if_at_least(value: int, yes: int, no: int) -> Instruction:
    return Instruction((0x35, yes, no, value))


def _if_any_bit(bits: int, yes: int, no: int) -> Instruction:
    return Instruction((0x45, yes, no, bits))


Body = tuple[Instruction, ...]


def _check_argument(check: ArgumentCheck) -> Body:
    """Return the instructions that look at an argument and end with a verdict."""
    load = _load_word(16 + 8 * check.argument)
    if isinstance(check, Without):
        return (load, _if_any_bit(check.bits, 0, 1), _return_action(REFUSE), _return_action(ALLOW))
    count = len(check.values)
    rows = (_if_equal(value, count - place, 0) for place, value in enumerate(check.values))
    return (load, *rows, _return_action(REFUSE), _return_action(ALLOW))


def _bodies(architecture: Architecture, use: FilterUse, network: bool) -> dict[int, Body]:
    """Return what is done for each number that is not simply refused."""
    numbers = NUMBERS[architecture]
    families = OneOf(0, (UNIX, *INTERNET) if network else (UNIX,))
    bodies = {name: _check_argument(check) for name, check in (CHECKED | {"socket": families}).items()}
    for names, action in ((ALLOWED, ALLOW), (KILLED, KILL), (AS_IF_ABSENT, ABSENT)):
        bodies |= dict.fromkeys(names, (_return_action(action),))
    bodies |= {name: _check_argument(check) for name, check in BESIDE[use].items()}
    return {numbers[name]: body for name, body in bodies.items() if name in numbers}


def _spans(bodies: dict[int, Body]) -> list[tuple[int, Body]]:
    """Return (first number, body) in order; a span goes on until the next one begins, the last one for ever."""
    refused = (_return_action(REFUSE),)
    spans: list[tuple[int, Body]] = []
    for number in range(NEWEST + 1):
        body = bodies.get(number, refused)
        if not spans or spans[-1][1] != body:
            spans.append((number, body))
    return [*spans, (NEWEST + 1, (_return_action(ABSENT),))]


def _lay_out(spans: Sequence[tuple[int, Body]]) -> Iterable[Instruction]:
    for (_, body), (following, _) in pairwise(spans):
        yield _if_at_least(following, len(body), 0)
        yield from body
    yield from spans[-1][1]


@cache
def program(architecture: Architecture, use: FilterUse = FilterUse.WORKER, *, network: bool = False) -> bytes:
    """Return the filter for an architecture; `network` allows sockets other than those of the machine itself."""
    head = [
        _load_word(4),
        _if_equal(AUDIT[architecture], 1, 0),
        _return_action(KILL),
        _load_word(0),
    ]
    if architecture is Architecture.X86_64:
        head += [_if_at_least(X32_BIT, 0, 1), _return_action(KILL)]
    return b"".join(each.pack() for each in (*head, *_lay_out(_spans(_bodies(architecture, use, network)))))


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


SET_MODE_FILTER: Final = 1
ALL_THREADS: Final = 1
_SECCOMP_CALL: Final = {Architecture.X86_64: 317, Architecture.AARCH64: 277}


def load(filter_program: bytes) -> None:
    """Put every thread of this process under the filter, for good; an OSError if the kernel will not.

    Needs `no_new_privileges` first.
    """
    architecture = here()
    if architecture is None:
        raise ValidationError("there is no seccomp filter for this architecture", expected=" or ".join(Architecture))
    libc = ctypes.CDLL(None, use_errno=True)
    given = _Program(len(filter_program) // 8, filter_program)
    code = libc.syscall(_SECCOMP_CALL[architecture], SET_MODE_FILTER, ALL_THREADS, ctypes.byref(given))
    if code < 0:
        raise OSError(ctypes.get_errno(), "the kernel refuses the seccomp filter")
    if code > 0:
        raise OSError(errno.EBUSY, "a thread has another seccomp filter")
