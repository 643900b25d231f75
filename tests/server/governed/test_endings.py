"""How governed episodes end: reviewed, out of time, reset, closed, lost; and what is said of each."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from proctor.errors import ComponentError
from proctor.models.control import Reset, WaitEnd, Watch
from proctor.models.events import EpisodeClosed, EpisodeReset, Event, PacketJudged
from proctor.server.control.channel import wait_for_end, wait_for_rows
from tests.server.governed.governed_sessions import Agent, Disk, Hall, assert_judged_alike, turns, until

pytestmark = pytest.mark.anyio


async def at_the_end(hall: Hall) -> Agent:
    """Return an agent whose environment has ended by its own last step."""
    agent = await hall.agent()
    await agent.permitted("move", uses=20)
    told = await agent.use("move", direction="up", steps=20)
    while not told.said["done"]:
        told = await agent.use("move", direction="up", steps=20)
    return agent


def short(**more: object) -> Hall:
    return Hall(max_steps=3, **more)  # type: ignore[arg-type]  # settings of the environment


async def test_after_the_end_the_environments_tools_say_so_and_words_go_on() -> None:
    hall = short()
    agent = await at_the_end(hall)

    told = [
        await agent.use("move", direction="up"),
        await agent.use("sniff"),
        await agent.use("request_token", tools=["move"], rationale="more"),
        await agent.use("plan_verification", targets=["a"]),
        await agent.decide("ACT"),
        await agent.decide("VERIFY_FIRST"),
    ]
    alive = not hall.governor.closed
    learned = await agent.believe()

    assert [one.code for one in told] == ["ENDED"] * 6
    assert all("believe" in one.text for one in told)
    assert alive
    assert learned.said["closed"]
    assert hall.steps == 3


async def test_the_grant_dies_with_the_packet_episode_and_not_before() -> None:
    hall = short()
    await hall.begin()
    granted = hall.give()
    agent = Agent(hall.view(granted))
    await agent.permitted("move")
    await agent.use("move", direction="up", steps=3)
    during = hall.for_agents.find_view(granted.token)

    await agent.believe()
    late = await agent.believe()

    assert during is not None
    assert hall.for_agents.find_view(granted.token) is None
    assert late.code == "ENDED"
    await hall.granting.sweep()


async def test_when_the_time_to_wrap_up_has_passed_the_episode_is_closed_as_open() -> None:
    hall = short()
    agent = await at_the_end(hall)
    await hall.granting.sweep()
    hall.now += 29
    await hall.granting.sweep()
    before = list(hall.ends)

    hall.now += 1
    await hall.granting.sweep()

    assert before == []
    (end,) = hall.ends
    assert (end.reason, end.outcome, end.state) == ("ended", "open", "S6_EXECUTE")
    assert any("uses left" in owed for owed in end.obligations)
    assert hall.operator.sessions() == []
    assert (await agent.believe()).code == "ENDED"
    assert_judged_alike(hall.lines, hall.policy)


async def test_at_the_end_an_agent_is_told_what_is_left_to_do() -> None:
    hall = short()
    agent = await hall.agent()
    await agent.permitted("move")

    told = await agent.use("move", direction="up", steps=3)

    assert told.said["governed"]["next_calls"] == ["believe"]
    assert "the environment has ended" in told.text
    assert "You can call now: believe." in told.text


async def test_an_episode_can_be_wrapped_up_by_cancelling() -> None:
    hall = short()
    agent = await hall.agent()
    for _ in range(3):
        await hall.session.step(b'{"action":0}', 2)
    believed = await agent.believe()

    cancelled = await agent.decide("CANCEL")
    told = await agent.believe(over=True)

    assert believed.said["next_calls"] == ["believe", 'decide(outcome="CANCEL")']
    assert cancelled.state == "S3_DECIDE"
    assert told.said["closed"]
    assert [end.outcome for end in hall.ends] == ["conforming"]
    assert_judged_alike(hall.lines, hall.policy)


async def test_the_sweep_does_not_wait_for_a_turn() -> None:
    hall = short()
    await at_the_end(hall)
    hall.now += 100

    async with hall.session.turn:
        await hall.granting.sweep()
    busy = hall.ends
    await hall.granting.sweep()
    hall.now += 100
    await hall.granting.sweep()

    assert busy == []
    assert len(hall.ends) == 1


@pytest.mark.parametrize("how", ["reset", "closed"])
async def test_the_orchestrator_ends_it_at_once(how: str) -> None:
    hall, agent = await Hall.with_agent()
    await agent.believe()
    await agent.decide("ACT")

    if how == "reset":
        await hall.begin()
    else:
        await hall.session.close("closed")

    (end,) = hall.ends
    assert (end.reason, end.outcome, end.state) == (how, "open", "S3_DECIDE")
    assert end.obligations == ["decision: the ACT: a token, or a READ directive"]
    assert (await agent.believe()).code == "ENDED"
    if how == "reset":
        kinds = [type(event) for event in hall.events]
        assert kinds[kinds.index(EpisodeClosed) + 1] is EpisodeReset
        assert hall.lines[0].epoch == 2
        assert (await (await hall.agent()).believe()).state == "S2_MODEL"


async def test_a_reviewed_episode_that_is_reset_was_conforming() -> None:
    hall, agent = await Hall.with_agent()
    refused = await agent.use("move", direction="up")
    await agent.believe()
    await agent.decide("CANCEL")
    await agent.believe()

    await hall.begin()

    (end,) = hall.ends
    assert refused.refused
    assert (end.outcome, end.state) == ("conforming", "S7_REVIEW")
    first = [event for event in hall.events if isinstance(event, PacketJudged) and event.epoch == 1]
    assert_judged_alike(first, hall.policy)


async def test_safe_mode_at_the_end_leaves_the_episode_open() -> None:
    hall = await Hall.start()
    await hall.operator.alert(hall.episode, "CRITICAL", "stop")

    await hall.session.close("closed")

    assert [(end.outcome, end.state) for end in hall.ends] == [("open", "S9_SAFEMODE")]


async def test_who_waits_for_the_end_is_answered_when_the_packets_are_closed() -> None:
    hall = short()
    agent = await at_the_end(hall)
    early = await wait_for_end(hall.session, WaitEnd(wait_seconds=0), 1)
    waiting = asyncio.create_task(wait_for_end(hall.session, WaitEnd(wait_seconds=60), 1))
    await asyncio.sleep(0)

    await agent.believe()
    end = await waiting

    assert (early.over, early.outcome) == (False, None)
    assert (end.over, end.outcome, end.state, end.truncated) == (True, "conforming", "S7_REVIEW", True)
    assert (await wait_for_rows(hall.session, Watch(after=0, wait_seconds=0), 1)).over


async def test_what_cannot_be_recorded_loses_the_episode_and_the_agent_is_told() -> None:
    hall, agent = await Hall.with_agent()
    full = True

    def record(event: object) -> None:
        if full:
            raise ComponentError("the disk is full")
        hall.diary.events.append(event)  # type: ignore[arg-type]  # an event

    hall.diary.record = record  # type: ignore[method-assign]  # a disk that is full
    told = await agent.believe()
    after = await agent.use("sniff")
    end = await wait_for_end(hall.session, WaitEnd(wait_seconds=0), 1)
    full = False
    await hall.granting.reset(hall.session, Reset(seed=1), 3)

    assert told.code == "RECORDING_FAILED"
    assert after.code == "EPISODE_LOST"
    assert (end.over, end.lost) == (True, True)
    assert [(one.reason, one.outcome) for one in hall.ends] == [("lost", "open")]
    assert hall.governor.stream.standing.state == "S1_SENSE"


async def test_a_free_session_has_no_governor_and_its_end_has_no_outcome() -> None:
    from tests.server.bare_sessions import Room

    room = await Room.start()
    view = room.view(room.give())

    await room.session.close("closed")

    assert [each.tool.name for each in view.tools] == ["observe", "act"]
    assert "governed" not in view.instructions
    end = await wait_for_end(room.session, WaitEnd(wait_seconds=0), 1)
    assert (end.over, end.outcome, end.state) == (True, None, None)


async def test_an_end_that_could_not_be_recorded_is_lost_and_stated_when_it_can_be() -> None:
    hall = short()
    agent = await at_the_end(hall)
    quick = hall.diary.record

    def record(event: Event) -> None:
        if isinstance(event, EpisodeClosed):
            raise ComponentError("the disk is full")
        quick(event)

    hall.diary.record = record  # type: ignore[method-assign]  # a disk that is full
    told = await agent.believe()
    end = await wait_for_end(hall.session, WaitEnd(wait_seconds=0), 1)
    hall.diary.record = quick  # type: ignore[method-assign]  # there is room again
    await hall.session.close("closed")

    assert told.code == "RECORDING_FAILED"
    assert (end.over, end.lost, end.outcome) == (True, True, None)
    assert [(one.reason, one.outcome) for one in hall.ends] == [("lost", "conforming")]


async def test_an_outcome_is_told_only_when_it_is_on_record() -> None:
    hall = short()
    agent = await at_the_end(hall)
    waiting = asyncio.create_task(wait_for_end(hall.session, WaitEnd(wait_seconds=60), 1))
    disk = Disk(hall)

    with disk.held():
        closing = asyncio.create_task(agent.believe())
        for count in (1, 2):  # the belief, and the close
            await until(partial(disk.holds, count))
            disk.waiting[-1].set_result(None)
        await until(partial(disk.holds, 3))  # the end of the episode
        await turns()
        early = waiting.done()
    end = await waiting
    await closing

    assert not early
    assert (end.over, end.outcome) == (True, "conforming")
