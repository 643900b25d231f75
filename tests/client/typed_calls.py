"""Read by mypy, never run: what a type checker sees where a client is used.

Every `assert_type` holds. `test_typing.py` takes the ignores away and finds an error in each of their lines, no other.
"""

from typing import Generic, TypeVar, assert_type

from proctor.client.agents import Grant, Transition
from proctor.client.blocking import SyncEnvClient
from proctor.client.env_client import EnvClient, GenericClient, JsonAction, JsonObservation
from proctor.models.control import Ended, GrantWish
from proctor.models.wire import Action, Observation, State


class Push(Action):
    force: float


class Seen(Observation):
    angle: float


class Where(State):
    x: float


class Other(Action):
    word: str


class PoleClient(EnvClient[Push, Seen, Where]):
    pass


ObsT = TypeVar("ObsT", bound=Observation)


class Half(EnvClient[Push, ObsT, Where], Generic[ObsT]):
    pass


async def awaited(client: PoleClient, half: Half[Seen]) -> None:
    assert_type(await client.reset(seed=1), Seen)
    assert_type(await client.step(Push(force=1.0)), Seen)
    assert_type(await client.state(), Where)
    assert_type((await client.step(Push(force=1.0))).angle, float)
    assert_type(await half.step(Push(force=1.0)), Seen)
    async with PoleClient("http://h") as opened:
        assert_type(await opened.state(), Where)
    await client.step(Other(word="left"))  # type: ignore[arg-type]
    await client.step({"force": 1.0})  # type: ignore[arg-type]


async def granted(client: PoleClient, sync: SyncEnvClient[Push, Seen, Where], generic: GenericClient) -> None:
    assert_type(await client.reset(seed=1, grant=GrantWish(agent="a")), Seen)
    assert_type(client.granted, Grant | None)
    assert_type(await client.grant("a", tools=["look"]), Grant)
    assert_type(await client.wait_end(timeout=1.0), Ended)
    async for row in client.watch():
        assert_type(row, Transition[Push, Seen])
        assert_type((row.action.force, row.observation.angle), tuple[float, float])
    for row in sync.watch(after=3, on_missed="skip"):
        assert_type(row, Transition[Push, Seen])
    async for other in generic.watch():
        assert_type(other, Transition[JsonAction, JsonObservation])
    assert_type(sync.wait_end(), Ended)
    assert_type(sync.revoke(sync.grant()), bool)
    client.watch(on_missed="ignore")  # type: ignore[arg-type]


def blocked() -> None:
    with PoleClient.blocking("http://h") as client:
        assert_type(client.step(Push(force=1.0)), Seen)
        assert_type(client.reset(), Seen)
        assert_type(client.state(), Where)
        client.step(Other(word="left"))  # type: ignore[arg-type]
    assert_type(PoleClient("http://h").sync(), SyncEnvClient[Push, Seen, Where])


async def without_a_class(sync: SyncEnvClient[Push, Seen, Where], generic: GenericClient) -> None:
    client = EnvClient("http://h", action_type=Push, observation_type=Seen, state_type=Where)
    assert_type(await client.step(Push(force=1.0)), Seen)
    assert_type(sync.step(Push(force=1.0)), Seen)
    assert_type(await generic.step({"action": 1}), JsonObservation)
    assert_type(generic.sync().step({"action": 1}), JsonObservation)
    await client.step(Other(word="left"))  # type: ignore[arg-type]
