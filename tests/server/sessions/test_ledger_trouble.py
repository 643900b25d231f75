"""A ledger that cannot be written: a coded error, an episode that is lost, and nothing acknowledged that is not stored."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from proctor.errors import ComponentError
from proctor.ledger.reader import Ledger
from proctor.ledger.verify import verify
from proctor.ledger.writer import LedgerWriter
from proctor.models.events import EpisodeStepped, Failed
from proctor.server.app import Keys, Listening, Server
from proctor.server.settings import parse_settings
from tests.server.live_server import Served, Session, Talk, serving

GO = {"action": 1}
Trouble = Callable[[Served], Iterator[None]]


def connection_of(served: Served) -> sqlite3.Connection:
    ledger = served.server.recorder
    assert isinstance(ledger, LedgerWriter)
    return ledger._committer._connection


def full(served: Served) -> Iterator[None]:
    """Leave no room for another page."""
    connection = connection_of(served)
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    yield
    connection.execute("PRAGMA max_page_count = 1073741823")


def read_only(served: Served) -> Iterator[None]:
    """Let nothing be written."""
    connection_of(served).execute("PRAGMA query_only = 1")
    yield
    connection_of(served).execute("PRAGMA query_only = 0")


@pytest.mark.parametrize("trouble", [full, read_only])
def test_what_cannot_be_stored_is_not_acknowledged_and_the_session_stops(tmp_path: Path, trouble: Trouble) -> None:
    acknowledged = 0
    with serving(ledger=tmp_path) as served, Talk(served, greet=True) as talk:
        session = Session(talk)
        session.ask("reset", {"seed": 1})
        acknowledged += session.ask("step", GO)["type"] == "observation"
        with contextmanager(trouble)(served):
            # A page may have room for a step or two.
            replies = [session.ask("step", GO) for _ in range(40)]
        again = session.ask("step", GO)
        begun = session.ask("reset", {"seed": 2})
        after = session.ask("step", GO)
        session.ask("close")

    kept = [reply for reply in replies if reply["type"] == "observation"]
    first = replies[len(kept)]["data"]
    assert (first["code"], first["lost"]) == ("RECORDING_FAILED", True)
    assert {reply["data"]["code"] for reply in replies[len(kept) + 1 :]} <= {"EPISODE_LOST", "STATE_ERROR"}
    assert again["data"]["code"] == "EPISODE_LOST"
    assert (begun["type"], after["type"]) == ("observation", "observation")
    assert verify(tmp_path).ok
    with Ledger.open(tmp_path) as ledger:
        one, two = (list(ledger.rows(episode.chain)) for episode in ledger.episodes())
    assert sum(isinstance(row.event, EpisodeStepped) for row in one) == acknowledged + len(kept)
    assert sum(isinstance(row.event, EpisodeStepped) for row in two) == 1
    assert all(row.event.code != "RECORDING_FAILED" for row in two if isinstance(row.event, Failed))


def test_a_ledger_that_somebody_has_locked_stops_the_server_before_anybody_connects(tmp_path: Path) -> None:
    with serving(ledger=tmp_path):
        pass

    with closing(sqlite3.connect(tmp_path / "worker-0.ledger", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        settings = parse_settings({"target": "CartPole-v1", "sandbox": "none", "insecure": True, "ledger": tmp_path})
        with pytest.raises(ComponentError, match="locked"):
            Server(settings, Keys(), Listening([]))
