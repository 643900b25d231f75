import sqlite3
from pathlib import Path

import pytest

from proctor.errors import ComponentError, ValidationError
from proctor.ledger.keys import Signer
from proctor.ledger.prune import prune
from proctor.ledger.reader import Ledger
from proctor.ledger.rows import Tombstone
from proctor.ledger.verify import verify
from proctor.models.events import Event
from tests.ledger.damage import LONG, drop_chains
from tests.ledger.session_events import (
    SIGNER,
    altered,
    closed,
    episode,
    left,
    opened,
    reset,
    rows,
    session,
    step,
    writer,
    written,
)


def chains(path: Path) -> list[str]:
    with Ledger.open(path) as ledger:
        return [each.chain for each in ledger.episodes()]


def head_of(path: Path, chain: str) -> str:
    with Ledger.open(path) as ledger:
        return ledger.find(chain).head


def test_an_episode_goes_whole_and_leaves_a_tombstone(tmp_path: Path) -> None:
    path = written(tmp_path, session("s", episodes=3, steps=50))
    head = head_of(path, "s.2")

    removed = prune(path, ["s.2"], SIGNER, lambda: 5.0, why="too old")

    assert (removed.chains, removed.rows) == (1, 53)
    assert removed.bytes > 0
    assert chains(path) == ["s.1", "s.3"]
    (row,) = [row for row in _all(path) if isinstance(row, Tombstone)]
    assert (row.chain, row.rows, row.head, row.why, row.at) == ("s.2", 53, head, "too old", 5.0)
    assert row.closed_at is not None
    assert verify(path, public=SIGNER.public).ok
    assert verify(path, public=SIGNER.public, heads=[head]).ok


def _all(path: Path) -> list[object]:
    with Ledger.open(path) as ledger:
        return [row.event for row in ledger.all_rows()]


def test_what_was_removed_is_not_in_the_file_any_more(tmp_path: Path) -> None:
    secret = b'"' + b"a-secret-observation" * 20 + b'"'
    story: list[Event] = [
        opened(),
        reset(observation=secret),
        closed(),
        reset(epoch=2, observation=b'"other-secret"'),
        closed(epoch=2),
        left(),
    ]
    path = written(tmp_path, story)
    assert b"other-secret" in path.read_bytes()

    prune(path, ["s.1", "s.2"], SIGNER)

    content = b"".join(each.read_bytes() for each in tmp_path.iterdir())
    assert b"a-secret" not in content
    assert b"other-secret" not in content
    assert verify(path, public=SIGNER.public).ok


def test_a_value_that_another_episode_names_stays(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        [opened(), reset(observation=LONG), closed(), reset(epoch=2, observation=LONG), closed(epoch=2), left()],
    )

    prune(path, ["s.1"], SIGNER)
    assert rows(path, "s.2")[1].values
    prune(path, ["s.2"], SIGNER)

    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM blobs").fetchone() == (0,)
    connection.close()
    assert verify(path, public=SIGNER.public).ok


def test_only_what_has_ended_is_removed(tmp_path: Path) -> None:
    path = written(tmp_path, [*session("a"), opened(), reset()])

    with pytest.raises(ValidationError, match="has not ended"):
        prune(path, ["a.1", "s.1"], SIGNER)
    with pytest.raises(ValidationError, match="no such episode"):
        prune(path, ["a.1", "none"], SIGNER)
    assert chains(path) == ["a.1", "s.1"]


def test_nothing_is_removed_while_a_server_writes(tmp_path: Path) -> None:
    written(tmp_path, session("a"))
    into = writer(tmp_path)

    with pytest.raises(ComponentError, match="has a writer"):
        prune(tmp_path, ["a.1"], SIGNER)
    into.close()

    assert prune(tmp_path, ["a.1"], SIGNER).chains == 1


def test_a_ledger_of_several_files_is_pruned_where_its_episodes_are(tmp_path: Path) -> None:
    for worker in (0, 1):
        written(tmp_path, session(f"s{worker}", episodes=2), worker=worker)

    assert prune(tmp_path, ["s0.1", "s1.2"], SIGNER).chains == 2
    assert chains(tmp_path) == ["s0.2", "s1.1"] or set(chains(tmp_path)) == {"s0.2", "s1.1"}
    assert verify(tmp_path, public=SIGNER.public).ok


def test_the_episodes_of_a_session_that_nobody_closed_stay_until_it_is_over(tmp_path: Path) -> None:
    written(tmp_path, [opened(), *episode(epoch=1), *episode(epoch=2), *session("a")])
    with Ledger.open(tmp_path) as ledger:
        held = ledger.unfinished()

    for chain in ("s.1", "s.2"):
        with pytest.raises(ValidationError, match="not over"):
            prune(tmp_path, ["a.1", chain], SIGNER)
    into = writer(tmp_path, boot="c")
    (found,) = into.unfinished()
    into.record(left())
    into.close()

    assert held == {"s.1", "s.2"}
    assert (found.all_epochs, len(found.events)) == (2, 5)
    assert prune(tmp_path, ["a.1", "s.1", "s.2"], SIGNER).chains == 3
    assert verify(tmp_path, public=SIGNER.public).ok


def test_values_that_a_later_run_keeps_as_digests_only_go(tmp_path: Path) -> None:
    path = written(tmp_path, [opened(), reset(observation=LONG), closed(), left()])
    written(tmp_path, [opened("t"), reset("t", observation=LONG), closed("t"), left("t")], observations="digest")

    prune(path, ["s.1"], SIGNER)

    assert LONG not in path.read_bytes()
    assert verify(path, public=SIGNER.public).findings == ()


def test_a_pruning_heals_values_that_an_earlier_one_left_behind(tmp_path: Path) -> None:
    path = written(tmp_path, session("s", episodes=2))
    altered(path, "INSERT INTO blobs VALUES (x'00', 0, 0, x'')")

    prune(path, ["s.1"], SIGNER)

    assert verify(path, public=SIGNER.public).ok


def test_a_head_of_what_was_pruned_is_met_only_by_a_tombstone_of_the_key_and_that_is_said(tmp_path: Path) -> None:
    path = written(tmp_path, session("s", episodes=2))
    heads = [head_of(path, "s.1"), head_of(path, "s.2")]
    prune(path, ["s.1"], SIGNER)

    alone, signed = verify(path, heads=heads), verify(path, heads=heads, public=SIGNER.public)

    assert [finding.chain for finding in alone.findings] == ["s.1"]
    assert "only with a key" in alone.findings[0].what
    assert (signed.ok, signed.signed, signed.headed) == (True, True, False)
    assert "pruned, so that no row can be held against them any more: 1." in signed.says


def test_a_forged_tombstone_hides_no_episode(tmp_path: Path) -> None:
    path = written(tmp_path, session("s", episodes=2))
    head = head_of(path, "s.1")

    prune(path, ["s.1"], Signer.of(bytes(32)))

    assert not verify(path, heads=[head]).ok
    assert not verify(path, heads=[head], public=SIGNER.public).ok


@pytest.mark.parametrize("head", ["s.1@6:" + "00" * 32, "s.1@7:" + "00" * 32])
def test_a_head_that_its_tombstone_contradicts_is_found(tmp_path: Path, head: str) -> None:
    path = written(tmp_path, session("s", episodes=2))
    prune(path, ["s.1"], SIGNER)

    assert "otherwise" in verify(path, heads=[head], public=SIGNER.public).findings[0].what


def test_a_tombstone_of_somebody_else_is_found(tmp_path: Path) -> None:
    path = written(tmp_path, session("s", episodes=2))
    prune(path, ["s.1"], Signer.of(bytes(32)))

    assert verify(path).ok
    assert "another key" in verify(path, public=SIGNER.public).findings[0].what


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM seals WHERE number = (SELECT max(number) FROM rows)",
        "UPDATE rows SET body = CAST(replace(CAST(body AS TEXT), '\"rows\":6', '\"rows\":5') AS BLOB)",
        "DELETE FROM rows WHERE number = (SELECT max(number) FROM rows)",
        "DELETE FROM rows WHERE number = 3",
    ],
)
def test_a_tombstone_that_was_touched_is_found(tmp_path: Path, statement: str) -> None:
    path = written(tmp_path, [*session("s", episodes=2), opened("t"), reset("t"), step("t")])
    prune(path, ["s.1"], SIGNER)
    connection = sqlite3.connect(path)
    before = verify(path).ok
    connection.execute(statement.replace("number = 3", f"number = {rows(path, 's.2')[3].number}"))
    connection.commit()
    connection.close()

    assert before
    assert not verify(path).ok


def test_a_tombstone_covers_no_other_chain(tmp_path: Path) -> None:
    path = written(tmp_path, session("s", episodes=2))
    prune(path, ["s.1"], SIGNER)
    drop_chains(path, "s.2")

    assert "s.2" in {finding.chain for finding in verify(path).findings}
