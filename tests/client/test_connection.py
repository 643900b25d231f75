"""A connection against real servers: hello or none, notices, limits and the end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from websockets.asyncio.server import serve

from proctor.client.address import parse_address
from proctor.client.connection import NO_HELLO, Backoff, Connection, ConnectionSettings, read_welcome
from proctor.errors import ConnectionFailed, EpisodeLost, RemoteError, RequestTimeout, StateError, ValidationError
from proctor.models.control import Code, Hello, Notice, Problem, RawReply
from tests.client.conftest import COUNTING
from tests.client.fake_server import Fake, Request, faking
from tests.client.test_session import ADD, impatient, told, until
from tests.server.live_server import Served, serving
from tests.server.live_server import until as wait_until

pytestmark = pytest.mark.anyio


async def test_a_connection_is_made_when_it_is_needed_and_once(served: Served) -> None:
    connection = Connection(served.url)
    assert connection.welcome is None
    names = await asyncio.gather(*(connection.metadata() for _ in range(5)))
    await connection.close()

    assert {each.name for each in names} == {"Counting"}


async def test_what_was_agreed_on_is_known(served: Served) -> None:
    async with Connection(served.url, settings=ConnectionSettings(packed=True)) as connection:
        welcome, schemas = connection.welcome, await connection.schema()

    assert welcome is not None
    assert (welcome.protocol, welcome.packed, welcome.environment) == (1, True, "Counting")
    assert schemas.action["properties"].keys() == {"by", "wait"}
    assert schemas.spaces is None


async def test_a_closed_connection_stays_closed(served: Served) -> None:
    connection = Connection(served.url)
    session = await connection.session()
    await connection.close()
    await connection.close()
    with pytest.raises(StateError):
        await connection.metadata()
    with pytest.raises(StateError):
        await session.reset(b"")


async def test_a_connection_that_is_closed_while_it_is_made_stays_closed() -> None:
    async with faking() as fake:

        async def close_first(fake: Fake, request: Request) -> None:
            connection._closed = True
            await fake.honest(request)

        fake.lies["hello"] = close_first
        connection = Connection(fake.url)
        with pytest.raises(StateError):
            await connection.ensure_connection()
        assert connection._socket is None


async def test_closing_leaves_no_session_and_no_task_behind(served: Served) -> None:
    before = asyncio.all_tasks()
    async with Connection(served.url) as connection:
        for _ in range(5):
            await (await connection.session()).reset(b"")

    assert asyncio.all_tasks() == before
    wait_until(lambda: not served.server.sessions.channels)


async def test_notices_reach_the_callback() -> None:
    now = [0.0]
    heard: list[Notice] = []
    with serving(COUNTING, idle_seconds=100.0, warn_seconds=50.0, clock=lambda: now[0]) as there:
        async with Connection(there.url, on_notice=heard.append) as connection:
            session = await connection.session()
            await session.reset(b"")
            now[0] = 60.0
            await asyncio.to_thread(there.on_loop, there.server.sessions.sweep)
            await until(lambda: heard)
            await session.step(ADD)

    assert heard[0].code == "IDLE"
    assert heard[0].seconds_left == pytest.approx(40.0)


async def test_a_server_that_stops_says_so_and_its_episodes_are_lost() -> None:
    heard: list[Notice] = []

    with serving(COUNTING, drain_seconds=0.0) as there:
        connection = Connection(there.url, on_notice=heard.append, settings=ConnectionSettings(connect_timeout=60.0))
        session = await connection.session()
        await session.reset(b"")
        there.loop.call_soon_threadsafe(there.server.stop)
        await until(lambda: not connection._up)
    assert connection._reconnecting is not None
    connection._reconnecting.cancel()
    session.lose("given up by the test", "CONNECTION_LOST")
    with pytest.raises(EpisodeLost):
        await session.step(ADD)
    await connection.close()

    assert heard[0].code == "SHUTTING_DOWN"


async def test_a_notice_that_cannot_be_read_is_left_aside() -> None:
    async with faking() as fake, Connection(fake.url) as connection:
        session = await connection.session()
        await session.reset(b"")
        await fake.send({"type": "warning", "data": {"code": 7}})
        await session.step(ADD)


async def test_a_server_without_room_says_so() -> None:
    with serving(COUNTING, max_sessions=1, max_waiting=0) as there:
        async with Connection(there.url) as connection:
            await connection.session()
            with pytest.raises(RemoteError) as refusal:
                await connection.session()

    assert refusal.value.code == "CAPACITY_REACHED"


@pytest.mark.parametrize("num_envs", [0, -1, 10**6, "two"])
def test_a_batch_of_no_number_is_refused_before_anything_is_sent(num_envs: Any) -> None:
    with pytest.raises(ValidationError):
        asyncio.run(Connection("http://127.0.0.1:9").batch(num_envs))


async def test_a_request_that_belongs_to_no_session_ends_in_time() -> None:
    async def silence(fake: Fake, request: Request) -> None:
        pass

    async with (
        faking() as fake,
        Connection(fake.url, settings=ConnectionSettings(request_timeout=0.05)) as connection,
    ):
        fake.lies |= {"metadata": silence, "open": silence}
        with pytest.raises(RequestTimeout):
            await connection.metadata()
        with pytest.raises(RequestTimeout):
            await connection.session()


async def test_a_request_that_belongs_to_no_session_fails_with_its_connection() -> None:
    async def cut(fake: Fake, request: Request) -> None:
        await fake.cut()

    async with faking() as fake, Connection(fake.url) as connection:
        fake.lies["open"] = cut
        with pytest.raises(ConnectionFailed):
            await connection.session()
        fake.lies.clear()
        await (await connection.session()).reset(b"")


@pytest.mark.parametrize("told", ["which", "not which"])
async def test_a_limited_rate_means_to_ask_again_later_but_never_to_open_twice(told: str) -> None:
    async def limited(fake: Fake, request: Request) -> None:
        if len(fake.asked(request["type"])) > 1:
            await fake.honest(request)
            return
        problem = {"message": "slower", "code": "RATE_LIMITED", "retry_after_seconds": 0.01}
        beside = {"id": request["id"]} if told == "which" else {}
        await fake.send({"type": "error", "data": problem, **beside})

    async with (
        faking() as fake,
        Connection(fake.url, settings=ConnectionSettings(request_timeout=300.0)) as connection,
    ):
        session = await connection.session()
        await session.reset(b"")
        fake.lies |= {"step": limited, "open": limited}
        fake.requests.clear()
        await session.step(ADD)
        if told == "which":
            await connection.session()
        else:
            hasty: Any = connection
            hasty.settings = ConnectionSettings(request_timeout=0.5)
            with pytest.raises(RequestTimeout):
                await connection.session()
        result = len(fake.asked("step")), len(fake.asked("open"))

    assert result == ((2, 2) if told == "which" else (2, 1))


@pytest.mark.parametrize("answer", ["nothing", "garbage", "another", "refusal", "cut"])
async def test_a_server_that_does_not_answer_hello_as_it_should_is_a_failure(answer: str) -> None:
    async def lie(fake: Fake, request: Request) -> None:
        if answer == "garbage":
            await fake.send("[")
        elif answer == "another":
            await fake.reply(request, "opened", {})
        elif answer == "refusal":
            await fake.reply(request, "error", {"message": "too old", "code": "UNSUPPORTED_PROTOCOL"})
        elif answer == "cut":
            await fake.cut()

    async with faking() as fake:
        fake.lies["hello"] = lie
        patience = 0.2 if answer == "nothing" else 300.0
        connection = Connection(fake.url, settings=ConnectionSettings(connect_timeout=patience))
        with pytest.raises(ConnectionFailed):
            await connection.ensure_connection()
        fake.lies.clear()
        if answer != "nothing":
            await connection.ensure_connection()
        await connection.close()


class Plain(Fake):
    """Speaks as OpenEnv does: no hello, no ids."""

    async def honest(self, request: Request) -> None:
        if request.keys() - {"type", "data"}:
            await self.send({"type": "error", "data": {"message": "extra", "code": "VALIDATION_ERROR"}})
        elif request["type"] in ("hello", "schema"):
            await self.send({"type": "error", "data": {"message": "no such type", "code": "UNKNOWN_TYPE"}})
        elif request["type"] == "state":
            await self.send({"type": "state", "data": {"episode_id": None, "step_count": self.step}})
        else:
            self.step = 0 if request["type"] == "reset" else self.step + 1
            seen = {"observation": {"count": self.step}, "reward": 1.0, "done": self.step >= 3}
            await self.send({"type": "observation", "data": seen})


@asynccontextmanager
async def plain_server(**settings: Any) -> AsyncIterator[tuple[Plain, Connection]]:
    """Give a connection to a server without `hello`, as OpenEnv's own is: `tests/system/test_openenv_peer.py` has the real one."""
    fake = Plain()
    async with serve(fake.serve, "127.0.0.1", 0, compression=None) as server:
        fake.url = f"http://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
        async with Connection(fake.url, settings=ConnectionSettings(**settings)) as connection:
            yield fake, connection


class TestAServerWithoutHello:
    async def test_has_one_session_that_works(self) -> None:
        async with plain_server() as (_, connection):
            session = await connection.session()
            assert (connection.welcome, session.greeted) == (None, False)
            await session.reset(b"")
            assert [told(await session.step(ADD))["count"] for _ in range(3)] == [1, 2, 3]
            assert b"step_count" in bytes(await session.state())
            with pytest.raises(StateError) as refusal:
                await session.step(ADD)
            assert refusal.value.clause == "NO-STEP-AFTER-END"
            with pytest.raises(RemoteError):
                await connection.schema()

    async def test_has_no_second_session_and_no_batch(self) -> None:
        async with plain_server() as (_, connection):
            with pytest.raises(ValidationError):
                await connection.batch(4)
            await (await connection.session()).reset(b"")
            with pytest.raises(StateError):
                await connection.session()

    async def test_loses_its_episode_with_its_connection(self) -> None:
        async with plain_server() as (fake, connection):
            session = await connection.session()
            await session.reset(b"")
            await fake.cut()
            for _ in range(2):
                with pytest.raises(EpisodeLost) as loss:
                    await session.step(ADD)
                assert loss.value.code == "CONNECTION_LOST"
            await session.reset(b"")
            assert told(await session.step(ADD)) == {"count": 1}
            assert fake.connections == 2

    async def test_loses_its_episode_when_it_takes_too_long_and_never_hears_the_late_reply(self) -> None:
        async def late(fake: Fake, request: Request) -> None:
            socket = fake.socket
            assert socket is not None
            await until(lambda: fake.connections == 2)
            await socket.send('{"type":"observation","data":{"observation":{"count":"late"},"reward":0,"done":false}}')

        async with plain_server() as (fake, connection):
            session = await connection.session()
            await session.reset(b"")
            impatient(session, 0.1)
            fake.lies["step"] = late
            with pytest.raises(EpisodeLost) as loss:
                await session.step(ADD)
            assert loss.value.code == "NO_ANSWER"
            fake.lies.clear()
            impatient(session, 20.0)
            await session.reset(b"")
            assert told(await session.step(ADD)) == {"count": 1}

    async def test_loses_its_episode_when_the_environment_fails(self) -> None:
        async def fail(fake: Fake, request: Request) -> None:
            await fake.send({"type": "error", "data": {"message": "boom", "code": "EXECUTION_ERROR"}})

        async with plain_server() as (fake, connection):
            session = await connection.session()
            await session.reset(b"")
            fake.lies["step"] = fail
            for _ in range(2):
                with pytest.raises(EpisodeLost):
                    await session.step(ADD)
            fake.lies.clear()
            await session.reset(b"")
            assert told(await session.step(ADD)) == {"count": 1}
            assert fake.connections == 1

    async def test_that_is_full_says_so_before_it_hangs_up(self) -> None:
        async def full(socket: Any) -> None:
            await socket.send('{"type":"error","data":{"message":"full","code":"CAPACITY_REACHED"}}')
            await socket.close()

        async with serve(full, "127.0.0.1", 0, compression=None) as server:
            url = f"http://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
            with pytest.raises(RemoteError) as refusal:
                await Connection(url).ensure_connection()

        assert refusal.value.code == "CAPACITY_REACHED"


TIMES = ["connect_timeout", "request_timeout", "cancel_timeout", "ping_interval"]


@given(st.sampled_from(TIMES), st.floats(allow_nan=True))
def test_a_time_is_positive_and_finite_or_refused(name: str, value: float) -> None:
    if 0 < value < float("inf"):
        assert getattr(ConnectionSettings(**{name: value}), name) == value  # type: ignore[arg-type]
    else:
        with pytest.raises(ValidationError, match=name):
            ConnectionSettings(**{name: value})  # type: ignore[arg-type]


CHANCES = st.floats(0, 1, exclude_max=True)


def test_the_first_attempt_comes_at_once_and_the_delays_double() -> None:
    delays = list(islice(Backoff(first=1.0, longest=5.0).delays(lambda: 0.0), 6))

    assert delays == [0.0, 1.0, 2.0, 4.0, 5.0, 5.0]


@given(st.lists(CHANCES, min_size=10, max_size=10), st.floats(0.01, 1), st.floats(1, 60))
def test_chance_takes_at_most_half_of_a_delay_away(chances: list[float], first: float, longest: float) -> None:
    backoff = Backoff(first=first, longest=longest)
    draws = iter(chances)
    most = list(islice(backoff.delays(lambda: 0.0), 10))

    for delay, limit in zip(islice(backoff.delays(lambda: next(draws)), 10), most, strict=True):
        assert limit / 2 <= delay <= limit <= longest


ADDRESS = parse_address("http://h:1", token="a-secret-of-ours")


def error(code: str) -> RawReply:
    return RawReply("error", Raw(msgspec.json.encode(Problem("no", code))))


@pytest.mark.anyio
async def test_hello_says_what_the_settings_say() -> None:
    async with faking() as fake, Connection(fake.url, settings=ConnectionSettings(packed=True, compression=True)):
        said = msgspec.convert(fake.asked("hello")[0]["data"], type=Hello)

    assert (said.protocols, said.packed, said.compression) == ([1], True, True)


@given(st.sampled_from(list(Code)))
def test_only_a_server_that_does_not_know_hello_is_spoken_to_without(code: Code) -> None:
    if code in NO_HELLO:
        assert read_welcome(error(code), ADDRESS) is None
    else:
        with pytest.raises((ConnectionFailed, RemoteError)) as refusal:
            read_welcome(error(code), ADDRESS)
        assert "a-secret-of-ours" not in str(refusal.value)
