"""News reach everybody who listens, newest first and never in a heap; and nobody listens for ever."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from proctor.models.operator import Waiting
from proctor.server.runtime.results import RequestRefused
from proctor.server.viewer_http import feed as module
from proctor.server.viewer_http.feed import COMMENT, Feed, FeedListener
from proctor.server.viewer_http.readers import Changes, format_event
from proctor.viewer.documents import EpisodeLine

pytestmark = pytest.mark.anyio

NOON = 1_735_732_800.0
QUICK = 0.005


def line(chain: str, last: int = 1, **other: Any) -> EpisodeLine:
    fields: dict[str, Any] = dict.fromkeys(EpisodeLine.__struct_fields__) | {"chain": chain, "rows": last, "last": last}
    return EpisodeLine(**{**fields, **other})


def waiting(name: str) -> Waiting:
    return Waiting(name, "s", 1, "token", NOON, "May I?", [], Raw(b'{"a":\n1}'))


class Stand:
    """One who reads, with what a test puts before it."""

    def __init__(self, *lines: EpisodeLine) -> None:
        self.all = {each.chain: each for each in lines}
        self.changed: list[EpisodeLine] = []
        self.gone: list[str] = []
        self.looks = 0
        self.wholes: list[bool] = []
        self.trouble: Exception | None = None
        self.asks: list[Waiting] = []

    def put(self, each: EpisodeLine) -> None:
        self.all[each.chain] = each
        self.changed.append(each)

    def take_away(self, chain: str) -> None:
        del self.all[chain]
        self.gone.append(chain)

    async def whole(self, newly: bool) -> bytes:
        self.wholes.append(newly)
        return format_event("lines", msgspec.json.encode(list(self.all.values())))

    async def news(self) -> Changes:
        self.looks += 1
        if self.trouble is not None:
            raise self.trouble
        changed, self.changed, gone, self.gone = self.changed, [], self.gone, []
        return {each.chain: msgspec.json.encode(each) for each in changed} | dict.fromkeys(gone)

    def pending(self) -> list[Waiting]:
        return self.asks


class Peer:
    """One who listens: keeps what was sent, and leaves when told."""

    def __init__(self, feed: Feed, still: Callable[[], bool] = lambda: True) -> None:
        self.sent: list[dict[str, Any]] = []
        self.left = asyncio.Event()
        self.reads = asyncio.Event()
        self.reads.set()
        self.task = asyncio.ensure_future(self._listen(feed, still))

    async def _listen(self, feed: Feed, still: Callable[[], bool]) -> None:
        await feed.stream(await feed.join(), self._receive, self._send, still)

    async def _receive(self) -> dict[str, Any]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        await self.reads.wait()
        self.sent.append(dict(message))

    @property
    def told(self) -> list[tuple[str, Any]]:
        """The events so far, by name."""
        text = b"".join(each.get("body", b"") for each in self.sent).decode()
        blocks = [block.split("\n") for block in text.split("\n\n") if block.startswith("event: ")]
        return [
            (block[0].removeprefix("event: "), json.loads("\n".join(part.removeprefix("data: ") for part in block[1:])))
            for block in blocks
        ]

    def lasts(self, chain: str) -> list[int]:
        return [
            each["last"] for name, lines in self.told if name == "lines" for each in lines if each["chain"] == chain
        ]

    @property
    def comments(self) -> int:
        return sum(each.get("body") == COMMENT for each in self.sent)


def _has_last(peer: Peer, number: int) -> bool:
    return peer.lasts("a")[-1] == number


async def soon(holds: Callable[[], Any]) -> None:
    for _ in range(2000):
        if holds():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it never came true")


@asynccontextmanager
async def played(*lines: EpisodeLine, acts: bool = False, **more: float) -> AsyncIterator[tuple[Stand, Feed]]:
    """Yield a feed that looks often, and where it looks."""
    stand = Stand(*lines)
    feed = Feed(stand.whole, stand.news, stand.pending if acts else None, **{"pause": QUICK, **more})
    async with asyncio.timeout(300):
        yield stand, feed
    feed.stop()


# ------------------------------------------------------------------------------------------------------- what is told
async def test_who_comes_is_told_everything_at_once() -> None:
    async with played(line("a"), line("b"), acts=True) as (stand, feed):
        stand.asks = [waiting("q1")]
        peer = Peer(feed)
        await soon(lambda: len(peer.told) == 2)

        (first, lines), (second, pending) = peer.told
        assert (first, [each["chain"] for each in lines]) == ("lines", ["a", "b"])
        assert (second, [each["id"] for each in pending["waiting"]]) == ("pending", ["q1"])
        assert dict(peer.sent[0]["headers"])[b"content-type"].startswith(b"text/event-stream")


async def test_who_comes_to_an_empty_ledger_is_told_that_there_is_nothing() -> None:
    async with played() as (_stand, feed):
        peer = Peer(feed)
        await soon(lambda: peer.told)

        assert peer.told == [("lines", [])]


async def test_what_changes_is_told_to_all_and_what_does_not_is_not() -> None:
    async with played(line("a"), line("b")) as (stand, feed):
        peers = [Peer(feed), Peer(feed)]
        await soon(lambda: all(peer.told for peer in peers))
        stand.put(line("a", 2))
        await soon(lambda: all(peer.lasts("a") == [1, 2] for peer in peers))

        assert [peer.lasts("b") for peer in peers] == [[1], [1]]


async def test_who_comes_later_is_told_how_things_stand_by_then() -> None:
    async with played(line("a"), line("b")) as (stand, feed):
        first = Peer(feed)
        await soon(lambda: first.told)
        stand.put(line("a", 2))
        stand.take_away("b")
        await soon(lambda: first.lasts("a") == [1, 2])
        second = Peer(feed)
        await soon(lambda: second.lasts("a") == [2])

        assert ("gone", ["b"]) in first.told
        assert second.lasts("b") == []
        assert stand.wholes == [True, False]


async def test_of_all_who_come_at_once_the_first_is_told_what_changes_before_the_next_comes() -> None:
    async with played(line("a")) as (stand, feed):
        listeners = await asyncio.gather(*(feed.join() for _ in range(5)))

        assert all(listener.take() for listener in listeners)
        assert stand.wholes == [True, False, False, False, False]


async def test_when_nobody_has_listened_for_a_while_all_is_read_again() -> None:
    async with played(line("a")) as (stand, feed):
        peer = Peer(feed)
        await soon(lambda: peer.told)
        peer.left.set()
        await peer.task
        await soon(lambda: feed._polling is not None and feed._polling.done())
        stand.all["a"] = line("a", 7)
        again = Peer(feed)
        await soon(lambda: again.told)

        assert again.lasts("a") == [7]
        assert stand.wholes == [True, True]


def test_an_episode_that_is_gone_and_comes_back_is_there() -> None:
    listener = FeedListener()
    listener.tell({"a": None, "b": b"1"})
    listener.tell({"a": b"2", "b": None})

    assert listener.take() == [format_event("lines", b"[2]"), format_event("gone", b'["b"]')]


async def test_what_is_large_leaves_in_pieces_so_that_little_waits_for_who_does_not_read() -> None:
    async with played(*(line(f"chain-{number}") for number in range(1000))) as (_stand, feed):
        peer = Peer(feed)
        await soon(lambda: peer.told)

        assert len(peer.told[0][1]) == 1000
        assert max(len(each.get("body", b"")) for each in peer.sent) <= module.PIECE
        assert len(peer.sent) > 5


async def test_what_waits_is_told_when_it_changes() -> None:
    async with played(acts=True) as (stand, feed):

        def pendings() -> list[list[str]]:
            return [[each["id"] for each in told["waiting"]] for name, told in peer.told if name == "pending"]

        peer = Peer(feed)
        await soon(lambda: pendings() == [[]])
        stand.asks = [waiting("q1")]
        await soon(lambda: pendings()[-1] == ["q1"])
        stand.asks = []
        await soon(lambda: pendings()[-1] == [])

        assert len(pendings()) <= 4


async def test_a_slow_reader_gets_the_newest_line_and_nothing_heaps_up() -> None:
    async with played(line("a")) as (stand, feed):
        slow, quick = Peer(feed), Peer(feed)
        await soon(lambda: slow.told and quick.told)
        slow.reads.clear()
        for number in range(2, 30):
            stand.put(line("a", number))
            await soon(partial(_has_last, quick, number))
        slow.reads.set()
        await soon(lambda: slow.lasts("a")[-1] == 29)

        # One that it was being told when it stopped to read, and the newest.
        assert len(slow.lasts("a")) <= 3


async def test_while_nothing_happens_there_is_a_comment_now_and_then() -> None:
    async with played(comment=0.01) as (_stand, feed):
        peer = Peer(feed)
        await soon(lambda: peer.comments >= 2)


# --------------------------------------------------------------------------------------------------- who looks, and when
async def test_nobody_looks_unless_somebody_listens() -> None:
    async with played() as (stand, feed):
        assert stand.looks == 0

        peer = Peer(feed)
        await soon(lambda: stand.looks > 2)
        peer.left.set()
        await peer.task
        await soon(lambda: feed._polling is not None and feed._polling.done())
        again = Peer(feed)
        before = stand.looks
        await soon(lambda: stand.looks > before)
        again.left.set()
        await again.task

        assert not feed.listeners


async def test_one_looks_for_all() -> None:
    async with played() as (_stand, feed):
        peers = [Peer(feed) for _ in range(10)]
        await soon(lambda: all(peer.told for peer in peers))

        looking = [task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__name__", "") == "_poll"]
        assert len(looking) == 1


async def test_trouble_with_the_ledger_is_logged_once_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with played(line("a")) as (stand, feed):
        peer = Peer(feed)
        stand.trouble = OSError("the disk is gone")
        await soon(lambda: stand.looks > 5)
        stand.trouble = None
        stand.put(line("a", 2))
        await soon(lambda: peer.lasts("a")[-1:] == [2])

    assert caplog.text.count("could not be looked at") == 1


# ---------------------------------------------------------------------------------------------------------- how it ends
async def test_a_stream_ends_when_its_peer_leaves() -> None:
    async with played() as (_stand, feed):
        peer = Peer(feed)
        await soon(lambda: peer.told)
        peer.left.set()
        await asyncio.wait_for(peer.task, 300)

        assert not feed.listeners


async def test_streams_end_when_the_server_stops_and_none_begins() -> None:
    async with played() as (_stand, feed):
        peers = [Peer(feed), Peer(feed)]
        await soon(lambda: all(peer.told for peer in peers))
        feed.stop()
        await asyncio.wait_for(asyncio.gather(*(peer.task for peer in peers)), 300)

        assert all(peer.sent[-1] == {"type": "http.response.body", "body": b""} for peer in peers)
        with pytest.raises(RequestRefused):
            await Peer(feed).task


async def test_a_stream_ends_with_its_visit() -> None:
    async with played(line("a"), comment=0.05) as (stand, feed):
        welcome = [True]
        peer = Peer(feed, lambda: welcome[0])
        await soon(lambda: peer.told)
        welcome[0] = False
        stand.put(line("a", 2))
        await asyncio.wait_for(peer.task, 300)

        assert peer.lasts("a") == [1]


async def test_only_so_many_can_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LISTENERS", 2)
    async with played() as (_stand, feed):
        peers = [Peer(feed), Peer(feed)]
        await soon(lambda: all(peer.told for peer in peers))

        with pytest.raises(RequestRefused) as refusal:
            await Peer(feed).task
        assert refusal.value.problem.code == "BUSY"


async def test_who_cannot_be_told_everything_at_first_does_not_listen() -> None:
    async with played() as (stand, feed):

        async def fail(newly: bool) -> bytes:
            raise OSError("the disk is gone")

        feed = Feed(fail, stand.news)
        with pytest.raises(OSError, match="gone"):
            await feed.join()

        assert not feed.listeners


# ------------------------------------------------------------------------------------------------------------- in bytes
@given(
    value=st.recursive(st.text(max_size=20) | st.integers(), lambda inner: st.lists(inner, max_size=3), max_leaves=6)
)
@settings(max_examples=40, deadline=None)
def test_an_event_is_read_as_what_it_was_however_its_json_is_written(value: Any) -> None:
    for raw in (json.dumps(value, indent=1).encode(), msgspec.json.encode(value), b"\r\n" + json.dumps(value).encode()):
        name, *parts = format_event("lines", raw).decode().split("\n")[:-2]

        assert name == "event: lines"
        assert all(part.startswith("data: ") for part in parts)
        assert json.loads("\n".join(part.removeprefix("data: ") for part in parts)) == value


@given(
    told=st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9)) | st.none(), max_size=30),
)
@settings(max_examples=40, deadline=None)
def test_a_listener_holds_one_line_of_each_episode_the_last_that_it_was_told(
    told: list[tuple[str, int] | None],
) -> None:
    listener = FeedListener()
    expected: dict[str, int] = {}

    for each in told:
        if each is None:
            taken = b"".join(listener.take()).decode()
            found = {part["chain"]: part["last"] for part in json.loads(taken.partition("data: ")[2] or "[]")}
            assert found == expected
            expected = {}
        else:
            listener.tell({each[0]: msgspec.json.encode(line(*each))})
            expected[each[0]] = each[1]
            assert listener.news.is_set()
