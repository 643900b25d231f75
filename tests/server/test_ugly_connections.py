"""A twentieth of the connections that are dropped in every ugly way; the whole is a script beside it."""

from __future__ import annotations

import asyncio

import pytest

from tests.server.attacks.ugly_connections import SETTINGS, TARGET, WAYS, attacked
from tests.server.attacks.vitals import victim

COUNT = 500


@pytest.mark.parametrize("count", [COUNT // 5, pytest.param(COUNT, marks=pytest.mark.slow)])
def test_connections_dropped_in_every_ugly_way_leave_nothing_behind(count: int) -> None:
    with victim(TARGET, **SETTINGS) as there:
        report = asyncio.run(attacked(there, count, seed=0))

    assert report.complaints() == []
    assert report.ways.total() == count
    assert len(report.ways) == len(WAYS)
