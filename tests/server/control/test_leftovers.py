"""A run with fewer workers closes what the others left: it is said, once, and nobody waits for it."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from proctor.ledger.reader import Ledger
from proctor.ledger.verify import verify
from proctor.ledger.writer import LedgerWriter
from proctor.models.events import SessionClosed
from proctor.server.control.recovery import close_leftovers
from tests.ledger.session_events import opened, reset, step


def writer_of(folder: Path, boot: str, worker: int) -> LedgerWriter:
    return LedgerWriter(folder, worker=worker, boot=boot, server="1", signer=None)


def left_open(folder: Path, worker: int) -> None:
    """Have a worker end without a word, with an episode under way."""
    writer = writer_of(folder, f"before{worker}", worker)
    name = f"s{worker}"
    for event in (opened(name), reset(name), step(name)):
        writer.record(event)
    writer.close()


def closings(folder: Path) -> list[SessionClosed]:
    with Ledger.open(folder) as ledger:
        return [row.event for row in ledger.all_rows() if isinstance(row.event, SessionClosed)]


def test_sessions_of_workers_that_are_no_more_are_closed_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for worker in range(3):
        left_open(tmp_path, worker)

    for boot in ("now", "later"):
        asyncio.run(close_leftovers(tmp_path, 2, partial(writer_of, tmp_path, boot), lambda: 9.0))

    (closing,) = closings(tmp_path)
    assert (closing.reason, closing.episodes, closing.steps, closing.at) == ("lost", 1, 1, 9.0)
    assert caplog.text.count("1 sessions of worker 2 are lost") == 1
    assert verify(tmp_path).ok


def test_a_file_that_another_server_has_open_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    other = writer_of(tmp_path, "other", 1)
    try:
        asyncio.run(close_leftovers(tmp_path, 1, partial(writer_of, tmp_path, "now"), lambda: 9.0))
    finally:
        other.close()

    assert "worker 1 could not be looked at" in caplog.text
    assert closings(tmp_path) == []
