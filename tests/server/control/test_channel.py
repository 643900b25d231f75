"""A client's side of a session: order, exactly once, cancellation, and replies that outlive a connection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proctor.models.control import Notice, Resume
from proctor.server.control.channel import SessionChannel
from proctor.server.control.session_registry import SessionRegistry
from tests.server.control.outlets import Outlet, asked, held, holds, made_sessions, opened, taken
from tests.server.witness_env import LEDGER

pytestmark = pytest.mark.anyio

HELD = 7
KINDS = pytest.mark.parametrize("target", ["Witness", "QuickWitness", "AsyncWitness"])


@asynccontextmanager
async def driven(
    target: str = "Witness", **settings: Any
) -> AsyncIterator[tuple[SessionRegistry, SessionChannel, Outlet]]:
    """Give a session to play with, then end it and see that nothing is left."""
    outlet = Outlet()
    sessions = made_sessions(target=f"tests.server.witness_env:{target}", **settings)
    channel, _ = await opened(sessions, outlet)
    yield sessions, channel, outlet
    LEDGER.release_all()
    await sessions.drain()
    await holds(lambda: LEDGER.closed.keys() == LEDGER.made)


def step(nonce: int, how: str = "move") -> dict[str, Any]:
    return {"nonce": nonce, "how": how}


def code(message: dict[str, Any]) -> str:
    found: str = message["data"]["code"]
    return found


@KINDS
async def test_a_repeated_request_gets_the_stored_reply_and_runs_once(target: str) -> None:
    async with driven(target) as (_, channel, outlet):
        await asked(channel, outlet, "reset", {"seed": 1}, 1)
        first = await asked(channel, outlet, "step", step(2), 5, epoch=1)
        again = await asked(channel, outlet, "step", step(2), 5, epoch=1)
        assert again == first
        assert (LEDGER.asked[2], channel.session.step_count) == (1, 1)


@KINDS
@pytest.mark.parametrize(
    ("data", "epoch"), [(step(3), 1), (step(2, "end"), 1), (step(2), 2), ({"how": "move", "nonce": 2}, 1)]
)
async def test_the_same_id_with_other_content_is_refused_and_runs_nothing(target: str, data: Any, epoch: int) -> None:
    async with driven(target) as (_, channel, outlet):
        await asked(channel, outlet, "reset", {"seed": 1}, 1)
        await asked(channel, outlet, "step", step(2), 2, epoch=1)
        refusal = await asked(channel, outlet, "step", data, 2, epoch=epoch)
        assert (code(refusal), refusal["id"]) == ("ID_REUSED", 2)
        assert (sum(LEDGER.asked.values()), channel.session.step_count) == (2, 1)


async def test_a_request_that_is_repeated_while_it_runs_is_answered_once() -> None:
    async with driven() as (_, channel, outlet):
        await held(channel, outlet, HELD)
        for _ in range(3):
            assert await taken(channel, "step", step(HELD, "hold"), 2, epoch=1) is None
        LEDGER.release(HELD)
        await holds(lambda: not channel.busy)
        assert len(outlet.messages) == 2
        assert LEDGER.asked[HELD] == 1


async def test_a_refusal_is_a_reply_like_any_other() -> None:
    async with driven() as (_, channel, outlet):
        early = await asked(channel, outlet, "step", step(2), 1, epoch=0)
        await asked(channel, outlet, "reset", {"seed": 1}, 2)
        again = await asked(channel, outlet, "step", step(2), 1, epoch=0)
        assert (code(early), early["data"]["clause"]) == ("STATE_ERROR", "NO-STEP-BEFORE-RESET")
        assert again == early
        assert LEDGER.asked[2] == 0


@KINDS
@pytest.mark.parametrize("kind", ["step", "reset", "state", "close"])
@pytest.mark.parametrize("epoch", [0, 2])
async def test_a_request_for_another_episode_runs_nothing(target: str, kind: str, epoch: int) -> None:
    async with driven(target) as (_, channel, outlet):
        await asked(channel, outlet, "reset", {"seed": 1}, 1)
        data = {"step": step(2), "reset": {"seed": 2}}.get(kind)
        refusal = await asked(channel, outlet, kind, data, 2, epoch=epoch)
        assert (code(refusal), refusal["data"]["lost"], refusal["epoch"]) == ("STALE_EPOCH", True, 1)
        assert LEDGER.asked == {1: 1}
        going_on = await asked(channel, outlet, "step", step(3), 3, epoch=1)
        assert going_on["data"]["step"] == 1


async def test_a_request_that_waits_is_dropped_and_never_runs() -> None:
    async with driven() as (_, channel, outlet):
        await held(channel, outlet, HELD)
        await taken(channel, "step", step(3), 3, epoch=1)
        await taken(channel, "step", step(4), 4, epoch=1)
        answer = await taken(channel, "cancel", {"id": 3}, 5)
        assert answer["data"] == {"id": 3, "outcome": "dropped"}
        LEDGER.release(HELD)
        await holds(lambda: not channel.busy)
        dropped, first, second = outlet.messages[1:]
        assert (dropped["id"], code(dropped), "lost" in dropped["data"]) == (3, "CANCELLED", False)
        assert [(each["id"], each["data"]["step"]) for each in (first, second)] == [(2, 1), (4, 2)]
        assert LEDGER.asked[3] == 0
        assert await taken(channel, "step", step(3), 3, epoch=1) == dropped


@pytest.mark.parametrize("target", ["Witness", "AsyncWitness"])
async def test_a_request_that_runs_takes_its_episode_with_it(target: str) -> None:
    async with driven(target) as (_, channel, outlet):
        await held(channel, outlet, HELD)
        await taken(channel, "step", step(3), 3, epoch=1)
        answer = await taken(channel, "cancel", {"id": 2}, 4)
        assert answer["data"] == {"id": 2, "outcome": "lost"}
        await holds(lambda: not channel.busy)
        given_up, after = outlet.messages[1:]
        assert (given_up["id"], code(given_up), given_up["data"]["lost"]) == (2, "CANCELLED", True)
        assert (after["id"], code(after)) == (3, "EPISODE_LOST")
        lost = await asked(channel, outlet, "state", None, 5)
        assert code(lost) == "EPISODE_LOST"
        begun = await asked(channel, outlet, "reset", {"seed": 8}, 6)
        LEDGER.release(HELD)
        seen = await asked(channel, outlet, "step", step(9), 7, epoch=2)
        instance = outlet.messages[0]["data"]["observation"]["instance"]
        assert begun["data"]["observation"]["instance"] == seen["data"]["observation"]["instance"] != instance
        assert (LEDGER.asked[3], seen["data"]["step"]) == (0, 1)


async def test_a_reset_that_runs_can_be_given_up_too() -> None:
    async with driven() as (_, channel, outlet):
        await taken(channel, "reset", {"seed": HELD, "options": {"how": "hold"}}, 1)
        await holds(lambda: HELD in LEDGER.holding)
        assert (await taken(channel, "cancel", {"id": 1}, 2))["data"]["outcome"] == "lost"
        await holds(lambda: not channel.busy)
        assert (code(outlet.messages[0]), channel.session.epoch) == ("CANCELLED", 0)
        assert (await asked(channel, outlet, "reset", {"seed": 3}, 3))["epoch"] == 1


@KINDS
async def test_a_request_that_has_ended_cannot_be_given_up(target: str) -> None:
    async with driven(target) as (_, channel, outlet):
        await asked(channel, outlet, "reset", {"seed": 1}, 1)
        answer = await taken(channel, "cancel", {"id": 1}, 2)
        assert (answer["type"], answer["data"]) == ("cancelled", {"id": 1, "outcome": "finished"})
        assert (await asked(channel, outlet, "step", step(3), 3, epoch=1))["type"] == "observation"


async def test_a_cancel_is_repeated_without_cancelling_twice() -> None:
    async with driven() as (_, channel, outlet):
        await held(channel, outlet, HELD)
        answer = await taken(channel, "cancel", {"id": 2}, 3)
        await holds(lambda: not channel.busy)
        await asked(channel, outlet, "reset", {"seed": 4}, 4)
        assert await taken(channel, "cancel", {"id": 2}, 3) == answer
        assert (await asked(channel, outlet, "state", None, 5))["type"] == "state"


@pytest.mark.parametrize("data", [None, {"id": 0}, {"id": "1"}, {"number": 1}, [1]])
async def test_a_cancel_that_names_nothing_is_refused(data: Any) -> None:
    async with driven() as (_, channel, _):
        answer = await taken(channel, "cancel", data, 1)
        assert (answer["id"], code(answer)) == (1, "VALIDATION_ERROR")


async def test_no_more_bytes_wait_than_allowed_and_one_large_request_always_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proctor.server.control.channel.MOST_WAITING_BYTES", 1000)

    async with driven() as (_, channel, outlet):
        await held(channel, outlet, HELD)
        large = {**step(3), "filler": "x" * 2000}
        assert await taken(channel, "step", large, 3, epoch=1) is None
        assert code(await taken(channel, "step", step(4), 4, epoch=1)) == "BUSY"
        LEDGER.release(HELD)
        await holds(lambda: not channel.busy)
        assert code(outlet.messages[2]) == "VALIDATION_ERROR"
        assert (await asked(channel, outlet, "step", step(4), 4, epoch=1))["data"]["step"] == 2


async def test_what_is_asked_behind_a_close_is_told_that_there_is_nothing_more() -> None:
    async with driven() as (_, channel, outlet):
        await held(channel, outlet, HELD)
        await taken(channel, "close", None, 3)
        await taken(channel, "step", step(4), 4, epoch=1)
        await taken(channel, "state", None, 5)
        LEDGER.release(HELD)
        await holds(lambda: len(outlet.messages) == 5)
        replies = outlet.messages[1:]
        assert [message["id"] for message in replies] == [2, 3, 4, 5]
        assert replies[1]["data"] == {"episodes": 1, "steps": 1}
        assert [code(message) for message in replies[2:]] == ["EPISODE_LOST"] * 2
        assert LEDGER.asked[4] == 0


async def test_a_request_that_runs_while_the_connection_breaks_is_finished_and_its_reply_kept() -> None:
    async with driven() as (sessions, channel, outlet):
        await held(channel, outlet, HELD)
        await taken(channel, "step", step(3), 3, epoch=1)
        sessions.detach(channel, outlet)
        LEDGER.release(HELD)
        await holds(lambda: not channel.busy)
        assert len(outlet.messages) == 1
        assert channel.session.step_count == 2
        replies = [
            await taken(channel, "step", step(HELD, "hold"), 2, epoch=1),
            await taken(channel, "step", step(3), 3, epoch=1),
        ]
        assert [(reply["id"], reply["data"]["step"]) for reply in replies] == [(2, 1), (3, 2)]
        assert (LEDGER.asked[HELD], LEDGER.asked[3]) == (1, 1)


@pytest.mark.parametrize("repeats", [True, False])
async def test_a_reply_goes_to_the_connection_that_holds_the_session_if_it_asks_for_it(repeats: bool) -> None:
    first, second = Outlet(), Outlet()
    sessions = made_sessions()
    channel, token = await opened(sessions, first)
    await held(channel, first, HELD)
    sessions.resume(Resume(channel.session.name, token), second)
    if repeats:
        assert await taken(channel, "step", step(HELD, "hold"), 2, epoch=1) is None
    LEDGER.release(HELD)
    await holds(lambda: not channel.busy)
    assert [reply["id"] for reply in second.messages] == ([2] if repeats else [])
    assert len(first.messages) == 1
    assert (await taken(channel, "step", step(HELD, "hold"), 2, epoch=1))["data"]["step"] == 1
    await sessions.drain()


@pytest.mark.parametrize("waits", [True, False])
async def test_the_same_id_of_two_clients_never_brings_one_the_reply_to_the_others_request(waits: bool) -> None:
    first, second = Outlet(), Outlet()
    sessions = made_sessions()
    channel, token = await opened(sessions, first)
    await held(channel, first, HELD)
    number = 2
    if waits:
        number = 3
        assert await taken(channel, "step", step(3), number, epoch=1) is None
    sessions.resume(Resume(channel.session.name, token), second)
    refused = await taken(channel, "step", step(99), number, epoch=1)
    LEDGER.release(HELD)
    await holds(lambda: not channel.busy)
    assert refused["data"]["code"] == "ID_REUSED"
    assert second.messages == []
    assert 99 not in LEDGER.asked
    await sessions.drain()


@pytest.mark.parametrize("number", [2, 3], ids=["runs", "waits"])
async def test_the_id_of_a_request_without_a_reply_used_for_another_takes_no_reply_away(number: int) -> None:
    async with driven() as (_, channel, outlet):
        await held(channel, outlet, HELD)
        await taken(channel, "step", step(3), 3, epoch=1)
        refused = await taken(channel, "step", step(99), number, epoch=1)
        LEDGER.release(HELD)
        await holds(lambda: not channel.busy)
        assert refused["data"]["code"] == "ID_REUSED"
        assert [reply["id"] for reply in outlet.messages] == [1, 2, 3]


async def test_a_request_that_another_client_left_waiting_is_given_up_without_a_reply_to_who_did_not_ask() -> None:
    first, second = Outlet(), Outlet()
    sessions = made_sessions()
    channel, token = await opened(sessions, first)
    await held(channel, first, HELD)
    await taken(channel, "step", step(3), 3, epoch=1)
    sessions.resume(Resume(channel.session.name, token), second)
    cancelled = await taken(channel, "cancel", {"id": 3}, 4)
    again = await taken(channel, "step", step(3), 3, epoch=1)
    LEDGER.release(HELD)
    await holds(lambda: not channel.busy)
    assert (cancelled["data"]["outcome"], again["data"]["code"]) == ("dropped", "CANCELLED")
    assert (second.messages, 3 in LEDGER.asked) == ([], False)
    await sessions.drain()


async def test_nobody_is_warned_who_is_not_there_or_would_not_understand() -> None:
    gone, plain = Outlet(), Outlet()
    sessions = made_sessions()
    channel, _ = await opened(sessions, gone)
    sessions.detach(channel, gone)
    without_hello = sessions.create_plain(plain)
    for each in (channel, without_hello):
        each.warn(Notice("IDLE", "soon", 1.0))
    assert gone.messages == plain.messages == []
    await sessions.drain()
