"""Whatever a worker says that is no answer has lost the episode, and kills the worker; nothing else does."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.access.redaction import PlainLines, Redactor
from proctor.models.control import Code, Problem
from proctor.server.runtime.env_adapter import ResetRequest
from proctor.server.runtime.results import EnvOutcome, RequestError, RequestFailed, RequestRefused, ToolOutcome
from proctor.server.sandbox import messages
from proctor.server.sandbox.pool import worker_executor as place_module
from proctor.server.sandbox.pool.answer_checker import (
    LARGE,
    SMALL,
    AnswerChecker,
    CheckerProcess,
    CheckFailed,
    CheckVerdict,
)
from proctor.server.sandbox.pool.worker_executor import MOST_TRACES, WorkerExecutor
from tests.server.live_server import PATIENCE
from tests.server.sandbox.processes import GO, ORDER, comes_true, problem_of, run, work

pytestmark = pytest.mark.anyio

OUTCOME = EnvOutcome(b'{"observation":1}', b"{}", 1.0)
INCIDENT = "0123456789ab"
Ask = Callable[[WorkerExecutor], Any]


class Held:
    """Counts how often it is killed, and says whether memory was short."""

    def __init__(self, *, hungry: bool = False) -> None:
        self.kills = 0
        self.hungry = hungry

    def kill(self) -> None:
        self.kills += 1

    def out_of_memory(self) -> bool:
        return self.hungry and self.kills == 0


@asynccontextmanager
async def answering(
    replies: Sequence[bytes | bytearray],
    held: Held | None = None,
    *,
    stays: bool = False,
    first: bytes | bytearray = b"",
    checker: AnswerChecker | None = None,
    most: int = messages.MOST_BYTES,
) -> AsyncIterator[WorkerExecutor]:
    """Give a place whose worker says `first`, answers each question with the next of `replies`, and ends, or `stays`."""
    checker = AnswerChecker() if checker is None else checker
    ours, theirs = socket.socketpair()
    theirs.settimeout(PATIENCE)
    over = threading.Event()

    def answer() -> None:
        # A place that has heard enough closes its end.
        with theirs, suppress(BrokenPipeError):
            if first:
                theirs.sendall(first)
            for reply in replies:
                if messages.read_message(theirs) is not None:
                    theirs.sendall(reply)
            if stays:
                over.wait(PATIENCE)

    thread = threading.Thread(target=answer)
    thread.start()
    place = WorkerExecutor(ours, held or Held(), "s1", checker=checker, most=most)
    try:
        yield place
    finally:
        place.abandon()
        checker.close()
        over.set()
        await asyncio.to_thread(thread.join, PATIENCE)


async def step(place: WorkerExecutor) -> Any:
    return await place.step(GO)


def refusal(reply: bytes | bytearray, ask: Ask = step, held: Held | None = None) -> Problem:
    """Return what is raised when a worker answers with these bytes."""

    async def scenario() -> Problem:
        async with answering([reply], held) as place:
            with pytest.raises(RequestError) as caught:
                await ask(place)
            return problem_of(caught)

    return run(scenario())


async def test_answers_come_back_as_they_were_said() -> None:
    told = ToolOutcome("one", b"{}", GO, OUTCOME, [GO])
    replies = [
        messages.WorkerReply(),
        messages.WorkerReply(outcome=OUTCOME),
        messages.WorkerReply(outcome=OUTCOME),
        messages.WorkerReply(tool=told),
        messages.WorkerReply(tool=told),
    ]

    async with answering(
        [messages.encode_frame(each) for each in (*replies, messages.WorkerReply(state=b"{}"))]
    ) as place:
        found = [
            await place.make(work("t")),
            await place.reset(ORDER),
            await place.step(GO),
            await place.call("look", b"{}"),
            await place.act(GO),
            await place.state(),
        ]

    assert found == [messages.WorkerReply(), OUTCOME, OUTCOME, told, told, b"{}"]


async def test_a_number_that_does_not_fit_the_pipe_is_refused_and_loses_nothing() -> None:
    held = Held()

    async with answering([messages.encode_frame(messages.WorkerReply(outcome=OUTCOME))], held) as place:
        with pytest.raises(RequestRefused) as caught:
            await place.reset(ResetRequest(2**70, "e", None))
        problem, outcome, kills = problem_of(caught), await place.reset(ORDER), held.kills

    assert problem.code == Code.VALIDATION_ERROR
    assert outcome == OUTCOME
    assert kills == 0


def test_what_a_worker_refuses_is_refused() -> None:
    error = {"loc": ["action", 0], "msg": "too large", "type": "less_than"}
    told = Problem("no", Code.VALIDATION_ERROR, errors=[error], clause="ENV-STEP-P1", expected="less")

    assert refusal(messages.encode_frame(messages.WorkerReply(refused=messages.to_worker_problem(told)))) == told


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\x00\x00",
        messages.LENGTH.pack(4) + b"\x00",
        messages.LENGTH.pack(0),
        messages.LENGTH.pack(4) + b"\xc1\xc1\xc1\xc1",
        messages.encode_frame({"outcome": 3}),
        messages.encode_frame([1]),
        messages.encode_frame(messages.WorkerReply()),
        messages.encode_frame(messages.WorkerReply(state=b"{}")),
        messages.encode_frame(messages.WorkerReply(tool=ToolOutcome("t", b"{}"))),
        messages.encode_frame(messages.WorkerReply(outcome=EnvOutcome(b'{"observation":', b"{}"))),
        messages.encode_frame(
            messages.WorkerReply(outcome=EnvOutcome(b'{}},"session":"other","data":{"observation":{}', b"{}"))
        ),
        messages.encode_frame(messages.WorkerReply(outcome=EnvOutcome(b'{"observation":"\xff"}', b"{}"))),
        messages.encode_frame(
            messages.WorkerReply(outcome=EnvOutcome(b'{"o":' + b"[" * 5000 + b"]" * 5000 + b"}", b"{}"))
        ),
        messages.encode_frame(messages.WorkerReply(outcome=EnvOutcome(b"{}", b"nonsense"))),
        messages.encode_frame(messages.WorkerReply(outcome=EnvOutcome(b"{}", b"{}", float("nan")))),
        messages.encode_frame(
            messages.WorkerReply(
                batch=messages.BatchArrays(b"[]", b"{}", b"12345", b"\x00\x00", b"\x00\x00", b"\x00\x00")
            )
        ),
        messages.encode_frame(messages.WorkerReply(outcome=OUTCOME)) + b"and more",
        messages.encode_frame(messages.WorkerReply(outcome=OUTCOME)) * 2,
        messages.encode_frame(messages.WorkerReply(failed=messages.WorkerProblem("no", "MADE_UP"))),
    ],
)
def test_whatever_a_worker_says_that_is_no_outcome_has_lost_the_episode(
    said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    held = Held()

    problem = refusal(said, held=held)

    assert (problem.code, problem.lost) == (Code.EXECUTION_ERROR, True)
    assert held.kills == 1
    assert str(problem.incident) in caplog.text


@settings(max_examples=40)
@given(st.binary(max_size=40))
def test_no_bytes_from_a_worker_raise_anything_but_a_failure(body: bytes) -> None:
    assert refusal(messages.LENGTH.pack(len(body)) + body).code == Code.EXECUTION_ERROR


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda place: place.state(), messages.WorkerReply(state=b"not json")),
        (lambda place: place.state(), messages.WorkerReply(outcome=OUTCOME)),
        (lambda place: place.call("t", b"{}"), messages.WorkerReply(outcome=OUTCOME)),
        (lambda place: place.call("t", b"{}"), messages.WorkerReply(tool=ToolOutcome("t", b"[]"))),
        (lambda place: place.act(GO), messages.WorkerReply(state=b"{}")),
        (lambda place: place.reset(ORDER), messages.WorkerReply(tool=ToolOutcome("t", b"{}"))),
    ],
)
def test_an_answer_to_another_question_has_lost_the_episode(ask: Ask, said: messages.WorkerReply) -> None:
    held = Held()

    problem = refusal(messages.encode_frame(said), ask, held)

    assert problem.code == Code.EXECUTION_ERROR
    assert held.kills == 1


def test_a_worker_that_could_not_make_its_environment_is_killed_and_refused() -> None:
    held = Held()

    async def make(place: WorkerExecutor) -> Any:
        return await place.make(work("t"))

    told = refusal(
        messages.encode_frame(
            messages.WorkerReply(refused=messages.WorkerProblem("no", Code.FACTORY_ERROR, incident=INCIDENT))
        ),
        make,
        held,
    )
    ended = refusal(b"", make)

    assert (told.code, told.incident) == (Code.FACTORY_ERROR, INCIDENT)
    assert held.kills == 1
    assert ended.code == Code.FACTORY_ERROR
    assert ended.incident


def test_the_first_answer_is_a_small_one_and_the_others_are_as_large_as_the_limit() -> None:
    large = messages.encode_frame(
        messages.WorkerReply(outcome=EnvOutcome(b'{"observation":"%b"}' % (b"x" * messages.MOST_FIRST_BYTES), b"{}"))
    )

    async def scenario(most: int) -> tuple[Any, Problem]:
        async with answering([messages.encode_frame(messages.WorkerReply()), large, large], most=most) as place:
            await place.make(work("t"))
            outcome = await place.step(GO)
            place._socket.most = most // 2
            with pytest.raises(RequestFailed) as caught:
                await place.step(GO)
            return outcome, problem_of(caught)

    outcome, problem = run(scenario(2 * messages.MOST_FIRST_BYTES))

    assert len(outcome.observation) > messages.MOST_FIRST_BYTES
    assert (problem.code, problem.lost) == (Code.TOO_LARGE, True)
    assert "answer_mb" in str(problem.expected)
    assert refusal(large, lambda place: place.make(work("t"))).code == Code.FACTORY_ERROR


def test_a_batch_may_answer_as_much_for_each_of_its_environments_up_to_the_whole() -> None:
    async def scenario(num_envs: int | None) -> int:
        async with answering([messages.encode_frame(messages.WorkerReply())], most=1000) as place:
            await place.make(work("t", num_envs))
            return place._socket.most

    assert [run(scenario(num_envs)) for num_envs in (None, 1, 8, 10**6)] == [1000, 1000, 8000, messages.MOST_BYTES]


async def test_what_an_environment_says_of_itself_may_be_long() -> None:
    card = bytes(2 * messages.MOST_FIRST_BYTES)

    async with answering([messages.encode_frame(messages.WorkerReply(card=card))]) as place:
        found = await place.describe(messages.Describe("t", {}), PATIENCE)

    assert found == card


def test_an_answer_that_claims_too_much_has_lost_the_episode_at_once() -> None:
    held = Held()

    assert refusal(messages.LENGTH.pack(messages.MOST_BYTES + 1), held=held).code == Code.TOO_LARGE
    assert held.kills == 1


@pytest.mark.parametrize("size", [2 * SMALL, LARGE + 1])
async def test_a_large_answer_is_checked_elsewhere(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "check_reply", None)  # not here
    texts = b"[]," * (size // 3) + b"1e300"
    good = messages.encode_frame(messages.WorkerReply(outcome=EnvOutcome(b'{"observation":[%b]}' % texts, b"{}")))
    bad = messages.encode_frame(
        messages.WorkerReply(outcome=EnvOutcome(b'{"observation":[%b]}' % texts.replace(b"1e300", b"1e400"), b"{}"))
    )
    held = Held()

    async with answering([good, bad], held) as place:
        outcome: Any = await place.step(GO)
        with pytest.raises(RequestFailed) as caught:
            await place.step(GO)
        problem = problem_of(caught)

    assert outcome.observation == b'{"observation":[%b]}' % texts
    assert problem.code == Code.EXECUTION_ERROR
    assert held.kills == 1


def test_an_answer_that_nobody_can_check_has_lost_the_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(self: CheckerProcess, body: memoryview) -> CheckVerdict:
        raise CheckFailed

    monkeypatch.setattr(CheckerProcess, "check", check)
    held = Held()

    problem = refusal(messages.encode_frame(messages.WorkerReply(state=b'{"a":"%b"}' % (b"x" * LARGE))), held=held)

    assert "could not be checked" in problem.message
    assert held.kills == 1


@pytest.mark.parametrize(
    ("num_envs", "said"),
    [
        (2, messages.WorkerReply(outcome=OUTCOME)),
        (2, messages.WorkerReply(batch=messages.BatchArrays(b"[]", b"{}", bytes(24), bytes(3), bytes(3), bytes(3)))),
        (2, messages.WorkerReply(batch=messages.BatchArrays(b"[]", b"{}", None, None, None, bytes(2)))),
        (None, messages.WorkerReply(batch=messages.BatchArrays(b"[]", b"{}", bytes(16), bytes(2), bytes(2), bytes(2)))),
    ],
)
async def test_a_batch_answers_as_one_of_its_size_and_nobody_else_does(
    num_envs: int | None, said: messages.WorkerReply
) -> None:
    async with answering([messages.encode_frame(messages.WorkerReply()), messages.encode_frame(said)]) as place:
        await place.make(work("t", num_envs))
        with pytest.raises(RequestFailed) as caught:
            await place.step(GO)
        found = problem_of(caught)

    assert found.code == Code.EXECUTION_ERROR


async def test_a_worker_whose_answers_take_long_to_check_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    async def check(self: AnswerChecker, body: memoryview, *, slow: bool = False) -> bool:
        asked.append(slow)
        return len(asked) == 2

    monkeypatch.setattr(AnswerChecker, "check", check)
    reply = messages.encode_frame(messages.WorkerReply(state=b'{"a":"%b"}' % (b"x" * LARGE)))

    async with answering([reply] * 4) as place:
        place._socket.most = messages.MOST_BYTES
        for _ in range(4):
            await place.state()

    assert asked == [False, False, True, True]


def test_a_worker_that_used_up_its_memory_is_said_to() -> None:
    assert "memory" in refusal(b"", held=Held(hungry=True)).message


def test_why_a_worker_ended_is_found_out_while_the_loop_goes_on() -> None:
    went_on = threading.Event()

    class Slow(Held):
        def out_of_memory(self) -> bool:
            return went_on.wait(PATIENCE) and super().out_of_memory()

    async def ask(place: WorkerExecutor) -> Any:
        asking = asyncio.create_task(place.step(GO))
        while place._ending is None:
            await asyncio.sleep(0)
        went_on.set()
        return await asking

    held = Slow(hungry=True)

    assert "memory" in refusal(b"", ask, held).message
    assert held.kills == 1


async def test_a_worker_that_is_late_is_killed_and_its_step_timed_out() -> None:
    held = Held()

    async with answering([], held, stays=True) as place:
        place.timeout = 0.05
        with pytest.raises(RequestFailed) as caught:
            await place.step(GO)
        problem = problem_of(caught)

    assert (problem.code, problem.lost) == (Code.STEP_TIMEOUT, True)
    assert held.kills == 1


async def test_a_place_that_was_left_fails_and_is_killed_once() -> None:
    held = Held()

    async with answering([], held, stays=True) as place:
        place.abandon()
        place.abandon()
        with pytest.raises(RequestFailed) as caught:
            await place.step(GO)
        found = problem_of(caught)

    assert found.code == Code.EXECUTION_ERROR
    assert held.kills == 1


@pytest.mark.parametrize(
    "replies",
    [
        [],
        [messages.encode_frame(messages.WorkerReply())],
        [messages.encode_frame(messages.WorkerReply(refused=messages.WorkerProblem("no", "BUSY")))],
        [b"?"],
    ],
)
async def test_a_closed_place_has_no_worker_whatever_it_answered(replies: list[bytes]) -> None:
    held = Held()

    async with answering(replies, held) as place:
        await place.close()
        found = held.kills

    assert found == 1


async def test_a_worker_that_does_not_close_in_time_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place_module, "CLOSE_SECONDS", 0.05)
    held = Held()

    async with answering([], held, stays=True) as place:
        await place.close()
        found = held.kills

    assert found == 1


FORGED = "Traceback\n2030-01-01T00:00:00.000Z error    proctor.server: all is lost\x1b[2J"


def test_a_trace_is_logged_with_the_incident_and_told_to_nobody(caplog: pytest.LogCaptureFixture) -> None:
    told = Problem("it failed", Code.EXECUTION_ERROR, incident=INCIDENT, lost=True)

    problem = refusal(
        messages.encode_frame(messages.WorkerReply(failed=messages.to_worker_problem(told), trace=FORGED))
    )

    assert problem == told
    (record,) = [each for each in caplog.records if each.name == "proctor.environment"]
    assert INCIDENT in record.getMessage()
    line = PlainLines(Redactor()).format(record)
    assert "session=s1" in line
    assert "all is lost" in line
    assert "\x1b" not in line
    assert [each for each in line.splitlines() if each.startswith("2030")] == []


def test_an_incident_that_is_none_of_ours_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    told = messages.WorkerProblem("it failed", Code.EXECUTION_ERROR, incident="<script>")

    problem = refusal(messages.encode_frame(messages.WorkerReply(failed=told, trace="why")))

    assert problem.incident != "<script>"
    assert str(problem.incident) in caplog.text


def test_a_message_is_cut_off_if_it_is_long() -> None:
    assert (
        len(
            refusal(
                messages.encode_frame(
                    messages.WorkerReply(refused=messages.WorkerProblem("x" * messages.LONGEST_TRACE, "BUSY"))
                )
            ).message
        )
        == messages.LONGEST_MESSAGE
    )


def test_nothing_that_a_worker_says_steers_a_terminal() -> None:
    said = messages.WorkerProblem("\x1b[2Jno\nmore", "BUSY", clause="\x07", expected="\x9b2J")

    problem = refusal(messages.encode_frame(messages.WorkerReply(refused=said)))

    assert (problem.message, problem.clause, problem.expected) == ("?[2Jno\nmore", "?", "?2J")


async def test_a_worker_cannot_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    reply = messages.encode_frame(messages.WorkerReply(outcome=OUTCOME, trace="y" * messages.LONGEST_TRACE))
    count = MOST_TRACES + 5

    async with answering([reply] * count) as place:
        for _ in range(count):
            await place.step(GO)

    records = [each for each in caplog.records if each.name == "proctor.environment"]
    assert len(records) == MOST_TRACES
    assert max(len(each.exc_text or "") for each in records) <= messages.LONGEST_TRACE


async def test_a_worker_that_speaks_while_nothing_is_asked_leaves_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with answering([], stays=True, first=messages.encode_frame(messages.WorkerReply())):
        await comes_true(lambda: "spoke unasked" in caplog.text)

    assert [each.session for each in caplog.records if hasattr(each, "session")] == ["s1"]


def test_a_trace_is_not_logged_where_errors_are_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "proctor.environment")

    refusal(
        messages.encode_frame(
            messages.WorkerReply(failed=messages.WorkerProblem("no", Code.EXECUTION_ERROR), trace="why")
        )
    )

    assert caplog.records == []
