"""A session never goes on in silence: what it answers is on record, and what nobody can know has lost the episode."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec import Raw

from proctor.access.limits import Throttle
from proctor.envs.targets import Target
from proctor.errors import ComponentError
from proctor.models.control import Code, Problem, Reset
from proctor.models.events import (
    BatchReset,
    BatchStepped,
    EpisodeClosed,
    EpisodeReset,
    EpisodeStepped,
    Event,
    Failed,
    SessionClosed,
    SessionOpened,
)
from proctor.models.wire import Encoding
from proctor.server.rewards.pipeline import plan_of
from proctor.server.runtime.env_adapter import EnvDescription, describe_target
from proctor.server.runtime.executors import abandoned_threads
from proctor.server.runtime.results import RequestError
from proctor.server.sandbox.pool.worker_pool import WorkerPool
from proctor.server.sessions import session as module
from proctor.server.sessions.episode_status import MOST_AT_ONCE, RowLog
from proctor.server.sessions.response_builder import BatchResponseBuilder, SingleResponseBuilder
from proctor.server.sessions.session import Session
from proctor.server.sessions.session_spec import ExecutorKind, SessionSpec, choose_executor_kind
from tests.server.environments import HIDDEN_TEXT, TROUBLE, children, diary
from tests.server.live_server import PATIENCE, until
from tests.server.memory_recorder import MemoryRecorder
from tests.server.worker_pools import current, process_nest

pytestmark = pytest.mark.anyio

HERE = "tests.server.environments"
GO = b'{"action":1}'
TROUBLED = b'{"action":%d}' % TROUBLE
Result = TypeVar("Result")


class Fallible(MemoryRecorder):
    """Keeps events, but for those of the kinds that it is told to fail at, at once or later."""

    def __init__(self, *kinds: type[Event], later: bool = False) -> None:
        super().__init__()
        self.kinds: tuple[type[Event], ...] = kinds
        self.later = later

    def record(self, event: Event) -> Awaitable[None] | None:  # type: ignore[override]  # a Recorder may answer later
        if self.later:
            return self._late(event)
        self._now(event)
        return None

    async def _late(self, event: Event) -> None:
        await asyncio.sleep(0)
        self._now(event)

    def _now(self, event: Event) -> None:
        if isinstance(event, self.kinds):
            raise ComponentError(HIDDEN_TEXT)
        super().record(event)


class Held(MemoryRecorder):
    """Keeps an event only when it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.open = asyncio.Event()
        self.asked = asyncio.Event()

    def record(self, event: Event) -> Awaitable[None]:  # type: ignore[override]  # a Recorder may answer later
        return self._held(event)

    async def _held(self, event: Event) -> None:
        self.asked.set()
        await self.open.wait()
        super().record(event)


@pytest.fixture(scope="module", autouse=True)
def pool() -> Iterator[WorkerPool]:
    """Where the processes of this file's tests come from."""
    with process_nest(HERE) as made:
        yield made


@pytest.fixture
def key() -> str:
    """A name that no other test has."""
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture(autouse=True)
def no_process_is_left_behind() -> Iterator[None]:
    before = children()
    yield
    until(lambda: children() <= before)


def card_of_any(target: Target) -> EnvDescription:
    """Return the target's card, on a thread without a loop, as a server has none when it reads the card."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(describe_target, target).result(PATIENCE)


def session_of(
    name: str,
    recorder: Any = None,
    *,
    kind: ExecutorKind | None = None,
    timeout: float | None = None,
    transforms: Any = (),
    num_envs: int | None = None,
    **keywords: Any,
) -> Session:
    """Return a session of an environment of ours by its name, with these settings."""
    target = Target(f"{HERE}:{name}", keywords)
    card = card_of_any(Target(target.text, {} if name in ("Raising", "Blocking") else keywords))
    plan = plan_of(list(transforms))
    opening = SessionSpec(
        target,
        card,
        choose_executor_kind(target, card, kind, num_envs),
        num_envs=num_envs,
        autoreset_mode=None if num_envs is None else "next_step",
        transforms=[dict(spec) for spec in plan.specs],
        pool=current[0],
    )
    pipeline = plan.pipeline(num_envs)
    return Session(
        "s",
        opening,
        SingleResponseBuilder(pipeline, extended=True)
        if num_envs is None
        else BatchResponseBuilder(pipeline, Encoding()),
        MemoryRecorder() if recorder is None else recorder,
        clock=lambda: 12.5,
        boot="boot",
        step_timeout=timeout,
    )


async def open_session(name: str, recorder: Any = None, **keywords: Any) -> Session:
    session = session_of(name, recorder, **keywords)
    await session.open()
    return session


async def begin_episode(name: str, recorder: Any = None, **keywords: Any) -> Session:
    """Return an open session in its first episode."""
    session = await open_session(name, recorder, **keywords)
    await session.reset(Reset(), 1)
    return session


def limit(session: Session, seconds: float | None) -> None:
    """Set how long what comes next may take; what is not about time has all the time that a busy machine needs."""
    limited: Any = session
    limited.step_timeout = seconds
    if session._executor is not None:
        session._executor.timeout = seconds


async def problem_of(call: Coroutine[Any, Any, Any]) -> Problem:
    with pytest.raises(RequestError) as caught:
        await call
    return caught.value.problem


def kinds(recorder: MemoryRecorder) -> list[str]:
    return [type(event).__name__ for event in recorder.events]


async def is_lost(session: Session) -> bool:
    """Return whether neither a step nor a state goes on."""
    problems = [await problem_of(session.step(GO, 90)), await problem_of(session.state(91))]
    return all((problem.code, problem.lost) == (Code.EPISODE_LOST, True) for problem in problems)


async def check_it_goes_on_after_a_reset(session: Session) -> None:
    """A lost episode takes nothing but a reset, after which steps are taken again; the session is closed then."""
    assert await is_lost(session)
    await session.reset(Reset(), 3)
    assert json.loads(await session.step(GO, 4))["step"] == 1
    await session.close("client")


# ------------------------------------------------------------------------------------------------------ the record
async def test_everything_that_happens_is_on_record_in_its_order(key: str) -> None:
    recorder = MemoryRecorder()
    session = await open_session("Counting", recorder, key=key, end=2)
    await problem_of(session.step(GO, 1))
    await session.reset(Reset(seed=7, episode_id="mine"), 2)
    await session.step(b'{"action": 4}', 3)
    await problem_of(session.step(b'{"action":10}', 4))
    await session.state(5)
    await session.step(GO, 6)
    await problem_of(session.step(GO, 7))
    await session.close("client")

    opened, early, begun, first, bad, last, late, over, closed = recorder.events
    assert isinstance(opened, SessionOpened)
    assert (opened.environment, opened.target) == ("Counting", f"{HERE}:Counting")
    assert opened.settings == {"key": key, "end": 2}
    assert (opened.place, opened.num_envs, opened.boot) == ("thread", None, "boot")
    assert isinstance(early, Failed)
    assert (early.code, early.clause) == ("STATE_ERROR", "NO-STEP-BEFORE-RESET")
    assert (early.request, early.lost) == ("step", False)
    assert (early.epoch, early.step, early.request_id, bytes(early.action)) == (0, 0, 1, b"null")
    assert isinstance(begun, EpisodeReset)
    assert (begun.epoch, begun.episode_id, begun.seed, begun.request_id) == (1, "mine", 7, 2)
    assert isinstance(first, EpisodeStepped)
    assert (first.epoch, first.step, bytes(first.action), first.reward) == (1, 1, b'{"action": 4}', 4.0)
    assert isinstance(bad, Failed)
    assert (bad.code, bad.epoch, bad.step, bad.lost) == ("VALIDATION_ERROR", 1, 1, False)
    assert isinstance(last, EpisodeStepped)
    assert (last.step, last.terminated) == (2, True)
    assert isinstance(late, Failed)
    assert late.clause == "NO-STEP-AFTER-END"
    assert isinstance(over, EpisodeClosed)
    assert (over.epoch, over.steps, over.reason, over.outcome) == (1, 2, "client", None)
    assert isinstance(closed, SessionClosed)
    assert (closed.reason, closed.episodes, closed.steps) == ("client", 1, 2)
    assert {event.session for event in recorder.events} == {"s"}
    assert {event.at for event in recorder.events} == {12.5}


async def test_a_batch_is_on_record_too() -> None:
    recorder = MemoryRecorder()
    session = await open_session("Corridor", recorder, num_envs=2)
    begun, stepped = await session.reset(Reset(seed=[1, 2]), 1), await session.step(b'{"actions":[1,0]}', 2)
    await session.close("client")

    opened, reset, step, over, closed = recorder.events
    assert isinstance(opened, SessionOpened)
    assert (opened.num_envs, opened.autoreset_mode) == (2, "next_step")
    assert isinstance(reset, BatchReset)
    assert (reset.seed, reset.episode_id) == ([1, 2], "s.1")
    assert isinstance(step, BatchStepped)
    assert isinstance(over, EpisodeClosed)
    assert json.loads(begun)["observations"] == [[0.0], [0.0]]
    assert json.loads(stepped)["observations"] == json.loads(bytes(step.observations)) == [[1.0], [0.0]]
    assert isinstance(closed, SessionClosed)


async def test_an_answer_exists_only_once_it_is_on_record(key: str) -> None:
    recorder = Held()
    session = session_of("Quick", recorder, key=key)
    seen = []
    for call in (session.open, lambda: session.reset(Reset(), 1), lambda: session.step(GO, 2)):
        recorder.open.clear()
        recorder.asked.clear()
        task = asyncio.create_task(call())
        await recorder.asked.wait()
        seen.append((task.done(), kinds(recorder)))
        recorder.open.set()
        await task
    await session.close("client")

    assert seen == [(False, []), (False, ["SessionOpened"]), (False, ["SessionOpened", "EpisodeReset"])]


async def test_an_episode_without_a_name_is_named_after_its_session(key: str) -> None:
    session = await open_session("Counting", key=key)
    names = [json.loads(await session.reset(Reset(), number))["episode_id"] for number in (1, 2)]
    await session.close("client")

    assert names == ["s.1", "s.2"]


@pytest.mark.parametrize(
    "reset",
    [
        Reset(options=Raw(b"[]")),
        Reset(options=Raw(b"3")),
        Reset(options=Raw(b'{"nonsense":1}')),
        Reset(mask=Raw(b"3")),
        Reset(mask=Raw(b"[1]")),
        Reset(mask=Raw(b"[true]")),
        Reset(seed=[1, 2]),
    ],
)
async def test_a_reset_that_makes_no_sense_is_refused_and_on_record(reset: Reset, key: str) -> None:
    recorder = MemoryRecorder()
    session = await begin_episode("Counting", recorder, key=key)
    await session.step(GO, 2)
    problem = await problem_of(session.reset(reset, 3))
    await session.step(GO, 4)
    await session.close("client")

    assert (problem.code, session.epoch) == (Code.VALIDATION_ERROR, 1)
    assert diary(key).methods()[1:] == ["reset", "step", "step", "close"]
    assert "Failed" in kinds(recorder)


# ----------------------------------------------------------------------------------------------------- what goes wrong
@pytest.mark.parametrize("kind", ["inline", "thread", "process"])
@pytest.mark.parametrize("where", ["reset", "step", "state"])
async def test_an_exception_inside_loses_the_episode_until_a_reset_by_a_new_environment(
    where: str, kind: ExecutorKind, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = MemoryRecorder()
    caplog.set_level(logging.ERROR, "proctor.environment")
    session = await open_session("Raising", recorder, kind=kind, key=key, where=where)
    calls: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "reset": lambda: session.reset(Reset(), 2),
        "step": lambda: session.step(TROUBLED, 2),
        "state": lambda: session.state(2),
    }
    if where != "reset":
        await session.reset(Reset(), 1)
    problem = await problem_of(calls[where]())
    assert await is_lost(session)
    if where != "reset":
        await session.reset(Reset(), 3)
        assert json.loads(await session.step(GO, 4))["observation"] == {"observation": 1}
    await session.close("client")

    assert (problem.code, problem.lost) == (Code.EXECUTION_ERROR, True)
    assert HIDDEN_TEXT not in msgspec.json.encode(problem).decode()
    failed = next(event for event in recorder.events if isinstance(event, Failed))
    assert (failed.code, failed.request, failed.lost) == (Code.EXECUTION_ERROR, where, True)
    assert failed.incident == problem.incident
    assert bytes(failed.action) == (TROUBLED if where == "step" else b"null")
    assert str(problem.incident) in caplog.text
    assert HIDDEN_TEXT in caplog.text
    if kind != "process":
        await asyncio.to_thread(until, lambda: diary(key).count("close") == diary(key).made)
        assert diary(key).made == (1 if where == "reset" else 2)


@pytest.mark.parametrize("where", ["step", "reset", "state"])
async def test_an_environment_that_does_not_answer_in_time_is_given_up(where: str, key: str) -> None:
    recorder = MemoryRecorder()
    before = len(abandoned_threads)
    session = await open_session("Blocking", recorder, key=key, where=where)
    calls: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "reset": lambda: session.reset(Reset(), 2),
        "step": lambda: session.step(TROUBLED, 2),
        "state": lambda: session.state(2),
    }
    if where != "reset":
        await session.reset(Reset(), 1)
    limit(session, 0.2)
    problem = await problem_of(calls[where]())
    limit(session, None)
    hanging = len(abandoned_threads)
    assert await is_lost(session)
    diary(key).gate.set()
    await session.reset(Reset(), 3)
    assert json.loads(await session.step(GO, 4))["observation"] == {"observation": 1}
    await session.close("client")

    assert (problem.code, problem.lost) == (Code.STEP_TIMEOUT, True)
    assert hanging == before + 1
    await asyncio.to_thread(until, lambda: diary(key).count("close") == 2)
    assert diary(key).made == 2
    assert diary(key).count("step", instance=2) == 1
    await asyncio.to_thread(until, lambda: len(abandoned_threads) == before)
    assert next(event.code for event in recorder.events if isinstance(event, Failed)) == Code.STEP_TIMEOUT


async def test_a_process_that_does_not_answer_in_time_is_killed() -> None:
    session = await begin_episode("Blocking", kind="process")
    limit(session, 0.2)
    problem = await problem_of(session.step(TROUBLED, 2))
    limit(session, None)
    await check_it_goes_on_after_a_reset(session)

    assert (problem.code, problem.lost) == (Code.STEP_TIMEOUT, True)


async def test_a_coroutine_that_does_not_answer_in_time_is_cancelled(key: str) -> None:
    session = await begin_episode("Later", key=key)
    limit(session, 0.2)
    problem = await problem_of(session.step(TROUBLED, 2))
    limit(session, None)
    await check_it_goes_on_after_a_reset(session)

    assert (problem.code, problem.lost) == (Code.STEP_TIMEOUT, True)
    assert diary(key).methods()[1:4] == ["reset", "step", "given up"]
    assert diary(key).made == 3
    assert diary(key).count("close") == 3


@pytest.mark.parametrize("name", ["Blocking", "Later"])
async def test_a_step_that_is_given_up_while_it_runs_loses_the_episode(name: str, key: str) -> None:
    recorder = MemoryRecorder()
    session = await begin_episode(name, recorder, key=key)
    step = asyncio.create_task(session.step(TROUBLED, 2))
    assert await asyncio.to_thread(diary(key).reached.wait, PATIENCE)
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step
    assert session.loss is not None
    assert session.loss.code == Code.CANCELLED
    diary(key).gate.set()
    await check_it_goes_on_after_a_reset(session)

    failed = next(event for event in recorder.events if isinstance(event, Failed))
    assert (failed.code, failed.lost, bytes(failed.action)) == (Code.CANCELLED, True, TROUBLED)
    await asyncio.to_thread(until, lambda: diary(key).count("close") == diary(key).made)
    assert diary(key).count("step", instance=diary(key).made) == 1


async def test_an_environment_that_breaks_again_and_again_is_made_anew_at_a_pace(key: str) -> None:
    waits: list[float] = []
    session = session_of("Raising", key=key, where="step")
    session._losses = Throttle(1000.0, 2, 60.0, clock=lambda: 100.0)
    await session.open()
    for number in range(1, 9, 2):
        await session.reset(Reset(), number)
        await problem_of(session.step(TROUBLED, number + 1))
        waits.append(session._losses.wait_seconds())
    await session.close("client")

    assert waits == pytest.approx([0.0, 0.0, 0.001, 0.002])


async def test_a_reset_after_too_many_losses_waits(key: str) -> None:
    session = session_of("Raising", key=key, where="step")
    session._losses = Throttle(1 / 3600, 0, 3600.0)
    await session.open()
    await session.reset(Reset(), 1)
    await problem_of(session.step(TROUBLED, 2))
    again = asyncio.ensure_future(session.reset(Reset(), 3))
    done, _ = await asyncio.wait([again], timeout=0.2)
    again.cancel()
    await asyncio.wait([again])
    await session.close("client")

    assert not done


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(("kind", "where"), [(EpisodeReset, "reset"), (EpisodeStepped, "step")])
async def test_what_cannot_be_recorded_has_lost_the_episode(
    kind: type[Event], where: str, later: bool, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Fallible(later=later)
    session = await begin_episode("Counting", recorder, key=key)
    recorder.kinds = (kind,)
    call = session.reset(Reset(), 2) if where == "reset" else session.step(GO, 2)
    problem = await problem_of(call)
    assert (session.epoch, session.step_count) == (1, 0)
    assert await is_lost(session)
    recorder.kinds = ()
    await session.reset(Reset(), 3)
    await session.step(GO, 4)
    await session.close("client")

    assert (problem.code, problem.lost) == (Code.RECORDING_FAILED, True)
    assert HIDDEN_TEXT not in msgspec.json.encode(problem).decode()
    assert str(problem.incident) in caplog.text
    assert next(event.code for event in recorder.events if isinstance(event, Failed)) == Code.RECORDING_FAILED
    assert diary(key).made == 3
    await asyncio.to_thread(until, lambda: diary(key).count("close") == 3)


@pytest.mark.parametrize("later", [False, True])
async def test_a_session_that_cannot_be_put_on_record_is_not_opened(later: bool, key: str) -> None:
    session = session_of("Counting", Fallible(SessionOpened, later=later), key=key)
    problem = await problem_of(session.open())

    assert problem.code == Code.RECORDING_FAILED
    await asyncio.to_thread(until, lambda: diary(key).count("close") == diary(key).made == 2)


async def test_an_opening_that_is_given_up_while_it_is_recorded_leaves_no_environment(key: str) -> None:
    recorder = Held()
    session = session_of("Counting", recorder, key=key)
    opening = asyncio.create_task(session.open())
    await recorder.asked.wait()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening

    await asyncio.to_thread(until, lambda: diary(key).count("close") == 2)


async def test_a_refusal_that_cannot_be_recorded_stays_a_refusal(key: str) -> None:
    session = await begin_episode("Counting", Fallible(Failed, SessionClosed), key=key)
    problem = await problem_of(session.step(b'{"action":10}', 2))
    answer = await session.step(GO, 3)
    await session.close("client")

    assert problem.code == Code.VALIDATION_ERROR
    assert json.loads(answer)["step"] == 1


@pytest.mark.parametrize("function", ["raises", "leaves"])
async def test_a_transform_that_fails_loses_the_episode(
    function: str, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = MemoryRecorder()
    own = {"type": "own", "function": f"tests.server.rewards.reward_functions:{function}"}
    session = await begin_episode("Counting", recorder, key=key, transforms=[own])
    problem = await problem_of(session.step(GO, 2))
    assert session.step_count == 0
    assert await is_lost(session)
    await session.reset(Reset(), 3)
    await session.close("client")

    assert (problem.code, problem.lost) == (Code.EXECUTION_ERROR, True)
    assert "secret" not in msgspec.json.encode(problem).decode()
    assert str(problem.incident) in caplog.text
    assert kinds(recorder)[:3] == ["SessionOpened", "EpisodeReset", "Failed"]


async def test_rewards_are_transformed_on_their_way(key: str) -> None:
    recorder = MemoryRecorder()
    session = await begin_episode("Counting", recorder, key=key, transforms=[{"type": "scale", "factor": 3.0}])
    answer = await session.step(b'{"action":2}', 2)
    await session.close("client")

    assert json.loads(answer)["reward"] == 6.0
    opened, _, stepped, _, _ = recorder.events
    assert isinstance(opened, SessionOpened)
    assert opened.transforms[0]["factor"] == 3.0
    assert isinstance(stepped, EpisodeStepped)
    assert (stepped.raw_reward, stepped.reward) == (2.0, 6.0)


async def test_a_factory_that_fails_later_is_refused_and_the_episode_stays_lost(key: str) -> None:
    session = await begin_episode("Raising", key=key)
    await problem_of(session.step(TROUBLED, 2))
    session.spec.target.settings["where"] = "make"
    unmade = await problem_of(session.reset(Reset(), 3))
    lost = await problem_of(session.step(GO, 4))
    session.spec.target.settings["where"] = "step"
    await session.reset(Reset(), 5)
    await session.close("client")

    assert (unmade.code, lost.code) == (Code.FACTORY_ERROR, Code.EPISODE_LOST)


# ------------------------------------------------------------------------------------------------------------- the end
async def test_after_a_close_nothing_runs_and_no_environment_is_made(key: str) -> None:
    recorder = MemoryRecorder()
    session = await begin_episode("Counting", recorder, key=key)
    await session.close("client")
    await session.close("again")
    problems = [
        await problem_of(session.step(GO, 2)),
        await problem_of(session.state(3)),
        await problem_of(session.reset(Reset(), 4)),
    ]

    assert {problem.code for problem in problems} == {Code.SESSION_ERROR}
    assert diary(key).methods() == ["close", "reset", "close"]
    assert kinds(recorder).count("SessionClosed") == 1


async def test_an_environment_that_fails_to_close_ends_its_session_all_the_same(
    key: str, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = MemoryRecorder()
    session = await open_session("Raising", recorder, key=key, where="close")
    await session.close("client")

    assert kinds(recorder) == ["SessionOpened", "SessionClosed"]
    assert HIDDEN_TEXT in caplog.text


async def test_an_environment_that_hangs_when_it_is_closed_is_abandoned(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = MemoryRecorder()
    before = len(abandoned_threads)
    session = session_of("Blocking", recorder, key=key, where="close")
    monkeypatch.setattr(module, "CLOSE_SECONDS", 0.1)
    await session.open()
    await session.close("client")
    hanging = len(abandoned_threads)
    diary(key).gate.set()

    assert hanging == before + 1
    assert kinds(recorder) == ["SessionOpened", "SessionClosed"]
    await asyncio.to_thread(until, lambda: diary(key).count("close") == 1)
    await asyncio.to_thread(
        until, lambda: diary(key).calls[0].thread not in [thread.ident for thread in threading.enumerate()]
    )
    assert len(abandoned_threads) == before


async def test_an_environment_that_cannot_be_made_leaves_no_record(key: str) -> None:
    recorder = MemoryRecorder()
    found = await problem_of(session_of("Raising", recorder, key=key, where="make").open())

    assert found.code == Code.FACTORY_ERROR
    assert recorder.events == ()


@pytest.mark.parametrize(("name", "immediate"), [("Quick", True), ("Counting", False), ("Later", False)])
async def test_only_what_is_quick_is_immediate(name: str, immediate: bool, key: str) -> None:
    session = session_of(name, key=key)
    before = session.immediate
    await session.open()
    during = session.immediate
    await session.close("client")

    assert (before, during, session.immediate) == (False, immediate, False)


# ------------------------------------------------------------------------------------------------- against a model
class Episodes(RuleBasedStateMachine):
    """A session and what it must be: its epoch, its step, whether it is lost, and which environment is at work."""

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.key = f"machine-{uuid.uuid4().hex}"
        self.recorder = Fallible()
        self.session = session_of("Raising", self.recorder, kind="inline", key=self.key, quick=True)
        self.session._losses = Throttle(1.0, 1, most_seconds=0.0)
        self.diary = diary(self.key)
        self.expected = ["SessionOpened"]
        self.epoch = self.step = self.total = 0
        self.lost = self.begun = self.closed = self.runs = False
        self.did(self.session.open())
        self.made = self.diary.made

    def teardown(self) -> None:
        self.did(self.session.close("teardown"))
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()
        assert self.diary.count("close") == self.diary.made

    def did(self, call: Coroutine[Any, Any, Result]) -> Result | Problem:
        async def caught() -> Result | Problem:
            try:
                return await call
            except RequestError as problem:
                return problem.problem

        return self.loop.run_until_complete(caught())

    def refused(self, found: object, code: Code, *, lost: bool) -> None:
        assert isinstance(found, Problem)
        assert (found.code, found.lost is True) == (code, lost)
        if not self.closed:  # nothing is stated after the end
            self.expected.append("Failed")

    def episode_over(self) -> None:
        if self.runs:
            self.expected.append("EpisodeClosed")
        self.runs = False

    def why_not(self) -> Code | None:
        """Return why a step cannot be taken now."""
        if self.lost:
            return Code.EPISODE_LOST
        if self.closed:
            return Code.SESSION_ERROR
        return None if self.begun else Code.STATE_ERROR

    @rule(fails=st.booleans())
    def reset(self, fails: bool) -> None:
        self.recorder.kinds = (EpisodeReset,) if fails else ()

        found = self.did(self.session.reset(Reset(), None))

        if not self.closed:
            self.episode_over()
        if self.closed:
            self.refused(found, Code.SESSION_ERROR, lost=False)
        elif fails:
            self.made += self.lost
            self.lost = True
            self.refused(found, Code.RECORDING_FAILED, lost=True)
        else:
            self.made += self.lost
            self.epoch, self.step, self.lost, self.begun = self.epoch + 1, 0, False, True
            self.runs = True
            self.expected.append("EpisodeReset")
            assert isinstance(found, bytes)
            assert json.loads(found)["metadata"] == {"instance": self.made}
        self.recorder.kinds = ()

    @rule(action=st.sampled_from((GO, TROUBLED, b'{"action":10}')), fails=st.booleans())
    def take_a_step(self, action: bytes, fails: bool) -> None:
        self.recorder.kinds = (EpisodeStepped,) if fails else ()
        steps = self.diary.count("step")

        found = self.did(self.session.step(action, None))

        code = self.why_not()
        if code is not None:
            self.refused(found, code, lost=code is Code.EPISODE_LOST)
            assert self.diary.count("step") == steps
        elif action == TROUBLED:
            self.lost = True
            self.refused(found, Code.EXECUTION_ERROR, lost=True)
        elif action != GO:
            self.refused(found, Code.VALIDATION_ERROR, lost=False)
            assert self.diary.count("step") == steps
        elif fails:
            self.lost = True
            self.refused(found, Code.RECORDING_FAILED, lost=True)
        else:
            self.step, self.total = self.step + 1, self.total + 1
            self.expected.append("EpisodeStepped")
            assert isinstance(found, bytes)
            seen = json.loads(found)
            assert (seen["observation"], seen["step"]) == ({"observation": self.step}, self.step)
        self.recorder.kinds = ()

    @rule()
    def ask_for_the_state(self) -> None:
        found = self.did(self.session.state(None))

        code = self.why_not()
        if code is None or code is Code.STATE_ERROR:
            assert isinstance(found, bytes)
            assert json.loads(found)["step_count"] == self.step
        else:
            self.refused(found, code, lost=code is Code.EPISODE_LOST)

    @precondition(lambda self: self.epoch > 2)
    @rule()
    def close(self) -> None:
        self.did(self.session.close("client"))

        if not self.closed:
            self.episode_over()
            self.expected.append("SessionClosed")
        self.closed = True

    @invariant()
    def the_session_is_where_the_model_is(self) -> None:
        session = self.session
        assert (session.epoch, session.step_count, session.total_steps) == (self.epoch, self.step, self.total)
        assert (session.loss is not None) == self.lost
        assert self.diary.made == self.made

    @invariant()
    def the_record_is_complete(self) -> None:
        assert kinds(self.recorder) == self.expected


TestEpisodes = Episodes.TestCase
TestEpisodes.settings = settings(deadline=None, max_examples=60, stateful_step_count=25)


def filled(count: int, *, most: int = 100, most_bytes: int = 10**6) -> RowLog:
    rows = RowLog(most=most, most_bytes=most_bytes)
    for number in range(1, count + 1):
        rows.add(str(number).encode())
    return rows


def test_bytes_are_bounded_but_the_last_row_is_always_there() -> None:
    rows = RowLog(most=100, most_bytes=10)

    for _ in range(3):
        rows.add(b"x" * 20)

    assert list(rows.after(0, 10).rows) == [b"x" * 20]
    assert rows.after(0, 10).missed == 2


def test_one_answer_has_a_bounded_size() -> None:
    rows = RowLog(most_bytes=10 * MOST_AT_ONCE)
    for _ in range(5):
        rows.add(b"x" * (MOST_AT_ONCE // 2))

    page = rows.after(0, 10)

    assert len(page.rows) == 2
    assert page.missed == 0


@given(count=st.integers(0, 60), most=st.integers(1, 20), page=st.integers(1, 7))
def test_whoever_reads_page_by_page_gets_what_is_kept_once_and_in_order(count: int, most: int, page: int) -> None:
    rows = filled(count, most=most)
    seen: list[bytes] = []
    missed = last = 0

    while True:
        found = rows.after(last, page)
        missed += found.missed
        last += found.missed + len(found.rows)
        seen += found.rows
        if not found.rows:
            break

    assert seen == [str(number).encode() for number in range(max(1, count - most + 1), count + 1)]
    assert missed == max(0, count - most)
    assert last == count


async def test_a_reader_that_waits_is_woken_by_the_next_row_and_by_the_end() -> None:
    rows = RowLog()
    woken: list[int] = []

    async def read(number: int) -> None:
        await rows.wait_for_change(20)
        woken.append(number)

    async with asyncio.timeout(300), asyncio.TaskGroup() as readers:
        first = readers.create_task(read(1))
        await asyncio.sleep(0)
        rows.add(b"{}")
        await first
        readers.create_task(read(2))
        await asyncio.sleep(0)
        rows.wake()

    assert woken == [1, 2]


async def test_a_reader_does_not_wait_longer_than_it_said() -> None:
    async with asyncio.timeout(300):
        await RowLog().wait_for_change(0.01)
