"""Agents that wait for an operator: what they are told is on record, and nobody waits longer than it may."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from proctor.errors import ComponentError
from proctor.server.governed import agent_calls
from proctor.server.governed.agent_calls import MOST_WAITING
from tests.server.bare_sessions import run
from tests.server.governed.governed_sessions import Agent, Disk, Hall, Heard, policy_with, turns, until


async def asking(hall: Hall, wait_seconds: float) -> tuple[Agent, asyncio.Task[Heard]]:
    """Return an agent with a question, and its call that waits."""
    agent = await hall.agent()
    await agent.believe()
    await agent.decide("ESCALATE")
    asked = asyncio.create_task(agent.use("escalate", question="?", options=["a", "b"], wait_seconds=wait_seconds))
    await until(hall.operator.pending)
    return agent, asked


async def wanting(hall: Hall, wait_seconds: float) -> tuple[Agent, asyncio.Task[Heard]]:
    """Return an agent that has asked for a token, and its call that waits."""
    agent = await hall.agent()
    asked = asyncio.create_task(agent.permitted("move", wait_seconds=wait_seconds))
    await until(hall.operator.pending)
    return agent, asked


# --------------------------------------------------------------------------------------------------------------- on record
@pytest.mark.parametrize("again", [True, False], ids=["asks again", "waits"])
@pytest.mark.parametrize("what", ["an answer", "a token", "a denial"])
def test_what_an_operator_says_reaches_the_agent_only_when_it_is_on_record(what: str, again: bool) -> None:
    async def scenario() -> None:
        hall = Hall(policy=policy_with(tokens={"issuer": "human"}))
        # Who waits itself is out of time before the disk is done.
        agent, asked = await (asking if what == "an answer" else wanting)(hall, 0.0 if again else 1.0)
        waiting = hall.operator.pending()[0]
        operator = hall.operator
        acts: dict[str, Callable[[], Awaitable[object]]] = {
            "an answer": lambda: operator.answer(waiting, choice="option_1"),
            "a token": lambda: operator.approve(waiting),
            "a denial": lambda: operator.deny(waiting, text="never"),
        }
        if again:
            await asked
        disk = Disk(hall)

        with disk.held():
            act = asyncio.ensure_future(acts[what]())
            await until(lambda: disk.waiting)
            call = "escalate" if what == "an answer" else "request_token"
            telling = asyncio.create_task(agent.use(call, wait_seconds=0.0)) if again else asked
            done, _ = await asyncio.wait([telling], timeout=0.2 if again else 1.2)
        told = await telling
        await act

        assert not done
        assert {"an answer": "chose option_1", "a token": "was issued", "a denial": "never"}[what] in told.text

    run(scenario())


def test_an_answer_that_could_not_be_recorded_is_not_told() -> None:
    async def scenario() -> None:
        hall = Hall()
        agent, asked = await asking(hall, 0.0)
        await asked
        full: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        hall.diary.record = lambda event: full  # type: ignore[assignment, method-assign]  # a slow disk

        act = asyncio.ensure_future(hall.operator.answer(hall.operator.pending()[0], text="go"))
        await turns()
        again = asyncio.create_task(agent.use("escalate"))
        await turns()
        full.set_exception(ComponentError("the disk is full"))
        told = await again
        await asyncio.gather(act, return_exceptions=True)

        assert told.code == "EPISODE_LOST"

    run(scenario())


# ------------------------------------------------------------------------------------------------------------------ no more
def test_calls_that_were_cancelled_wait_no_more_and_hold_nobodys_place() -> None:
    async def scenario() -> None:
        hall = Hall()
        agent, asked = await asking(hall, 0.0)
        await asked
        waits = [asyncio.create_task(agent.use("escalate", wait_seconds=290.0)) for _ in range(MOST_WAITING)]
        await until(lambda: hall.governor.stream.notifier.waiting == MOST_WAITING)

        for each in waits:
            each.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        await turns()
        told = await agent.use("escalate", wait_seconds=0.0)

        assert hall.governor.stream.notifier.waiting == 0
        assert told.said["verdict"] == "waiting"

    run(scenario())


def test_an_agent_whose_grant_is_revoked_is_woken_and_not_told_the_answer() -> None:
    async def scenario() -> None:
        hall = Hall()
        agent, asked = await asking(hall, 290.0)

        await hall.operator.revoke(hall.episode, grant=agent.view.grant)
        await turns()
        woken = asked.done()
        await hall.operator.answer(hall.operator.pending()[0], text="the secret way")
        told = await asked

        assert woken
        assert told.code == "ENDED"
        assert "secret" not in told.text

    run(scenario())


def test_an_agent_whose_episode_is_lost_is_woken_and_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_calls, "RECHECK_SECONDS", 0.01)

    async def scenario() -> None:
        hall = Hall()
        _, asked = await asking(hall, 290.0)

        hall.session.lose("X", "the sky fell")
        told = await asked

        assert told.code == "EPISODE_LOST"
        assert "the sky fell" in told.text

    run(scenario())


def test_an_agent_whose_grant_expires_waits_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_calls, "RECHECK_SECONDS", 0.01)

    async def scenario() -> None:
        hall = Hall()
        await hall.begin()
        agent = Agent(hall.view(hall.give(ttl_seconds=5)))
        await agent.believe()
        await agent.decide("ESCALATE")
        asked = asyncio.create_task(agent.use("escalate", question="?", options=["a", "b"], wait_seconds=290.0))
        await until(hall.operator.pending)

        hall.now += 6

        assert (await asked).code == "ENDED"

    run(scenario())
