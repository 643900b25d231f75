"""Who is held can be ended, with all that it started, and nothing of it is left."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path

import pytest

from proctor.server.sandbox.messages import receive_handshake, set_peer_identity
from proctor.server.sandbox.pool import worker_process as hold_module
from proctor.server.sandbox.pool.cgroups import Cgroups
from proctor.server.sandbox.pool.worker_process import (
    FIRST_USER,
    WorkerProcess,
    find_pid,
    generate_users,
    is_descendant,
    move_to_group,
)
from proctor.server.sandbox.tiers import SandboxLimits
from tests.server.live_server import PATIENCE, until
from tests.server.sandbox.kernel_folders import KernelFolder
from tests.server.sandbox.processes import files

LEADER = """
import os, subprocess, sys
os.setsid()
print(subprocess.Popen(["sleep", "60"]).pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def undertaker() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as thread:
        yield thread


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def take(hold: WorkerProcess, pid: int) -> None:
    """Have a process of this test held."""
    descriptor = os.pidfd_open(pid)
    hold.attach(descriptor)
    os.close(descriptor)


@pytest.fixture
def over() -> list[WorkerProcess]:
    """What was buried."""
    return []


@pytest.fixture
def hold(
    undertaker: ThreadPoolExecutor, child: subprocess.Popen[bytes], over: list[WorkerProcess]
) -> Iterator[WorkerProcess]:
    """Give one that holds the child, and of which nothing is left afterwards."""
    before = files()
    hold = WorkerProcess(undertaker, over.append)
    take(hold, child.pid)
    yield hold
    hold.kill()
    until(lambda: over == [hold])
    assert files() == before


def test_a_process_that_is_held_is_killed_and_buried(
    hold: WorkerProcess, child: subprocess.Popen[bytes], over: list[WorkerProcess]
) -> None:

    hold.kill()
    hold.kill()

    assert child.wait(PATIENCE) == -9
    until(lambda: over == [hold])
    assert not hold.out_of_memory()


def test_what_a_process_started_ends_with_it(undertaker: ThreadPoolExecutor) -> None:
    with subprocess.Popen([sys.executable, "-c", LEADER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as leader:
        assert leader.stdout is not None
        started = int(leader.stdout.readline())
        hold = WorkerProcess(undertaker, lambda _: None)
        take(hold, leader.pid)

        hold.kill()

        leader.wait(PATIENCE)
    until(lambda: not Path(f"/proc/{started}").exists() or "(zombie)" in Path(f"/proc/{started}/status").read_text())


def test_the_process_that_was_held_before_is_let_go(
    undertaker: ThreadPoolExecutor, child: subprocess.Popen[bytes]
) -> None:
    before = files()
    over: list[WorkerProcess] = []
    hold = WorkerProcess(undertaker, over.append)
    with subprocess.Popen(["sleep", "60"]) as first:
        take(hold, first.pid)
        take(hold, child.pid)
        hold.kill()
        child.wait(PATIENCE)

        assert first.poll() is None
        first.kill()
    until(lambda: over)
    assert files() == before


def test_a_process_that_comes_too_late_is_killed_too(
    undertaker: ThreadPoolExecutor, child: subprocess.Popen[bytes]
) -> None:
    before = files()
    hold = WorkerProcess(undertaker, lambda _: None)
    hold.kill()

    take(hold, child.pid)

    assert child.wait(PATIENCE) == -9
    assert files() == before


def test_a_hold_is_buried_even_when_the_undertaker_has_gone(child: subprocess.Popen[bytes]) -> None:
    over: list[WorkerProcess] = []
    with ThreadPoolExecutor(1) as undertaker:
        hold = WorkerProcess(undertaker, over.append)
        take(hold, child.pid)

    hold.kill()

    assert over == [hold]


def test_a_group_is_made_asked_and_removed(
    hold: WorkerProcess, child: subprocess.Popen[bytes], over: list[WorkerProcess], tmp_path: Path
) -> None:
    cgroups = Cgroups(2, (KernelFolder(tmp_path),), "family")

    hold.put_into_group(cgroups, "worker", SandboxLimits())
    members = (tmp_path / "family" / "worker" / "cgroup.procs").read_text()
    (tmp_path / "family" / "worker" / "memory.events").write_text("oom_kill 1\n")
    hungry = hold.out_of_memory()
    (tmp_path / "family" / "worker" / "cgroup.procs").write_text("")
    hold.kill()
    until(lambda: over)

    assert members == str(child.pid)
    assert hungry
    assert not (tmp_path / "family" / "worker").exists()


def test_no_group_is_made_for_a_process_that_was_given_up(undertaker: ThreadPoolExecutor, tmp_path: Path) -> None:
    hold = WorkerProcess(undertaker, lambda _: None)
    hold.kill()

    hold.put_into_group(Cgroups(2, (KernelFolder(tmp_path),), "family"), "w", SandboxLimits())

    assert list(tmp_path.iterdir()) == []


def test_a_group_that_stays_is_said_to(
    hold: WorkerProcess,
    over: list[WorkerProcess],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(KernelFolder, "refusals", 10**6)
    hold.put_into_group(Cgroups(2, (KernelFolder(tmp_path),), "family"), "w", SandboxLimits())
    (tmp_path / "family" / "w" / "cgroup.procs").write_text("")

    hold.kill()
    until(lambda: over)

    assert "could not be removed" in caplog.text


@pytest.fixture
def gone() -> Iterator[int]:
    """Give the descriptor of a process of which nothing is left."""
    with subprocess.Popen(["sleep", "0"]) as process:
        descriptor = os.pidfd_open(process.pid)
    yield descriptor
    os.close(descriptor)


def test_a_process_has_a_number_as_long_as_something_is_left_of_it(child: subprocess.Popen[bytes], gone: int) -> None:
    descriptor = os.pidfd_open(child.pid)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    dead = find_pid(descriptor)
    os.close(descriptor)

    assert dead == child.pid
    assert find_pid(gone) == find_pid(-1) == 0


def test_who_comes_from_a_process_is_told_from_who_does_not(child: subprocess.Popen[bytes], gone: int) -> None:
    with subprocess.Popen([sys.executable, "-c", LEADER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as leader:
        assert leader.stdout is not None
        started, beside = os.pidfd_open(int(leader.stdout.readline())), os.pidfd_open(child.pid)

        found = [is_descendant(each, leader.pid) for each in (started, beside, gone)]
        ours = [is_descendant(each, os.getpid()) for each in (started, beside)]

        signal.pidfd_send_signal(started, signal.SIGKILL)
        leader.kill()
        os.close(started)
        os.close(beside)
    assert found == [True, False, False]
    assert ours == [True, True]


def test_a_line_of_parents_that_never_stays_the_same_is_not_believed(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = count(2)
    monkeypatch.setattr(hold_module, "_find_ancestors", lambda _: [os.getpid(), next(numbers)])
    descriptor = os.pidfd_open(child.pid)

    assert not is_descendant(descriptor, os.getpid())
    os.close(descriptor)


def test_a_process_that_ended_is_not_moved_and_its_group_is_gone(tmp_path: Path, gone: int) -> None:
    group = Cgroups(2, (KernelFolder(tmp_path),), "family").make("w", SandboxLimits())

    assert not move_to_group(gone, group)
    assert not group.folders[0].exists()


def test_whoever_was_moved_instead_of_a_process_that_ended_is_let_go_unhurt(
    tmp_path: Path, child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Cgroups(2, (KernelFolder(tmp_path),), "family").make("w", SandboxLimits())
    (tmp_path / "cgroup.procs").touch()
    # A kernel's folder is empty when its process was moved elsewhere.
    monkeypatch.setattr(KernelFolder, "rmdir", shutil.rmtree)
    numbers = iter((child.pid, 0))
    monkeypatch.setattr(hold_module, "find_pid", lambda _: next(numbers))

    assert not move_to_group(-1, group)
    assert (tmp_path / "cgroup.procs").read_text() == str(child.pid)
    assert not group.folders[0].exists()
    assert child.poll() is None


def test_a_group_that_takes_no_process_is_removed(tmp_path: Path, child: subprocess.Popen[bytes]) -> None:
    group = Cgroups(2, (KernelFolder(tmp_path),), "family").make("w", SandboxLimits())
    (group.folders[0] / "cgroup.procs").unlink()
    descriptor = os.pidfd_open(child.pid)

    with pytest.raises(FileNotFoundError):
        move_to_group(descriptor, group)
    os.close(descriptor)

    assert not group.folders[0].exists()


def test_a_process_that_ended_has_no_group(undertaker: ThreadPoolExecutor, tmp_path: Path, gone: int) -> None:
    hold = WorkerProcess(undertaker, lambda _: None)
    hold.attach(gone)

    with pytest.raises(ProcessLookupError):
        hold.put_into_group(Cgroups(2, (KernelFolder(tmp_path),), "f"), "w", SandboxLimits())
    hold.kill()

    assert not (tmp_path / "f" / "w").exists()


def test_only_a_member_of_the_group_is_taken_for_the_worker(
    hold: WorkerProcess, tmp_path: Path, child: subprocess.Popen[bytes]
) -> None:
    inside, outside = os.pidfd_open(child.pid), os.pidfd_open(os.getpid())
    without = hold.has_member(inside)
    hold.put_into_group(Cgroups(2, (KernelFolder(tmp_path),), "f"), "w", SandboxLimits())

    members = [hold.has_member(each) for each in (inside, outside)]

    for each in (inside, outside):
        os.close(each)
    (tmp_path / "f" / "w" / "cgroup.procs").write_text("")
    assert (without, members) == (False, [True, False])


def test_no_user_is_given_to_a_process_that_has_no_namespace_of_its_own_or_has_ended(
    hold: WorkerProcess, child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PermissionError):
        hold.map_user(FIRST_USER)
    numbers = iter((child.pid, 0))
    monkeypatch.setattr(hold_module, "find_pid", lambda _: next(numbers))
    with pytest.raises(ProcessLookupError):
        hold.map_user(FIRST_USER)


@pytest.mark.parametrize(("mapped", "first", "last"), [(False, FIRST_USER, 2**31), (True, 1000, 65534)])
def test_users_are_all_different_and_nobody_elses(mapped: bool, first: int, last: int) -> None:
    users = list(islice(generate_users(mapped=mapped), 2000))

    assert len(set(users)) == len(users)
    assert all(first <= user < last for user in users)


LAST_PID = Path("/proc/sys/kernel/ns_last_pid")


@pytest.mark.system
def test_a_number_that_became_another_process_is_not_taken_for_the_one_that_spoke(
    undertaker: ThreadPoolExecutor,
) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        set_peer_identity(ours, wanted=True)
        speaking = f"import socket; socket.socket(fileno={theirs.fileno()}).send(b'h')"
        speaker = subprocess.Popen([sys.executable, "-c", speaking], pass_fds=[theirs.fileno()])
        speaker.wait(PATIENCE)
        with process_with_number(speaker.pid) as innocent, receive_handshake(ours) as word:
            hold = WorkerProcess(undertaker, lambda _: None)
            if word.speaker >= 0:
                hold.attach(word.speaker)
            hold.kill()
            is_own = find_pid(word.speaker) == innocent.pid
            undertaker.submit(lambda: None).result(PATIENCE)
            ended = innocent.poll()

    assert not is_own
    assert ended is None


@contextmanager
def process_with_number(pid: int) -> Iterator[subprocess.Popen[bytes]]:
    """Give a new process with a number that was another's; the kernel can be told which number comes next."""
    for _ in range(200):
        LAST_PID.write_text(str(pid - 1))
        with subprocess.Popen(["sleep", "60"]) as process:
            if process.pid == pid:
                try:
                    yield process
                finally:
                    process.kill()
                return
            process.kill()
    pytest.skip("other processes take the numbers faster than this one")
