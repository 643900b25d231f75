"""The seccomp filter's verdicts: by an interpreter of its program, and by the kernel."""

import errno
import json
import signal
import struct
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.server.sandbox.worker import seccomp

ARCHITECTURES = st.sampled_from(list(seccomp.Architecture))
WORDS = st.integers(0, 2**32 - 1)
LONGS = st.integers(0, 2**64 - 1)

MUST_NOT_WORK = """
    io_uring_setup io_uring_enter io_uring_register userfaultfd perf_event_open keyctl add_key request_key bpf unshare
    setns mount umount2 pivot_root chroot ptrace process_vm_readv process_vm_writev kcmp open_by_handle_at
    name_to_handle_at quotactl quotactl_fd reboot swapon swapoff acct settimeofday clock_settime adjtimex clock_adjtime
    init_module finit_module delete_module kexec_load kexec_file_load open_tree move_mount fsopen fsconfig fsmount
    fspick mount_setattr pidfd_getfd iopl ioperm modify_ldt syslog sethostname setdomainname fanotify_init mknod mknodat
    setuid setgid setresuid setresgid setgroups capset seccomp memfd_secret sync syncfs shmget msgget semget mq_open
    migrate_pages move_pages process_madvise sched_setscheduler clone3 lookup_dcookie nfsservctl
""".split()  # noqa: SIM905 - a table of words reads better than a list of quotes


def judged(
    architecture: seccomp.Architecture,
    name: str,
    *arguments: int,
    use: seccomp.FilterUse = seccomp.FilterUse.WORKER,
    network: bool = False,
) -> int | None:
    number = seccomp.NUMBERS[architecture].get(name)
    if number is None:
        return None
    return verdict(seccomp.program(architecture, use, network=network), seccomp.AUDIT[architecture], number, arguments)


@given(ARCHITECTURES, WORDS, st.lists(LONGS, max_size=6), st.booleans())
def test_what_is_not_in_the_table_is_never_allowed(
    architecture: seccomp.Architecture, number: int, arguments: list[int], network: bool
) -> None:
    allowed = {seccomp.NUMBERS[architecture].get(name) for name in (*seccomp.ALLOWED, *seccomp.CHECKED, "socket")}
    found = verdict(seccomp.program(architecture, network=network), seccomp.AUDIT[architecture], number, arguments)

    assert found != seccomp.ALLOW or number in allowed


@pytest.mark.parametrize("architecture", seccomp.Architecture)
def test_every_number_that_is_known_or_new_gets_the_verdict_of_its_name(architecture: seccomp.Architecture) -> None:
    names = {number: name for name, number in seccomp.NUMBERS[architecture].items()}
    for number in range(seccomp.NEWEST + 50):
        name = names.get(number, "")
        found = verdict(seccomp.program(architecture), seccomp.AUDIT[architecture], number, (2**64 - 1,) * 6)
        expected = {seccomp.ALLOWED: seccomp.ALLOW, seccomp.KILLED: seccomp.KILL, seccomp.AS_IF_ABSENT: seccomp.ABSENT}
        wanted = next((action for group, action in expected.items() if name in group), seccomp.REFUSE)

        if name != "personality":  # all ones is its question for what it is
            assert found == (seccomp.ABSENT if number > seccomp.NEWEST else wanted), (number, name)


@pytest.mark.parametrize("architecture", seccomp.Architecture)
@pytest.mark.parametrize("name", MUST_NOT_WORK)
def test_what_must_not_work_does_not(architecture: seccomp.Architecture, name: str) -> None:
    assert judged(architecture, name) in {seccomp.REFUSE, seccomp.KILL, seccomp.ABSENT, None}


@given(ARCHITECTURES, WORDS, WORDS, st.lists(LONGS, max_size=6))
def test_another_architecture_ends_the_process(
    architecture: seccomp.Architecture, foreign: int, number: int, arguments: list[int]
) -> None:
    found = verdict(seccomp.program(architecture), foreign, number, arguments)

    assert found == seccomp.KILL or foreign == seccomp.AUDIT[architecture]


@given(st.integers(seccomp.X32_BIT, 2**32 - 1), st.lists(LONGS, max_size=6))
def test_the_x32_calls_end_the_process(number: int, arguments: list[int]) -> None:
    x86 = seccomp.Architecture.X86_64

    assert verdict(seccomp.program(x86), seccomp.AUDIT[x86], number, arguments) == seccomp.KILL


@given(ARCHITECTURES, LONGS, st.lists(LONGS, max_size=5))
def test_a_clone_with_any_namespace_is_refused_and_others_are_not(
    architecture: seccomp.Architecture, flags: int, rest: list[int]
) -> None:
    expected = seccomp.REFUSE if flags & seccomp.NAMESPACES else seccomp.ALLOW

    assert judged(architecture, "clone", flags, *rest) == expected


@pytest.mark.parametrize("architecture", seccomp.Architecture)
@pytest.mark.parametrize(
    "flag",
    # NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
    [0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000],
)
def test_each_namespace_is_refused(architecture: seccomp.Architecture, flag: int) -> None:
    assert judged(architecture, "clone", flag | 0x11) == seccomp.REFUSE


@pytest.mark.parametrize("architecture", seccomp.Architecture)
@pytest.mark.parametrize(
    "name", ["ptrace", "process_vm_writev", "mount", "open_by_handle_at", "bpf", "init_module", "setns", "pidfd_getfd"]
)
def test_what_only_an_attack_does_ends_the_process(architecture: seccomp.Architecture, name: str) -> None:
    assert judged(architecture, name) == seccomp.KILL


def test_the_flags_of_threads_and_forks_are_no_namespaces() -> None:
    thread, fork, vfork = 0x003D0F00, 0x01200011, 0x4111

    assert not seccomp.NAMESPACES & (thread | fork | vfork)


@given(ARCHITECTURES, LONGS, st.booleans())
def test_a_socket_is_of_the_machine_itself_unless_the_network_is_allowed(
    architecture: seccomp.Architecture, family: int, network: bool
) -> None:
    allowed = {1, 2, 10, 16} if network else {1}
    found = judged(architecture, "socket", family, network=network)

    # The kernel reads an int: the upper half is nothing to it.
    assert found == (seccomp.ALLOW if family & 0xFFFFFFFF in allowed else seccomp.REFUSE)


@pytest.mark.parametrize("architecture", seccomp.Architecture)
@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        *(
            ("socketpair", (1,), seccomp.ALLOW),
            ("socketpair", (2,), seccomp.REFUSE),
            ("personality", (0,), seccomp.ALLOW),
        ),
        *(
            ("personality", (0xFFFFFFFF,), seccomp.ALLOW),
            ("personality", (0x0040000,), seccomp.REFUSE),
            ("ioctl", (0, 0x5401), seccomp.ALLOW),
        ),
        *(
            ("ioctl", (0, 0x5412), seccomp.REFUSE),
            ("ioctl", (0, 0x1_0000_5412), seccomp.REFUSE),
            ("prctl", (15,), seccomp.ALLOW),
        ),
        *(
            ("prctl", (4, 1), seccomp.REFUSE),
            ("prctl", (22,), seccomp.REFUSE),
            ("socket", (2,), seccomp.REFUSE),
            ("socket", (17,), seccomp.REFUSE),
        ),
    ],
)
def test_a_call_that_depends_on_its_arguments(
    architecture: seccomp.Architecture, name: str, arguments: tuple[int, ...], expected: int
) -> None:
    assert judged(architecture, name, *arguments) == expected


ZYGOTES = (seccomp.FilterUse.SHARED, seccomp.FilterUse.ALONE, seccomp.FilterUse.ZYGOTE)
NEEDLESS = [
    *("io_uring_setup", "userfaultfd", "keyctl", "add_key", "request_key", "perf_event_open", "bpf", "ptrace"),
    *("process_vm_readv", "setns", "open_by_handle_at", "name_to_handle_at", "kexec_load", "umount2", "pivot_root"),
    *("move_mount", "fsopen", "open_tree", "mq_open", "memfd_secret"),
]


@pytest.mark.parametrize("use", ZYGOTES)
@pytest.mark.parametrize("architecture", seccomp.Architecture)
def test_what_imports_an_environment_makes_no_call_that_it_does_not_need(
    architecture: seccomp.Architecture, use: seccomp.FilterUse
) -> None:
    for name in NEEDLESS:
        assert judged(architecture, name, use=use) in (seccomp.REFUSE, seccomp.KILL)
    assert judged(architecture, "clone3", use=use) == seccomp.ABSENT
    assert judged(architecture, "clone", 0x10000000, use=use) == seccomp.REFUSE
    for family in (2, 10, 16, 17, 38, 40):
        assert judged(architecture, "socket", family, use=use) == seccomp.REFUSE
    for request in (0x5412, 0x541C):  # TIOCSTI, TIOCLINUX
        assert judged(architecture, "ioctl", 0, request, use=use) == seccomp.REFUSE


@pytest.mark.parametrize("architecture", seccomp.Architecture)
def test_a_zygote_makes_the_namespaces_of_its_workers_and_no_others(architecture: seccomp.Architecture) -> None:
    zygote = partial(judged, architecture, use=seccomp.FilterUse.ZYGOTE)

    assert zygote("unshare", seccomp.WORKER_NAMESPACES) == seccomp.ALLOW
    assert zygote("unshare", 0x10000000) == zygote("unshare", seccomp.WORKER_NAMESPACES | 0x02000000) == seccomp.REFUSE
    assert {
        zygote("mount", 0, 0, 0, flags) for flags in (seccomp.PRIVATE, seccomp.BIND, seccomp.WRITABLE, seccomp.COVER)
    } == {seccomp.ALLOW}
    assert zygote("mount", 0, 0, 0, 0) == zygote("mount", 0, 0, 0, 32) == seccomp.REFUSE
    assert zygote("setresuid", 65534) == seccomp.ALLOW
    assert zygote("setresuid", 0) == seccomp.REFUSE
    assert zygote("seccomp", 1, 1) == seccomp.ALLOW
    assert zygote("seccomp", 1, 8) == seccomp.REFUSE


@pytest.mark.parametrize("architecture", seccomp.Architecture)
@pytest.mark.parametrize("use", [seccomp.FilterUse.SHARED, seccomp.FilterUse.ALONE])
def test_a_zygote_whose_workers_have_no_namespaces_makes_none(
    architecture: seccomp.Architecture, use: seccomp.FilterUse
) -> None:
    for name in ("unshare", "setresuid"):
        assert judged(architecture, name, 65534, use=use) == seccomp.REFUSE
    assert judged(architecture, "mount", 0, 0, 0, seccomp.PRIVATE, use=use) == seccomp.KILL
    assert judged(architecture, "prctl", 4, use=use) == seccomp.ALLOW
    assert judged(architecture, "capset", use=use) == (
        seccomp.ALLOW if use is seccomp.FilterUse.ALONE else seccomp.REFUSE
    )


def test_a_refusal_says_eperm_and_an_absence_enosys() -> None:
    assert seccomp.REFUSE & 0xFFFF == errno.EPERM
    assert seccomp.ABSENT & 0xFFFF == errno.ENOSYS


@pytest.mark.parametrize("architecture", seccomp.Architecture)
def test_a_program_is_short_enough_for_the_kernel(architecture: seccomp.Architecture) -> None:
    assert len(seccomp.program(architecture)) // 8 < 4096


def test_the_names_are_all_known_and_in_one_list_only() -> None:
    named = [*seccomp.ALLOWED, *seccomp.KILLED, *seccomp.AS_IF_ABSENT, *seccomp.CHECKED, "socket"]
    known = {name for numbers in seccomp.NUMBERS.values() for name in numbers}

    assert len(named) == len(set(named))
    assert set(named) <= known
    for numbers in seccomp.NUMBERS.values():
        assert len(set(numbers.values())) == len(numbers)
        assert max(numbers.values()) <= seccomp.NEWEST


def test_the_numbers_of_x86_64_are_those_of_the_headers_where_there_are_headers() -> None:
    header = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
    text = header.read_text() if header.exists() else ""
    rows = (line.split() for line in text.splitlines() if line.startswith("#define __NR_"))
    told = {name.removeprefix("__NR_"): int(number) for _, name, number in rows}

    for name, number in seccomp.NUMBERS[seccomp.Architecture.X86_64].items():
        assert told.get(name, number) == number


TRYING = """
import ctypes, json, os, sys
from proctor.server.sandbox.worker import confine
from proctor.server.sandbox.worker.seccomp import NUMBERS, here

libc = ctypes.CDLL(None, use_errno=True)
confine.no_new_privileges()
confine.load_filter("worker")

def tried(name, *arguments):
    if (child := os.fork()) == 0:
        code = libc.syscall(NUMBERS[here()][name], *map(ctypes.c_long, arguments))
        os._exit(ctypes.get_errno() if code < 0 else 0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

json.dump([tried(*row) for row in json.load(sys.stdin)], sys.stdout)
"""


def test_the_kernel_takes_the_filter_and_gives_its_verdicts() -> None:
    # All arguments are such that the kernel would refuse them in another way, or do nothing.
    expected: dict[tuple[str | int, ...], int] = {
        ("getpid",): 0,
        ("socket", 1, 1, 0): 0,
        ("socket", 2, 1, 0): errno.EPERM,
        ("unshare", 0): errno.EPERM,
        ("clone3", 0, 0): errno.ENOSYS,
        ("io_uring_setup", 0, 0): errno.EPERM,
        ("userfaultfd", -1): errno.EPERM,
        ("keyctl", -1): errno.EPERM,
        ("perf_event_open", 0, 0, 0, 0, 0): errno.EPERM,
        ("personality", 0xFFFFFFFF): 0,
        ("personality", 0x40000): errno.EPERM,
        ("ptrace", -1): -signal.SIGSYS,
        ("mount", 0, 0, 0, 0, 0): -signal.SIGSYS,
        ("bpf", -1, 0, 0): -signal.SIGSYS,
        ("process_vm_readv", 0, 0, 0, 0, 0, 0): -signal.SIGSYS,
        ("setns", -1, 0): -signal.SIGSYS,
    }
    done = subprocess.run(
        [sys.executable, "-c", TRYING], input=json.dumps(list(expected)), capture_output=True, text=True, check=True
    )

    assert dict(zip(expected, json.loads(done.stdout), strict=True)) == expected


USING = """
import asyncio, mmap, multiprocessing, os, shutil, socket, subprocess, sys, tempfile, threading, time
import numpy
from proctor.server.sandbox.worker import confine

confine.no_new_privileges()
confine.load_filter("worker")

async def spoken():
    left, right = socket.socketpair()
    reader, _ = await asyncio.open_unix_connection(sock=left)
    right.sendall(b"word")
    return await reader.readexactly(4)

assert asyncio.run(spoken()) == b"word"
thread = threading.Thread(target=time.sleep, args=(0,))
thread.start()
thread.join()
assert subprocess.run(["/bin/echo", "child"], capture_output=True).stdout == b"child\\n"
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "file")
    open(path, "wb").write(bytes(4096))
    shutil.copy2(path, path + "2")
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[0] = 1
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(abs, [-1, 2]) == [1, 2]
assert (numpy.ones((200, 200)) @ numpy.ones((200, 200))).sum() == 200**3
"""


def test_what_environments_do_works_under_the_filter() -> None:
    done = subprocess.run([sys.executable, "-c", USING], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


LARGE = """
import sys
from proctor.server.sandbox.worker import confine

confine.no_new_privileges()
confine.load_filter("worker")
import numba, torch

assert numba.njit(lambda x: x + 1)(1) == 2
layer = torch.nn.Linear(300, 300)
layer(torch.ones(300, 300)).sum().backward()
assert torch.load is not None
"""


@pytest.mark.system
def test_numba_and_torch_work_under_the_filter() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", LARGE], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


LOAD, RETURN, EQUAL, AT_LEAST, ANY_BIT = 0x20, 0x06, 0x15, 0x35, 0x45


def verdict(program: bytes, architecture: int, number: int, arguments: Sequence[int] = ()) -> int:
    """Return the action for a call; every jump must stay inside the program and every path must end."""
    told = struct.pack("<IIQ6Q", number, architecture, 0, *(*arguments, 0, 0, 0, 0, 0, 0)[:6])
    rows: list[tuple[int, int, int, int]] = list(struct.iter_unpack("=HBBI", program))
    accumulator, place = 0, 0
    while True:
        code, yes, no, constant = rows[place]
        place += 1
        if code == RETURN:
            return constant
        if code == LOAD:
            assert constant % 4 == 0
            (accumulator,) = struct.unpack_from("<I", told, constant)
        else:
            place += yes if _holds(code, accumulator, constant) else no


def _holds(code: int, accumulator: int, constant: int) -> bool:
    if code == EQUAL:
        return accumulator == constant
    if code == AT_LEAST:
        return accumulator >= constant
    assert code == ANY_BIT
    return bool(accumulator & constant)
