"""What a grant has open, counted."""

from hypothesis import given
from hypothesis import strategies as st

from proctor.access.limits import RequestLimits
from proctor.server.agents.fair_use import (
    ALL_HELD_BYTES,
    HELD_BYTES,
    MOST_SESSIONS,
    OTHERS_AT_ONCE,
    GrantUsage,
    HeldBodies,
)
from proctor.server.agents.mcp_messages import ENVELOPE_BYTES, make_catalogue


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
