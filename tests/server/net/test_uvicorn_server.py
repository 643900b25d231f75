"""Connections are accepted a few at a time, whoever opens how many."""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import socket
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any

import pytest
import uvloop

from proctor.server.net import uvicorn_server
from proctor.server.net.listeners import bind_tcp
from proctor.server.net.uvicorn_server import ACCEPTED_AT_ONCE, FairListener
from tests.server.live_server import PATIENCE

BURST = 41


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE):
            await scenario()

    uvloop.run(bounded())


class Counted(asyncio.Protocol):
    """A connection that is counted."""

    made = 0

    def connection_made(self, transport: Any) -> None:
        Counted.made += 1
        transport.abort()


@pytest.fixture(autouse=True)
def uncounted() -> None:
    Counted.made = 0


def test_a_burst_of_connections_is_accepted_a_few_in_each_turn_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_server, "BATCH_SECONDS", 0.0)
    turns: list[int] = []

    async def scenario() -> None:
        with ExitStack() as stack:
            listener = stack.enter_context(bind_tcp("127.0.0.1", 0))
            fair = FairListener(listener, BURST, Counted)
            stack.callback(fair.close)
            for _ in range(BURST):
                stack.enter_context(socket.create_connection(listener.getsockname(), PATIENCE))
            while Counted.made < BURST:
                turns.append(Counted.made)
                await asyncio.sleep(0)

    run(scenario)

    most = max(after - before for before, after in itertools.pairwise(turns))
    assert 0 < most <= ACCEPTED_AT_ONCE


def test_after_a_batch_nothing_is_accepted_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_server, "BATCH_SECONDS", 3600.0)

    async def scenario() -> None:
        with ExitStack() as stack:
            listener = stack.enter_context(bind_tcp("127.0.0.1", 0))
            fair = FairListener(listener, BURST, Counted)
            stack.callback(fair.close)
            for _ in range(ACCEPTED_AT_ONCE + 1):
                stack.enter_context(socket.create_connection(listener.getsockname(), PATIENCE))
            while Counted.made < ACCEPTED_AT_ONCE:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.05)

    run(scenario)

    assert Counted.made == ACCEPTED_AT_ONCE


def test_a_listener_that_is_closed_accepts_no_more() -> None:
    async def scenario() -> None:
        with bind_tcp("127.0.0.1", 0) as listener:
            fair = FairListener(listener, BURST, Counted)
            fair.close()
            with socket.create_connection(listener.getsockname(), PATIENCE):
                await asyncio.sleep(0.05)

    run(scenario)

    assert Counted.made == 0


def test_where_no_descriptor_is_left_the_listener_waits_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(uvicorn_server, "NO_DESCRIPTOR_SECONDS", 0.01)

    class Full(socket.socket):
        refusals = 2

        def accept(self) -> tuple[socket.socket, Any]:
            if Full.refusals:
                Full.refusals -= 1
                raise OSError(errno.EMFILE, "too many open files")
            return super().accept()

    async def scenario() -> None:
        with Full(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
            listener.bind(("127.0.0.1", 0))
            fair = FairListener(listener, BURST, Counted)
            with socket.create_connection(listener.getsockname(), PATIENCE):
                while not Counted.made:
                    await asyncio.sleep(0.001)
            fair.close()

    with caplog.at_level(logging.ERROR, "proctor.server"):
        run(scenario)

    assert len(caplog.records) == 2
