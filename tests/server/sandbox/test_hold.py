"""Who is held can be ended, with all that it started, and nothing of it is left."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from proctor.server.sandbox.cgroups import Cgroups
from proctor.server.sandbox.control_group import Folders
from proctor.server.sandbox.hold import Hold
from proctor.server.sandbox.tiers import SandboxLimits
from tests.server.sandbox.processes import files
from tests.server.served import PATIENCE, until

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


def remove_tree(folder: Path) -> None:
    """Remove a folder with its files, as the kernel does for a group."""
    for each in folder.iterdir():
        each.unlink()
    folder.rmdir()


def make_group(folder: Path) -> None:
    """Make a folder with the files that the kernel puts into a group."""
    folder.mkdir()
    for name in ("cgroup.procs", "memory.max", "pids.max", "cpu.max", "cgroup.subtree_control"):
        (folder / name).touch()
    (folder / "memory.events").write_text("oom_kill 1\n")


def test_a_process_that_is_held_is_killed_and_buried(
    undertaker: ThreadPoolExecutor, child: subprocess.Popen[bytes]
) -> None:
    before = files()
    over: list[Hold] = []
    hold = Hold(undertaker, over.append)
    hold.take(child.pid)

    hold.kill()
    hold.kill()

    assert child.wait(PATIENCE) == -9
    until(lambda: over == [hold])
    assert files() == before
    assert not hold.out_of_memory()


def test_what_a_process_started_ends_with_it(undertaker: ThreadPoolExecutor) -> None:
    with subprocess.Popen([sys.executable, "-c", LEADER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as leader:
        assert leader.stdout is not None
        started = int(leader.stdout.readline())
        hold = Hold(undertaker, lambda _: None)
        hold.take(leader.pid)

        hold.kill()

        leader.wait(PATIENCE)
    until(lambda: not Path(f"/proc/{started}").exists() or "(zombie)" in Path(f"/proc/{started}/status").read_text())


def test_the_process_that_was_held_before_is_let_go(
    undertaker: ThreadPoolExecutor, child: subprocess.Popen[bytes]
) -> None:
    before = files()
    over: list[Hold] = []
    hold = Hold(undertaker, over.append)
    with subprocess.Popen(["sleep", "60"]) as first:
        hold.take(first.pid)
        hold.take(child.pid)
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
    hold = Hold(undertaker, lambda _: None)
    hold.kill()

    hold.take(child.pid)

    assert child.wait(PATIENCE) == -9
    assert files() == before


def test_a_hold_is_buried_even_when_the_undertaker_has_gone(child: subprocess.Popen[bytes]) -> None:
    over: list[Hold] = []
    with ThreadPoolExecutor(1) as undertaker:
        hold = Hold(undertaker, over.append)
        hold.take(child.pid)

    hold.kill()

    assert over == [hold]


def test_a_group_is_made_asked_and_removed(
    undertaker: ThreadPoolExecutor, child: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    cgroups = Cgroups(2, (tmp_path,), "family", kernel=Folders(make_group, remove_tree))
    over: list[Hold] = []
    hold = Hold(undertaker, over.append)
    hold.take(child.pid)

    hold.enclose(cgroups, "worker", SandboxLimits(), child.pid)
    members = (tmp_path / "family" / "worker" / "cgroup.procs").read_text()
    hungry = hold.out_of_memory()
    (tmp_path / "family" / "worker" / "cgroup.procs").write_text("")
    hold.kill()
    until(lambda: over)

    assert members == str(child.pid)
    assert hungry
    assert not (tmp_path / "family" / "worker").exists()


def test_no_group_is_made_for_a_process_that_was_given_up(undertaker: ThreadPoolExecutor, tmp_path: Path) -> None:
    hold = Hold(undertaker, lambda _: None)
    hold.kill()

    hold.enclose(Cgroups(2, (tmp_path,), "family", kernel=Folders(make_group, remove_tree)), "w", SandboxLimits(), 1)

    assert list(tmp_path.iterdir()) == []


def test_a_group_that_stays_is_said_to(
    undertaker: ThreadPoolExecutor, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def stay(_: Path) -> None:
        raise OSError(16, os.strerror(16))

    over: list[Hold] = []
    hold = Hold(undertaker, over.append)
    hold.enclose(Cgroups(2, (tmp_path,), "family", kernel=Folders(make_group, stay)), "w", SandboxLimits(), 0)

    hold.kill()
    until(lambda: over)

    assert "could not be removed" in caplog.text
