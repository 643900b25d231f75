"""A server that is killed is no loss: sessions, grants and replies are where they were, or it is said that they are not."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.client import OperatorClient
from proctor.client.connection import Connection
from proctor.errors import EpisodeLost, RemoteError
from proctor.ledger.verify import verify
from proctor.models.events import (
    AgentGranted,
    EpisodeClosed,
    EpisodeReset,
    EpisodeStepped,
    PacketJudged,
    SessionClosed,
    SessionResumed,
)
from proctor.server.net.uvicorn_server import bind_tcp, port_of
from tests.server.commands import serve
from tests.server.live_server import Session, Talk, until
from tests.server.mcp_agents import agent_with, lets_in
from tests.server.restarts import ADDING, FORGETFUL, QUICK, SHARED, Stage, connected, plain, run, staged

POPPER_ACTIONS = [0, 1, 1, 2, 0, 3, 1, 0, 2, 2, 0, 1]
WALKS: dict[str, tuple[str, dict[str, Any], list[Any]]] = {
    "plume": ("proctor/PlumeSearch-v0", {}, [0, 1, 2, 3, 0, 0, 1, 1, 2, 3, 3, 0]),
    "popper": ("proctor/ColumnPopper-v0", {}, POPPER_ACTIONS),
    "cartpole": ("CartPole-v1", {}, [0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 1, 0]),
    "thread": ("CartPole-v1", {"place": "thread"}, [0, 1, 1, 0, 1, 0]),
    "adding": (ADDING, {}, None),  # type: ignore[dict-item]
    "transforms": (
        "proctor/ColumnPopper-v0",
        {"transforms": [{"type": "normalise"}, {"type": "step_cost", "cost": 0.125}]},
        POPPER_ACTIONS,
    ),
    "digests": ("proctor/PlumeSearch-v0", {"observations": "digest"}, [0, 1, 2, 3, 0, 0]),
}


async def walked(stage: Stage, actions: list[bytes], *, kills: tuple[int, ...], num_envs: int | None = None) -> Any:
    """Return all that is seen in two episodes; before step `kill` of the second one the server is killed."""
    async with connected(stage) as connection:
        session: Any = await (connection.session() if num_envs is None else connection.batch(num_envs, infos=True))
        seen = [plain(await session.reset(b'{"seed":11}'))]
        seen += [plain(await session.step(each)) for each in actions[:3]]
        seen.append(plain(await session.reset(b'{"seed":3}')))
        for index, action in enumerate(actions):
            if index in kills:
                await asyncio.to_thread(stage.kill)
            seen.append(plain(await session.step(action)))
        return seen


@pytest.mark.parametrize(
    "walk", [pytest.param(walk, marks=[pytest.mark.slow] if walk in ("thread", "adding") else []) for walk in WALKS]
)
def test_an_episode_goes_on_bit_by_bit(walk: str, tmp_path: Path) -> None:
    target, settings, moves = WALKS[walk]
    said = [b'{"by":%d}' % each for each in range(1, 7)]
    actions = said if moves is None else [b'{"action":%d}' % each for each in moves]
    with staged(tmp_path / "whole", target, **settings) as stage:
        expected = run(walked(stage, actions, kills=()))
    with staged(tmp_path / "broken", target, **settings) as stage:
        found = run(walked(stage, actions, kills=(4,)))
        resumed = stage.of(SessionResumed)
        whole = stage.is_whole()

    assert found == expected
    assert [event.lost for event in resumed] == [None]
    assert whole


@pytest.mark.parametrize(("target", "packed"), [("proctor/PlumeSearch-v0", True), ("CartPole-v1", False)])
def test_a_batch_goes_on_bit_by_bit(target: str, packed: bool, tmp_path: Path) -> None:
    rows = [[0, 1, 1], [1, 1, 0], *[[1, 1, 1]] * 12]
    actions = [json.dumps({"actions": row}).encode() for row in rows]
    found: list[Any] = []
    for name, kills in (("whole", ()), ("broken", (11,))):
        with staged(tmp_path / name, target) as stage:
            found.append(run(_walked_batch(stage, actions, kills, packed=packed)))

    assert found[0] == found[1]


async def _walked_batch(stage: Stage, actions: list[bytes], kills: tuple[int, ...], *, packed: bool) -> Any:
    async with connected(stage, packed=packed) as connection:
        session = await connection.batch(3, infos=True)
        seen = [plain(await session.reset(b'{"seed":3}'))]
        for index, action in enumerate(actions):
            if index in kills:
                await asyncio.to_thread(stage.kill)
            seen.append(plain(await session.step(action)))
        return seen


def test_a_batch_whose_episodes_were_begun_one_by_one_goes_on(tmp_path: Path) -> None:
    async def walk(stage: Stage, *, kill: bool) -> Any:
        async with connected(stage) as connection:
            session = await connection.batch(2, autoreset_mode="disabled")
            seen = [plain(await session.reset(b'{"seed":5}'))]
            seen.append(plain(await session.reset(b'{"seed":9,"mask":[true,false]}')))
            seen.append(plain(await session.step(b'{"actions":[0,1]}')))
            seen.append(plain(await session.reset(b'{"seed":1,"mask":[false,true]}')))
            if kill:
                await asyncio.to_thread(stage.kill)
            seen.append(plain(await session.step(b'{"actions":[1,0]}')))
            return seen

    with staged(tmp_path / "whole", "CartPole-v1") as stage:
        expected = run(walk(stage, kill=False))
    with staged(tmp_path / "broken", "CartPole-v1") as stage:
        found = run(walk(stage, kill=True))

    assert found == expected


def test_a_reset_without_a_seed_goes_on_where_the_environment_says_which_one_it_drew(tmp_path: Path) -> None:
    async def walk(stage: Stage) -> Any:
        async with connected(stage) as connection:
            session = await connection.session()
            await session.reset(b"")
            await session.reset(b"")
            before = plain(await session.step(b'{"action":1}'))
            await asyncio.to_thread(stage.kill)
            return before, plain(await session.step(b'{"action":1}'))

    with staged(tmp_path, "proctor/PlumeSearch-v0") as stage:
        _, after = run(walk(stage))
        lost = [event.lost for event in stage.of(SessionResumed)]

    assert after["step"] == 2
    assert lost == [None]


@pytest.mark.parametrize(("target", "settings"), [(FORGETFUL, {}), ("CartPole-v1", {})])
def test_what_does_not_come_out_again_is_lost_and_says_so(target: str, settings: Any, tmp_path: Path) -> None:
    seedless = target == "CartPole-v1"

    async def walk(stage: Stage) -> Any:
        async with connected(stage) as connection:
            session = await connection.session()
            action = b'{"action":1}' if seedless else b'{"by":1}'
            await session.reset(b"" if seedless else b'{"seed":1}')
            await session.step(action)
            await asyncio.to_thread(stage.kill)
            with pytest.raises(EpisodeLost) as loss:
                await session.step(action)
            with pytest.raises(EpisodeLost):
                await session.state()
            again = await session.reset(b'{"seed":1}')
            return loss.value.code, again.step, (await session.step(action)).step, session.position.epoch

    with staged(tmp_path, target, **settings) as stage:
        code, *rest = run(walk(stage))
        lost = [event.lost for event in stage.of(SessionResumed)]
        closed = [event.reason for event in stage.of(EpisodeClosed)]
        whole = stage.is_whole()

    assert code == "EPISODE_LOST"
    assert rest == [0, 1, 2]
    what = "the reset, which was asked for without a seed came out" if seedless else "step 1 came out"
    assert lost[0].startswith(what)
    assert closed[0] == "lost"
    assert whole


def test_a_session_of_another_target_is_closed_and_its_client_begins_anew(tmp_path: Path) -> None:
    async def walk(stage: Stage) -> Any:
        async with connected(stage) as connection:
            session = await connection.session()
            await session.reset(b'{"seed":1}')
            await session.step(b'{"by":1}')
            await asyncio.to_thread(stage.kill, SHARED)
            with pytest.raises(EpisodeLost) as loss:
                await session.step(b'{"by":1}')
            await session.reset(b'{"seed":1}')
            return loss.value.code, (await session.step(b'{"by":1}')).step

    with staged(tmp_path) as stage:
        found = run(walk(stage))
        [resumed] = stage.of(SessionResumed)
        closed = stage.of(SessionClosed)[0]

    assert found == ("SERVER_RESTARTED", 1)
    assert resumed.lost == "the server has another target now"
    assert (closed.session, closed.reason, closed.episodes, closed.steps) == (resumed.session, "lost", 1, 1)


@pytest.mark.parametrize("settings", [{"settings": {"max_steps": 7}}, {"transforms": [{"type": "scale", "factor": 2}]}])
def test_what_is_served_otherwise_is_not_gone_on_with(settings: dict[str, Any], tmp_path: Path) -> None:
    async def walk(stage: Stage) -> None:
        async with connected(stage) as connection:
            session = await connection.session()
            await session.reset(b'{"seed":1}')
            await asyncio.to_thread(lambda: stage.kill(**settings))
            with pytest.raises(EpisodeLost):
                await session.step(b'{"action":1}')

    with staged(tmp_path, "proctor/PlumeSearch-v0") as stage:
        run(walk(stage))
        [resumed] = stage.of(SessionResumed)

    assert resumed.lost == f"the server has other {next(iter(settings))} now"


def resumed(stage: Stage, before: Session) -> tuple[Talk, Session, dict[str, Any]]:
    """Return the session on a new connection to the server that runs now, and what the resume said."""
    talk = Talk(stage.served, packed=False)
    told = talk.ask("resume", {"session": before.name, "resume_token": before.opened["resume_token"]}, id=1)
    session = Session.__new__(Session)
    session.__dict__ |= before.__dict__ | {"talk": talk}
    return talk, session, told


def test_a_repeated_request_gets_the_same_reply_and_is_not_carried_out_twice(tmp_path: Path) -> None:
    with staged(tmp_path) as stage, Talk(stage.served, packed=False) as talk:
        session = Session(talk)
        asked = [("reset", {"seed": 2}), ("step", {"by": 3}), ("step", {"by": 4})]
        before = [session.ask(*each) for each in asked]
        stage.kill()
        again, session, told = resumed(stage, session)
        with again:
            repeated = [
                again.ask(kind, data, id=each["id"], session=session.name, **({"epoch": 1} if kind == "step" else {}))
                for (kind, data), each in zip(asked, before, strict=True)
            ]
            other = again.ask("step", {"by": 5}, id=3, session=session.name, epoch=1)
            next_one = again.ask("step", {"by": 5}, id=4, session=session.name, epoch=1)
        steps = [(event.step, json.loads(bytes(event.action))) for event in stage.of(EpisodeStepped)]

    assert (told["data"]["last_id"], told["data"]["step"], told["epoch"]) == (3, 2, 1)
    assert [_headless(each) for each in repeated] == [_headless(each) for each in before]
    assert repeated[0]["data"]["head"].rpartition(":")[0].startswith(f"{session.name}.1@")
    assert other["data"]["code"] == "ID_REUSED"
    assert next_one["data"]["observation"] == {"total": 14, "begun": 1}
    assert steps == [(1, {"by": 3}), (2, {"by": 4}), (3, {"by": 5})]


def _headless(reply: dict[str, Any]) -> dict[str, Any]:
    return {**reply, "data": {name: value for name, value in reply["data"].items() if name != "head"}}


def test_a_reply_that_was_lost_with_the_server_is_heard_by_the_same_call(tmp_path: Path) -> None:
    async def walk(stage: Stage) -> Any:
        async with connected(stage) as connection:
            session = await connection.session()
            await session.reset(b'{"seed":1}')
            stage.wire.deaf = True
            running = asyncio.create_task(session.step(b'{"by":5}'))
            await asyncio.to_thread(_until_on_record, stage, 1)
            await asyncio.to_thread(lambda: stage.kill(cut=False))
            stage.wire.deaf = False
            await asyncio.to_thread(stage.wire.cut)
            seen = await running
            return seen.step, json.loads(bytes(seen.observation)), (await session.step(b'{"by":1}')).step

    with staged(tmp_path) as stage:
        found = run(walk(stage))
        steps = [event.step for event in stage.of(EpisodeStepped)]

    assert found == (1, {"total": 6, "begun": 1}, 2)
    assert steps == [1, 2]


def _until_on_record(stage: Stage, steps: int) -> None:
    until(lambda: len(stage.of(EpisodeStepped)) >= steps)


def test_what_was_refused_may_be_asked_again_and_what_was_lost_stays_lost(tmp_path: Path) -> None:
    with staged(tmp_path) as stage, Talk(stage.served, packed=False) as talk:
        session = Session(talk)
        session.ask("reset", {"seed": 2})
        refused = session.ask("step", {"by": 13})
        stage.kill()
        again, session, _ = resumed(stage, session)
        with again:
            once_more = again.ask("step", {"by": 13}, id=2, session=session.name, epoch=1)
            failed = session.ask("step", {"by": -99})
            stage.kill()
        third, session, told = resumed(stage, session)
        with third:
            still = third.ask("step", {"by": -99}, id=3, session=session.name, epoch=1)
            later = session.ask("step", {"by": 1})
            begun = session.ask("reset", {"seed": 4})

    assert once_more == refused
    assert failed["data"]["lost"] is True
    assert told["data"]["lost"] is True
    assert (still["data"]["code"], still["data"]["lost"]) == (failed["data"]["code"], True)
    assert still["data"]["incident"] == failed["data"]["incident"]
    assert later["data"]["code"] == "EPISODE_LOST"
    assert begun["data"]["observation"] == {"total": 4, "begun": 1}


async def acted(stage: Stage, session: Any, seed: int) -> tuple[Any, list[Any]]:
    """Return a grant on a new episode, and what its agent was told when it added 3 and 4."""
    seen = await session.reset(b'{"seed":%d,"grant":{"agent":"adder"}}' % seed)
    async with agent_with(stage.agents, seen.grant.token) as agent:
        return seen.grant, [await agent.use("act", by=each) for each in (3, 4)]


def test_an_agent_acts_on_with_the_grant_that_it_had(tmp_path: Path) -> None:
    async def walk(stage: Stage) -> Any:
        async with connected(stage) as connection:
            session = await connection.session()
            grant, _ = await acted(stage, session, 1)
            grant, told = await acted(stage, session, 2)
            await asyncio.to_thread(stage.kill)
            async with agent_with(stage.agents, grant.token) as agent:
                told += [await agent.use("act", by=5)]
            order = msgspec.json.encode({"after": 0, "wait_seconds": 0})
            watched = await session.poll("watch", order, 2, 1.0)
            return [each.told for each in told], json.loads(bytes(watched.data))

    with staged(tmp_path, agent_port=0) as stage:
        told, watched = run(walk(stage))
        steps = [(event.epoch, event.step, event.grant is not None) for event in stage.of(EpisodeStepped)]

    assert [each["observation"]["total"] for each in told] == [5, 9, 14]
    assert steps == [(1, 1, True), (1, 2, True), (2, 1, True), (2, 2, True), (2, 3, True)]
    assert watched["last"] == 5
    assert watched["missed"] == 2
    rows = [(row["row"], row["step"], row["agent"], row["observation"]["total"]) for row in watched["rows"]]
    assert rows == [(3, 1, "adder", 5), (4, 2, "adder", 9), (5, 3, "adder", 14)]


def test_tokens_of_before_are_good_and_those_that_were_taken_back_are_not(tmp_path: Path) -> None:
    with staged(tmp_path, SHARED, agent_port=0) as stage, Talk(stage.served, packed=False) as talk:
        session = Session(talk)
        session.ask("reset", {"seed": 1})
        kept, revoked = (session.ask("grant", {"agent": name}, epoch=1)["data"] for name in ("a", "b"))
        session.ask("revoke", {"grant": revoked["grant"]})
        short = session.ask("grant", {"agent": "c", "ttl_seconds": 0.001}, epoch=1)["data"]
        stage.kill()
        good = [run(lets_in(stage.agents, each["token"])) for each in (kept, revoked, short)]
        again, session, _ = resumed(stage, session)
        with again:
            twice = again.ask("revoke", {"grant": revoked["grant"]}, id=4, session=session.name)
            blocked = session.ask("step", {"by": 1})
            session.ask("revoke", {"grant": kept["grant"]})
            free = session.ask("step", {"by": 1})

    assert good == [True, False, False]
    assert twice["data"] == {"grant": revoked["grant"], "live": True}
    assert blocked["data"]["code"] == "GRANT_LIVE"
    assert free["type"] == "observation"


@pytest.mark.parametrize("with_reset", [True, False])
def test_a_grant_whose_reply_nobody_got_has_a_new_token(with_reset: bool, tmp_path: Path) -> None:
    with staged(tmp_path, agent_port=0) as stage, Talk(stage.served, packed=False) as talk:
        session = Session(talk)
        wish: dict[str, Any] = {"agent": "a"}
        request: tuple[str, dict[str, Any], dict[str, Any]]
        if with_reset:
            request = ("reset", {"seed": 1, "grant": wish}, {})
            first = session.ask(*request[:2])["data"]["grant"]
        else:
            session.ask("reset", {"seed": 1})
            request = ("grant", wish, {"epoch": 1})
            first = session.ask("grant", wish, epoch=1)["data"]
        stage.kill()
        again, session, _ = resumed(stage, session)
        with again:
            asked = [again.ask(*request[:2], id=session.last_id, session=session.name, **request[2]) for _ in range(2)]
        stage.kill()
        told = asked[0]["data"]
        second = told["grant"] if with_reset else told
        good = [run(lets_in(stage.agents, each["token"])) for each in (first, second)]
        names = {event.grant for event in stage.of(AgentGranted)}

    assert asked[0] == asked[1]
    assert (second["grant"], second["tools"]) == (first["grant"], first["tools"])
    assert second["token"] != first["token"]
    assert good == [False, True]
    assert names == {first["grant"]}


def test_a_grant_that_the_server_did_not_come_to_give_is_given_when_it_is_asked_for_again(tmp_path: Path) -> None:
    with staged(tmp_path, agent_port=0) as stage, Talk(stage.served, packed=False) as talk:
        session = Session(talk)
        session.ask("reset", {"seed": 1})
        stage.kill()
        again, session, _ = resumed(stage, session)
        with again:
            data = {"seed": 1, "grant": {"agent": "late"}}
            told = [again.ask("reset", data, id=1, session=session.name)["data"] for _ in range(2)]
        good = run(lets_in(stage.agents, told[0]["grant"]["token"]))
        resets = stage.of(EpisodeReset)

    assert told[0] == told[1]
    assert good
    assert len(resets) == 1


async def prepared(agent: Any) -> None:
    """Let an agent come to where it may move."""
    await agent.use("believe", changes={"something": True})
    await agent.use("decide", outcome="ACT", summary="go on")
    await agent.use("request_token", tools=["move"], uses=3, rationale="to go on")


def test_a_governed_episode_goes_on_where_its_judge_stood(tmp_path: Path) -> None:
    async def walk(stage: Stage) -> Any:
        async with connected(stage) as connection:
            session = await connection.session()
            seen = await session.reset(b'{"seed":1,"grant":{"agent":"walker"}}')
            grant: Any = seen.grant
            async with agent_with(stage.agents, grant.token) as agent:
                await prepared(agent)
                first = await agent.use("move", direction="up")
            await asyncio.to_thread(stage.kill)
            async with agent_with(stage.agents, grant.token) as agent:
                second = await agent.use("move", direction="up")
                third = await agent.use("believe", changes={"moved": 2})
            return first.code, second.code, third.code, (await session.reset(b'{"seed":2}')).step

    with staged(tmp_path, "proctor/PlumeSearch-v0", agent_port=0, governed="open") as stage:
        codes = run(walk(stage))
        steps = [(event.epoch, event.step) for event in stage.of(EpisodeStepped)]
        packets = stage.of(PacketJudged)
        closed = stage.of(EpisodeClosed)[0]
        whole = stage.is_whole()

    assert codes == (None, None, None, 0)
    assert steps == [(1, 1), (1, 2)]
    assert all(event.accepted for event in packets)
    assert (closed.epoch, closed.outcome) == (1, "conforming")
    assert whole


def test_a_process_that_is_killed_is_no_loss_either(tmp_path: Path) -> None:
    with bind_tcp("127.0.0.1", 0) as listener:
        port = str(port_of(listener))
    arguments = (ADDING, "--insecure", "--json", "--port", port, "--ledger", str(tmp_path / "ledger"))

    async def walk() -> list[Any]:
        with ExitStack() as stack:
            command = stack.enter_context(serve(tmp_path / "home", *arguments))
            url = (await asyncio.to_thread(lambda: command.document))["url"]
            connection = Connection(url, settings=QUICK)
            session = await connection.session()
            seen = [plain(await session.reset(b'{"seed":5}')), plain(await session.step(b'{"by":1}'))]
            command.stopped(signal.SIGKILL)
            stack.enter_context(serve(tmp_path / "home", *arguments))
            seen += [plain(await session.step(b'{"by":2}'))]
            await connection.close()
            return [json.loads(each["observation"]) for each in seen]

    found = run(walk())

    assert found == [{"total": total, "begun": 1} for total in (5, 6, 8)]
    assert not verify(tmp_path / "ledger").findings


ASKED = {"question": "May I?", "options": ["yes", "no"], "wait_seconds": 0}
OPERATORS = "the-operator-secret-0123456789"


def test_a_question_waits_under_the_same_name_after_a_kill_and_its_agent_hears_the_answer(tmp_path: Path) -> None:
    def operator(stage: Stage) -> OperatorClient:
        return OperatorClient(f"http://127.0.0.1:{stage.served.port}", token=OPERATORS)

    async def walk(stage: Stage) -> Any:
        async with connected(stage) as connection:
            # Both sessions use the same request ids, and both agents ask the same.
            sessions = [await connection.session() for _ in range(2)]
            grants: list[Any] = [
                (await session.reset(b'{"seed":1,"grant":{"agent":"asker"}}')).grant for session in sessions
            ]
            for grant in grants:
                async with agent_with(stage.agents, grant.token) as agent:
                    await agent.use("believe", changes={"something": True})
                    await agent.use("decide", outcome="ESCALATE", summary="ask")
                    await agent.use("escalate", **ASKED)
            before = await asyncio.to_thread(operator(stage).pending)
            await asyncio.to_thread(stage.kill)
            after = await asyncio.to_thread(operator(stage).pending)
            done = await asyncio.to_thread(operator(stage).answer, before[0], "option_1")
            told = []
            for grant in grants:
                async with agent_with(stage.agents, grant.token) as agent:
                    told.append((await agent.use("escalate", wait_seconds=0)).told)
            await sessions[0].reset(b'{"seed":2}')
            with pytest.raises(RemoteError) as late:
                await asyncio.to_thread(operator(stage).answer, before[0], "option_1")
            return before, after, done, told, late.value.code

    with staged(tmp_path, "proctor/PlumeSearch-v0", agent_port=0, governed="open", operator=OPERATORS) as stage:
        before, after, done, told, late = run(walk(stage))
        answers = [event.session for event in stage.of(PacketJudged) if event.kind == "user_input"]
        whole = stage.is_whole()

    assert before == after
    assert len({waiting.id for waiting in before}) == len({waiting.session for waiting in before}) == 2
    assert (done.accepted, done.session, done.question) == (True, before[0].session, "May I?")
    assert (told[0]["answer"]["choice"], told[0]["answer"]["escalation"]) == ("option_1", before[0].id)
    assert told[1]["verdict"] == "waiting"
    assert answers == [before[0].session]
    assert late == "STALE_QUESTION"
    assert whole
