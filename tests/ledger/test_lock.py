"""Whether somebody writes a file can be seen without asking for its lock."""

from pathlib import Path

import pytest

from proctor.ledger.lock import WriterLock, has_writer


def test_a_writer_is_seen_from_its_coming_to_its_going(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.ledger.lock._is_contained", lambda: False)
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
    monkeypatch.setattr("proctor.ledger.lock._ALL_PROCESSES", "pid:[0]")
    contained = has_writer(path)
    monkeypatch.setattr("proctor.ledger.lock._LOCKS", tmp_path / "nowhere")

    assert (contained, has_writer(path)) == (None, None)
