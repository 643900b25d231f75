"""Grants in an orchestrator's hand: asked for, kept secret, saved, taken back."""

import asyncio
import copy
import json
import os
import pickle
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.bridge import read_grant
from proctor.client.agents import Grant, make_grant_wish
from proctor.client.connection import ConnectionSettings
from proctor.client.env_client import EnvClient, GenericClient
from proctor.errors import EpisodeLost, RemoteError, RequestTimeout, StateError, ValidationError
from proctor.models.control import Code, GrantWish
from proctor.models.wire import Observation, State
from tests.client.counting import Count
from tests.client.fake_server import Fake, Request, faking
from tests.client.test_session import impatient, neglect, outcome, until

pytestmark = pytest.mark.anyio

SECRET = "wholly-secret"
GRANT = Grant("g1", "http://127.0.0.1:9/mcp", SECRET, ("look",), 12.5, "e1")


class Number(Observation):
    """What the fake sees."""

    count: int


class FakeClient(EnvClient[Count, Number, State]):
    """Of the fake."""


@asynccontextmanager
async def with_fake(
    *, reset: bool = True, shared: bool = False, **settings: Any
) -> AsyncIterator[tuple[Fake, FakeClient]]:
    """Give a client of a fake server, in its first episode."""
    async with (
        asyncio.timeout(300),
        faking() as fake,
        FakeClient(fake.url, settings=ConnectionSettings(**settings), shared=shared) as client,
    ):
        if reset:
            await client.reset()
        yield fake, client


async def no_hello(fake: Fake, request: Request) -> None:
    await fake.send({"type": "error", "data": {"message": "unknown", "code": "UNKNOWN_TYPE"}})


async def plain(fake: Fake, request: Request) -> None:
    """Answer as OpenEnv does."""
    await fake.send({"type": "observation", "data": {"observation": {"count": 0}, "reward": None, "done": False}})


def test_a_token_is_in_no_repr_and_no_pickle() -> None:
    shown = [repr(GRANT), str(GRANT), f"{GRANT}", repr([GRANT]), repr({"grant": GRANT})]

    assert all(SECRET not in each for each in shown)
    assert "g1" in repr(GRANT)
    for refused in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="save"):
            refused(GRANT)


def test_a_grant_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        GRANT.token = "another"  # type: ignore[misc]


def test_the_headers_are_what_an_mcp_client_sends() -> None:
    assert GRANT.headers() == {"Authorization": f"Bearer {SECRET}"}


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_a_saved_grant_is_its_owner_s_alone(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        path = GRANT.save(tmp_path / "grant.json")
    finally:
        os.umask(before)

    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text("utf-8")) == {
        "address": "http://127.0.0.1:9/mcp",
        "token": SECRET,
        "tools": ["look"],
        "expires_at": 12.5,
        "episode_id": "e1",
        "grant": "g1",
    }
    assert [each.name for each in tmp_path.iterdir()] == ["grant.json"]


def test_a_grant_is_saved_over_an_older_one(tmp_path: Path) -> None:
    path = GRANT.save(str(tmp_path / "grant.json"))
    Grant("g2", "a", "t", (), None, "e2").save(path)

    assert json.loads(path.read_text("utf-8"))["grant"] == "g2"
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("episode", ["e1", "épisode", "\n", "\U0001f43e" * 200])
def test_a_saved_grant_is_read_by_the_bridge(tmp_path: Path, episode: str) -> None:
    token = "a-token-as-long-as-a-server-makes-them"
    path = Grant("g", "http://127.0.0.1:9/mcp", token, ("look", "act"), None, episode).save(tmp_path / "grant.json")
    key = read_grant(path)

    assert (key.address, key.token) == ("http://127.0.0.1:9/mcp", token)
    assert json.loads(path.read_text("utf-8"))["episode_id"] == episode


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_file_that_others_can_read_is_left_alone(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "grant.json"
    path.write_text("mine")
    path.chmod(mode)

    with pytest.raises(ValidationError, match="others can read"):
        GRANT.save(path)
    assert path.read_text() == "mine"
    assert [each.name for each in tmp_path.iterdir()] == ["grant.json"]


@pytest.mark.parametrize("there", ["link", "folder", "nowhere"])
def test_a_grant_is_not_saved_where_no_file_of_ours_can_be(tmp_path: Path, there: str) -> None:
    path = tmp_path / "grant.json"
    other = tmp_path / "other"
    if there == "link":
        other.write_text("theirs")
        path.symlink_to(other)
    elif there == "folder":
        path.mkdir()
    else:
        path = other / "grant.json"

    with pytest.raises(ValidationError) as problem:
        GRANT.save(path)
    assert SECRET not in str(problem.value)
    assert SECRET not in "".join(each.read_text() for each in tmp_path.iterdir() if each.is_file())


def test_a_file_of_somebody_else_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = GRANT.save(tmp_path / "grant.json")
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)

    with pytest.raises(ValidationError, match="not a file of ours"):
        GRANT.save(path)


def test_a_grant_that_cannot_be_put_in_its_place_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)

    with pytest.raises(ValidationError, match="No space left"):
        GRANT.save(tmp_path / "grant.json")
    assert list(tmp_path.iterdir()) == []


@given(
    st.text(max_size=100),
    st.none() | st.floats(0.001, 1e9),
    st.none() | st.floats(0.001, 1e6),
    st.none() | st.lists(st.text(), min_size=1, max_size=5),
)
def test_a_wish_that_a_server_would_take_is_taken(
    agent: str, ttl: float | None, rate: float | None, tools: list[str] | None
) -> None:
    wish = GrantWish(agent, ttl, rate, tools)

    assert make_grant_wish(wish) == wish
    assert msgspec.json.decode(msgspec.json.encode(make_grant_wish(wish)), type=GrantWish) == wish


def test_true_is_the_simplest_wish_and_false_is_none() -> None:
    assert make_grant_wish(True) == GrantWish()
    assert make_grant_wish(False) is None
    assert make_grant_wish(None) is None


@pytest.mark.parametrize(
    "wish",
    [
        GrantWish("a" * 101),
        GrantWish(ttl_seconds=0.0),
        GrantWish(ttl_seconds=-1.0),
        GrantWish(calls_per_second=0.0),
        GrantWish(tools=[]),
        GrantWish(tools=[1]),  # type: ignore[list-item]
        GrantWish(agent=7),  # type: ignore[arg-type]
        GrantWish(agent=object()),  # type: ignore[arg-type]
        {"agent": "a"},
        "a",
    ],
)
def test_a_wish_that_no_server_would_take_is_refused_here(wish: Any) -> None:
    with pytest.raises(ValidationError, match="not a wish for a grant"):
        make_grant_wish(wish)


async def test_a_grant_names_session_and_epoch_and_what_the_agent_may() -> None:
    async with with_fake() as (fake, client):
        grant = await client.grant("learner", ttl_seconds=60, calls_per_second=2.5, tools=("look",))
        (asked,) = fake.asked("grant")

        assert (asked["session"], asked["epoch"]) == ("s", 1)
        assert asked["data"] == {"agent": "learner", "ttl_seconds": 60, "calls_per_second": 2.5, "tools": ["look"]}
        assert grant == Grant("g1", "http://127.0.0.1:9/mcp", "secret-1", ("look", "count"), None, "e")
        assert client.granted is None


async def test_a_reset_brings_a_grant_along() -> None:
    async with with_fake(reset=False) as (fake, client):
        seen = await client.reset(seed=3, grant=GrantWish(agent="learner"))
        first = client.granted
        await client.reset(grant=True)
        second = client.granted
        await client.reset(grant=False)
        asked: list[Any] = [request.get("data") for request in fake.asked("reset")]

        assert seen.count == 0
        assert [None if each is None else each.token for each in (first, second)] == ["secret-1", "secret-2"]
        assert client.granted is None
        assert asked[0]["seed"] == 3
        assert asked[0]["grant"]["agent"] == "learner"
        assert asked[1]["grant"]["agent"] == ""
        assert asked[2] is None


async def test_a_grant_is_taken_back_by_itself_or_by_its_name() -> None:
    async def dead(fake: Fake, request: Request) -> None:
        await fake.reply(request, "revoked", {"grant": request["data"]["grant"], "live": False})

    async with with_fake() as (fake, client):
        grant = await client.grant()
        live = [await client.revoke(grant)]
        fake.lies["revoke"] = dead
        live.append(await client.revoke(grant.grant))

        assert live == [True, False]
        assert [request["data"] for request in fake.asked("revoke")] == [{"grant": "g1"}] * 2


async def test_without_an_episode_there_is_nothing_to_grant() -> None:
    async with with_fake(reset=False) as (fake, client):
        for call in (client.grant(), client.revoke("g1"), client.wait_end()):
            with pytest.raises(StateError, match="no episode has begun"):
                await call
        with pytest.raises(StateError, match="no episode has begun"):
            client.watch()

        assert [request["type"] for request in fake.requests] == ["hello", "open"]


async def test_after_the_end_and_after_close_there_is_nothing_to_grant() -> None:
    async def end(fake: Fake, request: Request) -> None:
        fake.step += 1
        await fake.reply(request, "observation", fake.seen(done=True, terminated=True))

    async with with_fake() as (fake, client):
        fake.lies["step"] = end
        await client.step(Count())
        with pytest.raises(StateError, match="over"):
            await client.grant()
        await client.close()
        with pytest.raises(StateError):
            await client.grant()
        with pytest.raises(StateError):
            client.watch()

        assert fake.asked("grant") == []


@pytest.mark.parametrize("code", [Code.NO_AGENT_PLANE, Code.GRANTS_TAKEN, Code.BUSY])
async def test_a_refused_grant_leaves_the_episode_where_it_was(code: str) -> None:
    async def refuse(fake: Fake, request: Request) -> None:
        await fake.reply(request, "error", {"message": "no", "code": code})

    async with with_fake() as (fake, client):
        fake.lies["grant"] = refuse
        with pytest.raises(RemoteError) as refusal:
            await client.grant()

        assert refusal.value.code == code
        assert (await client.step(Count())).count == 1


@pytest.mark.parametrize("kind", ["grant", "revoke"])
async def test_an_answer_about_a_grant_that_cannot_be_read_is_a_loss(kind: str) -> None:
    async def nonsense(fake: Fake, request: Request) -> None:
        await fake.reply(request, "granted" if kind == "revoke" else "observation", {})

    async with with_fake() as (fake, client):
        fake.lies[kind] = nonsense
        with pytest.raises(EpisodeLost) as loss:
            await (client.grant() if kind == "grant" else client.revoke("g1"))

        assert loss.value.code == "UNREADABLE"


async def test_a_grant_on_another_episode_is_a_loss() -> None:
    async def other(fake: Fake, request: Request) -> None:
        await fake.reply(request, "granted", fake.granted(), epoch=7)

    async with with_fake() as (fake, client):
        fake.lies["grant"] = other
        with pytest.raises(EpisodeLost) as loss:
            await client.grant()

        assert loss.value.code == "WRONG_EPISODE"


async def test_a_grant_whose_caller_has_gone_is_revoked_before_anything_else() -> None:
    async def late(fake: Fake, request: Request) -> None:
        if len(fake.asked("grant")) == 2:
            await fake.reply(request, "granted", fake.granted())

    async with with_fake() as (fake, client):
        fake.lies |= {"grant": late, "cancel": outcome("finished")}
        asking = asyncio.create_task(client.grant())
        await until(lambda: fake.asked("grant"))
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        seen = await client.step(Count())
        order = [each["type"] for each in fake.requests if each["type"] in ("revoke", "step")]

        assert seen.count == 1
        assert order == ["revoke", "step"]
        assert fake.asked("revoke")[0]["data"] == {"grant": "g1"}


async def test_a_grant_that_nobody_answers_is_a_time_out_and_the_episode_goes_on() -> None:
    async with with_fake() as (fake, client):
        impatient(client.session, 0.1)
        fake.lies |= {"grant": neglect, "cancel": outcome("dropped")}
        with pytest.raises(RequestTimeout):
            await client.grant()
        impatient(client.session, 20.0)
        fake.lies.clear()

        assert (await client.grant()).grant == "g1"


async def test_an_agent_can_be_stopped_in_an_episode_that_its_orchestrator_has_lost() -> None:
    async def lost(fake: Fake, request: Request) -> None:
        await fake.reply(request, "error", {"message": "gone", "code": "STEP_TIMEOUT", "lost": True})

    async with with_fake() as (fake, client):
        grant = await client.grant()
        fake.lies["step"] = lost
        with pytest.raises(EpisodeLost):
            await client.step(Count())
        with pytest.raises(EpisodeLost):
            await client.grant()

        assert await client.revoke(grant)


async def test_shared_sessions_are_opened_as_such() -> None:
    async with with_fake(shared=True) as (fake, _):
        assert fake.asked("open")[0]["data"]["shared"] is True
    assert FakeClient.blocking("http://127.0.0.1:9", shared=True).client.session._order.shared
    assert GenericClient.blocking("http://127.0.0.1:9", shared=True).client.session._order.shared


async def test_steps_of_agents_between_two_steps_are_no_loss() -> None:
    async with with_fake(shared=True) as (fake, client):
        await client.grant()
        fake.act()
        fake.act()
        first = await client.step(Count())
        fake.act()
        second = await client.step(Count())

        assert (first.count, second.count) == (3, 5)


async def test_without_a_grant_a_step_of_somebody_else_is_a_loss() -> None:
    async with with_fake() as (fake, client):
        await client.grant()
        await client.reset()
        fake.act()
        with pytest.raises(EpisodeLost) as loss:
            await client.step(Count())

        assert loss.value.code == "WRONG_EPISODE"


async def test_where_agents_act_an_episode_that_goes_back_is_a_loss() -> None:
    async with with_fake() as (fake, client):
        await client.reset(grant=True)
        fake.act()
        await client.step(Count())
        fake.step = 1
        with pytest.raises(EpisodeLost) as loss:
            await client.step(Count())

        assert loss.value.code == "WRONG_EPISODE"


async def test_a_server_without_hello_has_no_agents_and_says_so_before_anything_happens() -> None:
    async with asyncio.timeout(300), faking() as fake:
        fake.lies |= {"hello": no_hello, "reset": plain}
        async with FakeClient(fake.url) as client:
            with pytest.raises(RemoteError, match="hello") as refusal:
                await client.reset(grant=True)
            assert refusal.value.code == Code.NO_AGENT_PLANE
            assert fake.asked("reset") == []
            await client.reset()
            for call in (client.grant(), client.revoke("g"), client.wait_end()):
                with pytest.raises(RemoteError, match="hello"):
                    await call
            with pytest.raises(RemoteError, match="hello"):
                client.watch()
        shared = FakeClient(fake.url, shared=True)
        with pytest.raises(ValidationError, match="hello"):
            await shared.connect()
        await shared.close()


async def test_an_episode_that_began_without_its_grant_says_so() -> None:
    async def forget(fake: Fake, request: Request) -> None:
        fake.epoch += 1
        await fake.reply(request, "observation", fake.seen())

    async with with_fake(reset=False) as (fake, client):
        fake.lies["reset"] = forget
        with pytest.raises(RemoteError, match="gave no grant"):
            await client.reset(grant=True)

        assert (await client.step(Count())).count == 1
