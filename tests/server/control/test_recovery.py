"""Whatever was on record when a server was ended: its next run goes on from there, and every answer is as it would be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from proctor.errors import ComponentError, RecordLimitError
from proctor.ledger.writer import UnfinishedSession
from proctor.models.control import Resume
from proctor.models.events import (
    EpisodeClosed,
    EpisodeReset,
    EpisodeStepped,
    Event,
    Failed,
    SessionClosed,
    SessionOpened,
    SessionResumed,
)
from proctor.server.control.channel import SessionChannel
from proctor.server.control.session_registry import SessionRegistry
from tests.server.control.outlets import Clock, Outlet, asked, holds, made_sessions, opened
from tests.server.memory_recorder import MemoryRecorder
from tests.server.restarts import ADDING

pytestmark = pytest.mark.anyio

FAIL = -99
REFUSED = 13
Request = tuple[str, dict[str, Any]]


def left(events: Sequence[Event]) -> UnfinishedSession:
    """Return what a ledger says of the one session whose events these are."""
    [first] = [event for event in events if isinstance(event, SessionOpened)]
    resets = [index for index, event in enumerate(events) if isinstance(event, EpisodeReset)]
    begins = resets[-1] if resets else len(events)
    before = [event for event in events[:begins] if isinstance(event, EpisodeStepped)]
    latest = list(events[begins:])
    return UnfinishedSession(
        opened=first,
        events=latest,
        last_request_id=max((event.request_id or 0 for event in events), default=0),
        all_epochs=len(resets),
        digests=[None] * len(latest),
        steps_before=len(before),
        agent_steps_before=sum(event.grant is not None for event in before),
    )


async def answers(channel: SessionChannel, requests: Sequence[Request], first: int) -> list[Any]:
    """Return the replies to requests, the first of which has this number; what proves or finds something is left out."""
    told = []
    for number, (kind, data) in enumerate(requests[first - 1 :], first):
        outlet = channel.outlet
        assert isinstance(outlet, Outlet)
        beside = {"epoch": sum(each == "reset" for each, _ in requests[: number - 1])} if kind == "step" else {}
        reply = await asked(channel, outlet, kind, data, number, **beside)
        if reply["type"] == "error":
            reply = {**reply, "data": {"code": reply["data"]["code"], "lost": reply["data"].get("lost")}}
        else:
            reply["data"].pop("head", None)
            reply["data"]["observation"].pop("begun")
        told.append(reply)
    return told


async def whole(requests: Sequence[Request]) -> tuple[list[Any], list[Event], str]:
    """Return the replies, the record and the resume token of a session that nobody ended."""
    recorder = MemoryRecorder()
    sessions = await asyncio.to_thread(made_sessions, recorder=recorder, target=ADDING)
    channel, token = await opened(sessions, Outlet())
    return await answers(channel, requests, 1), list(recorder.events), token


async def taken_up(found: UnfinishedSession, **settings: Any) -> tuple[SessionRegistry, MemoryRecorder]:
    """Return the sessions of the next run."""
    recorder = MemoryRecorder()
    sessions = await asyncio.to_thread(made_sessions, recorder=recorder, target=ADDING, **settings)
    await sessions.recover([found])
    return sessions, recorder


def resumed(sessions: SessionRegistry, found: UnfinishedSession, token: str) -> SessionChannel:
    return sessions.resume(Resume(found.opened.session, token), Outlet())


def first_again(requests: Sequence[Request], events: Sequence[Event]) -> int:
    """Return the first request whose reply is known, or which is still to be carried out.

    Known are those of the latest episode, or only its last if that one has lost it.
    """
    resets = [event.request_id or 0 for event in events if isinstance(event, EpisodeReset)]
    last = max((event.request_id or 0 for event in events), default=0)
    if isinstance(events[-1], EpisodeClosed):
        return last + 1
    lost = any(isinstance(event, Failed) and event.lost for event in left(events).events)
    return last if lost else resets[-1] if resets else 1


deeds = st.sampled_from([1, 2, 40, REFUSED, FAIL]).map(lambda by: ("step", {"by": by}))
resets = st.integers(0, 50).map(lambda seed: ("reset", {"seed": seed}))
scripts = st.lists(st.one_of(resets, deeds, deeds, deeds), min_size=1, max_size=12)


@given(scripts, st.data())
@settings(max_examples=60)
async def test_a_server_may_be_ended_after_any_event(requests: list[Request], data: st.DataObject) -> None:
    expected, events, token = await whole(requests)
    events = events[: data.draw(st.integers(1, len(events)))]
    found = left(events)
    sessions, recorder = await taken_up(found)
    first = first_again(requests, events)
    again = await answers(resumed(sessions, found, token), requests, first)
    events = [*events, *recorder.events]

    assert again == expected[first - 1 :]
    steps = [(event.epoch, event.step) for event in events if isinstance(event, EpisodeStepped)]
    assert len(steps) == len(set(steps))
    assert len([event for event in events if isinstance(event, SessionResumed)]) == 1


RESET: Request = ("reset", {"seed": 1})
STEP: Request = ("step", {"by": 2})


async def after(
    requests: Sequence[Request], change: Any = None, **settings: Any
) -> tuple[SessionRegistry, list[Event]]:
    """Return what the next run makes of a session that was left after these requests, its record changed by `change`."""
    _, events, _ = await whole(requests)
    found = left(events)
    sessions, recorder = await taken_up(found if change is None else change(found), **settings)
    return sessions, list(recorder.events)


def lost(sessions: SessionRegistry) -> str:
    [channel] = sessions.channels.values()
    assert channel.session.loss is not None
    return channel.session.loss.message


async def test_a_session_that_was_being_closed_is_closed() -> None:
    def closing(found: UnfinishedSession) -> UnfinishedSession:
        at = found.events[-1]
        closed = EpisodeClosed(session=at.session, at=1.0, epoch=1, steps=1, reason="idle")
        return UnfinishedSession(found.opened, [*found.events, closed], 2, 1, [*found.digests, None])

    sessions, events = await after([RESET, STEP], closing)

    assert sessions.channels == {}
    assert [type(event) for event in events] == [SessionResumed, SessionClosed]
    assert isinstance(events[-1], SessionClosed)
    assert (events[-1].reason, events[-1].episodes, events[-1].steps) == ("idle", 1, 1)


async def test_a_damaged_record_is_not_gone_on_with() -> None:
    def damaged(found: UnfinishedSession) -> UnfinishedSession:
        return UnfinishedSession(found.opened, [], 2, 1, [], damage="row 7 is not as it was written")

    sessions, _ = await after([RESET, STEP], damaged)

    assert lost(sessions) == "its record is damaged: row 7 is not as it was written"
    assert next(iter(sessions.channels.values())).session.epoch == 1


@pytest.mark.parametrize(
    ("field", "value"), [("observation", Raw(b'{"total":4}')), ("reward", 2.5), ("terminated", True)]
)
async def test_a_record_that_differs_in_one_field_is_lost_by_its_name(field: str, value: Any) -> None:
    def changed(found: UnfinishedSession) -> UnfinishedSession:
        events = [*found.events[:-1], replace(found.events[-1], **{field: value})]
        return UnfinishedSession(found.opened, events, 3, 1, found.digests)

    sessions, events = await after([RESET, STEP, STEP], changed)

    assert lost(sessions) == f"step 2 came out differently when it was done again: {field}"
    assert isinstance(events[0], SessionResumed)
    assert events[0].lost == lost(sessions)


async def test_an_action_that_the_environment_does_not_take_again_is_a_loss() -> None:
    def changed(found: UnfinishedSession) -> UnfinishedSession:
        events = [*found.events[:-1], replace(found.events[-1], action=Raw(b'{"by":13}'))]
        return UnfinishedSession(found.opened, events, 2, 1, found.digests)

    sessions, _ = await after([RESET, STEP], changed)

    assert lost(sessions).startswith("it could not be done again: this is not an action")


async def test_what_was_stated_of_a_loss_stays() -> None:
    def resumed_before(found: UnfinishedSession) -> UnfinishedSession:
        at = found.events[-1]
        said = SessionResumed(session=at.session, at=1.0, epoch=1, step=1, boot="b", server="1", lost="because")
        return UnfinishedSession(found.opened, [*found.events, said], 2, 1, [*found.digests, None])

    sessions, _ = await after([RESET, STEP], resumed_before)

    assert lost(sessions) == "because"


async def test_a_session_whose_resumption_cannot_be_recorded_has_lost_its_episode() -> None:
    class Full(MemoryRecorder):
        def record(self, event: Event) -> None:
            if isinstance(event, SessionResumed):
                raise ComponentError("the disk is full")
            super().record(event)

    _, events, _ = await whole([RESET, STEP])
    sessions = await asyncio.to_thread(made_sessions, recorder=Full(), target=ADDING)
    await sessions.recover([left(events)])

    assert lost(sessions) == "what happened could not be put on record"


async def test_a_session_that_is_not_taken_up_is_closed_on_record_where_nothing_else_can_be_said() -> None:
    class NearlyFull(MemoryRecorder):
        def record(self, event: Event) -> None:
            if not isinstance(event, EpisodeClosed | SessionClosed):
                raise RecordLimitError("the disk that holds the record is nearly full", limit="disk")
            super().record(event)

    _, events, _ = await whole([RESET, STEP])
    recorder = NearlyFull()
    sessions = await asyncio.to_thread(made_sessions, recorder=recorder, target=ADDING, grace_seconds=0)
    await sessions.recover([left(events)])

    assert [type(event) for event in recorder.events] == [EpisodeClosed, SessionClosed]


async def test_a_cancel_of_what_was_answered_before_says_that_it_is_finished() -> None:
    _, events, token = await whole([RESET, STEP])
    found = left(events)
    sessions, _ = await taken_up(found)
    channel = resumed(sessions, found, token)
    outlet = channel.outlet
    assert isinstance(outlet, Outlet)
    told = [await asked(channel, outlet, "cancel", {"id": each}, 10 + each) for each in (1, 2, 3)]

    assert [each["data"]["outcome"] for each in told] == ["finished", "finished", "unknown"]


async def test_what_was_answered_before_is_forgotten_when_there_is_enough_to_remember_since() -> None:
    requests = [RESET, *[STEP] * 8]

    _, events, token = await whole(requests[:3])
    found = left(events)
    sessions, _ = await taken_up(found, max_pending=1)
    channel = resumed(sessions, found, token)
    seen = [await answers(channel, requests[:number], number) for number in (3, 4, 3, 5, 6, 3)]
    result = [each[0]["data"].get("code", each[0]["data"].get("step")) for each in seen]

    assert result == [2, 3, 2, 4, 5, "ID_REUSED"]


async def test_a_session_without_an_episode_is_there_and_can_be_asked_for_its_state() -> None:
    _, events, token = await whole([])
    found = left(events)
    sessions, _ = await taken_up(found)
    channel = resumed(sessions, found, token)
    outlet = channel.outlet
    assert isinstance(outlet, Outlet)
    state, begun = [await asked(channel, outlet, *each) for each in (("state", None, 1), ("reset", {"seed": 3}, 2))]

    assert state["data"]["step_count"] == 0
    assert json.dumps(begun["data"]["observation"]) == '{"total": 3, "begun": 1}'


def closed(events: Sequence[Event]) -> list[tuple[str, int]]:
    return [(event.reason, event.steps) for event in events if isinstance(event, SessionClosed)]


async def test_a_session_that_nobody_can_resume_is_closed() -> None:
    def plain(found: UnfinishedSession) -> UnfinishedSession:
        return UnfinishedSession(replace(found.opened, resume=""), found.events, 2, 1, found.digests, 30)

    sessions, events = await after([RESET, STEP], plain)

    assert [type(event) for event in events] == [SessionResumed, EpisodeClosed, SessionClosed]
    assert closed(events) == [("disconnected", 31)]
    assert sessions.channels == {}


async def test_a_server_that_waits_for_nobody_takes_nobody_up() -> None:
    sessions, events = await after([RESET, STEP], grace_seconds=0)

    assert (sessions.channels, closed(events)) == ({}, [("not resumed", 1)])


async def test_there_is_room_for_as_many_as_are_served_now() -> None:
    found = [left((await whole([RESET]))[1]) for _ in range(3)]
    recorder = MemoryRecorder()
    sessions = await asyncio.to_thread(made_sessions, recorder=recorder, target=ADDING, max_sessions=2)
    await sessions.recover(found)
    names = [each.opened.session for each in found]

    assert set(sessions.channels) == set(names[:2])
    assert sessions.slots.taken == 2
    assert [event.session for event in recorder.events if isinstance(event, SessionClosed)] == names[2:]


async def test_a_session_that_is_not_resumed_in_time_ends() -> None:
    clock = Clock()
    _, events, _ = await whole([RESET])
    sessions = await asyncio.to_thread(made_sessions, clock, MemoryRecorder(), ADDING, grace_seconds=60)
    await sessions.recover([left(events)])
    clock.now += 59
    await sessions.sweep()
    before = len(sessions.channels)
    clock.now += 2
    await sessions.sweep()
    await holds(lambda: sessions.slots.taken == 0)

    assert (before, len(sessions.channels)) == (1, 0)


async def test_the_time_to_come_back_begins_when_all_are_there() -> None:
    clock = Clock()
    found = [left((await whole([RESET]))[1]) for _ in range(2)]
    sessions = await asyncio.to_thread(made_sessions, clock, MemoryRecorder(), ADDING, grace_seconds=60)
    adopt = sessions._adopt

    def slowly(session: Any, past: Any) -> None:
        adopt(session, past)
        clock.now += 50

    sessions._adopt = slowly  # type: ignore[method-assign]  # each takes its time
    await sessions.recover(found)

    assert [channel.detached_at for channel in sessions.channels.values()] == [clock.now] * 2


async def test_the_log_says_how_many_go_on(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        await after([RESET, STEP])

    assert "an earlier run left 1 sessions: 1 go on, 0 have lost their episode, 0 are closed" in caplog.text


def test_a_server_to_which_nothing_was_left_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        asyncio.run(made_sessions(recorder=MemoryRecorder(), target=ADDING).recover([]))

    assert "an earlier run" not in caplog.text
