"""After a broken connection an episode goes on exactly where it was, or is lost; it is never another one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proctor.client.connection import Backoff, Connection, ConnectionSettings
from proctor.client.session import ClientSession
from proctor.errors import ConnectionFailed, EpisodeLost
from proctor.models.control import ObservationReply
from tests.client.conftest import COUNTING
from tests.client.counting import GATE
from tests.client.fake_server import Fake, Request, faking
from tests.client.test_session import ADD, impatient, neglect, told, until
from tests.client.wire_cutter import Wire, wire_to
from tests.server.live_server import Served, serving

pytestmark = pytest.mark.anyio

WAIT = b'{"by":1,"wait":true}'
QUICK = ConnectionSettings(backoff=Backoff(first=0.01, longest=0.05))


@asynccontextmanager
async def resumable(url: str) -> AsyncIterator[ClientSession[ObservationReply]]:
    """Give a session in its first episode, on a connection that is quick to come back."""
    async with asyncio.timeout(300), Connection(url, settings=QUICK) as connection:
        session = await connection.session()
        await session.reset(b"")
        yield session


async def test_a_cut_between_two_steps_is_not_noticed(wire: Wire, served: Served) -> None:
    async with Connection(wire.url, settings=QUICK) as connection:
        session = await connection.session()
        seen = [told(await session.reset(b""))]
        for _ in range(5):
            await asyncio.to_thread(wire.cut)
            seen.append(told(await session.step(ADD)))

    assert [each["steps"] for each in seen] == [0, 1, 2, 3, 4, 5]
    assert len({(each["instance"], each["episode"]) for each in seen}) == 1
    assert wire.made > 1


async def test_a_step_that_runs_while_the_connection_breaks_is_taken_once(wire: Wire, served: Served) -> None:
    async with resumable(wire.url) as session:
        running = asyncio.create_task(session.step(WAIT))
        await asyncio.to_thread(GATE.reached.wait, 300)
        await asyncio.to_thread(wire.cut)
        await until(lambda: wire.made > 1)
        GATE.opened.set()
        first, second = told(await running), told(await session.step(ADD))

    assert (first["steps"], second["steps"]) == (1, 2)


@pytest.mark.parametrize("request_kind", ["step", "reset"])
async def test_a_request_whose_reply_is_lost_takes_place_once(wire: Wire, served: Served, request_kind: str) -> None:
    async with resumable(wire.url) as session:
        await session.step(ADD)
        wire.deaf = True
        call = session.step(ADD) if request_kind == "step" else session.reset(b"")
        running = asyncio.create_task(call)
        await until(lambda: _carried_out(served, request_kind))
        wire.deaf = False
        await asyncio.to_thread(wire.cut)
        answer, after = told(await running), told(await session.step(ADD))

    if request_kind == "step":
        assert (answer["steps"], after["steps"], after["episode"]) == (2, 3, 1)
    else:
        assert (answer["steps"], after["steps"], after["episode"]) == (0, 1, 2)


def _carried_out(served: Served, kind: str) -> bool:
    (channel,) = served.server.sessions.channels.values()
    session = channel.session
    return session.step_count == 2 if kind == "step" else session.epoch == 2


async def test_all_sessions_of_a_connection_are_found_again(wire: Wire, served: Served) -> None:
    async with Connection(wire.url, settings=QUICK) as connection:
        sessions = [await connection.session() for _ in range(5)]
        for number, session in enumerate(sessions):
            await session.reset(b'{"seed":%d}' % (10 * number))
        rows = []
        for _ in range(3):
            await asyncio.to_thread(wire.cut)
            seen = await asyncio.gather(*(session.step(ADD) for session in sessions))
            rows.append([told(each)["total"] for each in seen])
        assert rows == [[1, 11, 21, 31, 41], [2, 12, 22, 32, 42], [3, 13, 23, 33, 43]]


async def test_a_server_that_cannot_be_reached_in_time_is_a_loss_and_a_reset_begins_anew(
    wire: Wire, served: Served
) -> None:
    now = [0.0]

    async def sleep(seconds: float) -> None:
        now[0] += seconds
        await asyncio.sleep(0)

    async with Connection(wire.url, settings=QUICK, clock=lambda: now[0], sleep=sleep) as connection:
        session = await connection.session()
        first = told(await session.reset(b""))
        wire.accepts = False
        await asyncio.to_thread(wire.cut)
        with pytest.raises(EpisodeLost) as loss:
            await session.step(ADD)
        assert loss.value.code == "CONNECTION_LOST"
        with pytest.raises(EpisodeLost):
            await session.state()
        with pytest.raises(ConnectionFailed):
            await session.reset(b"")
        with pytest.raises(EpisodeLost):
            await session.step(ADD)
        wire.accepts = True
        second = told(await session.reset(b""))
        assert told(await session.step(ADD))["steps"] == 1

    assert first["instance"] != second["instance"]
    assert now[0] >= 60


async def test_a_server_that_was_started_anew_is_a_loss() -> None:
    here: dict[str, Any] = {"allow_hosts": ["127.0.0.1"]}
    with serving(COUNTING, **here) as first, serving(COUNTING, **here) as second, wire_to(first.port) as wire:
        async with resumable(wire.url) as session:
            wire.target = second.port
            await asyncio.to_thread(wire.cut)
            with pytest.raises(EpisodeLost) as loss:
                await session.step(ADD)
            await session.reset(b"")
            assert told(await session.step(ADD))["steps"] == 1
            assert loss.value.code == "SERVER_RESTARTED"


@pytest.mark.parametrize("known", [True, False])
async def test_whether_another_run_of_a_server_knows_a_session_is_for_that_run_to_say(known: bool) -> None:
    async def forgotten(fake: Fake, request: Request) -> None:
        await fake.reply(request, "error", {"message": "no such session", "code": "EPISODE_LOST"})

    async with faked() as (fake, session):
        fake.welcome["boot"] = "the next run"
        if not known:
            fake.lies["resume"] = forgotten
        await fake.cut()
        if known:
            assert told(await session.step(ADD)) == {"count": 2}
        else:
            with pytest.raises(EpisodeLost) as loss:
                await session.step(ADD)
            assert loss.value.code == "SERVER_RESTARTED"


async def test_a_session_that_the_server_gave_up_meanwhile_is_a_loss() -> None:
    with serving(COUNTING, allow_hosts=["127.0.0.1"], grace_seconds=0.0) as there, wire_to(there.port) as wire:
        async with resumable(wire.url) as session:
            await asyncio.to_thread(wire.cut)
            with pytest.raises(EpisodeLost) as loss:
                await session.step(ADD)
            assert loss.value.code == "CONNECTION_LOST"


async def test_a_session_that_another_connection_has_resumed_is_lost_here_and_not_taken_back(served: Served) -> None:
    async with Connection(served.url) as first, Connection(served.url) as second:
        session = await first.session()
        await session.reset(b"")
        assert session.opened is not None
        order = f'{{"session":"{session.name}","resume_token":"{session.opened.resume_token}"}}'
        assert (await second.request("resume", order.encode())).type == "resumed"
        await until(lambda: session.position.loss is not None)
        with pytest.raises(EpisodeLost) as loss:
            await session.step(ADD)
        assert loss.value.code == "SUPERSEDED"


async def test_a_wrong_credential_on_the_way_back_ends_the_attempts(served: Served) -> None:
    guarded = serving(COUNTING, secret="another-secret-1234", allow_hosts=["127.0.0.1"])
    with guarded as other, wire_to(served.port) as wire:
        async with resumable(wire.url) as session:
            wire.target = other.port
            await asyncio.to_thread(wire.cut)
            with pytest.raises(EpisodeLost) as loss:
                await session.step(ADD)
            assert (loss.value.code, wire.made) == ("CONNECTION_LOST", 2)


async def test_a_session_is_sought_before_anybody_asks(wire: Wire, served: Served) -> None:
    async with resumable(wire.url):
        await asyncio.to_thread(wire.cut)
        await until(lambda: wire.made == 2)


async def test_a_connection_without_sessions_is_made_again_when_it_is_needed(wire: Wire, served: Served) -> None:
    async with Connection(wire.url, settings=QUICK) as connection:
        await connection.metadata()
        await asyncio.to_thread(wire.cut)
        await until(lambda: not connection._up)
        before = wire.made
        await connection.metadata()
        assert wire.made - before == 1


@asynccontextmanager
async def faked(settings: ConnectionSettings = QUICK) -> AsyncIterator[tuple[Fake, ClientSession[ObservationReply]]]:
    async with faking() as fake, Connection(fake.url, settings=settings) as connection:
        session = await connection.session()
        await session.reset(b"")
        await session.step(ADD)
        yield fake, session


@pytest.mark.parametrize(
    ("epoch", "step", "code"),
    [(1, 1, None), (1, 2, "WRONG_EPISODE"), (1, 0, "WRONG_EPISODE"), (2, 0, "WRONG_EPISODE"), (2, 1, "WRONG_EPISODE")],
)
async def test_a_session_that_comes_back_elsewhere_is_lost(epoch: int, step: int, code: str | None) -> None:
    async with faked() as (fake, session):
        fake.epoch, fake.step = epoch, step
        await fake.cut()
        if code is None:
            assert told(await session.step(ADD)) == {"count": 2}
        else:
            await until(lambda: fake.asked("resume"))
            with pytest.raises(EpisodeLost) as loss:
                await session.step(ADD)
            assert loss.value.code == code
            assert len(fake.asked("step")) == 1


async def test_a_step_that_was_never_begun_does_not_excuse_one_that_nobody_asked_for() -> None:
    asked = asyncio.Event()

    async def held(fake: Fake, request: Request) -> None:
        await asyncio.wait_for(asked.wait(), 300)
        await fake.honest(request)

    async with faked() as (fake, session):
        fake.lies["resume"] = held
        fake.step = 2
        await fake.cut()
        await until(lambda: fake.asked("resume"))
        running = asyncio.create_task(session.step(ADD))
        await asyncio.sleep(0)
        asked.set()
        with pytest.raises(EpisodeLost) as loss:
            await running

        assert loss.value.code == "WRONG_EPISODE"
        assert len(fake.asked("step")) == 1


async def test_a_session_that_was_lost_meanwhile_says_so_and_a_reset_needs_no_new_one() -> None:
    async def lost(fake: Fake, request: Request) -> None:
        await fake.reply(request, "resumed", fake.resumed(lost=True))

    async with faked() as (fake, session):
        fake.lies["resume"] = lost
        await fake.cut()
        await until(lambda: session.position.loss is not None)
        with pytest.raises(EpisodeLost):
            await session.step(ADD)
        await session.reset(b"")

        assert len(fake.asked("open")) == 1


@pytest.mark.parametrize("manner", ["busy", "silent", "cut", "garbage"])
async def test_a_resume_that_fails_for_now_is_tried_again(manner: str) -> None:
    tries = []

    async def at_first(fake: Fake, request: Request) -> None:
        tries.append(request)
        if len(tries) > 2:
            await fake.honest(request)
        elif manner == "busy":
            await fake.reply(request, "error", {"message": "later", "code": "BUSY"})
        elif manner == "cut":
            await fake.cut()
        elif manner == "garbage":
            await fake.send("{")

    async with faked(ConnectionSettings(backoff=QUICK.backoff, connect_timeout=300.0)) as (fake, session):
        fake.lies["resume"] = at_first
        if manner == "silent":
            connection: Any = session._connection
            connection.settings = ConnectionSettings(backoff=QUICK.backoff, connect_timeout=0.5)
        await fake.cut()

        assert told(await session.step(ADD)) == {"count": 2}
        assert len(tries) >= 3


async def test_garbage_breaks_the_connection_and_the_request_is_repeated() -> None:
    async def garbled(fake: Fake, request: Request) -> None:
        if len(fake.asked("step")) == 2:
            await fake.send("no JSON")
        else:
            await fake.honest(request)

    async with faked() as (fake, session):
        fake.lies["step"] = garbled

        assert told(await session.step(ADD)) == {"count": 2}
        assert fake.connections == 2
        assert len(fake.asked("step")) == 3


async def test_unanswered_requests_are_repeated_in_order_with_the_same_bytes() -> None:
    async with faked(ConnectionSettings(backoff=QUICK.backoff, cancel_timeout=300.0)) as (fake, session):
        impatient(session, 0.1)
        fake.lies |= {"step": neglect, "cancel": neglect}
        running = asyncio.create_task(session.step(b'{"by":3}'))
        await until(lambda: fake.asked("cancel"))
        await fake.cut()
        await until(lambda: len(fake.asked("cancel")) == 2)
        first, second = (fake.asked(kind)[-2:] for kind in ("step", "cancel"))
        kinds = [request["type"] for request in fake.requests[-2:]]
        await fake.reply(second[1], "cancelled", {"id": 1, "outcome": "finished"})
        fake.step = 2
        await fake.reply(first[1], "observation", fake.seen())

        assert told(await running) == {"count": 2}
        assert (first[0], second[0]) == (first[1], second[1])
        assert kinds == ["step", "cancel"]


async def test_the_address_that_the_server_gave_is_where_the_client_returns_to() -> None:
    async with faking() as shared, faking() as own:
        shared.welcome["address"] = own.url.replace("http", "ws") + "/ws"
        own.welcome = shared.welcome
        async with Connection(shared.url, settings=QUICK) as connection:
            session = await connection.session()
            await session.reset(b"")
            own.epoch = shared.epoch
            await shared.cut()
            await session.step(ADD)
        assert (shared.connections, own.connections) == (1, 1)


async def test_delays_grow_when_a_connection_breaks_as_soon_as_it_is_there() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.sleep(0)

    async def brief(fake: Fake, request: Request) -> None:
        if len(fake.asked("step")) < 5:
            await fake.cut()
        else:
            await fake.honest(request)

    settings = ConnectionSettings(backoff=Backoff(first=1.0, longest=100.0))
    timeless: dict[str, Any] = {"clock": lambda: 0.0, "chance": lambda: 0.0, "sleep": sleep}
    async with faking() as fake, Connection(fake.url, settings=settings, **timeless) as connection:
        session = await connection.session()
        await session.reset(b"")
        fake.lies["step"] = brief
        await session.step(ADD)

    assert slept == [0.0, 1.0, 2.0, 4.0]


async def test_closing_ends_the_attempts(wire: Wire, served: Served) -> None:
    before = asyncio.all_tasks()
    connection = Connection(wire.url, settings=QUICK)
    session = await connection.session()
    await session.reset(b"")
    wire.accepts = False
    await asyncio.to_thread(wire.cut)
    await until(lambda: wire.made > 2)
    await connection.close()
    made = wire.made
    others = asyncio.all_tasks() - before
    await asyncio.wait(others, timeout=300) if others else None
    assert wire.made <= made + 1
    assert not any(not task.done() for task in others)
