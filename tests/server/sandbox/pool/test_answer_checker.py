"""Large answers are checked by another process, which ends with the server and is replaced if it ends before."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from proctor.server.runtime.results import EnvOutcome
from proctor.server.sandbox import messages
from proctor.server.sandbox.pool import answer_checker as checker_module
from proctor.server.sandbox.pool.answer_checker import (
    LARGE,
    MEDIUM,
    SMALL,
    AnswerChecker,
    CheckerProcess,
    CheckFailed,
    CheckVerdict,
    is_costly,
    is_sound,
    main,
)
from tests.server.live_server import PATIENCE, until
from tests.server.sandbox.processes import comes_true, run

pytestmark = pytest.mark.anyio


def answer(observation: bytes) -> memoryview:
    """Return the body of an answer as a place hears it: a view of the whole frame."""
    frame = messages.encode_frame(messages.WorkerReply(outcome=EnvOutcome(b'{"observation":%b}' % observation, b"{}")))
    return memoryview(bytes(frame))[messages.LENGTH.size :]


def lists(size: int) -> bytes:
    return b"[" + b"[]," * (size // 3) + b"[]]"


GOOD = answer(lists(LARGE))
BAD = answer(lists(LARGE)[:-1])
SMALLER = answer(lists(MEDIUM))


@asynccontextmanager
async def checkers() -> AsyncIterator[AnswerChecker]:
    """Give a checker, of which no process is left afterwards."""
    checker = AnswerChecker()
    try:
        yield checker
    finally:
        started = [each for each in map(pid_of, lanes(checker)) if each is not None]
        await asyncio.to_thread(checker.close)
        checker.close()
    assert not any(is_alive(pid) for pid in started)


def lanes(checker: AnswerChecker) -> tuple[CheckerProcess, ...]:
    return checker._for_large, checker._for_others, checker._for_slow


def pid_of(process: CheckerProcess) -> int | None:
    return None if process._process is None else process._process.pid


def stop(process: CheckerProcess) -> int:
    """Have a process that was started stand still, and return its number."""
    pid = pid_of(process)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    return pid


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def verdict(checker: AnswerChecker, body: memoryview) -> bool:
    try:
        await checker.check(body)
    except msgspec.DecodeError:
        return False
    return True


@pytest.mark.parametrize(
    ("observation", "costly"),
    [
        *((b"1", False), (lists(SMALL // 2), False), (lists(SMALL), False), (lists(MEDIUM // 2), False)),
        *((b"[" + b"1e300," * (SMALL // 6) + b"1]", True), (lists(MEDIUM), True)),
        *((b'"%b"' % (b"x" * (LARGE // 2)), False), (b'"%b"' % (b"x" * LARGE), True), (lists(LARGE), True)),
    ],
)
def test_what_takes_long_to_check_is_not_checked_on_the_loop(observation: bytes, costly: bool) -> None:
    assert is_costly(answer(observation)) == costly


def repeated(key: str, value: bytes, size: int) -> memoryview:
    """Return the body of an answer that says the same thing again and again."""
    entry = msgspec.msgpack.encode(key) + value
    count = size // len(entry)
    body = b"\xdf" + count.to_bytes(4, "big") + entry * count
    return memoryview(messages.LENGTH.pack(len(body)) + body)[messages.LENGTH.size :]


STATE = msgspec.msgpack.encode(b"{}")
REFUSED = msgspec.msgpack.encode(
    {"message": "", "code": "x", "errors": [{"loc": [65] * 64, "msg": "", "type": ""}] * 20}
)


@pytest.mark.parametrize(("key", "value"), [("state", STATE), ("refused", REFUSED)])
def test_what_is_said_again_and_again_is_not_read_on_the_loop(key: str, value: bytes) -> None:
    assert not is_costly(repeated(key, value, SMALL))
    assert is_costly(repeated(key, value, LARGE))
    assert is_costly(repeated("state", STATE, 2 * MEDIUM))


@pytest.mark.parametrize(("key", "value"), [("state", STATE), ("refused", REFUSED)])
def test_an_answer_that_says_anything_twice_is_not_sound(key: str, value: bytes) -> None:
    once = memoryview(messages.encode_frame({key: msgspec.msgpack.decode(value)}))[messages.LENGTH.size :]

    assert is_sound(once)
    assert not is_sound(repeated(key, value, LARGE))


async def test_nobody_waits_for_a_session_whose_answers_take_long() -> None:
    async with checkers() as checker:
        await checker.check(GOOD, slow=True)
        pid = stop(checker._for_slow)
        slow = asyncio.create_task(checker.check(GOOD, slow=True))
        found = [await verdict(checker, each) for each in (GOOD, SMALLER, BAD)]
        assert not slow.done()
        os.kill(pid, signal.SIGCONT)
        await slow

    assert found == [True, True, False]


@pytest.mark.parametrize(("seconds", "long"), [(-1.0, True), (3600.0, False)])
async def test_it_is_said_whether_a_check_took_long(
    monkeypatch: pytest.MonkeyPatch, seconds: float, long: bool
) -> None:
    monkeypatch.setattr(checker_module, "QUICK_SECONDS", seconds)
    monkeypatch.setattr(checker_module, "SECONDS_A_BYTE", 0.0)

    async with checkers() as checker:
        found = await checker.check(GOOD)

    assert found == long


def test_a_sound_answer_is_told_from_one_that_is_not() -> None:
    no_answer = memoryview(messages.encode_frame([1] * LARGE))[messages.LENGTH.size :]
    bodies = (GOOD, BAD, SMALLER, answer(lists(MEDIUM)[:-1]), no_answer, GOOD)

    async def scenario() -> list[bool]:
        async with checkers() as checker:
            return [await verdict(checker, each) for each in bodies]

    assert run(scenario()) == [is_sound(each) for each in bodies] == [True, False, True, False, False, True]


async def test_a_process_is_started_when_it_is_needed_and_kept() -> None:
    async with checkers() as checker:
        seen = [tuple(map(pid_of, lanes(checker)))]
        for body in (SMALLER, SMALLER, GOOD, GOOD):
            await checker.check(body)
            seen.append(tuple(map(pid_of, lanes(checker))))
        none, first, second, third, fourth = seen

    assert none == (None, None, None)
    assert first[0] is None
    assert first == second
    assert first[1] is not None
    assert third == fourth
    assert third[2] is None
    assert None not in third[:2]


async def test_many_answers_at_once_are_checked_one_after_the_other() -> None:
    async with checkers() as checker:
        found = await asyncio.gather(*(verdict(checker, body) for body in (GOOD, BAD, SMALLER) * 3))

    assert found == [True, False, True] * 3


async def test_a_process_that_was_killed_is_replaced() -> None:
    async with checkers() as checker:
        await checker.check(GOOD)
        before = pid_of(checker._for_large)
        assert before is not None
        os.kill(before, signal.SIGKILL)
        assert not await verdict(checker, BAD)
        assert await verdict(checker, GOOD)
        after = pid_of(checker._for_large)

    assert after not in (None, before)


async def test_a_process_that_ends_while_it_checks_is_replaced_and_asked_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    starts: list[int] = []
    python_command = messages.python_command

    def start_well_next_time(entry: str, descriptor: int) -> list[str]:
        starts.append(descriptor)
        return python_command(entry if len(starts) > 1 else "raise SystemExit", descriptor)

    monkeypatch.setattr(messages, "python_command", start_well_next_time)

    async with checkers() as checker:
        found = await verdict(checker, GOOD)

    assert found
    assert len(starts) == 2


async def test_if_no_process_answers_nobody_can_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker_module, "ENTRY", "raise SystemExit")

    async with checkers() as checker:
        with pytest.raises(CheckFailed):
            await checker.check(GOOD)


async def test_if_no_process_can_be_started_nobody_can_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")

    async with checkers() as checker:
        with pytest.raises(CheckFailed):
            await checker.check(GOOD)


async def test_whoever_gives_up_does_not_disturb_the_others() -> None:
    async with checkers() as checker:
        await checker.check(GOOD)
        before = pid_of(checker._for_large)
        checks = [asyncio.create_task(checker.check(GOOD)) for _ in range(3)]
        await asyncio.sleep(0)
        for each in checks:
            each.cancel()
        found = await asyncio.gather(*checks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in found)
        after, is_believed = pid_of(checker._for_large), await verdict(checker, BAD)

    assert before == after
    assert not is_believed


async def test_what_is_given_up_before_its_turn_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[memoryview] = []
    ask = CheckerProcess._check

    def count(self: CheckerProcess, body: memoryview) -> CheckVerdict:
        checked.append(body)
        return ask(self, body)

    monkeypatch.setattr(CheckerProcess, "_check", count)

    async with checkers() as checker:
        await checker.check(GOOD)
        pid = stop(checker._for_large)
        checks = [asyncio.create_task(checker.check(GOOD)) for _ in range(4)]
        await comes_true(lambda: len(checked) == 2)
        for each in checks:
            each.cancel()
        await asyncio.gather(*checks, return_exceptions=True)
        os.kill(pid, signal.SIGCONT)
        assert not await verdict(checker, BAD)

    # Only the first of the four had its turn.
    assert checked == [GOOD, GOOD, BAD]


async def test_a_loop_that_ends_takes_its_checks_with_it(caplog: pytest.LogCaptureFixture) -> None:
    checker = AnswerChecker()

    await checker.check(GOOD)
    stop(checker._for_large)
    check = asyncio.create_task(checker.check(GOOD))
    await asyncio.sleep(0)
    check.cancel()
    checker.close()

    assert caplog.records == []


async def test_a_checker_that_was_closed_starts_nothing_that_stays() -> None:
    checker = AnswerChecker()
    checker.close()
    with pytest.raises(CheckFailed):
        await checker.check(GOOD)

    assert pid_of(checker._for_large) is None


def test_a_checker_goes_on_when_its_loop_is_over_and_another_runs() -> None:
    checker = AnswerChecker()

    found = [run(verdict(checker, each)) for each in (GOOD, BAD)]
    checker.close()

    assert found == [True, False]


async def test_a_checker_that_is_closed_during_a_check_says_that_nobody_can_say() -> None:
    async with checkers() as checker:
        await checker.check(GOOD)
        stop(checker._for_large)
        check = asyncio.create_task(checker.check(GOOD))
        await asyncio.sleep(0)
        await asyncio.to_thread(checker.close)
        with pytest.raises(CheckFailed):
            await check


KILLED = """
import asyncio, os, signal, sys
sys.path[:] = sys.argv[1:]
from proctor.server.sandbox.pool.answer_checker import AnswerChecker
from tests.server.sandbox.pool.test_answer_checker import GOOD, pid_of

async def scenario():
    checker = AnswerChecker()
    await checker.check(GOOD)
    print(pid_of(checker._for_large), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(scenario())
"""


def test_the_process_ends_with_a_server_that_was_killed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, *sys.path], capture_output=True, text=True, check=False, timeout=PATIENCE
    )

    assert done.returncode == -signal.SIGKILL, done.stderr
    # Its parent is gone, so that whoever took it over may leave it as a zombie.
    until(lambda: not is_alive(int(done.stdout)) or is_zombie(int(done.stdout)))


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_the_process_answers_until_the_other_side_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    niceness: list[int] = []
    monkeypatch.setattr(os, "nice", niceness.append)
    ours, theirs = socket.socketpair()
    ours.settimeout(PATIENCE)
    thread = threading.Thread(target=main, args=(theirs.detach(),))
    thread.start()
    with ours:
        found = []
        for body in (GOOD, BAD):
            ours.sendall(body.obj)
            heard = messages.read_message(ours)
            assert heard is not None
            found.append(messages.decode_message(heard, CheckVerdict).sound)
    thread.join(PATIENCE)

    assert found == [True, False]
    assert not thread.is_alive()
    assert len(niceness) == 1
