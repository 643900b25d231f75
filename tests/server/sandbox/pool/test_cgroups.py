"""Control groups: both versions against a tree of files, the one that this host has for real."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.server.sandbox.pool.cgroups import (
    LEAF,
    Cgroups,
    CgroupsMissing,
    ControlGroup,
    find_cgroups,
    limit_settings,
)
from proctor.server.sandbox.tiers import SandboxLimits
from tests.server.live_server import until
from tests.server.sandbox.kernel_folders import KernelFolder

LIMITS = SandboxLimits(memory_bytes=123 * 2**20, processes=7, cpus=0.5)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KernelFolder:
    monkeypatch.setattr(KernelFolder, "refusals", 0)
    return KernelFolder(tmp_path)


def separate(root: Path, cpu: str = "cpu") -> None:
    for name in ("memory", "pids", cpu, "memory/service"):
        (root / name).mkdir()


def unified(root: Path, controllers: str = "cpu memory pids", subtree: str = "") -> None:
    (root / "cgroup.controllers").write_text("cpu memory pids io")
    (root / "scope").mkdir()
    (root / "scope" / "cgroup.controllers").write_text(controllers)
    (root / "scope" / "cgroup.subtree_control").write_text(subtree)


def found_1(root: Path) -> Cgroups:
    separate(root)
    return find_cgroups(root, "4:memory:/service\n3:pids:/\n1:cpu:/\n0::/\n")


def found_2(root: Path) -> Cgroups:
    unified(root)
    return find_cgroups(root, "0::/scope\n")


def test_version_1_makes_a_group_in_each_hierarchy_below_the_servers_own(root: KernelFolder) -> None:
    cgroups = found_1(root)
    group = cgroups.make("worker", LIMITS)
    memory, pids, cpu = group.folders

    assert cgroups.version == 1
    assert memory == root / "memory" / "service" / cgroups.family / "worker"
    assert (memory / "memory.limit_in_bytes").read_text() == str(LIMITS.memory_bytes)
    assert (memory / "memory.memsw.limit_in_bytes").read_text() == str(LIMITS.memory_bytes)
    assert (pids / "pids.max").read_text() == "7"
    assert (cpu / "cpu.cfs_quota_us").read_text() == "50000"


def test_version_1_does_without_the_count_of_swap(root: KernelFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KernelFolder, "lacking", {"memory.memsw.limit_in_bytes"})

    group = found_1(root).make("worker", LIMITS)

    assert not (group.folders[0] / "memory.memsw.limit_in_bytes").exists()


def test_version_1_finds_controllers_that_share_a_hierarchy(root: KernelFolder) -> None:
    separate(root, cpu="cpu,cpuacct")
    cgroups = find_cgroups(root, "2:cpu,cpuacct:/\n")

    assert cgroups.homes[2] == root / "cpu,cpuacct"


def test_version_2_makes_one_group_with_all_limits_and_no_swap(root: KernelFolder) -> None:
    cgroups = found_2(root)
    folder = cgroups.make("worker", LIMITS).folders[0]
    written = {name: (folder / name).read_text() for name in ("memory.max", "memory.swap.max", "pids.max", "cpu.max")}

    assert folder == root / "scope" / cgroups.family / "worker"
    assert (root / "scope" / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"
    assert (folder.parent / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"
    assert written == {
        "memory.max": str(LIMITS.memory_bytes),
        "memory.swap.max": "0",
        "pids.max": "7",
        "cpu.max": "50000 100000",
    }


def test_version_2_moves_the_server_down_so_that_controllers_can_be_handed_down(root: KernelFolder) -> None:
    unified(root)
    (root / "scope" / "cgroup.procs").write_text(f"{os.getpid()}\n")
    cgroups = find_cgroups(root, "0::/scope\n")

    assert (root / "scope" / f"{cgroups.family}{LEAF}" / "cgroup.procs").read_text() == str(os.getpid())


def test_version_2_makes_groups_beside_the_leaf_that_a_server_went_down_to(root: KernelFolder) -> None:
    unified(root, subtree="cpu memory pids")
    (root / "scope" / f"proctor-1-boot{LEAF}").mkdir()
    cgroups = find_cgroups(root, f"0::/scope/proctor-1-boot{LEAF}\n")

    assert cgroups.homes == (root / "scope",)


def test_version_2_does_not_move_other_peoples_processes(root: KernelFolder) -> None:
    unified(root)
    (root / "scope" / "cgroup.procs").write_text(f"{os.getpid()}\n1\n")

    with pytest.raises(CgroupsMissing, match="holds other processes"):
        find_cgroups(root, "0::/scope\n")


def test_controllers_that_are_not_delegated_are_named(root: KernelFolder) -> None:
    unified(root, controllers="pids")

    with pytest.raises(CgroupsMissing, match=r"memory, cpu are not delegated.*Delegate=yes"):
        find_cgroups(root, "0::/scope\n")


def test_a_hierarchy_that_is_not_there_is_named(root: KernelFolder) -> None:
    separate(root)
    shutil.rmtree(root / "pids")

    with pytest.raises(CgroupsMissing, match="no pids controller"):
        find_cgroups(root, "")


def test_a_kernel_that_refuses_is_told_in_words(root: KernelFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    separate(root)

    def refuse(folder: Path, **_: Any) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(KernelFolder, "mkdir", refuse)

    with pytest.raises(CgroupsMissing, match="cannot be used: Permission denied"):
        find_cgroups(root, "")


@pytest.mark.parametrize("make", [found_1, found_2])
def test_a_tree_of_files_proves_nothing_and_keeps_nothing(root: KernelFolder, make: type) -> None:
    cgroups = make(root)

    assert not cgroups.proven
    assert not list(root.glob("**/trial*"))


@pytest.mark.parametrize("make", [found_1, found_2])
def test_a_process_is_added_everywhere(root: KernelFolder, make: type) -> None:
    group = make(root).make("worker", LIMITS)
    group.add(4321)

    assert [(folder / "cgroup.procs").read_text() for folder in group.folders] == ["4321"] * len(group.folders)
    assert group.pids() == (4321,)


@pytest.mark.parametrize(
    ("make", "name", "text"),
    [
        (found_1, "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"),
        (found_2, "memory.events", "low 0\nhigh 0\nmax 3\noom 1\noom_kill {}\n"),
    ],
)
def test_a_kill_for_want_of_memory_is_seen(root: KernelFolder, make: type, name: str, text: str) -> None:
    group: ControlGroup = make(root).make("worker", LIMITS)
    before = group.was_out_of_memory()
    (group.folders[0] / name).write_text(text.format(0))
    without = group.was_out_of_memory()
    (group.folders[0] / name).write_text(text.format(2))

    assert (before, without, group.was_out_of_memory()) == (False, False, True)


def test_version_2_kills_by_one_order(root: KernelFolder) -> None:
    group = found_2(root).make("worker", LIMITS)
    group.kill()

    assert (group.folders[0] / "cgroup.kill").read_text() == "1"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"]) as process:
        yield process
        process.kill()


def test_version_1_forbids_forks_and_kills_one_by_one(root: KernelFolder, sleeper: subprocess.Popen[bytes]) -> None:
    group = found_1(root).make("worker", LIMITS)
    group.add(sleeper.pid)
    group.kill()

    assert sleeper.wait(300) == -signal.SIGKILL
    assert (group.folders[1] / "pids.max").read_text()[0] == "0"


def test_removing_is_tried_again_and_is_given_up_in_the_end(
    root: KernelFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    cgroups = found_1(root)
    group = cgroups.make("worker", LIMITS)
    monkeypatch.setattr(KernelFolder, "refusals", 1000)
    never = group.remove()
    monkeypatch.setattr(KernelFolder, "refusals", 5)
    later = group.remove()

    assert (never, later, group.remove(), cgroups.close()) == (False, True, True, True)


def test_a_group_that_could_not_be_limited_is_not_left_behind(
    root: KernelFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    cgroups = found_1(root)
    monkeypatch.setattr(KernelFolder, "lacking", {"memory.limit_in_bytes"})

    with pytest.raises(OSError, match="limit_in_bytes"):
        cgroups.make("worker", LIMITS)

    assert not list(root.glob("**/worker"))


def test_only_what_dead_servers_left_is_swept(root: KernelFolder) -> None:
    cgroups = found_1(root)
    mine = cgroups.make("worker", LIMITS)
    boot = cgroups.family.split("-")[2]
    home = cgroups.homes[1]
    left = {name: home / name for name in (f"proctor-1-{boot}", "proctor-1-otherboot", f"proctor-99999999-{boot}")}
    for folder in (*left.values(), home / "proctor-word", home / "somebody"):
        folder.mkdir()
    (left["proctor-1-otherboot"] / "worker").mkdir()
    count = cgroups.sweep()

    assert count == 3
    assert {folder.name for folder in home.iterdir() if folder.is_dir()} == {
        *(cgroups.family, f"proctor-1-{boot}", "proctor-word", "somebody")
    }
    assert mine.folders[1].is_dir()


@given(st.integers(1, 2), st.integers(2**20, 2**50), st.integers(1, 10**6), st.floats(0.01, 512))
def test_limits_are_written_as_the_kernel_reads_them(version: int, memory: int, processes: int, cpus: float) -> None:
    texts = limit_settings(version, SandboxLimits(memory_bytes=memory, processes=processes, cpus=cpus))
    name = "memory.max" if version == 2 else "memory.limit_in_bytes"
    share = texts["cpu.max"] if version == 2 else f"{texts['cpu.cfs_quota_us']} {texts['cpu.cfs_period_us']}"
    quota, period = map(int, share.split())

    assert int(texts[name]) == memory
    assert int(texts["pids.max"]) == processes
    assert abs(quota / period - cpus) < 0.01


BOMB = """
import os, sys, time
sys.stdin.read(1)
try:
    while True:
        if os.fork() == 0:
            time.sleep(100)
except OSError:
    print("full", flush=True)
time.sleep(100)
"""
HUNGRY = "import sys; sys.stdin.read(1); bytearray(10**9)"


@pytest.fixture
def here() -> Iterator[Cgroups]:
    cgroups = find_cgroups()
    yield cgroups
    assert cgroups.close()


def started(program: str, group: ControlGroup) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    group.add(process.pid)
    assert process.stdin is not None
    process.stdin.write(b"x")
    process.stdin.flush()
    return process


@pytest.mark.system
def test_this_hosts_kernel_ends_what_takes_too_much_memory(here: Cgroups) -> None:
    group = here.make("hungry", SandboxLimits(memory_bytes=64 * 2**20))
    with started(HUNGRY, group) as process:
        code = process.wait(300)

    assert here.proven
    assert code == -signal.SIGKILL
    assert group.was_out_of_memory()
    assert until(group.remove)


@pytest.mark.system
def test_this_hosts_kernel_bounds_a_fork_bomb_and_all_of_it_is_killed(here: Cgroups) -> None:
    group = here.make("bomb", SandboxLimits(processes=20))
    with started(BOMB, group) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        count = len(group.pids())
        stays = group.remove()
        group.kill()
        process.wait(300)

    assert (said, count, stays) == (b"full\n", 20, False)
    until(group.remove)


@pytest.mark.parametrize("has_leaf", [True, False])
def test_who_is_let_go_is_where_the_server_is(root: KernelFolder, has_leaf: bool) -> None:
    group = found_2(root).make("worker", LIMITS)
    home = group.folders[0].parent.parent
    own = home / f"proctor-{os.getpid()}-x-1-server" if has_leaf else home
    own.mkdir(exist_ok=True)
    (own / "cgroup.procs").write_text("")
    group.add(4321)

    group.release()

    assert (own / "cgroup.procs").read_text() == "4321"
