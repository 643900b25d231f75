"""A session's environment is made where it disturbs nobody; what a factory does wrong is told by a number."""

from __future__ import annotations

import asyncio
import logging
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.envs.targets import Target
from proctor.errors import ProctorError
from proctor.models.control import Code, Problem, Schemas
from proctor.models.wire import Encoding
from proctor.server.runtime.env_adapter import EnvDescription, ResetRequest, describe_target
from proctor.server.runtime.executors import abandoned_threads
from proctor.server.runtime.results import BatchOutcome, EnvOutcome, RequestRefused
from proctor.server.sandbox.pool.worker_pool import WorkerPool
from proctor.server.sessions import session_spec as module
from proctor.server.sessions.session_spec import MOST_QUICK, ExecutorKind, SessionSpec, choose_executor_kind
from tests.server.environments import HIDDEN_TEXT, children, diary
from tests.server.live_server import PATIENCE, until
from tests.server.worker_pools import current, process_nest

pytestmark = pytest.mark.anyio

HERE = "tests.server.environments"
KINDS: tuple[ExecutorKind, ...] = ("inline", "thread", "process")
ORDER = ResetRequest(3, "e", None)


@pytest.fixture(scope="module", autouse=True)
def pool() -> Iterator[WorkerPool]:
    """Where the processes of this file's tests come from."""
    with process_nest(HERE) as made:
        yield made


@pytest.fixture
def key() -> str:
    """A name that no other test has."""
    return f"test-{uuid.uuid4().hex}"


def opening_of(target: Target, kind: ExecutorKind | None = None, **details: Any) -> SessionSpec:
    card = describe_target(target)
    kind = kind or choose_executor_kind(target, card, None, details.get("num_envs"))
    return SessionSpec(target, card, kind, pool=current[0], **details)


async def refusal(opening: SessionSpec) -> Problem:
    before = children()
    with pytest.raises(RequestRefused) as caught:
        await opening.make_executor("refused")
    await asyncio.to_thread(until, lambda: children() <= before)
    return caught.value.problem


def test_a_card_says_what_the_environment_says() -> None:
    card = describe_target(Target("CartPole-v1"))

    assert (card.name, card.version) == ("CartPole-v1", "1")
    assert card.description
    assert card.schemas.spaces is not None
    assert set(card.schemas.spaces) == {"action", "observation"}
    assert card.schemas.action["properties"].keys() == {"action"}
    assert (card.quick, card.steps_are_coroutines, card.can_batch) == (True, False, True)


@pytest.mark.parametrize("name", ["Counting", "Later", "HalfLater"])
def test_the_environment_that_was_asked_is_closed(name: str, key: str) -> None:
    card = describe_target(Target(f"{HERE}:{name}", {"key": key}))

    assert diary(key).methods() == ["close"]
    assert card.name == name
    assert card.schemas.spaces is None
    assert not card.can_batch


@pytest.mark.parametrize(
    ("text", "can"),
    [
        ("CartPole-v1", True),
        ("proctor/PlumeSearch-v0", True),
        (f"{HERE}:Corridor", True),
        (f"{HERE}:corridor", True),
        (f"{HERE}:Counting", False),
        (f"{HERE}:Spaced", False),
    ],
)
def test_a_card_promises_a_batch_only_where_there_is_one(text: str, can: bool) -> None:
    target = Target(text)

    assert describe_target(target).can_batch == can
    try:
        target.make_batch(2).close()
        possible = True
    except ProctorError:
        possible = False
    assert possible == can


def test_a_target_that_cannot_be_made_stops_the_server() -> None:
    with pytest.raises(RuntimeError):
        describe_target(Target(f"{HERE}:Raising", {"where": "make"}))


@pytest.mark.parametrize(
    ("text", "num_envs", "expected"),
    [
        ("CartPole-v1", None, "inline"),
        ("proctor/PlumeSearch-v0", None, "inline"),
        ("proctor/PlumeSearch-v0", MOST_QUICK, "inline"),
        ("proctor/PlumeSearch-v0", MOST_QUICK + 1, "thread"),
        ("CartPole-v1", 2, "thread"),
        (f"{HERE}:Quick", None, "inline"),
        (f"{HERE}:Counting", None, "thread"),
        (f"{HERE}:Corridor", None, "thread"),
        (f"{HERE}:Corridor", 2, "thread"),
        (f"{HERE}:Later", None, "inline"),
    ],
)
def test_what_may_block_does_not_work_on_the_loop(text: str, num_envs: int | None, expected: ExecutorKind) -> None:
    target = Target(text)

    assert choose_executor_kind(target, describe_target(target), None, num_envs) == expected


@given(
    st.sampled_from(["CartPole-v1", "proctor/PlumeSearch-v0", "a:b"]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, *KINDS]),
    st.none() | st.integers(1, 10_000),
)
def test_coroutines_never_work_on_a_thread_and_a_wish_is_granted_else(
    text: str, quick: bool, coroutines: bool, wanted: ExecutorKind | None, num_envs: int | None
) -> None:
    card = EnvDescription(
        name="n",
        description="d",
        version="0",
        schemas=Schemas({}, {}, {}),
        quick=quick,
        steps_are_coroutines=coroutines,
        can_batch=True,
    )

    kind = choose_executor_kind(Target(text), card, wanted, num_envs)

    assert not (coroutines and kind == "thread")
    assert wanted is None or kind == wanted or (coroutines and wanted == "thread")
    assert kind != "inline" or wanted == "inline" or coroutines or quick or num_envs is not None


@pytest.mark.parametrize("name", ["Counting", "Quick", "Later", "HalfLater"])
@pytest.mark.parametrize("kind", [None, *KINDS])
async def test_every_environment_works_in_every_place_where_it_can(
    name: str, kind: ExecutorKind | None, key: str
) -> None:
    target = Target(f"{HERE}:{name}", {"key": key})
    card = describe_target(target)
    opening = SessionSpec(target, card, choose_executor_kind(target, card, kind, None), pool=current[0])
    executor = await opening.make_executor(key)
    begun, stepped = await executor.reset(ORDER), await executor.step(b'{"action":4}')
    await executor.close()

    assert isinstance(begun, EnvOutcome)
    assert begun.observation == b'{"observation":3}'
    assert stepped == EnvOutcome(b'{"observation":1}', b"{}", 4.0)
    assert kind == "process" or diary(key).methods()[1:] == ["reset", "step", "close"]
    await asyncio.to_thread(
        until, lambda: not [thread for thread in threading.enumerate() if thread.name == f"proctor-{key}"]
    )


@pytest.mark.parametrize("kind", KINDS)
async def test_a_batch_works_in_every_place(kind: ExecutorKind) -> None:
    opening = opening_of(
        Target(f"{HERE}:Corridor", {"length": 1}),
        kind,
        encoding=Encoding(),
        num_envs=2,
        autoreset_mode="same_step",
        infos=True,
    )
    executor = await opening.make_executor("batch")
    await executor.reset(ORDER)
    outcome = await executor.step(b'{"actions":[1,0]}')
    await executor.close()

    assert isinstance(outcome, BatchOutcome)
    assert outcome.terminations is not None
    assert outcome.terminations.tolist() == [True, False]
    assert b"final_obs" in outcome.infos


@pytest.mark.parametrize("what", ["error", "value", "stop", "exit"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_factory_that_fails_is_told_by_a_number(
    kind: ExecutorKind, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    card = describe_target(Target(f"{HERE}:Raising"))
    target = Target(f"{HERE}:Raising", {"where": "make", "what": what})

    with caplog.at_level(logging.ERROR, "proctor.environment"):
        problem = await refusal(SessionSpec(target, card, kind, pool=current[0]))

    assert problem.code == Code.FACTORY_ERROR
    assert HIDDEN_TEXT not in msgspec.json.encode(problem).decode()
    assert problem.incident
    assert str(problem.incident) in caplog.text
    assert HIDDEN_TEXT in caplog.text


@pytest.mark.parametrize("kind", ["inline", "thread"])
async def test_a_batch_that_fails_is_told_by_a_number(kind: ExecutorKind, caplog: pytest.LogCaptureFixture) -> None:
    card = describe_target(Target(f"{HERE}:Corridor"))
    target = Target(f"{HERE}:Corridor", {"fails_at": -1})

    problem = await refusal(SessionSpec(target, card, kind, num_envs=2))

    assert problem.code == Code.FACTORY_ERROR
    assert HIDDEN_TEXT not in msgspec.json.encode(problem).decode()
    assert HIDDEN_TEXT in caplog.text


async def test_a_factory_must_not_change_its_mind() -> None:
    opening = opening_of(Target(f"{HERE}:fickle", {"key": f"fickle-{uuid.uuid4().hex}"}))

    assert opening.kind == "inline"
    assert (await refusal(opening)).code == Code.FACTORY_ERROR


async def test_when_too_many_environments_hang_no_more_are_made(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    opening = opening_of(Target(f"{HERE}:Counting", {"key": key}), "thread")
    monkeypatch.setattr(module, "MOST_ABANDONED", len(abandoned_threads))

    problem = await refusal(opening)

    assert problem.code == Code.CAPACITY_REACHED
    assert diary(key).made == 1


async def _nowhere(pool: WorkerPool, work: object, name: str) -> None:
    raise FileNotFoundError("/nowhere/python")


async def test_a_process_that_cannot_be_started_is_told_by_a_number(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    opening = opening_of(Target(f"{HERE}:Counting"), "process")
    monkeypatch.setattr(WorkerPool, "start_worker", _nowhere)

    problem = await refusal(opening)

    assert problem.code == Code.FACTORY_ERROR
    assert "nowhere" not in msgspec.json.encode(problem).decode()
    assert str(problem.incident) in caplog.text


@pytest.mark.parametrize("kind", ["inline", "thread"])
async def test_an_environment_whose_session_has_gone_is_closed_once_it_is_made(kind: ExecutorKind, key: str) -> None:
    card = describe_target(Target(f"{HERE}:Counting"))
    opening = SessionSpec(Target(f"{HERE}:Blocking", {"key": key, "where": "make"}), card, kind)
    making = asyncio.create_task(opening.make_executor(key))
    assert await asyncio.to_thread(diary(key).reached.wait, PATIENCE)
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    diary(key).gate.set()
    await asyncio.to_thread(until, lambda: diary(key).count("close"))

    assert diary(key).methods() == ["close"]
