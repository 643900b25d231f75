"""Connections that are dropped in every ugly way; PROCTOR_UGLY_CONNECTIONS says how many, where 500 are too few."""

from __future__ import annotations

import asyncio
import os

import pytest

from tests.server.attacks.ugly_connections import MUTES, SETTINGS, TARGET, WAYS, attacked
from tests.server.attacks.vitals import victim

COUNT = int(os.environ.get("PROCTOR_UGLY_CONNECTIONS", "500"))


@pytest.mark.parametrize("count", [COUNT // 5, pytest.param(COUNT, marks=pytest.mark.slow)])
def test_connections_dropped_in_every_ugly_way_leave_nothing_behind(count: int) -> None:
    with victim(TARGET, **SETTINGS) as there:
        told, complaints = asyncio.run(attacked(there, count, seed=0, mutes=MUTES if count == COUNT else 0))

    assert complaints == []
    assert told.total() == count
    assert len(told) == len(WAYS)
