"""A module that attacks while it is imported: it runs in the zygote, before any worker has been confined.

Of such a module it is promised that host and server are safe from it; its own sessions are in its hands.
"""

from __future__ import annotations

import mmap
import os
import signal
import threading
from functools import partial
from pathlib import Path
from typing import Any, Final

from proctor.server.sandbox.worker import confine
from tests.system.attacks.hostile import Hostile, Move, Sight
from tests.system.attacks.within.files import looked_at
from tests.system.attacks.within.kernel import needless_calls
from tests.system.attacks.within.neighbours import opened
from tests.system.attacks.within.tries import CANARY, Clue, Tries, called, inside
from tests.system.attacks.within.wires import connected, met, other_families

HANG_THE_NEXT, LET_THE_NEXT = "hang the next one", "let the next one be"
SHARED: Final = mmap.mmap(-1, 4096)
"""Memory that all workers have in common, because it was there before they were forked."""
LEFT_OPEN: Final = os.open("/usr/bin/env", os.O_RDONLY)
ROOT: Final = "root"
PRIVATE: Final = (
    *("/etc/shadow", "/etc/passwd", f"/{ROOT}/.bashrc", f"/{ROOT}/.ssh", "/home", "/sys/fs/cgroup", "/dev/vda"),
    "/dev/mem",
)
SEEN: Final = sorted(
    {*CANARY.findall(" ".join(os.environ.values())), *(path for path in PRIVATE if Path(path).exists())}
)
"""What it saw while it was imported."""


AT_IMPORT: Final = Tries(Clue())
"""What it could call while it was imported."""
if os.uname().nodename == "sandbox":  # whoever reads this module outside of it attacks nobody
    needless_calls(AT_IMPORT)
    other_families(AT_IMPORT)
    AT_IMPORT.in_child("a user namespace", partial(called, "unshare", 0x10000000))
    AT_IMPORT.in_child("an overlay", partial(called, "mount", b"none", b"/tmp", b"overlay", 0, None))


def _nothing(*_arguments: Any, **_keywords: Any) -> None:
    """Take nothing from the worker that is about to be confined."""


confine.settle = _nothing
confine.own_namespaces = _nothing
confine.undumpable = _nothing


class Treacherous(Hostile):
    """Attacks before it can be confined."""

    def __init__(self) -> None:
        super().__init__()
        if SHARED[0]:
            threading.Event().wait(3600)

    def step(self, action: Move) -> Sight:
        if action.word in (HANG_THE_NEXT, LET_THE_NEXT):
            SHARED[0] = action.word == HANG_THE_NEXT
        return super().step(action)


@inside
def the_host_from_the_zygote(tries: Tries) -> None:
    """Reach host and server with a worker that was never confined: files, ports, names, variables, signals, memory."""
    clue = tries.clue
    tries.held("what the import saw", not SEEN, str(SEEN))
    tries.held("what the import could call", not AT_IMPORT.reached and bool(AT_IMPORT.denied), str(AT_IMPORT.reached))
    tries.held("who it is", os.getuid() >= 65534, str(os.getuid()))
    for path in (*clue.files, *PRIVATE):
        tries.here(path, partial(looked_at, path))
    for port in (clue.control_port, clue.agent_port):
        tries.here(f"TCP 127.0.0.1:{port}", partial(connected, "127.0.0.1", port))
    for address in (*clue.addresses, "8.8.8.8"):
        tries.here(f"TCP {address}:{clue.control_port}", partial(connected, address, clue.control_port))
    tries.here("an abstract name of the host", partial(met, "\0" + clue.abstract))
    tries.here(f"{clue.folder}/pwned", Path(f"{clue.folder}/pwned").touch)
    tries.here("its own file", partial(os.chmod, __file__, 0o777))
    for pid in (clue.server_pid, *clue.sandbox_pids):
        tries.here(f"SIGKILL to {pid}", partial(os.kill, pid, signal.SIGKILL))
        tries.here(f"the variables of {pid}", partial(opened, f"/proc/{pid}/environ"))
    tries.found("variables of all that can be seen", _variables())


def _variables() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            found.append(path.read_bytes().decode("utf-8", "replace"))
        except OSError:
            continue
    return found
