"""A listener keeps so many connections and no more, and refusals do not flood the log."""

from __future__ import annotations

import logging
import resource
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.server.net import connections

pytestmark = pytest.mark.anyio

LOG = logging.getLogger("tests.connections")


class Wire:
    """A connection that remembers whether it was cut."""

    def __init__(self) -> None:
        self.cut = False

    def abort(self) -> None:
        self.cut = True


class Later:
    """An event loop's `call_later`, whose time comes when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, Callable[[], None]]] = []

    def __call__(self, seconds: float, work: Callable[[], None]) -> None:
        self.waiting.append((seconds, work))

    def pass_time(self) -> None:
        waiting, self.waiting = self.waiting, []
        for _, work in waiting:
            work()


def kept(most: int = 10, most_unauthenticated: int = 3) -> connections.Connections:
    return connections.Connections(most, most_unauthenticated, connections.RefusalLog(LOG, Later()))


def added(there: connections.Connections, count: int) -> list[Wire]:
    wires = [Wire() for _ in range(count)]
    for wire in wires:
        there.add(wire)
    return wires


def test_the_oldest_connection_without_a_credential_makes_way() -> None:
    wires = added(there := kept(), 5)

    assert [wire.cut for wire in wires] == [True, True, False, False, False]
    assert (len(there), there.unauthenticated) == (3, 3)


def test_a_connection_that_has_shown_a_credential_stays() -> None:
    there = kept()
    [known] = added(there, 1)
    there.authenticate(known)
    others = added(there, 20)

    assert not known.cut
    assert sum(not wire.cut for wire in others) == 3


def test_who_was_judged_without_a_credential_makes_way_before_who_waits_to_be_read() -> None:
    there = kept()
    first, second, third = added(there, 3)
    there.judge(third)
    there.judge(second)
    added(there, 1)
    before = [wire.cut for wire in (first, second, third)]
    added(there, 1)

    assert before == [False, False, True]
    assert [wire.cut for wire in (first, second, third)] == [False, True, True]
    there.judge(third)
    assert there.unauthenticated == 3


def test_when_all_places_are_taken_by_the_known_the_newcomer_goes() -> None:
    there = kept(most=4)
    known = added(there, 3)
    for wire in known:
        there.authenticate(wire)
    first, second = added(there, 2)

    assert [wire.cut for wire in (*known, first, second)] == [False, False, False, True, False]
    there.authenticate(second)
    [third] = added(there, 1)
    assert third.cut
    assert not second.cut


def test_a_connection_that_is_closed_leaves_its_place_to_another() -> None:
    there = kept()
    first, *rest = added(there, 3)
    there.remove(first)
    there.remove(first)
    added(there, 1)

    assert not any(wire.cut for wire in rest)


@given(
    st.integers(1, 8),
    st.integers(1, 8),
    st.lists(st.tuples(st.sampled_from(["add", "know", "close"]), st.integers(0, 30))),
)
def test_whatever_happens_the_bounds_hold_and_no_known_connection_is_cut(
    most: int, most_unauthenticated: int, deeds: list[tuple[str, int]]
) -> None:
    there = kept(most, most_unauthenticated)
    wires: list[Wire] = []
    known: set[Wire] = set()
    for deed, number in deeds:
        if deed == "add":
            wires += added(there, 1)
        elif wires and not (wire := wires[number % len(wires)]).cut:
            if deed == "know":
                there.authenticate(wire)
                known.add(wire)
            else:
                there.remove(wire)

        assert len(there) <= most
        assert there.unauthenticated <= most_unauthenticated
        assert not any(wire.cut for wire in known)


def test_a_request_tells_its_connection_that_it_was_let_in() -> None:
    calls: list[str | None] = []

    connections.authenticate({"extensions": {connections.AUTHENTICATED: calls.append}})
    connections.authenticate({"extensions": {connections.AUTHENTICATED: calls.append}}, "grant-1")
    connections.authenticate({"extensions": {}})
    connections.authenticate({})

    assert calls == [None, "grant-1"]


def test_an_agents_oldest_connection_makes_way_for_its_newest_and_no_other_agents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "MOST_OF_ONE_AGENT", 2)
    there = kept(most=20, most_unauthenticated=20)
    quiet, *greedy = added(there, 6)
    there.authenticate(quiet, "quiet")
    for wire in (*greedy, greedy[-1]):
        there.authenticate(wire, "greedy")

    assert [wire.cut for wire in (quiet, *greedy)] == [False, True, True, True, False, False]
    assert len(there) == 3


def test_a_connection_belongs_to_the_agent_who_used_it_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_OF_ONE_AGENT", 1)
    there = kept(most=20, most_unauthenticated=20)
    shared, other, closed = added(there, 3)
    there.authenticate(shared, "first")
    there.authenticate(shared, "second")
    there.authenticate(other, "first")
    there.remove(closed)
    there.authenticate(closed, "first")

    assert not shared.cut
    assert not other.cut


@pytest.mark.parametrize(("most", "of_one"), [(16, 4), (256, 32), (1024, 128), (65536, connections.MOST_OF_ONE_AGENT)])
def test_one_agent_has_a_small_part_of_a_listeners_connections(most: int, of_one: int) -> None:
    there = kept(most=most, most_unauthenticated=most)
    greedy = added(there, of_one + 1)
    for wire in greedy:
        there.authenticate(wire, "greedy")

    assert [wire.cut for wire in greedy] == [True] + [False] * of_one


def test_the_connections_of_a_grant_that_has_died_make_way_for_new_ones() -> None:
    there = kept(most=4, most_unauthenticated=4)
    *dead, living = added(there, 4)
    for wire in dead:
        there.authenticate(wire, "dead")
    there.authenticate(living, "living")
    there.forget("dead")
    there.forget("never there")
    added(there, 3)

    assert [wire.cut for wire in (*dead, living)] == [True, True, True, False]


def test_a_connection_whose_credential_is_refused_later_makes_way_again() -> None:
    there = kept(most=2, most_unauthenticated=2)
    first, second = added(there, 2)
    for wire in (first, second):
        there.authenticate(wire, "agent")
    there.judge(first)
    added(there, 1)

    assert [first.cut, second.cut] == [True, False]


def test_who_waits_longest_with_much_that_is_unread_makes_way_and_who_has_little_never_does() -> None:
    there = kept(most=20, most_unauthenticated=20)
    modest, known, *greedy = added(there, 6)
    there.authenticate(known)
    there.keep(modest, connections.UNREAD_BYTES)
    there.keep(known, 10 * connections.MOST_UNREAD_BYTES)
    for wire in greedy:
        there.keep(wire, connections.MOST_UNREAD_BYTES // 2)

    assert [wire.cut for wire in (modest, known, *greedy)] == [False, False, True, True, False, False]
    there.keep(greedy[2], 0)
    there.remove(greedy[3])
    [last] = added(there, 1)
    there.keep(last, connections.MOST_UNREAD_BYTES)
    assert not last.cut


@given(per_second=st.floats(1.0, 1000.0), at_once=st.integers(1, 10), gaps=st.lists(st.floats(0.0, 1.0), max_size=40))
async def test_turns_are_given_in_order_and_never_faster_than_said(
    per_second: float, at_once: int, gaps: list[float]
) -> None:
    now, later = [0.0], Later()
    turns = connections.RateLimitedQueue(per_second, at_once, later, lambda: now[0])
    asked = [turns.take() for _ in range(40)]
    given = []
    for gap in (0.0, *gaps):
        now[0] += gap
        later.pass_time()
        done = [turn.done() for turn in asked]
        assert done == sorted(done, reverse=True)
        assert sum(done) <= at_once + now[0] * per_second + 1e-6
        given.append(sum(done))
    assert len(later.waiting) == (given[-1] < len(asked))

    assert given[0] == min(40, at_once)


async def test_a_turn_that_nobody_needs_any_more_delays_nobody() -> None:
    now, later = [0.0], Later()
    turns = connections.RateLimitedQueue(1.0, 1, later, lambda: now[0])
    asked = [turns.take() for _ in range(100)]
    for turn in asked[1:99]:
        turn.set_result(None)
    now[0] += 1.0
    later.pass_time()
    result = [asked[99].done(), turns.take().done()]

    assert result == [True, False]


class Limits:
    """A process's limits on open files, which the test sets."""

    def __init__(self, soft: int, hard: int) -> None:
        self.now = (soft, hard)

    def getrlimit(self, kind: int) -> tuple[int, int]:
        assert kind == resource.RLIMIT_NOFILE
        return self.now

    def setrlimit(self, kind: int, wanted: tuple[int, int]) -> None:
        assert kind == resource.RLIMIT_NOFILE
        self.now = wanted


ENDLESS = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "after"),
    [
        (1024, 4096, 4096),
        (1024, 10**6, connections.MOST_OPEN_FILES),
        (1024, ENDLESS, connections.MOST_OPEN_FILES),
        (4096, 4096, 4096),
        (10**6, 10**6, 10**6),
        (ENDLESS, ENDLESS, ENDLESS),
    ],
)
def test_the_limit_on_open_files_is_raised_and_never_lowered(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, after: int
) -> None:
    limits = Limits(soft, hard)
    monkeypatch.setattr(resource, "getrlimit", limits.getrlimit)
    monkeypatch.setattr(resource, "setrlimit", limits.setrlimit)

    connections.raise_open_files_limit()

    assert limits.now == (after, hard)
    assert connections.read_open_files_limit() == (connections.MOST_OPEN_FILES if after == ENDLESS else after)


@pytest.mark.parametrize(
    ("files", "share", "most", "expected"),
    [
        (1024, 2, None, 512),
        (1024, 8, 2048, 128),
        (10**6, 8, 2048, 2048),
        (10, 2, None, connections.FEWEST),
        (10, 4, 4096, connections.FEWEST),
    ],
)
def test_a_listener_leaves_file_descriptors_to_the_rest(
    monkeypatch: pytest.MonkeyPatch, files: int, share: int, most: int | None, expected: int
) -> None:
    monkeypatch.setattr(connections, "read_open_files_limit", lambda: files)

    assert connections.most_connections(share, most) == expected


def test_many_refusals_are_a_few_lines_and_a_count(caplog: pytest.LogCaptureFixture) -> None:
    later = Later()
    log = connections.RefusalLog(LOG, later)
    with caplog.at_level(logging.INFO, LOG.name):
        for number in range(connections.MOST_LINES + 1234):
            log.write("refused %d", number, extra={"peer": "somebody"})
        [(seconds, _)] = later.waiting
        later.pass_time()

    assert seconds == connections.LOG_SECONDS
    assert caplog.messages[:-1] == [f"refused {number}" for number in range(connections.MOST_LINES)]
    assert caplog.messages[-1] == "... and 1234 more refusals in the last 10 s"
    assert vars(caplog.records[0])["peer"] == "somebody"


def test_a_few_refusals_need_no_count_and_the_next_ones_are_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    later = Later()
    log = connections.RefusalLog(LOG, later)
    with caplog.at_level(logging.INFO, LOG.name):
        for _ in range(3):
            for _ in range(connections.MOST_LINES):
                log.write("refused")
            later.pass_time()

    assert caplog.messages == ["refused"] * (3 * connections.MOST_LINES)
    assert later.waiting == []
