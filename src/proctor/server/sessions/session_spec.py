"""How a session's environment is made: what, in which form, and where it works.

Rule 1: the first environment of a target is made when the server starts (`describe_target`), and a target that cannot be made stops
    the server before anybody connects.
Rule 2: making can take long and may fail; it never happens on the event loop. What it raised is logged with an
    incident's number, and a peer learns the number.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from proctor.envs.targets import Target
from proctor.errors import ComponentError
from proctor.models.control import Code
from proctor.models.wire import Encoding
from proctor.server.runtime.env_adapter import EnvDescription
from proctor.server.runtime.executors import (
    AnyAdapter,
    Executor,
    LoopExecutor,
    ThreadExecutor,
    abandoned_threads,
    make_adapter,
    run_on_thread,
)
from proctor.server.runtime.results import make_refusal, new_incident
from proctor.server.sandbox.messages import Work

LOG: Final = logging.getLogger("proctor.environment")
MOST_ABANDONED: Final = 64
"""Threads that hang in an environment and cannot be stopped; with more of them no further environment is made."""
MAKING_SECONDS: Final = 120.0
"""How long the making of an environment may take."""

MOST_QUICK: Final = 4096
"""The largest batch that is stepped on the event loop."""

ExecutorKind = Literal["inline", "thread", "process"]


class AnyWorkerPool(Protocol):
    """Where sandboxed environments come from; see `sandbox/pool/worker_pool`."""

    async def start_worker(self, work: Work, name: str = "") -> Executor:
        """Return an executor with a new environment at work in it, or raise a refusal."""

    async def close(self) -> None:
        """End every process that it started."""

    def end(self) -> None:
        """Do the same without an event loop."""


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """How to make the environment of one session."""

    target: Target
    card: EnvDescription
    kind: ExecutorKind
    encoding: Encoding = field(default_factory=Encoding)
    num_envs: int | None = None
    autoreset_mode: str | None = None
    infos: bool = False
    scenes: bool = False
    """Whether what a picture needs is put on record."""
    transforms: list[dict[str, Any]] = field(default_factory=list)
    incident: Callable[[], str] = new_incident
    pool: AnyWorkerPool | None = None
    """For `kind` "process": where it comes from."""
    tier: str = "none"
    policy: dict[str, Any] | None = None
    """What governs the episodes of agents; None: they are free."""
    probe: Mapping[str, Any] = field(default_factory=dict)
    """What was found to hold when the server started, for the record."""

    async def make_executor(self, name: str) -> Executor:
        """Return an executor with a new environment at work in it, or raise a refusal."""
        try:
            async with asyncio.timeout(MAKING_SECONDS):
                if self.kind == "process":
                    return await self._make_in_process(name)
                if self.kind == "inline":
                    making = run_on_thread(self.make_adapter, "proctor-maker")
                    return await LoopExecutor.around(making, immediate=not self.card.steps_are_coroutines)
                if len(abandoned_threads) >= MOST_ABANDONED:
                    raise make_refusal(Code.CAPACITY_REACHED, "too many environments hang and cannot be stopped")
                executor = ThreadExecutor(f"proctor-{name}")
                await executor.make(self.make_adapter)
                return executor
        except TimeoutError:
            raise make_refusal(Code.FACTORY_ERROR, "the environment was not made in time") from None

    def make_adapter(self) -> AnyAdapter:
        """Return an adapter with a new environment, or raise a refusal; this may take long."""
        return make_adapter(
            self.target,
            self.encoding,
            self.incident,
            num_envs=self.num_envs,
            autoreset_mode=self.autoreset_mode,
            infos=self.infos,
            scenes=self.scenes,
            coroutines=self.card.steps_are_coroutines,
        )

    async def _make_in_process(self, name: str) -> Executor:
        if self.pool is None:
            raise ComponentError("a sandboxed session without a sandbox", expected="a tier above none")
        work = Work(
            self.target.text,
            self.target.settings,
            self.encoding.packed,
            self.encoding.compress,
            self.num_envs,
            self.autoreset_mode,
            self.infos,
            self.scenes,
        )
        try:
            return await self.pool.start_worker(work, name)
        except OSError as problem:
            incident = self.incident()
            LOG.error("a worker could not be started, incident %s", incident, exc_info=problem)
            raise make_refusal(Code.FACTORY_ERROR, "the environment could not be made", incident=incident) from None


def choose_executor_kind(
    target: Target, card: EnvDescription, wanted: ExecutorKind | None, num_envs: int | None
) -> ExecutorKind:
    """Return where an environment works: where `wanted` says, else where it disturbs nobody.

    Coroutines run on the loop or in a process. A batch is quick only if an engine of ours steps it and it is not large.
    """
    if wanted is not None and not (card.steps_are_coroutines and wanted == "thread"):
        return wanted
    if card.steps_are_coroutines:
        return "inline"
    quick = card.quick if num_envs is None else target.has_engine and num_envs <= MOST_QUICK
    return "inline" if quick else "thread"
