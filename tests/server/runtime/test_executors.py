"""Where a desk works makes no difference to what it answers; a thread ends with its environment, whatever that does."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.envs.targets import AnyEnvironment
from proctor.models.control import Code
from proctor.models.wire import Encoding
from proctor.server.runtime.env_adapter import EnvAdapter, ResetRequest
from proctor.server.runtime.executors import AnyAdapter, Executor, LoopExecutor, ThreadExecutor, abandoned_threads
from proctor.server.runtime.results import EnvOutcome, RequestError, RequestFailed, RequestRefused
from tests.server.environments import HIDDEN_TEXT, TROUBLE, Blocking, Counting, Diary, Later, Quick, Raising, diary
from tests.server.live_server import PATIENCE, until

pytestmark = pytest.mark.anyio

ORDER = ResetRequest(3, "e", None)
GO = b'{"action":0}'
HOLD = b'{"action":%d}' % TROUBLE
Result = TypeVar("Result")


@pytest.fixture
def key() -> str:
    """A name that no other test has, for a diary and a thread."""
    return f"test-{uuid.uuid4().hex}"


def run(scenario: Coroutine[Any, Any, Result]) -> Result:
    async def bounded() -> Result:
        async with asyncio.timeout(PATIENCE):
            return await scenario

    return asyncio.run(bounded())


def desk_of(environment: AnyEnvironment) -> EnvAdapter:
    return EnvAdapter(environment, Encoding(), lambda: "incident-1")


def maker(make: Callable[[], AnyEnvironment]) -> Callable[[], AnyAdapter]:
    return lambda: desk_of(make())


async def on_thread(name: str, make: Callable[[], AnyEnvironment]) -> ThreadExecutor:
    place = ThreadExecutor(name)
    await place.make(maker(make))
    return place


async def on_loop(name: str, make: Callable[[], AnyEnvironment]) -> LoopExecutor:
    environment = make()
    return LoopExecutor(desk_of(environment), immediate=environment.quick)


PLACES: list[Callable[[str, Callable[[], AnyEnvironment]], Coroutine[Any, Any, Executor]]] = [on_thread, on_loop]


def threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def gone(name: str) -> bool:
    return until(lambda: not threads(name)) is True


async def reached(written: Diary) -> None:
    """Wait until an environment hangs."""
    assert await asyncio.to_thread(written.reached.wait, PATIENCE)


async def given_up(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("placed", PLACES)
@pytest.mark.parametrize("kind", [Counting, Quick])
async def test_a_desk_answers_the_same_wherever_it_works(placed: Any, kind: type[Counting], key: str) -> None:
    place = await placed(key, lambda: kind(key))
    begun, stepped, state = await place.reset(ORDER), await place.step(b'{"action":4}'), await place.state()
    await place.close()

    assert begun == EnvOutcome(b'{"observation":3}', b'{"instance":1}')
    assert stepped == EnvOutcome(b'{"observation":1}', b"{}", 4.0)
    assert state == b'{"episode_id":"e","step_count":1}'
    assert diary(key).methods() == ["reset", "step", "close"]
    assert await asyncio.to_thread(gone, key)


@pytest.mark.parametrize("placed", PLACES)
@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (lambda: Raising("step", "error"), (RequestFailed, Code.EXECUTION_ERROR)),
        (lambda: Raising("step", "validation"), (RequestRefused, Code.VALIDATION_ERROR)),
        (lambda: Counting(end=1), (RequestRefused, Code.STATE_ERROR)),
    ],
)
async def test_what_is_not_done_is_raised_wherever_a_desk_works(
    placed: Any, environment: Callable[[], AnyEnvironment], expected: Any, key: str
) -> None:
    place = await placed(key, environment)
    await place.reset(ORDER)
    await place.step(GO)
    with pytest.raises(RequestError) as caught:
        await place.step(HOLD)
    await place.close()

    assert (type(caught.value), caught.value.problem.code) == expected
    assert await asyncio.to_thread(gone, key)


@pytest.mark.parametrize("placed", PLACES)
async def test_what_a_close_raises_is_raised_and_the_place_is_gone(placed: Any, key: str) -> None:
    place = await placed(key, lambda: Raising("close"))
    with pytest.raises(RuntimeError, match=HIDDEN_TEXT):
        await place.close()

    assert await asyncio.to_thread(gone, key)


@pytest.mark.parametrize("placed", PLACES)
async def test_an_abandoned_environment_is_closed_all_the_same(placed: Any, key: str) -> None:
    before = set(abandoned_threads)
    place = await placed(key, lambda: Counting(key))
    await place.reset(ORDER)
    place.abandon()
    await asyncio.to_thread(until, lambda: diary(key).count("close"))

    assert diary(key).methods() == ["reset", "close"]
    assert await asyncio.to_thread(gone, key)
    assert set(abandoned_threads) == before


@pytest.mark.parametrize("placed", PLACES)
async def test_an_abandoned_environment_that_fails_to_close_is_logged(
    placed: Any, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "proctor.environment")
    place = await placed(key, lambda: Raising("close", key=key))
    place.abandon()
    await asyncio.to_thread(until, lambda: HIDDEN_TEXT in caplog.text)

    assert [each.getMessage() for each in caplog.records if each.name == "proctor.environment"] == [
        "an environment failed to close"
    ]
    assert await asyncio.to_thread(gone, key)


async def test_a_step_that_is_a_coroutine_is_awaited_on_the_loop(key: str) -> None:
    place = LoopExecutor(desk_of(Later(key)), immediate=False)
    await place.reset(ORDER)
    outcome = await place.step(GO)
    await place.close()

    assert outcome == EnvOutcome(b'{"observation":1}', b"{}", 0.0)
    assert not place.immediate
    assert diary(key).methods() == ["reset", "step", "close"]


async def test_a_coroutine_that_is_given_up_is_cancelled(key: str) -> None:
    place = LoopExecutor(desk_of(Later(key)), immediate=False)
    await place.reset(ORDER)
    step = asyncio.create_task(place.step(HOLD))
    await reached(diary(key))
    await given_up(step)
    place.abandon()
    await asyncio.to_thread(until, lambda: diary(key).count("close"))

    assert diary(key).methods() == ["reset", "step", "given up", "close"]


async def test_an_environment_that_nobody_waits_for_is_closed_once_it_is_made(key: str) -> None:
    making: asyncio.Future[AnyAdapter] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(LoopExecutor.around(making, immediate=True))
    await asyncio.sleep(0)
    await given_up(waiting)
    making.set_result(desk_of(Counting(key)))
    await asyncio.to_thread(until, lambda: diary(key).count("close"))

    assert diary(key).methods() == ["close"]


@pytest.mark.parametrize("late", [True, False])
async def test_a_making_that_fails_is_told_to_who_waits_and_to_nobody_else(late: bool) -> None:
    making: asyncio.Future[AnyAdapter] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(LoopExecutor.around(making, immediate=True))
    await asyncio.sleep(0)
    if late:
        await given_up(waiting)
    making.set_exception(RuntimeError(HIDDEN_TEXT))
    if not late:
        with pytest.raises(RuntimeError, match=HIDDEN_TEXT):
            await waiting
    await asyncio.sleep(0)

    gc.collect()


async def test_an_environment_lives_on_one_thread_of_its_own(key: str) -> None:
    place = await on_thread(key, lambda: Counting(key))
    await place.reset(ORDER)
    await place.step(GO)
    await place.close()

    used = {call.thread for call in diary(key).calls}
    assert len(used) == 1
    assert threading.get_ident() not in used


async def test_a_step_that_blocks_holds_nobody_else_up(key: str) -> None:
    blocked = await on_thread(key, lambda: Blocking(key))
    await blocked.reset(ORDER)
    step = asyncio.create_task(blocked.step(HOLD))
    await reached(diary(key))
    free = await on_thread(f"{key}-free", Counting)
    await free.reset(ORDER)
    outcome = await free.step(GO)
    assert not step.done()
    diary(key).gate.set()
    await step
    await asyncio.gather(blocked.close(), free.close())

    assert (outcome.observation if isinstance(outcome, EnvOutcome) else b"") == b'{"observation":1}'
    assert await asyncio.to_thread(gone, key)
    assert await asyncio.to_thread(gone, f"{key}-free")


async def test_an_abandoned_thread_is_a_stray_until_its_call_returns(key: str) -> None:
    before = len(abandoned_threads)
    place = await on_thread(key, lambda: Blocking(key))
    await place.reset(ORDER)
    step = asyncio.create_task(place.step(HOLD))
    await reached(diary(key))
    await given_up(step)
    place.abandon()
    counted, alive = len(abandoned_threads), bool(threads(key))
    diary(key).gate.set()
    await asyncio.to_thread(gone, key)

    assert alive
    assert counted == before + 1
    assert len(abandoned_threads) == before
    assert diary(key).methods() == ["reset", "step", "close"]


async def test_a_close_that_was_given_up_leaves_no_stray_behind(key: str) -> None:
    before = set(abandoned_threads)
    place = await on_thread(key, lambda: Blocking(key, where="close"))
    closing = asyncio.create_task(place.close())
    await reached(diary(key))
    await given_up(closing)
    place.abandon()
    diary(key).gate.set()
    await asyncio.to_thread(gone, key)

    assert diary(key).methods() == ["close"]
    assert set(abandoned_threads) == before


async def test_an_abandoned_thread_that_hangs_in_its_close_is_a_stray(key: str) -> None:
    before = len(abandoned_threads)
    place = await on_thread(key, lambda: Blocking(key, where="close"))
    place.abandon()
    await reached(diary(key))
    counted = len(abandoned_threads)
    diary(key).gate.set()
    await asyncio.to_thread(gone, key)

    assert counted == before + 1
    assert len(abandoned_threads) == before


@pytest.mark.parametrize("what", ["error", "exit", "stop", "validation"])
def test_a_making_that_fails_is_raised_and_ends_the_thread(what: str, key: str) -> None:
    async def scenario() -> BaseException:
        place = ThreadExecutor(key)
        try:
            await place.make(maker(lambda: Raising("make", what)))
        except Exception as problem:  # noqa: BLE001  # which one it is, is judged below
            return problem
        return AssertionError("it was made")

    before = set(abandoned_threads)
    problem = run(scenario())

    assert not isinstance(problem, TimeoutError | AssertionError)
    assert gone(key)
    assert set(abandoned_threads) == before


async def test_a_making_that_is_given_up_is_closed_when_it_is_made(key: str) -> None:
    before = len(abandoned_threads)
    place = ThreadExecutor(key)
    making = asyncio.create_task(place.make(maker(lambda: Blocking(key, where="make"))))
    await reached(diary(key))
    await given_up(making)
    counted = len(abandoned_threads)
    diary(key).gate.set()
    await asyncio.to_thread(gone, key)

    assert counted == before + 1
    assert len(abandoned_threads) == before
    assert diary(key).methods() == ["close"]


def test_a_thread_that_outlives_the_loop_ends_in_silence(key: str) -> None:
    async def scenario() -> None:
        place = await on_thread(key, lambda: Blocking(key))
        await place.reset(ORDER)
        step = asyncio.create_task(place.step(HOLD))
        await reached(diary(key))
        await given_up(step)
        place.abandon()

    before = set(abandoned_threads)
    run(scenario())
    diary(key).gate.set()

    assert gone(key)
    assert diary(key).methods() == ["reset", "step", "close"]
    assert set(abandoned_threads) == before


@settings(max_examples=25)
@given(st.lists(st.sampled_from(["close", "abandon", "fail", "give up"]), min_size=1, max_size=6))
def test_no_thread_outlives_its_place(ends: list[str]) -> None:
    name = f"ends-{uuid.uuid4().hex}"

    async def scenario() -> None:
        for end in ends:
            place = ThreadExecutor(name)
            if end == "fail":
                with pytest.raises(RuntimeError):
                    await place.make(maker(lambda: Raising("make")))
            elif end == "give up":
                making = asyncio.create_task(place.make(maker(Counting)))
                await asyncio.sleep(0)
                await given_up(making)
            else:
                await place.make(maker(Counting))
                await place.close() if end == "close" else place.abandon()

    before = set(abandoned_threads)
    run(scenario())

    assert gone(name)
    assert set(abandoned_threads) == before
