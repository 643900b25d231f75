"""A twentieth of the connections that are dropped in every ugly way; the whole is a script beside it."""

from __future__ import annotations

import asyncio

from tests.server.attacks.ugly_connections import SETTINGS, TARGET, WAYS, attacked
from tests.server.attacks.vitals import victim

COUNT = 500


def test_connections_dropped_in_every_ugly_way_leave_nothing_behind() -> None:
    with victim(TARGET, **SETTINGS) as there:
        report = asyncio.run(attacked(there, COUNT, seed=0))

    assert report.complaints() == []
    assert report.ways.total() == COUNT
    assert len(report.ways) == len(WAYS)
