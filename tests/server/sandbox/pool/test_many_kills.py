"""Many workers are killed at random instants under load: nobody else notices, and nothing is left of them.

PROCTOR_WORKER_KILLS=1000 kills a thousand, which takes a minute on an idle machine.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from proctor.envs.targets import Target
from proctor.models.control import Code
from proctor.server.runtime.results import EnvOutcome, RequestError
from proctor.server.sandbox.pool.cgroups import ControlGroup
from proctor.server.sandbox.pool.worker_executor import ProcessHandle, WorkerExecutor
from proctor.server.sandbox.pool.worker_pool import WorkerPool
from proctor.server.sandbox.tiers import SandboxRequest, Tier
from tests.server.live_server import until
from tests.server.sandbox.processes import (
    ENVIRONMENTS,
    GO,
    ORDER,
    comes_true,
    descendants,
    files,
    groups,
    pid_of,
    run,
    work,
)

pytestmark = pytest.mark.system

KILLS = int(os.environ.get("PROCTOR_WORKER_KILLS", "250"))
LANES = 10
"""Sessions that are opened again whenever their worker was killed."""
STEADY = 4
"""Sessions that nobody kills."""
PATIENCE_SECONDS = 800.0
COUNTING = work(f"{ENVIRONMENTS}:Counting", end=10**9, cut=10**9)


@dataclass
class Load:
    """What goes on in one pool: who is steady, who was killed, and what sessions were told."""

    pool: WorkerPool
    chance: random.Random
    steady: set[int] = field(default_factory=set)
    stepping: dict[int, ProcessHandle] = field(default_factory=dict)
    killed: dict[int, ProcessHandle] = field(default_factory=dict)
    """By the number of the process; nothing tells this number any more when the process is gone, so the hold is kept."""
    told: Counter[str] = field(default_factory=Counter)
    instants: Counter[str] = field(default_factory=Counter)
    stray: list[int] = field(default_factory=list)
    """Workers that failed though nobody had killed them."""

    @property
    def over(self) -> bool:
        return len(self.killed) >= KILLS

    def victims(self) -> dict[int, ProcessHandle]:
        """Return every process of every worker but the steady ones', from the instant at which it has a group."""
        held = [(hold, hold._group) for hold in list(self.pool._processes)]
        found = {pid: hold for hold, group in held if group is not None for pid in group.pids()}
        return {pid: hold for pid, hold in found.items() if pid not in self.steady}

    def kill_one(self) -> None:
        # Starting takes longer than stepping: without a preference most would never come to a step.
        prefers_steps = self.chance.random() < 0.7 and self.stepping
        victims = self.stepping if prefers_steps else self.victims()
        living = sorted(victims.keys() - self.killed.keys())
        if living:
            victim = self.chance.choice(living)
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
                self.killed[victim] = victims[victim]

    async def be_steady(self) -> int:
        """Step one session until all is over; return how many steps it had, each of which was answered in order."""
        executor = await self.pool.start_worker(COUNTING)
        # Nobody is killed before all who are steady are known.
        self.steady.add(pid_of(executor))
        await executor.reset(ORDER)
        steps = 0
        while not self.over:
            outcome = await executor.step(GO)
            steps += 1
            assert isinstance(outcome, EnvOutcome)
            assert outcome.observation == b'{"observation":%d}' % steps
        await executor.close()
        return steps

    async def be_killed(self) -> None:
        """Open sessions and step them, each until it is killed or, now and then, until it is closed or abandoned."""
        while not self.over:
            try:
                executor = await self.pool.start_worker(COUNTING)
            except RequestError as problem:
                self.told[problem.problem.code] += 1
                self.instants["start"] += 1
                continue
            await self.step_until_killed(executor)

    async def step_until_killed(self, executor: WorkerExecutor) -> None:
        pid = pid_of(executor)
        instant = "reset"
        try:
            await executor.reset(ORDER)
            instant = "step"
            self.stepping[pid] = executor._process
            for _ in range(self.chance.randrange(1, 2000)):
                if self.over:
                    break
                await executor.step(GO)
            instant = "close"
            await executor.close()
        except RequestError as problem:
            self.told[problem.problem.code] += 1
            self.instants[instant] += 1
            if executor._process not in self.killed.values():
                self.stray.append(pid)
        finally:
            self.stepping.pop(pid, None)
            executor.abandon()

    async def kill(self) -> None:
        await comes_true(lambda: len(self.steady) == STEADY)
        while not self.over:
            await asyncio.sleep(self.chance.random() * 0.06)
            self.kill_one()

    async def carried_on(self) -> list[int]:
        """Return how many steps those had who were left alone."""
        async with asyncio.TaskGroup() as tasks:
            steady = [tasks.create_task(self.be_steady()) for _ in range(STEADY)]
            await comes_true(lambda: len(self.steady) == STEADY)
            for _ in range(LANES):
                tasks.create_task(self.be_killed())
            tasks.create_task(self.kill())
        return [task.result() for task in steady]


def left_groups(pool: WorkerPool) -> list[Path]:
    """Return the groups of workers that are still there."""
    assert pool._cgroups is not None
    homes = [home / pool._cgroups.family for home in pool._cgroups.homes]
    return [folder for home in homes if home.is_dir() for folder in home.iterdir() if folder.name.startswith("worker")]


def test_many_workers_are_killed_and_nobody_else_notices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    run(asyncio.sleep(0))  # what a loop keeps for ever
    before, held, grouped = descendants(), files(), groups()
    pool = WorkerPool.start(Target(f"{ENVIRONMENTS}:Counting"), SandboxRequest(), Tier.STRICT)
    first, load = pool._zygotes.current(), Load(pool, random.Random(20260101))
    try:
        steps = run(load.carried_on(), PATIENCE_SECONDS)
        until(lambda: not pool._processes)
        zombies = [pid for pid, state in descendants().items() if state == "Z"]
        groups_left = left_groups(pool)
        keeper = pool._zygotes.current()
        workers_left = descendants().keys() - before.keys()
    finally:
        pool.end()

    assert len(load.killed) == KILLS
    assert load.stray == []
    assert load.told.keys() <= {Code.EXECUTION_ERROR, Code.FACTORY_ERROR}
    assert load.instants["step"] > 20
    assert load.instants["start"] > 0
    assert min(steps) > 0
    assert keeper is first
    assert zombies == []
    assert groups_left == []
    assert len(workers_left) <= 3  # bubblewrap, its init, the zygote
    until(lambda: descendants().keys() <= before.keys())
    assert files().keys() <= held.keys()
    assert groups() <= grouped
    assert list(tmp_path.iterdir()) == []
    print(f"\nkilled {len(load.killed)}; told {dict(load.told)} at {dict(load.instants)}; steady {steps}")


def test_groups_that_a_killed_server_left_are_swept_by_the_next() -> None:
    pool = WorkerPool.start(Target(f"{ENVIRONMENTS}:Counting"), SandboxRequest(), Tier.STRICT)
    try:
        assert pool._cgroups is not None
        # As a server leaves them that was killed: nobody has this number any more.
        dead = f"proctor-{2**22 + 1}-{pool._cgroups.family.split('-')[2]}"
        folders = tuple(home / dead for home in pool._cgroups.homes)
        for folder in folders:
            folder.mkdir()
            (folder / "worker-1").mkdir()
        left = ControlGroup(folders, pool._cgroups.version)
        WorkerPool.start(Target(f"{ENVIRONMENTS}:Counting"), SandboxRequest(), Tier.STRICT).end()
    finally:
        pool.end()

    assert [folder for folder in left.folders if folder.exists()] == []
