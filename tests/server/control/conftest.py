"""Every test begins with an empty witness's ledger, and leaves no request held."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.witness_env import LEDGER


@pytest.fixture(autouse=True)
def ledger() -> Iterator[None]:
    LEDGER.clear()
    yield
    LEDGER.release_all()
