"""A real server with an environment that counts, and a wire to it that can be cut."""

from collections.abc import Iterator

import pytest

from tests.client.counting import GATE
from tests.client.wire_cutter import Wire, wire_to
from tests.server.live_server import Served, serving

COUNTING = "tests.client.counting:Counting"
QUICK = "tests.client.counting:QuickCounting"


@pytest.fixture
def served() -> Iterator[Served]:
    """Steps run on a thread, so that one can be held at the gate."""
    GATE.close()
    with serving(COUNTING, allow_hosts=["127.0.0.1"], place="thread") as there:
        try:
            yield there
        finally:
            GATE.opened.set()


@pytest.fixture
def wire(served: Served) -> Iterator[Wire]:
    with wire_to(served.port) as laid:
        yield laid
