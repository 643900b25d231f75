"""What is laid out on the host for the probes to take, and whether it was taken.

Rule: a probe's own word that it was stopped is not enough where the host can see for itself.
"""

import os
import secrets
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from proctor.server.sandbox.findings import Probe
from proctor.server.sandbox.probes import Bait, left_by
from proctor.server.sandbox.tiers import MIB, SandboxLimits

LIMITS: Final = SandboxLimits(memory_bytes=256 * MIB, processes=24, file_bytes=MIB, tmp_bytes=2 * MIB)
"""Small ones: that they hold is what is tried, and trying must not hurt where they do not."""
VARIABLE: Final = "PROCTOR_CANARY"
ECHO: Final = "import os\nwhile said := os.read(0, 1): os.write(1, said)"
"""What the process does that a probe may find or kill: answer what it is told."""
ANSWER_SECONDS: Final = 60.0


class Baits:
    """Listeners, a folder and a process, all marked with one random word; made by `laid_out`."""

    def __init__(self, stack: ExitStack) -> None:
        self.token = f"canary-{secrets.token_hex(8)}"
        self._stack = stack
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (self._folder / "canary").write_text(self.token, encoding="ascii")
        # Open to all: what keeps a worker out is then that it does not see it, not that it is somebody else.
        self._folder.chmod(0o777)
        self._listeners = {
            Probe.NETWORK: self._listener(socket.AF_INET, ("127.0.0.1", 0)),
            Probe.ABSTRACT_SOCKETS: self._listener(socket.AF_UNIX, f"\0{self.token}"),
        }
        self._decoy = self._process()

    def bait(self, probe: Probe, neighbour: int = 0) -> Bait:
        """Return what a probe is told."""
        if self._decoy.poll() is not None:
            self._decoy = self._process()
        if probe is Probe.PROC:
            self._answers()  # only then is its command line there: a new program gets it a moment after it has begun
        return Bait(
            probe=probe,
            token=self.token,
            folder=str(self._folder),
            port=self._listeners[Probe.NETWORK].getsockname()[1],
            decoy=self._decoy.pid,
            neighbour=neighbour,
            memory_bytes=LIMITS.memory_bytes,
            processes=LIMITS.processes,
            tmp_bytes=LIMITS.tmp_bytes,
        )

    def taken(self, probe: Probe) -> bool | None:
        """Return whether the host saw that the probe succeeded, None where only the probe can know."""
        if probe in self._listeners:
            return _reached(self._listeners[probe])
        if probe is Probe.SIGNALS:
            return self._ended()
        return None

    def _listener(self, family: int, address: str | tuple[str, int]) -> socket.socket:
        listener = self._stack.enter_context(socket.socket(family))
        listener.bind(address)
        listener.listen()
        listener.setblocking(False)
        return listener

    def _process(self) -> "subprocess.Popen[bytes]":
        """Start a process that answers, with the word in its command line."""
        line = [sys.executable, "-I", "-S", "-c", ECHO, self.token]
        process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603 - this Python
        self._stack.callback(_end, process)
        return process

    def _ended(self) -> bool:
        if self._answers():
            return False
        self._decoy.kill()  # one that was only stopped
        self._decoy.wait()
        return True

    def _answers(self) -> bool:
        """Return whether the process still does what it is for; one that was killed answers nothing, however late it ends."""
        said, heard = self._decoy.stdin, self._decoy.stdout
        if said is None or heard is None:
            return False
        with suppress(BrokenPipeError):
            os.write(said.fileno(), b"?")
            ready, _, _ = select.select([heard], [], [], ANSWER_SECONDS)
            return bool(ready and os.read(heard.fileno(), 1))
        return False


def _reached(listener: socket.socket) -> bool:
    try:
        connection, _ = listener.accept()
    except BlockingIOError:
        return False
    connection.close()
    return True


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.communicate()


@contextmanager
def laid_out() -> Iterator[Baits]:
    """Yield baits, and clear them away."""
    with ExitStack() as stack:
        baits = Baits(stack)
        os.environ[VARIABLE] = baits.token
        stack.callback(os.environ.pop, VARIABLE, None)
        # Where workers have no temporary folder of their own, it is ours that the neighbour's file is in.
        stack.callback(left_by(baits.token).unlink, missing_ok=True)
        yield baits
