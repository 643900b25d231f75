"""A twentieth of the attack with malformed messages, frames and handshakes; the whole is a script beside it."""

from __future__ import annotations

import asyncio

from tests.server.attacks.malformed import SETTINGS, TARGET, attacked, jobs_for
from tests.server.attacks.vitals import victim

COUNT = 10_000


def test_malformed_input_changes_nothing_and_tells_nothing() -> None:
    with victim(TARGET, **SETTINGS) as there:
        report = asyncio.run(attacked(there, COUNT, seed=0))

    assert report.complaints() == []
    assert report.tally.attempts >= COUNT


def test_the_jobs_add_up_and_are_the_same_every_time() -> None:
    jobs = list(jobs_for(COUNT))

    assert sum(size for _, _, size in jobs) == COUNT
    assert jobs == list(jobs_for(COUNT))
    assert {kind for _, kind, _ in jobs} == {"base", "hello", "frame", "handshake"}
