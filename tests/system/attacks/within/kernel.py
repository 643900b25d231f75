"""System calls that an environment does not need, and that have let others out before."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from functools import partial
from pathlib import Path

from tests.system.attacks.within.tries import LIBC, Tries, called, checked, inside, syscall

KEY = 0x50524F43
NEEDLESS: dict[str, tuple[int, ...]] = {
    "io_uring_setup": (8, 0), "io_setup": (1, 0), "bpf": (0, 0, 0), "perf_event_open": (0, 0, -1, -1, 0), "userfaultfd": (0,),
    "add_key": (0, 0, 0, 0, -3), "request_key": (0, 0, 0, -3), "keyctl": (0, -3, 1), "kexec_load": (0, 0, 0, 0), "init_module": (0, 0, 0),
    "delete_module": (0, 0), "quotactl": (0, 0, 0, 0), "acct": (0,), "swapon": (0, 0), "reboot": (0xFEE1DEAD, 672274793, 0),
    "settimeofday": (0, 0), "clock_settime": (0, 0), "adjtimex": (0,), "sethostname": (0, 0), "setdomainname": (0, 0),
    "fanotify_init": (0, 0), "kcmp": (1, 1, 0, 0, 0), "ioperm": (0, 1, 1), "iopl": (3,), "syslog": (3, 0, 0), "vhangup": (),
    "lookup_dcookie": (0, 0, 0), "nfsservctl": (0, 0, 0), "modify_ldt": (0, 0, 0), "uselib": (0,), "migrate_pages": (0, 0, 0, 0),
    "move_pages": (0, 0, 0, 0, 0, 0), "mbind": (0, 0, 0, 0, 0, 0), "set_mempolicy": (0, 0, 0), "memfd_secret": (0,),
    "process_mrelease": (0, 0), "seccomp": (1, 8, 0), "ioprio_set": (1, 0, 0), "finit_module": (0, 0, 0),
}  # fmt: skip


@inside
def needless_calls(tries: Tries) -> None:
    """Make the calls that no environment needs: io_uring, bpf, perf, userfaultfd, keys, modules, clocks, names, reboot."""
    for name, arguments in NEEDLESS.items():
        tries.in_child(name, partial(syscall, name, *arguments))


@inside
def other_architectures(tries: Tries) -> None:
    """Make system calls by other numbers: those of 32 bits (int 0x80) and those of x32, which a filter may have forgotten."""
    if os.uname().machine != "x86_64":
        tries.held("other numbers", True, "this machine has none")
        return
    tries.in_child("x32", lambda: checked(LIBC.syscall(ctypes.c_long(0x40000000 | 39))))
    tries.in_child("32 bits", _in_32_bits)


def _in_32_bits() -> None:
    """Ask for the process's number as a program of 32 bits would: mov eax, 20; int 0x80; ret."""
    with mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as page:
        page.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
        start = ctypes.addressof(ctypes.c_char.from_buffer(page))
        if ctypes.CFUNCTYPE(ctypes.c_int)(start)() <= 0:
            raise PermissionError(1, "refused")


@inside
def shared_memory(tries: Tries) -> None:
    """Meet the session next door in memory: System V segments, queues and semaphores, POSIX queues, /dev/shm."""
    tries.in_child("shmget", partial(syscall, "shmget", KEY, 4096, 0o1666))
    tries.in_child("msgget", partial(syscall, "msgget", KEY, 0o1666))
    tries.in_child("semget", partial(syscall, "semget", KEY, 1, 0o1666))
    tries.in_child("mq_open", partial(syscall, "mq_open", ctypes.create_string_buffer(b"meeting"), 0o102, 0o666, None))
    # Where Python or Proctor itself lies below /tmp, that is mounted there by name.
    mounted = {Path(path).parts[2] for path in (sys.prefix, *sys.path) if path.startswith("/tmp/")}
    found = [name for folder in ("/dev/shm", "/tmp", "/dev/mqueue") for name in _listed(folder) if name not in mounted]
    tries.held("what others left in the folders", not found, str(found[:5]))
    for folder in ("/dev/shm", "/tmp"):
        with open(f"{folder}/left-{os.urandom(4).hex()}", "w") as file:  # noqa: PTH123
            file.write("for the next one")
    tries.held("what is left there for the next one", True, "the next one looks for it")


def _listed(folder: str) -> list[str]:
    try:
        return [path.name for path in Path(folder).iterdir()]
    except OSError:
        return []


@inside
def places_in_memory(tries: Tries) -> None:
    """Have addresses no longer chosen at random, map page zero, and lock all memory."""
    for name, value in (
        ("ADDR_NO_RANDOMIZE", 0x0040000),
        ("READ_IMPLIES_EXEC", 0x0400000),
        ("PER_LINUX32", 0x0008),
        ("MMAP_PAGE_ZERO", 0x0100000),
    ):
        tries.in_child(f"personality {name}", partial(called, "personality", ctypes.c_ulong(value)))
    tries.in_child("page zero", _page_zero)
    tries.in_child("mlockall", partial(called, "mlockall", 3))


def _page_zero() -> None:
    fixed, anonymous = 0x10, 0x20
    LIBC.mmap.restype = ctypes.c_long
    checked(LIBC.mmap(ctypes.c_void_p(0), ctypes.c_size_t(4096), 3, 2 | fixed | anonymous, -1, ctypes.c_long(0)))


@inside
def a_call_that_ends_the_worker(tries: Tries) -> None:
    """Load a program into the kernel from the worker itself."""
    syscall("bpf", 5, 0, 0)
    tries.reached.append("bpf: it worked")
