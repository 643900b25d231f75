"""Grants over real sockets: an orchestrator with a plain WebSocket, and agents with the stock MCP client."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.counting import GATE
from tests.server.live_server import PATIENCE, Served, Session, Talk, serving, until
from tests.server.mcp_agents import Answer, agent_with, lets_in

ALONE = "tests.client.counting:QuickCounting"
TOGETHER = "tests.client.counting:SharedCounting"
SLOW = "tests.client.counting:Counting"
Granted = dict[str, Any]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(ALONE, agent_port=0) as there:
        yield there


@pytest.fixture
def talk(served: Served) -> Iterator[Talk]:
    with Talk(served, greet=True) as line:
        yield line


@pytest.fixture
def session(talk: Talk) -> Session:
    """Return a session in its first episode."""
    opened = Session(talk)
    opened.ask("reset")
    return opened


class Moved:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


def granted(session: Session, **wish: Any) -> Granted:
    reply = session.ask("grant", wish, epoch=session.epoch)
    assert reply["type"] == "granted", reply
    data: Granted = reply["data"]
    return data


def code_of(reply: dict[str, Any]) -> str:
    assert reply["type"] == "error", reply
    code: str = reply["data"]["code"]
    return code


def played(grant: Granted, *by: int) -> list[Answer]:
    """Let an agent act, once for each number."""

    async def play() -> list[Answer]:
        async with asyncio.timeout(PATIENCE), agent_with(grant["address"], grant["token"]) as agent:
            return [await agent.use("act", by=each) for each in by]

    return asyncio.run(play())


def opens(grant: Granted) -> bool:
    return asyncio.run(lets_in(grant["address"], grant["token"]))


def watched(session: Session, **wish: Any) -> dict[str, Any]:
    reply = session.ask("watch", {"wait_seconds": 0, **wish})
    assert reply["type"] == "watched", reply
    data: dict[str, Any] = reply["data"]
    return data


def rows_of(data: dict[str, Any]) -> list[int]:
    return [row["row"] for row in data["rows"]]


# -------------------------------------------------------------------------------------------------------- to give one
def test_a_grant_says_where_to_what_and_until_when(session: Session) -> None:
    before = time.time()
    reply = session.ask("grant", {"agent": "a", "ttl_seconds": 60, "tools": ["act"]}, epoch=1)
    grant = reply["data"]

    assert (reply["session"], reply["epoch"]) == (session.name, 1)
    assert set(grant) == {"grant", "address", "token", "tools", "expires_at", "episode_id"}
    assert grant["address"].startswith("http://127.0.0.1:")
    assert grant["tools"] == ["act"]
    assert before + 59 < grant["expires_at"] < time.time() + 61
    assert grant["episode_id"] == f"{session.name}.1"
    assert played(grant, 7)[0].told["observation"]["total"] == 7


def test_a_reset_brings_a_grant_along(session: Session) -> None:
    reply = session.ask("reset", {"seed": 4, "grant": {"agent": "a"}})
    (answer,) = played(reply["data"]["grant"], 6)

    assert (reply["type"], reply["epoch"], reply["data"]["step"]) == ("observation", 2, 0)
    assert reply["data"]["grant"]["expires_at"] is None
    assert answer.told["observation"]["total"] == 10


def test_a_grant_that_is_asked_for_twice_under_one_id_is_given_once(session: Session) -> None:
    first = session.ask("grant", {"agent": "a"}, epoch=1)
    again = session.ask("grant", {"agent": "a"}, epoch=1, id=session.last_id)

    assert again == first


@pytest.mark.parametrize(
    "wish",
    [
        {"ttl_seconds": 0},
        {"calls_per_second": -1},
        {"tools": []},
        {"tools": ["reset"]},
        {"agent": "x" * 101},
        {"seed": 1},
    ],
)
def test_a_wish_that_cannot_be_granted_is_refused_and_changes_nothing(session: Session, wish: Any) -> None:
    replies = session.ask("grant", wish, epoch=1), session.ask("reset", {"grant": wish})

    assert [code_of(reply) for reply in replies] == ["VALIDATION_ERROR"] * 2
    assert session.ask("step", {"by": 1})["data"]["step"] == 1


def test_a_grant_names_the_episode_that_it_is_for(session: Session) -> None:
    without = session.ask("grant", {})
    stale = session.ask("grant", {}, epoch=7)

    assert code_of(without) == "PROTOCOL_ERROR"
    assert code_of(stale) == "STALE_EPOCH"


def test_where_no_episode_runs_there_is_nothing_to_grant(talk: Talk) -> None:
    session = Session(talk)
    early = session.ask("grant", {}, epoch=0)
    session.ask("reset")
    session.ask("step", {"by": 100})
    late = session.ask("grant", {}, epoch=1)

    assert (code_of(early), code_of(late)) == ("STATE_ERROR", "STATE_ERROR")


def test_a_batch_has_no_agents() -> None:
    with serving("CartPole-v1", agent_port=0) as served, Talk(served, greet=True) as talk:
        batch = Session(talk, num_envs=2)
        batch.ask("reset")

        assert code_of(batch.ask("grant", {}, epoch=1)) == "NO_AGENT_PLANE"


@pytest.mark.parametrize("kind", ["grant", "revoke", "watch", "wait_end"])
def test_without_hello_there_are_no_agents(served: Served, kind: str) -> None:
    with Talk(served) as plain:
        assert code_of(plain.ask(kind, {})) == "PROTOCOL_ERROR"
        assert code_of(plain.ask("reset", {"grant": {}})) == "VALIDATION_ERROR"
        assert plain.ask("reset")["data"]["observation"]["episode"] == 1


def test_a_server_without_an_agent_plane_says_so() -> None:
    with serving(ALONE) as served, Talk(served, greet=True) as talk:
        session = Session(talk)
        first = session.ask("reset", {"grant": {}})
        session.ask("reset")

        assert code_of(first) == "NO_AGENT_PLANE"
        assert code_of(session.ask("grant", {}, epoch=1)) == "NO_AGENT_PLANE"


def test_no_token_is_on_record_and_every_grant_is(tmp_path: Path) -> None:
    record = tmp_path / "events.jsonl"
    with serving(ALONE, agent_port=0, record=record) as served, Talk(served, greet=True) as talk:
        session = Session(talk)
        first = session.ask("reset", {"grant": {"agent": "one"}})["data"]["grant"]
        session.ask("revoke", {"grant": first["grant"]})
        second = granted(session, agent="two")
        played(second, 3)
    text = record.read_text("utf-8")
    events = [json.loads(line) for line in text.splitlines()]
    about = [event for event in events if event["event"].startswith("agent_")]
    (stepped,) = [event for event in events if event["event"] == "episode_stepped"]

    assert first["token"] not in text
    assert second["token"] not in text
    assert [(event["event"], event["grant"]) for event in about] == [
        ("agent_granted", first["grant"]),
        ("agent_revoked", first["grant"]),
        ("agent_granted", second["grant"]),
    ]
    assert stepped["principal"] == "agent"


# --------------------------------------------------------------------------------------------------- who may act when
def test_an_environment_has_as_many_agents_as_it_allows(session: Session) -> None:
    first = granted(session)
    refused = session.ask("grant", {}, epoch=1)
    session.ask("revoke", {"grant": first["grant"]})
    second = granted(session)

    assert code_of(refused) == "GRANTS_TAKEN"
    assert (opens(first), opens(second)) == (False, True)


def test_while_a_grant_is_live_the_orchestrator_waits(session: Session) -> None:
    grant = granted(session)
    refused = session.ask("step", {"by": 1})
    state = session.ask("state")
    (answer,) = played(grant, 100)
    ended = session.ask("step", {"by": 1})

    assert code_of(refused) == "GRANT_LIVE"
    assert "lost" not in refused["data"]
    assert state["data"]["step_count"] == 0
    assert answer.told["terminated"] is True
    assert code_of(ended) == "STATE_ERROR"


def test_in_a_shared_session_all_act_in_one_episode() -> None:
    with serving(TOGETHER, agent_port=0) as served, Talk(served, greet=True) as talk:
        session = Session(talk, shared=True)
        session.ask("reset")
        one, two = granted(session, agent="one"), granted(session, agent="two")
        third = session.ask("grant", {}, epoch=1)
        totals = [played(one, 1)[0].told["observation"]["total"]]
        totals.append(session.ask("step", {"by": 10})["data"]["observation"]["total"])
        totals.append(played(two, 5)[0].told["observation"]["total"])
        told = watched(session)

    assert code_of(third) == "GRANTS_TAKEN"
    assert totals == [1, 11, 16]
    assert [(row["agent"], row["step"], row["row"]) for row in told["rows"]] == [("one", 1, 1), ("two", 3, 2)]


def test_a_revoked_grant_opens_nothing_and_the_orchestrator_goes_on(session: Session) -> None:
    grant = granted(session)
    played(grant, 2)
    first = session.ask("revoke", {"grant": grant["grant"]})
    again = session.ask("revoke", {"grant": grant["grant"]})
    seen = session.ask("step", {"by": 3})

    assert (first["type"], first["data"]) == ("revoked", {"grant": grant["grant"], "live": True})
    assert (again["type"], again["data"]) == ("revoked", {"grant": grant["grant"], "live": False})
    assert not opens(grant)
    assert (seen["data"]["step"], seen["data"]["observation"]["total"]) == (2, 5)


def test_a_grant_of_another_session_cannot_be_revoked(session: Session, talk: Talk) -> None:
    grant = granted(session)
    other = Session(talk)
    other.ask("reset")
    told = other.ask("revoke", {"grant": grant["grant"]})

    assert (told["type"], told["data"]["live"]) == ("revoked", False)
    assert opens(grant)


def test_a_grant_expires_by_the_server_s_clock() -> None:
    clock = Moved()
    with serving(ALONE, agent_port=0, clock=clock) as served, Talk(served, greet=True) as talk:
        session = Session(talk)
        session.ask("reset")
        grant = granted(session, ttl_seconds=5)
        played(grant, 1)
        before = opens(grant)
        clock.ahead = 4.0
        shortly = opens(grant)
        clock.ahead = 6.0
        after = opens(grant)
        step = session.ask("step", {"by": 1})

        assert (before, shortly, after) == (True, True, False)
        assert step["data"]["step"] == 2
        assert opens(granted(session))


@pytest.mark.parametrize("how", ["reset", "close"])
def test_a_grant_dies_with_its_episode(session: Session, how: str) -> None:
    grant = granted(session)
    played(grant, 1)
    session.ask(how)

    assert not opens(grant)


def test_after_the_end_every_tool_says_so_until_the_next_reset(session: Session) -> None:
    grant = granted(session)
    answers = played(grant, 100, 1, 1)
    still = opens(grant)
    session.ask("reset")

    assert [answer.code for answer in answers] == [None, "ENDED", "ENDED"]
    assert (still, opens(grant)) == (True, False)


def test_a_grant_outlives_its_orchestrator_s_connection_but_not_its_session() -> None:
    with serving(ALONE, agent_port=0, grace_seconds=0.2) as served:
        with Talk(served, greet=True) as talk:
            session = Session(talk)
            session.ask("reset")
            grant = granted(session)
            (before,) = played(grant, 1)
        until(lambda: not served.server.sessions.channels)

        assert before.code is None
        assert not opens(grant)


def test_neither_credential_opens_the_other_plane() -> None:
    secret = "a-control-secret-that-is-long-enough"
    with serving(ALONE, secret=secret, agent_port=0) as served, Talk(served, greet=True) as talk:
        session = Session(talk)
        session.ask("reset")
        grant = granted(session)
        served.headers = {"Authorization": f"Bearer {grant['token']}"}
        with pytest.raises(Exception, match="401"):
            served.connect()

        assert not asyncio.run(lets_in(grant["address"], secret))
        assert not asyncio.run(lets_in(grant["address"], None))
        assert opens(grant)


# ------------------------------------------------------------------------------------------------------------ to watch
def test_a_row_says_all_that_a_trainer_needs(session: Session) -> None:
    grant = granted(session, agent="a")
    played(grant, 5)
    (row,) = watched(session)["rows"]

    assert {key: row[key] for key in ("row", "epoch", "step", "grant", "agent", "tool")} == {
        "row": 1,
        "epoch": 1,
        "step": 1,
        "grant": grant["grant"],
        "agent": "a",
        "tool": "act",
    }
    assert row["action"]["by"] == 5
    assert row["observation"]["total"] == 5
    assert (row["raw_reward"], row["reward"], row["terminated"], row["truncated"]) == (5.0, 5.0, False, False)
    assert abs(row["at"] - time.time()) < 60


def test_rewards_are_told_before_and_after_the_transforms() -> None:
    transforms = [{"type": "step_cost", "cost": 0.5}]
    with serving(ALONE, agent_port=0, transforms=transforms) as served, Talk(served, greet=True) as talk:
        session = Session(talk)
        session.ask("reset")
        played(granted(session), 5)
        (row,) = watched(session)["rows"]
        ended = session.ask("wait_end", {"wait_seconds": 0})["data"]

    assert (row["raw_reward"], row["reward"], row["parts"]) == (5.0, 4.5, {"step_cost": -0.5})
    assert (ended["over"], ended["total_reward"]) == (False, 4.5)


def test_a_reader_goes_on_after_any_row(session: Session) -> None:
    played(granted(session), *[1] * 6)
    whole, part = watched(session), watched(session, after=4)
    few = watched(session, after=1, most=2)
    nothing = watched(session, after=6)

    assert rows_of(whole) == [1, 2, 3, 4, 5, 6]
    assert (rows_of(part), part["last"], part["missed"]) == ([5, 6], 6, 0)
    assert (rows_of(few), few["last"]) == ([2, 3], 6)
    assert (nothing["rows"], nothing["over"]) == ([], False)


def test_a_reader_goes_on_after_a_broken_connection(served: Served) -> None:
    with Talk(served, greet=True) as first:
        session = Session(first)
        session.ask("reset")
        grant = granted(session)
        played(grant, 1, 2)
        seen = rows_of(watched(session))
        session.send("watch", {"after": 2, "wait_seconds": 30})
    channel = served.server.sessions.channels[session.name]
    until(lambda: channel.outlet is None and not channel.session.rows._waiting)
    played(grant, 3, 94)
    with Talk(served, greet=True) as second:
        order = {"session": session.name, "resume_token": session.opened["resume_token"]}
        resumed = second.ask("resume", order, id=50)
        session.talk, session.last_id = second, 50
        rest = watched(session, after=2)

    assert seen == [1, 2]
    assert (resumed["type"], resumed["data"]["step"]) == ("resumed", 4)
    assert (rows_of(rest), rest["over"]) == ([3, 4], True)


def test_rows_are_numbered_over_all_episodes_of_a_session(session: Session) -> None:
    played(granted(session), 1, 100)
    session.ask("reset")
    played(granted(session), 1)
    told = watched(session)

    assert [(row["row"], row["epoch"], row["step"]) for row in told["rows"]] == [(1, 1, 1), (2, 1, 2), (3, 2, 1)]


def test_what_is_too_old_is_forgotten_and_counted(served: Served, session: Session) -> None:
    served.server.sessions.channels[session.name].session.rows._most = 3
    played(granted(session), *[1] * 10)
    first, later = watched(session), watched(session, after=6)

    assert (rows_of(first), first["missed"], first["last"]) == ([8, 9, 10], 7, 10)
    assert (rows_of(later), later["missed"]) == ([8, 9, 10], 1)


def test_what_was_refused_is_no_row(session: Session) -> None:
    answers = played(granted(session), 13, 1)

    assert [answer.code for answer in answers] == ["VALIDATION_ERROR", None]
    assert [row["step"] for row in watched(session)["rows"]] == [1]


def test_a_reader_waits_for_the_next_row_while_others_are_answered(session: Session) -> None:
    grant = granted(session)
    waiting = session.send("watch", {"wait_seconds": 30})
    state = session.ask("state")
    played(grant, 1)
    told = session.talk.receive()

    assert state["type"] == "state"
    assert (told["id"], rows_of(told["data"])) == (waiting, [1])


def test_readers_are_answered_while_an_action_runs() -> None:
    GATE.close()
    with serving(SLOW, agent_port=0, place="thread") as served, Talk(served, greet=True) as talk:
        session = Session(talk)
        session.ask("reset")
        grant = granted(session)

        async def play() -> tuple[Any, Any, Answer]:
            async with agent_with(grant["address"], grant["token"]) as agent:
                acting = asyncio.create_task(agent.use("act", by=100, wait=True))
                await asyncio.to_thread(GATE.reached.wait, PATIENCE)
                seen = await asyncio.to_thread(watched, session)
                ended = await asyncio.to_thread(session.ask, "wait_end", {"wait_seconds": 0})
                GATE.opened.set()
                return seen, ended, await acting

        seen, ended, answer = asyncio.run(play())

    assert (seen["rows"], ended["data"]["over"]) == ([], False)
    assert answer.told["done"] is True


def test_only_so_many_requests_of_a_connection_wait(session: Session) -> None:
    grant = granted(session)
    sent = [session.send("watch", {"wait_seconds": 30}) for _ in range(65)]
    refused = session.talk.receive()
    played(grant, 100)
    told = [session.talk.receive() for _ in range(64)]

    assert (refused["id"], code_of(refused)) == (sent[-1], "BUSY")
    assert sorted(reply["id"] for reply in told) == sent[:-1]
    assert all(rows_of(reply["data"]) == [1] for reply in told)


@pytest.mark.parametrize(
    "wish", [{"after": -1}, {"most": 0}, {"wait_seconds": -1}, {"wait_seconds": 1e9}, {"row": 1}, {"after": "1"}]
)
def test_a_reader_that_asks_for_nonsense_is_refused(session: Session, wish: Any) -> None:
    assert code_of(session.ask("watch", wish)) == "VALIDATION_ERROR"


# --------------------------------------------------------------------------------------------- to wait for the end
def test_the_end_is_told_when_it_comes(session: Session) -> None:
    grant = granted(session)
    waiting = session.send("wait_end", {"wait_seconds": 30})
    played(grant, 40, 60)
    told = session.talk.receive()

    assert (told["type"], told["id"]) == ("ended", waiting)
    assert told["data"] == {
        "over": True,
        "epoch": 1,
        "episode_id": f"{session.name}.1",
        "steps": 2,
        "terminated": True,
        "truncated": False,
        "lost": False,
        "total_reward": 100.0,
    }


def test_an_end_by_the_orchestrator_is_an_end(talk: Talk) -> None:
    session = Session(talk, shared=True)
    session.ask("reset")
    waiting = session.send("wait_end", {"wait_seconds": 30})
    session.send("step", {"by": -100})
    replies = {reply["id"]: reply for reply in (talk.receive(), talk.receive())}

    assert replies[waiting]["data"]["truncated"] is True


def test_an_episode_that_broke_off_is_told_as_lost(session: Session) -> None:
    grant = granted(session)
    first = session.send("wait_end", {"wait_seconds": 30})
    second = session.send("watch", {"after": 1, "wait_seconds": 30})
    answers = played(grant, 1, -99)
    replies = {reply["id"]: reply["data"] for reply in (session.talk.receive(), session.talk.receive())}

    assert [answer.code for answer in answers] == [None, "EXECUTION_ERROR"]
    assert (replies[first]["over"], replies[first]["lost"], replies[first]["terminated"]) == (True, True, False)
    assert (replies[second]["over"], replies[second]["rows"]) == (True, [])
    assert code_of(session.ask("step", {"by": 1})) == "EPISODE_LOST"


@pytest.mark.parametrize("kind", ["watch", "wait_end"])
def test_a_reset_ends_the_waiting_for_the_episode_before_it(session: Session, kind: str) -> None:
    waiting = session.send(kind, {"wait_seconds": 30}, epoch=1)
    session.send("reset")
    replies = {reply["id"]: reply for reply in (session.talk.receive(), session.talk.receive())}

    assert replies[waiting]["epoch"] == 2
    assert replies[waiting]["data"]["over"] is False
