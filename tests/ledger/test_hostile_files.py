"""What a stranger's file can do to who verifies, lists and shows it."""

import os
import subprocess
import sys
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec import Raw, structs

from proctor.errors import ComponentError, ValidationError
from proctor.ledger import rows
from proctor.ledger.reader import Ledger
from proctor.ledger.storage import ledger_file, sqlite
from proctor.ledger.storage.ledger_file import LedgerFile
from proctor.ledger.storage.sqlite import LONGEST_CELL, check_ascending, connect_for_reading
from proctor.ledger.verify import verify
from proctor.models.events import SessionOpened, encode_event
from tests.ledger.hostile import (
    MIB,
    bomb,
    bombed_bundle,
    endless_schema,
    endless_view,
    long_story,
    many_ways,
    written_by_hand,
)
from tests.ledger.session_events import altered, batch_step, begun, opened, reset, writer

MEASURED = """
import sys
from proctor.cli.main import main
code = main(sys.argv[1:])
(most,) = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(code, int(most) // 1024, file=sys.stderr)
"""
"""Runs a command, and prints its code and how many mebibytes it took. (`ru_maxrss` counts the parent's memory, too.)"""
LEAST = 2048
"""Mebibytes that a bomb says, and a reader would take at the least."""


class Measured(NamedTuple):
    """How a command ended, how many mebibytes it took, and all that it wrote."""

    code: int
    mebibytes: int
    text: str


def measured(*arguments: str) -> Measured:
    """Run `proctor ledger` with these arguments in a process of its own."""
    command = [sys.executable, "-c", MEASURED, "ledger", *arguments]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    code, mebibytes = map(int, told.stderr.splitlines()[-1].split())
    return Measured(code, mebibytes, told.stdout + told.stderr)


@pytest.mark.parametrize("command", [("verify",), ("show",), ("export",), ("list",)])
def test_a_value_that_says_gigabytes_takes_no_gigabytes(tmp_path: Path, command: tuple[str, ...]) -> None:
    path = bombed_bundle(tmp_path, LEAST)
    assert path.stat().st_size < 4 * MIB
    more = ("s.1",) if command[0] == "show" else ()

    told = measured(*command, str(path), *more)

    code, mebibytes = told.code, told.mebibytes
    assert code == {"verify": 1, "list": 0}.get(command[0], 2)
    assert mebibytes < LEAST // 2
    if code:
        assert "a value is too large" in told.text


def test_a_value_is_decompressed_up_to_a_limit() -> None:
    content = bomb(3)
    sum_of = zlib.crc32(content)

    with pytest.raises(sqlite.ValueTooLarge, match="at most 1048576 bytes"):
        sqlite.decompress_blob(1, sum_of, content, MIB)
    with pytest.raises(sqlite.ValueTooLarge):
        sqlite.decompress_blob(0, zlib.crc32(b"abc"), b"abc", 2)
    with pytest.raises(ValidationError, match="another length"):
        sqlite.decompress_blob(1, sum_of, content)


@pytest.mark.parametrize("table", ["rows", "chains", "blobs", "seals"])
def test_a_view_in_place_of_a_table_is_not_asked(tmp_path: Path, table: str) -> None:
    path = endless_view(tmp_path, table)

    report = verify(path)

    assert [finding.what for finding in report.findings] == ["the tables of the file are not those of a ledger"]
    with pytest.raises(ValidationError, match="tables"), Ledger.open(path):
        pass


def test_a_tree_with_more_ways_than_pages_is_left(tmp_path: Path) -> None:
    path = many_ways(tmp_path)

    report = verify(path)

    assert any("2nd reference to page" in finding.what for finding in report.findings)
    with Ledger.open(path) as ledger, pytest.raises(ValidationError, match="in order"):
        list(ledger.all_rows())


WITHOUT_ROWS = "UPDATE chains SET first = 0, last = NULL WHERE name = 's.1'"
UNENDED = "UPDATE chains SET last = NULL"
UNSEALED = "DELETE FROM seals WHERE number > (SELECT last FROM chains WHERE name = 's.1')"


@pytest.mark.parametrize("command", ["list", "show", "export", "bundle"])
@pytest.mark.parametrize(
    ("table", "change"), [("rows", WITHOUT_ROWS), ("rows", UNENDED), ("chains", UNENDED), ("seals", UNSEALED)]
)
def test_nobody_looks_without_end_for_what_is_not_there(tmp_path: Path, command: str, table: str, change: str) -> None:
    path = many_ways(tmp_path, table, change)
    more = {"list": [], "bundle": ["s.1", "--out", str(tmp_path / "bundle.ledger")]}.get(command, ["s.1"])

    told = measured(command, str(path), *more)

    reads = table != "seals" or command == "bundle"
    assert told.code == (2 if reads else 0)
    assert ("rows do not come in order" in told.text) is reads


@pytest.mark.parametrize("table", ["rows", "chains"])
def test_the_ends_of_chains_end(tmp_path: Path, table: str) -> None:
    file = LedgerFile(many_ways(tmp_path, table))

    with suppress(ValidationError):
        assert len(list(file.read_chain_ends())) <= 2
    file.close()


@pytest.mark.parametrize(("command", "code"), [("verify", 1), ("list", 2)])
@pytest.mark.parametrize("whole", [False, True], ids=["file", "folder"])
def test_a_list_of_tables_without_end_is_left(tmp_path: Path, command: str, code: int, whole: bool) -> None:
    path = endless_schema(tmp_path)
    assert path.stat().st_size < MIB // 4

    told = measured(command, str(path.parent if whole else path))

    assert told.code == code
    lines = [line for line in told.text.splitlines() if "its list of tables is too long" in line]
    assert len(lines) == 1


def test_a_writer_leaves_a_list_of_tables_without_end(tmp_path: Path) -> None:
    endless_schema(tmp_path).rename(tmp_path / "worker-0.ledger")
    writing = "import sys; from pathlib import Path; from tests.ledger.session_events import writer; writer(Path(sys.argv[1]))"

    told = subprocess.run(
        [sys.executable, "-c", writing, str(tmp_path)], capture_output=True, text=True, check=False, timeout=300
    )

    assert "ValidationError" in told.stderr
    assert "its list of tables is too long" in told.stderr


def test_rows_that_do_not_rise_end_the_reading() -> None:
    assert list(check_ascending([(1,), (2,), (5,)])) == [(1,), (2,), (5,)]
    with pytest.raises(ValidationError, match="in order"):
        list(check_ascending([(1,), (1,)]))


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_a_pipe_beside_a_ledger_is_not_opened(tmp_path: Path, suffix: str) -> None:
    path = long_story(tmp_path)
    os.mkfifo(path.with_name(path.name + suffix))

    report = verify(path)

    assert "not a regular file" in report.findings[0].what
    assert path.name + suffix in report.findings[0].what
    assert verify(tmp_path).findings
    with pytest.raises(ValidationError, match="not a regular file"), Ledger.open(tmp_path):
        pass


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_regular_file_is_no_ledger(tmp_path: Path, make: object) -> None:
    path = tmp_path / "worker-0.ledger"
    make(path)  # type: ignore[operator]

    for place in (path, tmp_path):
        with pytest.raises(ValidationError, match="there is no ledger"):
            verify(place)


def test_a_ledger_behind_a_link_is_read_with_its_log(tmp_path: Path) -> None:
    into = begun(tmp_path / "live", [opened(), reset()])
    link = tmp_path / "link.ledger"
    link.symlink_to(into.path)

    with Ledger.open(link) as ledger:
        assert [episode.chain for episode in ledger.episodes()] == ["s.1"]
    into.close()


def test_a_reader_has_guards(tmp_path: Path) -> None:
    connection = connect_for_reading(long_story(tmp_path))
    try:
        assert connection.getlimit(0) == LONGEST_CELL
        for pragma, value in (("query_only", 1), ("trusted_schema", 0), ("cell_size_check", 1)):
            assert connection.execute(f"PRAGMA {pragma}").fetchone() == (value,)
    finally:
        connection.close()


def test_what_no_reader_would_take_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_VALUE_BYTES", 3000)
    monkeypatch.setattr(rows, "MAX_BODY_BYTES", 3000)

    with pytest.raises(ComponentError, match="an observation is too large for the ledger"):
        rows.encode_event_row(reset(observation=Raw(b'"' + b"x" * 3000 + b'"')), "all")
    with pytest.raises(ComponentError, match="a scene is too large for the ledger"):
        rows.encode_event_row(reset(scene=Raw(b'"' + b"x" * 3000 + b'"')), "all")
    with pytest.raises(ComponentError, match="an event is too large for the ledger"):
        rows.encode_event_row(reset(metadata=Raw(b'"' + b"x" * 3000 + b'"')), "all")


def settle(path: Path, body: bytes) -> None:
    """Have the first row of the chain s.1 say `body`."""
    altered(path, ("UPDATE rows SET body = ? WHERE number = (SELECT first FROM chains WHERE name = 's.1')", (body,)))


@pytest.mark.parametrize("command", ["list", "show", "export", "verify"])
def test_a_row_of_many_small_values_takes_little_memory(tmp_path: Path, command: str) -> None:
    path = long_story(tmp_path)
    with Ledger.open(path) as ledger:
        event = next(iter(ledger.rows("s.1"))).event
    assert isinstance(event, SessionOpened)
    opening = encode_event(event)
    many = b'"settings":{"x":[%b[]]}' % (b"[]," * (40 * MIB // 3))
    settle(path, b'{"event":%b,"observations":"all"}' % opening.replace(b'"settings":{}', many))

    told = measured(command, str(path), *([] if command in ("list", "verify") else ["s.1"]))

    code, mebibytes = told.code, told.mebibytes
    assert code == {"list": 0, "verify": 1}.get(command, 2)
    assert mebibytes < 500  # building the lists takes more than twice as many
    if code == 2:
        assert "a row has too many values" in told.text


@pytest.mark.parametrize("command", ["list", "show", "export"])
def test_a_row_that_is_very_large_is_not_read(tmp_path: Path, command: str) -> None:
    path = long_story(tmp_path)
    settle(path, b" " * (rows.MAX_BODY_BYTES + 1))

    told = measured(command, str(path), *([] if command == "list" else ["s.1"]))

    code, mebibytes = told.code, told.mebibytes
    assert code == (0 if command == "list" else 2)
    assert mebibytes < 250
    if code:
        assert "too large to be read" in told.text


def test_what_would_take_too_much_memory_to_read_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_CONTAINER_BYTES", 3000)
    text = Raw(b'"' + b"x" * 4000 + b'"')

    body, _ = rows.encode_event_row(reset(metadata=text), "all")
    assert (
        rows.parse_event_row(body).event == rows.parse_event_or_statement(rows.read_body(body)) == reset(metadata=text)
    )
    with pytest.raises(ComponentError, match="too many values for the ledger"):
        rows.encode_event_row(opened(settings={"many": [[]] * 1500}), "all")
    monkeypatch.setattr(rows, "MAX_CONTAINER_BYTES", 10_000)
    body, _ = rows.encode_event_row(opened(settings={"many": [[]] * 1500}), "all")
    monkeypatch.setattr(rows, "MAX_CONTAINER_BYTES", 3000)
    for read in (rows.parse_event_row, lambda body: rows.parse_event_or_statement(rows.read_body(body))):
        with pytest.raises(ValidationError, match="too many values"):
            read(body)
    with pytest.raises(ValidationError, match="too many values"):
        rows.parse_statement(Raw(b'{"own":"runbegan","unfinished":[%b1]}' % (b"1," * 2000)))


@pytest.mark.parametrize(
    "read", [rows.parse_event_row, lambda body: rows.parse_event_or_statement(rows.read_body(body))]
)
def test_a_field_that_is_there_twice_passes_no_limit(monkeypatch: pytest.MonkeyPatch, read: Any) -> None:
    monkeypatch.setattr(rows, "MAX_CONTAINER_BYTES", 3000)
    small = encode_event(opened(settings={}))
    many = b'"settings":{"x":[%b[]]}' % (b"[]," * 1500)
    large = small.replace(b'"settings":{}', many)

    with pytest.raises(ValidationError, match="too many values"):
        read(b'{"event":%b}' % small.replace(b'"settings":{}', many + b',"settings":{}'))
    found = read(b'{"event":%b,"event":%b}' % (large, small))
    assert getattr(found, "event", found) in (opened(settings={}), "session_opened")


def test_the_parts_of_a_batch_s_rewards_are_as_large_as_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_CONTAINER_BYTES", 3000)
    numbers = Raw(b"[%b0.5]" % (b"0.5," * 1000))
    event = structs.replace(batch_step(number=1), parts=dict.fromkeys("abcd", numbers))

    body, _ = rows.encode_event_row(event, "all")

    assert rows.parse_event_row(body).event == event
    with pytest.raises(ComponentError, match="too many values for the ledger"):
        rows.encode_event_row(
            structs.replace(event, parts={f"part {number}": Raw(b"0") for number in range(500)}), "all"
        )


def test_a_server_reads_again_what_an_earlier_version_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    into = begun(tmp_path, [opened(settings={"many": [[]] * 1500}), reset()])
    into.close()
    monkeypatch.setattr(rows, "MAX_CONTAINER_BYTES", 3000)
    monkeypatch.setattr(ledger_file, "MAX_BODY_BYTES", 3000)

    again = writer(tmp_path)

    (found,) = again.unfinished()
    assert (found.damage, found.opened.settings) == ("", {"many": [[]] * 1500})
    again.close()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE rows SET body = char(0) || hex(zeroblob(75000000)) || char(128512) WHERE number = 2",
        "UPDATE rows SET seq = zeroblob(150000000) WHERE number = 2",
        "UPDATE rows SET chain = zeroblob(150000000) WHERE number = 2",
        "UPDATE rows SET hash = char(0) || hex(zeroblob(75000000)) WHERE number = 2",
        "UPDATE chains SET last = zeroblob(150000000) WHERE first = (SELECT min(first) FROM chains)",
        "UPDATE chains SET name = zeroblob(150000000) WHERE first = (SELECT min(first) FROM chains)",
    ],
)
def test_a_cell_of_another_type_takes_little_memory(tmp_path: Path, change: str) -> None:
    path = long_story(tmp_path)
    written_by_hand(path, change)

    for command in (["list", str(path)], ["show", str(path), "s.1"]):
        told = measured(*command)
        code, mebibytes = told.code, told.mebibytes
        assert code in (0, 2)
        assert mebibytes < 150
