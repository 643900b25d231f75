"""What hostile environment code would try, each as a small function that runs where environments run.

Rule 1: a probe that succeeds returns a sentence; one that is stopped raises an OSError or a MemoryError, or is ended.
Rule 2: every try is bounded, harmless to the host, and cleans up after itself, whether it succeeds or not.
Rule 3: nothing is aimed at but what `Bait` names: a host without any sandbox survives all of them.
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
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import proctor
from proctor.contracts.environment import Environment
from proctor.models.wire import Action, Observation, State
from proctor.server.sandbox import confine
from proctor.server.sandbox.findings import Probe
from proctor.server.sandbox.seccomp import CLONE_NEWUSER
from proctor.server.sandbox.syscalls import NUMBERS, here

MIB: Final = 2**20
PTRACE_SEIZE: Final = 0x4206
CONNECT_SECONDS: Final = 1.0
MORE_PROCESSES: Final = 50
"""How many more than its limit a fork bomb tries to start."""
BOMBERS: Final = 3
BOMB_SECONDS: Final = 5.0
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


class Bait(Action):
    """What a probe may aim at, and the limits it tries to pass."""

    probe: Probe
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


class Tried(Observation):
    """What came of it: `said` is what was reached, or what stood in the way."""

    succeeded: bool = False
    said: str = ""
    pid: int = 0


class Probing(Environment[Bait, Tried, State]):
    """An environment whose every step is an attack."""

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Tried:
        """Say which number this process has; in an episode that has a name, leave a file that neighbours could find."""
        if episode_id:
            left_by(episode_id).touch()
        return Tried(pid=os.getpid())

    def step(self, action: Bait) -> Tried:
        """Try it."""
        return tried(action)

    @property
    def state(self) -> State:
        """Return nothing of interest."""
        return State()


def tried(bait: Bait) -> Tried:
    """Return what came of a probe; one that is ended by the kernel returns nothing."""
    try:
        return Tried(reward=0.0, succeeded=True, said=ATTEMPTS[bait.probe](bait))
    except MemoryError:
        return Tried(reward=0.0, said="no more memory is given")
    except OSError as problem:
        return Tried(reward=0.0, said=problem.strerror or str(problem))


def _network(bait: Bait) -> str:
    with socket.create_connection(("127.0.0.1", bait.port), CONNECT_SECONDS):
        return "a port of this machine was reached"


def _abstract_sockets(bait: Bait) -> str:
    with socket.socket(socket.AF_UNIX) as channel:
        channel.settimeout(CONNECT_SECONDS)
        channel.connect(f"\0{bait.token}")
    return "an abstract socket of this machine was reached"


def _host_files(bait: Bait) -> str:
    return _first(_opened, (f"{bait.folder}/canary", *KNOWN_FILES))


def _opened(path: str) -> str:
    with Path(path).open("rb") as file:
        file.read(1)
    return f"{path} was read" if path in KNOWN_FILES else "a file of this host was read"


def _host_writes(bait: Bait) -> str:
    return _first(lambda folder: _made(folder, bait), (bait.folder, *SYSTEM_FOLDERS))


def _python_files(bait: Bait) -> str:
    folders = (str(Path(proctor.__file__).parent), str(Path(os.__file__).parent), sys.prefix)
    return _first(lambda folder: _made(folder, bait), folders)


def _made(folder: str, bait: Bait) -> str:
    path = Path(folder) / f"{bait.token}.txt"
    path.touch(exist_ok=False)
    path.unlink()
    return f"a file was made in {'a folder of this host' if folder == bait.folder else folder}"


def _environment(bait: Bait) -> str:
    if bait.token in os.environ.values():
        return "a variable of the server was read"
    raise PermissionError(0, "no variable of the server is there")


def _proc(bait: Bait) -> str:
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            with suppress(OSError):
                if bait.token.encode() in (process / "cmdline").read_bytes():
                    return "the command line of a process of this machine was read"
    raise PermissionError(0, "no process of this machine is there")


def _signals(bait: Bait) -> str:
    os.kill(bait.decoy, signal.SIGKILL)
    return "a process of this machine was killed"


def _ptrace(bait: Bait) -> str:
    if _LIBC.ptrace(ctypes.c_long(PTRACE_SEIZE), ctypes.c_long(bait.decoy), None, None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return "a process of this machine was traced"


def _disk(bait: Bait) -> str:
    return _first(lambda folder: _filled(folder, bait.tmp_bytes + 2 * MIB), TEMPORARY)


def _filled(folder: str, size: int) -> str:
    with tempfile.TemporaryDirectory(dir=folder) as inside:
        for number in range(size // MIB):
            (Path(inside) / str(number)).write_bytes(bytes(MIB))
    return f"{folder} took more than the limit allows"


def _memory_bomb(bait: Bait) -> str:
    with _taken(bait.memory_bytes * 3 // 2):
        return "one process took more than the limit allows"


def _memory_of_many(bait: Bait) -> str:
    share = bait.memory_bytes * 3 // (2 * BOMBERS)
    with _children(BOMBERS, lambda: _taken(share)) as count:
        if count < BOMBERS:
            raise MemoryError
        return "several processes took more than the limit allows"


@contextmanager
def _taken(size: int) -> Iterator[None]:
    """Take memory, and touch every page of it; half of it is shared, which limits of one process may not count."""
    with mmap.mmap(-1, size // 2, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as private, mmap.mmap(-1, size // 2) as shared:
        for place in range(0, size // 2, mmap.PAGESIZE):
            private[place] = shared[place] = 1
        yield


def _fork_bomb(bait: Bait) -> str:
    wanted = bait.processes + MORE_PROCESSES
    with _children(wanted, _nothing) as count:
        if count < wanted:
            raise BlockingIOError(0, f"no more than {count} processes could be started")
        return "more processes were started than the limit allows"


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _children(wanted: int, doing: Doing) -> Iterator[int]:
    """Start processes that do something and then wait; yield how many got so far and are still there. None is left."""
    pids: list[int] = []
    ready, theirs = os.pipe()
    try:
        with suppress(OSError):
            while len(pids) < wanted:
                pids.append(_child(theirs, doing))
        yield _waiting(ready, pids)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            os.waitpid(pid, 0)
        os.close(ready)
        os.close(theirs)


def _child(ready: int, doing: Doing) -> int:
    """Return the number of a new process, which says one byte as soon as it has what it was to take."""
    pid = os.fork()
    if pid == 0:
        try:
            confine.die_with_parent()
            with doing():
                os.write(ready, b"r")
                signal.pause()
        finally:
            os._exit(1)
    return pid


def _waiting(ready: int, pids: Collection[int]) -> int:
    """Return how many processes have what they were to take, as soon as each has it or has ended."""
    said, ended, until = 0, 0, time.monotonic() + BOMB_SECONDS
    while said + ended < len(pids) and time.monotonic() < until:
        if select.select([ready], [], [], 0.005)[0]:
            said += len(os.read(ready, len(pids)))
        # It stays a zombie, so that its number is nobody else's.
        ended = sum(os.waitid(os.P_PID, pid, ENDED) is not None for pid in pids)
    return min(said, len(pids) - ended)


def _user_namespaces(bait: Bait) -> str:
    pid = os.fork()
    if pid == 0:
        code = _LIBC.unshare(ctypes.c_int(CLONE_NEWUSER))
        os._exit(0 if code == 0 else ctypes.get_errno())
    number = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if number != 0:
        raise OSError(abs(number), os.strerror(number) if number > 0 else "the process was ended")
    return "a user namespace was made"


def _kernel_calls(bait: Bait) -> str:
    return _first(_called, NEEDLESS.items())


def _called(row: tuple[str, tuple[int, ...]]) -> str:
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


def _neighbours(bait: Bait) -> str:
    if left_by(bait.token).exists():
        return "a temporary file of another session was seen"
    # In a pid namespace of one's own every number is one's own; elsewhere only one of them may be aimed at.
    numbers = range(2, 300) if os.getpid() == 1 else (bait.neighbour,)
    return _first(_killed, numbers)


def _killed(pid: int) -> str:
    os.kill(pid, signal.SIGKILL)
    return "a worker of another session was killed"


def left_by(episode: str) -> Path:
    """Return the file that a worker leaves in an episode of this name."""
    return Path(HIDING_PLACE) / f"left-{episode}"


def _first(attempt: Callable[[Any], str], targets: Iterable[Any]) -> str:
    """Return what the first attempt that succeeds says, or raise what stopped the first one."""
    problems = []
    for target in targets:
        try:
            return attempt(target)
        except OSError as problem:
            problems.append(problem)
    raise problems[0]


ATTEMPTS: Final[dict[Probe, Callable[[Bait], str]]] = {
    Probe.NETWORK: _network,
    Probe.ABSTRACT_SOCKETS: _abstract_sockets,
    Probe.HOST_FILES: _host_files,
    Probe.HOST_WRITES: _host_writes,
    Probe.PYTHON_FILES: _python_files,
    Probe.ENVIRONMENT: _environment,
    Probe.PROC: _proc,
    Probe.PTRACE: _ptrace,
    Probe.SIGNALS: _signals,
    Probe.DISK: _disk,
    Probe.MEMORY_BOMB: _memory_bomb,
    Probe.MEMORY_OF_MANY: _memory_of_many,
    Probe.FORK_BOMB: _fork_bomb,
    Probe.USER_NAMESPACES: _user_namespaces,
    Probe.KERNEL_CALLS: _kernel_calls,
    Probe.NEIGHBOURS: _neighbours,
}


def main() -> None:
    """Try what stands in standard input, one bait per line, without any sandbox, and say on standard output what came."""
    for line in sys.stdin.read().splitlines():
        sys.stdout.write(tried(Bait.model_validate_json(line)).model_dump_json() + "\n")
        sys.stdout.flush()
