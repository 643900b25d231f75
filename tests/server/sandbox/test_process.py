"""A desk in a process of its own answers as one in ours does; a process that dies, lies or hangs takes its episode only."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.envs.targets import Target
from proctor.models.control import Code, Problem
from proctor.models.wire import Encoding
from proctor.server.answers import BatchOutcome, Failed, NotDone, Outcome, Refused
from proctor.server.batch_desk import BatchDesk
from proctor.server.desk import ResetOrder
from proctor.server.sandbox import process
from proctor.server.sandbox.pipe import (
    LENGTH,
    MOST_BYTES,
    Answer,
    BatchArrays,
    Call,
    Work,
    as_arrays,
    framed,
    from_arrays,
    spoken,
)
from proctor.server.sandbox.process import InProcess
from proctor.server.sandbox.worker import main
from proctor.server.sockets import bound_tcp
from tests.server.environments import HIDDEN_TEXT, PLAIN_TEXT, TROUBLE, children
from tests.server.served import PATIENCE, until

HERE = "tests.server.environments"
ORDER = ResetOrder(3, "e", None)
GO = b'{"action":1}'
HOLD = b'{"action":%d}' % TROUBLE
Result = TypeVar("Result")


def work(text: str, num_envs: int | None = None, **keywords: Any) -> Work:
    mode = None if num_envs is None else "same_step"
    return Work(text, keywords, False, False, num_envs, mode, False, sys.path)


def run(scenario: Coroutine[Any, Any, Result]) -> Result:
    """Return what the scenario returns, on the kind of loop that a server has."""

    async def bounded() -> Result:
        async with asyncio.timeout(2 * PATIENCE):
            return await scenario

    return uvloop.run(bounded())


async def comes_true(holds: Any) -> Any:
    return await asyncio.to_thread(until, holds)


async def gone(pid: int) -> None:
    """Wait until the process is not even a zombie."""
    await comes_true(lambda: not Path(f"/proc/{pid}").exists())


def files() -> set[str]:
    """Return what we hold open, but for /dev/null, of which the loop keeps one."""
    links = [entry.readlink() for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return {str(link) for link in links} - {os.devnull}


def problem_of(caught: pytest.ExceptionInfo[NotDone]) -> Problem:
    return caught.value.problem


async def settled() -> set[str]:
    """Return what we hold open once the loop has everything that it needs for processes and threads."""
    await (await asyncio.create_subprocess_exec("true")).wait()
    await asyncio.to_thread(children)
    return files()


async def buried(before: set[int]) -> None:
    """Wait until no process is left but those that were there, the dead that nobody buried included."""
    await comes_true(lambda: children() <= before)


@asynccontextmanager
async def started(wanted: Work) -> AsyncIterator[InProcess]:
    """Give a place in a process, which is gone afterwards whatever happens."""
    before = children()
    place = await InProcess.started(wanted)
    try:
        yield place
    finally:
        place.abandon()
        await buried(before)


@asynccontextmanager
async def hanging(mark: Path) -> AsyncIterator[tuple[InProcess, asyncio.Task[Any], int]]:
    """Give a place whose environment hangs in a step, that step, and the id of its process."""
    async with started(work(f"{HERE}:Blocking", mark=str(mark))) as place:
        await place.reset(ORDER)
        step = asyncio.create_task(place.step(HOLD))
        yield place, step, int(await comes_true(lambda: mark.exists() and mark.read_text()))


# ------------------------------------------------------------------------------------------------- a real process
def test_a_process_answers_as_a_desk_in_ours_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_CONTROL_TOKEN", HIDDEN_TEXT)
    monkeypatch.setenv("SOMETHING_ELSE", "seen")

    async def scenario() -> tuple[Any, ...]:
        async with started(work(f"{HERE}:Process", end=1)) as place:
            answers = await place.reset(ORDER), await place.step(b'{"action":4}'), await place.state()
            with pytest.raises(Refused) as caught:
                await place.step(GO)
            await place.close()
            return *answers, problem_of(caught)

    with bound_tcp("127.0.0.1", 0):  # it can be inherited
        ours = files()
        begun, stepped, state, refusal = run(scenario())

    seen = json.loads(begun.metadata)
    assert seen["pid"] != os.getpid()
    assert "SOMETHING_ELSE" in seen["variables"]
    assert not [name for name in seen["variables"] if name in process.SECRETS]
    assert not [name for name in seen["files"] if name.startswith("socket:") and name in ours]
    assert stepped == Outcome(b'{"observation":1}', b"{}", 4.0, True, False)
    assert state == b'{"episode_id":null,"step_count":1}'
    assert refusal.clause == "NO-STEP-AFTER-END"


def test_a_closed_process_has_ended_and_holds_no_file() -> None:
    async def scenario() -> tuple[set[int], set[str], set[str]]:
        held = await settled()
        async with started(work(f"{HERE}:Counting")) as place:
            await place.close()
            left = children() - before
        return left, files(), held

    before = children()
    left, after, held = run(scenario())

    assert left == set()
    assert after <= held


def test_a_process_that_is_killed_in_a_step_has_lost_its_episode(tmp_path: Path) -> None:
    async def scenario() -> tuple[Problem, Problem]:
        async with hanging(tmp_path / "mark") as (place, step, pid):
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(Failed) as killed:
                await step
            await gone(pid)
            with pytest.raises(Failed) as after:
                await place.state()
            await place.close()
            return problem_of(killed), problem_of(after)

    killed, after = run(scenario())

    assert (killed.code, killed.lost) == (Code.EXECUTION_ERROR, True)
    assert (after.code, after.lost) == (Code.EXECUTION_ERROR, True)


def test_a_process_that_died_between_two_steps_has_lost_its_episode() -> None:
    async def scenario() -> Problem:
        before = children()
        async with started(work(f"{HERE}:Counting")) as place:
            await place.reset(ORDER)
            (pid,) = children() - before
            os.kill(pid, signal.SIGKILL)
            await gone(pid)
            with pytest.raises(Failed) as caught:
                await place.step(GO)
            return problem_of(caught)

    problem = run(scenario())

    assert (problem.code, problem.lost) == (Code.EXECUTION_ERROR, True)


def test_an_abandoned_process_is_killed_and_buried(tmp_path: Path) -> None:
    async def scenario() -> tuple[set[str], set[str]]:
        held = await settled()
        async with hanging(tmp_path / "mark") as (place, step, pid):
            step.cancel()
            place.abandon()
            place.abandon()
            await gone(pid)
            with suppress(asyncio.CancelledError):
                await step
        return files(), held

    before = children()
    after, held = run(scenario())

    assert after <= held
    assert children() <= before


def test_a_batch_and_coroutines_work_in_a_process_too() -> None:
    async def scenario() -> tuple[Any, Any, Any]:
        async with (
            started(work(f"{HERE}:Corridor", 2, length=1)) as batch,
            started(work(f"{HERE}:Later")) as later,
        ):
            await later.reset(ORDER)
            await batch.reset(ORDER)
            return await batch.step(b'{"actions":[1,0]}'), await batch.state(), await later.step(b'{"action":2}')

    desk = BatchDesk(
        Target(f"{HERE}:Corridor", {"length": 1}).make_batch(2, "same_step"), Encoding(), lambda: "", infos=False
    )
    desk.reset(ORDER)
    expected = desk.step(b'{"actions":[1,0]}')

    stepped, state, later = run(scenario())

    assert as_arrays(stepped) == as_arrays(expected)
    assert json.loads(state) == {"num_envs": 2, "ended": []}
    assert later == Outcome(b'{"observation":1}', b"{}", 2.0)


def test_numbers_that_do_not_fit_the_pipe_are_refused_and_lose_nothing() -> None:
    async def scenario() -> tuple[Problem, Problem, Any]:
        async with started(work(f"{HERE}:Counting")) as place:
            with pytest.raises(Refused) as seed:
                await place.reset(ResetOrder(2**70, "e", None))
            with pytest.raises(Refused) as option:
                await place.reset(ResetOrder(1, "e", {"x": 2**70}))
            return problem_of(seed), problem_of(option), await place.reset(ORDER)

    seed, option, begun = run(scenario())

    assert (seed.code, option.code) == (Code.VALIDATION_ERROR, Code.VALIDATION_ERROR)
    assert begun.observation == b'{"observation":3}'


# --------------------------------------------------------------------------------------------------- no process at all
@pytest.mark.parametrize("what", ["error", "value", "exit"])
def test_a_factory_that_raises_is_refused_without_its_text(what: str) -> None:
    async def scenario() -> Problem:
        with pytest.raises(NotDone) as caught:
            await InProcess.started(work(f"{HERE}:Raising", where="make", what=what))
        await buried(before)
        return problem_of(caught)

    before = children()
    problem = run(scenario())

    assert problem.code == Code.FACTORY_ERROR
    assert HIDDEN_TEXT not in msgspec.json.encode(problem).decode()


def test_a_factory_that_hangs_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "mark"

    async def scenario() -> Problem:
        with pytest.raises(Refused) as caught:
            await InProcess.started(work(f"{HERE}:Blocking", where="make", mark=str(mark)))
        await buried(before)
        return problem_of(caught)

    before = children()
    monkeypatch.setattr(process, "START_SECONDS", 0.2)

    assert run(scenario()).code == Code.FACTORY_ERROR


def test_a_start_that_is_given_up_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    async def scenario() -> tuple[set[str], set[str]]:
        held = await settled()
        starting = asyncio.create_task(InProcess.started(work(f"{HERE}:Blocking", where="make", mark=str(mark))))
        await comes_true(lambda: mark.exists() and mark.read_text())
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await buried(before)
        return files(), held

    before = children()
    after, held = run(scenario())

    assert after <= held


@pytest.mark.parametrize("moment", range(4))
def test_a_start_that_is_given_up_at_once_leaves_no_process_and_no_file(moment: int) -> None:
    async def scenario() -> tuple[set[str], set[str]]:
        held = await settled()
        starting = asyncio.create_task(InProcess.started(work(f"{HERE}:Counting")))
        for _ in range(moment):
            await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await buried(before)
        return files(), held

    before = children()
    after, held = run(scenario())

    assert after <= held


def test_a_process_that_cannot_be_started_leaves_no_file_open(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> tuple[set[str], set[str]]:
        held = await settled()
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
        with pytest.raises(OSError):
            await InProcess.started(work(f"{HERE}:Counting"))
        return files(), held

    after, held = run(scenario())

    assert after <= held


# ------------------------------------------------------------------------------------------- a process that lies
@asynccontextmanager
async def lying(said: bytes, *, ends: bool = True) -> AsyncIterator[InProcess]:
    """Give a place whose process says just this, whatever it is asked, and then no more, or nothing for ever."""
    ours, theirs = socket.socketpair()
    child = await asyncio.create_subprocess_exec("sleep", "60")
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    with theirs:
        theirs.sendall(said)
        if ends:
            theirs.shutdown(socket.SHUT_WR)
        place = InProcess(child, reader, writer)
        try:
            yield place
        finally:
            place.abandon()
            await child.wait()


def ask_a_liar(said: bytes, *, batch: bool = False) -> Problem:
    async def scenario() -> Problem:
        async with lying(said) as place:
            with pytest.raises(NotDone) as caught:
                await place.step(b'{"actions":[0,0]}' if batch else GO)
            return problem_of(caught)

    return run(scenario())


OUTCOME = Outcome(b'{"observation":1}', b"{}", 1.0)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\x00\x00",
        LENGTH.pack(4) + b"\x00",
        LENGTH.pack(0),
        LENGTH.pack(4) + b"\xc1\xc1\xc1\xc1",
        LENGTH.pack(MOST_BYTES + 1),
        framed({"outcome": 3}),
        framed([1]),
        framed(Answer()),
        framed(Answer(state=b"{}")),
        framed(Answer(outcome=Outcome(b'{"observation":', b"{}"))),
        framed(Answer(outcome=Outcome(b'{}},"session":"other","data":{"observation":{}', b"{}"))),
        framed(Answer(outcome=Outcome(b"{}", b"nonsense"))),
        framed(Answer(outcome=Outcome(b"{}", b"{}", float("nan")))),
        framed(Answer(batch=BatchArrays(b"[]", b"{}", b"12345", b"\x00\x00", b"\x00\x00", b"\x00\x00"))),
        framed(Answer(batch=BatchArrays(b"[]", b"{}", bytes(16), b"\x00", b"\x00\x00", b"\x00\x00"))),
        framed(Answer(batch=BatchArrays(b"[]", b"{}", b"\xff" * 16, b"\x00\x00", b"\x00\x00", b"\x00\x00"))),
        framed(Answer(batch=BatchArrays(b"[", b"{}", bytes(16), b"\x00\x00", b"\x00\x00", b"\x00\x00"))),
    ],
)
def test_whatever_a_process_says_that_is_no_outcome_has_lost_the_episode(said: bytes) -> None:
    problem = ask_a_liar(said)

    assert (problem.code, problem.lost) == (Code.EXECUTION_ERROR, True)


@pytest.mark.parametrize("said", [framed(Answer(state=b"not json")), framed(Answer(outcome=OUTCOME))])
def test_a_state_that_is_no_json_is_a_failure(said: bytes) -> None:
    async def scenario() -> Problem:
        async with lying(said) as place:
            with pytest.raises(Failed) as caught:
                await place.state()
            return problem_of(caught)

    assert run(scenario()).code == Code.EXECUTION_ERROR


@settings(max_examples=40)
@given(st.binary(max_size=40))
def test_no_bytes_from_a_process_raise_anything_but_a_failure(body: bytes) -> None:
    problem = ask_a_liar(LENGTH.pack(len(body)) + body)

    assert problem.code == Code.EXECUTION_ERROR


def test_a_process_that_claims_too_much_is_not_waited_for() -> None:
    async def scenario() -> Problem:
        async with lying(LENGTH.pack(MOST_BYTES + 1), ends=False) as place:
            with pytest.raises(Failed) as caught:
                await place.step(GO)
            return problem_of(caught)

    assert run(scenario()).code == Code.EXECUTION_ERROR


def test_what_a_process_refuses_is_refused() -> None:
    told = Problem("no", Code.VALIDATION_ERROR, clause="ENV-STEP-P1")

    assert ask_a_liar(framed(Answer(refused=told))) == told


def test_a_process_cannot_invent_a_code() -> None:
    problem = ask_a_liar(framed(Answer(failed=Problem("no", "MADE_UP"))))

    assert problem.code in list(Code)


def test_a_process_that_ends_while_it_is_closed_is_closed() -> None:
    async def scenario() -> None:
        async with lying(b"") as place:
            await place.close()

    run(scenario())


# --------------------------------------------------------------------------------------- the process, seen from inside
@contextmanager
def served_by_a_worker() -> Iterator[socket.socket]:
    """Give the server's end of a worker that runs on a thread of ours."""
    ours, theirs = socket.socketpair()
    ours.settimeout(PATIENCE)
    thread = threading.Thread(target=main, args=(theirs.detach(),))
    thread.start()
    with ours:
        yield ours
    thread.join(PATIENCE)
    assert not thread.is_alive()


def asked(channel: socket.socket, message: Any) -> Answer:
    channel.sendall(framed(message))
    (length,) = LENGTH.unpack(channel.recv(LENGTH.size, socket.MSG_WAITALL))
    return spoken(channel.recv(length, socket.MSG_WAITALL), Answer)


def test_a_worker_answers_calls_until_the_other_side_has_gone() -> None:
    with served_by_a_worker() as channel:
        made = asked(channel, work(f"{HERE}:Raising", what="validation"))
        early = asked(channel, Call("step", data=GO))
        begun = asked(channel, Call("reset", order=ORDER))
        refused = asked(channel, Call("step", data=HOLD))
        stepped = asked(channel, Call("step", data=GO))
        state = asked(channel, Call("state"))
        closed = asked(channel, Call("close"))

    assert made == closed == Answer()
    assert early.refused is not None
    assert early.refused.clause == "NO-STEP-BEFORE-RESET"
    assert begun.outcome is not None
    assert refused.refused is not None
    assert refused.refused.message == PLAIN_TEXT
    assert stepped == Answer(outcome=OUTCOME)
    assert json.loads(state.state or b"null") == {"episode_id": "e", "step_count": 1}


def test_a_worker_awaits_coroutines_and_steps_batches() -> None:
    with served_by_a_worker() as channel:
        asked(channel, work(f"{HERE}:Later"))
        asked(channel, Call("reset", order=ORDER))
        later = asked(channel, Call("step", data=GO))
    with served_by_a_worker() as channel:
        asked(channel, work(f"{HERE}:Corridor", 2))
        begun = asked(channel, Call("reset", order=ORDER))

    assert later == Answer(outcome=OUTCOME)
    assert begun.batch is not None
    assert begun.batch.rewards is None
    assert begun.batch.begins == b"\x01\x01"


@pytest.mark.parametrize("num_envs", [None, 2])
def test_a_worker_says_no_more_of_a_failure_than_its_number(
    num_envs: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    with served_by_a_worker() as channel:
        unmade = asked(channel, work(f"{HERE}:Corridor", num_envs, fails_at=-1))
        made = asked(channel, work(f"{HERE}:Raising"))
        asked(channel, Call("reset", order=ORDER))
        failed = asked(channel, Call("step", data=HOLD))

    assert made == Answer()
    assert unmade.refused is not None
    assert failed.failed is not None
    for problem in (unmade.refused, failed.failed):
        assert HIDDEN_TEXT not in msgspec.json.encode(problem).decode()
        assert str(problem.incident) in caplog.text
    assert HIDDEN_TEXT in caplog.text


def test_a_worker_finds_modules_where_the_server_does(tmp_path: Path) -> None:
    (tmp_path / "only_there.py").write_text(f"from {HERE} import Counting\n")

    with served_by_a_worker() as channel:
        made = asked(channel, msgspec.structs.replace(work("only_there:Counting"), paths=[str(tmp_path)]))
    sys.path.remove(str(tmp_path))

    assert made == Answer()


# --------------------------------------------------------------------------------------------------------- the pipe
TEXTS = st.recursive(st.none() | st.integers(0, 9) | st.text(), st.lists).map(msgspec.json.encode)


@st.composite
def outcomes(draw: st.DrawFn) -> BatchOutcome:
    """Give what a batch of some size answers to a reset or to a step."""
    size = draw(st.integers(0, 5))

    def mask() -> Any:
        return np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)), np.bool_)

    if draw(st.booleans()):
        return BatchOutcome(draw(TEXTS), draw(TEXTS), begins=mask())
    rewards = draw(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=size, max_size=size))
    return BatchOutcome(draw(TEXTS), draw(TEXTS), np.array(rewards, np.float64), mask(), mask(), mask())


def plain(outcome: BatchOutcome) -> list[Any]:
    values = [getattr(outcome, name) for name in outcome.__struct_fields__]
    return [(each.dtype, each.tolist()) if isinstance(each, np.ndarray) else each for each in values]


@settings(max_examples=50)
@given(outcomes())
def test_a_batchs_outcome_survives_the_pipe(outcome: BatchOutcome) -> None:
    message = framed(as_arrays(outcome))

    again = from_arrays(spoken(message[LENGTH.size :], BatchArrays))

    assert LENGTH.unpack(message[: LENGTH.size]) == (len(message) - LENGTH.size,)
    assert plain(again) == plain(outcome)
