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

from proctor.server.sandbox import probes
from proctor.server.sandbox.bait import LIMITS, VARIABLE, Baits, laid_out
from proctor.server.sandbox.findings import Probe
from proctor.server.sandbox.probes import ATTEMPTS, Bait, Probing, left_by, tried
from proctor.server.sandbox.tiers import MIB


@pytest.fixture
def baits() -> Iterator[Baits]:
    with laid_out() as found:
        yield found


def test_there_is_an_attempt_for_every_probe() -> None:
    assert set(ATTEMPTS) == set(Probe)


@pytest.mark.parametrize(
    "probe", [Probe.NETWORK, Probe.ABSTRACT_SOCKETS, Probe.HOST_FILES, Probe.HOST_WRITES, Probe.ENVIRONMENT, Probe.PROC]
)
def test_without_a_sandbox_an_attempt_succeeds(baits: Baits, probe: Probe) -> None:
    found = tried(baits.bait(probe))

    assert found.succeeded, found.said
    assert baits.taken(probe) in {True, None}


def test_a_process_that_was_killed_is_seen_to_be_and_the_next_bait_has_another(baits: Baits) -> None:
    first = baits.bait(Probe.SIGNALS)
    before = baits.taken(Probe.SIGNALS)
    found = tried(first)

    assert found.succeeded
    assert (before, baits.taken(Probe.SIGNALS)) == (False, True)
    assert baits.bait(Probe.SIGNALS).decoy != first.decoy


def test_what_stands_in_the_way_is_told(baits: Baits) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        found = tried(baits.bait(Probe.NETWORK).model_copy(update={"port": port}))

    assert not found.succeeded
    assert found.said == os.strerror(errno.ECONNREFUSED)
    assert baits.taken(Probe.NETWORK) is False


@pytest.mark.parametrize("probe", [Probe.PROC, Probe.ENVIRONMENT, Probe.HOST_FILES, Probe.NEIGHBOURS])
def test_what_is_not_there_cannot_be_taken(baits: Baits, probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "KNOWN_FILES", ())
    nowhere = {"token": "nowhere-at-all", "folder": "/nowhere", "neighbour": 2**22 - 1}

    assert not tried(baits.bait(probe).model_copy(update=nowhere)).succeeded


def test_files_that_were_made_are_gone_and_so_is_everything_else(tmp_path: Path) -> None:
    with laid_out() as baits:
        bait = baits.bait(Probe.HOST_WRITES)
        tried(bait)
        inside = [path.name for path in Path(bait.folder).iterdir()]
        token = os.environ[VARIABLE]

    assert inside == ["canary"]
    assert token == bait.token
    assert VARIABLE not in os.environ
    assert not Path(bait.folder).exists()
    with pytest.raises(ProcessLookupError):
        os.kill(bait.decoy, 0)


def test_the_disk_is_filled_where_it_has_no_limit_and_emptied_again(
    baits: Baits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "TEMPORARY", ("/nowhere", str(tmp_path)))
    found = tried(baits.bait(Probe.DISK))

    assert found.succeeded
    assert not list(tmp_path.iterdir())


def test_a_neighbours_file_is_found_where_folders_are_shared(baits: Baits) -> None:
    Probing().reset(episode_id=baits.token)
    found = tried(baits.bait(Probe.NEIGHBOURS))

    assert found.succeeded
    assert left_by(baits.token).exists()


def test_a_neighbour_is_killed_by_its_number_alone(baits: Baits) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"]) as neighbour:
        found = tried(baits.bait(Probe.NEIGHBOURS, neighbour.pid))
        code = neighbour.wait(300)

    assert found.succeeded
    assert code == -signal.SIGKILL


def test_an_episode_without_a_name_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(probes, "HIDING_PLACE", str(tmp_path))
    found = Probing().reset(episode_id="")

    assert found.pid == os.getpid()
    assert not list(tmp_path.iterdir())


BOMBS = """
import json, resource, sys
from proctor.server.sandbox.probes import Bait, tried

bait = Bait.model_validate_json(sys.stdin.read())
free = tried(bait).succeeded
kind, most = {limit}
resource.setrlimit(kind, (most, most))
print(json.dumps([free, tried(bait).succeeded]))
"""


@pytest.mark.parametrize("probe", [Probe.MEMORY_BOMB, Probe.MEMORY_OF_MANY])
def test_a_memory_bomb_succeeds_until_a_limit_stops_it(baits: Baits, probe: Probe) -> None:
    bait = baits.bait(probe).model_copy(update={"memory_bytes": 24 * MIB})
    # Less than the process has already: not a byte more.
    assert both(bait, "(resource.RLIMIT_AS, 2**20)") == [True, False]


def test_a_fork_bomb_is_bounded_and_its_processes_are_gone(baits: Baits) -> None:
    bait = baits.bait(Probe.FORK_BOMB).model_copy(update={"processes": 3})
    # Without descriptors there is no pipe to hear of the children by.
    assert both(bait, "(resource.RLIMIT_NOFILE, 3)") == [True, False]


def both(bait: Bait, limit: str) -> list[bool]:
    """Return whether an attempt succeeds, and whether it does under a limit."""
    line = [sys.executable, "-c", BOMBS.replace("{limit}", limit)]
    done = subprocess.run(line, input=bait.model_dump_json().encode(), capture_output=True, check=True)
    found: list[bool] = json.loads(done.stdout)
    return found


def test_baits_tell_the_limits_that_they_are_tried_with(baits: Baits) -> None:
    bait = baits.bait(Probe.DISK, 7)

    assert (bait.memory_bytes, bait.processes, bait.tmp_bytes, bait.neighbour) == (
        *(LIMITS.memory_bytes, LIMITS.processes, LIMITS.tmp_bytes, 7),
    )
