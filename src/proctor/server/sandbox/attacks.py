"""What hostile environment code would try, each as a small function that runs where environments run.

Rule 1: a probe that succeeds returns a sentence; one that is stopped raises an OSError or a MemoryError, or is ended.
Rule 2: every try is bounded, harmless to the host, and cleans up after itself, whether it succeeds or not.
Rule 3: nothing is aimed at but what `AttackTargets` names: a host without any sandbox survives all of them.
"""

import ctypes
import errno
import mmap
import os
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NoReturn, Self

import proctor
from proctor.contracts.environment import Environment
from proctor.models.wire import Action, Observation, State
from proctor.server.sandbox.tiers import Tier
from proctor.server.sandbox.worker import confine
from proctor.server.sandbox.worker.seccomp import CLONE_NEWUSER, NUMBERS, here

MIB: Final = 2**20
PTRACE_SEIZE: Final = 0x4206
CONNECT_SECONDS: Final = 1.0
BOMBERS: Final = 3
ENDED: Final = os.WEXITED | os.WNOHANG | os.WNOWAIT
KNOWN_FILES: Final = ("/etc/shadow", "/etc/passwd", "/etc/machine-id")
SYSTEM_FOLDERS: Final = ("/", "/usr", "/etc", "/var/tmp")  # noqa: S108 - where nothing must come to be
TEMPORARY: Final = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - what could be filled
HIDING_PLACE: Final = "/tmp"  # noqa: S108 - where one worker leaves what another should not find

NEEDLESS: Final = {
    "io_uring_setup": (0, 0),
    "userfaultfd": (-1,),
    "keyctl": (-1, 0, 0, 0, 0),
    "add_key": (0, 0, 0, 0, 0),
    "unshare": (-1,),
    "socket": (40, -1, 0),  # AF_VSOCK
}
"""Calls that no environment needs, with arguments that the kernel does not take."""

Doing = Callable[[], AbstractContextManager[None]]
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


class SandboxProbe(StrEnum):
    """What environment code could try, by the words in which it is told; what is tried; the weakest tier that promises to block it."""

    about: str
    promised: Tier

    def __new__(cls, words: str, about: str, promised: Tier) -> Self:
        """Return a member that is its words."""
        member = str.__new__(cls, words)
        member._value_ = words
        member.about, member.promised = about, promised
        return member

    NETWORK = "network", "reach a host port", Tier.BWRAP
    ABSTRACT_SOCKETS = "abstract sockets", "reach the host's", Tier.BWRAP
    HOST_FILES = "host files", "read one", Tier.BWRAP
    HOST_WRITES = "host writes", "make a file", Tier.BWRAP
    PYTHON_FILES = "Python's files", "change them", Tier.BWRAP
    ENVIRONMENT = "environment variables", "read the server's own", Tier.PROCESS
    PROC = "/proc", "see a host process", Tier.BWRAP
    PTRACE = "ptrace", "trace a host process", Tier.BWRAP
    SIGNALS = "signals", "kill a host process", Tier.BWRAP
    DISK = "disk filling", "go over the limit", Tier.BWRAP
    MEMORY_BOMB = "memory bomb", "one over the limit", Tier.PROCESS
    MEMORY_OF_MANY = "memory of many", "go over the limit", Tier.STRICT
    FORK_BOMB = "fork bomb", "go over the limit", Tier.STRICT
    USER_NAMESPACES = "user namespaces", "make one", Tier.BWRAP
    KERNEL_CALLS = "kernel calls", "make one that is not needed", Tier.BWRAP
    NEIGHBOURS = "neighbours", "hurt another session", Tier.STRICT


class AttackTargets(Action):
    """What a probe may aim at, and the limits it tries to pass."""

    probe: SandboxProbe
    token: str
    """A word that is nowhere else: the canary's value, and the name of files that are made."""
    folder: str
    """A folder of this host that everybody may read and write, with a file `canary` in it."""
    port: int
    decoy: int
    """The number of a process of the server's user."""
    neighbour: int
    """The number by which another session's worker knows itself, 0 if there is none."""
    memory_bytes: int
    processes: int
    tmp_bytes: int


class AttackResult(Observation):
    """What came of it: `said` is what was reached, or what stood in the way."""

    succeeded: bool = False
    said: str = ""
    pid: int = 0


class Probing(Environment[AttackTargets, AttackResult, State]):
    """An environment whose every step is an attack."""

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> AttackResult:
        """Say which number this process has; in an episode that has a name, leave a file that neighbours could find."""
        if episode_id:
            find_left_file(episode_id).touch()
        return AttackResult(pid=os.getpid())

    def step(self, action: AttackTargets) -> AttackResult:
        """Try it."""
        return try_attack(action)

    @property
    def state(self) -> State:
        """Return nothing of interest."""
        return State()


def try_attack(targets: AttackTargets) -> AttackResult:
    """Return what came of a probe; one that is ended by the kernel returns nothing."""
    try:
        return AttackResult(reward=0.0, succeeded=True, said=ATTEMPTS[targets.probe](targets))
    except MemoryError:
        return AttackResult(reward=0.0, said="no more memory is given")
    except OSError as problem:
        return AttackResult(reward=0.0, said=problem.strerror or str(problem))


def _network(targets: AttackTargets) -> str:
    with socket.create_connection(("127.0.0.1", targets.port), CONNECT_SECONDS):
        return "a port of this machine was reached"


def _abstract_sockets(targets: AttackTargets) -> str:
    with socket.socket(socket.AF_UNIX) as channel:
        channel.settimeout(CONNECT_SECONDS)
        channel.connect(f"\0{targets.token}")
    return "an abstract socket of this machine was reached"


def _host_files(targets: AttackTargets) -> str:
    return _try_first(_open_file, (f"{targets.folder}/canary", *KNOWN_FILES))


def _open_file(path: str) -> str:
    with Path(path).open("rb") as file:
        file.read(1)
    return f"{path} was read" if path in KNOWN_FILES else "a file of this host was read"


def _host_writes(targets: AttackTargets) -> str:
    return _try_first(lambda folder: _make_file(folder, targets), (targets.folder, *SYSTEM_FOLDERS))


def _python_files(targets: AttackTargets) -> str:
    folders = (str(Path(proctor.__file__).parent), str(Path(os.__file__).parent), sys.prefix)
    return _try_first(lambda folder: _make_file(folder, targets), folders)


def _make_file(folder: str, targets: AttackTargets) -> str:
    path = Path(folder) / f"{targets.token}.txt"
    path.touch(exist_ok=False)
    path.unlink()
    return f"a file was made in {'a folder of this host' if folder == targets.folder else folder}"


def _environment(targets: AttackTargets) -> str:
    if targets.token in os.environ.values():
        return "a variable of the server was read"
    raise PermissionError(0, "no variable of the server is there")


def _proc(targets: AttackTargets) -> str:
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            with suppress(OSError):
                if targets.token.encode() in (process / "cmdline").read_bytes():
                    return "the command line of a process of this machine was read"
    raise PermissionError(0, "no process of this machine is there")


def _signals(targets: AttackTargets) -> str:
    os.kill(targets.decoy, signal.SIGKILL)
    return "a process of this machine was killed"


def _ptrace(targets: AttackTargets) -> str:
    if _LIBC.ptrace(ctypes.c_long(PTRACE_SEIZE), ctypes.c_long(targets.decoy), None, None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return "a process of this machine was traced"


def _disk(targets: AttackTargets) -> str:
    return _try_first(lambda folder: _fill_folder(folder, targets.tmp_bytes + 2 * MIB), TEMPORARY)


def _fill_folder(folder: str, size: int) -> str:
    with tempfile.TemporaryDirectory(dir=folder) as inside:
        for number in range(size // MIB):
            (Path(inside) / str(number)).write_bytes(bytes(MIB))
    return f"{folder} took more than the limit allows"


def _memory_bomb(targets: AttackTargets) -> str:
    with _take_memory(targets.memory_bytes * 3 // 2):
        return "one process took more than the limit allows"


def _memory_of_many(targets: AttackTargets) -> str:
    share = targets.memory_bytes * 3 // (2 * BOMBERS)
    with _start_children(BOMBERS, lambda: _take_memory(share)) as count:
        if count < BOMBERS:
            raise MemoryError
        return "several processes took more than the limit allows"


@contextmanager
def _take_memory(size: int) -> Iterator[None]:
    """Take memory, and touch every page of it; half of it is shared, which limits of one process may not count."""
    with mmap.mmap(-1, size // 2, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as private, mmap.mmap(-1, size // 2) as shared:
        for place in range(0, size // 2, mmap.PAGESIZE):
            private[place] = shared[place] = 1
        yield


def _fork_bomb(targets: AttackTargets) -> str:
    wanted = targets.processes + 50
    with _start_children(wanted, nullcontext) as count:
        if count < wanted:
            raise BlockingIOError(0, f"no more than {count} processes could be started")
        return "more processes were started than the limit allows"


@contextmanager
def _start_children(wanted: int, doing: Doing) -> Iterator[int]:
    """Start processes that do something and then wait; yield how many got so far and are still there. None is left."""
    pids: list[int] = []
    ready, theirs = os.pipe()
    try:
        with suppress(OSError):
            while len(pids) < wanted:
                pids.append(os.fork())
                if pids[-1] == 0:
                    _take_and_wait(theirs, doing)
        yield _count_ready(ready, pids)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            os.waitpid(pid, 0)
        os.close(ready)
        os.close(theirs)


def _take_and_wait(ready: int, doing: Doing) -> NoReturn:
    """Say one byte as soon as this process has what it was to take."""
    try:
        confine.die_with_parent()
        with doing():
            os.write(ready, b"r")
            signal.pause()
    finally:
        os._exit(1)


def _count_ready(ready: int, pids: Collection[int]) -> int:
    """Return how many processes have what they were to take, as soon as each has it or has ended."""
    said, ended, until = 0, 0, time.monotonic() + 5.0
    while said + ended < len(pids) and time.monotonic() < until:
        if select.select([ready], [], [], 0.005)[0]:
            said += len(os.read(ready, len(pids)))
        # It stays a zombie, so that its number is nobody else's.
        ended = sum(os.waitid(os.P_PID, pid, ENDED) is not None for pid in pids)
    return min(said, len(pids) - ended)


def _user_namespaces(targets: AttackTargets) -> str:
    pid = os.fork()
    if pid == 0:
        code = _LIBC.unshare(ctypes.c_int(CLONE_NEWUSER))
        os._exit(0 if code == 0 else ctypes.get_errno())
    number = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if number != 0:
        raise OSError(abs(number), os.strerror(number) if number > 0 else "the process was ended")
    return "a user namespace was made"


def _kernel_calls(targets: AttackTargets) -> str:
    return _try_first(_make_call, NEEDLESS.items())


def _make_call(row: tuple[str, tuple[int, ...]]) -> str:
    """Make a system call with arguments by which nothing comes of it; one that is refused, is so before they are read."""
    name, arguments = row
    architecture = here()
    if architecture is None:
        return "there is no filter for this machine"
    code = _LIBC.syscall(ctypes.c_long(NUMBERS[architecture][name]), *map(ctypes.c_long, arguments))
    number = ctypes.get_errno()
    if code >= 0:
        os.close(code)
    if code < 0 and number == errno.EPERM:
        raise PermissionError(number, os.strerror(number))
    return f"{name} was answered by the kernel"


def _neighbours(targets: AttackTargets) -> str:
    if find_left_file(targets.token).exists():
        return "a temporary file of another session was seen"
    # In a pid namespace of one's own every number is one's own; elsewhere only one of them may be aimed at.
    numbers = range(2, 300) if os.getpid() == 1 else (targets.neighbour,)
    return _try_first(_kill_worker, numbers)


def _kill_worker(pid: int) -> str:
    os.kill(pid, signal.SIGKILL)
    return "a worker of another session was killed"


def find_left_file(episode: str) -> Path:
    """Return the file that a worker leaves in an episode of this name."""
    return Path(HIDING_PLACE) / f"left-{episode}"


def _try_first(attempt: Callable[[Any], str], targets: Iterable[Any]) -> str:
    """Return what the first attempt that succeeds says, or raise what stopped the first one."""
    problems = []
    for target in targets:
        try:
            return attempt(target)
        except OSError as problem:
            problems.append(problem)
    raise problems[0]


ATTEMPTS: Final[dict[SandboxProbe, Callable[[AttackTargets], str]]] = {
    SandboxProbe.NETWORK: _network,
    SandboxProbe.ABSTRACT_SOCKETS: _abstract_sockets,
    SandboxProbe.HOST_FILES: _host_files,
    SandboxProbe.HOST_WRITES: _host_writes,
    SandboxProbe.PYTHON_FILES: _python_files,
    SandboxProbe.ENVIRONMENT: _environment,
    SandboxProbe.PROC: _proc,
    SandboxProbe.PTRACE: _ptrace,
    SandboxProbe.SIGNALS: _signals,
    SandboxProbe.DISK: _disk,
    SandboxProbe.MEMORY_BOMB: _memory_bomb,
    SandboxProbe.MEMORY_OF_MANY: _memory_of_many,
    SandboxProbe.FORK_BOMB: _fork_bomb,
    SandboxProbe.USER_NAMESPACES: _user_namespaces,
    SandboxProbe.KERNEL_CALLS: _kernel_calls,
    SandboxProbe.NEIGHBOURS: _neighbours,
}


def main() -> None:
    """Try what stands in standard input, one target per line, without any sandbox, and say on standard output what came."""
    for line in sys.stdin.read().splitlines():
        sys.stdout.write(try_attack(AttackTargets.model_validate_json(line)).model_dump_json() + "\n")
        sys.stdout.flush()
