"""The zygotes of one nest: one that all sessions share, started again when it died, or one for each session.

Rule 1: one that died is started again for the next session, never by two at once.
Rule 2: one that dies again and again before a worker came from it is left alone for a while, and sessions are refused.
Rule 3: what steps batches is compiled once, by a process of its own, before the zygote loads it and forks; so nobody
    waits for it but those who asked for a batch.
"""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from itertools import count
from typing import Final, Protocol

from proctor.envs.targets import MODES
from proctor.errors import ComponentError
from proctor.server.sandbox.keeper import Keeper, Plan
from proctor.server.sandbox.words import READY, Word, heard

LOG: Final = logging.getLogger("proctor.sandbox")
MOST_FAILURES: Final = 3
"""Zygotes in a row from which no worker came; from then on there is a pause before the next one."""
LONGEST_PAUSE: Final = 30.0
COMPILE_SECONDS: Final = 100.0
FIRST_MODE: Final = next(iter(MODES))


class Planning(Protocol):
    """Says how a zygote is started."""

    def __call__(self, *, alone: bool) -> Plan:
        """Return the plan for a zygote that all sessions share, or that one has `alone`."""
        ...


class Zygotes:
    """All zygotes that were started and are not gone."""

    def __init__(self, planned: Planning, clock: Callable[[], float]) -> None:
        self._planned = planned
        self._clock = clock
        self._numbers = count(1)
        self._starting = threading.Lock()
        self._shared: Keeper | None = None
        self._all: set[Keeper] = set()
        self._failures = 0
        self._not_before = 0.0
        self._closed = False

    def current(self) -> Keeper:
        """Return the zygote that is there or on its way, a new one if there is none; a ComponentError in a pause."""
        with self._starting:
            keeper = self._shared
            if keeper is None or not keeper.alive:
                self._mourn(keeper)
                self._shared = keeper = self._new("zygote", alone=False)
            return keeper

    def alone(self) -> Keeper:
        """Return a new zygote for one session; whoever asked for it ends it."""
        with self._starting:
            return self._new("alone", alone=True)

    def have_filters(self) -> bool:
        """Return whether each that is there is under a seccomp filter."""
        with self._starting:
            return all(keeper.has_filter() for keeper in self._all if keeper.alive)

    def close(self) -> None:
        """Start no more, and end all."""
        with self._starting:
            self._closed = True
        for keeper in self._all:
            keeper.kill()

    def join(self, seconds: float) -> None:
        """Wait until nothing is left of them, for each so many seconds at most."""
        for keeper in self._all:
            keeper.join(seconds)

    def _mourn(self, keeper: Keeper | None) -> None:
        """Count a zygote that was of no use, and refuse the next one if there were too many; for a while."""
        if keeper is not None:
            LOG.error("the sandbox's zygote ended; its sessions are lost")
            self._failures = 0 if keeper.born else self._failures + 1
            self._shared = None
            self._not_before = self._clock() + min(LONGEST_PAUSE, 2.0 ** (self._failures - MOST_FAILURES))
        if self._failures >= MOST_FAILURES and self._clock() < self._not_before:
            raise ComponentError(f"the sandbox ended {self._failures} times in a row before a worker came")

    def _new(self, kind: str, *, alone: bool) -> Keeper:
        if self._closed:
            raise ComponentError("the sandbox is closed")
        self._all = {keeper for keeper in self._all if not keeper.gone}
        keeper = Keeper(self._planned(alone=alone), f"{kind}-{next(self._numbers)}")
        self._all.add(keeper)
        return keeper


async def ready(keeper: Keeper) -> Keeper:
    """Return a zygote when it can fork, or raise why it cannot."""
    await asyncio.wrap_future(keeper.ready)
    return keeper


async def next_word(channel: socket.socket) -> Word:
    """Return the next word on a socket that does not block."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()
    loop.add_reader(channel, lambda: None if readable.done() else readable.set_result(None))
    try:
        await readable
    finally:
        loop.remove_reader(channel)
    return heard(channel)


async def warm(keeper: Keeper, mode: str | None) -> None:
    """Return when a zygote shares what steps batches with the workers to come; compiled once, whoever asks first."""
    wanted = FIRST_MODE if mode is None else mode
    if wanted not in MODES:
        return
    await ready(keeper)
    if wanted not in keeper.warm:
        keeper.warm[wanted] = asyncio.create_task(_compiled(keeper, wanted))
    await asyncio.shield(keeper.warm[wanted])


async def _compiled(keeper: Keeper, mode: str) -> None:
    """Return when a zygote has compiled and was told to load it; where that fails, each worker compiles for itself."""
    ours, theirs = socket.socketpair()
    with ours:
        ours.setblocking(False)
        try:
            with theirs:
                keeper.compile(theirs, mode)
            async with asyncio.timeout(COMPILE_SECONDS):
                with await next_word(ours) as word:
                    if word.kind == READY:
                        keeper.load(mode)
        except (OSError, TimeoutError) as problem:
            LOG.warning("what steps batches could not be compiled ahead: %s", problem)
