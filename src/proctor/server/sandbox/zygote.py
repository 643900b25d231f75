"""The zygote: a process in the sandbox that imports the environment's module once, and forks a worker for each session.

Rule 1: it makes no environment of a user's (`rehearsal`) and starts no thread. What the module does while it is imported
    happens here, and is apart from host and server, but not from the workers that are forked from it.
Rule 2: it does as the server says over one socket, and ends with it. Its children are reaped by the kernel.
"""

import gc
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

from proctor.envs.targets import MODES, Target
from proctor.errors import ProctorError
from proctor.server.answers import RAISED
from proctor.server.sandbox import confine, worker
from proctor.server.sandbox.pipe import framed, read, spoken
from proctor.server.sandbox.rehearsal import rehearse, step_a_batch
from proctor.server.sandbox.seccomp import FilterUse
from proctor.server.sandbox.tiers import Tier
from proctor.server.sandbox.words import COMPILE, FORK, HERE, LOAD, READY, Loaded, Start, say, silenced

LONGEST_PROBLEM: Final = 4096

ENTRY: Final = """
import sys
sys.path[:] = sys.argv[2:]
for name in [name for name in sys.modules if name.partition(".")[0] == "proctor"]:
    del sys.modules[name]
from proctor.server.sandbox.zygote import main
main(int(sys.argv[1]))
"""
"""What Python is told to run: modules are found where the server finds them, and Proctor is the server's own, whichever
one is installed here and was imported when Python started."""


def command(descriptor: int) -> list[str]:
    """Return the command line of a zygote that talks over this descriptor."""
    # Isolated: no variable and no file of the working directory has a say in what is imported.
    return [sys.executable, "-I", "-B", "-c", ENTRY, str(descriptor), *_paths()]


def _paths() -> list[str]:
    """Return where this process finds modules; "" is the working directory."""
    return [str(Path(path).absolute()) for path in sys.path]


def main(descriptor: int) -> None:
    """Serve the socket with this descriptor until the other side closes it."""
    with socket.socket(fileno=descriptor) as control:
        silenced()
        say(control, HERE)
        body = read(control)
        if body is not None:
            start = spoken(body, Start)
            _settle(start)
            target = Target(start.target, start.settings)
            if _told(control, loaded(target)):
                rehearse(target)
                _brood(control, start, target)


def _settle(start: Start) -> None:
    """Become who runs the environment, before anything of it is imported."""
    if start.tier is Tier.PROCESS:
        confine.die_with_parent()
    else:
        confine.become_nobody(start.user)
        # Last of all places: where a module is looked for in a folder that workers can write to.
        sys.path.append(str(Path.cwd()))
    confine.no_new_privileges()
    # A worker with a pid namespace of its own is started by a process that ends at once.
    confine.adopt_orphans()
    if start.tier is not Tier.PROCESS:
        confine.load_filter(_filter_use(start))


def _filter_use(start: Start) -> FilterUse:
    """Return what is left to a zygote: what its workers need to be confined, and nothing for those that need nothing."""
    if start.tier is Tier.BWRAP:
        return FilterUse.SHARED
    return FilterUse.ALONE if start.alone else FilterUse.ZYGOTE


def loaded(target: Target) -> Loaded:
    """Import what makes the target, and say how that went; nothing is made."""
    try:
        target.load()
    except RAISED as problem:
        reason = str(problem) if isinstance(problem, ProctorError) else f"{type(problem).__name__}: {problem}"
        return Loaded(reason[:LONGEST_PROBLEM])
    return Loaded(threads=len(list(Path("/proc/self/task").iterdir())) - 1)


def _told(control: socket.socket, answer: Loaded) -> bool:
    control.sendall(framed(answer))
    return answer.problem is None


def _brood(control: socket.socket, start: Start, target: Target) -> None:
    """Fork a worker for each socket that comes."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # What is here now is shared by all workers: a garbage collection that touched it would make copies of its pages.
    gc.collect()
    gc.freeze()
    while True:
        said, descriptors, _, _ = socket.recv_fds(control, 1, 1, socket.MSG_CMSG_CLOEXEC)
        if said == FORK and len(descriptors) == 1:
            _fork(descriptors[0], partial(worker.begin, descriptors[0], start))
        elif said == COMPILE and len(descriptors) == 1:
            _fork(descriptors[0], partial(_compile, descriptors[0], target, _mode(control)))
        elif said == LOAD:
            _load(target, _mode(control))
        else:
            return


def _mode(control: socket.socket) -> str:
    """Return the mode that was named by one byte; not one byte more is read, since a descriptor may follow."""
    return list(MODES)[control.recv(1)[0]]


def _fork(descriptor: int, begin: Callable[[], NoReturn]) -> None:
    """Fork a process that begins with this descriptor; this one has no use for it."""
    try:
        child = os.fork()
    except OSError:
        child = -1  # the server sees that its socket is closed
    if child == 0:
        begin()
    os.close(descriptor)


def _compile(descriptor: int, target: Target, mode: str) -> NoReturn:
    """Compile into the cache on disk, which takes long, and say so; a zygote that did it itself could not fork meanwhile."""
    try:
        confine.die_with_parent()
        step_a_batch(target, mode)
        os.write(descriptor, READY)
    finally:
        os._exit(0)


def _load(target: Target, mode: str) -> None:
    # Whatever is wrong with it, a worker will say.
    with suppress(*RAISED):
        step_a_batch(target, mode)
    gc.collect()
    gc.freeze()
