"""The ledger's rows: what is recorded is the same on both sides, and what differs or is damaged is never counted."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from bench import ledger_files as files
from bench.control_servers import ours
from bench.ledger_events import stepped
from bench.ledger_files import (
    SEED,
    SIGNER,
    connected,
    counted,
    folder,
    lines_bytes,
    recorded,
    rows_in,
    session_in,
    stored_bytes,
    with_ledger,
    writer_in,
    written,
)
from bench.row import Better, Opener
from bench.rows import ledger as rows
from bench.rows.control import OUR_CLIENT
from bench.rows.ledger import (
    ECHO,
    PLAYER,
    PLUME,
    POPPER,
    calls,
    hashed,
    on_record,
    plain_rows,
    replaying,
    verified,
    writer_rows,
)
from proctor.ledger.reader import Ledger, ledger_files
from proctor.ledger.storage.sqlite import Durability
from proctor.ledger.verify import verify
from proctor.models.events import EpisodeStepped, Event, SessionOpened
from proctor.server.sessions.recorders import read_events


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MANY", 3)
    monkeypatch.setattr(rows, "VERIFIED", 5)


def test_a_folder_is_on_the_disk_and_goes_with_the_row() -> None:
    with ExitStack() as stack:
        place = folder(stack)

        assert place.is_dir()
        assert place.parent == files.DISK
    assert not place.exists()


def test_a_server_with_a_ledger_signs_with_a_key_of_the_bench(tmp_path: Path) -> None:
    kind, plain = with_ledger(ECHO, tmp_path, "normal"), ours(ECHO)
    command = list(map(str, kind.command()))

    assert command[command.index("--ledger") + 1] == str(tmp_path)
    assert command[command.index("--durability") + 1] == "normal"
    assert command[-1] == plain.command()[-1]
    assert kind.variables.items() > plain.variables.items()
    assert kind.variables["PROCTOR_LEDGER_KEY"] == SEED.hex()
    assert "PROCTOR_OPERATOR_TOKEN" in kind.variables


def test_a_written_ledger_is_whole_and_its_sessions_go_by_turns() -> None:
    with ExitStack() as stack:
        place = written(stack, sessions=3, steps=4)
        report = verify(place, public=SIGNER.public)
        with Ledger.open(place) as ledger:
            steps = [row.event.session for row in ledger.all_rows() if isinstance(row.event, EpisodeStepped)]

    assert report.ok
    assert report.signed
    assert steps == ["session-0", "session-1", "session-2"] * 4


def test_what_is_not_on_record_is_never_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PATIENCE", 0.01)
    with ExitStack() as stack:
        place = written(stack, sessions=1, steps=1)

        assert counted(place, lambda _seconds: 0.0)(1.0) == 0.0
        with pytest.raises(RuntimeError, match="0 rows are on record, not 50"):
            counted(place, lambda _seconds: 100.0)(0.5)


def test_rows_are_seen_beside_their_writer(tmp_path: Path) -> None:
    with ExitStack() as stack:
        writer = writer_in(stack, tmp_path, "full")
        before = rows_in(tmp_path)
        session_in(writer, "s")

        # The opening, its copy, the reset, and the head of the chain that began with it.
        assert rows_in(tmp_path) - before == 4


def test_lines_say_what_was_stated_and_nothing_twice(tmp_path: Path) -> None:
    with ExitStack() as stack:
        place = written(stack, sessions=2, steps=3)
        size = lines_bytes(place, tmp_path / "lines")

    events = list(read_events(tmp_path / "lines"))
    assert size == (tmp_path / "lines").stat().st_size
    assert all(isinstance(event, Event) for event in events)
    assert sum(isinstance(event, SessionOpened) for event in events) == 2
    assert sum(isinstance(event, EpisodeStepped) for event in events) == 6


def test_all_files_of_a_folder_are_weighed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"123")
    (tmp_path / "b").write_bytes(b"45")

    assert stored_bytes(tmp_path) == 5


def test_a_plain_table_is_as_safe_as_the_ledger(tmp_path: Path) -> None:
    with closing(connected(tmp_path / "plain.sqlite")) as connection:
        found = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]

    assert found == ["wal", 2]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "opener",
    [writer_rows(3, "full"), writer_rows(1, "normal"), plain_rows(1), plain_rows(7), verified, hashed],
)
def test_everything_without_a_server_gives_a_rate(opener: Opener) -> None:
    with ExitStack() as stack:
        assert opener(stack)(0.01) > 0.0


@pytest.mark.usefixtures("small")
def test_a_damaged_ledger_is_never_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        place = written(stack, 3, 5)
        with closing(sqlite3.connect(ledger_files(place)[0])) as connection:
            connection.execute("UPDATE rows SET hash = zeroblob(32) WHERE number = 9")
            connection.commit()
        monkeypatch.setattr(rows, "written", lambda *_: place)

        with pytest.raises(RuntimeError, match="damaged"):
            verified(stack)(0.01)


def test_a_replay_that_differs_is_never_counted() -> None:
    with ExitStack() as stack:
        # What these sessions are said to have seen is made up: no environment answers like this.
        chunk = replaying(written(stack, 1, 2), 2)

        with pytest.raises(RuntimeError, match="differs"):
            chunk()


def test_every_recorded_step_is_a_row(tmp_path: Path) -> None:
    with ExitStack() as stack:
        record = session_in(writer_in(stack, tmp_path, "full"), "s")
        for _ in range(3):
            with pytest.raises(StopIteration):
                # Without an event loop a record is safe at once.
                record().__await__().__next__()
    with Ledger.open(tmp_path) as ledger:
        found = [row.event for row in ledger.rows("s.1") if isinstance(row.event, EpisodeStepped)]

    assert len(found) == 3
    assert bytes(found[0].scene) == bytes(stepped("s").scene)


def test_every_row_says_how_it_was_isolated_and_recorded() -> None:
    assert {row.durability for row in rows.ROWS} == {"full", "normal", "off", "none"}
    assert {row.tier for row in rows.ROWS} == {"none", "in-process"}
    assert all(row.durability in row.name for row in rows.ROWS if "steps" in row.name or "governed" in row.name)
    assert all((row.better is Better.LOWER) == ("bytes" in row.name) for row in rows.ROWS)
    assert len({row.name for row in rows.ROWS}) == len(rows.ROWS)
    assert all(row.name.startswith("ledger.") for row in rows.ROWS)


def test_the_goals_are_those_that_were_set() -> None:
    goals = {row.name: str(row.goal) for row in rows.ROWS if row.goal is not None}

    assert goals == {
        "ledger.steps64-full/none": "ratio >= 0.5",
        "ledger.replay-plume/served": "ratio >= 20",
        "ledger.replay-popper/served": "ratio >= 20",
    }


@pytest.mark.system
@pytest.mark.parametrize("durability", ["full", "normal", "off"])
@pytest.mark.parametrize("way", [("1", "async"), ("3", "shared")])
def test_steps_are_measured_at_every_durability(durability: Durability, way: tuple[str, str]) -> None:
    with ExitStack() as stack:
        assert on_record(ECHO, durability, OUR_CLIENT, *way)(stack)(0.1) > 0.0


@pytest.mark.system
@pytest.mark.parametrize("target", [PLUME, POPPER])
def test_a_served_session_is_recorded_replayed_and_weighed(target: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        place = recorded(stack, target, steps=60)

        assert replaying(place, 60)() == 60
        with pytest.raises(RuntimeError, match="what was played"):
            replaying(place, 61)()
        assert 0 < lines_bytes(place, tmp_path / "lines") < stored_bytes(place)
        assert verify(place, public=SIGNER.public).ok


@pytest.mark.system
def test_a_player_is_measured_in_a_process_of_its_own() -> None:
    with ExitStack() as stack:
        assert on_record(POPPER, "full", PLAYER)(stack)(0.1) > 0.0


@pytest.mark.system
@pytest.mark.parametrize("way", ["free", "governed"])
@pytest.mark.parametrize("durability", [None, "full"])
def test_calls_are_measured_free_and_governed(durability: Durability | None, way: str) -> None:
    with ExitStack() as stack:
        assert calls(durability, way)(stack)(0.1) > 0.0
