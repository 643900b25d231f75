"""Who reads for the pages: it answers as the shelf does, is replaced when it dies, and never outlives the server."""

import asyncio
import gzip
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.errors import ValidationError
from proctor.ledger.reader import Ledger
from proctor.server.runtime.results import RequestRefused
from proctor.server.viewer_http import readers
from proctor.server.viewer_http.endpoints import READ_ENDPOINTS, ChainQuery, NoQuery, PairQuery, RowQuery, SliceQuery
from proctor.server.viewer_http.readers import (
    LINES,
    NEWLY,
    NEWS,
    WHOLE,
    ReaderPool,
    ReaderProcess,
    ReadingFailed,
    ReadRequest,
    ThreadQueue,
)
from proctor.viewer.catalog import EpisodeCatalog
from proctor.viewer.comparison import compare_episodes
from proctor.viewer.explanations import explain_line
from proctor.viewer.single_file import build_page
from tests.cli.recordings import real, written
from tests.server.commands import serve
from tests.server.live_server import PATIENCE, until
from tests.server.viewer_http.served_viewer import SMALL, TARGET, Browser, viewed

pytestmark = pytest.mark.anyio

ROWS = {row.path.rpartition("/")[2]: row for row in READ_ENDPOINTS}
PAGE, SLICE = "/viewer/api/page", "/viewer/api/slice"


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("ledger"), real("walk", TARGET, steps=5, settings=SMALL))


@pytest.fixture
def reader(ledger: Path) -> Iterator[ReaderProcess]:
    process = ReaderProcess(ledger, live=False)
    yield process
    process.close()


@pytest.fixture
def room(ledger: Path) -> Iterator[ReaderPool]:
    there = ReaderPool(ledger)
    yield there
    there.close()


def asked(reader: ReaderProcess, name: str, query: Any = None, **more: bool) -> bytes:
    body = b"{}" if query is None else msgspec.json.encode(query)
    return reader.ask(ReadRequest(f"/viewer/api/{name}", body, **more)).body


def is_alive(pid: int) -> bool:
    """Return whether there is such a process, and it has not only not been buried yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def readers_of(parent: int) -> list[int]:
    """Return the processes that read for this one."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            stat, line = (each / "stat").read_text(), (each / "cmdline").read_bytes()
        except OSError:
            continue
        if stat.rpartition(")")[2].split()[1] == str(parent) and b"viewer_http.readers" in line:
            found.append(int(each.name))
    return found


# ------------------------------------------------------------------------------------------------------- what it answers
def test_a_reading_over_there_is_what_the_shelf_says_here(ledger: Path, reader: ReaderProcess) -> None:
    shelf = EpisodeCatalog(ledger)
    encode = msgspec.json.encode
    one, other = (line.chain for line in shelf.lines())
    number = shelf.slice(one).steps.number[0]
    try:
        with Ledger.open(ledger) as opened:
            expected = {
                "head": encode(shelf.head(one)),
                "slice": encode(shelf.slice(one, after=number, most=2)),
                "raw": shelf.raw(one, number),
                "difference": encode(compare_episodes(opened, one, other)),
                "page": build_page(opened, [one]).encode(),
            }
    finally:
        shelf.close()

    told = {
        "head": asked(reader, "head", ChainQuery(one)),
        "slice": asked(reader, "slice", SliceQuery(one, number, 2)),
        "raw": asked(reader, "raw", RowQuery(one, number)),
        "difference": asked(reader, "difference", PairQuery(one, other)),
        "page": asked(reader, "page", ChainQuery(one)),
    }

    assert told == expected


def test_what_is_large_is_packed_over_there_where_it_may_be(ledger: Path, reader: ReaderProcess) -> None:
    query = msgspec.json.encode(ChainQuery("walk.1"))

    plain = reader.ask(ReadRequest(PAGE, query))
    packed = reader.ask(ReadRequest(PAGE, query, packs=True))

    assert (plain.is_packed, packed.is_packed) == (False, True)
    assert gzip.decompress(packed.body) == plain.body


def test_a_refusal_keeps_its_code_and_its_words(ledger: Path, reader: ReaderProcess) -> None:
    with Ledger.open(ledger) as opened, pytest.raises(ValidationError) as here:
        explain_line(opened, "nothing", 1)
    with pytest.raises(ValidationError) as there:
        asked(reader, "explanation", RowQuery("nothing", 1))

    told, meant = there.value, here.value
    assert (told.message, told.expected, told.clause) == (meant.message, meant.expected, meant.clause)


def test_what_goes_wrong_over_there_is_a_text_for_the_log(reader: ReaderProcess) -> None:
    with pytest.raises(ReadingFailed, match="KeyError"):
        reader.ask(ReadRequest("nonsense"))

    assert asked(reader, "machine")


def test_a_ledger_that_is_none_is_refused_before_anybody_asks(tmp_path: Path) -> None:
    room = ReaderPool(tmp_path)
    try:
        with pytest.raises(ValidationError, match="there is no ledger"):
            room.open()
    finally:
        room.close()


def test_changes_are_told_once_also_if_all_lines_were_asked_for_in_between(tmp_path: Path) -> None:
    folder = written(tmp_path / "ledger", real("walk", TARGET, steps=1, settings=SMALL))
    reader = ReaderProcess(folder, live=True)

    def news() -> set[str]:
        return set(msgspec.msgpack.decode(reader.ask(ReadRequest(NEWS)).body))

    try:
        everything = reader.ask(ReadRequest(WHOLE, NEWLY)).body
        nothing = news()
        (folder / "worker-1.ledger").write_bytes((folder / "worker-0.ledger").read_bytes())
        more = written(tmp_path / "more", real("run", TARGET, steps=1, settings=SMALL))
        (more / "worker-0.ledger").rename(folder / "worker-2.ledger")
        listed = json.loads(reader.ask(ReadRequest(LINES)).body)
        changed, after = news(), news()
    finally:
        reader.close()

    assert everything.startswith(b"event: lines\ndata: [{")
    assert nothing == after == set()
    assert {line["chain"] for line in listed["lines"]} > changed == {"run.1", "run.2"}


# ------------------------------------------------------------------------------------------------------ if it should die
def test_one_that_was_killed_is_replaced(reader: ReaderProcess, caplog: pytest.LogCaptureFixture) -> None:
    before = asked(reader, "machine")
    first = reader.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    after = asked(reader, "machine")

    assert before == after
    assert reader.pid not in (None, first)
    assert not is_alive(first)
    assert caplog.text.count("has ended") == 1


def test_one_that_is_killed_while_it_reads_is_asked_again(reader: ReaderProcess) -> None:
    query = msgspec.json.encode(SliceQuery("walk.1"))
    expected = reader.ask(ReadRequest(SLICE, query)).body
    first = reader.pid
    assert first is not None
    os.kill(first, signal.SIGSTOP)
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.append(reader.ask(ReadRequest(SLICE, query)).body))
    thread.start()
    until(reader._turn.locked)
    os.kill(first, signal.SIGKILL)
    thread.join(PATIENCE)

    assert found == [expected]


def test_who_dies_of_a_question_twice_has_no_answer(reader: ReaderProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(readers, "BEGIN", "raise SystemExit(3)")
        with pytest.raises(ReadingFailed, match="ended twice"):
            asked(reader, "machine")

    assert asked(reader, "machine")


# ------------------------------------------------------------------------------------------------------------ the two
async def test_what_takes_long_holds_up_nothing_that_is_quick(room: ReaderPool) -> None:
    await room.read(ROWS["page"], ChainQuery("walk.1"), packs=False)
    assert room.long.pid is not None
    os.kill(room.long.pid, signal.SIGSTOP)
    long = asyncio.ensure_future(room.read(ROWS["page"], ChainQuery("walk.1"), packs=False))
    quick = await asyncio.wait_for(room.read(ROWS["head"], ChainQuery("walk.1"), packs=False), PATIENCE)
    os.kill(room.long.pid, signal.SIGCONT)

    assert json.loads(quick.body)["line"]["chain"] == "walk.1"
    assert (await asyncio.wait_for(long, PATIENCE)).body.startswith(b"<!doctype html>")


async def test_who_waits_when_the_server_ends_is_told_so_at_once(room: ReaderPool) -> None:
    await room.read(ROWS["machine"], NoQuery(), packs=False)
    assert room.quick.pid is not None
    os.kill(room.quick.pid, signal.SIGSTOP)
    waiting = [asyncio.ensure_future(room.read(ROWS["machine"], NoQuery(), packs=False)) for _ in range(3)]
    await asyncio.sleep(0)
    await asyncio.to_thread(room.close)

    ends = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), PATIENCE)
    assert [each.problem.code for each in ends if isinstance(each, RequestRefused)] == ["SHUTTING_DOWN"] * 3


def test_it_stands_back_and_gets_nothing_of_the_servers(reader: ReaderProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_TOKEN", "a-secret-of-the-server")
    asked(reader, "machine")
    assert reader.pid is not None
    about = Path(f"/proc/{reader.pid}")
    ignored = int(next(each for each in (about / "status").read_text().splitlines() if "SigIgn" in each).split()[1], 16)

    assert os.getpriority(os.PRIO_PROCESS, reader.pid) >= 10
    assert b"a-secret" not in (about / "environ").read_bytes() + (about / "cmdline").read_bytes()
    assert os.getsid(reader.pid) != os.getsid(0)
    assert ignored & 1 << (signal.SIGINT - 1)
    assert not any("socket" in str(each.readlink()) for each in (about / "fd").iterdir() if int(each.name) > 2)


def test_a_file_of_a_users_that_is_called_like_a_module_of_pythons_is_not_read(
    ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit('not this one')", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    reader = ReaderProcess(ledger, live=False)

    try:
        said = asked(reader, "machine")
    finally:
        reader.close()

    assert said


# ----------------------------------------------------------------------------------------------------------- how it ends
def test_nobody_reads_before_somebody_comes_and_nobody_after_the_servers_end(tmp_path: Path) -> None:
    with viewed(tmp_path / "ledger") as server:
        room = server.served.server.viewing.pool  # type: ignore[union-attr]
        before = (room.quick.pid, room.long.pid)
        with server.entered() as browser:
            lines = browser.get("/viewer/api/lines").json()["lines"]
            browser.get("/viewer/api/page", chain="nothing")
            pids = [room.quick.pid, room.long.pid]

    assert before == (None, None)
    assert lines == []
    assert all(pids)
    assert not any(is_alive(pid) for pid in pids if pid is not None)


def test_nobody_reads_after_the_server_was_killed(tmp_path: Path) -> None:
    options = ("--port", "0", "--json", "--ledger", str(tmp_path / "kept"))
    with serve(tmp_path / "home", TARGET, *options) as command:
        url, _, code = command.document["viewer"].partition("/viewer/#code=")
        with Browser(url, code) as browser:
            browser.get("/viewer/api/lines")
            browser.get("/viewer/api/page", chain="nothing")
            pids = readers_of(command.process.pid)

            command.process.kill()
            command.process.wait(PATIENCE)

    assert len(pids) == 2
    until(lambda: not any(is_alive(pid) for pid in pids))


# ------------------------------------------------------------------------------------------------------------ the turns
class Work:
    """Work that lasts until it is let go, and counts how much of it runs."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.running = 0
        self.most = 0
        self._lock = threading.Lock()

    def __call__(self) -> int:
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        assert self.go.wait(300)
        with self._lock:
            self.running -= 1
        return 7


async def soon(holds: Any) -> None:
    for _ in range(2000):
        if holds():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it never came true")


async def test_no_more_than_so_much_runs_and_all_of_it_is_done() -> None:
    turns, work = ThreadQueue(2, 10), Work()
    tasks = [asyncio.ensure_future(turns.run(work)) for _ in range(8)]
    await soon(lambda: work.running == 2 and turns.waiting == 6)
    work.go.set()

    assert await asyncio.gather(*tasks) == [7] * 8
    assert work.most == 2
    assert turns.waiting == 0


async def test_a_turn_for_which_there_is_no_thread_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = ThreadQueue(1, 2)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", without_threads)
        with pytest.raises(RuntimeError):
            await turns.run(lambda: 7)

    assert await asyncio.wait_for(turns.run(lambda: 7), 300) == 7


def without_threads(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


async def test_who_is_one_too_many_is_told_so_at_once() -> None:
    turns, work = ThreadQueue(1, 2), Work()
    tasks = [asyncio.ensure_future(turns.run(work)) for _ in range(3)]
    await soon(lambda: turns.waiting == 2)

    with pytest.raises(RequestRefused) as refusal:
        await turns.run(work)
    assert refusal.value.problem.code == "BUSY"
    work.go.set()
    await asyncio.gather(*tasks)


async def test_what_must_be_done_waits_however_many_wait() -> None:
    turns, work = ThreadQueue(1, 0), Work()
    tasks = [asyncio.ensure_future(turns.run(work, must=True)) for _ in range(3)]
    await soon(lambda: work.running == 1 and turns.waiting == 2)
    work.go.set()

    assert await asyncio.gather(*tasks) == [7] * 3


async def test_who_leaves_frees_no_thread_before_its_work_is_done() -> None:
    turns, work = ThreadQueue(1, 2), Work()
    first = asyncio.ensure_future(turns.run(work))
    await soon(lambda: work.running == 1)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    second = asyncio.ensure_future(turns.run(work))
    await soon(lambda: turns.waiting == 1)
    work.go.set()

    assert await second == 7
    assert work.most == 1


async def test_what_the_work_raises_comes_to_who_asked_and_frees_the_turn() -> None:
    def fail() -> int:
        raise ValueError("no")

    turns = ThreadQueue(1, 2)
    for _ in range(3):
        with pytest.raises(ValueError, match="no"):
            await turns.run(fail)
