"""Where sandboxed environments come from: a zygote that is kept alive, and workers that are forked from it.

Rule 1: one zygote for all sessions (`zygote_pool`); a session whose worker does not come is refused.
Rule 2: a worker hears its first message only when it is in a group of its own and has given up what its tier takes.
Rule 3: in `strict` workers are kept apart by namespaces of their own; where the kernel gives none, each session has a
    sandbox of its own, which costs a start and the memory of a whole Python. In `process` and `bwrap` workers of one
    server can reach each other.
Rule 4: nothing is left behind: no process, no descriptor, no group.
"""

import asyncio
import logging
import os
import socket
from contextlib import suppress
from itertools import count
from typing import Any, Final

from proctor.envs.targets import Target
from proctor.errors import ComponentError, ProctorError, ValidationError
from proctor.server.sandbox import messages
from proctor.server.sandbox.pool import bubblewrap, zygote_pool
from proctor.server.sandbox.pool.cgroups import Cgroups, CgroupsMissing, find_cgroups
from proctor.server.sandbox.pool.worker_executor import SandboxPool, WorkerExecutor, run_blocking
from proctor.server.sandbox.pool.worker_process import WorkerProcess, generate_users
from proctor.server.sandbox.pool.zygote_pool import ZygotePlan, ZygotePool, ZygoteProcess
from proctor.server.sandbox.tiers import NOBODY, START_SECONDS, SandboxRequest, Tier
from proctor.server.sandbox.worker import zygote

LOG: Final = logging.getLogger("proctor.sandbox")
END_SECONDS: Final = 10.0
DEATH_SECONDS: Final = 5.0
"""How long a zygote whose worker did not come may take to be known as dead."""

COST: Final = "each session starts a sandbox of its own, which takes the time and the memory of a whole Python"


class WorkerNotStarted(ComponentError):
    """No worker came."""


class WorkerStartTimeout(WorkerNotStarted):
    """No worker came in time; the zygote was killed for it, and whoever waited has waited long enough."""


class NamespacesUnavailable(WorkerNotStarted):
    """The kernel gives a worker no namespaces of its own."""


class WorkerPool(SandboxPool):
    """The sandbox of one target; made by `start`, and left by `close` or `end`."""

    def __init__(
        self,
        target: Target,
        wish: SandboxRequest,
        tier: Tier,
        *,
        cgroups: Cgroups | None,
        start_seconds: float = START_SECONDS,
    ) -> None:
        super().__init__(target, wish, start_seconds)
        self.tier: Final = tier
        self.alone: str | None = None
        """Why each session has a whole sandbox for itself; None: they share a zygote."""
        self._cgroups = cgroups
        self._binds = () if tier is Tier.PROCESS else bubblewrap.find_binds(target.text, wish.mounts)
        self._numbers = count(1)
        self._users = generate_users() if tier is not Tier.PROCESS and os.geteuid() == 0 else None
        self._zygotes = ZygotePool(self._plan)
        self._processes: set[WorkerProcess] = set()

    @classmethod
    def start(cls, target: Target, wish: SandboxRequest, tier: Tier, **options: Any) -> "WorkerPool":
        """Return a pool whose zygote has imported the target's module; this takes some time.

        A module that cannot be imported is a ValidationError, a sandbox that cannot be had a ComponentError.
        """
        if tier in (Tier.NONE, Tier.DOCKER):
            expected = "process, bwrap or strict"
            raise ValidationError("there is no worker pool in this tier", found=tier, expected=expected)
        pool = cls(target, wish, tier, cgroups=_find_cgroups(tier), **options)
        try:
            pool._zygotes.current().ready.result()
            if tier is Tier.STRICT:
                run_blocking(pool._try_worker())
        except BaseException:
            pool.end()
            raise
        return pool

    async def start_worker(self, work: messages.Work, name: str = "") -> WorkerExecutor:
        """Return what `SandboxPool.start_worker` returns, after a zygote compiled what batches need."""
        if work.num_envs is not None and self._target.has_engine and self.alone is None:
            with suppress(ProctorError):  # what goes wrong, a worker will say
                await zygote_pool.compile_ahead(self._zygotes.current(), work.autoreset_mode)
        return await super().start_worker(work, name)

    def filters_imports(self) -> bool:
        """Return whether every process that imports the environment is under a seccomp filter."""
        return self._zygotes.have_filters()

    def end(self) -> None:
        """Do what `close` does, and wait for it; calling it again does nothing."""
        self._zygotes.close()
        self._checker.close()
        for process in list(self._processes):
            process.kill()
        self._zygotes.join(END_SECONDS)
        self._undertaker.shutdown()
        if self._cgroups is not None:
            self._cgroups.close()

    def _plan(self, alone: bool) -> ZygotePlan:
        target = self._target
        start = messages.StartMessage(
            target.text,
            target.settings,
            self.tier,
            self._wish.limits,
            alone=alone,
            user=NOBODY if self._users is None else next(self._users),
            own_users=self._users is not None,
        )
        return ZygotePlan(self._command, start, self._cgroups, self._seconds)

    def _command(self, descriptor: int) -> list[str]:
        inside = zygote.command(descriptor)
        return inside if self.tier is Tier.PROCESS else bubblewrap.command(self._wish, self._binds, inside)

    async def _try_worker(self) -> None:
        """Have a worker started and ended, to see how workers can be kept apart."""
        (await self._start_executor()).abandon()

    async def _start_worker(self) -> tuple[socket.socket, WorkerProcess]:
        """Return the socket of a new worker and what holds it; tries once more if the zygote was found dead."""
        if self.alone is not None:
            return await self._fork_alone()
        zygote_process = await zygote_pool.wait_until_ready(self._zygotes.current())
        try:
            return await self._fork_from(zygote_process)
        except NamespacesUnavailable as problem:
            # Each session has a sandbox of its own from now on.
            if self.alone is None:
                self.alone = str(problem)
                LOG.warning("workers get no namespaces of their own (%s): %s", problem, COST)
            zygote_process.kill()
            return await self._fork_alone()
        except WorkerStartTimeout:
            raise
        except (WorkerNotStarted, ConnectionError):
            if not await asyncio.to_thread(zygote_process.ended.wait, DEATH_SECONDS):
                raise
        return await self._fork_from(await zygote_pool.wait_until_ready(self._zygotes.current()))

    async def _fork_alone(self) -> tuple[socket.socket, WorkerProcess]:
        zygote_process = self._zygotes.alone()
        try:
            return await self._fork_from(await zygote_pool.wait_until_ready(zygote_process), zygote_process)
        except BaseException:
            zygote_process.kill()
            raise

    async def _fork_from(
        self, zygote_process: ZygoteProcess, own: ZygoteProcess | None = None
    ) -> tuple[socket.socket, WorkerProcess]:
        """Return the socket of a worker that is confined and waits for its first message, and what holds it."""

        def forget(process: WorkerProcess) -> None:
            self._processes.discard(process)
            if own is not None:
                own.kill()

        process = WorkerProcess(self._undertaker, forget)
        self._processes.add(process)
        ours, theirs = socket.socketpair()
        try:
            ours.setblocking(False)
            messages.set_peer_identity(ours, wanted=True)
            with theirs:
                zygote_process.fork(theirs)
            async with asyncio.timeout(self._seconds):
                await self._lead_worker(ours, process, zygote_process)
            messages.set_peer_identity(ours, wanted=False)
        except BaseException as problem:
            ours.close()
            process.kill()
            if isinstance(problem, TimeoutError):
                # A zygote that does not even fork is of no use to anybody.
                zygote_process.kill()
                raise WorkerStartTimeout("the sandbox did not answer in time") from None
            raise
        zygote_process.born += 1
        return ours, process

    async def _lead_worker(self, channel: socket.socket, process: WorkerProcess, zygote_process: ZygoteProcess) -> None:
        with await zygote_pool.receive_next_handshake(channel) as first:
            if first.kind != messages.HERE or first.reason or not zygote_process.has_started(first.speaker):
                raise WorkerNotStarted("no worker came")
            _attach_speaker(process, first, channel)
        if self._cgroups is not None:
            name = f"worker-{next(self._numbers)}"
            await asyncio.to_thread(process.put_into_group, self._cgroups, name, self._wish.limits)
        messages.send_handshake(channel, messages.GO)
        with await self._receive_last_word(channel, process) as last:
            if last.kind == messages.NO_NAMESPACES:
                raise NamespacesUnavailable(last.reason)
            if last.kind != messages.READY:
                raise WorkerNotStarted(last.reason or "a worker ended before it was ready")
            is_own = zygote_process.has_started if self._cgroups is None else process.has_member
            if not is_own(last.speaker):
                raise WorkerNotStarted("a process spoke that is not the worker")
            _attach_speaker(process, last, channel)

    async def _receive_last_word(self, channel: socket.socket, process: WorkerProcess) -> messages.HandshakeMessage:
        """Return a worker's last word; one that asks for a user of its own before it says it, is given one."""
        word = await zygote_pool.receive_next_handshake(channel)
        if word.kind != messages.UNMAPPED or self._users is None:
            return word
        with word:
            process.map_user(next(self._users))
        messages.send_handshake(channel, messages.GO)
        return await zygote_pool.receive_next_handshake(channel)


def _find_cgroups(tier: Tier) -> Cgroups | None:
    if tier is not Tier.STRICT:
        return None
    try:
        cgroups = find_cgroups()
        cgroups.sweep()
    except CgroupsMissing as problem:
        raise ComponentError(f"there are no cgroups for the tier strict: {problem}") from None
    return cgroups


def _attach_speaker(process: WorkerProcess, word: messages.HandshakeMessage, channel: socket.socket) -> None:
    """Hold the process that spoke; it waits for our answer, so nothing more is there to be read."""
    process.attach(word.speaker)
    with suppress(BlockingIOError):
        channel.recv(1, socket.MSG_PEEK)
        raise WorkerNotStarted("a worker ended, or did not wait for an answer")
