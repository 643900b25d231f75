"""What happens when the disk, the file or a neighbour does not let the ledger write."""

import asyncio
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import Raw

from proctor.errors import ComponentError
from proctor.ledger.reader import Ledger
from proctor.ledger.row_builder import CommitBatch
from proctor.ledger.verify import verify
from proctor.ledger.writer import LedgerWriter
from proctor.models.events import Event
from tests.ledger.damage import LONG
from tests.ledger.session_events import (
    SIGNER,
    begun,
    closed,
    left,
    opened,
    reset,
    rows,
    run,
    safe,
    small_disk,
    step,
    writer,
)

Breaks = Callable[[sqlite3.Connection], object]


def full(connection: sqlite3.Connection) -> None:
    """The file cannot grow any more."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")


def read_only(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA query_only = 1")


def mended(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA query_only = 0")
    connection.execute("PRAGMA max_page_count = 1073741823")


BREAKS = [pytest.param(full, id="full"), pytest.param(read_only, id="read-only")]


def connection_of(into: LedgerWriter) -> sqlite3.Connection:
    return into._committer._connection


async def settled(into: LedgerWriter) -> None:
    """Wait until nothing is gathered and no commit is on its way."""
    while into._row_builder.batch.rows or into._committer._in_flight:
        await asyncio.sleep(0.005)


def big(number: int) -> Event:
    """An event that no page has room for."""
    return step(number=number, tool="x" * 9000)


def numbers(path: Path, chain: str = "s.1") -> list[int]:
    return [row.event.step for row in rows(path, chain) if hasattr(row.event, "step")]


@pytest.mark.parametrize("breaks", BREAKS)
def test_what_could_not_be_stored_is_refused_and_leaves_no_trace(tmp_path: Path, breaks: Breaks) -> None:
    into = begun(tmp_path, [opened(), reset(), step(number=1)])
    head = into.head("s")

    breaks(connection_of(into))
    for _ in range(3):
        with pytest.raises(ComponentError, match="did not take the record"):
            into.record(big(2))
    assert into.head("s") == head
    mended(connection_of(into))
    into.record(big(2))
    into.close()

    assert numbers(into.path) == [1, 2]
    assert verify(into.path, public=SIGNER.public, heads=[head or ""]).ok


@pytest.mark.parametrize("breaks", BREAKS)
def test_every_event_of_a_batch_fails_and_what_was_gathered_after_it(tmp_path: Path, breaks: Breaks) -> None:
    async def recorded() -> list[list[BaseException | None]]:
        into = writer(tmp_path)
        names = ("a", "b", "c")
        for name in names:
            await safe(into.record(opened(name)))
            await safe(into.record(reset(name)))
        breaks(connection_of(into))
        first = [into.record(step(name, tool="x" * 9000)) for name in names]
        await asyncio.sleep(0)  # the first batch is on its way
        second = [into.record(step(name, number=2)) for name in names]
        failed = [await asyncio.gather(*map(safe, each), return_exceptions=True) for each in (first, second)]
        mended(connection_of(into))
        third = await asyncio.gather(*(safe(into.record(step(name, number=3))) for name in names))
        into.close()
        return [[*each] for each in failed] + [[*third]]

    first, second, third = run(recorded())

    assert [type(each) for each in (*first, *second)] == [ComponentError] * 6
    assert third == [None] * 3
    assert [numbers(tmp_path, f"{name}.1") for name in ("a", "b", "c")] == [[3]] * 3
    assert verify(tmp_path, public=SIGNER.public).ok


def test_a_chain_whose_beginning_was_not_stored_does_not_exist(tmp_path: Path) -> None:
    into = writer(tmp_path)
    into.record(opened())
    read_only(connection_of(into))
    with pytest.raises(ComponentError):
        into.record(reset())
    mended(connection_of(into))
    into.record(closed())
    into.record(reset())
    into.close()

    with Ledger.open(into.path) as ledger:
        assert [episode.chain for episode in ledger.episodes()] == ["s.1"]
    assert verify(into.path, public=SIGNER.public).ok


def test_a_long_value_whose_commit_failed_is_stored_by_the_next(tmp_path: Path) -> None:
    into = begun(tmp_path, [opened(), reset()])
    read_only(connection_of(into))
    with pytest.raises(ComponentError):
        into.record(step(observation=Raw(LONG)))
    mended(connection_of(into))
    into.record(step(observation=Raw(LONG)))
    into.close()

    assert all(row.values for row in rows(into.path, "s.1"))
    assert verify(into.path, public=SIGNER.public).ok


def test_a_file_that_somebody_locked_is_refused_and_used_when_it_is_free(tmp_path: Path) -> None:
    path = writer(tmp_path)
    path.close()
    other = sqlite3.connect(path.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(ComponentError, match="locked"):
        writer(tmp_path)
    other.execute("ROLLBACK")
    into = writer(tmp_path)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        other.execute("PRAGMA busy_timeout = 1").connection.execute("BEGIN IMMEDIATE")
    into.record(opened())
    into.close()
    other.close()

    assert verify(tmp_path, public=SIGNER.public).ok


def test_a_lock_that_comes_between_two_commits_fails_the_event_and_not_the_loop(tmp_path: Path) -> None:
    async def recorded() -> int:
        into = writer(tmp_path)
        connection_of(into).execute("ROLLBACK")  # as after a commit that failed
        other = sqlite3.connect(into.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        waiting = into.record(opened())
        turns = 0
        while not waiting.done():  # type: ignore[union-attr]
            await asyncio.sleep(0.001)
            turns += 1
        with pytest.raises(ComponentError, match="locked"):
            await safe(waiting)
        other.execute("ROLLBACK")
        other.close()
        await safe(into.record(opened()))
        into.close()
        return turns

    assert run(recorded()) > 10
    assert verify(tmp_path, public=SIGNER.public).ok


def test_what_nobody_waited_for_and_was_lost_is_said_at_the_next_event(tmp_path: Path) -> None:
    async def recorded() -> LedgerWriter:
        into = writer(tmp_path, durability="off")
        for name in ("a", "b"):
            into.record(opened(name))
            into.record(reset(name))
        into._committer.commit_now()
        read_only(connection_of(into))
        into.record(step("a"))
        await settled(into)
        mended(connection_of(into))
        with pytest.raises(ComponentError, match="could not be kept"):
            into.record(step("a", number=2))
        into.record(step("b", number=1))
        into.record(step("a", number=3))
        into.close()
        return into

    into = run(recorded())

    assert numbers(into.path, "a.1") == [3]
    assert numbers(into.path, "b.1") == [1]
    assert verify(into.path, public=SIGNER.public).ok


def test_a_session_whose_opening_was_lost_is_refused_from_then_on(tmp_path: Path) -> None:
    async def recorded() -> LedgerWriter:
        into = writer(tmp_path, durability="off")
        into.record(opened("over"))
        into._committer.commit_now()
        read_only(connection_of(into))
        into.record(opened())
        into.record(left("over"))
        await settled(into)
        mended(connection_of(into))
        assert into._committer.lost == {"s": True}
        for event in (reset(), reset(), left()):
            with pytest.raises(ComponentError, match="not on record"):
                into.record(event)
        assert into._committer.lost == {}
        into.close()
        return into

    into = run(recorded())

    with Ledger.open(into.path) as ledger:
        assert ledger.episodes() == []
    assert verify(into.path, public=SIGNER.public).ok


def test_a_session_that_is_opened_again_after_its_opening_was_lost_is_kept(tmp_path: Path) -> None:
    async def recorded() -> None:
        into = writer(tmp_path, durability="off")
        read_only(connection_of(into))
        into.record(opened())
        await settled(into)
        mended(connection_of(into))
        for event in (opened(), reset(), step()):
            into.record(event)
        into.close()

    run(recorded())

    assert numbers(tmp_path) == [1]


@pytest.mark.parametrize("problem", [MemoryError(), OverflowError("too long"), RuntimeError("odd")])
@pytest.mark.parametrize("part", ["insert", "insert_blobs"])
def test_whatever_goes_wrong_in_a_commit_fails_its_events_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: Exception, part: str
) -> None:
    def fails(*_: object) -> None:
        raise problem

    async def recorded() -> None:
        into = writer(tmp_path)
        for name in ("s", "t"):
            await safe(into.record(opened(name)))
        with monkeypatch.context() as broken:
            broken.setattr(CommitBatch, part, fails)
            with pytest.raises(ComponentError, match=str(problem) or "MemoryError"):
                await asyncio.wait_for(safe(into.record(reset(observation=LONG))), 300)
        for event in (reset("t"), reset(observation=LONG), step()):
            await asyncio.wait_for(safe(into.record(event)), 300)
        into.close()

    run(recorded())

    assert numbers(tmp_path) == [1]
    assert verify(tmp_path, public=SIGNER.public).ok


def test_a_close_that_cannot_be_stated_says_so_and_lets_go(tmp_path: Path) -> None:
    into = writer(tmp_path)
    into.record(opened())
    read_only(connection_of(into))

    with pytest.raises(ComponentError):
        into.close()
    writer(tmp_path, boot="c").close()

    assert verify(tmp_path, public=SIGNER.public).ok


@pytest.mark.parametrize("folder", ["file", "/proc/ledger"])
def test_a_folder_that_cannot_be_had_is_a_component_error(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(ComponentError, match="cannot be written"):
        writer(tmp_path / folder)


def test_a_loop_that_ended_leaves_nothing_behind(tmp_path: Path) -> None:
    into = writer(tmp_path)

    async def left_behind() -> None:
        into.record(opened())
        await asyncio.sleep(0)
        into.record(reset())

    run(left_behind())
    into.record(step())
    into.close()

    assert numbers(into.path) == [1]
    assert verify(into.path, public=SIGNER.public).ok


FILLING = """
import resource, signal, sys
from pathlib import Path
from proctor.errors import ComponentError
from tests.ledger.session_events import opened, reset, step, writer
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
into = writer(Path(sys.argv[1]), durability=sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
kept = failed = 0
into.record(opened()); into.record(reset())
for number in range(1, 400):
    try:
        into.record(step(number=number, tool="x" * 2000)); kept += 1
    except ComponentError:
        failed += 1
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
into.record(step(number=9999)); kept += 1
into.close()
print(kept, failed)
"""


@pytest.mark.parametrize("durability", ["full", "normal"])
def test_a_disk_that_fills_up_keeps_what_was_acknowledged(tmp_path: Path, durability: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", FILLING, str(tmp_path), durability],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    kept, failed = map(int, told.stdout.split())

    found = numbers(tmp_path)
    assert failed > 100
    assert len(found) == kept
    assert found[-1] == 9999
    assert verify(tmp_path, public=SIGNER.public).ok


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path, "300k") as disk:
        yield disk


@pytest.mark.system
def test_a_disk_that_is_really_full_keeps_what_was_acknowledged(tiny_disk: Path, tmp_path: Path) -> None:
    into = begun(tiny_disk, [opened(), reset()])
    kept, failed = [], 0
    for number in range(1, 400):
        try:
            into.record(step(number=number, tool="x" * 2000))
            kept.append(number)
        except ComponentError:
            failed += 1
    with pytest.raises(ComponentError):
        into.close()

    shutil.copytree(tiny_disk, tmp_path / "copy")
    assert failed > 100
    assert numbers(tmp_path / "copy") == kept
    assert verify(tmp_path / "copy", public=SIGNER.public, allow_unsealed=True).ok  # the end could not be stated


@pytest.mark.system
def test_a_disk_that_became_read_only_is_a_component_error(tiny_disk: Path) -> None:
    writer(tiny_disk).close()
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)

    with pytest.raises(ComponentError, match="cannot be written"):
        writer(tiny_disk)
    assert verify(tiny_disk).ok
