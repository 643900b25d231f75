"""So much at a time, so much that waits; who leaves frees no thread."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from proctor.server.runtime.results import RequestRefused
from proctor.server.viewer_http.reader_pool import ThreadQueue


class Work:
    """Work that lasts until it is let go, and counts how much of it runs."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.running = 0
        self.most = 0
        self._lock = threading.Lock()

    def __call__(self) -> int:
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        assert self.go.wait(300)
        with self._lock:
            self.running -= 1
        return 7


async def soon(holds: Any) -> None:
    for _ in range(2000):
        if holds():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it never came true")


def test_no_more_than_so_much_runs_and_all_of_it_is_done() -> None:
    async def play() -> None:
        turns, work = ThreadQueue(2, 10), Work()
        tasks = [asyncio.ensure_future(turns.run(work)) for _ in range(8)]
        await soon(lambda: work.running == 2 and turns.waiting == 6)
        work.go.set()

        assert await asyncio.gather(*tasks) == [7] * 8
        assert work.most == 2
        assert turns.waiting == 0

    asyncio.run(play())


def test_a_turn_for_which_there_is_no_thread_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        turns = ThreadQueue(1, 2)
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", without_threads)
            with pytest.raises(RuntimeError):
                await turns.run(lambda: 7)

        assert await asyncio.wait_for(turns.run(lambda: 7), 300) == 7

    asyncio.run(play())


def without_threads(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_who_is_one_too_many_is_told_so_at_once() -> None:
    async def play() -> None:
        turns, work = ThreadQueue(1, 2), Work()
        tasks = [asyncio.ensure_future(turns.run(work)) for _ in range(3)]
        await soon(lambda: turns.waiting == 2)

        with pytest.raises(RequestRefused) as refusal:
            await turns.run(work)
        assert refusal.value.problem.code == "BUSY"
        work.go.set()
        await asyncio.gather(*tasks)

    asyncio.run(play())


def test_what_must_be_done_waits_however_many_wait() -> None:
    async def play() -> None:
        turns, work = ThreadQueue(1, 0), Work()
        tasks = [asyncio.ensure_future(turns.run(work, must=True)) for _ in range(3)]
        await soon(lambda: work.running == 1 and turns.waiting == 2)
        work.go.set()

        assert await asyncio.gather(*tasks) == [7] * 3

    asyncio.run(play())


def test_who_leaves_frees_no_thread_before_its_work_is_done() -> None:
    async def play() -> None:
        turns, work = ThreadQueue(1, 2), Work()
        first = asyncio.ensure_future(turns.run(work))
        await soon(lambda: work.running == 1)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        second = asyncio.ensure_future(turns.run(work))
        await soon(lambda: turns.waiting == 1)
        work.go.set()

        assert await second == 7
        assert work.most == 1

    asyncio.run(play())


def test_what_the_work_raises_comes_to_who_asked_and_frees_the_turn() -> None:
    def fail() -> int:
        raise ValueError("no")

    async def play() -> None:
        turns = ThreadQueue(1, 2)
        for _ in range(3):
            with pytest.raises(ValueError, match="no"):
                await turns.run(fail)

    asyncio.run(play())
