"""Sessions against a real server, and against one that lies."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from proctor.client.connection import Connection, ConnectionSettings
from proctor.client.session import ClientSession
from proctor.errors import ConnectionFailed, EpisodeLost, RemoteError, RequestTimeout, StateError, ValidationError
from proctor.models.control import ObservationReply
from tests.client.conftest import COUNTING
from tests.client.counting import GATE, PATIENCE
from tests.client.fake_server import Fake, Request, faking
from tests.server.live_server import Served, serving

pytestmark = pytest.mark.anyio

ADD = b'{"by":1}'


def told(seen: ObservationReply) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(seen.observation)
    return found


@asynccontextmanager
async def on(url: str) -> AsyncIterator[ClientSession[ObservationReply]]:
    """Give a session on a connection of its own."""
    async with Connection(url) as connection:
        yield await connection.session()


Faked = AsyncIterator[tuple[Fake, ClientSession[ObservationReply]]]


@asynccontextmanager
async def with_lies(**settings: Any) -> Faked:
    """Give a session on a server that lies."""
    async with faking() as fake, Connection(fake.url, settings=ConnectionSettings(**settings)) as connection:
        yield fake, await connection.session()


async def test_an_episode_counts_from_its_reset(served: Served) -> None:
    async with on(served.url) as session:
        first = await session.reset(b'{"seed":5,"episode_id":"mine"}')
        seen = [await session.step(ADD) for _ in range(3)]
        state = msgspec.json.decode(await session.state())

        assert {"total": 5, "steps": 0, "episode": 1}.items() <= told(first).items()
        assert [told(each)["total"] for each in seen] == [6, 7, 8]
        assert state == {"episode_id": "mine", "step_count": 3, "total": 8}
        assert session.episode_id == "mine"


async def test_many_sessions_on_one_connection_do_not_mix(served: Served) -> None:
    async def play(session: ClientSession[ObservationReply], start: int) -> list[int]:
        await session.reset(b'{"seed":%d}' % start)
        return [told(await session.step(ADD))["total"] for _ in range(5)]

    async with Connection(served.url) as connection:
        sessions = [await connection.session() for _ in range(8)]
        result = await asyncio.gather(*(play(each, 10 * number) for number, each in enumerate(sessions)))

    assert result == [[10 * number + step for step in range(1, 6)] for number in range(8)]


async def test_calls_of_one_session_wait_for_each_other(served: Served) -> None:
    async with on(served.url) as session:
        await session.reset(b"")
        seen = await asyncio.gather(*(session.step(ADD) for _ in range(20)))
        assert [told(each)["total"] for each in seen] == list(range(1, 21))


@pytest.mark.parametrize(
    ("after", "clause"),
    [
        ("nothing", "NO-STEP-BEFORE-RESET"),
        ("the end", "NO-STEP-AFTER-END"),
        ("the close", "NO-STEP-AFTER-CLOSE"),
    ],
)
async def test_a_step_that_may_not_come_is_refused_here(served: Served, after: str, clause: str) -> None:
    async with on(served.url) as session:
        if after != "nothing":
            await session.reset(b"")
            await session.step(b'{"by":100}')
        if after == "the close":
            await session.close()
        with pytest.raises(StateError) as refusal:
            await session.step(ADD)
        assert refusal.value.clause == clause


async def test_a_refused_action_changes_nothing(served: Served) -> None:
    async with on(served.url) as session:
        await session.reset(b"")
        for action in (b'{"by":"one"}', b'{"by":13}', b'{"unknown":1}', b"[]"):
            with pytest.raises(ValidationError):
                await session.step(action)
        assert int(told(await session.step(ADD))["steps"]) == 1


async def test_after_a_failure_inside_only_a_reset_goes_on(served: Served) -> None:
    async with on(served.url) as session:
        instance = told(await session.reset(b""))["instance"]
        with pytest.raises(EpisodeLost) as loss:
            await session.step(b'{"by":-99}')
        assert loss.value.code == "EXECUTION_ERROR"
        assert "text from inside" not in str(loss.value)
        for call in (session.step(ADD), session.state(), session.step(ADD)):
            with pytest.raises(EpisodeLost):
                await call
        again = told(await session.reset(b""))
        assert told(await session.step(ADD))["steps"] == 1
        assert again["instance"] != instance


async def test_a_refused_reset_leaves_the_episode(served: Served) -> None:
    async with on(served.url) as session:
        await session.reset(b"")
        await session.step(ADD)
        with pytest.raises(ValidationError):
            await session.reset(b'{"options":{"unknown":1}}')
        assert int(told(await session.step(ADD))["steps"]) == 2


async def test_a_session_that_its_server_has_ended_begins_again_with_a_reset_only() -> None:
    now = [0.0]
    with serving(COUNTING, idle_seconds=10.0, clock=lambda: now[0]) as there:
        async with on(there.url) as session:
            first = told(await session.reset(b""))
            now[0] = 1000.0
            await asyncio.to_thread(there.on_loop, there.server.sessions.sweep)
            await asyncio.to_thread(_until_empty, there)
            with pytest.raises(EpisodeLost):
                await session.step(ADD)
            with pytest.raises(EpisodeLost):
                await session.state()
            assert told(await session.reset(b""))["instance"] != first["instance"]


def _until_empty(there: Served) -> None:
    from tests.server.live_server import until

    until(lambda: not there.server.sessions.channels)


async def test_a_closed_session_is_closed_on_the_server_too(served: Served) -> None:
    async with on(served.url) as session:
        await session.reset(b"")
        await session.close()
        await session.close()
        await asyncio.to_thread(_until_empty, served)


async def test_a_message_too_large_for_the_server_is_not_sent() -> None:
    with serving(COUNTING, limits={"max_message_bytes": 2000}) as there:
        async with on(there.url) as session:
            await session.reset(b"")
            with pytest.raises(ValidationError, match="too large"):
                await session.step(b'{"by":1,"x":"%b"}' % (b"x" * 3000))
            assert int(told(await session.step(ADD))["steps"]) == 1


async def test_a_request_that_the_server_does_not_read_is_not_waited_for_in_vain(served: Served) -> None:
    async with on(served.url) as session:
        await session.reset(b"")
        with pytest.raises(RemoteError) as refusal:
            await session.step(b'{"by":' + b"[" * 100 + b"]" * 100 + b"}")
        assert refusal.value.code == "TOO_DEEP"
        assert int(told(await session.step(ADD))["steps"]) == 1


async def test_a_limited_rate_slows_a_client_down_and_loses_nothing() -> None:
    with serving(COUNTING, limits={"requests_per_second": 100.0, "burst": 5}) as there:
        async with on(there.url) as session:
            await session.reset(b"")
            assert [told(await session.step(ADD))["steps"] for _ in range(20)] == list(range(1, 21))


Lie = Callable[[Fake, Request], Awaitable[None]]


def lying_seen(**numbers: int) -> Lie:
    async def lie(fake: Fake, request: Request) -> None:
        fake.step += 1
        epoch = numbers.get("epoch", fake.epoch)
        await fake.reply(
            request, "observation", fake.seen(**{k: v for k, v in numbers.items() if k == "step"}), epoch=epoch
        )

    return lie


async def another_session(fake: Fake, request: Request) -> None:
    await fake.reply(request, "observation", fake.seen(step=1), session="of another")


async def another_type(fake: Fake, request: Request) -> None:
    await fake.reply(request, "state", {"episode_id": "e", "step_count": 1})


async def no_step(fake: Fake, request: Request) -> None:
    seen = fake.seen()
    del seen["step"]
    await fake.reply(request, "observation", seen)


async def misshapen(fake: Fake, request: Request) -> None:
    await fake.reply(request, "observation", {"observation": {}, "reward": "much"})


async def error_of_another_epoch(fake: Fake, request: Request) -> None:
    await fake.reply(request, "error", {"message": "no", "code": "VALIDATION_ERROR"}, epoch=7)


@pytest.mark.parametrize(
    "lie",
    [
        lying_seen(step=2),
        lying_seen(step=0),
        lying_seen(epoch=2, step=1),
        lying_seen(epoch=0, step=1),
        another_session,
        another_type,
        no_step,
        misshapen,
        error_of_another_epoch,
    ],
)
async def test_a_lie_about_where_the_episode_stands_is_a_loss(lie: Lie) -> None:
    async with with_lies() as (fake, session):
        await session.reset(b"")
        fake.lies["step"] = lie
        with pytest.raises(EpisodeLost) as first:
            await session.step(ADD)
        fake.lies.clear()
        steps = len(fake.asked("step"))
        with pytest.raises(EpisodeLost) as second:
            await session.step(ADD)
        with pytest.raises(EpisodeLost):
            await session.state()
        assert first.value.code == second.value.code
        assert first.value.code in ("WRONG_EPISODE", "UNREADABLE")
        assert len(fake.asked("step")) == steps
        await session.reset(b"")
        assert told(await session.step(ADD)) == {"count": 1}


@pytest.mark.parametrize("numbers", [{"step": 1}, {"epoch": 5, "step": 0}, {"epoch": 0, "step": 0}])
async def test_a_lie_in_the_reply_to_a_reset_begins_no_episode(numbers: dict[str, int]) -> None:
    async with with_lies() as (fake, session):
        fake.lies["reset"] = lying_seen(**numbers)
        with pytest.raises(EpisodeLost):
            await session.reset(b"")
        with pytest.raises(EpisodeLost):
            await session.step(ADD)


async def test_a_state_of_another_epoch_is_a_loss() -> None:
    async with with_lies() as (fake, session):
        await session.reset(b"")
        fake.epoch = 9
        with pytest.raises(EpisodeLost):
            await session.state()


async def test_an_answer_to_state_that_is_none_is_a_loss() -> None:
    async with with_lies() as (fake, session):
        await session.reset(b"")
        fake.lies["state"] = lying_seen(step=0)
        with pytest.raises(EpisodeLost):
            await session.state()


async def test_a_reply_that_comes_twice_is_heard_once() -> None:
    async def twice(fake: Fake, request: Request) -> None:
        await fake.honest(request)
        await fake.reply(request, "observation", fake.seen())

    async with with_lies() as (fake, session):
        await session.reset(b"")
        fake.lies["step"] = twice

        assert [told(await session.step(ADD))["count"] for _ in range(5)] == [1, 2, 3, 4, 5]


async def test_a_session_without_a_name_is_none() -> None:
    async def nameless(fake: Fake, request: Request) -> None:
        await fake.reply(request, "opened", fake.opened, session=None)

    async with faking() as fake, Connection(fake.url) as connection:
        fake.lies["open"] = nameless
        with pytest.raises(ConnectionFailed):
            await connection.session()


async def test_a_reset_after_a_loss_names_no_epoch_and_others_do() -> None:
    async with with_lies() as (fake, session):
        await session.reset(b"")
        await session.reset(b"")
        fake.lies["step"] = misshapen
        with pytest.raises(EpisodeLost):
            await session.step(ADD)
        await session.reset(b"")

        assert [request.get("epoch") for request in fake.asked("reset")] == [0, 1, None]


SOON = 0.1
WAIT = b'{"by":1,"wait":true}'


@asynccontextmanager
async def faked(request: float = SOON, cancel: float = PATIENCE) -> Faked:
    async with with_lies(cancel_timeout=cancel) as (fake, session):
        await session.reset(b"")
        impatient(session, request)
        yield fake, session


def impatient(session: ClientSession[ObservationReply], seconds: float) -> None:
    """Have what comes next wait no longer than this; what came before had all the time that a slow machine needs."""
    session._seconds = seconds


async def silence(fake: Fake, request: Request) -> None:
    """Carry it out, and say nothing."""
    fake.step += 1


async def neglect(fake: Fake, request: Request) -> None:
    """Neither carry it out nor say anything."""


def outcome(word: str) -> Callable[[Fake, Request], Awaitable[None]]:
    async def answer(fake: Fake, request: Request) -> None:
        await fake.reply(request, "cancelled", {"id": request["data"]["id"], "outcome": word})

    return answer


async def healed(fake: Fake, session: ClientSession[ObservationReply]) -> None:
    """Make the server honest, once it has heard the cancel, and the client patient, so that no slow machine is a fault."""
    await until(lambda: fake.asked("cancel"))
    fake.lies.clear()
    impatient(session, PATIENCE)


async def open_gate_when(reached: bool) -> None:
    await asyncio.to_thread(GATE.reached.wait, PATIENCE)
    if reached:
        GATE.opened.set()


async def test_a_request_that_never_ran_is_a_time_out_and_the_episode_goes_on() -> None:
    async with faked() as (fake, session):
        fake.lies |= {"step": neglect, "cancel": outcome("dropped")}
        with pytest.raises(RequestTimeout):
            await session.step(ADD)
        assert fake.asked("cancel")[0]["data"] == {"id": fake.asked("step")[0]["id"]}
        await healed(fake, session)

        assert told(await session.step(ADD)) == {"count": 1}


async def test_a_request_that_was_finished_is_fetched_with_the_same_words() -> None:
    async def kept(fake: Fake, request: Request) -> None:
        if len(fake.asked("step")) == 1:
            fake.step += 1
        else:
            await fake.reply(request, "observation", fake.seen())

    async with faked() as (fake, session):
        fake.lies |= {"step": kept, "cancel": outcome("finished")}
        seen = await session.step(ADD)
        first, second = fake.asked("step")

        assert told(seen) == {"count": 1}
        assert first == second


@pytest.mark.parametrize("word", ["lost", "finished", "unknown", "a word of tomorrow"])
async def test_a_request_that_ran_and_whose_reply_is_not_to_be_had_is_a_loss(word: str) -> None:
    async with faked(cancel=0.1) as (fake, session):
        fake.lies |= {"step": silence, "cancel": outcome(word)}
        for _ in range(2):
            with pytest.raises(EpisodeLost):
                await session.step(ADD)
        await healed(fake, session)
        await session.reset(b"")

        assert told(await session.step(ADD)) == {"count": 1}


@pytest.mark.parametrize("kind", ["neglect", "error", "garbage"])
async def test_no_answer_to_a_cancel_is_a_loss(kind: str) -> None:
    async def error(fake: Fake, request: Request) -> None:
        await fake.reply(request, "error", {"message": "no", "code": "PROTOCOL_ERROR"})

    async def garbage(fake: Fake, request: Request) -> None:
        await fake.reply(request, "cancelled", "dropped")

    async with faked(cancel=0.1) as (fake, session):
        fake.lies |= {"step": neglect, "cancel": {"neglect": neglect, "error": error, "garbage": garbage}[kind]}
        with pytest.raises(EpisodeLost) as loss:
            await session.step(ADD)
        assert loss.value.code == "NO_ANSWER"


async def test_a_reply_that_comes_while_its_request_is_taken_back_counts() -> None:
    async def late(fake: Fake, request: Request) -> None:
        await fake.reply(fake.asked("step")[0], "observation", fake.seen())
        await outcome("finished")(fake, request)

    async with faked() as (fake, session):
        fake.lies |= {"step": silence, "cancel": late}

        assert told(await session.step(ADD)) == {"count": 1}
        assert len(fake.asked("step")) == 1


async def test_a_reply_that_comes_after_its_request_was_dropped_is_not_heard() -> None:
    async with faked() as (fake, session):
        fake.lies["step"] = neglect
        with pytest.raises(RequestTimeout):
            await session.step(ADD)
        await fake.reply(fake.asked("step")[0], "observation", {**fake.seen(), "observation": {"count": "late"}})
        await healed(fake, session)

        assert told(await session.step(ADD)) == {"count": 1}


async def test_a_real_step_that_runs_for_too_long_takes_its_episode_with_it(served: Served) -> None:
    async with Connection(served.url, settings=ConnectionSettings(cancel_timeout=PATIENCE)) as connection:
        session = await connection.session()
        first = told(await session.reset(b""))
        impatient(session, SOON)
        with pytest.raises(EpisodeLost):
            await session.step(WAIT)
        with pytest.raises(EpisodeLost):
            await session.step(ADD)
        GATE.opened.set()
        impatient(session, PATIENCE)
        second = told(await session.reset(b""))

    assert first["instance"] != second["instance"]


async def test_a_real_request_that_waits_behind_another_is_dropped(served: Served) -> None:
    async with Connection(served.url) as slow:
        session = await slow.session()
        await session.reset(b"")
        running = asyncio.create_task(session.step(WAIT))
        await open_gate_when(reached=False)
        # Asked past the session's own order, so that it waits in the server's queue.
        pending = slow.ask("step", ADD, session=session, epoch=1)
        cancel = slow.ask("cancel", b'{"id":%d}' % (pending.number or 0), session=session)
        answer = await cancel.answer(PATIENCE)
        assert answer is not None
        assert b"dropped" in bytes(answer.data)
        GATE.opened.set()
        await running
        result = int(told(await session.step(ADD))["steps"])

    assert result == 2


class TestACallerWhoGoes:
    """`asyncio.timeout` around a call, or a task that is cancelled."""

    async def test_leaves_the_episode_where_it_was_if_the_request_was_dropped(self) -> None:
        async with faked(PATIENCE) as (fake, session):
            fake.lies["step"] = neglect
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await session.step(ADD)
            await healed(fake, session)

            assert told(await session.step(ADD)) == {"count": 1}
            assert len(fake.asked("cancel")) == 1

    @pytest.mark.parametrize("word", ["lost", "finished"])
    async def test_loses_the_episode_if_the_step_took_place(self, word: str) -> None:
        async with faked(PATIENCE, cancel=0.1) as (fake, session):
            fake.lies |= {"step": silence, "cancel": outcome(word)}
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await session.step(ADD)
            await healed(fake, session)
            with pytest.raises(EpisodeLost):
                await session.step(ADD)
            await session.reset(b"")

            assert told(await session.step(ADD)) == {"count": 1}

    async def test_loses_the_episode_if_the_reply_was_there_and_nobody_heard_it(self, served: Served) -> None:
        async with Connection(served.url) as connection:
            session = await connection.session()
            await session.reset(b"")
            task = asyncio.create_task(session.step(WAIT))
            await open_gate_when(reached=True)
            task.cancel()
            await asyncio.wait([task])
            with pytest.raises(EpisodeLost) as loss:
                await session.step(ADD)
            result = loss.value.code

        assert result in ("UNHEARD", "NO_ANSWER", "CANCELLED", "EPISODE_LOST")

    async def test_loses_nothing_if_the_request_was_refused(self) -> None:
        async def refuse(fake: Fake, request: Request) -> None:
            await fake.reply(request, "error", {"message": "no", "code": "VALIDATION_ERROR"})

        async with faked(PATIENCE) as (fake, session):
            fake.lies["step"] = neglect
            task = asyncio.create_task(session.step(ADD))
            await until(lambda: fake.asked("step"))
            await refuse(fake, fake.asked("step")[0])
            task.cancel()
            await asyncio.wait([task])
            fake.lies.clear()

            assert told(await session.step(ADD)) == {"count": 1}

    async def test_loses_the_episode_if_the_error_says_so(self) -> None:
        async with faked(PATIENCE) as (fake, session):

            async def lost(fake: Fake, request: Request) -> None:
                await fake.reply(
                    fake.asked("step")[0], "error", {"message": "no", "code": "STEP_TIMEOUT", "lost": True}
                )
                await outcome("lost")(fake, request)

            fake.lies |= {"step": neglect, "cancel": lost}
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await session.step(ADD)
            await healed(fake, session)
            with pytest.raises(EpisodeLost) as loss:
                await session.step(ADD)

            assert loss.value.code == "STEP_TIMEOUT"

    async def test_may_go_a_second_time_while_the_first_is_cleaned_up(self) -> None:
        async with faked(PATIENCE) as (fake, session):
            fake.lies |= {"step": neglect, "cancel": neglect}
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await session.step(ADD)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await session.step(ADD)
            await until(lambda: fake.asked("cancel"))
            await fake.reply(fake.asked("cancel")[0], "cancelled", {"id": 3, "outcome": "dropped"})
            await healed(fake, session)

            assert told(await session.step(ADD)) == {"count": 1}
            assert len(fake.asked("step")) == 2

    async def test_may_go_while_a_request_that_took_too_long_is_taken_back(self) -> None:
        async with faked() as (fake, session):
            fake.lies |= {"step": neglect, "cancel": neglect}
            task = asyncio.create_task(session.step(ADD))
            await until(lambda: fake.asked("cancel"))
            task.cancel()
            await asyncio.wait([task])
            await fake.reply(fake.asked("cancel")[0], "cancelled", {"id": 3, "outcome": "dropped"})
            await healed(fake, session)

            assert task.cancelled()
            assert told(await session.step(ADD)) == {"count": 1}

    async def test_loses_nothing_with_a_state(self) -> None:
        async def slow(fake: Fake, request: Request) -> None:
            await fake.reply(fake.asked("state")[0], "state", {"episode_id": "e", "step_count": 0})
            await outcome("finished")(fake, request)

        async with faked(PATIENCE) as (fake, session):
            fake.lies |= {"state": neglect, "cancel": slow}
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await session.state()
            await healed(fake, session)

            assert told(await session.step(ADD)) == {"count": 1}


async def test_a_session_that_is_closed_does_not_wait_for_what_runs(served: Served) -> None:
    async with Connection(served.url, settings=ConnectionSettings(cancel_timeout=0.1)) as connection:
        session = await connection.session()
        await session.reset(b"")
        running = asyncio.create_task(session.step(WAIT))
        await open_gate_when(reached=False)
        await session.close()
        with pytest.raises(ConnectionFailed, match="closed"):
            await running


async def until(holds: Callable[[], Any]) -> None:
    """Return when it holds; fail if it never does."""
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await asyncio.sleep(0.001)
