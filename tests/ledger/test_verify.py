import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from proctor.errors import ValidationError
from proctor.ledger.audit import PROGRESS_EVERY
from proctor.ledger.export import write_bundle
from proctor.ledger.keys import Signer
from proctor.ledger.reader import Ledger
from proctor.ledger.rows import ChainOpened, encode_event_row, encode_statement_row
from proctor.ledger.storage.lock import WriterLock
from proctor.ledger.storage.sqlite import BUNDLE_APPLICATION_ID
from proctor.ledger.verify import VerificationReport, verify
from tests.ledger.damage import COLUMNS, Touched, append_row, drop_chains, forge, story, story_file
from tests.ledger.session_events import SIGNER, altered, begun, opened, reset, rows, session, step, writer, written

NO_WRITER = "no server is seen writing to the file"
UNENDED = f"the run of the server has no end: it was killed, or its end was dropped; {NO_WRITER}"
STEPS = 44
"""So that there are a hundred rows and some more."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return story_file(tmp_path_factory.mktemp("whole"), STEPS)


@pytest.fixture
def touched(whole: Path, tmp_path: Path) -> Iterator[Touched]:
    found = Touched(whole, tmp_path)
    yield found
    found.connection.close()


def head_of(path: Path, chain: str) -> str:
    with Ledger.open(path) as ledger:
        return ledger.find(chain).head


def looked(path: Path, **keywords: object) -> VerificationReport:
    return verify(path, public=SIGNER.public, **keywords)  # type: ignore[arg-type]


def test_what_was_written_is_as_it_was_written(whole: Path) -> None:
    told: list[tuple[int, int]] = []

    report = verify(whole, public=SIGNER.public, heads=[head_of(whole, "a.1")], progress=lambda *of: told.append(of))

    assert report.ok
    assert report.rows > 100
    assert report.chains == 3
    assert report.signed
    assert report.headed
    assert "Nothing up to the heads" in report.says


def test_without_a_key_or_a_head_it_says_how_little_it_shows(whole: Path) -> None:
    report = verify(whole)

    assert report.ok
    assert not report.signed
    assert not report.headed
    assert "accidental damage only" in report.says


def test_every_column_of_the_tables_is_among_those_that_are_flipped(touched: Touched) -> None:
    tables = touched.connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    columns = {
        name: tuple(each[1] for each in touched.connection.execute(f"PRAGMA table_info({name})")) for (name,) in tables
    }

    assert columns == COLUMNS
    assert {(cell.table, cell.column) for cell in touched.cells()} == {
        (table, column) for table, names in COLUMNS.items() for column in names
    }


def test_a_flipped_bit_is_named(touched: Touched) -> None:
    chance = random.Random(7)
    cells = touched.cells()
    columns = sorted({(cell.table, cell.column) for cell in cells})

    for place in columns * 12:
        cell = chance.choice([cell for cell in cells if (cell.table, cell.column) == place])
        bit = chance.randrange(cell.bits)

        assert touched.names(cell, bit), (cell, bit)
    assert touched.findings() == []


SINGLE = [(table, name) for table, names in COLUMNS.items() for name in names if (table, name) != ("rows", "body")]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("table", "column"), SINGLE)
def test_every_flipped_bit_is_named(touched: Touched, table: str, column: str) -> None:
    for cell in touched.cells():
        if (cell.table, cell.column) == (table, column):
            for bit in range(cell.bits):
                assert touched.names(cell, bit), (cell, bit)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_flipped_bit_of_a_body_is_named_even_if_every_row_has_one(touched: Touched) -> None:
    cells = [cell for cell in touched.cells() if (cell.table, cell.column) == ("rows", "body")]

    for bit in range(max(cell.bits for cell in cells)):
        flipped = [cell for cell in cells if bit < cell.bits]
        with ExitStack() as flips:
            for cell in flipped:
                assert flips.enter_context(touched.flip(cell, bit))
            found = {finding.number for finding in touched.findings()}

        assert {cell.rowid for cell in flipped} <= found, bit


def test_a_chain_that_is_open_is_not_said_to_be_closed(touched: Touched) -> None:
    touched.connection.execute("UPDATE chains SET last = 9 WHERE last IS NULL")

    assert [finding.chain for finding in touched.findings()] == ["b.1"]


def numbers(touched: Touched, chain: str) -> list[int]:
    return [row.number for row in rows(touched.path, chain)]


@pytest.mark.parametrize("place", [0, 1, 2, 20, -2, -1])
def test_a_dropped_row_is_named(touched: Touched, place: int) -> None:
    number = numbers(touched, "a.1")[place]
    seq = place % len(numbers(touched, "a.1"))

    touched.connection.execute("DELETE FROM rows WHERE number = ?", (number,))

    found = touched.findings()
    assert any(finding.chain == "a.1" and str(seq) in finding.what + str(finding.seq) for finding in found)
    assert any(finding.number == number for finding in found)


def test_swapped_rows_are_named(touched: Touched) -> None:
    first, second = numbers(touched, "a.1")[5:7]

    for old, new in ((first, -1), (second, first), (-1, second)):
        touched.connection.execute("UPDATE rows SET number = ? WHERE number = ?", (new, old))

    assert {first, second} <= {finding.number for finding in touched.findings()}


def test_swapped_bodies_are_named(touched: Touched) -> None:
    first, second = numbers(touched, "a.1")[5:7]
    bodies = dict(touched.connection.execute("SELECT number, body FROM rows"))

    for number, body in ((first, bodies[second]), (second, bodies[first])):
        touched.connection.execute("UPDATE rows SET body = ? WHERE number = ?", (body, number))

    assert {first, second} <= {finding.number for finding in touched.findings()}


@pytest.mark.parametrize("where", ["end", "gap"])
def test_a_duplicated_row_is_named(touched: Touched, where: str) -> None:
    number = numbers(touched, "a.1")[5]
    copy = 10**6 if where == "end" else number + 1
    if where == "gap":
        touched.connection.execute("UPDATE rows SET number = number + 1000000 WHERE number > ?", (number,))

    touched.connection.execute(
        "INSERT INTO rows SELECT ?, chain, seq, body, hash FROM rows WHERE number = ?", (copy, number)
    )

    assert copy in {finding.number for finding in touched.findings()}


def test_a_chain_that_was_dropped_whole_is_named(touched: Touched) -> None:
    drop_chains(touched.path, "a.1")

    assert "a.1" in {finding.chain for finding in touched.findings()}


@pytest.mark.parametrize("table", ["seals", "blobs", "chains"])
def test_whatever_is_dropped_from_the_other_tables_is_found(touched: Touched, table: str) -> None:
    key = COLUMNS[table][0]
    for (value,) in touched.connection.execute(f"SELECT {key} FROM {table}").fetchall():
        kept = touched.connection.execute(f"SELECT * FROM {table} WHERE {key} = ?", (value,)).fetchone()
        touched.connection.execute(f"DELETE FROM {table} WHERE {key} = ?", (value,))

        assert touched.findings(), value
        marks = ", ".join("?" * len(kept))
        touched.connection.execute(f"INSERT INTO {table} VALUES ({marks})", kept)


def test_a_value_that_no_row_names_is_found(touched: Touched) -> None:
    touched.connection.execute("INSERT INTO blobs VALUES (x'00', 0, 0, x'')")

    assert "no row names" in touched.findings()[0].what


def test_another_table_is_found(touched: Touched) -> None:
    touched.connection.execute("CREATE TABLE more (this TEXT)")

    assert "tables" in touched.findings()[0].what


def cut(path: Path, last: int) -> None:
    """Drop everything after a row, as consistently as one without the key can."""
    altered(
        path,
        ("DELETE FROM rows WHERE number > ?", (last,)),
        ("DELETE FROM seals WHERE number > ?", (last,)),
        ("DELETE FROM chains WHERE first > ?", (last,)),
        ("UPDATE chains SET last = NULL WHERE last > ?", (last,)),
    )


def test_rows_that_were_dropped_from_the_end_are_named_with_a_head(tmp_path: Path) -> None:
    path = written(tmp_path, [opened(), reset(), *(step(number=number) for number in range(1, 9))])
    head = head_of(path, "s.1")
    last = rows(path, "s.1")[-3].number
    connection = sqlite3.connect(path)

    cut(path, last)

    assert looked(path, allow_unsealed=True).ok
    report = looked(path, heads=[head], allow_unsealed=True)
    assert [(finding.chain, finding.seq) for finding in report.findings] == [("s.1", 8)]
    assert "8 to 9" in report.findings[0].what
    assert not report.headed
    connection.close()


def test_a_head_of_a_chain_that_is_gone_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, [opened(), reset()])
    head = head_of(path, "s.1")

    cut(path, 2)

    assert looked(path, allow_unsealed=True).ok
    assert [finding.chain for finding in looked(path, heads=[head], allow_unsealed=True).findings] == ["s.1"]


def test_a_ledger_that_was_written_anew_shows_with_a_head_and_with_a_key(tmp_path: Path) -> None:
    one = written(tmp_path / "one", [opened(), reset(seed=7)])
    other = written(tmp_path / "other", [opened(), reset(seed=8)], signer=Signer.of(bytes(32)), boot="c")

    assert verify(other).ok
    assert not verify(other, public=SIGNER.public).ok
    assert not verify(other, public=SIGNER.public).signed
    assert verify(other, heads=[head_of(one, "s.1")]).findings[0].chain == "s.1"


def test_an_unsigned_run_is_found_by_one_who_gives_a_key(tmp_path: Path) -> None:
    path = written(tmp_path, session(), signer=None)

    assert verify(path).ok
    assert "signed by nobody" in verify(path, public=SIGNER.public).findings[0].what


def test_the_end_of_an_earlier_run_cannot_be_dropped(tmp_path: Path) -> None:
    path = written(tmp_path, session("a"))
    written(tmp_path, session("b"), boot="c")
    connection = sqlite3.connect(path)
    (last,) = connection.execute("SELECT last FROM chains WHERE name = 'server.b'").fetchone()

    connection.execute("DELETE FROM rows WHERE number = ?", (last,))
    connection.commit()
    connection.close()

    assert ("server.b", last - 1) in {(finding.chain, finding.number) for finding in looked(path).findings}


def test_a_ledger_without_its_servers_chain_is_found(tmp_path: Path) -> None:
    path = written(tmp_path, [*session("a"), *session("b")])

    drop_chains(path, "server.b", "b.1")

    assert "the server's chain is missing: only a bundle has none" in told(looked(path))


def test_a_ledger_that_says_that_it_is_a_bundle_is_found(tmp_path: Path) -> None:
    path = written(tmp_path, [*session("a"), *session("b")])
    other = tmp_path / "other.ledger"
    drop_chains(path, "server.b")
    altered(path, f"PRAGMA application_id = {BUNDLE_APPLICATION_ID}")
    shutil.copy(path, other)

    assert told(looked(other)) == ["a bundle has one episode, and nothing else"]
    drop_chains(path, "b.1")
    assert told(looked(path)) == ["a worker's file says that it is a bundle: the server's chain is missing"]


def told(report: VerificationReport) -> list[str]:
    return [finding.what for finding in report.findings]


def killed(folder: Path) -> Path:
    """A ledger with a closed episode whose run was killed."""
    into = begun(folder, [*session("s"), opened("t")])
    into._resources.close()
    return into.path


def richer(body: bytes) -> bytes | None:
    """Make every reward a higher one, and leave out what the server says of the end."""
    return None if b'"own":"chainended"' in body else body.replace(b'"reward":0.5', b'"reward":9.5')


@pytest.mark.parametrize("keep", ["", "server.b"])
def test_a_closed_episode_of_a_killed_run_cannot_be_written_anew(tmp_path: Path, keep: str) -> None:
    path = killed(tmp_path)
    assert looked(path, allow_unsealed=True).ok

    forge(path, richer, keep=keep)
    altered(path, "UPDATE chains SET last = NULL")

    assert {"its seal is missing", "it is closed, and the server's chain does not say so"} <= set(told(looked(path)))
    assert "it is closed, and the server's chain does not say so" in told(verify(path))
    assert ("nothing here is signed, and a key was given" in told(looked(path))) == (not keep)


def test_nothing_signed_is_a_finding_for_one_who_gives_a_key(tmp_path: Path) -> None:
    path = written(tmp_path, [])
    connection = sqlite3.connect(path, isolation_level=None)
    for table in ("rows", "seals", "chains"):
        connection.execute(f"DELETE FROM {table}")
    connection.close()

    report = looked(path)

    assert verify(path).ok
    assert told(report) == ["nothing here is signed, and a key was given"]
    assert "Without a key" not in report.says


def test_what_has_no_seal_is_said_with_a_key(tmp_path: Path) -> None:
    into = begun(tmp_path, [*session("s"), opened("t"), reset("t"), step("t")])

    report = looked(tmp_path)
    into.close()

    assert report.ok
    assert report.unsealed == 9
    assert not report.signed
    assert "A server seems to be writing: 9 rows in 2 chains come after the last seal of their chain" in report.says
    assert "cannot be proved yet" in report.says
    assert (looked(tmp_path).unsealed, looked(tmp_path).signed) == (0, True)


def present_as_open(path: Path) -> None:
    """Drop the last ends and their seals, make rewards higher, write the hashes anew, and present what is left as open."""
    ends = (b'"own":"chainended"', b'"own":"runended"', b'"event":"episode_closed"', b'"event":"session_closed"')
    forge(
        path,
        lambda body: None if any(end in body for end in ends) else body.replace(b'"reward":0.5', b'"reward":9.5'),
        keep="server.b",
    )
    altered(path, "UPDATE chains SET last = NULL")


@pytest.mark.parametrize("public", [SIGNER.public, None])
def test_a_last_run_that_was_written_anew_and_presented_as_open_is_found(tmp_path: Path, public: bytes | None) -> None:
    path = written(tmp_path, session("s", steps=3))
    present_as_open(path)

    report = verify(path, public=public)

    assert not report.ok
    assert not report.signed
    assert [(finding.chain, finding.what) for finding in report.findings] == [
        ("server.b", f"2 rows after the last seal of the chain, which nothing proves; {NO_WRITER}"),
        ("s.1", f"no row of the chain is sealed, so that nothing proves its 5 rows; {NO_WRITER}"),
    ]
    assert report.unsealed == 7
    assert "Nothing proves 7 rows in 2 chains" in report.says
    assert "Start the server on this folder again" in report.says
    assert "--allow-unsealed" in report.says
    accepted = verify(path, public=public, allow_unsealed=True)
    assert accepted.ok
    assert accepted.unsealed == 7
    assert "Nothing proves 7 rows in 2 chains" in accepted.says


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_the_lock_of_something_else_does_not_make_a_forged_ledger_look_alive(
    tmp_path: Path, link: Callable[[Path, Path], None]
) -> None:
    path = written(tmp_path / "forged", session("s", steps=3))
    present_as_open(path)
    lock = WriterLock(tmp_path / "other.ledger")
    beside = path.with_name(path.name + ".lock")
    beside.unlink()
    link(beside, tmp_path / "other.ledger.lock")

    report = looked(path)
    lock.release()

    assert [finding.chain for finding in report.findings] == ["server.b", "s.1"]


def test_a_run_that_was_cut_back_to_its_beginning_has_no_end(tmp_path: Path) -> None:
    path = written(tmp_path, [])
    cut(path, 1)

    assert told(looked(path)) == [UNENDED]
    assert looked(path).unsealed == 0


def test_after_a_kill_the_next_run_covers_what_was_left(tmp_path: Path) -> None:
    path = killed(tmp_path)
    assert [finding.chain for finding in looked(path).findings] == ["server.b"]

    into = writer(tmp_path, boot="c")
    assert looked(path).ok
    into.close()

    assert looked(path).ok
    assert looked(path).unsealed == 0


def follow(path: Path) -> Path:
    """Add another run of the server, and return the file."""
    return written(path.parent, session("z"), boot="c")


RICH, _ = encode_event_row(step(number=4, reward=1000.0, raw_reward=1000.0, terminated=True), "all")
ENDED_CHAINS: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "closed": ("s.1", lambda folder: written(folder, session("s"))),
    "reset": ("s.1", lambda folder: written(folder, [opened(), reset(), step(), reset(epoch=2)])),
    "ended run": ("server.b", lambda folder: written(folder, session("s"))),
    "earlier run": ("server.b", lambda folder: follow(written(folder, session("s")))),
    "killed run": ("server.b", lambda folder: follow(killed(folder))),
}
"""Chains in which no server writes any more: by what ended them, their names and ledgers that have them."""


@pytest.mark.parametrize("public", [SIGNER.public, None])
@pytest.mark.parametrize("ended", ENDED_CHAINS)
def test_rows_after_the_end_of_a_chain_are_found(tmp_path: Path, ended: str, public: bytes | None) -> None:
    chain, make = ENDED_CHAINS[ended]
    path = make(tmp_path)
    assert verify(path, public=public).ok
    before = rows(path, chain)

    append_row(path, chain, RICH)
    append_row(path, chain, encode_statement_row(ChainOpened(at=1.0, chain="s.1", head=f"s.1@1:{'0' * 64}"), "all"))

    with Ledger.open(path) as ledger:
        number = max(row.number for row in ledger.all_rows()) - 1
    for report in (verify(path, public=public), verify(path, public=public, allow_unsealed=True)):
        assert (chain, before[-1].seq + 1, number) in {(each.chain, each.seq, each.number) for each in report.findings}
        assert any(what.startswith("2 rows after the end of the chain") for what in told(report))


def test_rows_after_the_end_of_a_bundle_are_found(tmp_path: Path) -> None:
    path = tmp_path / "episode.ledger"
    with Ledger.open(written(tmp_path / "ledger", session("s"))) as ledger:
        write_bundle(ledger, "s.1", path)
    assert looked(path).ok

    append_row(path, "s.1", RICH)

    assert [what.partition(",")[0] for what in told(looked(path, allow_unsealed=True))] == [
        "1 row after the end of the chain"
    ]


def test_rows_up_to_a_head_need_no_seal(tmp_path: Path) -> None:
    into = begun(tmp_path, [opened(), reset(), step()])
    head = into.head("s")
    into._resources.close()
    assert head is not None

    assert [finding.chain for finding in looked(into.path).findings] == ["server.b", "s.1"]
    assert [finding.chain for finding in looked(into.path, heads=[head]).findings] == ["server.b"]


def test_who_signed_is_said_where_no_key_was_given(tmp_path: Path) -> None:
    written(tmp_path, session("s"))
    written(tmp_path, session("t"), boot="c", signer=Signer.of(bytes(32)))

    said = verify(tmp_path).says

    assert SIGNER.public.hex() in said
    assert Signer.of(bytes(32)).public.hex() in said
    assert "only --key tells" in said


def test_a_sealed_episode_that_was_put_into_a_ledger_is_found(tmp_path: Path) -> None:
    source = written(tmp_path / "source", [opened("t"), reset("t")])
    path = written(tmp_path / "target", [opened("s"), reset("s")])
    bodies = [row.number for row in rows(source, "t.1")]
    altered(
        path,
        ("ATTACH ? AS source", (str(source),)),
        ("DELETE FROM rows WHERE number >= ?", (bodies[0],)),
        ("DELETE FROM seals WHERE number >= ?", (bodies[0],)),
        ("DELETE FROM chains WHERE first >= ?", (bodies[0],)),
        "UPDATE chains SET last = NULL",
        "INSERT INTO chains SELECT * FROM source.chains WHERE name = 't.1'",
        ("INSERT INTO rows SELECT * FROM source.rows WHERE chain = ?", (bodies[0],)),
        ("INSERT INTO seals SELECT * FROM source.seals WHERE number = ?", (bodies[-1],)),
    )

    assert "the server's chain does not say that it was opened" in told(looked(path, allow_unsealed=True))


@pytest.mark.parametrize(
    ("keyed", "headed", "says"),
    [
        (False, False, "Without a key or a head from elsewhere this shows accidental damage only"),
        (True, False, "whole runs and whole files show only with a head"),
        (False, True, "of later rows and of other chains it shows accidental damage only"),
        (True, True, "it cannot prove that nothing is missing after the heads, or of other chains"),
    ],
)
@pytest.mark.parametrize("damaged", [False, True])
def test_it_always_says_what_it_can_prove(
    touched: Touched, whole: Path, keyed: bool, headed: bool, says: str, damaged: bool
) -> None:
    if damaged:
        touched.connection.execute("DELETE FROM rows WHERE number = 50")

    report = verify(
        touched.path, public=SIGNER.public if keyed else None, heads=[head_of(whole, "a.1")] if headed else []
    )

    assert report.ok is not damaged
    assert says in report.says


def test_many_keys_are_counted(tmp_path: Path) -> None:
    for number in range(6):
        written(tmp_path, [], boot=f"run{number}", signer=Signer.of(bytes([number]) * 32))

    assert " and 2 more, as the ledger itself says" in verify(tmp_path).says


def test_a_file_that_is_there_twice_is_found(tmp_path: Path) -> None:
    path = written(tmp_path, session())
    written(tmp_path, session("t"), worker=1)
    assert looked(tmp_path).ok

    shutil.copy(path, tmp_path / "worker-7.ledger")

    report = looked(tmp_path)
    assert [(finding.file.name, finding.chain) for finding in report.findings] == [
        ("worker-7.ledger", "s.1"),
        ("worker-7.ledger", None),
    ]
    assert told(report)[1] == "the run b of worker 0 is in worker-0.ledger, too"


def test_what_was_written_while_it_was_read_is_read_again(tmp_path: Path) -> None:
    """Without a log beside it, a file is read without locks: a server may start, write and stop meanwhile."""
    path = written(tmp_path, [opened(), reset(), *(step(number=number) for number in range(1, PROGRESS_EVERY))])
    rows: list[int] = []

    def while_it_is_read(done: int, total: int) -> None:
        if not rows:
            written(tmp_path, session("t"), boot="c")
        rows.append(total)

    report = looked(path, progress=while_it_is_read)

    assert len(rows) == 2
    assert rows[0] < rows[1] == report.rows
    assert report.ok
    assert sorted(each.name for each in tmp_path.iterdir()) == ["worker-0.ledger", "worker-0.ledger.lock"]


def test_a_ledger_is_verified_beside_its_writer(tmp_path: Path) -> None:
    into = begun(tmp_path, story(5))

    report = looked(into.path)
    into.close()

    assert report.ok
    assert looked(into.path).rows == report.rows + 1


def test_every_file_of_a_folder_is_looked_at(tmp_path: Path) -> None:
    for worker in (0, 1):
        written(tmp_path, session(f"s{worker}"), worker=worker)
    (tmp_path / "worker-2.ledger").write_bytes(b"this is no ledger")
    done: list[tuple[int, int]] = []

    report = verify(tmp_path, progress=lambda *of: done.append(of))

    assert report.chains == 4
    assert [finding.file.name for finding in report.findings] == ["worker-2.ledger"]


def test_what_the_caller_got_wrong_is_no_finding(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="no ledger"):
        verify(tmp_path / "none")
    with pytest.raises(ValidationError, match="not a head"):
        verify(written(tmp_path, session()), heads=["none"])


def test_a_finding_says_where_it_is(touched: Touched) -> None:
    touched.connection.execute("UPDATE rows SET body = x'7b7d' WHERE number = 5")

    assert "row 5" in str(touched.findings()[0])
