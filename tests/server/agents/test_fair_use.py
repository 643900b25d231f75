"""How the agent plane is shared: what a grant may open, send and hold, and whose request is next."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.access.limits import RequestLimits
from proctor.server.agents.fair_use import (
    ALL_HELD_BYTES,
    HELD_BYTES,
    MOST_SESSIONS,
    OTHERS_AT_ONCE,
    FairQueue,
    GrantUsage,
    HeldBodies,
    QueueTurn,
)
from proctor.server.agents.mcp_messages import ENVELOPE_BYTES, make_catalogue

NEVER = 10_000.0
PATIENCE = 20.0
BUSY = 0.01
pytestmark = pytest.mark.anyio


def a_guest() -> GrantUsage:
    return GrantUsage("first", make_catalogue((), RequestLimits()), lambda: 0.0, RequestLimits(), HeldBodies())


def test_the_session_that_was_used_least_lately_goes_for_one_too_many() -> None:
    guest = a_guest()
    for number in range(MOST_SESSIONS):
        assert guest.open_session(f"s{number}") is None
    guest.start_message("s0")
    guest.finish_message("s0")

    assert guest.open_session("new") == "s1"
    assert len(guest.sessions) == MOST_SESSIONS
    assert "s1" not in guest.sessions


def test_a_session_that_answers_stays_while_others_rest() -> None:
    guest = a_guest()
    for number in range(MOST_SESSIONS):
        guest.open_session(f"s{number}")
    for number in range(MOST_SESSIONS - 1):
        guest.start_message(f"s{number}")

    assert guest.open_session("new") == f"s{MOST_SESSIONS - 1}"


def test_where_all_answer_the_oldest_goes() -> None:
    guest = a_guest()
    for number in range(MOST_SESSIONS):
        guest.open_session(f"s{number}")
        guest.start_message(f"s{number}")

    assert guest.open_session("new") == "s0"
    guest.finish_message("s0")  # its message ends after it has gone

    assert "s0" not in guest.sessions


def test_a_guest_is_quiet_when_the_last_message_is_answered() -> None:
    guest = a_guest()
    guest.open_session("a")
    assert guest.quiet.is_set()

    guest.start_message("a")
    guest.start_message("a")
    guest.finish_message("a")
    assert not guest.quiet.is_set()
    guest.finish_message("a")

    assert guest.quiet.is_set()


def test_a_guest_is_quiet_when_the_session_that_was_asked_is_closed() -> None:
    guest = a_guest()
    guest.open_session("a")
    guest.start_message("a")

    guest.close_session("a")

    assert guest.quiet.is_set()


def test_a_session_that_is_opened_after_its_grant_has_died_has_to_go() -> None:
    guest = a_guest()
    guest.gone = True

    assert guest.open_session("a") == "a"
    assert guest.sessions == {}


def test_requests_that_are_no_calls_are_bounded() -> None:
    guest = a_guest()

    waits = [guest.bucket.take() for _ in range(OTHERS_AT_ONCE + 1)]

    assert waits[:-1] == [0.0] * OTHERS_AT_ONCE
    assert waits[-1] > 0


def guest_of(all_held: HeldBodies | None = None, **limits: int) -> GrantUsage:
    bounds = RequestLimits(**limits)
    return GrantUsage("first", make_catalogue((), bounds), lambda: 0.0, bounds, all_held or HeldBodies())


def test_a_grant_pays_for_every_byte_and_for_every_request() -> None:
    guest = guest_of(agent_bytes_per_second=10**6, max_arguments_bytes=1000)

    assert guest.take_request(10**6) == 0.0
    assert guest.take_request(0) > 0
    assert guest.take_bytes(10) > 0


def test_the_largest_body_can_always_be_paid_for() -> None:
    guest = guest_of(agent_bytes_per_second=1000, max_arguments_bytes=500_000)

    assert guest.take_request(guest.largest) == 0.0


def test_a_body_is_no_larger_than_the_server_allows() -> None:
    assert guest_of(max_body_bytes=1000).largest == 1000
    assert guest_of().largest == RequestLimits().max_arguments_bytes + ENVELOPE_BYTES


def test_a_grant_holds_so_many_bytes_at_once_or_one_body() -> None:
    guest = guest_of()

    assert guest.hold("a", HELD_BYTES)
    assert not guest.hold("b", 1)
    guest.release("a")
    assert guest.hold("b", 2 * HELD_BYTES)
    assert not guest.hold("c", 1)


def test_a_body_that_comes_in_pieces_is_not_refused_for_its_own_pieces() -> None:
    held = HeldBodies()
    held.count = ALL_HELD_BYTES
    guest = guest_of(held)
    guest.hold("a stream that a client listens on", 0)

    assert all(guest.hold("a", HELD_BYTES // 2) for _ in range(8))
    assert not guest.hold("b", 1)
    assert guest.hold("a", 1)
    guest.release("b")
    guest.release("a")
    assert held.count == ALL_HELD_BYTES
    assert all(guest.hold("b", HELD_BYTES) for _ in range(2))


def test_where_all_hold_much_a_grant_that_holds_nothing_may_still_bring_a_body() -> None:
    held = HeldBodies()
    held.count = ALL_HELD_BYTES
    guest = guest_of(held)

    assert guest.hold("a", 1000)
    assert not guest.hold("b", 1)
    guest.release("a")
    assert held.count == ALL_HELD_BYTES


@given(st.lists(st.tuples(st.sampled_from(["open", "begin", "answer", "close"]), st.integers(0, 30)), max_size=200))
def test_a_guest_never_has_more_sessions_than_it_may_and_is_quiet_exactly_when_nothing_is_asked(
    steps: list[tuple[str, int]],
) -> None:
    guest = a_guest()
    for step, number in steps:
        name = f"s{number}"
        known = name in guest.sessions
        if step == "open" and not known:
            guest.open_session(name)
        elif step == "begin" and known:
            guest.start_message(name)
        elif step == "answer" and guest.sessions.get(name):
            guest.finish_message(name)
        elif step == "close":
            guest.close_session(name)

        assert len(guest.sessions) <= MOST_SESSIONS
        assert guest.quiet.is_set() is not any(guest.sessions.values())


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
