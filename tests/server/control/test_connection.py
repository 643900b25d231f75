"""Whatever happens to a connection, every answer belongs to the session, episode, step and request that it answers."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from tests.server.control.connection_machine import ConnectionMachine
from tests.server.control.lines import Line
from tests.server.live_server import Session, Talk, serving, until
from tests.server.witness_env import LEDGER

pytestmark = pytest.mark.timeout(3600)
"""For the thorough profile; the default one takes half a minute."""
ROUNDS = 60


class QuickMachine(ConnectionMachine):
    """The same with environments on the event loop."""

    target = "tests.server.witness_env:QuickWitness"
    can_hold = False


class AsyncMachine(ConnectionMachine):
    """The same with environments whose steps are coroutines."""

    target = "tests.server.witness_env:AsyncWitness"


def share(part: int) -> settings:
    """Return settings with a part of the profile's examples: each of them starts a server or two."""
    return settings(
        max_examples=settings().max_examples // part,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )


ConnectionMachine.TestCase.settings = share(6)
QuickMachine.TestCase.settings = share(10)
AsyncMachine.TestCase.settings = share(10)
TestEveryAnswerBelongsToItsQuestion = ConnectionMachine.TestCase
TestSoItDoesOnTheEventLoop = QuickMachine.TestCase
TestSoItDoesWithCoroutines = AsyncMachine.TestCase


@pytest.mark.parametrize("target", ["Witness", "QuickWitness", "AsyncWitness"])
def test_a_request_that_is_cut_off_in_flight_runs_once_and_its_client_learns_whether_it_arrived(target: str) -> None:
    """Here it does depend on who is faster: the connection is reset while the request is on its way."""
    LEDGER.clear()
    with serving(f"tests.server.witness_env:{target}") as served:
        with Talk(served, greet=True) as talk:
            session = Session(talk)
            session.ask("reset", {"seed": 1})
        wish = {"session": session.name, "resume_token": session.opened["resume_token"]}
        arrived = 0
        for step in range(1, ROUNDS + 1):
            beside = {"id": step + 1, "session": session.name, "epoch": 1}
            with Talk(served, greet=True) as talk:
                talk.ask("resume", wish, id=2)
                talk.send("step", {"nonce": 100 + step}, **beside)
                Line.abort(talk)  # type: ignore[arg-type]  # it has a socket, and no more is needed
            with Talk(served, greet=True) as talk:
                resumed = talk.ask("resume", wish, id=2)
                arrived += resumed["data"]["last_id"] == step + 1
                reply = talk.ask("step", {"nonce": 100 + step}, **beside)

            assert resumed["data"]["last_id"] in {step, step + 1}
            assert (reply["id"], reply["data"]["step"], reply["data"]["reward"]) == (step + 1, step, 100.0 + step)
        until(lambda: LEDGER.asked == {1: 1} | {100 + step: 1 for step in range(1, ROUNDS + 1)})
