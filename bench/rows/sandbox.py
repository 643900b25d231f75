"""The rows of the sandbox: what the tier strict costs, against the same without it.

Rule 1: steps go the same way on both sides, from one client's process to one server's; only the tier differs.
Rule 2: a worker is held against a whole process that imports the same and makes the same environment, without a sandbox.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from bench.control_servers import Kind, ours
from bench.measure import Probe
from bench.row import Better, Opener, Row, ratio_at_least
from bench.rows.control import OUR_CLIENT, driven
from bench.sandbox_processes import (
    HELD,
    TARGET,
    enforced,
    process_memory,
    process_start,
    worker_memory,
    worker_start,
)
from proctor.server.sandbox.tiers import Tier

STRICT: Final = Tier.STRICT
ECHO: Final = "bench.control_env:quick"
SESSIONS: Final = 64


def in_tier(tier: Tier, *arguments: str) -> Opener:
    """Steps a second of sessions in a tier, as one client's process sees them."""
    server: Kind = ours(ECHO, sandbox=tier)

    def opened(stack: ExitStack) -> Probe:
        if tier is not Tier.NONE:
            enforced(tier)
        return driven(server, OUR_CLIENT, *arguments)(stack)

    return opened


def _steps(sessions: int, goal: float | None) -> Row:
    way = (str(sessions), "shared" if sessions > 1 else "async")
    return Row(
        f"sandbox.steps{sessions}/in-process",
        in_tier(STRICT, *way),
        in_tier(Tier.NONE, *way),
        "the tier none, inline",
        None if goal is None else ratio_at_least(goal),
        note="one connection" if sessions > 1 else "",
        tier=STRICT,
    )


ROWS: Final = (
    _steps(SESSIONS, 0.5),
    _steps(1, None),
    Row(
        "sandbox.start/process",
        worker_start(STRICT),
        process_start(),
        "a whole process that imports and makes the same",
        unit="ms",
        better=Better.LOWER,
        note=f"p50, {TARGET}, from the wish to the made environment",
        tier=STRICT,
    ),
    Row(
        "sandbox.session-memory/process",
        worker_memory(STRICT),
        process_memory(),
        "a whole process that imports and makes the same",
        unit="bytes/session",
        better=Better.LOWER,
        note=f"{TARGET}, {HELD} sessions",
        tier=STRICT,
    ),
)
