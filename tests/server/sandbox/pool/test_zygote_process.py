"""A keeper says when its zygote is ready or why it is not, and leaves nothing of it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from proctor import __version__
from proctor.errors import ComponentError, ProctorError, ValidationError
from proctor.server.sandbox.messages import HERE, LoadReport, StartMessage, receive_handshake, set_peer_identity
from proctor.server.sandbox.pool.worker_process import find_pid
from proctor.server.sandbox.pool.zygote_pool import ZygotePlan, ZygoteProcess
from proctor.server.sandbox.tiers import SandboxLimits, Tier
from proctor.server.sandbox.worker import zygote
from tests.server.live_server import PATIENCE, until
from tests.server.sandbox.processes import ENVIRONMENTS, descendants, files

pytestmark = pytest.mark.slow

START = StartMessage(f"{ENVIRONMENTS}:Counting", {}, Tier.PROCESS, SandboxLimits())


def python(*lines: str) -> Any:
    """Return a command for a process that has its socket as `s`."""
    body = "\n".join(["import os, socket, sys, time", "s = socket.socket(fileno=int(sys.argv[1]))", *lines])

    def command(descriptor: int) -> Sequence[str]:
        return [sys.executable, "-c", body, str(descriptor)]

    return command


def problem_of(command: Any, seconds: float = PATIENCE) -> ProctorError:
    """Return why a zygote of this command is never ready; nothing is left of it."""
    before, open_before = descendants(), files()
    keeper = ZygoteProcess(ZygotePlan(command, START, None, seconds), "trial")

    problem = keeper.ready.exception(PATIENCE)

    assert isinstance(problem, ProctorError)
    assert keeper.join(PATIENCE)
    assert not keeper.alive
    assert descendants().keys() == before.keys()
    assert files() == open_before
    return problem


def test_a_zygote_is_ready_forks_and_is_gone_when_it_was_killed() -> None:
    before, open_before = descendants(), files()
    keeper = ZygoteProcess(ZygotePlan(zygote.command, START), "trial")

    ready = keeper.ready.result(PATIENCE)
    ours, theirs = socket.socketpair()
    with ours:
        ours.settimeout(PATIENCE)
        set_peer_identity(ours, wanted=True)
        with theirs:
            keeper.fork(theirs)
        with receive_handshake(ours) as word:
            pid = find_pid(word.speaker)
            is_its_own = keeper.has_started(word.speaker)
        alive = keeper.alive
        keeper.kill()
        keeper.kill()
        left = ours.recv(1)

    assert ready == LoadReport(version=__version__)
    assert (word.kind, alive, left) == (HERE, True, b"")
    until(lambda: not Path(f"/proc/{pid}").exists())
    assert is_its_own
    assert keeper.join(PATIENCE)
    assert not keeper.alive
    until(lambda: descendants().keys() == before.keys())
    assert files() == open_before
    with socket.socket() as other, pytest.raises(OSError):
        keeper.fork(other)


def test_a_zygote_that_dies_is_noticed_and_reaped() -> None:
    before = descendants()
    keeper = ZygoteProcess(ZygotePlan(zygote.command, START), "trial")
    keeper.ready.result(PATIENCE)
    (pid,) = descendants().keys() - before.keys()

    os.kill(pid, signal.SIGKILL)

    assert keeper.ended.wait(PATIENCE)
    assert not keeper.alive
    assert keeper.join(PATIENCE)
    assert descendants().keys() == before.keys()


def test_a_keeper_that_is_killed_before_its_process_came_is_gone() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def command(descriptor: int) -> Sequence[str]:
        begun.set()
        go_on.wait(PATIENCE)
        return zygote.command(descriptor)

    before = descendants()
    keeper = ZygoteProcess(ZygotePlan(command, START), "trial")
    begun.wait(PATIENCE)
    keeper.kill()
    go_on.set()

    assert isinstance(keeper.ready.exception(PATIENCE), ComponentError)
    assert keeper.join(PATIENCE)
    assert descendants().keys() == before.keys()


def test_nobody_who_waits_for_a_zygote_can_cancel_it_for_others() -> None:
    keeper = ZygoteProcess(ZygotePlan(zygote.command, START), "trial")
    ready: Future[LoadReport] = keeper.ready

    cancelled = ready.cancel()

    assert not cancelled
    assert ready.result(PATIENCE) == LoadReport(version=__version__)
    keeper.kill()
    assert keeper.join(PATIENCE)


def test_a_program_that_is_not_there_is_said_in_words() -> None:
    problem = problem_of(lambda _: ["/nowhere/bwrap"])

    assert isinstance(problem, ComponentError)
    assert "/nowhere/bwrap" in str(problem)


def test_what_a_program_complained_about_is_passed_on_without_steering_the_terminal() -> None:
    problem = problem_of(python("sys.stderr.write('bwrap: no \\x1b[2J namespaces')", "sys.exit(1)"))

    assert "bwrap: no ?[2J namespaces" in str(problem)


def test_a_zygote_that_ends_while_it_imports_is_said_to() -> None:
    problem = problem_of(python("s.send(b'h')", "s.recv(1)"))

    assert "while it imported" in str(problem)


@pytest.mark.parametrize("said", ["", "s.send(b'h')"])
def test_a_zygote_that_hangs_is_killed(said: str) -> None:
    problem = problem_of(python(said, "time.sleep(60)"), 0.2)

    assert "within 0.2 seconds" in str(problem)


@pytest.mark.parametrize(
    "said", ["b'?'", "b'h\\x00\\x00\\x00\\x01\\xc1'", "b'h\\xff\\xff\\xff\\xff'", "b'h' + b'z' * 2**20"]
)
def test_a_zygote_that_talks_nonsense_is_killed(said: str) -> None:
    problem = problem_of(python(f"s.sendall({said})", "time.sleep(60)"))

    assert isinstance(problem, ComponentError)


def test_a_problem_of_the_import_is_the_operators_mistake() -> None:
    start = StartMessage("nowhere_at_all:Thing", {}, Tier.PROCESS, SandboxLimits())
    keeper = ZygoteProcess(ZygotePlan(zygote.command, start), "trial")

    problem = keeper.ready.exception(PATIENCE)

    assert isinstance(problem, ValidationError)
    assert "nowhere_at_all" in str(problem)
    assert keeper.join(PATIENCE)


def test_threads_that_an_import_starts_are_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    body = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\ndef make(): ..."
    (tmp_path / "threaded_module.py").write_text(body)
    monkeypatch.syspath_prepend(tmp_path)
    keeper = ZygoteProcess(
        ZygotePlan(zygote.command, StartMessage("threaded_module:make", {}, Tier.PROCESS, SandboxLimits())), "trial"
    )

    loaded = keeper.ready.result(PATIENCE)
    keeper.kill()

    assert loaded.threads == 1
    assert "threads" in caplog.text
    assert keeper.join(PATIENCE)


def test_a_server_that_is_killed_leaves_no_zygote() -> None:
    body = """
import sys, time
from proctor.server.sandbox.worker import zygote
from proctor.server.sandbox.pool.zygote_pool import ZygoteProcess, ZygotePlan
from proctor.server.sandbox.tiers import SandboxLimits, Tier
from proctor.server.sandbox.messages import StartMessage

keeper = ZygoteProcess(ZygotePlan(zygote.command, StartMessage("CartPole-v1", {}, Tier.PROCESS, SandboxLimits())), "trial")
keeper.ready.result(300)
print("ready", flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", body], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        (pid,) = descendants(server.pid)
        server.kill()
    until(lambda: not Path(f"/proc/{pid}").exists())
