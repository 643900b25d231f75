"""Several clients with one token or one grant at the same instant: over real sockets, each on a thread, let go by a barrier."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from proctor.models.events import AgentRevoked, EpisodeStepped, Event
from proctor.server.control.session_registry import SUPERSEDED
from tests.server.live_server import PATIENCE, Served, Session, Talk, serving, until
from tests.server.mcp_agents import Answer, agent_with
from tests.server.memory_recorder import MemoryRecorder
from tests.server.witness_env import LEDGER

CLIENTS, ROUNDS = 4, 20
STEP = 2
"""The id that every client takes for free: the reset had the one before."""
COUNTING = "tests.client.counting:QuickCounting"


def connections(served: Served) -> int:
    found: int = served.on_loop(lambda: len(served.server.plane.connections))
    return found


def wish_of(session: Session) -> dict[str, Any]:
    return {"session": session.name, "resume_token": session.opened["resume_token"]}


class Rival:
    """A client that resumes a session and steps in it, and remembers what it was told."""

    def __init__(self, served: Served, session: Session, nonce: int) -> None:
        self.talk = Talk(served, greet=True)
        self.nonce = nonce
        self.told: list[dict[str, Any]] = []
        self.ended: int | None = None
        """The code of the server's close frame; 0: there was none."""
        self._wish = wish_of(session)
        self._epoch = session.epoch

    def play(self, start: threading.Barrier) -> None:
        """Resume and step at once, and hear what comes until there is a reply to the step."""
        start.wait(PATIENCE)
        try:
            self.talk.send("resume", self._wish, id=1)
            self.talk.send("step", {"nonce": self.nonce}, id=STEP, session=self._wish["session"], epoch=self._epoch)
            while not any(message.get("id") == STEP for message in self.told):
                self.told.append(self.talk.receive())
        except ConnectionClosed as end:
            self.ended = 0 if end.rcvd is None else end.rcvd.code

    def holds(self) -> bool:
        """Return whether this connection is still served, which answers a request; a closed one is heard to its end."""
        try:
            if self.ended is None:
                self.talk.send("metadata", id=9)
            while self.ended is None:
                message = self.talk.receive()
                if message.get("id") == 9:
                    return True
                self.told.append(message)
        except ConnectionClosed as end:
            self.ended = 0 if end.rcvd is None else end.rcvd.code
        return False

    @property
    def replies(self) -> list[dict[str, Any]]:
        """What it was told of the step."""
        return [message["data"] for message in self.told if message.get("id") == STEP]


def play_round(served: Served, pool: ThreadPoolExecutor, first_nonce: int) -> list[Rival]:
    """Let clients resume one session at once; return them when only the one that holds it is connected."""
    with Talk(served, greet=True) as talk:
        session = Session(talk)
        session.ask("reset", {"seed": 1})
        rivals = [Rival(served, session, first_nonce + number) for number in range(CLIENTS)]
        start = threading.Barrier(CLIENTS)
        for played in [pool.submit(rival.play, start) for rival in rivals]:
            played.result(PATIENCE)
    until(lambda: connections(served) == 1)
    return rivals


def steps_of(nonces: Sequence[int]) -> list[int]:
    """Return which of these steps were asked of the environment."""
    return [nonce for nonce in nonces if LEDGER.asked[nonce]]


@pytest.mark.parametrize("with_ledger", [False, True])
@pytest.mark.parametrize("target", ["Witness", "QuickWitness", "AsyncWitness"])
def test_of_clients_that_resume_at_once_one_holds_the_session_and_one_step_is_taken(
    target: str, with_ledger: bool, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"ledger": tmp_path / "ledger", "durability": "normal"} if with_ledger else {}
    with serving(f"tests.server.witness_env:{target}", **settings) as served, ThreadPoolExecutor(CLIENTS) as pool:
        for number in range(ROUNDS):
            nonces = range(10 * (number + 1), 10 * (number + 1) + CLIENTS)
            rivals = play_round(served, pool, nonces[0])
            [holder] = [rival for rival in rivals if rival.holds()]
            assert {rival.ended for rival in rivals if rival is not holder} <= {SUPERSEDED, 0}
            # The step of a client that lost the session may run after everybody has heard of it.
            taken = until(partial(steps_of, nonces))
            assert sum(LEDGER.asked[nonce] for nonce in nonces) == 1
            assert len(holder.replies) == 1
            for rival in rivals:
                check_replies(rival, taken[0])
            holder.talk.socket.close()
            until(lambda: connections(served) == 0)


def check_replies(rival: Rival, taken: int) -> None:
    """An observation is of the client's own step; whoever's step was not taken got a code, or no reply."""
    for reply in rival.replies:
        if "observation" in reply:
            assert reply["observation"]["nonce"] == rival.nonce == taken
        else:
            assert reply["code"] in ("ID_REUSED", "EPISODE_LOST")


class SlowRecorder(MemoryRecorder):
    """Keeps events of one kind only when it is told to."""

    def __init__(self, kind: type[Event]) -> None:
        super().__init__()
        self._kind = kind
        self._released = asyncio.Event()
        self.reached = threading.Event()

    def record(self, event: Event) -> Awaitable[None] | None:  # type: ignore[override]  # a Recorder may answer later
        if isinstance(event, self._kind):
            return self._keep_later(event)
        super().record(event)
        return None

    async def _keep_later(self, event: Event) -> None:
        self.reached.set()
        await self._released.wait()
        super().record(event)

    def release(self) -> None:
        self._released.set()


def repeat_elsewhere(
    served: Served, session: Session, recorder: SlowRecorder, request: dict[str, Any]
) -> list[dict[str, Any]]:
    """Send a request, resume elsewhere while its record waits, and repeat it there; return the replies that come there."""
    session.talk.send(**request)
    assert recorder.reached.wait(PATIENCE)
    with Talk(served, greet=True) as second:
        second.ask("resume", wish_of(session), id=1)
        second.send(**request)
        assert second.ask("metadata", id=2)["id"] == 2  # so the repeated request was taken before
        served.on_loop(recorder.release)
        replies = [second.receive()]
        assert second.ask("state", id=request["id"] + 1, session=session.name)["type"] == "state"
        return replies


def test_a_step_that_is_repeated_elsewhere_while_its_record_waits_is_answered_there() -> None:
    recorder = SlowRecorder(EpisodeStepped)
    with serving(COUNTING, recorder=recorder) as served, Talk(served, greet=True) as first:
        session = Session(first)
        session.ask("reset")
        request = {"kind": "step", "data": {"by": 5}, "id": 2, "session": session.name, "epoch": 1}
        [reply] = repeat_elsewhere(served, session, recorder, request)

    assert (reply["id"], reply["data"]["observation"]["total"], reply["data"]["step"]) == (2, 5, 1)


def test_a_revoke_that_is_repeated_elsewhere_while_its_record_waits_is_answered_there() -> None:
    recorder = SlowRecorder(AgentRevoked)
    with serving(COUNTING, recorder=recorder, agent_port=0) as served, Talk(served, greet=True) as first:
        session = Session(first)
        grant = session.ask("reset", {"grant": {}})["data"]["grant"]["grant"]
        request = {"kind": "revoke", "data": {"grant": grant}, "id": 2, "session": session.name}
        [reply] = repeat_elsewhere(served, session, recorder, request)

    assert (reply["type"], reply["id"], reply["data"]["live"]) == ("revoked", 2, True)


@pytest.mark.parametrize("target", ["QuickCounting", "Counting"])
def test_agents_that_share_a_grant_each_hear_of_their_own_calls_and_no_call_is_made_twice(target: str) -> None:
    async def use_at_once(address: str, token: str) -> list[Answer]:
        # Each client numbers its requests itself: all of them use the same JSON-RPC ids.
        async with (
            asyncio.timeout(PATIENCE),
            agent_with(address, token) as first,
            agent_with(address, token) as second,
            agent_with(address, token) as third,
        ):
            agents = (first, second, third)
            return [
                answer
                for by in range(3)
                for answer in await asyncio.gather(
                    *(agent.use("act", by=10 * by + n) for n, agent in enumerate(agents))
                )
            ]

    with serving(f"tests.client.counting:{target}", agent_port=0) as served, Talk(served, greet=True) as talk:
        session = Session(talk)
        grant = session.ask("reset", {"grant": {}})["data"]["grant"]
        address = served.server.agents_address
        assert address is not None
        answers = asyncio.run(use_at_once(address, grant["token"]))
        rows = session.ask("watch", {"after": 0})["data"]["rows"]

    told = sorted(
        (answer.told["step"], answer.told["observation"]["total"], answer.told["observation"]["steps"])
        for answer in answers
    )
    assert [answer.code for answer in answers] == [None] * 9
    assert [step for step, _, _ in told] == [steps for _, _, steps in told] == list(range(1, 10))
    assert sorted(row["action"]["by"] for row in rows) == sorted(10 * by + n for by in range(3) for n in range(3))
