"""The zygote: a process in the sandbox that imports the environment's module once, and forks a worker for each session.

Rule 1: it starts no thread, and makes only environments of Proctor and of Gymnasium itself, which are known to leave
    nothing behind: what workers inherit costs them neither time nor memory. A user's environment may count its
    instances, hold a licence or start threads; it is made in workers only. What a module does while it is imported
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

import msgspec

from proctor.envs.settings import find_spec
from proctor.envs.targets import MODES, Target
from proctor.models.spaces import codec_of
from proctor.models.wire import PLAIN
from proctor.server.runtime.env_adapter import EnvAdapter, ResetRequest
from proctor.server.runtime.results import USER_CODE_ERRORS
from proctor.server.sandbox import messages
from proctor.server.sandbox.tiers import Tier
from proctor.server.sandbox.worker import confine, worker
from proctor.server.sandbox.worker.seccomp import FilterUse

KNOWN: Final = ("proctor.envs.", "gymnasium.envs.")


def is_safe_to_warm_up(target: Target) -> bool:
    """Whether an environment is known to leave nothing behind: by the module that makes it."""
    with suppress(*USER_CODE_ERRORS):
        made_by = find_spec(target.text).entry_point
        return isinstance(made_by, str) and made_by.startswith(KNOWN)
    return False


def warm_up_environment(target: Target) -> None:
    """Make one environment, begin an episode, step and close; what is wrong with it, a worker will say."""
    if not is_safe_to_warm_up(target):
        return
    with suppress(*USER_CODE_ERRORS):
        environment = target.make()
        adapter = EnvAdapter(environment, PLAIN, lambda: "")
        adapter.reset(ResetRequest(0, "", None))
        if environment.spaces is not None:
            space = environment.spaces[0]
            adapter.step(msgspec.json.encode({"action": codec_of(space).encode(space.sample(), PLAIN)}))
        adapter.close()


def step_batch_once(target: Target, mode: str) -> None:
    """Step a batch of one, so that an engine of ours is compiled; there is none for others."""
    if target.has_engine:
        batch = target.make_batch(1, mode)
        batch.reset(seed=0)
        batch.step(batch.action_space.sample())
        batch.close()


ENTRY: Final = """
import sys
sys.path[:] = sys.argv[2:]
for name in [name for name in sys.modules if name.partition(".")[0] == "proctor"]:
    del sys.modules[name]
from proctor.server.sandbox.worker.zygote import main
main(int(sys.argv[1]))
"""
"""What Python is told to run: modules are found where the server finds them, and Proctor is the server's own, whichever
one is installed here and was imported when Python started."""


def command(descriptor: int) -> list[str]:
    """Return the command line of a zygote that talks over this descriptor."""
    return messages.python_command(ENTRY, descriptor)


def main(descriptor: int) -> None:
    """Serve the socket with this descriptor until the other side closes it."""
    with socket.socket(fileno=descriptor) as control:
        messages.silence_output()
        messages.send_handshake(control, messages.HERE)
        body = messages.read_message(control)
        if body is not None:
            start = messages.decode_message(body, messages.StartMessage)
            _drop_rights(start)
            target = Target(start.target, start.settings)
            loaded = worker.load_target(target)
            control.sendall(messages.encode_frame(loaded))
            if loaded.problem is None:
                warm_up_environment(target)
                _serve_forks(control, start, target)


def _drop_rights(start: messages.StartMessage) -> None:
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
    if start.tier is Tier.BWRAP:
        confine.load_filter(FilterUse.SHARED)
    elif start.tier is not Tier.PROCESS:
        confine.load_filter(FilterUse.ALONE if start.alone else FilterUse.ZYGOTE)


def _serve_forks(control: socket.socket, start: messages.StartMessage, target: Target) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # What is here now is shared by all workers: a garbage collection that touched it would make copies of its pages.
    gc.collect()
    gc.freeze()
    while True:
        said, descriptors, _, _ = socket.recv_fds(control, 1, 1, socket.MSG_CMSG_CLOEXEC)
        if said == messages.FORK and len(descriptors) == 1:
            _fork(descriptors[0], partial(worker.run_worker, descriptors[0], start))
        elif said == messages.COMPILE and len(descriptors) == 1:
            _fork(descriptors[0], partial(_compile, descriptors[0], target, _read_mode(control)))
        elif said == messages.LOAD:
            with suppress(*USER_CODE_ERRORS):  # whatever is wrong with it, a worker will say
                step_batch_once(target, _read_mode(control))
            gc.collect()
            gc.freeze()
        else:
            return


def _read_mode(control: socket.socket) -> str:
    """Return the mode that was named by one byte; not one byte more is read, since a descriptor may follow."""
    return list(MODES)[control.recv(1)[0]]


def _fork(descriptor: int, begin: Callable[[], NoReturn]) -> None:
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
        step_batch_once(target, mode)
        os.write(descriptor, messages.READY)
    finally:
        os._exit(0)
