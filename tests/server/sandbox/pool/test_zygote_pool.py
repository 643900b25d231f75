"""A zygote that died is replaced, one for all who wait; one that is of no use is not replaced for ever."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import ComponentError
from proctor.server.sandbox.messages import READY, LoadReport, StartMessage
from proctor.server.sandbox.pool import zygote_pool as module
from proctor.server.sandbox.pool.zygote_pool import (
    LONGEST_PAUSE,
    MOST_FAILURES,
    ZygotePlan,
    ZygotePool,
    ZygoteProcess,
    compile_ahead,
)
from proctor.server.sandbox.tiers import SandboxLimits, Tier
from tests.server.sandbox.processes import run

pytestmark = pytest.mark.anyio


class Stub:
    """A zygote of which a test says whether it lives."""

    def __init__(self, plan: ZygotePlan, name: str) -> None:
        self.plan, self.name = plan, name
        self.alive, self.gone, self.born = True, False, 0
        self.warm: dict[str, Any] = {}
        self.compiled: list[str] = []
        self.loads: list[str] = []
        self.ready: Future[LoadReport] = Future()
        self.ready.set_result(LoadReport())
        self.word = READY

    def kill(self) -> None:
        self.alive = False

    def join(self, _: float) -> bool:
        self.gone = True
        return True

    def compile(self, channel: socket.socket, mode: str) -> None:
        if not self.alive:
            raise BrokenPipeError
        self.compiled.append(mode)
        if self.word:
            channel.sendall(self.word)

    def load(self, mode: str) -> None:
        self.loads.append(mode)


@pytest.fixture(autouse=True)
def stubs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ZygoteProcess", Stub)


def planned(alone: bool) -> ZygotePlan:
    return ZygotePlan(lambda _: [], StartMessage("t", {}, Tier.PROCESS, SandboxLimits(), False, alone))


def made(clock: Callable[[], float] = lambda: 0.0) -> ZygotePool:
    return ZygotePool(planned, clock)


def stub(keeper: ZygoteProcess) -> Stub:
    return cast("Stub", keeper)


def test_all_share_one_as_long_as_it_lives() -> None:
    zygotes = made()
    first = zygotes.current()
    first.born = 1

    again = zygotes.current()
    first.kill()
    second = zygotes.current()

    assert again is first
    assert second is not first


def test_those_who_ask_at_the_same_time_get_the_same_one() -> None:
    zygotes = made()
    found: list[ZygoteProcess] = []
    begin = threading.Barrier(8)

    def ask() -> None:
        begin.wait()
        found.append(zygotes.current())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(found)) == 1


def test_one_that_is_alone_is_shared_with_nobody() -> None:
    zygotes = made()

    one, other, shared = stub(zygotes.alone()), stub(zygotes.alone()), stub(zygotes.current())

    assert len({one, other, shared}) == 3
    assert [each.plan.start.alone for each in (one, other, shared)] == [True, True, False]
    assert len({each.name for each in (one, other, shared)}) == 3


def test_after_the_end_there_are_none() -> None:
    zygotes = made()
    all_of_them = [stub(zygotes.alone()), stub(zygotes.current())]

    zygotes.close()
    zygotes.join(1.0)

    assert [(each.alive, each.gone) for each in all_of_them] == [(False, True)] * 2
    with pytest.raises(ComponentError, match="closed"):
        zygotes.alone()
    with pytest.raises(ComponentError, match="closed"):
        zygotes.current()


def test_those_that_are_gone_are_forgotten() -> None:
    zygotes = made()
    for _ in range(5):
        stub(zygotes.alone()).gone = True

    assert len(zygotes._all) == 1


@given(st.lists(st.floats(0.0, 100.0), max_size=40))
def test_one_that_is_of_no_use_is_never_started_more_often_than_its_pauses_allow(waits: list[float]) -> None:
    now = [0.0]
    zygotes = made(lambda: now[0])
    starts: list[float] = []
    for wait in [0.0] * MOST_FAILURES + waits:
        now[0] += wait
        try:
            zygotes.current().kill()
            starts.append(now[0])
        except ComponentError:
            continue

    pauses = [
        later - earlier for earlier, later in zip(starts[MOST_FAILURES:], starts[MOST_FAILURES + 1 :], strict=False)
    ]
    assert len([start for start in starts if start == 0.0]) <= MOST_FAILURES + waits.count(0.0)
    assert all(pause >= 1.0 for pause in pauses)


def test_a_pause_ends() -> None:
    now = [0.0]
    zygotes = made(lambda: now[0])
    for _ in range(20):
        try:
            zygotes.current().kill()
        except ComponentError:
            now[0] += LONGEST_PAUSE

    now[0] += LONGEST_PAUSE
    zygotes.current().born = 1
    zygotes.current().kill()

    assert zygotes.current().alive


async def test_what_steps_batches_is_compiled_once_for_each_mode_and_then_loaded() -> None:
    keeper = made().current()

    await asyncio.gather(
        *(compile_ahead(keeper, mode) for mode in ("same_step", "same_step", None, "next_step", "made up"))
    )
    await compile_ahead(keeper, "same_step")

    assert sorted(stub(keeper).compiled) == sorted(stub(keeper).loads) == ["next_step", "same_step"]


async def test_one_who_gives_up_does_not_stop_it_for_the_others() -> None:
    keeper = made().current()

    given_up, other = (asyncio.create_task(compile_ahead(keeper, "same_step")) for _ in range(2))
    await asyncio.sleep(0)
    given_up.cancel()
    await other

    assert stub(keeper).loads == ["same_step"]


@pytest.mark.parametrize("trouble", ["dead", "fails", "late"])
def test_what_cannot_be_compiled_ahead_is_not_loaded(
    trouble: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = stub(made().current())
    kept: list[socket.socket] = []
    if trouble == "dead":
        keeper.kill()
    elif trouble == "fails":
        keeper.word = b""
    else:
        monkeypatch.setattr(module, "COMPILE_SECONDS", 0.02)
        monkeypatch.setattr(keeper, "compile", lambda channel, _: kept.append(channel.dup()))

    run(compile_ahead(cast("ZygoteProcess", keeper), "same_step"))
    for channel in kept:
        channel.close()

    assert keeper.loads == []
    assert ("compiled ahead" in caplog.text) == (trouble != "fails")
