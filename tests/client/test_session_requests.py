"""Every request has a known end: in time, taken back, fetched late, or lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from proctor.client.connection import Connection, ConnectionSettings
from proctor.client.session import ClientSession
from proctor.errors import ConnectionFailed, EpisodeLost, RequestTimeout
from proctor.models.control import ObservationReply
from tests.client.counting import GATE, PATIENCE
from tests.client.fake_server import Fake, Request, faking
from tests.client.test_session import ADD, told
from tests.server.live_server import Served

SOON = 0.1
WAIT = b'{"by":1,"wait":true}'


def faked(
    test: Callable[[Fake, ClientSession[ObservationReply]], Awaitable[None]],
    request: float = SOON,
    cancel: float = PATIENCE,
) -> None:
    async def main() -> None:
        async with (
            faking() as fake,
            Connection(fake.url, settings=ConnectionSettings(cancel_timeout=cancel)) as connection,
        ):
            session = await connection.session()
            await session.reset(b"")
            impatient(session, request)
            await test(fake, session)

    asyncio.run(main())


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


def test_a_request_that_never_ran_is_a_time_out_and_the_episode_goes_on() -> None:
    async def test(fake: Fake, session: ClientSession[ObservationReply]) -> None:
        fake.lies |= {"step": neglect, "cancel": outcome("dropped")}
        with pytest.raises(RequestTimeout):
            await session.step(ADD)
        assert fake.asked("cancel")[0]["data"] == {"id": fake.asked("step")[0]["id"]}
        await healed(fake, session)

        assert told(await session.step(ADD)) == {"count": 1}

    faked(test)


def test_a_request_that_was_finished_is_fetched_with_the_same_words() -> None:
    async def kept(fake: Fake, request: Request) -> None:
        if len(fake.asked("step")) == 1:
            fake.step += 1
        else:
            await fake.reply(request, "observation", fake.seen())

    async def test(fake: Fake, session: ClientSession[ObservationReply]) -> None:
        fake.lies |= {"step": kept, "cancel": outcome("finished")}
        seen = await session.step(ADD)
        first, second = fake.asked("step")

        assert told(seen) == {"count": 1}
        assert first == second

    faked(test)


@pytest.mark.parametrize("word", ["lost", "finished", "unknown", "a word of tomorrow"])
def test_a_request_that_ran_and_whose_reply_is_not_to_be_had_is_a_loss(word: str) -> None:
    async def test(fake: Fake, session: ClientSession[ObservationReply]) -> None:
        fake.lies |= {"step": silence, "cancel": outcome(word)}
        for _ in range(2):
            with pytest.raises(EpisodeLost):
                await session.step(ADD)
        await healed(fake, session)
        await session.reset(b"")

        assert told(await session.step(ADD)) == {"count": 1}

    faked(test, cancel=0.1)


@pytest.mark.parametrize("kind", ["neglect", "error", "garbage"])
def test_no_answer_to_a_cancel_is_a_loss(kind: str) -> None:
    async def error(fake: Fake, request: Request) -> None:
        await fake.reply(request, "error", {"message": "no", "code": "PROTOCOL_ERROR"})

    async def garbage(fake: Fake, request: Request) -> None:
        await fake.reply(request, "cancelled", "dropped")

    async def test(fake: Fake, session: ClientSession[ObservationReply]) -> None:
        fake.lies |= {"step": neglect, "cancel": {"neglect": neglect, "error": error, "garbage": garbage}[kind]}
        with pytest.raises(EpisodeLost) as loss:
            await session.step(ADD)
        assert loss.value.code == "NO_ANSWER"

    faked(test, cancel=0.1)


def test_a_reply_that_comes_while_its_request_is_taken_back_counts() -> None:
    async def late(fake: Fake, request: Request) -> None:
        await fake.reply(fake.asked("step")[0], "observation", fake.seen())
        await outcome("finished")(fake, request)

    async def test(fake: Fake, session: ClientSession[ObservationReply]) -> None:
        fake.lies |= {"step": silence, "cancel": late}

        assert told(await session.step(ADD)) == {"count": 1}
        assert len(fake.asked("step")) == 1

    faked(test)


def test_a_reply_that_comes_after_its_request_was_dropped_is_not_heard() -> None:
    async def test(fake: Fake, session: ClientSession[ObservationReply]) -> None:
        fake.lies["step"] = neglect
        with pytest.raises(RequestTimeout):
            await session.step(ADD)
        await fake.reply(fake.asked("step")[0], "observation", {**fake.seen(), "observation": {"count": "late"}})
        await healed(fake, session)

        assert told(await session.step(ADD)) == {"count": 1}

    faked(test)


def test_a_real_step_that_runs_for_too_long_takes_its_episode_with_it(served: Served) -> None:
    async def main() -> tuple[Any, Any]:
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
            return first, told(await session.reset(b""))

    first, second = asyncio.run(main())

    assert first["instance"] != second["instance"]


def test_a_real_request_that_waits_behind_another_is_dropped(served: Served) -> None:
    async def main() -> int:
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
            return int(told(await session.step(ADD))["steps"])

    assert asyncio.run(main()) == 2


class TestACallerWhoGoes:
    """`asyncio.timeout` around a call, or a task that is cancelled."""

    def test_leaves_the_episode_where_it_was_if_the_request_was_dropped(self) -> None:
        async def test(fake: Fake, session: ClientSession[ObservationReply]) -> None:
            fake.lies["step"] = neglect
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await session.step(ADD)
            await healed(fake, session)

            assert told(await session.step(ADD)) == {"count": 1}
            assert len(fake.asked("cancel")) == 1

        faked(test, PATIENCE)

    @pytest.mark.parametrize("word", ["lost", "finished"])
    def test_loses_the_episode_if_the_step_took_place(self, word: str) -> None:
        async def test(fake: Fake, session: ClientSession[ObservationReply]) -> None:
            fake.lies |= {"step": silence, "cancel": outcome(word)}
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await session.step(ADD)
            await healed(fake, session)
            with pytest.raises(EpisodeLost):
                await session.step(ADD)
            await session.reset(b"")

            assert told(await session.step(ADD)) == {"count": 1}

        faked(test, PATIENCE, cancel=0.1)

    def test_loses_the_episode_if_the_reply_was_there_and_nobody_heard_it(self, served: Served) -> None:
        async def main() -> str:
            async with Connection(served.url) as connection:
                session = await connection.session()
                await session.reset(b"")
                task = asyncio.create_task(session.step(WAIT))
                await open_gate_when(reached=True)
                task.cancel()
                await asyncio.wait([task])
                with pytest.raises(EpisodeLost) as loss:
                    await session.step(ADD)
                return loss.value.code

        assert asyncio.run(main()) in ("UNHEARD", "NO_ANSWER", "CANCELLED", "EPISODE_LOST")

    def test_loses_nothing_if_the_request_was_refused(self) -> None:
        async def refuse(fake: Fake, request: Request) -> None:
            await fake.reply(request, "error", {"message": "no", "code": "VALIDATION_ERROR"})

        async def test(fake: Fake, session: ClientSession[ObservationReply]) -> None:
            fake.lies["step"] = neglect
            task = asyncio.create_task(session.step(ADD))
            await until(lambda: fake.asked("step"))
            await refuse(fake, fake.asked("step")[0])
            task.cancel()
            await asyncio.wait([task])
            fake.lies.clear()

            assert told(await session.step(ADD)) == {"count": 1}

        faked(test, PATIENCE)

    def test_loses_the_episode_if_the_error_says_so(self) -> None:
        async def test(fake: Fake, session: ClientSession[ObservationReply]) -> None:
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

        faked(test, PATIENCE)

    def test_may_go_a_second_time_while_the_first_is_cleaned_up(self) -> None:
        async def test(fake: Fake, session: ClientSession[ObservationReply]) -> None:
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

        faked(test, PATIENCE)

    def test_may_go_while_a_request_that_took_too_long_is_taken_back(self) -> None:
        async def test(fake: Fake, session: ClientSession[ObservationReply]) -> None:
            fake.lies |= {"step": neglect, "cancel": neglect}
            task = asyncio.create_task(session.step(ADD))
            await until(lambda: fake.asked("cancel"))
            task.cancel()
            await asyncio.wait([task])
            await fake.reply(fake.asked("cancel")[0], "cancelled", {"id": 3, "outcome": "dropped"})
            await healed(fake, session)

            assert task.cancelled()
            assert told(await session.step(ADD)) == {"count": 1}

        faked(test)

    def test_loses_nothing_with_a_state(self) -> None:
        async def slow(fake: Fake, request: Request) -> None:
            await fake.reply(fake.asked("state")[0], "state", {"episode_id": "e", "step_count": 0})
            await outcome("finished")(fake, request)

        async def test(fake: Fake, session: ClientSession[ObservationReply]) -> None:
            fake.lies |= {"state": neglect, "cancel": slow}
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await session.state()
            await healed(fake, session)

            assert told(await session.step(ADD)) == {"count": 1}

        faked(test, PATIENCE)


def test_a_session_that_is_closed_does_not_wait_for_what_runs(served: Served) -> None:
    async def main() -> None:
        async with Connection(served.url, settings=ConnectionSettings(cancel_timeout=0.1)) as connection:
            session = await connection.session()
            await session.reset(b"")
            running = asyncio.create_task(session.step(WAIT))
            await open_gate_when(reached=False)
            await session.close()
            with pytest.raises(ConnectionFailed, match="closed"):
                await running

    asyncio.run(main())


async def until(holds: Callable[[], Any]) -> None:
    """Return when it holds; fail if it never does."""
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await asyncio.sleep(0.001)
