"""Where sandboxed environments come from: a zygote that is kept alive, and workers that are forked from it.

Rule 1: one zygote for all sessions (`zygotes`); a session whose worker does not come is refused.
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
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, TypeVar

from proctor.envs.targets import Target
from proctor.errors import ComponentError, ProctorError, ValidationError
from proctor.models.control import Code
from proctor.server.answers import Refused, refused
from proctor.server.incidents import new_incident
from proctor.server.sandbox import bubblewrap, zygote
from proctor.server.sandbox.cgroups import Cgroups, found, missing
from proctor.server.sandbox.checker import AnswerChecker
from proctor.server.sandbox.hold import Hold, new_users
from proctor.server.sandbox.keeper import START_SECONDS, Keeper, Plan
from proctor.server.sandbox.pipe import Describe, Work
from proctor.server.sandbox.place import InWorker
from proctor.server.sandbox.tiers import NOBODY, SandboxWish, Tier
from proctor.server.sandbox.words import (
    GO,
    HERE,
    NO_NAMESPACES,
    READY,
    UNMAPPED,
    Start,
    Word,
    listen_for_messages,
    listen_for_words,
    one_line,
    say,
)
from proctor.server.sandbox.zygotes import Zygotes, next_word, ready, warm

LOG: Final = logging.getLogger("proctor.sandbox")
MOST_STARTS: Final = 8
"""Workers that are started at the same time."""
END_SECONDS: Final = 10.0
DEATH_SECONDS: Final = 5.0
"""How long a zygote whose worker did not come may take to be known as dead."""
Result = TypeVar("Result")

COST: Final = "each session starts a sandbox of its own, which takes the time and the memory of a whole Python"


@dataclass(frozen=True, slots=True)
class NestReport:
    """How sessions are kept apart; `alone` is why each has a whole sandbox for itself, None: they share a zygote."""

    tier: Tier
    alone: str | None = None

    @property
    def costs(self) -> str | None:
        """What that costs, in words."""
        return None if self.alone is None else COST


class Unborn(Exception):
    """No worker came."""


class TooLate(Unborn):
    """No worker came in time; the zygote was killed for it, and whoever waited has waited long enough."""


class NoNamespaces(Unborn):
    """The kernel gives a worker no namespaces of its own."""


class Nest:
    """The sandbox of one target; made by `started`, and left by `close` or `end`."""

    def __init__(
        self,
        target: Target,
        wish: SandboxWish,
        tier: Tier,
        *,
        cgroups: Cgroups | None,
        start_seconds: float = START_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tier: Final = tier
        self.report = NestReport(tier)
        self._target = target
        self._wish = wish
        self._cgroups = cgroups
        self._seconds = start_seconds
        self._binds = () if tier is Tier.PROCESS else bubblewrap.binds_for(target.text, wish.mounts)
        self._numbers = count(1)
        self._users = new_users() if tier is not Tier.PROCESS and os.geteuid() == 0 else None
        self._zygotes = Zygotes(self._plan, clock)
        self._holds: set[Hold] = set()
        self._undertaker = ThreadPoolExecutor(2, thread_name_prefix="proctor-undertaker")
        self._starts = asyncio.Semaphore(MOST_STARTS)
        self._checker = AnswerChecker()

    @classmethod
    def started(cls, target: Target, wish: SandboxWish, tier: Tier, **options: Any) -> "Nest":
        """Return a nest whose zygote has imported the target's module; this takes some time.

        A module that cannot be imported is a ValidationError, a sandbox that cannot be had a ComponentError.
        """
        if tier in (Tier.NONE, Tier.DOCKER):
            raise ValidationError("there is no nest in this tier", found=tier, expected="process, bwrap or strict")
        nest = cls(target, wish, tier, cgroups=_cgroups(tier), **options)
        try:
            nest._zygotes.current().ready.result()
            if tier is Tier.STRICT:
                _blocking(nest._tried())
        except BaseException:
            nest.end()
            raise
        return nest

    def card(self) -> bytes:
        """Return what the environment says of itself (`cards.Card` in msgpack), from a worker that is gone then."""
        return _blocking(self._described())

    async def place(self, work: Work, name: str = "") -> InWorker:
        """Return a place with a new environment at work in it, or raise a refusal; `name` is for the log."""
        if work.num_envs is not None and self._target.has_engine:
            await self._warm(work.autoreset_mode)
        place = await self._empty(name)
        await place.make(work)
        return place

    def filters_imports(self) -> bool:
        """Return whether every process that imports the environment is under a seccomp filter."""
        return self._zygotes.have_filters()

    async def close(self) -> None:
        """End all workers and the zygote; nothing is left."""
        await asyncio.to_thread(self.end)

    def end(self) -> None:
        """Do what `close` does, and wait for it; calling it again does nothing."""
        self._zygotes.close()
        self._checker.close()
        for hold in list(self._holds):
            hold.kill()
        self._zygotes.join(END_SECONDS)
        self._undertaker.shutdown()
        if self._cgroups is not None:
            self._cgroups.close()

    def _plan(self, *, alone: bool) -> Plan:
        target = self._target
        start = Start(
            target.text,
            target.settings,
            self.tier,
            self._wish.limits,
            alone=alone,
            user=NOBODY if self._users is None else next(self._users),
            own_users=self._users is not None,
        )
        return Plan(self._command, start, self._cgroups, self._seconds)

    def _command(self, descriptor: int) -> list[str]:
        inside = zygote.command(descriptor)
        return inside if self.tier is Tier.PROCESS else bubblewrap.command(self._wish, self._binds, inside)

    # ---------------------------------------------------------------------------------------------------- workers
    async def _warm(self, mode: str | None) -> None:
        """Have a zygote that is shared by all compile what steps batches; what goes wrong, a worker will say."""
        if self.report.alone is None:
            with suppress(ProctorError):
                await warm(self._zygotes.current(), mode)

    async def _tried(self) -> None:
        """Have a worker started and ended, to see how workers can be kept apart."""
        (await self._empty()).abandon()

    async def _described(self) -> bytes:
        place = await self._empty()
        return await place.described(Describe(self._target.text, self._target.settings), self._seconds)

    async def _empty(self, name: str = "") -> InWorker:
        """Return a place without an environment, or raise a refusal."""
        try:
            async with self._starts:
                channel, hold = await self._born()
                return InWorker(channel, hold, name, checker=self._checker, most=self._wish.limits.answer_bytes)
        except (Unborn, ProctorError, OSError) as problem:
            number = new_incident()
            LOG.error(
                "a worker could not be started, incident %s: %s",
                number,
                one_line(str(problem)),
                extra={"session": name},
            )
            raise self._refusal(number) from None

    @staticmethod
    def _refusal(number: str) -> Refused:
        return refused(Code.FACTORY_ERROR, "the environment's sandbox could not be started", incident=number)

    async def _born(self) -> tuple[socket.socket, Hold]:
        """Return the socket of a new worker and what holds it; tries once more if the zygote was found dead."""
        if self.report.alone is not None:
            return await self._born_alone()
        keeper = await ready(self._zygotes.current())
        try:
            return await self._birth(keeper)
        except NoNamespaces as problem:
            self._keep_apart(str(problem), keeper)
            return await self._born_alone()
        except TooLate:
            raise
        except (Unborn, ConnectionError):
            if not await asyncio.to_thread(keeper.ended.wait, DEATH_SECONDS):
                raise
        return await self._birth(await ready(self._zygotes.current()))

    def _keep_apart(self, reason: str, keeper: Keeper) -> None:
        """Give each session a sandbox of its own from now on."""
        if self.report.alone is None:
            self.report = NestReport(self.tier, reason)
            LOG.warning("workers get no namespaces of their own (%s): %s", reason, COST)
        keeper.kill()

    async def _born_alone(self) -> tuple[socket.socket, Hold]:
        keeper = self._zygotes.alone()
        try:
            return await self._birth(await ready(keeper), keeper)
        except BaseException:
            keeper.kill()
            raise

    async def _birth(self, keeper: Keeper, own: Keeper | None = None) -> tuple[socket.socket, Hold]:
        """Return the socket of a worker that is confined and waits for its first message, and what holds it."""
        hold = Hold(self._undertaker, self._buried if own is None else lambda hold: self._buried_with(hold, own))
        self._holds.add(hold)
        ours, theirs = socket.socketpair()
        try:
            ours.setblocking(False)
            listen_for_words(ours)
            with theirs:
                keeper.fork(theirs)
            async with asyncio.timeout(self._seconds):
                await self._start_worker(ours, hold, keeper)
            listen_for_messages(ours)
        except BaseException as problem:
            ours.close()
            hold.kill()
            if isinstance(problem, TimeoutError):
                # A zygote that does not even fork is of no use to anybody.
                keeper.kill()
                raise TooLate("the sandbox did not answer in time") from None
            raise
        keeper.born += 1
        return ours, hold

    async def _start_worker(self, channel: socket.socket, hold: Hold, keeper: Keeper) -> None:
        """Lead a new worker to where it can begin."""
        with await next_word(channel) as first:
            if first.kind != HERE or first.reason or not keeper.started(first.speaker):
                raise Unborn("no worker came")
            _take(hold, first, channel)
        if self._cgroups is not None:
            name = f"worker-{next(self._numbers)}"
            await asyncio.to_thread(hold.enclose, self._cgroups, name, self._wish.limits)
        say(channel, GO)
        with await self._last_word(channel, hold) as last:
            if last.kind == NO_NAMESPACES:
                raise NoNamespaces(last.reason)
            if last.kind != READY:
                raise Unborn(last.reason or "a worker ended before it was ready")
            if not (hold.has_member(last.speaker) if self._cgroups is not None else keeper.started(last.speaker)):
                raise Unborn("a process spoke that is not the worker")
            _take(hold, last, channel)

    async def _last_word(self, channel: socket.socket, hold: Hold) -> Word:
        """Return a worker's last word; one that asks for a user of its own before it says it, is given one."""
        word = await next_word(channel)
        if word.kind != UNMAPPED or self._users is None:
            return word
        with word:
            hold.map_user(next(self._users))
        say(channel, GO)
        return await next_word(channel)

    def _buried(self, hold: Hold) -> None:
        self._holds.discard(hold)

    def _buried_with(self, hold: Hold, keeper: Keeper) -> None:
        keeper.kill()
        self._buried(hold)


def _cgroups(tier: Tier) -> Cgroups | None:
    if tier is not Tier.STRICT:
        return None
    cgroups = found()
    if cgroups is None:
        raise ComponentError(f"there are no cgroups for the tier strict: {missing()}")
    cgroups.sweep()
    return cgroups


def _take(hold: Hold, word: Word, channel: socket.socket) -> None:
    """Hold the process that spoke; it waits for our answer, so nothing more is there to be read."""
    hold.take(word.speaker)
    with suppress(BlockingIOError):
        channel.recv(1, socket.MSG_PEEK)
        raise Unborn("a worker ended, or did not wait for an answer")


def _blocking(work: Coroutine[Any, Any, Result]) -> Result:
    """Return what a coroutine returns; on a thread, because whoever asks may be inside an event loop of its own."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
