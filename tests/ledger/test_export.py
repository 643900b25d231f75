"""What every export shares: nothing is overwritten, nothing is left half done, and a missing package is named."""

from __future__ import annotations

import json
import sqlite3
import stat
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from proctor.episode.judge import Judge
from proctor.errors import MissingExtraError, ValidationError
from proctor.ledger.export import (
    PROGRESS_EVERY,
    encode_packets,
    encode_row,
    import_extra,
    new_file,
    new_folder,
    read_rows,
    remove_line_breaks,
    report_progress,
    select_episodes,
    write_bundle,
)
from proctor.ledger.keys import Signer
from proctor.ledger.prune import prune
from proctor.ledger.reader import Ledger, Row
from proctor.ledger.verify import verify
from proctor.models.events import EpisodeStepped, PacketJudged, SessionOpened, decode_event
from tests.cli.recordings import free, governed, seeing, stepped, written
from tests.ledger.damage import forge, story
from tests.ledger.session_events import SIGNER, rows, session, writer
from tests.ledger.session_events import written as recorded


def test_all_episodes_are_chosen_where_none_is_named(tmp_path: Path) -> None:
    with Ledger.open(written(tmp_path / "ledger", free(), governed())) as ledger:
        assert [each.chain for each in select_episodes(ledger, [])] == ["free.1", "governed.1", "governed.2"]


def test_an_episode_that_is_named_twice_is_chosen_once(tmp_path: Path) -> None:
    with Ledger.open(written(tmp_path / "ledger", free(), governed())) as ledger:
        assert [each.chain for each in select_episodes(ledger, ["governed.2", "ep-free-1", "free.1"])] == [
            "governed.2",
            "free.1",
        ]


def test_a_missing_package_is_told_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(MissingExtraError, match=r"an export needs the package 'pyarrow'.*proctor-rl\[export\]"):
        import_extra("pyarrow", "an export")


def test_a_package_that_lacks_another_one_says_so_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "half_there.py").write_text("import nowhere_to_be_found\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    with pytest.raises(ModuleNotFoundError, match="nowhere_to_be_found"):
        import_extra("half_there", "an export")


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "out"

    with new_file(path) as file:
        file.write(b"half")
        assert not path.exists()

    assert path.read_bytes() == b"half"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("make", [new_file, new_folder])
def test_a_failure_leaves_nothing_behind(tmp_path: Path, make: object) -> None:
    with pytest.raises(RuntimeError), make(tmp_path / "out"):  # type: ignore[operator]
        raise RuntimeError("halfway")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", [new_file, new_folder])
def test_nothing_is_overwritten(tmp_path: Path, make: object) -> None:
    (tmp_path / "out").write_text("precious")

    with pytest.raises(ValidationError, match="is there already"), make(tmp_path / "out"):  # type: ignore[operator]
        pass

    assert (tmp_path / "out").read_text() == "precious"


def test_what_comes_in_between_is_not_overwritten_either(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="is there already"), new_file(tmp_path / "out"):
        (tmp_path / "out").write_text("precious")

    assert (tmp_path / "out").read_text() == "precious"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="there is no folder"), new_file(tmp_path / "no" / "out"):
        pass


def test_a_disk_that_fails_is_a_message(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="the disk is full"), new_file(tmp_path / "out"):
        raise OSError(28, "No space left on device")


def test_rows_are_counted_on_their_way() -> None:
    told: list[int] = []
    rows: list[Any] = list(range(2 * PROGRESS_EVERY + 3))

    assert list(report_progress(rows, told.append)) == rows
    assert told == [PROGRESS_EVERY, PROGRESS_EVERY, 3]


LONG = seeing(*(index / 7 for index in range(200)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("jsonl") / "ledger", free(), governed())


def test_a_line_has_number_chain_seq_hash_and_event(folder: Path) -> None:
    with Ledger.open(folder) as ledger:
        row = list(ledger.rows("free.1"))[2]

        said = json.loads(encode_row(row))

    assert list(said) == ["number", "chain", "seq", "hash", "event", "digest"]
    assert (said["chain"], said["seq"], said["hash"]) == ("free.1", 2, row.hash.hex())
    assert said["event"]["observation"] == {"observation": [0.125]}
    assert said["event"]["event"] == "episode_stepped"


def test_an_event_can_be_read_back_from_its_line(folder: Path) -> None:
    with Ledger.open(folder) as ledger:
        rows = [row for row in ledger.rows("governed.1") if row.seq]

        again = [
            decode_event(bytes(msgspec.json.decode(encode_row(row), type=dict[str, Raw])["event"])) for row in rows
        ]

    assert again == [row.event for row in rows]


def test_long_observations_are_written_with_their_values(tmp_path: Path) -> None:
    story = list(free())
    story[3] = stepped("free", 2, observation=LONG)
    with Ledger.open(written(tmp_path / "ledger", story)) as ledger:
        said = [json.loads(line) for line in map(encode_row, ledger.rows("free.1"))]

    assert said[3]["event"]["observation"] == json.loads(bytes(LONG))


def test_an_observation_that_was_not_kept_is_null_and_says_so(tmp_path: Path) -> None:
    with Ledger.open(written(tmp_path / "ledger", free(), observations="digest")) as ledger:
        said = [json.loads(line) for line in map(encode_row, ledger.rows("free.1"))]

    assert said[2]["event"]["observation"] is None
    assert said[2]["values"] is False
    assert len(said[2]["digest"]) == 64
    assert "values" not in said[0]


def test_without_names_the_servers_own_rows_are_there_too(folder: Path) -> None:
    with Ledger.open(folder) as ledger:
        every = [json.loads(line) for line in map(encode_row, read_rows(ledger, None))]
        named = [json.loads(line) for line in map(encode_row, read_rows(ledger, select_episodes(ledger, ["free.1"])))]

    assert {each["chain"] for each in every} == {"free.1", "governed.1", "governed.2", "server.boot1"}
    assert [each["number"] for each in every] == sorted(each["number"] for each in every)
    assert {each["chain"] for each in named} == {"free.1"}


def test_packets_get_the_same_verdicts_again(folder: Path) -> None:
    with Ledger.open(folder) as ledger:
        rows = list(read_rows(ledger, select_episodes(ledger, ["governed.1", "governed.2"])))
    recorded = [row.event for row in rows if isinstance(row.event, PacketJudged) and row.event.judged]

    judge = Judge()
    again = [judge.apply(line) for line in encode_packets(rows)]

    assert [(each.accepted, list(each.rules), each.reason) for each in again] == [
        (each.accepted, each.rules, each.reason) for each in recorded
    ]
    assert {each.accepted for each in again} == {True, False}


def test_what_the_judge_never_saw_is_not_among_the_packets(folder: Path) -> None:
    with Ledger.open(folder) as ledger:
        assert not [line for line in encode_packets(read_rows(ledger, None)) if b"forged" in line]


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=8,
    ),
    st.sampled_from([None, 2]),
)
def test_whatever_was_done_a_row_is_one_line_that_says_it(value: object, indent: int | None) -> None:
    text = Raw(json.dumps(value, indent=indent).encode())
    row = Row(1, "a.1", 2, stepped("a", 1, observation=text), "00", True, b"\1" * 32)

    line = encode_row(row)

    assert line.count(b"\n") == 1
    assert json.loads(line)["event"]["observation"] == value


def test_breaks_inside_a_text_stay() -> None:
    assert remove_line_breaks(b'{"a":\n "b\\n"}') == b'{"a":"b\\n"}'


def test_the_first_row_of_a_chain_is_its_session(folder: Path) -> None:
    with Ledger.open(folder) as ledger:
        first, *_, step = [row.event for row in ledger.rows("free.1") if row.seq < 3]

    assert isinstance(first, SessionOpened)
    assert isinstance(step, EpisodeStepped)


def bundled(path: Path, chain: str, into: Path) -> str:
    """Write the bundle; return the episode's head."""
    with Ledger.open(path) as ledger:
        write_bundle(ledger, chain, into)
        return ledger.find(chain).head


@pytest.mark.parametrize("chain", ["a.1", "b.1"])
def test_a_bundle_has_the_episode_whole_and_stands_alone(tmp_path: Path, chain: str) -> None:
    path, bundle = recorded(tmp_path / "ledger", story(9)), tmp_path / "episode.ledger"

    head = bundled(path, chain, bundle)
    for each in path.parent.iterdir():
        each.unlink()

    report = verify(bundle, public=SIGNER.public, heads=[head])
    assert report.ok
    assert (report.chains, report.signed, report.headed) == (1, True, True)
    with Ledger.open(bundle) as ledger:
        (episode,) = ledger.episodes()
        found = list(ledger.rows(chain))
    assert (episode.chain, episode.head, episode.steps) == (chain, head, 9)
    assert all(row.values for row in found)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["episode.ledger", "ledger"]


def test_a_bundle_says_what_the_ledger_says(tmp_path: Path) -> None:
    path, bundle = recorded(tmp_path / "ledger", story(9)), tmp_path / "episode.ledger"

    bundled(path, "b.1", bundle)

    assert rows(bundle, "b.1")[0].hash == rows(path, "b.1")[0].hash
    assert [row.event for row in rows(bundle, "b.1")] == [row.event for row in rows(path, "b.1")]
    assert stat.S_IMODE(bundle.stat().st_mode) == 0o600


@pytest.mark.parametrize("table", ["rows", "blobs", "seals"])
def test_whatever_is_dropped_from_a_bundle_is_found(tmp_path: Path, table: str) -> None:
    path, bundle = recorded(tmp_path / "ledger", story(5)), tmp_path / "episode.ledger"
    head = bundled(path, "a.1" if table == "seals" else "b.1", bundle)
    connection = sqlite3.connect(bundle)
    column = "digest" if table == "blobs" else "number"

    connection.execute(f"DELETE FROM {table} WHERE {column} = (SELECT max({column}) FROM {table})")
    connection.commit()
    connection.close()

    assert not verify(bundle, public=SIGNER.public, heads=[head]).ok


def test_a_bundle_says_that_it_is_one_and_is_never_written_to(tmp_path: Path) -> None:
    path, bundle = recorded(tmp_path / "ledger", session()), tmp_path / "worker-0.ledger"
    bundled(path, "s.1", tmp_path / "episode.ledger")
    bundled(path, "s.1", bundle)

    report = verify(tmp_path / "episode.ledger", public=SIGNER.public)

    assert "It is a bundle, which has one episode, and shows nothing of others." in report.says
    assert "bundle" not in verify(path).says
    with pytest.raises(ValidationError, match="is a bundle"):
        writer(tmp_path)
    with pytest.raises(ValidationError, match="is a bundle"):
        prune(bundle, ["s.1"], SIGNER)
    with pytest.raises(ValidationError, match="of an episode"):
        bundled(path, "server.b", tmp_path / "server.ledger")


def test_a_forged_bundle_without_seals_is_found_with_a_key(tmp_path: Path) -> None:
    path, bundle = recorded(tmp_path / "ledger", session()), tmp_path / "episode.ledger"
    bundled(path, "s.1", bundle)

    forge(bundle, lambda body: body.replace(b'"reward":0.5', b'"reward":9.5'))

    assert [finding.what for finding in verify(bundle, public=SIGNER.public).findings] == [
        "its seal is missing",
        "nothing here is signed, and a key was given",
    ]


def test_a_bundle_by_another_key_is_found(tmp_path: Path) -> None:
    path, bundle = recorded(tmp_path / "ledger", session()), tmp_path / "episode.ledger"
    bundled(path, "s.1", bundle)

    assert not verify(bundle, public=Signer.of(bytes(32)).public).ok


def test_a_bundle_replaces_nothing(tmp_path: Path) -> None:
    path, bundle = recorded(tmp_path / "ledger", session()), tmp_path / "episode.ledger"
    bundle.write_bytes(b"mine")

    with pytest.raises(ValidationError, match="there already"):
        bundled(path, "s.1", bundle)
    with pytest.raises(ValidationError, match="no such chain"):
        bundled(path, "none", tmp_path / "other.ledger")
    with pytest.raises(ValidationError, match="no folder"):
        bundled(path, "s.1", tmp_path / "none" / "episode.ledger")
    assert bundle.read_bytes() == b"mine"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["episode.ledger", "ledger"]
