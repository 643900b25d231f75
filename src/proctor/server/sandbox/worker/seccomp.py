"""The seccomp filters of workers and zygotes: which system calls they may make, as classic BPF programs.

Rule 1: what is not allowed by name is refused. Refusing is EPERM, or ENOSYS where a library then takes another way
    (`clone3`, and whatever is newer than our table); the few calls that only an attack makes end the process.
Rule 2: the architecture is checked first; a foreign one, and the x32 calls of x86_64, end the process.
Rule 3: a zygote, in which an environment is imported, may make the calls of a worker and those by which its workers are
    confined: with the very arguments that they need, where the filter can see them.
Rule 4: all of this is pure; `confine.load_filter` touches the process, and nothing takes a filter back.

The list is what CPython, NumPy, Numba and PyTorch on a CPU need, with threads, subprocesses and files in a tmpfs.
"""

import errno
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from itertools import pairwise
from platform import machine
from typing import Final

from proctor.server.sandbox.tiers import NOBODY


class Architecture(StrEnum):
    """The architectures that the filter knows, by the names that `uname -m` prints."""

    X86_64 = "x86_64"
    AARCH64 = "aarch64"


def here() -> Architecture | None:
    """Return this machine's architecture, None for one without a table."""
    return next((each for each in Architecture if each == machine()), None)


_OF_BOTH: Final = """
    pidfd_send_signal=424 io_uring_setup=425 io_uring_enter=426 io_uring_register=427 open_tree=428 move_mount=429
    fsopen=430 fsconfig=431 fsmount=432 fspick=433 pidfd_open=434 clone3=435 close_range=436 openat2=437
    pidfd_getfd=438 faccessat2=439 process_madvise=440 epoll_pwait2=441 mount_setattr=442 quotactl_fd=443
    memfd_secret=447 process_mrelease=448 futex_waitv=449 fchmodat2=452 futex_wake=454 futex_wait=455
    futex_requeue=456
"""
_TABLES: Final = {
    Architecture.X86_64: """
    read=0 write=1 open=2 close=3 stat=4 fstat=5 lstat=6 poll=7 lseek=8 mmap=9 mprotect=10 munmap=11 brk=12
    rt_sigaction=13 rt_sigprocmask=14 rt_sigreturn=15 ioctl=16 pread64=17 pwrite64=18 readv=19 writev=20 access=21
    pipe=22 select=23 sched_yield=24 mremap=25 msync=26 mincore=27 madvise=28 shmget=29 shmat=30 dup=32 dup2=33
    pause=34 nanosleep=35 getitimer=36 alarm=37 setitimer=38 getpid=39 sendfile=40 socket=41 connect=42 accept=43
    sendto=44 recvfrom=45 sendmsg=46 recvmsg=47 shutdown=48 bind=49 listen=50 getsockname=51 getpeername=52
    socketpair=53 setsockopt=54 getsockopt=55 clone=56 fork=57 vfork=58 execve=59 exit=60 wait4=61 kill=62 uname=63
    semget=64 msgget=68 fcntl=72 flock=73 fsync=74 fdatasync=75 truncate=76 ftruncate=77 getdents=78 getcwd=79
    chdir=80 fchdir=81 rename=82 mkdir=83 rmdir=84 creat=85 link=86 unlink=87 symlink=88 readlink=89 chmod=90
    fchmod=91 chown=92 fchown=93 lchown=94 umask=95 gettimeofday=96 getrlimit=97 getrusage=98 sysinfo=99 times=100
    ptrace=101 getuid=102 syslog=103 getgid=104 setuid=105 setgid=106 geteuid=107 getegid=108 setpgid=109
    getppid=110 getpgrp=111 setsid=112 setreuid=113 setregid=114 getgroups=115 setgroups=116 setresuid=117
    getresuid=118 setresgid=119 getresgid=120 getpgid=121 setfsuid=122 setfsgid=123 getsid=124 capget=125 capset=126
    rt_sigpending=127 rt_sigtimedwait=128 rt_sigqueueinfo=129 rt_sigsuspend=130 sigaltstack=131 utime=132 mknod=133
    uselib=134 personality=135 ustat=136 statfs=137 fstatfs=138 sysfs=139 getpriority=140 setpriority=141
    sched_setparam=142 sched_getparam=143 sched_setscheduler=144 sched_getscheduler=145 sched_get_priority_max=146
    sched_get_priority_min=147 sched_rr_get_interval=148 mlock=149 munlock=150 mlockall=151 munlockall=152
    vhangup=153 modify_ldt=154 pivot_root=155 _sysctl=156 prctl=157 arch_prctl=158 adjtimex=159 setrlimit=160
    chroot=161 sync=162 acct=163 settimeofday=164 mount=165 umount2=166 swapon=167 swapoff=168 reboot=169
    sethostname=170 setdomainname=171 iopl=172 ioperm=173 init_module=175 delete_module=176 quotactl=179
    nfsservctl=180 gettid=186 readahead=187 setxattr=188 lsetxattr=189 fsetxattr=190 getxattr=191 lgetxattr=192
    fgetxattr=193 listxattr=194 llistxattr=195 flistxattr=196 tkill=200 time=201 futex=202 sched_setaffinity=203
    sched_getaffinity=204 io_setup=206 io_submit=209 lookup_dcookie=212 epoll_create=213 getdents64=217
    set_tid_address=218 restart_syscall=219 fadvise64=221 timer_create=222 timer_settime=223 timer_gettime=224
    timer_getoverrun=225 timer_delete=226 clock_settime=227 clock_gettime=228 clock_getres=229 clock_nanosleep=230
    exit_group=231 epoll_wait=232 epoll_ctl=233 tgkill=234 utimes=235 mbind=237 set_mempolicy=238 get_mempolicy=239
    mq_open=240 kexec_load=246 waitid=247 add_key=248 request_key=249 keyctl=250 ioprio_set=251 ioprio_get=252
    migrate_pages=256 openat=257 mkdirat=258 mknodat=259 fchownat=260 futimesat=261 newfstatat=262 unlinkat=263
    renameat=264 linkat=265 symlinkat=266 readlinkat=267 fchmodat=268 faccessat=269 pselect6=270 ppoll=271
    unshare=272 set_robust_list=273 get_robust_list=274 splice=275 tee=276 sync_file_range=277 move_pages=279
    utimensat=280 epoll_pwait=281 signalfd=282 timerfd_create=283 eventfd=284 fallocate=285 timerfd_settime=286
    timerfd_gettime=287 accept4=288 signalfd4=289 eventfd2=290 epoll_create1=291 dup3=292 pipe2=293 preadv=295
    pwritev=296 rt_tgsigqueueinfo=297 perf_event_open=298 recvmmsg=299 fanotify_init=300 fanotify_mark=301
    prlimit64=302 name_to_handle_at=303 open_by_handle_at=304 clock_adjtime=305 syncfs=306 sendmmsg=307 setns=308
    getcpu=309 process_vm_readv=310 process_vm_writev=311 kcmp=312 finit_module=313 sched_setattr=314
    sched_getattr=315 renameat2=316 seccomp=317 getrandom=318 memfd_create=319 kexec_file_load=320 bpf=321
    execveat=322 userfaultfd=323 membarrier=324 mlock2=325 copy_file_range=326 preadv2=327 pwritev2=328 statx=332
    rseq=334
""",
    Architecture.AARCH64: """
    io_setup=0 io_submit=2 setxattr=5 lsetxattr=6 fsetxattr=7 getxattr=8 lgetxattr=9 fgetxattr=10 listxattr=11
    llistxattr=12 flistxattr=13 getcwd=17 lookup_dcookie=18 eventfd2=19 epoll_create1=20 epoll_ctl=21 epoll_pwait=22
    dup=23 dup3=24 fcntl=25 ioctl=29 ioprio_set=30 ioprio_get=31 flock=32 mknodat=33 mkdirat=34 unlinkat=35
    symlinkat=36 linkat=37 renameat=38 umount2=39 mount=40 pivot_root=41 nfsservctl=42 statfs=43 fstatfs=44
    truncate=45 ftruncate=46 fallocate=47 faccessat=48 chdir=49 fchdir=50 chroot=51 fchmod=52 fchmodat=53
    fchownat=54 fchown=55 openat=56 close=57 vhangup=58 pipe2=59 quotactl=60 getdents64=61 lseek=62 read=63 write=64
    readv=65 writev=66 pread64=67 pwrite64=68 preadv=69 pwritev=70 sendfile=71 pselect6=72 ppoll=73 signalfd4=74
    splice=76 tee=77 readlinkat=78 newfstatat=79 fstat=80 sync=81 fsync=82 fdatasync=83 sync_file_range=84
    timerfd_create=85 timerfd_settime=86 timerfd_gettime=87 utimensat=88 acct=89 capget=90 capset=91 personality=92
    exit=93 exit_group=94 waitid=95 set_tid_address=96 unshare=97 futex=98 set_robust_list=99 get_robust_list=100
    nanosleep=101 getitimer=102 setitimer=103 kexec_load=104 init_module=105 delete_module=106 timer_create=107
    timer_gettime=108 timer_getoverrun=109 timer_settime=110 timer_delete=111 clock_settime=112 clock_gettime=113
    clock_getres=114 clock_nanosleep=115 syslog=116 ptrace=117 sched_setparam=118 sched_setscheduler=119
    sched_getscheduler=120 sched_getparam=121 sched_setaffinity=122 sched_getaffinity=123 sched_yield=124
    sched_get_priority_max=125 sched_get_priority_min=126 sched_rr_get_interval=127 restart_syscall=128 kill=129
    tkill=130 tgkill=131 sigaltstack=132 rt_sigsuspend=133 rt_sigaction=134 rt_sigprocmask=135 rt_sigpending=136
    rt_sigtimedwait=137 rt_sigqueueinfo=138 rt_sigreturn=139 setpriority=140 getpriority=141 reboot=142 setregid=143
    setgid=144 setreuid=145 setuid=146 setresuid=147 getresuid=148 setresgid=149 getresgid=150 setfsuid=151
    setfsgid=152 times=153 setpgid=154 getpgid=155 getsid=156 setsid=157 getgroups=158 setgroups=159 uname=160
    sethostname=161 setdomainname=162 getrlimit=163 setrlimit=164 getrusage=165 umask=166 prctl=167 getcpu=168
    gettimeofday=169 settimeofday=170 adjtimex=171 getpid=172 getppid=173 getuid=174 geteuid=175 getgid=176
    getegid=177 gettid=178 sysinfo=179 mq_open=180 msgget=186 semget=190 shmget=194 shmat=196 socket=198
    socketpair=199 bind=200 listen=201 accept=202 connect=203 getsockname=204 getpeername=205 sendto=206
    recvfrom=207 setsockopt=208 getsockopt=209 shutdown=210 sendmsg=211 recvmsg=212 readahead=213 brk=214 munmap=215
    mremap=216 add_key=217 request_key=218 keyctl=219 clone=220 execve=221 mmap=222 fadvise64=223 swapon=224
    swapoff=225 mprotect=226 msync=227 mlock=228 munlock=229 mlockall=230 munlockall=231 mincore=232 madvise=233
    mbind=235 get_mempolicy=236 set_mempolicy=237 migrate_pages=238 move_pages=239 rt_tgsigqueueinfo=240
    perf_event_open=241 accept4=242 recvmmsg=243 wait4=260 prlimit64=261 fanotify_init=262 fanotify_mark=263
    name_to_handle_at=264 open_by_handle_at=265 clock_adjtime=266 syncfs=267 setns=268 sendmmsg=269
    process_vm_readv=270 process_vm_writev=271 kcmp=272 finit_module=273 sched_setattr=274 sched_getattr=275
    renameat2=276 seccomp=277 getrandom=278 memfd_create=279 bpf=280 execveat=281 userfaultfd=282 membarrier=283
    mlock2=284 copy_file_range=285 preadv2=286 pwritev2=287 statx=291 rseq=293 kexec_file_load=294
""",
}
NUMBERS: Final = {
    architecture: {name: int(number) for name, number in (entry.split("=") for entry in (own + _OF_BOTH).split())}
    for architecture, own in _TABLES.items()
}
"""A call that an architecture does not have is not in its table."""

NEWEST: Final = 466
"""The highest number that is known here; what came later is answered as by a kernel that does not have it."""

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


Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false, constant."""
LOAD, RETURN, IF_EQUAL, IF_AT_LEAST, IF_ANY_BIT = 0x20, 0x06, 0x15, 0x35, 0x45
Body = tuple[Instruction, ...]


def _check_argument(check: ArgumentCheck) -> Body:
    """Return the instructions that look at an argument and end with a verdict."""
    load = (LOAD, 0, 0, 16 + 8 * check.argument)
    if isinstance(check, Without):
        return (load, (IF_ANY_BIT, 0, 1, check.bits), (RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW))
    count = len(check.values)
    rows = ((IF_EQUAL, count - place, 0, value) for place, value in enumerate(check.values))
    return (load, *rows, (RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW))


def _bodies(architecture: Architecture, use: FilterUse, network: bool) -> dict[int, Body]:
    """Return what is done for each number that is not simply refused."""
    numbers = NUMBERS[architecture]
    families = OneOf(0, (UNIX, *INTERNET) if network else (UNIX,))
    bodies = {name: _check_argument(check) for name, check in (CHECKED | {"socket": families}).items()}
    for names, action in ((ALLOWED, ALLOW), (KILLED, KILL), (AS_IF_ABSENT, ABSENT)):
        bodies |= dict.fromkeys(names, ((RETURN, 0, 0, action),))
    bodies |= {name: _check_argument(check) for name, check in BESIDE[use].items()}
    return {numbers[name]: body for name, body in bodies.items() if name in numbers}


def _spans(bodies: dict[int, Body]) -> list[tuple[int, Body]]:
    """Return (first number, body) in order; a span goes on until the next one begins, the last one for ever."""
    refused = ((RETURN, 0, 0, REFUSE),)
    spans: list[tuple[int, Body]] = []
    for number in range(NEWEST + 1):
        body = bodies.get(number, refused)
        if not spans or spans[-1][1] != body:
            spans.append((number, body))
    return [*spans, (NEWEST + 1, ((RETURN, 0, 0, ABSENT),))]


def _lay_out(spans: Sequence[tuple[int, Body]]) -> Iterable[Instruction]:
    for (_, body), (following, _) in pairwise(spans):
        yield (IF_AT_LEAST, len(body), 0, following)
        yield from body
    yield from spans[-1][1]


@cache
def program(architecture: Architecture, use: FilterUse = FilterUse.WORKER, *, network: bool = False) -> bytes:
    """Return the filter for an architecture; `network` allows sockets other than those of the machine itself."""
    head = [(LOAD, 0, 0, 4), (IF_EQUAL, 1, 0, AUDIT[architecture]), (RETURN, 0, 0, KILL), (LOAD, 0, 0, 0)]
    if architecture is Architecture.X86_64:
        head += [(IF_AT_LEAST, 0, 1, X32_BIT), (RETURN, 0, 0, KILL)]
    return b"".join(
        struct.pack("=HBBI", *each) for each in (*head, *_lay_out(_spans(_bodies(architecture, use, network))))
    )
