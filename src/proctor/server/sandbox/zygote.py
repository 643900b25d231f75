"""The zygote: a process in the sandbox that imports the environment's module once, and forks a worker for each session.

Rule 1: it makes no environment and starts no thread. What the module does while it is imported happens here, and is
    apart from host and server, but not from the workers that are forked from it.
Rule 2: it does as the server says over one socket, and ends with it. Its children are reaped by the kernel.
"""

import gc
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Final

from proctor.envs.imports import member_of
from proctor.envs.settings import creator_of, spec_of
from proctor.envs.targets import Target
from proctor.errors import ProctorError
from proctor.server.answers import RAISED
from proctor.server.sandbox import confine, worker
from proctor.server.sandbox.pipe import framed, read, spoken
from proctor.server.sandbox.tiers import Tier
from proctor.server.sandbox.words import FORK, HERE, Loaded, Start, say, silenced

LONGEST_PROBLEM: Final = 4096

ENTRY: Final = (
    "import sys; sys.path[:] = sys.argv[2:]; from proctor.server.sandbox.zygote import main; main(int(sys.argv[1]))"
)
"""What Python is told to run: the modules are found where the server finds them."""


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
            _settle(start.tier)
            if _told(control, loaded(Target(start.target, start.settings))):
                _brood(control, start)


def _settle(tier: Tier) -> None:
    """Become who runs the environment, before anything of it is imported."""
    if tier is Tier.PROCESS:
        confine.die_with_parent()
    else:
        confine.become_nobody()
        # Last of all places: where a module is looked for in a folder that workers can write to.
        sys.path.append(str(Path.cwd()))
    confine.no_new_privileges()
    # A worker with a pid namespace of its own is started by a process that ends at once.
    confine.adopt_orphans()


def loaded(target: Target) -> Loaded:
    """Import what makes the target, and say how that went; nothing is made."""
    try:
        module, _, member = target.text.partition(":")
        if target._names_a_member:
            member_of(module, member)
        else:
            creator_of(spec_of(target.text))
    except RAISED as problem:
        reason = str(problem) if isinstance(problem, ProctorError) else f"{type(problem).__name__}: {problem}"
        return Loaded(reason[:LONGEST_PROBLEM])
    return Loaded(threads=len(list(Path("/proc/self/task").iterdir())) - 1)


def _told(control: socket.socket, answer: Loaded) -> bool:
    control.sendall(framed(answer))
    return answer.problem is None


def _brood(control: socket.socket, start: Start) -> None:
    """Fork a worker for each socket that comes."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # What is here now is shared by all workers: a garbage collection that touched it would make copies of its pages.
    gc.collect()
    gc.freeze()
    while True:
        said, descriptors, _, _ = socket.recv_fds(control, 1, 1, socket.MSG_CMSG_CLOEXEC)
        if said != FORK or len(descriptors) != 1:
            return
        _fork(descriptors[0], start)


def _fork(descriptor: int, start: Start) -> None:
    try:
        child = os.fork()
    except OSError:
        child = -1  # the server sees that its socket is closed
    if child == 0:
        worker.begin(descriptor, start)
    os.close(descriptor)
