"""Whether somebody writes a file can be seen without asking for its lock."""

import fcntl
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.errors import ComponentError
from proctor.ledger.storage.lock import WriterLock, has_writer


def test_a_writer_is_seen_from_its_coming_to_its_going(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.ledger"
    before = has_writer(path)
    lock = WriterLock(path)
    during = has_writer(path), has_writer(path)
    with pytest.raises(ComponentError, match="has a writer already"):
        WriterLock(path)
    lock.release()

    assert (before, during, has_writer(path)) == (False, (True, True), False)


def test_looking_turns_no_writer_away(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.ledger"
    WriterLock(path).release()

    assert not has_writer(path)
    WriterLock(path).release()


def test_the_lock_of_another_file_is_not_taken_for_it(tmp_path: Path) -> None:
    WriterLock(tmp_path / "worker-0.ledger").release()
    lock = WriterLock(tmp_path / "worker-1.ledger")

    assert not has_writer(tmp_path / "worker-0.ledger")
    lock.release()


def test_a_lock_that_only_reads_is_no_writers(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.ledger"
    WriterLock(path).release()
    reading = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)

    with path.with_name("worker-0.ledger.lock").open("rb") as file:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, reading)

        assert has_writer(path) is False


HOLDING = """
import sys
from pathlib import Path
from proctor.ledger.storage.lock import WriterLock
lock = WriterLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("killed", [False, True])
def test_a_writer_of_another_process_is_seen_until_it_ends_however_it_ends(tmp_path: Path, killed: bool) -> None:
    path = tmp_path / "worker-0.ledger"
    command = [sys.executable, "-c", HOLDING, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        during = has_writer(path)
        if killed:
            other.kill()

    assert (during, has_writer(path)) == (True, False)


def test_a_lock_that_cannot_be_looked_at_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "worker-0.ledger"
    WriterLock(path).release()

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("proctor.ledger.storage.lock.os.open", refuse)

    assert has_writer(path) is None


def test_a_lock_behind_a_link_is_nobodys(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.ledger"
    lock = WriterLock(tmp_path / "other.ledger")
    beside = tmp_path / "worker-0.ledger.lock"
    beside.symlink_to(tmp_path / "other.ledger.lock")
    behind = has_writer(path)
    beside.unlink()
    beside.hardlink_to(tmp_path / "other.ledger.lock")

    assert (behind, has_writer(path), has_writer(tmp_path / "other.ledger")) == (False, None, None)
    lock.release()


def test_a_writer_makes_no_lock_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "worker-0.ledger.lock").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(ComponentError, match=r"worker-0\.ledger\.lock"):
        WriterLock(tmp_path / "worker-0.ledger")
    assert not (tmp_path / "elsewhere").exists()
