"""Several processes that serve one address: each also listens on an address of its own.

Rule 1: a session lives in one worker. Whoever says hello learns that worker's own address, and comes back to it there.
Rule 2: a worker that dies is started again on the same addresses. With a ledger it goes on with its sessions; without one
    they are lost, and their clients are told so.
Rule 3: the parent serves nothing: it starts, watches and stops. Of credentials it gives away the digests only.
"""

import asyncio
import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Semaphore
from types import FrameType
from typing import Final

from prometheus_client.multiprocess import mark_process_dead

from proctor.access.redaction import Redactor
from proctor.envs.targets import Target
from proctor.server.app import Keys, Listening, Server, run
from proctor.server.isolation import choose_isolation
from proctor.server.logs import set_up_logs
from proctor.server.net.metrics import FOLDER
from proctor.server.net.uvicorn_server import bind_remembered_port, port_of
from proctor.server.rewards.pipeline import plan_of
from proctor.server.settings import ServerSettings

LOG: Final = logging.getLogger("proctor.server")
STEADY_SECONDS: Final = 60.0
MOST_FAILURES: Final = 5
"""When workers die so often before they have served for `STEADY_SECONDS`, something is wrong with all of them."""


def run_workers(
    settings: ServerSettings,
    keys: Keys,
    shared: socket.socket,
    agents: Sequence[socket.socket] | None,
    ready: Callable[[str], None],
) -> int:
    """Serve with several workers until told to stop; return the exit code.

    What no worker could serve is a ValidationError here, before the first one starts.
    """
    isolation = choose_isolation(settings, Target(settings.target, dict(settings.settings)))
    if isolation.pool is not None:
        asyncio.run(isolation.pool.close())
    plan_of(settings.transforms)
    with tempfile.TemporaryDirectory(prefix="proctor-metrics-") as folder:
        # The client library reads this when it is imported, which happens in the workers.
        os.environ[FOLDER] = folder
        return _WorkerGroup(settings, keys, shared, agents).run(lambda: ready(isolation.tier))


class _WorkerGroup:
    def __init__(
        self, settings: ServerSettings, keys: Keys, shared: socket.socket, agents: Sequence[socket.socket] | None
    ) -> None:
        self._settings = settings
        self._keys = keys
        self._shared = shared
        self._agents: Sequence[socket.socket | None] = agents or [None] * settings.workers
        self._own = [
            bind_remembered_port(settings.ledger, f"worker-{index}", settings.host, 0)
            for index in range(settings.workers)
        ]
        self._context = multiprocessing.get_context("spawn")
        self._ready = self._context.Semaphore(0)
        self._workers: list[BaseProcess] = []
        self._begun: list[float] = []
        self._failures = 0
        self._stopping = False

    def run(self, ready: Callable[[], None]) -> int:
        def stop(number: int, frame: FrameType | None) -> None:
            self._stopping = True

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            return self._watch(ready)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _watch(self, ready: Callable[[], None]) -> int:
        self._workers = [self._start(index) for index in range(len(self._own))]
        self._begun = [time.monotonic()] * len(self._workers)
        waited_for = len(self._workers)
        while not self._stopping and self._failures < MOST_FAILURES:
            wait([worker.sentinel for worker in self._workers], timeout=0.1 if waited_for > 0 else 0.5)
            self._replace_dead()
            while waited_for > 0 and self._ready.acquire(block=False):
                waited_for -= 1
                if waited_for == 0:
                    ready()
        for worker in self._workers:
            if worker.is_alive():
                worker.terminate()
        for worker in self._workers:
            worker.join(self._settings.drain_seconds + 20)
            if worker.is_alive():
                worker.kill()
        for own in self._own:
            own.close()
        return 0 if self._stopping else 1

    def _replace_dead(self) -> None:
        for index, worker in enumerate(self._workers):
            if not worker.is_alive() and not self._stopping:
                steady = time.monotonic() - self._begun[index] > STEADY_SECONDS
                self._failures = 0 if steady else self._failures + 1
                fate = "are lost" if self._settings.ledger is None else "wait for the next one"
                LOG.error("worker %s ended with code %s; its sessions %s", worker.pid, worker.exitcode, fate)
                if worker.pid is not None:
                    mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]  # it ships no types
                self._workers[index] = self._start(index)
                self._begun[index] = time.monotonic()

    def _start(self, index: int) -> BaseProcess:
        sockets = [self._shared, self._own[index]]
        worker = self._context.Process(
            target=_run_worker, args=(self._settings, self._keys, index, sockets, self._agents[index], self._ready)
        )
        worker.start()
        return worker


def _run_worker(
    settings: ServerSettings,
    keys: Keys,
    index: int,
    sockets: Sequence[socket.socket],
    agents: socket.socket | None,
    ready: Semaphore,
) -> None:
    set_up_logs(settings, Redactor())
    threading.Thread(target=_follow_parent, args=(settings.ledger is not None,), daemon=True).start()
    record = settings.record
    if record is not None:
        record = record.with_name(f"{record.stem}-{os.getpid()}{record.suffix}")
        settings = settings.model_copy(update={"record": record})
    listening = Listening(sockets, port_of(sockets[-1]), agents, index)
    with suppress(KeyboardInterrupt):
        run(lambda: Server(settings, keys, listening), lambda tier: ready.release())


def _follow_parent(survives: bool) -> None:
    """End this worker when its parent is gone: nobody would stop it, and it would hold the addresses of the next run.

    With a ledger it ends at once, as if it had been killed, too: the next run goes on with its sessions.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGKILL if survives else signal.SIGTERM)
