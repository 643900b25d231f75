"""Processes for environments, without a sandbox around them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from proctor.envs.targets import Target
from proctor.server.sandbox.pool.worker_pool import WorkerPool
from proctor.server.sandbox.tiers import SandboxRequest, Tier

current: list[WorkerPool] = []
"""The pool that is open."""


@contextmanager
def process_nest(module: str) -> Iterator[WorkerPool]:
    """Have processes that have imported a module; `current` has it meanwhile."""
    pool = WorkerPool.start(Target(f"{module}:Counting"), SandboxRequest(), Tier.PROCESS)
    current.append(pool)
    try:
        yield pool
    finally:
        current.remove(pool)
        pool.end()
