"""A zygote, seen from the server: a process, the socket to it, and a thread that is there as long as it is.

Rule 1: the thread starts the process, waits until it is ready, and reaps it. A process that dies with its parent dies
    with the thread that started it, so that thread must not be one of a pool.
Rule 2: what the process says is somebody else's word: bounded, and only ever shown.
"""

import asyncio
import logging
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from proctor.envs.targets import MODES
from proctor.errors import ComponentError, ProctorError, ValidationError
from proctor.server.sandbox.bubblewrap import VARIABLES
from proctor.server.sandbox.cgroups import Cgroups
from proctor.server.sandbox.control_group import Group
from proctor.server.sandbox.hold import descends, move, pid_of, removed
from proctor.server.sandbox.pipe import framed, read, spoken
from proctor.server.sandbox.tiers import MIB
from proctor.server.sandbox.words import (
    COMPILE,
    FORK,
    HERE,
    LOAD,
    Loaded,
    Start,
    heard,
    listen_for_messages,
    listen_for_words,
    plain,
)

LOG: Final = logging.getLogger("proctor.sandbox")
START_SECONDS: Final = 60.0
MOST_STARTING: Final = 32
"""Workers are in the zygote's group until they are moved into their own."""
SHARED_BYTES: Final = 512 * MIB
"""What all workers share is on the zygote's account, compiled code too."""
AT_ONCE: Final = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
LONGEST_ANSWER: Final = 2**16
LONGEST_COMPLAINT: Final = 2000


@dataclass(frozen=True, slots=True)
class Plan:
    """How a zygote is started: a command line for a descriptor, what it is told, and where its group is made."""

    command: Callable[[int], Sequence[str]]
    start: Start
    cgroups: Cgroups | None = None
    seconds: float = START_SECONDS


class Keeper:
    """One zygote. `ready` has a result when it can fork, or a ProctorError that says why it cannot."""

    def __init__(self, plan: Plan, name: str) -> None:
        self.ready: Future[Loaded] = Future()
        # So nobody who waits for it can cancel it for the others.
        self.ready.set_running_or_notify_cancel()
        self.ended = threading.Event()
        self.born = 0
        """How many workers have come from it."""
        self.warm: dict[str, asyncio.Task[None]] = {}
        """What it was made to compile, by mode."""
        self._plan = plan
        self._name = name
        self._guard = threading.Lock()
        self._killed = False
        self._descriptor = -1
        self._zygote = 0
        self._control, self._theirs = socket.socketpair()
        self._thread = threading.Thread(target=self._keep, name=f"proctor-{name}", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether it is there, or on its way."""
        return not self._killed and not self.ended.is_set()

    @property
    def gone(self) -> bool:
        """Whether nothing is left of it."""
        return not self._thread.is_alive()

    def started(self, process: int) -> bool:
        """Return whether the process of this descriptor comes from the zygote: it may say so, and be none of ours."""
        with self._guard:
            own = pid_of(self._descriptor)
            return own > 1 and descends(process, own)

    def has_filter(self) -> bool:
        """Return whether the zygote is under a seccomp filter, by the kernel's word."""
        with suppress(OSError):
            told = Path(f"/proc/{self._zygote}/status").read_text(encoding="ascii", errors="replace")
            return "\nSeccomp:\t2\n" in told
        return False

    def fork(self, channel: socket.socket) -> None:
        """Ask for a worker that talks over this socket; an OSError if there is nobody to ask."""
        self._say(FORK, channel)

    def compile(self, channel: socket.socket, mode: str) -> None:
        """Ask for a process that compiles what steps batches in this mode, and says READY over this socket."""
        self._say(COMPILE + _byte(mode), channel)

    def load(self, mode: str) -> None:
        """Have what was compiled loaded before anything else is forked."""
        with self._guard:
            self._control.send(LOAD + _byte(mode), AT_ONCE)

    def _say(self, word: bytes, channel: socket.socket) -> None:
        with self._guard:
            socket.send_fds(self._control, [word], [channel.fileno()], AT_ONCE)

    def kill(self) -> None:
        """End it, and with it its workers; never waits."""
        with self._guard:
            self._killed = True
            if self._descriptor >= 0:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def join(self, seconds: float) -> bool:
        """Return whether nothing is left of it, after so many seconds at most."""
        self._thread.join(seconds)
        return self.gone

    # ------------------------------------------------------------------------------------------------ on the thread
    def _keep(self) -> None:
        group: list[Group] = []
        try:
            with self._started() as process:
                self._watch(process, group)
        except OSError as problem:
            self._give_up(ComponentError(f"the sandbox could not be started: {problem}"))
        finally:
            self._give_up(ComponentError("the sandbox could not be started"))
            self.ended.set()
            self._let_go(group)

    def _started(self) -> subprocess.Popen[bytes]:
        with self._theirs:
            return subprocess.Popen(  # noqa: S603  # our own command line
                list(self._plan.command(self._theirs.fileno())),
                pass_fds=[self._theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=VARIABLES,
                # A signal that a terminal sends to the server is not for its sandboxes.
                start_new_session=True,
            )

    def _watch(self, process: "subprocess.Popen[bytes]", group: list[Group]) -> None:
        with self._guard:
            self._descriptor = os.pidfd_open(process.pid)
        if self._killed:
            self.kill()
        try:
            self.ready.set_result(self._greeted(group))
        except (OSError, msgspec.DecodeError, ProctorError) as problem:
            self.kill()
            process.wait()
            self._give_up(self._told(problem, process))
        finally:
            # What the zygote says from now on leads nowhere anyway.
            if process.stderr is not None:
                process.stderr.close()
        process.wait()

    def _greeted(self, group: list[Group]) -> Loaded:
        """Have the zygote put into its group and told what to load; return what it says then."""
        until = time.monotonic() + self._plan.seconds
        control = self._control
        listen_for_words(control)
        control.settimeout(self._plan.seconds)
        with heard(control) as word:
            if word.kind != HERE or word.reason or not self._is_own(word.speaker):
                raise ConnectionResetError("it ended at once, or did not wait")
            listen_for_messages(control)
            self._zygote = pid_of(word.speaker)
            self._enclose(word.speaker, group)
        loaded = self._answer(until)
        if loaded.problem is not None:
            raise ValidationError(plain(loaded.problem))
        if loaded.threads > 0:
            LOG.warning("the environment's module starts threads when it is imported; workers have none of them")
        return loaded

    def _answer(self, until: float) -> Loaded:
        try:
            self._control.sendall(framed(self._plan.start))
            body = read(self._control, LONGEST_ANSWER, until)
        except ConnectionError:
            body = None
        if body is None:
            raise ConnectionResetError("it ended while it imported the environment")
        return spoken(body, Loaded)

    def _is_own(self, process: int) -> bool:
        """Return whether this is the process that was started, or what it started."""
        return pid_of(process) == pid_of(self._descriptor) > 0 or self.started(process)

    def _enclose(self, process: int, group: list[Group]) -> None:
        if self._plan.cgroups is not None:
            limits = self._plan.start.limits
            limits = replace(
                limits, memory_bytes=limits.memory_bytes + SHARED_BYTES, processes=limits.processes + MOST_STARTING
            )
            made = self._plan.cgroups.make(self._name, limits)
            if not move(process, made):
                raise ConnectionResetError("it ended before it had a group of its own")
            group.append(made)

    def _told(self, problem: Exception, process: "subprocess.Popen[bytes]") -> ProctorError:
        if isinstance(problem, ProctorError):
            return problem
        if isinstance(problem, TimeoutError):
            return ComponentError(f"the sandbox was not ready within {self._plan.seconds:g} seconds")
        complaint = _complaint(process)
        return ComponentError(f"the sandbox could not be started: {complaint or problem}")

    def _give_up(self, problem: ProctorError) -> None:
        if not self.ready.done():
            self.ready.set_exception(problem)

    def _let_go(self, group: list[Group]) -> None:
        with self._guard:
            self._control.close()
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1
        for each in group:
            if not removed(each):
                LOG.error("the cgroup of a zygote could not be removed", extra={"cgroup": str(each.folders[0])})


def _byte(mode: str) -> bytes:
    return bytes([list(MODES).index(mode)])


def _complaint(process: "subprocess.Popen[bytes]") -> str:
    """Return what bubblewrap or Python wrote before it ended; nobody waits for more."""
    if process.stderr is None:
        return ""
    os.set_blocking(process.stderr.fileno(), False)
    said = process.stderr.read(LONGEST_COMPLAINT) or b""
    return plain(said.decode("utf-8", "replace").strip())
