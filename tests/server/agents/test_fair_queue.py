"""Whose turn it is."""

import asyncio
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.server.agents.fair_use import FairQueue, QueueTurn

NEVER = 10_000.0
PATIENCE = 20.0
BUSY = 0.01
pytestmark = pytest.mark.anyio


async def take_turns(parties: list[str]) -> list[str]:
    """Return the order in which requests of these parties are served that all come while another one is."""
    queue, served = FairQueue(NEVER), list[str]()
    first = queue.turn()
    await first.begin("first")

    async def ask(party: str) -> None:
        turn = queue.turn()
        await turn.begin(party)
        served.append(party)
        turn.end()

    requests = [asyncio.create_task(ask(party)) for party in parties]
    await asyncio.sleep(0)
    first.end()
    await asyncio.wait_for(asyncio.gather(*requests), PATIENCE)
    return served


async def test_a_party_with_many_requests_waits_for_itself() -> None:
    assert await take_turns(["a", "a", "a", "a", "b", "c", "b"]) == ["a", "b", "c", "a", "b", "a", "a"]


@given(st.lists(st.sampled_from("abc"), max_size=30))
def test_everybody_is_served_and_whoever_waits_comes_before_anothers_second_turn(parties: list[str]) -> None:
    served = asyncio.run(take_turns(parties))

    assert sorted(served) == sorted(parties)
    for party in set(parties):
        others = served[: served.index(party)]
        assert len(set(others)) == len(others)


@pytest.mark.parametrize("parties", ["aaaaa", "ababab", "abcabc"])
async def test_one_request_runs_at_a_time_and_the_loop_goes_on_between_two(parties: str) -> None:
    queue, running, other = FairQueue(NEVER), 0, 0

    async def ask(party: str) -> int:
        nonlocal running
        turn = queue.turn()
        await turn.begin(party)
        running += 1
        assert running == 1
        await asyncio.sleep(0)
        running -= 1
        turn.end()
        return other

    async def count() -> None:
        nonlocal other
        while True:
            await asyncio.sleep(0)
            other += 1

    counting = asyncio.create_task(count())
    seen = await asyncio.wait_for(asyncio.gather(*map(ask, parties)), PATIENCE)
    counting.cancel()

    assert len(set(seen)) == len(seen)


async def test_a_turn_that_is_held_too_long_is_over_for_the_others() -> None:
    queue = FairQueue(0.001)
    await queue.turn().begin("a")  # and never ends

    await asyncio.wait_for(queue.turn().begin("b"), PATIENCE)


async def test_whoever_was_cancelled_while_it_waited_is_passed_over() -> None:
    queue = FairQueue(NEVER)
    first, second = queue.turn(), queue.turn()
    await first.begin("a")
    waiting = asyncio.create_task(queue.turn().begin("a"))
    after = asyncio.create_task(second.begin("a"))
    await asyncio.sleep(0)
    waiting.cancel()

    first.end()

    await asyncio.wait_for(after, PATIENCE)


async def test_to_begin_or_to_end_again_does_nothing() -> None:
    queue = FairQueue(NEVER)
    first = queue.turn()
    await first.begin("a")
    await first.begin("a")
    later: list[QueueTurn] = [queue.turn(), queue.turn()]
    tasks = [asyncio.create_task(turn.begin("a")) for turn in later]
    await asyncio.sleep(0)

    first.end()
    first.end()
    await asyncio.wait_for(tasks[0], PATIENCE)
    first.end()
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert not tasks[1].done()
    later[0].end()
    await asyncio.wait_for(tasks[1], PATIENCE)


async def test_a_queue_that_was_empty_serves_at_once_again() -> None:
    queue = FairQueue(NEVER)
    for _ in range(3):
        turn = queue.turn()
        await asyncio.wait_for(turn.begin("a"), PATIENCE)
        turn.end()
        await asyncio.sleep(0)


async def use_turn(queue: FairQueue, party: str) -> float:
    """Take a turn that is busy for a moment; return when it began."""
    turn = queue.turn()
    await turn.begin(party)
    began = time.perf_counter()
    time.sleep(BUSY)  # the loop is what it uses
    turn.end()
    return began


async def test_a_party_with_many_requests_lets_the_loop_rest_between_them() -> None:
    queue = FairQueue(NEVER, rest=3.0)

    began = await asyncio.wait_for(asyncio.gather(*(use_turn(queue, "a") for _ in range(4))), PATIENCE)

    assert all(later - earlier >= 3.9 * BUSY for earlier, later in pairwise(began))


async def test_another_party_waits_for_no_rest() -> None:
    queue = FairQueue(NEVER, rest=1e6)
    first, second = (asyncio.create_task(use_turn(queue, "a")) for _ in range(2))
    await asyncio.wait_for(first, PATIENCE)
    await asyncio.sleep(0)

    await asyncio.wait_for(use_turn(queue, "b"), PATIENCE)
    await asyncio.wait_for(second, PATIENCE)  # whose rest was over when another had a turn


async def test_a_party_that_waits_for_its_replies_never_rests() -> None:
    queue = FairQueue(NEVER, rest=1e6)
    for _ in range(3):
        await asyncio.wait_for(use_turn(queue, "a"), PATIENCE)
        await asyncio.sleep(0)


async def test_two_parties_whose_turns_never_wait_leave_the_loop_to_the_others() -> None:
    queue, passes = FairQueue(NEVER), 0

    async def count() -> None:
        nonlocal passes
        while True:
            passes += 1
            await asyncio.sleep(0)

    async def ask(party: str) -> int:
        turn = queue.turn()
        await turn.begin(party)
        turn.end()
        return passes

    counting = asyncio.create_task(count())
    seen = await asyncio.wait_for(asyncio.gather(*map(ask, "ab" * 20)), PATIENCE)
    counting.cancel()

    assert len(set(seen)) >= len(seen) - 1  # the first one begins at once
