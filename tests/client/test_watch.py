"""What agents do, followed from afar: every row once, in order, to the end of the episode, or a word about what is missing."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.client import agents
from proctor.client.agents import Transition, TransitionReader
from proctor.client.connection import ConnectionSettings
from proctor.client.replies import EpisodeLoss, EpisodePosition, LossReason
from proctor.client.session import ClientSession
from proctor.errors import (
    ConnectionFailed,
    EpisodeLost,
    Missed,
    RemoteError,
    RequestTimeout,
    StateError,
    ValidationError,
)
from proctor.models import control
from proctor.models.control import ObservationReply, RawReply
from proctor.models.wire import Observation
from tests.client.counting import Count
from tests.client.fake_server import Fake, Request, faking
from tests.client.test_grants import FakeClient, with_fake
from tests.client.test_recovery import QUICK
from tests.client.test_session import neglect, until

pytestmark = pytest.mark.anyio

Rows = list[Transition[Any, Any]]


async def read(client: FakeClient, after: int = 0, **how: Any) -> Rows:
    return [row async for row in client.watch(after, **how)]


async def follow(client: FakeClient, seen: Rows) -> None:
    """Put each row into `seen` when it comes."""
    async for row in client.watch():
        seen.append(row)


async def came(seen: Rows, count: int) -> None:
    await until(lambda: len(seen) == count)


def numbers(rows: Rows) -> list[int]:
    return [row.row for row in rows]


@contextmanager
def waiting(seconds: float) -> Iterator[None]:
    """Have the server say that there is no news after so many seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agents, "WAIT_SECONDS", seconds)
        yield


async def test_a_row_has_the_client_s_types_and_all_that_is_told() -> None:
    async with with_fake() as (fake, client):
        fake.act(by=3, metadata={"hint": 1}, parts={"scale": 1.5}, terminated=True)
        (row,) = await read(client)

        assert (type(row.action), row.action) == (Count, Count(by=3))
        assert (row.observation.count, row.observation.metadata) == (1, {"hint": 1})
        assert (row.reward, row.raw_reward, row.parts) == (3.0, 1.5, {"scale": 1.5})
        assert (row.terminated, row.truncated, row.done) == (True, False, True)
        assert (row.epoch, row.step, row.at, row.grant, row.agent, row.tool) == (1, 1, 5.0, "g1", "a", "count")


async def test_rows_come_as_they_happen_until_the_episode_is_over() -> None:
    async with with_fake() as (fake, client):
        seen: Rows = []
        following = asyncio.create_task(follow(client, seen))
        for count in range(1, 6):
            fake.act()
            await came(seen, count)
        assert not following.done()
        fake.act(truncated=True)
        await following

        assert numbers(seen) == [1, 2, 3, 4, 5, 6]
        assert [row.done for row in seen] == [False] * 5 + [True]
        # After the row that ended the episode nothing more is asked.
        assert len(fake.asked("watch")) <= 7
        assert fake.asked("wait_end") == []


async def test_an_episode_in_which_no_agent_did_anything_has_no_rows() -> None:
    async with with_fake() as (fake, client):
        fake.end(terminated=True)

        assert await read(client) == []


async def test_the_reader_goes_on_after_the_row_that_it_has() -> None:
    async with with_fake() as (fake, client):
        for _ in range(5):
            fake.act()
        fake.act(terminated=True)

        assert numbers(await read(client, after=2)) == [3, 4, 5, 6]
        assert numbers(await read(client)) == [1, 2, 3, 4, 5, 6]
        assert fake.asked("watch")[0]["data"]["after"] == 2
        assert fake.asked("watch")[0]["epoch"] == 1


async def test_many_rows_come_in_pages() -> None:
    async with with_fake() as (fake, client):
        for _ in range(2500):
            fake.act()
        fake.end(terminated=True)

        assert numbers(await read(client)) == list(range(1, 2501))
        assert len(fake.asked("watch")) >= 3


@pytest.mark.parametrize("after", [-1, True, 1.5, "3"])
async def test_what_is_no_row_number_is_refused(after: Any) -> None:
    async with with_fake() as (_, client):
        with pytest.raises(ValidationError, match="row number"):
            client.watch(after)
        with pytest.raises(ValidationError, match="missed"):
            client.watch(on_missed="ignore")  # type: ignore[arg-type]


async def test_rows_that_do_not_fit_the_models_are_refused() -> None:
    async with with_fake() as (fake, client):
        fake.act(observation={"other": 1})
        with pytest.raises(ValidationError, match="does not fit Number"):
            await read(client)


async def test_rows_of_earlier_episodes_are_neither_shown_nor_fetched_again() -> None:
    async with with_fake() as (fake, client):
        fake.act()
        fake.act(terminated=True)
        first = await read(client)
        await client.reset()
        fake.act()
        fake.act(terminated=True)
        second = await read(client)

        assert (numbers(first), numbers(second)) == ([1, 2], [3, 4])
        assert fake.asked("watch")[-1]["data"]["after"] == 2


async def test_a_reset_ends_the_reading_of_the_episode_before_it() -> None:
    async with with_fake() as (fake, client):
        fake.act()
        rows = client.watch()
        seen = [await anext(rows)]
        reading = asyncio.ensure_future(anext(rows, None))
        await until(lambda: len(fake.asked("watch")) == 2)
        await client.reset()
        fake.act()

        assert await reading is None
        assert numbers(seen) == [1]


async def test_a_reset_ends_the_reading_also_where_no_agent_acts_after_it() -> None:
    async with with_fake() as (fake, client):
        reading = asyncio.create_task(read(client))
        await until(lambda: fake.asked("watch"))
        await client.reset()

        assert await reading == []
        assert len(fake.asked("watch")) == 1


async def test_rows_of_later_episodes_are_not_fetched_for_an_earlier_one() -> None:
    async with with_fake() as (fake, client):
        rows = client.watch()
        fake.act()
        await client.reset()
        for _ in range(2500):
            fake.act()

        assert [row.row async for row in rows] == [1]
        assert len(fake.asked("watch")) == 1


async def test_an_episode_that_its_orchestrator_ended_is_over_for_the_reader() -> None:
    async with with_fake(shared=True) as (fake, client):
        await client.grant()
        fake.act()
        fake.end(terminated=True)

        assert numbers(await read(client)) == [1]
        assert (await client.wait_end()).terminated


async def test_the_rows_of_an_episode_that_broke_off_end_with_a_loss() -> None:
    async with with_fake() as (fake, client):
        await client.grant()
        fake.act()
        fake.act()
        fake.end(lost=True)
        seen: Rows = []
        with pytest.raises(EpisodeLost):
            await follow(client, seen)
        with pytest.raises(EpisodeLost):
            await client.step(Count())

        assert numbers(seen) == [1, 2]


async def test_the_rows_of_an_episode_that_the_client_gave_up_can_still_be_read() -> None:
    async with with_fake() as (fake, client):
        fake.act()
        client.session.position.lose(EpisodeLoss("a step took place unheard", LossReason.UNHEARD))
        fake.act(terminated=True)

        assert numbers(await read(client)) == [1, 2]


async def test_after_the_last_row_a_step_is_refused_here() -> None:
    async with with_fake() as (fake, client):
        await client.grant()
        fake.act(terminated=True)
        await read(client)
        with pytest.raises(StateError):
            await client.step(Count())

        assert fake.asked("step") == []


async def test_missed_rows_are_told_with_their_number_and_with_the_way_on() -> None:
    async with with_fake() as (fake, client):
        for _ in range(10):
            fake.act()
        fake.act(terminated=True)
        fake.forgotten = 4
        with pytest.raises(Missed) as missed:
            await read(client)

        assert (missed.value.missed, missed.value.next_row) == (4, 5)
        assert "watch(after=4)" in str(missed.value)
        assert numbers(await read(client, after=missed.value.next_row - 1)) == [5, 6, 7, 8, 9, 10, 11]
        assert numbers(await read(client, on_missed="skip")) == [5, 6, 7, 8, 9, 10, 11]


async def test_one_who_goes_on_after_missed_rows_gets_all_that_are_left() -> None:
    async with with_fake() as (fake, client):
        for _ in range(6):
            fake.act()
        fake.forgotten = 3
        rows = client.watching()
        with pytest.raises(Missed):
            await rows.more()

        assert numbers(await rows.more()) == [4, 5, 6]


async def test_one_who_does_not_follow_ends_with_the_last_row_that_there_is() -> None:
    async with with_fake() as (fake, client):
        assert numbers(await read(client, follow=False)) == []
        for _ in range(3):
            fake.act()

        assert numbers(await read(client, follow=False)) == [1, 2, 3]
        assert numbers(await read(client, 2, follow=False)) == [3]


async def test_rows_that_are_missed_on_the_way_are_told() -> None:
    async with with_fake() as (fake, client):
        fake.act()
        rows = client.watch()
        await anext(rows)
        for _ in range(5):
            fake.act()
        fake.forgotten = 3
        with pytest.raises(Missed) as missed:
            await anext(rows)

        assert (missed.value.missed, missed.value.next_row) == (2, 4)


async def test_missed_rows_of_earlier_episodes_are_no_matter() -> None:
    async with with_fake() as (fake, client):
        for _ in range(10):
            fake.act()
        await client.reset()
        fake.act()
        fake.act(terminated=True)
        fake.forgotten = 10
        exact = numbers(await read(client))
        fake.forgotten = 4

        assert exact == [11, 12]
        assert numbers(await read(client)) == [11, 12]


async def test_of_missed_rows_only_those_of_this_episode_count() -> None:
    async with with_fake() as (fake, client):
        for _ in range(10):
            fake.act()
        await client.reset()
        for _ in range(3):
            fake.act()
        fake.forgotten = 12
        with pytest.raises(Missed) as missed:
            await read(client)

        assert (missed.value.missed, missed.value.next_row) == (2, 13)


async def test_a_broken_connection_costs_no_row_and_shows_none_twice() -> None:
    async with with_fake(backoff=QUICK.backoff) as (fake, client):
        await client.grant()
        seen: Rows = []
        following = asyncio.create_task(follow(client, seen))
        for count in range(1, 5):
            await until(lambda: client.connection._find_pending(client.session))
            await fake.cut()
            fake.act()
            await came(seen, count)
        fake.act(terminated=True)
        await following

        assert numbers(seen) == [1, 2, 3, 4, 5]
        assert fake.connections == 5


async def test_steps_of_agents_while_the_connection_was_broken_are_no_loss() -> None:
    async with with_fake(backoff=QUICK.backoff) as (fake, client):
        await client.reset(grant=True)
        await fake.cut()
        fake.act()
        fake.act()
        seen = await client.step(Count())

        assert seen.count == 3


async def test_reading_and_other_calls_do_not_wait_for_each_other() -> None:
    async with with_fake(shared=True) as (fake, client):
        await client.grant()
        rows = client.watch()
        reading = asyncio.ensure_future(anext(rows))
        ending = asyncio.create_task(client.wait_end())
        await until(lambda: fake.asked("watch") and fake.asked("wait_end"))
        seen = await client.step(Count())
        await client.state()
        fake.lies["step"] = neglect
        stuck = asyncio.create_task(client.step(Count()))
        await until(lambda: len(fake.asked("step")) == 2)
        fake.act(terminated=True)
        told = await asyncio.gather(reading, ending)
        stuck.cancel()

        assert seen.count == 1
        assert (told[0].row, told[1].over) == (1, True)


async def test_a_reader_that_goes_away_leaves_nothing_behind() -> None:
    async with with_fake() as (fake, client):
        rows = client.watch()
        reading = asyncio.ensure_future(anext(rows))
        await until(lambda: fake.asked("watch"))
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        left = client.connection._find_pending(client.session)
        fake.act(terminated=True)

        assert left == []
        assert fake.asked("cancel") == []
        assert numbers(await read(client)) == [1]


async def test_closing_ends_the_reading() -> None:
    async with with_fake() as (fake, client):
        reading = asyncio.create_task(read(client))
        await until(lambda: fake.asked("watch"))
        await client.close()
        with pytest.raises(ConnectionFailed):
            await reading


def test_a_server_waits_less_long_than_its_client() -> None:
    async def slow(fake: Fake, request: Request) -> None:
        loop, later = asyncio.get_running_loop(), request["data"]["wait_seconds"]
        loop.time = lambda: time.monotonic() + later  # type: ignore[method-assign]  # so long has passed at once
        await fake.honest(request)

    async def test() -> None:
        async with with_fake(request_timeout=90, ping_interval=10_000) as (fake, client):
            fake.lies["watch"] = slow
            fake.act(terminated=True)

            assert numbers(await read(client)) == [1]

    with waiting(100):
        asyncio.run(test())


async def test_a_server_that_does_not_answer_a_reader_is_a_time_out_and_the_episode_goes_on() -> None:
    with waiting(0.05):
        async with with_fake() as (fake, client):
            fake.lies |= {"watch": neglect, "wait_end": neglect}
            connection: Any = client.connection
            patient, connection.settings = connection.settings, ConnectionSettings(request_timeout=0.1)
            with pytest.raises(RequestTimeout):
                await read(client)
            with pytest.raises(RequestTimeout):
                await client.wait_end()
            connection.settings = patient

            assert (await client.step(Count())).count == 1
            assert fake.asked("cancel") == []


async def test_no_news_is_asked_for_again() -> None:
    with waiting(0.01):
        async with with_fake() as (fake, client):
            reading = asyncio.create_task(read(client))
            ending = asyncio.create_task(client.wait_end())
            await until(lambda: len(fake.asked("watch")) > 2 and len(fake.asked("wait_end")) > 2)
            fake.act(terminated=True)

            assert numbers(await reading) == [1]
            assert (await ending).over


@pytest.mark.parametrize("rows", [[2], [1, 3], [1, 1], [2, 1], [0]])
async def test_rows_that_are_not_those_that_follow_are_not_believed(rows: list[int]) -> None:
    async def disorder(fake: Fake, request: Request) -> None:
        told = [{**fake.rows[0], "row": number} for number in rows]
        await fake.reply(request, "watched", {"rows": told, "last": 3, "missed": 0, "over": False})

    async with with_fake() as (fake, client):
        fake.act()
        fake.lies["watch"] = disorder
        with pytest.raises(ConnectionFailed, match="not in order"):
            await read(client)


@pytest.mark.parametrize(
    ("kind", "data", "other"),
    [
        ("watched", {"rows": [{"row": 1}], "last": 1, "missed": 0, "over": False}, {}),
        ("watched", {"rows": []}, {}),
        ("observation", {}, {}),
        ("watched", {"rows": [], "last": 0, "missed": 0, "over": True}, {"session": "another"}),
    ],
)
async def test_an_answer_to_a_reader_that_cannot_be_read_is_not_believed(kind: str, data: Any, other: Any) -> None:
    async def nonsense(fake: Fake, request: Request) -> None:
        await fake.reply(request, kind, data, **other)

    async with with_fake() as (fake, client):
        fake.lies["watch"] = nonsense
        with pytest.raises(ConnectionFailed):
            await read(client)

        assert (await client.step(Count())).count == 1


async def test_a_refused_reader_hears_the_code_and_the_episode_goes_on() -> None:
    async def busy(fake: Fake, request: Request) -> None:
        await fake.reply(request, "error", {"message": "too many readers", "code": "BUSY"}, epoch=9)

    async with with_fake() as (fake, client):
        fake.lies["watch"] = busy
        with pytest.raises(RemoteError, match="too many") as refusal:
            await read(client)

        assert refusal.value.code == "BUSY"
        assert (await client.step(Count())).count == 1


async def test_a_session_that_its_server_has_forgotten_is_a_loss_for_its_readers() -> None:
    async def forgotten(fake: Fake, request: Request) -> None:
        await fake.reply(request, "error", {"message": "no such session", "code": "EPISODE_LOST"})

    async def once(fake: Fake, request: Request) -> None:
        fake.lies.clear()
        await forgotten(fake, request)
        fake.session, fake.epoch = "s2", 0

    async with with_fake() as (fake, client):
        late = client.watch()
        fake.lies |= {"watch": forgotten, "reset": once}
        with pytest.raises(EpisodeLost):
            await read(client)
        await client.reset()
        fake.act(terminated=True)
        with pytest.raises(EpisodeLost):
            await anext(late)

        assert client.session.name == "s2"
        assert numbers(await read(client)) == [1]


async def test_a_session_that_is_gone_has_no_rows_and_no_grants() -> None:
    async with with_fake() as (fake, client):
        client.session.lose("the server was started anew", LossReason.SERVER_RESTARTED)
        with pytest.raises(EpisodeLost, match="started anew"):
            client.watch()
        for call in (client.wait_end(), client.revoke("g1"), client.grant()):
            with pytest.raises(EpisodeLost, match="started anew"):
                await call

        assert [request["type"] for request in fake.requests] == ["hello", "open", "reset"]


async def test_whoever_waits_for_the_end_hears_how_it_came() -> None:
    async with with_fake() as (fake, client):
        waiting_for_it = asyncio.create_task(client.wait_end(timeout=300))
        await until(lambda: fake.asked("wait_end"))
        fake.act(by=2)
        fake.act(by=3, truncated=True)
        told = await waiting_for_it

        assert (told.over, told.epoch, told.steps, told.total_reward) == (True, 1, 2, 5.0)
        assert (told.terminated, told.truncated, told.lost) == (False, True, False)
        with pytest.raises(StateError):
            await client.step(Count())
        assert fake.asked("step") == []
        assert 0 < fake.asked("wait_end")[0]["data"]["wait_seconds"] <= 20


async def test_an_episode_that_goes_on_for_longer_is_a_time_out() -> None:
    async with with_fake() as (fake, client):
        for seconds in (0, 0.05):
            with pytest.raises(RequestTimeout, match="not ended"):
                await client.wait_end(timeout=seconds)
        fake.end(terminated=True)

        assert (await client.wait_end(timeout=0)).over


@pytest.mark.parametrize("seconds", [-1, float("nan")])
async def test_what_is_no_time_is_refused(seconds: float) -> None:
    async with with_fake() as (_, client):
        with pytest.raises(ValidationError):
            await client.wait_end(timeout=seconds)


async def test_an_episode_that_broke_off_is_told_as_lost_and_then_is_lost() -> None:
    async with with_fake() as (fake, client):
        fake.end(lost=True)
        told = await client.wait_end()
        with pytest.raises(EpisodeLost):
            await client.step(Count())

        assert (told.over, told.lost) == (True, True)
        assert (await client.reset()).count == 0


async def test_waiting_for_an_episode_that_a_reset_gave_up_is_refused() -> None:
    async with with_fake() as (fake, client):
        waiting_for_it = asyncio.create_task(client.wait_end())
        await until(lambda: fake.asked("wait_end"))
        await client.reset()
        with pytest.raises(StateError, match="another episode"):
            await waiting_for_it


async def test_all_of_it_is_there_without_await() -> None:
    def play(url: str, act: Callable[[], None]) -> tuple[Any, ...]:
        with FakeClient.blocking(url) as client:
            client.reset(grant=True)
            assert client.granted is not None
            act()
            rows = list(client.watch())
            told = client.wait_end(timeout=300)
            client.reset()
            grant = client.grant("second", tools=["look"])
            return numbers(rows), told.over, client.granted, grant.grant, client.revoke(grant)

    loop = asyncio.get_running_loop()
    async with asyncio.timeout(300), faking() as fake:

        def act() -> None:
            loop.call_soon_threadsafe(fake.act)
            loop.call_soon_threadsafe(fake.act)
            loop.call_soon_threadsafe(partial(fake.act, terminated=True))

        result = await asyncio.to_thread(play, fake.url, act)

    assert result == ([1, 2, 3], True, None, "g2", True)


class Memory:
    """A session with `most` rows in its memory at a time; `plan` says how many rows are written before each answer."""

    def __init__(self, episodes: list[int], plan: list[int], most: int, page: int, epoch: int) -> None:
        steps = [(number, step, count) for number, count in enumerate(episodes, 1) for step in range(1, count + 1)]
        self.rows = [self._row(row, *each) for row, each in enumerate(steps, 1)]
        self.plan, self.most, self.page = plan, most, page
        self.written = 0
        self.episodes = episodes
        self.name = "s"
        self.position = EpisodePosition(epoch)

    @staticmethod
    def _row(row: int, epoch: int, step: int, count: int) -> dict[str, Any]:
        told = {"row": row, "epoch": epoch, "step": step, "at": 0, "grant": "g", "agent": "", "tool": "t", "action": {}}
        return {
            **told,
            "observation": {},
            "raw_reward": 0,
            "reward": 0,
            "terminated": step == count,
            "truncated": False,
        }

    def running_epoch(self) -> int:
        return self.position.epoch

    async def poll(self, kind: str, data: bytes, epoch: int, wait_seconds: float) -> RawReply:
        # Somebody always acts before the plan's end; after it everything happens at once.
        self.written = min(len(self.rows), self.written + (self.plan.pop(0) if self.plan else len(self.rows)))
        if kind == "wait_end":
            return self._reply("ended", {"over": True, "epoch": 0, "episode_id": "", "steps": 0, "total_reward": 0.0})
        order = msgspec.json.decode(data)
        # The reset that began the reader's episode came first.
        here = max([self.position.epoch, *(row["epoch"] for row in self.rows[: self.written])])
        over = self.written == len(self.rows)
        first = max(order.get("after", 0), self.written - self.most)
        told = {
            "rows": self.rows[first : min(self.written, first + self.page)],
            "last": self.written,
            "missed": max(0, first - order.get("after", 0)),
            "over": over or self.rows[self.written]["epoch"] > here,
        }
        return self._reply("watched", told, here)

    @staticmethod
    def _reply(kind: str, data: Any, epoch: int = 0) -> RawReply:
        flags = {} if kind == "watched" else {"terminated": True, "truncated": False, "lost": False}
        return RawReply(kind, msgspec.Raw(msgspec.json.encode({**data, **flags})), 1, "s", epoch)


class Blank(Observation):
    """Nothing is seen."""


@given(
    st.lists(st.integers(1, 8), min_size=1, max_size=4),
    st.lists(st.integers(0, 5), max_size=12),
    st.integers(1, 30),
    st.integers(1, 5),
    st.data(),
)
async def test_a_reader_gets_the_rows_of_its_episode_in_order_and_once(
    episodes: list[int], plan: list[int], most: int, page: int, data: st.DataObject
) -> None:
    epoch = data.draw(st.integers(1, len(episodes)))
    memory = Memory(episodes, plan, most, page, epoch)
    own = [row["row"] for row in memory.rows if row["epoch"] == epoch]
    memory.written = data.draw(st.integers(own[0] - 1, len(memory.rows)))

    def plainly(row: control.WatchedStep) -> Any:
        return row

    rows: TransitionReader[Count, Blank] = TransitionReader(
        cast("ClientSession[ObservationReply]", memory), plainly, on_missed="skip"
    )
    found = [row.row async for row in rows.iterate()]

    assert found == sorted(set(found))
    assert set(found) <= set(own)
    if len(memory.rows) <= most:
        assert found == own
