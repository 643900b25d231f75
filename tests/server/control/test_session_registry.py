"""Who has a session, who comes back to it, and when it ends: by a clock that the test moves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.contracts.recorder import Recorder
from proctor.errors import ComponentError
from proctor.models.control import Code, Open, Resume
from proctor.models.events import Event, SessionClosed, SessionOpened
from proctor.models.wire import Encoding
from proctor.server.control.channel import SessionChannel
from proctor.server.control.session_registry import SUPERSEDED, SessionRegistry
from proctor.server.runtime.results import RequestError
from tests.server.control.outlets import Clock, Outlet, asked, held, holds, made_sessions, opened, taken
from tests.server.memory_recorder import MemoryRecorder
from tests.server.witness_env import LEDGER

pytestmark = pytest.mark.anyio

GRACE, IDLE, WARN_AFTER = 30.0, 100.0, 80.0
TIMES: dict[str, Any] = {"grace_seconds": GRACE, "idle_seconds": IDLE, "warn_seconds": IDLE - WARN_AFTER}
HELD = 7


async def swept(sessions: SessionRegistry, clock: Clock, seconds: float) -> None:
    """Let time pass and the sessions be looked at; whatever ends has ended."""
    clock.now += seconds
    await sessions.sweep()
    async with asyncio.timeout(300):
        while sessions._ending:
            await asyncio.wait(sessions._ending)


def refusal(problem: pytest.ExceptionInfo[RequestError]) -> tuple[str, bool]:
    told = problem.value.problem
    return told.code, told.lost is True


LOST = (Code.EPISODE_LOST.value, True)


async def test_a_session_waits_for_its_client_until_the_grace_period_is_over() -> None:
    clock, first, second = Clock(), Outlet(), Outlet()
    sessions = made_sessions(clock, **TIMES)
    channel, token = await opened(sessions, first)
    sessions.detach(channel, first)
    await swept(sessions, clock, GRACE - 0.001)
    assert sessions.resume(Resume(channel.session.name, token), second) is channel
    await swept(sessions, clock, GRACE)
    assert not channel.closed
    sessions.detach(channel, second)
    await swept(sessions, clock, GRACE)
    assert channel.closed
    with pytest.raises(RequestError) as problem:
        sessions.resume(Resume(channel.session.name, token), first)
    assert refusal(problem) == LOST
    assert (sessions.channels, sessions.slots.taken) == ({}, 0)


async def test_without_a_grace_period_a_session_ends_with_its_connection() -> None:
    outlet = Outlet()
    sessions = made_sessions(grace_seconds=0)
    channel, _ = await opened(sessions, outlet)
    sessions.detach(channel, outlet)
    await holds(lambda: sessions.slots.taken == 0)
    assert channel.closed


@pytest.mark.parametrize("wrong", ["", "x" * 43, "another's"])
async def test_a_wrong_token_resumes_nothing_and_disturbs_nobody(wrong: str) -> None:
    holder, thief = Outlet(), Outlet()
    sessions = made_sessions()
    channel, _ = await opened(sessions, holder)
    _, another = await opened(sessions, thief)
    with pytest.raises(RequestError) as problem:
        sessions.resume(Resume(channel.session.name, another if wrong == "another's" else wrong), thief)
    assert refusal(problem) == LOST
    assert (channel.outlet, holder.ended) == (holder, None)


async def test_a_session_that_never_was_is_refused_in_the_same_words_as_a_wrong_token() -> None:
    outlet = Outlet()
    sessions = made_sessions()
    channel, _ = await opened(sessions, outlet)
    told = []
    for name in (channel.session.name, "never was"):
        with pytest.raises(RequestError) as problem:
            sessions.resume(Resume(name, "x" * 43), outlet)
        told.append(problem.value.problem)
    assert told[0] == told[1]


async def test_a_session_without_hello_cannot_be_resumed() -> None:
    outlet = Outlet()
    sessions = made_sessions()
    channel = sessions.create_plain(outlet)
    await asked(channel, outlet, "reset", {"seed": 1}, None)  # type: ignore[arg-type]  # it has no number
    with pytest.raises(RequestError) as problem:
        sessions.resume(Resume(channel.session.name, ""), Outlet())
    assert refusal(problem) == LOST
    assert channel.outlet is outlet


async def test_a_resume_takes_the_session_from_the_connection_that_held_it() -> None:
    first, second = Outlet(), Outlet()
    sessions = made_sessions()
    channel, token = await opened(sessions, first)
    sessions.resume(Resume(channel.session.name, token), second)
    assert first.ended is not None
    assert first.ended[0] == SUPERSEDED
    sessions.detach(channel, first)
    assert (channel.outlet, channel.detached_at) == (second, None)


async def test_an_idle_session_is_warned_once_and_then_ended() -> None:
    clock, outlet = Clock(), Outlet()
    sessions = made_sessions(clock, **TIMES)
    channel, _ = await opened(sessions, outlet)
    await swept(sessions, clock, WARN_AFTER - 1)
    assert outlet.messages == []
    await swept(sessions, clock, 2)
    await swept(sessions, clock, 2)
    warning = {"code": "IDLE", "message": outlet.messages[0]["data"]["message"], "seconds_left": 19.0}
    told = {"type": "warning", "session": channel.session.name, "epoch": 0, "data": warning}
    assert outlet.messages == [told]
    await swept(sessions, clock, IDLE - WARN_AFTER)
    assert channel.closed
    assert outlet.ended is None


async def test_a_request_takes_the_warning_back() -> None:
    clock, outlet = Clock(), Outlet()
    sessions = made_sessions(clock, **TIMES)
    channel, _ = await opened(sessions, outlet)
    await swept(sessions, clock, WARN_AFTER)
    await asked(channel, outlet, "state", None, 1)
    await swept(sessions, clock, WARN_AFTER - 1)
    assert outlet.codes == ["IDLE", "state"]
    await swept(sessions, clock, 1)
    assert (outlet.codes, channel.closed) == (["IDLE", "state", "IDLE"], False)


async def test_without_hello_an_idle_connection_is_closed_with_1008_and_never_warned() -> None:
    clock, outlet = Clock(), Outlet()
    sessions = made_sessions(clock, **TIMES)
    channel = sessions.create_plain(outlet)
    await taken(channel, "reset", {"seed": 1})
    await holds(lambda: outlet.messages and not channel.busy)
    await swept(sessions, clock, WARN_AFTER)
    await swept(sessions, clock, IDLE - WARN_AFTER)
    assert (outlet.ended, channel.closed) == ((1008, "idle"), True)
    assert [message["type"] for message in outlet.messages] == ["observation"]


@pytest.mark.parametrize("detached", [False, True])
async def test_a_session_never_ends_under_a_request_that_runs(detached: bool) -> None:
    clock, outlet = Clock(), Outlet()
    sessions = made_sessions(clock, **TIMES)
    channel, _ = await opened(sessions, outlet)
    await held(channel, outlet, HELD)
    if detached:
        sessions.detach(channel, outlet)
    await swept(sessions, clock, 10 * IDLE)
    assert not channel.closed
    LEDGER.release(HELD)
    await holds(lambda: not channel.busy)
    assert channel.session.step_count == 1
    await swept(sessions, clock, 0)
    assert channel.closed is detached
    assert outlet.codes == (["observation"] if detached else ["observation", "observation"])


@pytest.mark.parametrize("target", ["Witness", "QuickWitness", "AsyncWitness"])
async def test_a_request_that_comes_in_the_moment_of_the_end_is_answered(target: str) -> None:
    clock, outlet = Clock(), Outlet()
    sessions = made_sessions(clock, target=f"tests.server.witness_env:{target}", **TIMES)
    channel, _ = await opened(sessions, outlet)
    clock.now += IDLE
    await sessions.sweep()
    answer = await taken(channel, "reset", {"seed": 1}, 1)
    told = await outlet.message() if answer is None else answer
    assert told["id"] == 1
    assert told["type"] == "observation" or told["data"]["code"] == "EPISODE_LOST"


@given(
    waits=st.lists(st.sampled_from([1.0, 15.0, 29.0, 30.0, 79.0, 80.0, 99.0, 100.0]), max_size=8),
    uses=st.lists(st.booleans(), min_size=8, max_size=8),
    leaves=st.lists(st.booleans(), min_size=8, max_size=8),
)
async def test_a_session_ends_exactly_when_grace_or_idleness_says_so(
    waits: list[float], uses: list[bool], leaves: list[bool]
) -> None:
    clock, outlet = Clock(), Outlet()
    sessions = made_sessions(clock, target="tests.server.witness_env:QuickWitness", **TIMES)
    channel, token = await opened(sessions, outlet)
    used, left, alive = clock.now, None, True
    for wait, use, leave in zip(waits, uses, leaves, strict=False):
        if alive and leave and left is None:
            sessions.detach(channel, outlet)
            left = clock.now
        elif alive and use:
            sessions.resume(Resume(channel.session.name, token), outlet)
            used, left = clock.now, None
        await swept(sessions, clock, wait)
        alive = alive and clock.now - used < IDLE and (left is None or clock.now - left < GRACE)
        assert channel.closed is not alive
    await sessions.drain()


@pytest.mark.parametrize(
    ("own", "asked_for", "found"), [(60.0, None, 60.0), (60.0, 5.0, 5.0), (60.0, 90.0, 60.0), (None, 5.0, 5.0)]
)
async def test_a_client_may_shorten_its_time_out(
    own: float | None, asked_for: float | None, found: float | None
) -> None:
    sessions = made_sessions(step_timeout_seconds=own)
    channel, told = await sessions.open(Open(step_timeout_seconds=asked_for), Outlet(), Encoding())
    assert told.step_timeout_seconds == found == channel.session.step_timeout
    await sessions.drain()


async def test_a_step_that_takes_longer_than_its_client_allows_is_lost_and_a_reset_begins_anew() -> None:
    outlet = Outlet()
    sessions = made_sessions()
    channel, _ = await opened(sessions, outlet, step_timeout_seconds=0.2)
    session: Any = channel.session
    allowed, session.step_timeout = session.step_timeout, None  # the reset is not about time
    await asked(channel, outlet, "reset", {"seed": 1}, 1)
    session.step_timeout = allowed
    await taken(channel, "step", {"nonce": HELD, "how": "hold"}, 2, epoch=1)
    told = await outlet.message(1)
    session.step_timeout = None
    assert (told["data"]["code"], told["data"]["lost"]) == ("STEP_TIMEOUT", True)
    lost = await asked(channel, outlet, "state", None, 3)
    again = await asked(channel, outlet, "reset", {"seed": 2}, 4)
    assert lost["data"]["code"] == "EPISODE_LOST"
    assert again["epoch"] == 2
    first, second = (message["data"]["observation"]["instance"] for message in (outlet.messages[0], again))
    assert first != second
    LEDGER.release(HELD)
    await sessions.drain()


async def test_a_batch_of_what_cannot_be_batched_is_refused_and_takes_no_slot() -> None:
    sessions = made_sessions()
    with pytest.raises(RequestError) as problem:
        await opened(sessions, Outlet(), num_envs=3)
    assert refusal(problem) == ("VALIDATION_ERROR", False)
    assert sessions.slots.taken == 0


class Forgetful:
    """A recorder that cannot keep the kinds of events that it is told."""

    def __init__(self, *kinds: type[Event]) -> None:
        self._kinds = kinds
        self.events: list[Event] = []

    def record(self, event: Event) -> None:
        if isinstance(event, self._kinds):
            raise ComponentError("the disk is full")
        self.events.append(event)

    def head(self, session: str) -> None:
        """Nothing proves anything."""

    def close(self) -> None:
        """Nothing is open."""


async def test_a_session_that_cannot_be_put_on_record_is_refused_and_leaves_nothing_behind() -> None:
    recorder: Recorder = Forgetful(SessionOpened)
    sessions = made_sessions(recorder=recorder)
    with pytest.raises(RequestError) as problem:
        await opened(sessions, Outlet())
    assert problem.value.problem.code == "RECORDING_FAILED"
    assert (sessions.slots.taken, sessions.channels) == (0, {})
    await holds(lambda: LEDGER.closed.keys() == LEDGER.made)


async def test_without_hello_a_session_that_cannot_be_put_on_record_is_refused_and_the_client_sent_away() -> None:
    outlet = Outlet()
    sessions = made_sessions(recorder=Forgetful(SessionOpened))
    channel = sessions.create_plain(outlet)
    await taken(channel, "reset", {"seed": 1})
    await holds(lambda: outlet.ended)
    assert (outlet.codes, outlet.ended) == (["RECORDING_FAILED"], (1000, "RECORDING_FAILED"))
    assert sessions.slots.taken == 0
    await holds(lambda: LEDGER.closed.keys() == LEDGER.made)


def closings(recorder: MemoryRecorder) -> dict[str, str]:
    """Return why each session ended; every session that was opened must have ended once."""
    opened_ones = [event.session for event in recorder.events if isinstance(event, SessionOpened)]
    closed_ones = [event for event in recorder.events if isinstance(event, SessionClosed)]
    assert sorted(opened_ones) == sorted(event.session for event in closed_ones)
    return {event.session: event.reason for event in closed_ones}


async def test_draining_waits_for_what_runs_and_ends_every_session() -> None:
    recorder, busy, idle = MemoryRecorder(), Outlet(), Outlet()
    sessions = made_sessions(recorder=recorder)
    channel, _ = await opened(sessions, busy)
    await opened(sessions, idle)
    await held(channel, busy, HELD)
    draining = asyncio.create_task(sessions.drain())
    await holds(lambda: idle.messages)
    assert idle.codes == ["SHUTTING_DOWN"]
    with pytest.raises(RequestError) as problem:
        await opened(sessions, Outlet())
    assert refusal(problem) == ("SHUTTING_DOWN", False)
    LEDGER.release(HELD)
    await asyncio.wait_for(draining, 300)
    assert busy.codes == ["observation", "SHUTTING_DOWN", "observation"]
    assert set(closings(recorder).values()) == {"shutdown"}
    assert (sessions.slots.taken, sessions.channels) == (0, {})


@pytest.mark.parametrize("target", ["Witness", "QuickWitness", "AsyncWitness"])
@pytest.mark.parametrize(("kind", "data"), [("step", {"nonce": 3}), ("reset", {"seed": 3})])
async def test_nothing_more_is_begun_in_a_server_that_stops(target: str, kind: str, data: dict[str, int]) -> None:
    busy, outlet = Outlet(), Outlet()
    sessions = made_sessions(target=f"tests.server.witness_env:{target}")
    channel, _ = await opened(sessions, outlet)
    await asked(channel, outlet, "reset", {"seed": 1}, 1)
    other, _ = await opened(sessions, busy)
    if target != "QuickWitness":
        await held(other, busy, HELD)
    draining = asyncio.create_task(sessions.drain())
    await holds(lambda: "SHUTTING_DOWN" in outlet.codes)
    answer = await taken(channel, kind, data, 2, epoch=1)
    assert answer is None or answer["data"]["code"] in {"SHUTTING_DOWN", "EPISODE_LOST"}
    LEDGER.release_all()
    await asyncio.wait_for(draining, 300)
    assert LEDGER.asked[3] == 0


async def test_draining_gives_up_what_runs_for_too_long() -> None:
    clock, recorder, outlet = Clock(), MemoryRecorder(), Outlet()
    sessions = made_sessions(clock, recorder, drain_seconds=5)
    channel, _ = await opened(sessions, outlet)
    await held(channel, outlet, HELD)
    draining = asyncio.create_task(sessions.drain())
    await holds(lambda: len(outlet.messages) == 2)
    clock.now += 5
    await asyncio.wait_for(draining, 300)
    assert outlet.codes == ["observation", "SHUTTING_DOWN"]
    assert set(closings(recorder).values()) == {"shutdown"}


async def test_who_waits_for_a_slot_while_the_server_stops_gets_no_session() -> None:
    recorder = MemoryRecorder()
    sessions = made_sessions(recorder=recorder, max_sessions=1)
    await opened(sessions, Outlet())
    late = asyncio.create_task(opened(sessions, Outlet()))
    await holds(lambda: sessions.slots.waiting == 1)
    await asyncio.wait_for(sessions.drain(), 300)
    with pytest.raises(RequestError) as problem:
        await asyncio.wait_for(late, 300)
    assert refusal(problem) == ("SHUTTING_DOWN", False)
    assert len(closings(recorder)) == 1
    assert (sessions.slots.taken, sessions.slots.waiting, sessions.channels) == (0, 0, {})


async def test_ending_a_session_twice_is_harmless() -> None:
    recorder = MemoryRecorder()
    sessions = made_sessions(recorder=recorder)
    channel, _ = await opened(sessions, Outlet())
    await asyncio.gather(sessions.end(channel, "one"), sessions.end(channel, "two"))
    assert list(closings(recorder).values()) == ["one"]
    assert sessions.slots.taken == 0


async def test_a_channel_knows_that_its_session_is_over() -> None:
    outlet = Outlet()
    sessions = made_sessions()
    channel: SessionChannel = (await opened(sessions, outlet))[0]
    closed = await asked(channel, outlet, "close", None, 1)
    assert closed["data"] == {"episodes": 0, "steps": 0}
    await holds(lambda: sessions.slots.taken == 0)
    late = await asked(channel, outlet, "state", None, 2)
    assert (late["data"]["code"], late["data"]["lost"]) == LOST
