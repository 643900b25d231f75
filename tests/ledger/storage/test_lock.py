"""Whether somebody writes a file can be seen without asking for its lock."""

import os
from pathlib import Path

import pytest

from proctor.errors import ComponentError
from proctor.ledger.storage.lock import WriterLock, has_writer


def test_a_writer_is_seen_from_its_coming_to_its_going(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.ledger.storage.lock._is_contained", lambda: False)
    path = tmp_path / "worker-0.ledger"
    before = has_writer(path)
    lock = WriterLock(path)
    during = has_writer(path)
    lock.release()

    assert (before, during, has_writer(path)) == (False, True, False)


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


def test_where_not_all_processes_are_seen_nobody_is_not_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "worker-0.ledger"
    WriterLock(path).release()
    monkeypatch.setattr("proctor.ledger.storage.lock._ALL_PROCESSES", "pid:[0]")
    contained = has_writer(path)
    monkeypatch.setattr("proctor.ledger.storage.lock._LOCKS", tmp_path / "nowhere")

    assert (contained, has_writer(path)) == (None, None)


def test_the_same_number_on_another_device_is_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, listed = tmp_path / "worker-0.ledger", tmp_path / "locks"
    lock = WriterLock(path)
    (line,) = [each for each in Path("/proc/locks").read_text().splitlines() if is_of(path, each)]
    place = line.split()[5]
    monkeypatch.setattr("proctor.ledger.storage.lock._LOCKS", listed)
    found = []
    for device in (place.rpartition(":")[0], "ffe:ffe"):
        listed.write_text(line.replace(place, f"{device}:{place.rpartition(':')[2]}") + "\n")
        found.append(has_writer(path) is True)
    lock.release()

    assert found == [True, False]


def is_of(path: Path, line: str) -> bool:
    """Return whether a line of the list of locks has the number of a ledger's lock, and this process."""
    words = line.split()
    inode = path.with_name(path.name + ".lock").stat().st_ino
    return words[4] == str(os.getpid()) and words[5].endswith(f":{inode}")


@pytest.mark.parametrize("own", [True, False])
def test_the_device_of_the_mount_counts_where_the_file_tells_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    path, listed = tmp_path / "worker-0.ledger", tmp_path / "locks"
    WriterLock(path).release()
    inode = path.with_name(path.name + ".lock").stat().st_ino
    listed.write_text(f"1: FLOCK  ADVISORY  WRITE 7 00:2a:{inode} 0 EOF\n")
    monkeypatch.setattr("proctor.ledger.storage.lock._LOCKS", listed)
    monkeypatch.setattr("proctor.ledger.storage.lock._mount_device", lambda path: os.makedev(0, 0x2A) if own else None)

    assert (has_writer(path) is True) is own


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
