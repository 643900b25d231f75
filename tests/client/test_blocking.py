"""The same calls without `await`."""

import asyncio
import multiprocessing
import os
import signal
import threading
from typing import Any

import pytest

from proctor.client import blocking
from proctor.client.blocking import LoopThread, get_shared_loop
from proctor.errors import EpisodeLost, StateError, ValidationError
from tests.client.counting import GATE, Count, CountState
from tests.client.test_env_client import CountClient
from tests.server.live_server import Served

PATIENCE = 120.0


def ended(loop: LoopThread) -> None:
    loop._loop.call_soon_threadsafe(loop._loop.stop)
    loop._thread.join(PATIENCE)
    loop._loop.close()


def test_all_calls_are_there(served: Served) -> None:
    with CountClient.blocking(served.url, check_schema=True) as client:
        first = client.reset(seed=5, episode_id="e", options={"start": 1})
        second = client.step(Count(by=2))
        state = client.state()
        names = (client.metadata().name, client.schema().state["title"])

    assert (first.total, second.total) == (6, 8)
    assert state == CountState(episode_id="e", step_count=1, total=8)
    assert names == ("Counting", "CountState")
    assert repr(client) == f"CountClient('{served.ws_url}').sync()"


def test_errors_are_the_same_and_have_the_caller_in_their_trace(served: Served) -> None:
    with CountClient(served.url).sync() as client:
        with pytest.raises(StateError):
            client.step(Count())
        client.reset()
        with pytest.raises(ValidationError):
            client.step(Count(by=13))
        with pytest.raises(EpisodeLost) as loss:
            client.step(Count(by=-99))

    assert any(entry.name.startswith("test_errors") for entry in loss.traceback)


def test_all_clients_of_a_process_share_one_thread(served: Served) -> None:
    get_shared_loop()
    before = {thread.name for thread in threading.enumerate()}
    clients = [CountClient.blocking(served.url) for _ in range(4)]
    for client in clients:
        client.reset()
    more = {thread.name for thread in threading.enumerate()} - before
    for client in clients:
        client.close()

    # What the server's own environments work on is the server's affair.
    assert [name for name in more if name == "proctor-client"] == []


def test_clients_may_be_used_from_several_threads(served: Served) -> None:
    totals: dict[int, list[int]] = {}

    def play(number: int) -> None:
        with CountClient.blocking(served.url) as client:
            client.reset(seed=number)
            totals[number] = [client.step(Count()).total for _ in range(5)]

    threads = [threading.Thread(target=play, args=(10 * number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)

    assert totals == {10 * number: [10 * number + step for step in range(1, 6)] for number in range(6)}


def test_an_interrupted_call_leaves_a_known_state(served: Served) -> None:
    def interrupt() -> None:
        assert GATE.reached.wait(PATIENCE)
        os.kill(os.getpid(), signal.SIGINT)

    with CountClient.blocking(served.url) as client:
        client.reset()
        waiter = threading.Thread(target=interrupt)
        waiter.start()
        with pytest.raises(KeyboardInterrupt):
            client.step(Count(wait=True))
        waiter.join(PATIENCE)
        with pytest.raises(EpisodeLost):
            client.step(Count())
        GATE.opened.set()

        assert client.reset().steps == 0


def test_a_call_on_the_loop_itself_is_refused_instead_of_waiting_for_ever() -> None:
    loop = get_shared_loop()

    async def inside() -> None:
        loop.run(asyncio.sleep(0))

    with pytest.raises(StateError):
        loop.run(inside())


def test_what_a_coroutine_returns_or_raises_comes_back() -> None:
    async def five() -> int:
        return 5

    async def fail() -> None:
        raise LookupError("gone")

    async def cancel() -> None:
        raise asyncio.CancelledError

    loop = get_shared_loop()

    assert loop.run(five()) == 5
    with pytest.raises(LookupError, match="gone"):
        loop.run(fail())
    with pytest.raises(asyncio.CancelledError):
        loop.run(cancel())


def _in_a_child(url: str, inherited: Any, answers: Any) -> None:
    try:
        inherited.step(Count())
        refused = False
    except StateError:
        refused = True
    with CountClient.blocking(url) as client:
        client.reset(seed=50)
        answers.put((refused, client.step(Count()).total))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_has_a_loop_of_its_own_and_its_parent_goes_on(served: Served) -> None:
    with CountClient.blocking(served.url) as client:
        client.reset()
        context = multiprocessing.get_context("fork")
        answers = context.Queue()
        child = context.Process(target=_in_a_child, args=(served.url, client, answers))
        child.start()
        answer = answers.get(timeout=PATIENCE)
        child.join(PATIENCE)
        answers.close()
        answers.join_thread()

        assert answer == (True, 51)
        assert [client.step(Count()).total for _ in range(3)] == [1, 2, 3]


def test_after_a_fork_the_parent_s_loop_is_kept_and_another_made() -> None:
    shared = blocking._Shared()
    first = shared.get()
    shared.after_fork()
    second = shared.get()
    shared.after_fork()

    assert first is not second
    assert shared._inherited == [first, second]
    for loop in (first, second):
        ended(loop)
