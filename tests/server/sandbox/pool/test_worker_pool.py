"""A worker answers as a adapter in ours does; one that dies, hangs, floods or lies ends its own session and no other."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.envs.targets import Target
from proctor.errors import ComponentError, ValidationError
from proctor.models.control import Code, Problem
from proctor.models.wire import Encoding
from proctor.server.runtime.env_adapter import BatchAdapter, EnvDescription, describe_target
from proctor.server.runtime.results import EnvOutcome, RequestError
from proctor.server.sandbox.messages import encode_batch
from proctor.server.sandbox.pool import worker_pool
from proctor.server.sandbox.pool.cgroups import Cgroups, CgroupsMissing
from proctor.server.sandbox.pool.worker_executor import MOST_STARTS, WorkerExecutor
from proctor.server.sandbox.pool.worker_pool import NamespacesUnavailable, WorkerNotStarted, WorkerPool
from proctor.server.sandbox.pool.worker_process import FIRST_USER
from proctor.server.sandbox.pool.zygote_pool import MOST_FAILURES
from proctor.server.sandbox.tiers import MIB, SandboxLimits, SandboxRequest, Tier
from proctor.server.sandbox.worker import zygote
from tests.server.environments import HIDDEN_TEXT
from tests.server.live_server import PATIENCE, until
from tests.server.sandbox.processes import (
    ENVIRONMENTS,
    GO,
    ORDER,
    TROUBLE_MODULE,
    TROUBLED,
    comes_true,
    descendants,
    files,
    groups,
    pid_of,
    problem_of,
    run,
    work,
)

pytestmark = pytest.mark.anyio

TROUBLED_TARGET = f"{TROUBLE_MODULE}:Troubled"
COUNTING = work(f"{ENVIRONMENTS}:Counting")
BWRAP = pytest.param(Tier.BWRAP, marks=pytest.mark.system)
STRICT = pytest.param(Tier.STRICT, marks=pytest.mark.system)
LATE = ("hang", "spin")
FATAL = ("interrupt", "os_exit", "segfault", "flood", "nonsense", "huge", "twice")


@contextmanager
def running(tier: Tier = Tier.PROCESS, text: str = TROUBLED_TARGET, **options: Any) -> Iterator[WorkerPool]:
    """Give a pool, which is ended afterwards."""
    limits = options.pop("limits", SandboxLimits())
    pool = WorkerPool.start(Target(text), SandboxRequest(limits=limits), tier, **options)
    try:
        yield pool
    finally:
        pool.end()


@pytest.fixture(scope="module", params=[Tier.PROCESS, BWRAP, STRICT])
def pool(request: pytest.FixtureRequest) -> Iterator[WorkerPool]:
    """Give a pool in each tier; when it has ended, nothing of it is left."""
    before, grouped = descendants(), groups()
    with running(request.param) as pool:
        yield pool
    until(lambda: descendants().keys() <= before.keys())
    assert groups() <= grouped


@pytest.fixture
def own() -> Iterator[WorkerPool]:
    """Give a pool in the weakest tier, whose zygote a test may break; no other test has it."""
    with running() as pool:
        yield pool


async def buried(pool: WorkerPool) -> None:
    """Wait until nothing is left of any worker."""
    await comes_true(lambda: not pool._processes)


@asynccontextmanager
async def at_work(pool: WorkerPool, wanted: Any = COUNTING) -> AsyncIterator[WorkerExecutor]:
    """Give a executor with an episode under way, of which nothing is left afterwards."""
    executor = await pool.start_worker(wanted)
    try:
        await executor.reset(ORDER)
        yield executor
    finally:
        executor.abandon()


async def refusal(asking: Any) -> Problem:
    with pytest.raises(RequestError) as caught:
        await asking
    return problem_of(caught)


async def test_a_worker_answers_as_a_desk_in_ours_does(pool: WorkerPool) -> None:
    executor = await pool.start_worker(work(f"{ENVIRONMENTS}:Counting", end=1))
    begun: Any = await executor.reset(ORDER)
    stepped, state = await executor.step(b'{"action":4}'), await executor.state()
    refused = await refusal(executor.step(GO))
    pid = pid_of(executor)
    await executor.close()
    await buried(pool)
    is_left = Path(f"/proc/{pid}").exists()

    assert begun.observation == b'{"observation":3}'
    assert stepped == EnvOutcome(b'{"observation":1}', b"{}", 4.0, True, False)
    assert json.loads(state) == {"episode_id": "e", "step_count": 1}
    assert refused.clause == "NO-STEP-AFTER-END"
    assert not is_left


async def test_batches_coroutines_and_tools_work_in_workers_too(pool: WorkerPool) -> None:
    corridor = f"{ENVIRONMENTS}:Corridor"

    adapter = BatchAdapter(
        Target(corridor, {"length": 1}).make_batch(2, "same_step"), Encoding(), lambda: "", infos=False
    )
    adapter.reset(ORDER)
    expected = adapter.step(b'{"actions":[1,0]}')

    async with (
        at_work(pool, work(corridor, 2, length=1)) as batch,
        at_work(pool, work(f"{ENVIRONMENTS}:Later")) as later,
        at_work(pool, work(f"{TROUBLE_MODULE}:Tooled")) as tooled,
    ):
        steps: Any = await batch.step(b'{"actions":[1,0]}')
        stepped = await later.step(b'{"action":2}')
        gone, acted = await tooled.call("go", b'{"times":3}'), await tooled.act(GO)

    assert encode_batch(steps) == encode_batch(expected)
    assert stepped == EnvOutcome(b'{"observation":1}', b"{}", 2.0)
    assert gone.left == [GO, GO]
    assert acted.outcome == EnvOutcome(b'{"observation":2}', b"{}", 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("tier", [Tier.PROCESS, STRICT])
def test_a_batch_of_an_engine_of_ours_is_compiled_once_and_shared(tier: Tier) -> None:
    plume = "proctor/PlumeSearch-v0"

    async def scenario(pool: WorkerPool) -> tuple[Any, Any, set[str]]:
        batches = [pool.start_worker(work(plume, 2)) for _ in range(2)]
        single = await pool.start_worker(work(plume))
        first, second = await asyncio.gather(*batches)
        warm = pool._zygotes.current().warm
        outcomes = [encode_batch(await executor.reset(ORDER)) for executor in (first, second)]  # type: ignore[arg-type]
        for executor in (single, first, second):
            executor.abandon()
        return outcomes[0], outcomes[1], set(warm)

    with running(tier, plume) as pool:
        first, second, warm = run(scenario(pool), 100.0)

    assert first == second
    assert warm == {"same_step"}


def test_a_card_comes_from_a_worker(pool: WorkerPool) -> None:
    card = msgspec.msgpack.decode(pool.card(), type=EnvDescription)

    assert card == describe_target(Target(TROUBLED_TARGET))
    until(lambda: not pool._processes)


async def test_a_worker_sees_no_variable_and_no_file_of_the_server(
    own: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROCTOR_CONTROL_TOKEN", HIDDEN_TEXT)

    ours = set(files().values())
    async with at_work(own, work(f"{ENVIRONMENTS}:Process")) as executor:
        found: Any = await executor.reset(ORDER)
    seen = json.loads(found.metadata)

    assert seen["pid"] != os.getpid()
    assert "PROCTOR_CONTROL_TOKEN" not in seen["variables"]
    assert "HOME" in seen["variables"]
    assert [name for name in seen["files"] if not name.startswith(("/dev/null", "/proc/", "socket:"))] == []
    assert [name for name in seen["files"] if name.startswith("socket:") and name in ours] == []


async def test_many_are_started_at_once(own: WorkerPool) -> None:
    executors = await asyncio.gather(*(own.start_worker(COUNTING) for _ in range(2 * MOST_STARTS)))
    found = {pid_of(executor) for executor in executors}
    for executor in executors:
        executor.abandon()
    await buried(own)

    assert len(found) == 2 * MOST_STARTS


@pytest.mark.parametrize("how", ["raise", "exit", *FATAL, *LATE])
async def test_trouble_in_a_step_ends_its_own_session_and_no_other(
    pool: WorkerPool, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with at_work(pool) as neighbour, at_work(pool, work(TROUBLED_TARGET, how=how)) as executor:
        await executor.step(GO)
        if how in LATE:
            executor.timeout = 0.3
        problem = await refusal(executor.step(TROUBLED))
        executor.abandon()
        after = await refusal(executor.step(GO))
        beside = await neighbour.step(GO)

    late = dict.fromkeys(LATE, Code.STEP_TIMEOUT)
    assert problem.code == {**late, "huge": Code.TOO_LARGE}.get(how, Code.EXECUTION_ERROR)
    assert problem.lost
    assert str(problem.incident) in caplog.text
    assert HIDDEN_TEXT not in problem.message
    assert (HIDDEN_TEXT in caplog.text) == (how == "raise")
    assert after.lost
    assert beside == EnvOutcome(b'{"observation":1}', b"{}", 1.0)


async def test_a_worker_that_speaks_between_two_calls_is_killed(pool: WorkerPool) -> None:
    async with at_work(pool, work(TROUBLED_TARGET, how="later")) as executor:
        await executor.step(TROUBLED)
        pid = pid_of(executor)
        await comes_true(lambda: not Path(f"/proc/{pid}").exists())
        found = await refusal(executor.step(GO))

    assert found.code == Code.EXECUTION_ERROR


@pytest.mark.parametrize("how", ["raise", "exit", "os_exit"])
async def test_trouble_in_a_reset_is_a_failure(pool: WorkerPool, how: str) -> None:
    executor = await pool.start_worker(work(TROUBLED_TARGET, how=how, where="reset"))
    problem = await refusal(executor.reset(ORDER))
    await executor.close()

    assert problem.code == Code.EXECUTION_ERROR


@pytest.mark.parametrize("how", ["raise", "exit", "os_exit", "flood", "segfault"])
async def test_an_environment_that_cannot_be_made_is_refused_without_its_text(pool: WorkerPool, how: str) -> None:
    problem = await refusal(pool.start_worker(work(TROUBLED_TARGET, how=how, where="make")))
    await buried(pool)

    assert problem.code == Code.FACTORY_ERROR
    assert problem.incident
    assert HIDDEN_TEXT not in msgspec.json.encode(problem).decode()


@pytest.mark.parametrize("how", ["raise", "os_exit", "hang"])
async def test_trouble_in_closing_ends_the_worker_all_the_same(
    pool: WorkerPool, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proctor.server.sandbox.pool.worker_executor.CLOSE_SECONDS", 0.2)

    async with at_work(pool, work(TROUBLED_TARGET, how=how, where="close")) as executor:
        pid = pid_of(executor)
        await executor.close()
        await buried(pool)
        found = Path(f"/proc/{pid}").exists()

    assert not found


async def test_a_worker_that_is_killed_from_outside_has_lost_its_episode(pool: WorkerPool) -> None:
    async with (
        at_work(pool) as neighbour,
        at_work(pool) as idle,
        at_work(pool, work(TROUBLED_TARGET, how="hang")) as busy,
    ):
        step = asyncio.create_task(busy.step(TROUBLED))
        await asyncio.sleep(0)
        for executor in (idle, busy):
            os.kill(pid_of(executor), signal.SIGKILL)
        killed, later = await refusal(step), await refusal(idle.step(GO))
        beside: Any = await neighbour.step(GO)

    assert (killed.code, killed.lost) == (later.code, later.lost) == (Code.EXECUTION_ERROR, True)
    assert beside.observation == b'{"observation":1}'


async def test_a_call_that_is_given_up_kills_the_worker(pool: WorkerPool) -> None:
    async with at_work(pool, work(TROUBLED_TARGET, how="hang")) as executor:
        pid = pid_of(executor)
        step = asyncio.create_task(executor.step(TROUBLED))
        await asyncio.sleep(0)
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
        await buried(pool)
        found = Path(f"/proc/{pid}").exists()

    assert not found


async def test_what_an_environment_has_started_ends_with_it(pool: WorkerPool) -> None:
    before = descendants()
    async with at_work(pool, work(f"{TROUBLE_MODULE}:Parent")) as executor:
        assert len(descendants().keys() - before.keys()) >= 2
        await executor.close()

    assert await comes_true(lambda: descendants().keys() <= before.keys())


@pytest.mark.system
def test_a_worker_that_needs_too_much_memory_ends_alone_and_is_said_to() -> None:
    async def scenario(pool: WorkerPool) -> tuple[Problem, Any]:
        async with at_work(pool) as neighbour, at_work(pool, work(f"{TROUBLE_MODULE}:Hungry", mebibytes=600)) as hungry:
            return await refusal(hungry.step(TROUBLED)), await neighbour.step(GO)

    with running(Tier.STRICT, limits=SandboxLimits(memory_bytes=256 * MIB)) as pool:
        problem, beside = run(scenario(pool))

    assert "memory" in problem.message
    assert beside.observation == b'{"observation":1}'


@pytest.mark.parametrize("moment", range(6))
async def test_a_start_that_is_given_up_leaves_nothing(pool: WorkerPool, moment: int) -> None:
    (await pool.start_worker(COUNTING)).abandon()
    await buried(pool)
    held, alive = files(), len(descendants())
    starting = asyncio.create_task(pool.start_worker(COUNTING))
    for _ in range(moment):
        await asyncio.sleep(0.001 * moment)
    starting.cancel()
    with suppress(asyncio.CancelledError):
        (await starting).abandon()
    await buried(pool)
    await comes_true(lambda: len(descendants()) <= alive)
    after = files()

    assert after.keys() <= held.keys()


async def test_a_making_that_is_given_up_kills_the_worker(pool: WorkerPool) -> None:
    making = pool.start_worker(work(TROUBLED_TARGET, how="hang", where="make"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await making
    await buried(pool)


def zygote_pid(pool: WorkerPool) -> int:
    keeper = pool._zygotes.current()
    keeper.ready.result(PATIENCE)
    told = Path(f"/proc/self/fdinfo/{keeper._descriptor}").read_text()
    return int(next(line for line in told.splitlines() if line.startswith("Pid:")).split()[1])


async def test_a_zygote_that_dies_takes_its_sessions_and_the_next_has_a_new_one(
    pool: WorkerPool, caplog: pytest.LogCaptureFixture
) -> None:
    before = len(descendants())
    async with at_work(pool) as executor:
        first = zygote_pid(pool)
        worker = pid_of(executor)
        os.kill(first, signal.SIGKILL)
        await comes_true(lambda: not Path(f"/proc/{worker}").exists())
        lost = await refusal(executor.step(GO))
        executors = await asyncio.gather(*(pool.start_worker(COUNTING) for _ in range(4)))
        outcomes = [await each.reset(ORDER) for each in executors]
        zygotes = {first, zygote_pid(pool)}
        for each in executors:
            each.abandon()
        await buried(pool)
        count = len(executors)

    assert (lost.code, lost.lost) == (Code.EXECUTION_ERROR, True)
    assert len(zygotes) == 2
    assert len(outcomes) == count
    assert caplog.text.count("zygote ended") == 1
    until(lambda: len(descendants()) <= before)


async def test_a_zygote_that_dies_while_a_worker_is_asked_for_is_replaced(
    own: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It is not known yet that it is dead.
    os.kill(zygote_pid(own), signal.SIGSTOP)
    pid, keeper = zygote_pid(own), own._zygotes.current()
    fork = keeper.fork

    def killing(channel: Any) -> None:
        fork(channel)
        os.kill(pid, signal.SIGKILL)

    monkeypatch.setattr(keeper, "fork", killing)

    async with at_work(own) as executor:
        found: Any = await executor.step(GO)

    assert found.observation == b'{"observation":1}'


async def test_a_zygote_that_does_not_fork_in_time_is_replaced(
    own: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = own._zygotes.current()
    os.kill(zygote_pid(own), signal.SIGSTOP)
    monkeypatch.setattr(own, "_seconds", 0.3)

    problem = await refusal(own.start_worker(COUNTING))
    # Whoever waited has waited long enough: the next one is started for the next session, with all its time.
    zygotes = set(own._zygotes._all)
    monkeypatch.undo()
    async with at_work(own) as executor:
        stepped: Any = await executor.step(GO)

    assert problem.code == Code.FACTORY_ERROR
    assert zygotes == {stopped}
    assert stepped.observation == b'{"observation":1}'


async def test_a_zygote_that_dies_again_and_again_is_left_alone_for_a_while(
    own: WorkerPool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [100.0]
    monkeypatch.setattr(own._zygotes, "_clock", lambda: now[0])
    monkeypatch.setattr(zygote, "ENTRY", "import sys; sys.exit(1)")
    starts: list[int] = []
    command = own._command

    def counted(descriptor: int) -> list[str]:
        starts.append(descriptor)
        return command(descriptor)

    monkeypatch.setattr(own, "_command", counted)

    (await own.start_worker(COUNTING)).abandon()
    keeper = own._zygotes.current()
    os.kill(zygote_pid(own), signal.SIGKILL)
    await comes_true(keeper.ended.is_set)
    problems = [await refusal(own.start_worker(COUNTING)) for _ in range(MOST_FAILURES + 5)]
    tries = len(starts)
    await comes_true(lambda: sandboxes(own) == 0)
    now[0] += 1000
    monkeypatch.undo()
    async with at_work(own) as executor:
        stepped: Any = await executor.step(GO)

    assert {problem.code for problem in problems} == {Code.FACTORY_ERROR}
    assert tries == MOST_FAILURES
    assert "times in a row" in caplog.text
    assert stepped.observation == b'{"observation":1}'


FOREIGN = """
import signal, socket, sys
s = socket.socket(fileno=int(sys.argv[1]))
s.send(b"h")
s.recv(1)
s.close()
signal.pause()
"""
"""A process that says what a worker says, and is none."""


def test_a_process_that_does_not_come_from_the_zygote_is_no_worker_and_stays_unhurt(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = pool._zygotes.current()
    keeper.ready.result(PATIENCE)
    with ExitStack() as stack:
        foreign: list[subprocess.Popen[bytes]] = []

        def fork(channel: socket.socket) -> None:
            command = [sys.executable, "-I", "-S", "-c", FOREIGN, str(channel.fileno())]
            foreign.append(stack.enter_context(subprocess.Popen(command, pass_fds=[channel.fileno()])))
            stack.callback(foreign[-1].kill)

        monkeypatch.setattr(worker_pool, "DEATH_SECONDS", 0.1)
        monkeypatch.setattr(keeper, "fork", fork)

        async def scenario() -> Problem:
            problem = await refusal(pool.start_worker(COUNTING))
            await buried(pool)
            return problem

        problem = run(scenario())
        grouped = Path(f"/proc/{foreign[0].pid}/cgroup").read_text()
        ended = foreign[0].poll()

    assert problem.code == Code.FACTORY_ERROR
    assert ended is None
    assert "worker" not in grouped


@pytest.mark.parametrize("said", ["s.send(b'h')", "socket.send_fds(s, [b'h'], [0, 1])", "s.send(b'hx\\ny')"])
def test_a_worker_that_says_too_much_or_ends_is_refused(
    own: WorkerPool, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    hostile = (
        "import os, socket, sys; sys.path[:] = sys.argv[2:]; from proctor.server.sandbox.worker import worker\n"
        "def begin(descriptor, start):\n"
        f"    s = socket.socket(fileno=descriptor); {said}; s.send(b'h'); os._exit(0)\n"
        "worker.run_worker = begin\n"
        "from proctor.server.sandbox.worker.zygote import main; main(int(sys.argv[1]))"
    )
    monkeypatch.setattr(worker_pool, "DEATH_SECONDS", 0.1)
    monkeypatch.setattr(zygote, "ENTRY", hostile)

    async def scenario(pool: WorkerPool) -> Problem:
        problem = await refusal(pool.start_worker(COUNTING))
        await buried(pool)
        return problem

    with running() as pool:
        run(asyncio.sleep(0))
        before = files()
        assert run(scenario(pool)).code == Code.FACTORY_ERROR
        assert files().keys() <= before.keys()


@pytest.mark.system
def test_each_strict_worker_is_a_user_of_its_own_on_this_host() -> None:
    async def scenario(pool: WorkerPool) -> list[str]:
        async with at_work(pool) as one, at_work(pool) as other:
            pids = (pid_of(one), pid_of(other), pool._zygotes.current().pid)
            return [Path(f"/proc/{pid}/status").read_text() for pid in pids]

    with running(Tier.STRICT) as pool:
        told = run(scenario(pool))
    users = [next(line for line in text.splitlines() if line.startswith("Uid:")).split()[1:] for text in told]

    assert all(len(set(each)) == 1 for each in users)
    assert len({each[0] for each in users}) == 3
    assert all(int(each[0]) >= FIRST_USER for each in users)
    assert ["Seccomp:\t2" in text for text in told] == [True] * 3


def sandboxes(pool: WorkerPool) -> int:
    """Return how many sandboxes are there that have not been told to end."""
    return sum(keeper.alive for keeper in pool._zygotes._all)


@pytest.mark.system
def test_where_workers_get_no_namespaces_each_session_has_a_sandbox_of_its_own(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refusing = (
        "import sys; sys.path[:] = sys.argv[2:]; from proctor.server.sandbox.worker import confine\n"
        "def own_namespaces(*_, **__): raise PermissionError(1, 'forbidden here')\n"
        "confine.own_namespaces = own_namespaces\n"
        "from proctor.server.sandbox.worker.zygote import main; main(int(sys.argv[1]))"
    )
    monkeypatch.setattr(zygote, "ENTRY", refusing)
    before, grouped = descendants(), groups()

    async def scenario(pool: WorkerPool) -> tuple[Any, int]:
        async with at_work(pool) as one, at_work(pool) as other:
            alive = sandboxes(pool)
            os.kill(pid_of(one), signal.SIGKILL)
            await refusal(one.step(GO))
            stepped = await other.step(GO)
        await comes_true(lambda: sandboxes(pool) == 0)
        return stepped, alive

    with running(Tier.STRICT) as pool:
        stepped, alive = run(scenario(pool))

    assert "forbidden here" in (pool.alone or "")
    assert "whole Python" in caplog.text
    assert stepped.observation == b'{"observation":1}'
    assert alive == 2
    until(lambda: descendants().keys() <= before.keys())
    assert groups() <= grouped


async def test_a_nest_that_finds_no_namespaces_starts_a_zygote_for_each_session(
    own: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    birth = own._fork_from
    tries: list[Any] = []

    async def refused_once(keeper: Any, only: Any = None) -> Any:
        tries.append(only)
        if only is None:
            raise NamespacesUnavailable("forbidden here")
        return await birth(keeper, only)

    monkeypatch.setattr(own, "_fork_from", refused_once)
    monkeypatch.setattr(own, "alone", own.alone)  # it is as before afterwards

    async with at_work(own) as one, at_work(own):
        stepped: Any = await one.step(GO)
        alive = sandboxes(own)
    await comes_true(lambda: sandboxes(own) == 0)

    assert own.alone == "forbidden here"
    assert [each is None for each in tries] == [True, False, False]
    assert stepped.observation == b'{"observation":1}'
    assert alive == 2


def test_a_sandbox_of_its_own_that_does_not_start_is_refused_and_gone(
    own: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unborn(*_: Any) -> Any:
        raise WorkerNotStarted("not today")

    monkeypatch.setattr(own, "alone", "forbidden here")
    monkeypatch.setattr(own, "_fork_from", unborn)
    before = sandboxes(own)

    problem = run(refusal(own.start_worker(COUNTING)))

    assert problem.code == Code.FACTORY_ERROR
    until(lambda: sandboxes(own) == before)


def test_a_module_that_cannot_be_imported_stops_the_start() -> None:
    before, held = descendants(), files()

    with pytest.raises(ValidationError, match="nowhere_at_all"), running(text="nowhere_at_all:Thing"):
        pass

    assert descendants().keys() <= before.keys()
    assert files().keys() <= held.keys()


@pytest.mark.parametrize("how", ["os._exit(0)", "os.kill(os.getpid(), 9)", "os.closerange(3, 99)"])
def test_a_module_that_ends_the_process_stops_the_start(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ending_module.py").write_text(f"import os\n{how}\nclass Thing: pass\n")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(ComponentError), running(text="ending_module:Thing"):
        pass


def test_a_module_that_hangs_stops_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hanging_module.py").write_text("import time\ntime.sleep(60)\n")
    monkeypatch.syspath_prepend(tmp_path)

    with (
        pytest.raises(ComponentError, match=r"within 1\.5 seconds"),
        running(text="hanging_module:Thing", start_seconds=1.5),
    ):
        pass


def test_an_environment_that_cannot_be_described_is_said_to_the_operator(
    own: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own, "_target", Target(TROUBLED_TARGET, {"how": "raise", "where": "make"}))

    with pytest.raises(ValidationError, match=HIDDEN_TEXT):
        own.card()


def test_an_environment_that_hangs_when_it_is_described_is_said_to_the_operator(
    own: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = own._start_executor

    async def slow_to_make(name: str = "") -> WorkerExecutor:
        """Give a worker all the time that it needs to come, and then little."""
        executor = await empty(name)
        monkeypatch.setattr(own, "_seconds", 0.5)
        return executor

    monkeypatch.setattr(own, "_target", Target(TROUBLED_TARGET, {"how": "hang", "where": "make"}))
    monkeypatch.setattr(own, "_start_executor", slow_to_make)

    with pytest.raises(ComponentError, match="not made within"):
        own.card()


@pytest.mark.parametrize("tier", [Tier.NONE, Tier.DOCKER])
def test_there_is_no_nest_in_the_other_tiers(tier: Tier) -> None:
    with pytest.raises(ValidationError), running(tier):
        pass


def test_strict_without_cgroups_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_none() -> Cgroups:
        raise CgroupsMissing("there are none")

    monkeypatch.setattr(worker_pool, "find_cgroups", find_none)

    with pytest.raises(ComponentError, match="there are none"), running(Tier.STRICT):
        pass


@pytest.mark.parametrize("tier", [Tier.PROCESS, BWRAP, STRICT])
def test_a_nest_that_is_closed_leaves_no_process_no_file_and_no_group(tier: Tier) -> None:
    async def scenario(pool: WorkerPool) -> tuple[Problem, Problem]:
        executors = [await pool.start_worker(COUNTING) for _ in range(3)]
        await pool.close()
        pool.end()
        return await refusal(executors[0].reset(ORDER)), await refusal(pool.start_worker(COUNTING))

    run(asyncio.sleep(0))  # what a loop keeps for ever
    before, held, grouped = descendants(), files(), groups()
    with running(tier) as pool:
        lost, refused = run(scenario(pool))

    assert lost.code == Code.EXECUTION_ERROR
    assert refused.code == Code.FACTORY_ERROR
    until(lambda: descendants().keys() <= before.keys())
    assert files().keys() <= held.keys()
    assert groups() <= grouped
