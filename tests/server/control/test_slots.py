"""There are never more sessions than there may be, nobody jumps the queue, and no slot is lost whoever gives up when."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec import UNSET

from proctor.models.control import Code, Problem
from proctor.server.control.session_registry import SessionSlots
from proctor.server.runtime.results import RequestRefused

pytestmark = pytest.mark.anyio

WAIT = 10.0
STOPPING = Problem("the server is stopping", Code.SHUTTING_DOWN)


class Clockwork(asyncio.SelectorEventLoop):
    """An event loop whose time goes on only when it is told to."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def spin(self) -> None:
        """Let everything happen that can happen now."""
        for _ in range(6):
            self.run_until_complete(asyncio.sleep(0))

    def come(self, slots: SessionSlots) -> asyncio.Task[None]:
        task = self.create_task(slots.take())
        self.spin()
        return task


def refusal_of(task: asyncio.Task[None]) -> Problem:
    problem = task.exception()
    assert isinstance(problem, RequestRefused)
    return problem.problem


class Queue(RuleBasedStateMachine):
    """Clients that come, wait, give up, get a slot and give it back."""

    @initialize(most=st.integers(1, 3), most_waiting=st.integers(0, 3), wait=st.sampled_from((0.0, WAIT)))
    def begin(self, most: int, most_waiting: int, wait: float) -> None:
        self.loop = Clockwork()
        self.slots = SessionSlots(most, most_waiting, wait)
        self.most, self.most_waiting, self.wait = most, most_waiting, wait
        self.queue: list[asyncio.Task[None]] = []
        self.holders: list[asyncio.Task[None]] = []
        self.came: list[asyncio.Task[None]] = []
        self.closed = False

    def teardown(self) -> None:
        for task in self.queue:
            task.cancel()
        self.loop.spin()
        self.loop.close()

    def settle(self) -> None:
        """Let happen what happens; those who got a slot are the first of those who still wanted one."""
        self.loop.spin()
        done = [task for task in self.queue if task.done()]
        got = [task for task in done if not task.cancelled() and task.exception() is None]
        still = [task for task in self.queue if not task.done()]
        self.holders += got
        self.queue = still
        if got and still:
            assert all(self.came.index(first) < self.came.index(second) for first in got for second in still)

    @precondition(lambda self: self.closed)
    @rule()
    def somebody_comes_too_late(self) -> None:
        task = self.loop.come(self.slots)

        assert refusal_of(task) is STOPPING

    @rule()
    def the_house_closes(self) -> None:
        waiting, self.queue = self.queue, []
        self.closed = True

        self.slots.close(STOPPING)
        self.loop.spin()

        assert [refusal_of(task) for task in waiting] == [STOPPING] * len(waiting)

    @precondition(lambda self: self.queue)
    @rule(data=st.data())
    def somebody_gives_up_as_the_house_closes(self, data: st.DataObject) -> None:
        task = data.draw(st.sampled_from(self.queue), label="who")
        self.queue.remove(task)

        if data.draw(st.booleans(), label="first the house"):
            self.slots.close(STOPPING)
            task.cancel()
        else:
            task.cancel()
            self.slots.close(STOPPING)
        self.the_house_closes()

        assert task.done()

    @precondition(lambda self: not self.closed)
    @rule()
    def somebody_comes(self) -> None:
        free = len(self.holders) < self.most and not self.queue
        room = len(self.queue) < self.most_waiting and self.wait > 0

        task = self.loop.come(self.slots)
        self.came.append(task)

        assert task.done() == (free or not room)
        if free:
            assert task.exception() is None
            self.holders.append(task)
        elif room:
            self.queue.append(task)
        else:
            problem = refusal_of(task)
            assert problem.code == Code.CAPACITY_REACHED
            assert (problem.active_sessions, problem.max_sessions) == (len(self.holders), self.most)

    @precondition(lambda self: self.holders)
    @rule()
    def somebody_leaves(self) -> None:
        self.holders.pop()
        expected = self.queue[:1]

        self.slots.give_back()
        self.settle()

        assert self.holders[len(self.holders) - len(expected) :] == expected

    @precondition(lambda self: self.queue)
    @rule(data=st.data())
    def somebody_gives_up(self, data: st.DataObject) -> None:
        task = data.draw(st.sampled_from(self.queue), label="who")

        task.cancel()
        self.settle()

        assert task.cancelled()

    @precondition(lambda self: self.queue and self.holders)
    @rule(data=st.data())
    def somebody_gives_up_as_a_slot_is_given_back(self, data: st.DataObject) -> None:
        task = data.draw(st.sampled_from(self.queue), label="who")
        self.holders.pop()

        if data.draw(st.booleans(), label="first the slot"):
            self.slots.give_back()
            task.cancel()
        else:
            task.cancel()
            self.slots.give_back()
        self.settle()

    @precondition(lambda self: self.queue)
    @rule(passes=st.sampled_from((WAIT / 3, WAIT)), leaves=st.booleans())
    def time_passes(self, passes: float, leaves: bool) -> None:
        self.loop.now += passes
        if leaves and self.holders:
            self.holders.pop()
            self.slots.give_back()
        self.settle()

        assert passes < WAIT or not self.queue

    @invariant()
    def as_many_are_taken_as_are_held(self) -> None:
        assert self.slots.taken == len(self.holders) <= self.most
        assert self.slots.waiting == len(self.queue) <= self.most_waiting

    @invariant()
    def nobody_waits_for_a_free_slot(self) -> None:
        assert not self.queue or len(self.holders) == self.most


TestQueue = Queue.TestCase
TestQueue.settings = settings(deadline=None, stateful_step_count=30)


async def test_a_full_house_says_how_full_it_is_and_when_to_come_again() -> None:
    slots = SessionSlots(2, 0, WAIT)
    await slots.take()
    await slots.take()
    with pytest.raises(RequestRefused) as caught:
        await slots.take()

    problem = caught.value.problem

    assert problem.code == Code.CAPACITY_REACHED
    assert (problem.active_sessions, problem.max_sessions, problem.retry_after_seconds) == (2, 2, WAIT)
    assert problem.lost is UNSET
