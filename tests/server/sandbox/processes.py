"""What a test knows of processes: which are ours, what we hold open, and how long to wait for them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop

from proctor.models.control import Problem
from proctor.server.runtime.env_adapter import ResetRequest
from proctor.server.runtime.results import RequestError
from proctor.server.sandbox.messages import Work
from proctor.server.sandbox.pool.worker_executor import WorkerExecutor
from proctor.server.sandbox.pool.worker_process import WorkerProcess
from tests.server.environments import TROUBLE
from tests.server.live_server import PATIENCE, until

ORDER = ResetRequest(3, "e", None)
GO = b'{"action":1}'
TROUBLED = b'{"action":%d}' % TROUBLE
TROUBLE_MODULE = "tests.server.sandbox.troublesome_environments"
ENVIRONMENTS = "tests.server.environments"
Result = TypeVar("Result")


def work(text: str, num_envs: int | None = None, **settings: Any) -> Work:
    return Work(text, settings, False, False, num_envs, None if num_envs is None else "same_step", False)


def run(scenario: Coroutine[Any, Any, Result], patience: float = 2 * PATIENCE) -> Result:
    """Return what the scenario returns, on the kind of loop that a server has."""

    async def bounded() -> Result:
        async with asyncio.timeout(patience):
            return await scenario

    return uvloop.run(bounded())


async def comes_true(holds: Any) -> Any:
    return await asyncio.to_thread(until, holds)


def processes() -> dict[int, tuple[int, str]]:
    """Return every process's parent and state."""
    found = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            found[int(entry.name)] = (int(fields[1]), fields[0])
    return found


def descendants(ancestor: int | None = None) -> dict[int, str]:
    """Return our processes, their processes and so on, each with its state (`Z` is a zombie)."""
    everybody = processes()
    ours = {os.getpid() if ancestor is None else ancestor}
    while True:
        more = {pid for pid, (parent, _) in everybody.items() if parent in ours} - ours
        if not more:
            return {pid: everybody[pid][1] for pid in ours if pid in everybody and pid != (ancestor or os.getpid())}
        ours |= more


def files() -> dict[str, str]:
    """Return what we hold open, by number, but for /dev/null, of which a loop keeps one."""
    links = {entry.name: os.fspath(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()}
    return {number: link for number, link in links.items() if link != os.devnull}


def problem_of(caught: pytest.ExceptionInfo[RequestError]) -> Problem:
    return caught.value.problem


def groups() -> set[str]:
    """Return the control groups of this process's sandboxes."""
    # Others come and go while one looks; `walk` passes over what is not there any more.
    found = [name for _, folders, _ in os.walk("/sys/fs/cgroup") for name in folders]
    return {name for name in found if name.startswith(f"proctor-{os.getpid()}-")}


def pid_of(place: WorkerExecutor) -> int:
    """Return the number of a place's process."""
    assert isinstance(place._process, WorkerProcess)
    told = Path(f"/proc/self/fdinfo/{place._process._descriptor}").read_text()
    return int(next(line for line in told.splitlines() if line.startswith("Pid:")).split()[1])
