"""The environment's process, seen from inside: it answers as a adapter does, and its log travels with the answer."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from proctor.models.control import Code
from proctor.server.runtime.env_adapter import EnvDescription
from proctor.server.runtime.results import (
    LONGEST_TEXT,
    MOST_CONTAINERS,
    MOST_CONTENT_BYTES,
    EnvOutcome,
    RequestFailed,
    RequestRefused,
    ToolOutcome,
)
from proctor.server.sandbox.messages import GO as GO_ON
from proctor.server.sandbox.messages import (
    HERE,
    LONGEST_TRACE,
    MOST_BYTES,
    NO_NAMESPACES,
    READY,
    UNFIT,
    UNMAPPED,
    Describe,
    HandshakeMessage,
    StartMessage,
    WorkerCall,
    WorkerReply,
    decode_message,
    encode_frame,
    read_message,
    receive_handshake,
    send_handshake,
    set_peer_identity,
)
from proctor.server.sandbox.tiers import SandboxLimits, Tier
from proctor.server.sandbox.worker import confine, worker
from tests.server.environments import HIDDEN_TEXT, PLAIN_TEXT
from tests.server.live_server import PATIENCE
from tests.server.sandbox.processes import ENVIRONMENTS, GO, ORDER, TROUBLE_MODULE, TROUBLED, work

RESET = WorkerCall("reset", ORDER)
STEP = WorkerCall("step", None, GO)


@contextmanager
def served_by_a_worker(most: int = MOST_BYTES) -> Iterator[socket.socket]:
    """Give the server's end of a worker that runs on a thread of ours."""
    ours, theirs = socket.socketpair()
    ours.settimeout(PATIENCE)
    thread = threading.Thread(target=worker.serve, args=(theirs, most))
    thread.start()
    with ours, theirs:
        yield ours
        ours.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE)
    assert not thread.is_alive()


def asked(channel: socket.socket, message: Any) -> WorkerReply:
    channel.sendall(encode_frame(message))
    body = read_message(channel)
    assert body is not None
    return decode_message(body, WorkerReply)


def test_a_worker_answers_calls_until_the_other_side_has_gone() -> None:
    with served_by_a_worker() as channel:
        made = asked(channel, work(f"{ENVIRONMENTS}:Raising", what="validation"))
        early = asked(channel, STEP)
        begun = asked(channel, RESET)
        refused = asked(channel, WorkerCall("step", None, TROUBLED))
        stepped = asked(channel, STEP)
        state = asked(channel, WorkerCall("state"))
        closed = asked(channel, WorkerCall("close"))

    assert made == closed == WorkerReply()
    assert early.refused is not None
    assert early.refused.clause == "NO-STEP-BEFORE-RESET"
    assert begun.outcome is not None
    assert refused.refused is not None
    assert refused.refused.message == PLAIN_TEXT
    assert stepped == WorkerReply(outcome=EnvOutcome(b'{"observation":1}', b"{}", 1.0))
    assert json.loads(state.state or b"null") == {"episode_id": "e", "step_count": 1}


def test_a_worker_awaits_coroutines_and_steps_batches() -> None:
    with served_by_a_worker() as channel:
        asked(channel, work(f"{ENVIRONMENTS}:Later"))
        asked(channel, RESET)
        later = asked(channel, STEP)
    with served_by_a_worker() as channel:
        asked(channel, work(f"{ENVIRONMENTS}:Corridor", 2))
        begun = asked(channel, RESET)

    assert later == WorkerReply(outcome=EnvOutcome(b'{"observation":1}', b"{}", 1.0))
    assert begun.batch is not None
    assert begun.batch.rewards is None
    assert begun.batch.begins == b"\x01\x01"


def test_a_worker_uses_tools_and_carries_out_what_they_left() -> None:
    with served_by_a_worker() as channel:
        asked(channel, work(f"{TROUBLE_MODULE}:Tooled"))
        asked(channel, RESET)
        gone = asked(channel, WorkerCall("call", None, b'{"times":2}', "go")).tool
        acted = asked(channel, WorkerCall("act", None, GO)).tool
        looked = asked(channel, WorkerCall("call", None, b"{}", "look")).tool
        unknown = asked(channel, WorkerCall("call", None, b"{}", "fly"))
        fallen = asked(channel, WorkerCall("call", None, b"{}", "fall"))

    assert gone is not None
    assert (gone.action, gone.left) == (GO, [GO])
    assert acted is not None
    assert acted.outcome == EnvOutcome(b'{"observation":2}', b"{}", 1.0)
    assert looked is not None
    assert json.loads(looked.content) == {"result": 2}
    assert unknown.refused is not None
    assert fallen.failed is not None
    assert HIDDEN_TEXT in (fallen.trace or "")


def test_a_worker_describes_its_environment() -> None:
    with served_by_a_worker() as channel:
        answer = asked(channel, Describe(f"{TROUBLE_MODULE}:Tooled", {}))

    card = msgspec.msgpack.decode(answer.card or b"", type=EnvDescription)
    assert [tool.name for tool in card.tools] == ["look", "go", "fall"]


def test_a_worker_says_to_the_operator_why_an_environment_cannot_be_described() -> None:
    with served_by_a_worker() as channel:
        answer = asked(channel, Describe(f"{ENVIRONMENTS}:Corridor", {"fails_at": -1}))

    assert answer.refused is not None
    assert "could not be made" in answer.refused.message


def test_a_worker_says_that_an_answer_is_too_large_and_whether_the_environment_has_moved() -> None:
    with served_by_a_worker(most=10_000) as channel:
        asked(channel, work(f"{TROUBLE_MODULE}:Wordy", size=10_000))
        asked(channel, RESET)
        stepped = asked(channel, STEP)
        state = asked(channel, WorkerCall("state"))
        acted = asked(channel, WorkerCall("call", None, b'{"times":1}', "go"))
        looked = asked(channel, WorkerCall("call", None, b"{}", "look"))

    for problem in (stepped.failed, state.refused, acted.failed):
        assert problem is not None
        assert (problem.code, problem.expected) == (Code.TOO_LARGE, "at most 10000")
    assert looked.tool is not None


def test_a_worker_refuses_what_is_too_much_for_an_agent_and_goes_on() -> None:
    with served_by_a_worker() as channel:
        asked(channel, work(f"{TROUBLE_MODULE}:Wordy", size=MOST_CONTENT_BYTES))
        asked(channel, RESET)
        spoken_word = asked(channel, WorkerCall("call", None, b"{}", "speak"))
        lists = asked(channel, WorkerCall("call", None, b'{"count":%d}' % MOST_CONTAINERS, "enumerate"))
        few = asked(channel, WorkerCall("call", None, b'{"count":10}', "enumerate"))

    for problem in (spoken_word.refused, lists.refused):
        assert problem is not None
        assert problem.code == Code.TOO_LARGE
        assert "a tool's answer is too large" in problem.message
    assert few.tool is not None
    assert json.loads(few.tool.content) == {"result": [[]] * 10}


@pytest.mark.parametrize(
    "told",
    [
        ToolOutcome("x" * (LONGEST_TEXT + 1), b"{}"),
        ToolOutcome("", b'{"a":[%b[]]}' % (b"[]," * MOST_CONTAINERS)),
        ToolOutcome("", b"{}", GO, EnvOutcome(b"{}", b'{"a":"%b"}' % (b":" * MOST_CONTAINERS))),
    ],
)
def test_each_part_of_a_tools_answer_is_bounded(told: ToolOutcome) -> None:
    with pytest.raises(RequestRefused if told.outcome is None else RequestFailed):
        worker._check_tool_size(told)


@pytest.mark.parametrize("num_envs", [None, 2])
def test_what_an_environment_raised_travels_beside_the_answer_and_not_in_it(num_envs: int | None) -> None:
    with served_by_a_worker() as channel:
        unmade = asked(channel, work(f"{ENVIRONMENTS}:Corridor", num_envs, fails_at=-1))
        made = asked(channel, work(f"{ENVIRONMENTS}:Raising"))
        asked(channel, RESET)
        failed = asked(channel, WorkerCall("step", None, TROUBLED))

    assert made == WorkerReply()
    for problem, trace in ((unmade.refused, unmade.trace), (failed.failed, failed.trace)):
        assert problem is not None
        assert HIDDEN_TEXT not in msgspec.json.encode(problem).decode()
        assert str(problem.incident) in (trace or "")
        assert "Traceback" in (trace or "")
        assert HIDDEN_TEXT in (trace or "")


def test_what_an_environment_raises_when_it_is_closed_is_a_failure_with_a_trace() -> None:
    with served_by_a_worker() as channel:
        asked(channel, work(f"{ENVIRONMENTS}:Raising", where="close"))
        closed = asked(channel, WorkerCall("close"))

    assert closed.failed is not None
    assert closed.failed.code == Code.EXECUTION_ERROR
    assert HIDDEN_TEXT in (closed.trace or "")


def test_a_trace_is_bounded_and_keeps_its_end() -> None:
    collected = worker.LogCollector()
    for text in ("a" * LONGEST_TRACE, "the end"):
        collected.emit(logging.LogRecord("x", logging.ERROR, "", 0, text, None, None))

    taken = collected.take_text() or ""

    assert len(taken) == LONGEST_TRACE
    assert taken.endswith("\nthe end")
    assert collected.take_text() is None


def led(
    start: StartMessage,
    monkeypatch: pytest.MonkeyPatch,
    settle: Callable[..., None],
    words: int,
    *,
    go: bytes = GO_ON,
    then: bytes = b"",
) -> tuple[list[HandshakeMessage], bool]:
    """Return what a worker says until it is confined, on a thread of ours, and whether it would begin."""
    ours, theirs = socket.socketpair()
    ours.settimeout(PATIENCE)
    set_peer_identity(ours, wanted=True)
    monkeypatch.setattr(os, "setsid", lambda: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(confine, "die_with_parent", lambda: None)
    monkeypatch.setattr(confine, "settle", settle)
    result: list[bool] = []
    with ours, theirs:
        thread = threading.Thread(target=lambda: result.append(worker._confine(theirs, start)))
        thread.start()
        said = [receive_handshake(ours)]
        send_handshake(ours, go)
        for _ in range(words - 1):
            said.append(receive_handshake(ours))
            if then:
                send_handshake(ours, then)
        thread.join(PATIENCE)
    for word in said:
        word.__exit__()
    return said, result[0]


def start(tier: Tier, *, alone: bool = False) -> StartMessage:
    return StartMessage("t", {}, tier, SandboxLimits(), False, alone)


def refuse(*_: Any, **__: Any) -> None:
    raise PermissionError(1, "not here")


def test_a_worker_says_that_it_is_there_and_then_that_it_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    settled: list[Any] = []

    words, begins = led(start(Tier.PROCESS), monkeypatch, lambda *said, **_: settled.append(said), 2)

    assert [(word.kind, word.reason) for word in words] == [(HERE, ""), (READY, "")]
    assert settled == [(Tier.PROCESS, SandboxLimits())]
    assert begins


def asking_for_a_user(_: SandboxLimits, ask: Callable[[], None]) -> None:
    ask()


@pytest.mark.parametrize("go", [GO_ON, b"?"])
def test_a_worker_asks_for_a_user_of_its_own_and_goes_on_if_it_gets_one(
    monkeypatch: pytest.MonkeyPatch, go: bytes
) -> None:
    monkeypatch.setattr(confine, "own_namespaces", asking_for_a_user)
    wanted = StartMessage("t", {}, Tier.STRICT, SandboxLimits(), own_users=True)

    words, begins = led(wanted, monkeypatch, lambda *_, **__: None, 3, then=go)

    assert [word.kind for word in words] == [HERE, UNMAPPED, READY if go == GO_ON else NO_NAMESPACES]
    assert begins == (go == GO_ON)


def test_a_worker_that_is_not_told_to_go_on_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    words, begins = led(start(Tier.PROCESS), monkeypatch, lambda *_, **__: None, 1, go=b"?")

    assert [word.kind for word in words] == [HERE]
    assert not begins


def test_a_worker_that_cannot_be_confined_says_why_and_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    words, begins = led(start(Tier.BWRAP), monkeypatch, refuse, 2)

    assert words[1].kind == UNFIT
    assert "not here" in words[1].reason
    assert not begins


def test_a_worker_that_gets_no_namespaces_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confine, "own_namespaces", refuse)

    words, begins = led(start(Tier.STRICT), monkeypatch, lambda *_, **__: None, 2)
    alone, begins_alone = led(start(Tier.STRICT, alone=True), monkeypatch, lambda *_, **__: None, 2)

    assert words[1].kind == NO_NAMESPACES
    assert not begins
    assert alone[1].kind == READY
    assert begins_alone
