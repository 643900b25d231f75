"""The attacks themselves: they succeed where nothing stops them, say what stopped them, and leave nothing behind."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.server.sandbox import attacks
from proctor.server.sandbox.attacks import ATTEMPTS, AttackTargets, Probing, SandboxProbe, find_left_file, try_attack
from proctor.server.sandbox.probe import LIMITS, VARIABLE, Decoys, lay_out_decoys
from proctor.server.sandbox.tiers import MIB


@pytest.fixture
def baits() -> Iterator[Decoys]:
    with lay_out_decoys() as found:
        yield found


def test_there_is_an_attempt_for_every_probe() -> None:
    assert set(ATTEMPTS) == set(SandboxProbe)


@pytest.mark.parametrize(
    "probe",
    [
        SandboxProbe.NETWORK,
        SandboxProbe.ABSTRACT_SOCKETS,
        SandboxProbe.HOST_FILES,
        SandboxProbe.HOST_WRITES,
        SandboxProbe.ENVIRONMENT,
        SandboxProbe.PROC,
    ],
)
def test_without_a_sandbox_an_attempt_succeeds(baits: Decoys, probe: SandboxProbe) -> None:
    found = try_attack(baits.targets_for(probe))

    assert found.succeeded, found.said
    assert baits.was_taken(probe) in {True, None}


def test_a_process_that_was_killed_is_seen_to_be_and_the_next_bait_has_another(baits: Decoys) -> None:
    first = baits.targets_for(SandboxProbe.SIGNALS)
    before = baits.was_taken(SandboxProbe.SIGNALS)
    found = try_attack(first)

    assert found.succeeded
    assert (before, baits.was_taken(SandboxProbe.SIGNALS)) == (False, True)
    assert baits.targets_for(SandboxProbe.SIGNALS).decoy != first.decoy


def test_what_stands_in_the_way_is_told(baits: Decoys) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        found = try_attack(baits.targets_for(SandboxProbe.NETWORK).model_copy(update={"port": port}))

    assert not found.succeeded
    assert found.said == os.strerror(errno.ECONNREFUSED)
    assert baits.was_taken(SandboxProbe.NETWORK) is False


@pytest.mark.parametrize(
    "probe", [SandboxProbe.PROC, SandboxProbe.ENVIRONMENT, SandboxProbe.HOST_FILES, SandboxProbe.NEIGHBOURS]
)
def test_what_is_not_there_cannot_be_taken(baits: Decoys, probe: SandboxProbe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attacks, "KNOWN_FILES", ())
    nowhere = {"token": "nowhere-at-all", "folder": "/nowhere", "neighbour": 2**22 - 1}

    assert not try_attack(baits.targets_for(probe).model_copy(update=nowhere)).succeeded


def test_files_that_were_made_are_gone_and_so_is_everything_else(tmp_path: Path) -> None:
    with lay_out_decoys() as baits:
        bait = baits.targets_for(SandboxProbe.HOST_WRITES)
        try_attack(bait)
        inside = [path.name for path in Path(bait.folder).iterdir()]
        token = os.environ[VARIABLE]

    assert inside == ["canary"]
    assert token == bait.token
    assert VARIABLE not in os.environ
    assert not Path(bait.folder).exists()
    with pytest.raises(ProcessLookupError):
        os.kill(bait.decoy, 0)


def test_the_disk_is_filled_where_it_has_no_limit_and_emptied_again(
    baits: Decoys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attacks, "TEMPORARY", ("/nowhere", str(tmp_path)))
    found = try_attack(baits.targets_for(SandboxProbe.DISK))

    assert found.succeeded
    assert not list(tmp_path.iterdir())


def test_a_neighbours_file_is_found_where_folders_are_shared(baits: Decoys) -> None:
    Probing().reset(episode_id=baits.token)
    found = try_attack(baits.targets_for(SandboxProbe.NEIGHBOURS))

    assert found.succeeded
    assert find_left_file(baits.token).exists()


def test_a_neighbour_is_killed_by_its_number_alone(baits: Decoys) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"]) as neighbour:
        found = try_attack(baits.targets_for(SandboxProbe.NEIGHBOURS, neighbour.pid))
        code = neighbour.wait(300)

    assert found.succeeded
    assert code == -signal.SIGKILL


def test_an_episode_without_a_name_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(attacks, "HIDING_PLACE", str(tmp_path))
    found = Probing().reset(episode_id="")

    assert found.pid == os.getpid()
    assert not list(tmp_path.iterdir())


BOMBS = """
import json, resource, sys
from proctor.server.sandbox.attacks import AttackTargets, try_attack

bait = AttackTargets.model_validate_json(sys.stdin.read())
free = try_attack(bait).succeeded
kind, most = {limit}
resource.setrlimit(kind, (most, most))
print(json.dumps([free, try_attack(bait).succeeded]))
"""


@pytest.mark.parametrize("probe", [SandboxProbe.MEMORY_BOMB, SandboxProbe.MEMORY_OF_MANY])
def test_a_memory_bomb_succeeds_until_a_limit_stops_it(baits: Decoys, probe: SandboxProbe) -> None:
    bait = baits.targets_for(probe).model_copy(update={"memory_bytes": 24 * MIB})
    # Less than the process has already: not a byte more.
    assert both(bait, "(resource.RLIMIT_AS, 2**20)") == [True, False]


def test_a_fork_bomb_is_bounded_and_its_processes_are_gone(baits: Decoys) -> None:
    bait = baits.targets_for(SandboxProbe.FORK_BOMB).model_copy(update={"processes": 3})
    # Without descriptors there is no pipe to hear of the children by.
    assert both(bait, "(resource.RLIMIT_NOFILE, 3)") == [True, False]


def both(bait: AttackTargets, limit: str) -> list[bool]:
    """Return whether an attempt succeeds, and whether it does under a limit."""
    line = [sys.executable, "-c", BOMBS.replace("{limit}", limit)]
    done = subprocess.run(line, input=bait.model_dump_json().encode(), capture_output=True, check=True)
    found: list[bool] = json.loads(done.stdout)
    return found


def test_baits_tell_the_limits_that_they_are_tried_with(baits: Decoys) -> None:
    bait = baits.targets_for(SandboxProbe.DISK, 7)

    assert (bait.memory_bytes, bait.processes, bait.tmp_bytes, bait.neighbour) == (
        *(LIMITS.memory_bytes, LIMITS.processes, LIMITS.tmp_bytes, 7),
    )
