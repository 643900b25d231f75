"""The zygotes of one worker pool, seen from the server: each is a process, its socket, and a thread that waits for it.

Rule 1: one that died is started again for the next session, never by two at once.
Rule 2: one that dies again and again before a worker came from it is left alone for a while, and sessions are refused.
Rule 3: what steps batches is compiled once, by a process of its own, before the zygote loads it and forks; so nobody
    waits for it but those who asked for a batch.
Rule 4: a zygote's thread starts its process, waits until it is ready, and reaps it. A process that dies with its parent
    dies with the thread that started it, so that thread must not be one of a pool.
Rule 5: what the process says is somebody else's word: bounded, and only ever shown.
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
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from proctor.envs.targets import MODES
from proctor.errors import ComponentError, ProctorError, ValidationError
from proctor.server.sandbox import messages
from proctor.server.sandbox.pool import worker_process
from proctor.server.sandbox.pool.bubblewrap import VARIABLES
from proctor.server.sandbox.pool.cgroups import Cgroups, ControlGroup
from proctor.server.sandbox.tiers import MIB, START_SECONDS

LOG: Final = logging.getLogger("proctor.sandbox")
MOST_STARTING: Final = 32
"""Workers are in the zygote's group until they are moved into their own."""
SHARED_BYTES: Final = 512 * MIB
"""What all workers share is on the zygote's account, compiled code too."""
AT_ONCE: Final = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL


@dataclass(frozen=True, slots=True)
class ZygotePlan:
    """How a zygote is started: a command line for a descriptor, what it is told, and where its group is made."""

    command: Callable[[int], Sequence[str]]
    start: messages.StartMessage
    cgroups: Cgroups | None = None
    seconds: float = START_SECONDS


class ZygoteProcess:
    """One zygote. `ready` has a result when it can fork, or a ProctorError that says why it cannot."""

    def __init__(self, plan: ZygotePlan, name: str) -> None:
        self.ready: Future[messages.LoadReport] = Future()
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
        self._group: ControlGroup | None = None
        self._descriptor = -1
        self.pid = 0
        self._control, self._theirs = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name=f"proctor-{name}", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether it is there, or on its way."""
        return not self._killed and not self.ended.is_set()

    @property
    def gone(self) -> bool:
        """Whether nothing is left of it."""
        return not self._thread.is_alive()

    def has_started(self, process: int) -> bool:
        """Return whether the process of this descriptor comes from the zygote: it may say so, and be none of ours."""
        with self._guard:
            own = worker_process.find_pid(self._descriptor)
            return own > 1 and worker_process.is_descendant(process, own)

    def fork(self, channel: socket.socket) -> None:
        """Ask for a worker that talks over this socket; an OSError if there is nobody to ask."""
        with self._guard:
            socket.send_fds(self._control, [messages.FORK], [channel.fileno()], AT_ONCE)

    def compile(self, channel: socket.socket, mode: str) -> None:
        """Ask for a process that compiles what steps batches in this mode, and says READY over this socket."""
        with self._guard:
            socket.send_fds(self._control, [messages.COMPILE + _encode_mode(mode)], [channel.fileno()], AT_ONCE)

    def load(self, mode: str) -> None:
        """Have what was compiled loaded before anything else is forked."""
        with self._guard:
            self._control.send(messages.LOAD + _encode_mode(mode), AT_ONCE)

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

    def _run(self) -> None:
        try:
            with self._theirs:
                process = subprocess.Popen(  # noqa: S603  # our own command line
                    list(self._plan.command(self._theirs.fileno())),
                    pass_fds=[self._theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    env=VARIABLES,
                    # A signal that a terminal sends to the server is not for its sandboxes.
                    start_new_session=True,
                )
            with process:
                self._watch(process)
        except OSError as problem:
            self._give_up(ComponentError(f"the sandbox could not be started: {problem}"))
        finally:
            self._give_up(ComponentError("the sandbox could not be started"))
            self.ended.set()
            with self._guard:
                self._control.close()
                if self._descriptor >= 0:
                    os.close(self._descriptor)
                    self._descriptor = -1
            if self._group is not None and not self._group.end():
                LOG.error("the cgroup of a zygote could not be removed", extra={"cgroup": str(self._group.folders[0])})

    def _watch(self, process: "subprocess.Popen[bytes]") -> None:
        with self._guard:
            self._descriptor = os.pidfd_open(process.pid)
        if self._killed:
            self.kill()
        try:
            self.ready.set_result(self._greet())
        except (OSError, msgspec.DecodeError, ProctorError) as problem:
            self.kill()
            process.wait()
            if isinstance(problem, ProctorError):
                self._give_up(problem)
            elif isinstance(problem, TimeoutError):
                self._give_up(ComponentError(f"the sandbox was not ready within {self._plan.seconds:g} seconds"))
            else:
                complaint = worker_process.read_complaint(process.stderr) or problem
                self._give_up(ComponentError(f"the sandbox could not be started: {complaint}"))
        finally:
            # What the zygote says from now on leads nowhere anyway.
            if process.stderr is not None:
                process.stderr.close()
        process.wait()

    def _greet(self) -> messages.LoadReport:
        until = time.monotonic() + self._plan.seconds
        control = self._control
        messages.set_peer_identity(control, wanted=True)
        control.settimeout(self._plan.seconds)
        with messages.receive_handshake(control) as word:
            # It is the process that was started, or what that started.
            self.pid = worker_process.find_pid(word.speaker)
            own = self.pid == worker_process.find_pid(self._descriptor) > 0 or self.has_started(word.speaker)
            if word.kind != messages.HERE or word.reason or not own:
                raise ConnectionResetError("it ended at once, or did not wait")
            messages.set_peer_identity(control, wanted=False)
            if self._plan.cgroups is not None:
                most = self._plan.start.limits
                memory, processes = most.memory_bytes + SHARED_BYTES, most.processes + MOST_STARTING
                limits = replace(most, memory_bytes=memory, processes=processes)
                group = self._plan.cgroups.make(self._name, limits)
                if not worker_process.move_to_group(word.speaker, group):
                    raise ConnectionResetError("it ended before it had a group of its own")
                self._group = group
        loaded = worker_process.load_target_in(control, self._plan.start, until)
        if loaded.problem is not None:
            raise ValidationError(messages.printable_text(loaded.problem))
        if loaded.threads > 0:
            LOG.warning("the environment's module starts threads when it is imported; workers have none of them")
        return loaded

    def _give_up(self, problem: ProctorError) -> None:
        if not self.ready.done():
            self.ready.set_exception(problem)


def _encode_mode(mode: str) -> bytes:
    return bytes([list(MODES).index(mode)])


MOST_FAILURES: Final = 3
"""Zygotes in a row from which no worker came; from then on there is a pause before the next one."""
LONGEST_PAUSE: Final = 30.0
COMPILE_SECONDS: Final = 100.0


class ZygotePool:
    """All zygotes that were started and are not gone; `planned` says how one that is `alone`, or shared, is started."""

    def __init__(self, planned: Callable[[bool], ZygotePlan], clock: Callable[[], float] = time.monotonic) -> None:
        self._planned = planned
        self._clock = clock
        self._numbers = count(1)
        self._starting = threading.Lock()
        self._shared: ZygoteProcess | None = None
        self._all: set[ZygoteProcess] = set()
        self._failures = 0
        self._not_before = 0.0
        self._closed = False

    def current(self) -> ZygoteProcess:
        """Return the zygote that is there or on its way, a new one if there is none; a ComponentError in a pause."""
        with self._starting:
            zygote = self._shared
            if zygote is None or not zygote.alive:
                self._count_failure(zygote)
                self._shared = zygote = self._start_zygote("zygote", alone=False)
            return zygote

    def alone(self) -> ZygoteProcess:
        """Return a new zygote for one session; whoever asked for it ends it."""
        with self._starting:
            return self._start_zygote("alone", alone=True)

    def have_filters(self) -> bool:
        """Return whether each that is there is under a seccomp filter, by the kernel's word."""
        with self._starting, suppress(OSError):
            files = [Path(f"/proc/{zygote.pid}/status") for zygote in self._all if zygote.alive]
            return all("\nSeccomp:\t2\n" in file.read_text(encoding="ascii", errors="replace") for file in files)
        return False

    def close(self) -> None:
        """Start no more, and end all."""
        with self._starting:
            self._closed = True
        for zygote in self._all:
            zygote.kill()

    def join(self, seconds: float) -> None:
        """Wait until nothing is left of them, for each so many seconds at most."""
        for zygote in self._all:
            zygote.join(seconds)

    def _count_failure(self, zygote: ZygoteProcess | None) -> None:
        """Count a zygote that was of no use, and refuse the next one if there were too many; for a while."""
        if zygote is not None:
            LOG.error("the sandbox's zygote ended; its sessions are lost")
            self._failures = 0 if zygote.born else self._failures + 1
            self._shared = None
            self._not_before = self._clock() + min(LONGEST_PAUSE, 2.0 ** (self._failures - MOST_FAILURES))
        if self._failures >= MOST_FAILURES and self._clock() < self._not_before:
            raise ComponentError(f"the sandbox ended {self._failures} times in a row before a worker came")

    def _start_zygote(self, kind: str, *, alone: bool) -> ZygoteProcess:
        if self._closed:
            raise ComponentError("the sandbox is closed")
        self._all = {zygote for zygote in self._all if not zygote.gone}
        zygote = ZygoteProcess(self._planned(alone), f"{kind}-{next(self._numbers)}")
        self._all.add(zygote)
        return zygote


async def wait_until_ready(zygote: ZygoteProcess) -> ZygoteProcess:
    """Return a zygote when it can fork, or raise why it cannot."""
    await asyncio.wrap_future(zygote.ready)
    return zygote


async def receive_next_handshake(channel: socket.socket) -> messages.HandshakeMessage:
    """Return the next word on a socket that does not block."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()
    loop.add_reader(channel, lambda: None if readable.done() else readable.set_result(None))
    try:
        await readable
    finally:
        loop.remove_reader(channel)
    return messages.receive_handshake(channel)


async def compile_ahead(zygote: ZygoteProcess, mode: str | None) -> None:
    """Return when a zygote shares what steps batches with the workers to come; compiled once, whoever asks first."""
    wanted = next(iter(MODES)) if mode is None else mode
    if wanted not in MODES:
        return
    await wait_until_ready(zygote)
    if wanted not in zygote.warm:
        zygote.warm[wanted] = asyncio.create_task(_compile_in_zygote(zygote, wanted))
    await asyncio.shield(zygote.warm[wanted])


async def _compile_in_zygote(zygote: ZygoteProcess, mode: str) -> None:
    """Return when a zygote has compiled and was told to load it; where that fails, each worker compiles for itself."""
    ours, theirs = socket.socketpair()
    with ours:
        ours.setblocking(False)
        try:
            with theirs:
                zygote.compile(theirs, mode)
            async with asyncio.timeout(COMPILE_SECONDS):
                with await receive_next_handshake(ours) as word:
                    if word.kind == messages.READY:
                        zygote.load(mode)
        except (OSError, TimeoutError) as problem:
            LOG.warning("what steps batches could not be compiled ahead: %s", problem)
