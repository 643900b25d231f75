"""Processes for environments, without a sandbox around them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from proctor.envs.targets import Target
from proctor.server.sandbox.nest import Nest
from proctor.server.sandbox.tiers import SandboxWish, Tier

current: list[Nest] = []
"""The nest that is open."""


@contextmanager
def process_nest(module: str) -> Iterator[Nest]:
    """Have processes that have imported a module; `current` has it meanwhile."""
    nest = Nest.started(Target(f"{module}:Counting"), SandboxWish(), Tier.PROCESS)
    current.append(nest)
    try:
        yield nest
    finally:
        current.remove(nest)
        nest.end()
