"""The typed client against a real server."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import create_model

from proctor.client import RemoteEnv, RemoteVectorEnv
from proctor.client.connection import Connection, ConnectionSettings
from proctor.client.env_client import EnvClient, GenericClient, JsonAction, JsonObservation, find_schema_difference
from proctor.envs.plume.models import PlumeAction, PlumeObservation, PlumeState
from proctor.envs.popper.models import PopperAction, PopperObservation, PopperState
from proctor.errors import ComponentError, ValidationError
from proctor.ledger.verify import verify
from proctor.models.wire import Action, Observation, State
from tests.client.counting import Count, Counted, CountState
from tests.server.live_server import Served, serving, until

pytestmark = pytest.mark.anyio


class CountClient(EnvClient[Count, Counted, CountState]):
    """Needs a URL and nothing else."""


class PlumeClient(EnvClient[PlumeAction, PlumeObservation, PlumeState]):
    """Searches."""


class PopperClient(EnvClient[PopperAction, PopperObservation, PopperState]):
    """Pops."""


class Wrong(Observation):
    """Not what the server observes."""

    total: str


@pytest.fixture(scope="module")
def counting() -> Iterator[Served]:
    with serving("tests.client.counting:QuickCounting") as there:
        yield there


async def test_an_episode_is_typed_from_its_reset_to_its_end(counting: Served) -> None:
    async with CountClient(counting.url) as client:
        first = await client.reset(seed=2, episode_id="e1", options={"start": 40})
        seen = [first, await client.step(Count(by=7)), await client.step(Count(by=60))]
        state, name, schemas = await client.state(), (await client.metadata()).name, await client.schema()

    assert [type(each) for each in seen] == [Counted] * 3
    assert [each.total for each in seen] == [42, 49, 109]
    assert [each.reward for each in seen] == [None, 7.0, 60.0]
    assert [(each.terminated, each.truncated, each.done) for each in seen][1:] == [(False,) * 3, (True, False, True)]
    assert [each.metadata for each in seen] == [{"seed": 7}, {}, {}]
    assert state == CountState(episode_id="e1", step_count=2, total=109)
    assert name == "QuickCounting"
    assert schemas.action == Count.model_json_schema()


def test_the_hand_written_models_drive_the_environments_of_ours() -> None:
    with serving("proctor/PlumeSearch-v0") as there, PlumeClient.blocking(there.url, check_schema=True) as plume:
        assert plume.reset(seed=3).seed == 3
        assert isinstance(plume.step(PlumeAction(action=1)).concentration, float)
        assert plume.state().step_count == 1
    with serving("proctor/ColumnPopper-v0") as there, PopperClient.blocking(there.url, check_schema=True) as popper:
        popper.reset(seed=3)
        assert isinstance(popper.step(PopperAction(action=0)), PopperObservation)
        assert popper.state().step_count == 1


async def test_several_clients_share_a_connection(counting: Served) -> None:
    async with Connection(counting.url) as connection:
        clients = [CountClient.on(connection) for _ in range(4)]
        seen = await asyncio.gather(*(client.reset(seed=number) for number, client in enumerate(clients)))
        await clients[0].close()
        after = await clients[1].step(Count())

    assert [each.total for each in seen] == [0, 1, 2, 3]
    assert after.total == 2


def test_a_shared_connection_has_its_own_credential(counting: Served) -> None:
    with pytest.raises(ValidationError):
        CountClient(Connection(counting.url), token="another")


async def test_an_action_of_another_type_is_refused_here(counting: Served) -> None:
    async with CountClient(counting.url) as client:
        await client.reset()
        with pytest.raises(ValidationError, match="not an action"):
            await client.step(PlumeAction(action=1))  # type: ignore[arg-type]
        assert ((await client.step(Count())).steps) == 1


async def test_options_that_json_cannot_say_are_refused_here(counting: Served) -> None:
    async with CountClient(counting.url) as client:
        with pytest.raises(ValidationError, match="JSON"):
            await client.reset(options={"start": object()})  # type: ignore[dict-item]


async def test_a_reply_that_does_not_fit_the_models_is_refused_and_the_episode_goes_on(counting: Served) -> None:
    class Mistaken(EnvClient[Count, Wrong, State]):
        """Believes in another observation."""

    async with Mistaken(counting.url) as client:
        with pytest.raises(ValidationError, match="does not fit Wrong: total"):
            await client.reset()
        with pytest.raises(ValidationError):
            await client.step(Count())
        with pytest.raises(ValidationError, match="does not fit State"):
            await client.state()
        assert client.session.position.step == 1


@pytest.mark.parametrize("how", ["enter", "reset"])
async def test_other_types_than_the_server_s_are_found_before_the_first_episode(counting: Served, how: str) -> None:
    client = EnvClient(
        counting.url, action_type=Count, observation_type=Wrong, state_type=CountState, check_schema=True
    )
    with pytest.raises(ValidationError, match="the server's observation"):
        await (client.connect() if how == "enter" else client.reset())
    await client.close()
    until(lambda: not counting.server.sessions.channels)


@pytest.mark.parametrize("face", ["async", "sync"])
def test_a_client_that_cannot_be_entered_leaves_no_connection_behind(counting: Served, face: str) -> None:
    client = EnvClient(
        counting.url, action_type=Count, observation_type=Wrong, state_type=CountState, check_schema=True
    )

    enter = client.sync().__enter__ if face == "sync" else lambda: asyncio.run(client.__aenter__())

    with pytest.raises(ValidationError):
        enter()
    assert client.connection._socket is None
    assert client.connection._closed


async def test_the_right_types_pass_the_check(counting: Served) -> None:
    async with CountClient(counting.url, check_schema=True) as client:
        result = (await client.reset()).total

    assert result == 0


@pytest.mark.parametrize("missing", ["action_type", "observation_type", "state_type"])
def test_a_client_that_does_not_name_its_types_is_refused(missing: str) -> None:
    types: dict[str, Any] = {"action_type": Count, "observation_type": Counted, "state_type": CountState}
    del types[missing]

    with pytest.raises(ComponentError, match=missing):
        EnvClient("http://127.0.0.1:9", **types)
    with pytest.raises(ComponentError, match=missing):
        EnvClient("http://127.0.0.1:9", **(types | {missing: int}))


def test_a_client_shows_where_it_is_and_not_how_to_get_in() -> None:
    client = CountClient("http://proctor:some-secret@127.0.0.1:9")

    assert repr(client) == "CountClient('ws://127.0.0.1:9/ws')"


def test_a_client_that_was_never_used_is_closed_in_peace() -> None:
    asyncio.run(CountClient("http://127.0.0.1:9", settings=ConnectionSettings(connect_timeout=1.0)).close())


LEAVES = st.none() | st.booleans() | st.integers(-(2**31), 2**31) | st.text()
OBJECTS = st.dictionaries(st.text(), st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3)), max_size=5)


@given(OBJECTS)
def test_an_action_is_its_fields_on_the_wire(fields: dict[str, Any]) -> None:
    action = JsonAction(fields=fields)

    assert json.loads(action.model_dump_json()) == fields


@given(OBJECTS)
def test_an_observation_keeps_what_it_does_not_know(fields: dict[str, Any]) -> None:
    beside = {"reward": 1.5, "terminated": True, "truncated": False, "metadata": {"a": 1}}
    inside = {key: value for key, value in fields.items() if key not in beside and key != "fields"}
    seen = JsonObservation.model_validate_json(json.dumps({**inside, **beside}))

    assert seen.fields == inside
    assert (seen.reward, seen.done, seen.metadata) == (1.5, True, {"a": 1})
    assert all(seen[name] == value for name, value in inside.items())


async def test_any_server_is_driven_without_its_models(counting: Served) -> None:
    async with GenericClient(counting.url) as client:
        first = await client.reset(seed=1)
        second = await client.step({"by": 2})
        third = await client.step(JsonAction(fields={"by": 3}))
        assert [first["total"], second["total"], third["total"], (await client.state())["total"]] == [1, 3, 6, 6]


def test_any_server_is_driven_without_its_models_and_without_await(counting: Served) -> None:
    with GenericClient.blocking(counting.url) as client:
        assert [client.reset(seed=1)["total"], client.step({"by": 2})["total"]] == [1, 3]


def test_a_reset_and_a_close_bring_heads_that_prove_the_record(tmp_path: Path) -> None:
    with serving(ledger=tmp_path) as served:
        client = GenericClient(served.url).sync()
        client.reset(seed=1)
        first = client.head
        client.step({"action": 1})
        client.reset(seed=2)
        second = client.head
        client.close()
        last = client.head

    assert len({first, second, last}) == 3
    assert None not in (first, second, last)
    report = verify(tmp_path, heads=[head for head in (first, second, last) if head is not None])
    assert report.ok, report.findings
    assert report.headed


def test_gymnasiums_environments_keep_it_too(tmp_path: Path) -> None:
    with serving(ledger=tmp_path) as served:
        env, batch = RemoteEnv(served.url), RemoteVectorEnv(2, served.url)
        env.reset(seed=1)
        batch.reset(seed=1)

        heads = [env.head, batch.head]
        env.close()
        batch.close()

    assert verify(tmp_path, heads=[str(head) for head in heads]).ok


def test_where_no_ledger_is_kept_there_is_no_head() -> None:
    with serving() as served:
        client = GenericClient(served.url).sync()
        client.reset(seed=1)
        client.close()

        assert client.head is None


First = TypeVar("First", bound=Action)


class Half(EnvClient[First, Counted, CountState], Generic[First]):
    """Leaves its action open."""


class Whole(Half[Count]):
    """Names all three, on the way down."""


class Further(Whole):
    """Adds nothing."""


def test_types_are_found_through_all_classes_between() -> None:
    half: Any = Half
    assert not hasattr(half, "action_type")
    assert (half.observation_type, half.state_type) == (Counted, CountState)
    for cls in (Whole, Further):
        found: Any = cls
        assert (found.action_type, found.observation_type, found.state_type) == (Count, Counted, CountState)


MODELS = [PlumeAction, PlumeObservation, PlumeState, PopperAction, PopperObservation, PopperState, Counted, Count]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("other", MODELS)
def test_a_schema_agrees_with_its_own_model_and_no_other(model: type[Any], other: type[Any]) -> None:
    sent = issubclass(model, Action)
    theirs = msgspec.json.decode(
        msgspec.json.encode(other.model_json_schema(mode="validation" if sent else "serialization"))
    )

    assert (find_schema_difference(model, theirs, sent=sent) is None) == (model is other)


TYPES = st.sampled_from([int, str, bool, list[int], dict[str, float], int | None, tuple[int, int]])
FIELDS = st.dictionaries(st.sampled_from("abcde"), TYPES, max_size=4)


def made(fields: dict[str, Any], about: str) -> type[Observation]:
    parts: dict[str, Any] = {name: (kind, ...) for name, kind in fields.items()}
    model: type[Observation] = create_model("Made", __base__=Observation, __doc__=about, **parts)
    return model


@given(FIELDS, FIELDS)
def test_schemas_differ_exactly_when_the_fields_do(one: dict[str, Any], other: dict[str, Any]) -> None:
    theirs = made(other, "another title and description").model_json_schema(mode="serialization")

    assert (find_schema_difference(made(one, "words"), theirs, sent=False) is None) == (one == other)


def test_the_difference_is_named_where_it_is() -> None:
    theirs = made({"a": list[int]}, "").model_json_schema(mode="serialization")

    assert find_schema_difference(made({"a": list[str]}, ""), theirs, sent=False) == (
        "/properties/a/items/type is 'string' for the client and 'integer' for the server"
    )
    assert "unknown to the client" in str(find_schema_difference(made({}, ""), theirs, sent=False))


def test_what_travels_beside_an_observation_does_not_count() -> None:
    theirs = State.model_json_schema()
    with_reward = {**theirs, "properties": {**theirs["properties"], "reward": {"type": "number"}}}

    assert find_schema_difference(State, with_reward, sent=True) is None
