"""What an agent can cause: one tool of one episode at a time, and nothing else."""

from __future__ import annotations

import asyncio
import json
import logging
import threading

import pytest

from proctor.models.control import Code
from proctor.models.events import EpisodeStepped, Failed
from proctor.server import agent_access
from proctor.server.agent_access import (
    LARGE_ARGUMENTS,
    MOST_WAITING,
    SMALL_ARGUMENTS,
    VALUE_BYTES,
    AgentAccess,
    AgentView,
)
from proctor.server.runtime.results import RequestRefused
from proctor.server.sessions.tool_results import ToolResult
from tests.server.bare_sessions import Room

pytestmark = pytest.mark.anyio

ACT = b'{"action":1}'


def code(told: ToolResult) -> str:
    assert told.is_error
    return str(json.loads(told.structured)["code"])


def test_the_views_have_no_method_that_resets_or_reads_a_state() -> None:
    public = {name for kind in (AgentView, AgentAccess) for name in vars(kind) if not name.startswith("_")}

    assert public == {"call", "find_view", "take_call"}


async def test_an_agents_action_is_a_step_of_the_session_and_on_record_as_the_agents() -> None:
    room = await Room.start()
    granted = room.give(agent="bob")

    told = await room.view(granted).call("act", ACT)

    stepped = room.diary.events[-1]
    assert isinstance(stepped, EpisodeStepped)
    assert (stepped.principal, stepped.grant, stepped.tool) == ("agent", granted.grant, "act")
    assert json.loads(bytes(stepped.action)) == {"action": 1}
    assert json.loads(told.structured)["step"] == room.session.step_count == 1
    row = json.loads(room.session.rows.after(0, 1).rows[0])
    assert (row["agent"], row["tool"], row["reward"], row["action"]) == ("bob", "act", 1.0, {"action": 1})


async def test_reading_is_no_step() -> None:
    room = await Room.start()

    told = await room.view(room.give()).call("observe", b"{}")

    assert len(json.loads(told.structured)["observation"]) == 4
    assert (room.session.step_count, room.session.rows.last) == (0, 0)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("act", b"{}"), ("act", b'{"action":2}'), ("act", b'{"action":1,"seed":3}'), ("act", b"[]"), ("act", b"nonsense")],
)
async def test_a_wrong_argument_changes_nothing_and_is_on_record(tool: str, arguments: bytes) -> None:
    room = await Room.start()
    granted = room.give()

    told = await room.view(granted).call(tool, arguments)

    assert code(told) == Code.VALIDATION_ERROR
    assert room.session.step_count == 0
    failure = room.diary.events[-1]
    assert isinstance(failure, Failed)
    assert (failure.principal, failure.grant, failure.lost) == ("agent", granted.grant, False)


@pytest.mark.parametrize("tool", ["reset", "step", "state", "close", "", "x" * 1000, "observe ", "../act"])
async def test_there_is_no_other_tool(tool: str) -> None:
    room = await Room.start()

    told = await room.view(room.give()).call(tool, b"{}")

    assert code(told) == Code.VALIDATION_ERROR
    assert "observe, act" in told.text


async def test_after_the_end_every_tool_says_so() -> None:
    room = await Room.start()
    view = room.view(room.give())
    told = await view.call("act", ACT)
    for _ in range(500):
        if json.loads(told.structured)["done"]:
            break
        told = await view.call("act", ACT)
    steps = room.session.step_count

    assert "over" in told.text
    assert [code(await view.call(tool, arguments)) for tool, arguments in (("act", ACT), ("observe", b"{}"))] == [
        Code.ENDED,
        Code.ENDED,
    ]
    assert room.session.step_count == steps


async def test_a_view_that_was_taken_before_a_reset_can_do_nothing_after_it() -> None:
    room = await Room.start()
    view = room.view(room.give())

    await room.begin()

    assert code(await view.call("act", ACT)) == Code.ENDED
    assert room.session.step_count == 0


@pytest.mark.parametrize("end", ["reset", "expired"])
async def test_a_call_that_waited_while_its_grant_died_does_nothing(end: str) -> None:
    room = await Room.start()
    view = room.view(room.give(ttl_seconds=5))
    async with room.session.turn:
        call = asyncio.create_task(view.call("act", ACT))
        await asyncio.sleep(0)
        if end == "reset":
            await room.begin()
        else:
            room.now += 5

    assert code(await call) == Code.ENDED
    assert room.session.step_count == 0


async def test_too_many_calls_at_once_are_refused_and_the_others_are_answered() -> None:
    room = await Room.start()
    view = room.view(room.give())
    async with room.session.turn:
        calls = [asyncio.create_task(view.call("observe", b"{}")) for _ in range(MOST_WAITING + 3)]
        while room.session.callers < MOST_WAITING or not calls[-1].done():
            await asyncio.sleep(0)
    told = await asyncio.gather(*calls)

    assert [code(each) for each in told if each.is_error] == [Code.BUSY] * 3
    assert room.session.callers == 0


async def test_an_agent_with_several_calls_at_once_rests_between_them_and_one_that_waits_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    room = await Room.start()
    view, rests, sleep = room.view(room.give()), [], asyncio.sleep

    async def note_rest(seconds: float) -> None:
        rests.append(seconds)
        await sleep(0)

    monkeypatch.setattr(agent_access, "REST", 1e12)
    monkeypatch.setattr(agent_access, "MOST_REST_SECONDS", 3600.0)
    for _ in range(3):
        await view.call("observe", b"{}")
    async with room.session.turn:
        calls = [asyncio.create_task(view.call("observe", b"{}")) for _ in range(3)]
        while room.session.callers < 3:
            await asyncio.sleep(0)
        monkeypatch.setattr(asyncio, "sleep", note_rest)
    await asyncio.gather(*calls)

    assert [0.0 < seconds <= 3600.0 for seconds in rests] == [True] * 2  # the first one had not waited


async def test_an_agent_that_goes_away_does_not_break_its_episode() -> None:
    room = await Room.start("proctor/PlumeSearch-v0")
    view = room.view(room.give())
    call = asyncio.create_task(view.call("move", b'{"direction":"up","steps":5}', _Slow(room).progress))
    await asyncio.sleep(0)
    while room.session.step_count == 0:
        await asyncio.sleep(0)

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    async with room.session.turn:
        steps = room.session.step_count

    assert 1 <= steps < 5
    assert room.session.loss is None
    assert not (await view.call("sniff", b"{}")).is_error


class _Slow:
    """Hears of progress, and takes its time."""

    def __init__(self, room: Room) -> None:
        self.heard: list[tuple[int, int]] = []

    async def progress(self, done: int, count: int) -> None:
        self.heard.append((done, count))
        await asyncio.sleep(0.01)


async def test_a_longer_call_says_how_far_it_is_and_how_much_was_done() -> None:
    room = await Room.start("proctor/PlumeSearch-v0")
    slow = _Slow(room)

    told = await room.view(room.give()).call("move", b'{"direction":"up","steps":3}', slow.progress)

    assert slow.heard == [(1, 3), (2, 3)]
    assert "3 of 3 actions were carried out." in told.text
    assert room.session.step_count == room.session.rows.last == 3


async def test_an_agent_sees_neither_seed_nor_source_nor_reward() -> None:
    room = Room("proctor/PlumeSearch-v0")
    await room.begin(seed=987654321)
    view = room.view(room.give())

    told = [await view.call("sniff", b"{}"), await view.call("move", b'{"direction":"up"}')]

    said = "".join(each.text + each.structured.decode() for each in told)
    said += view.instructions + json.dumps([each.output_schema for each in view.tools])
    assert "987654321" not in said
    for word in ("seed", "source_location", "distance", "reward", "agent_xy"):
        assert word not in said.lower()


async def test_a_rate_is_kept() -> None:
    room = await Room.start()
    view = room.view(room.give(calls_per_second=2))

    waits = [view.take_call() for _ in range(3)]
    room.now += 0.5

    assert waits[:2] == [0.0, 0.0]
    assert 0 < waits[2] <= 0.5
    assert view.take_call() == 0.0


async def test_two_agents_act_in_one_episode_where_the_environment_allows_it() -> None:
    room = await Room.start("tests.server.environments:Crowded")
    views = [room.view(room.give(agent=name)) for name in ("ann", "bob")]

    told = await asyncio.gather(*(view.call("act", ACT) for view in views * 3))

    rows = [json.loads(row) for row in room.session.rows.after(0, 10).rows]
    assert [row["agent"] for row in rows].count("ann") == [row["agent"] for row in rows].count("bob") == 3
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert sorted(json.loads(each.structured)["step"] for each in told) == [1, 2, 3, 4, 5, 6]
    with pytest.raises(RequestRefused):
        room.give(agent="eve")


async def test_a_call_that_was_given_up_before_its_turn_does_nothing() -> None:
    room = await Room.start()
    view = room.view(room.give())
    async with room.session.turn:
        call = asyncio.create_task(view.call("act", ACT))
        while room.session.callers == 0:
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    while room.session.callers:
        await asyncio.sleep(0)

    assert room.session.step_count == 0


@pytest.mark.parametrize("what", ["revoked", "claimed", "expired"])
async def test_a_long_call_stops_after_the_action_that_runs(what: str) -> None:
    room = await Room.start("proctor/PlumeSearch-v0")
    granted = room.give(ttl_seconds=50)

    async def progress(done: int, count: int) -> None:
        if done == 2 and what == "revoked":
            room.grants.revoke(room.session, granted.grant)
        elif done == 2 and what == "claimed":
            room.session.claims = 1
        elif done == 2:
            room.now += 50

    told = await room.view(granted).call("move", b'{"direction":"up","steps":5}', progress)

    assert "2 of 5 actions were carried out." in told.text
    assert room.session.step_count == 2


async def test_an_agent_makes_way_for_an_orchestrator_that_wants_to_reset() -> None:
    room = await Room.start()
    view = room.view(room.give())
    room.session.claims = 1

    assert code(await view.call("act", ACT)) == Code.BUSY
    assert room.session.step_count == 0


async def test_others_are_served_while_a_long_call_runs() -> None:
    room = await Room.start("proctor/PlumeSearch-v0")
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    await room.view(room.give()).call("move", b'{"direction":"up","steps":20}')
    beside.cancel()

    assert turns >= 19


async def test_a_session_that_ends_during_a_call_states_its_end_last() -> None:
    room = await Room.start("tests.server.environments:Crowded")
    view = room.view(room.give())
    call = asyncio.create_task(view.call("act", ACT))
    while room.session.callers == 0:
        await asyncio.sleep(0)

    await room.session.close("closed")
    await call

    kinds = [type(event).__name__ for event in room.diary.events]
    assert kinds[-1] == "SessionClosed"
    assert room.diary.events[-1].steps == kinds.count("EpisodeStepped")  # type: ignore[union-attr]  # it is the end


async def test_a_client_whose_progress_breaks_does_not_break_its_episode() -> None:
    room = await Room.start("proctor/PlumeSearch-v0")

    async def progress(done: int, count: int) -> None:
        raise RuntimeError("the stream is gone")

    told = await room.view(room.give()).call("move", b'{"direction":"up","steps":3}', progress)

    assert "3 of 3" in told.text
    assert room.session.loss is None


async def test_calls_after_the_end_do_not_keep_a_session_in_use() -> None:
    room = await Room.start()
    view = room.view(room.give())
    await view.call("act", ACT)
    room.session.standing.terminated = True

    await view.call("act", ACT)

    assert room.session.calls == 1


async def test_a_refusal_on_the_way_says_what_was_done_before_it() -> None:
    room = await Room.start("tests.server.environments:Hasty")

    told = await room.view(room.give()).call("rush", b"{}")

    assert code(told) == Code.VALIDATION_ERROR
    assert "2 of 3 actions were carried out, then: " in told.text
    assert room.session.step_count == 2


async def test_a_call_cannot_ask_for_actions_without_end() -> None:
    room = await Room.start("tests.server.environments:Hasty")

    told = await room.view(room.give()).call("crowd", b"{}")

    assert code(told) == Code.VALIDATION_ERROR
    assert room.session.step_count == 0


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        (b"[[1]]", "nested deeper"),
        (b'[{"a":1}]', "nested deeper"),
        (b"1e999", "too large"),
        (b'1,"action":1', "the same key twice"),
    ],
)
async def test_large_arguments_that_decoders_may_read_differently_or_at_length_are_refused_before_anything_is_built(
    shape: bytes, why: str
) -> None:
    room = await Room.start()
    before = len(room.diary.events)
    arguments = b'{"action":' + b" " * SMALL_ARGUMENTS + shape + b"}"

    told = await room.view(room.give()).call("act", arguments)

    assert code(told) == Code.VALIDATION_ERROR
    assert why in told.text
    assert room.session.step_count == 0
    assert [event for event in room.diary.events[before:] if isinstance(event, Failed)] == []


@pytest.mark.parametrize(
    "value",
    [
        b"[" + b"[]," * 10_000 + b"0]",
        b"{" + b",".join(b'"%x":0' % n for n in range(7000)) + b"}",
        b"[0" + b",0" * 30_000 + b"]",
    ],
    ids=["lists", "keys", "numbers"],
)
async def test_arguments_of_more_values_than_a_tool_takes_are_refused_before_anything_is_built(value: bytes) -> None:
    room = await Room.start()

    told = await room.view(room.give()).call("act", b'{"action":%b}' % value)

    assert code(told) == Code.VALIDATION_ERROR
    assert str(LARGE_ARGUMENTS // VALUE_BYTES) in told.text
    assert room.session.step_count == 0


async def test_a_text_may_be_full_of_commas() -> None:
    room = await Room.start()

    told = await room.view(room.give()).call("act", b'{"action":"%b"}' % (b"[1,2]," * 9000))

    assert "commas" not in told.text


async def test_large_arguments_are_checked_by_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[bool] = []

    def look(raw: bytes) -> bool:
        threads.append(threading.current_thread() is threading.main_thread())
        return True

    monkeypatch.setattr(agent_access, "has_duplicate_keys", look)

    room = await Room.start()
    view = room.view(room.give())
    for size in (LARGE_ARGUMENTS - 20, LARGE_ARGUMENTS):
        told = await view.call("act", b'{"action":"%b"}' % (b"x" * size))
        assert "the same key twice" in told.text

    assert threads == [True, False]


async def test_one_agents_refusals_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    room = await Room.start()
    view = room.view(room.give())
    for _ in range(200):
        assert code(await view.call("reset", b"{}")) == Code.VALIDATION_ERROR

    assert 1 <= len([record for record in caplog.records if "was refused" in record.getMessage()]) < 100
