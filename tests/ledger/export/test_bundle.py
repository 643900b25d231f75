import sqlite3
import stat
from pathlib import Path

import pytest

from proctor.errors import ComponentError, ValidationError
from proctor.ledger.export.bundle import write_bundle
from proctor.ledger.keys import Signer
from proctor.ledger.prune import prune
from proctor.ledger.reader import Ledger
from proctor.ledger.verify import verify
from tests.ledger.damage import forge, story
from tests.ledger.session_events import SIGNER, rows, session, writer, written


def bundled(path: Path, chain: str, into: Path) -> str:
    """Write the bundle; return the episode's head."""
    with Ledger.open(path) as ledger:
        write_bundle(ledger, chain, into)
        return ledger.find(chain).head


@pytest.mark.parametrize("chain", ["a.1", "b.1"])
def test_a_bundle_has_the_episode_whole_and_stands_alone(tmp_path: Path, chain: str) -> None:
    path, bundle = written(tmp_path / "ledger", story(9)), tmp_path / "episode.ledger"

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
    path, bundle = written(tmp_path / "ledger", story(9)), tmp_path / "episode.ledger"

    bundled(path, "b.1", bundle)

    assert rows(bundle, "b.1")[0].hash == rows(path, "b.1")[0].hash
    assert [row.event for row in rows(bundle, "b.1")] == [row.event for row in rows(path, "b.1")]
    assert stat.S_IMODE(bundle.stat().st_mode) == 0o600


@pytest.mark.parametrize("table", ["rows", "blobs", "seals"])
def test_whatever_is_dropped_from_a_bundle_is_found(tmp_path: Path, table: str) -> None:
    path, bundle = written(tmp_path / "ledger", story(5)), tmp_path / "episode.ledger"
    head = bundled(path, "a.1" if table == "seals" else "b.1", bundle)
    connection = sqlite3.connect(bundle)
    column = "digest" if table == "blobs" else "number"

    connection.execute(f"DELETE FROM {table} WHERE {column} = (SELECT max({column}) FROM {table})")
    connection.commit()
    connection.close()

    assert not verify(bundle, public=SIGNER.public, heads=[head]).ok


def test_a_bundle_says_that_it_is_one_and_is_never_written_to(tmp_path: Path) -> None:
    path, bundle = written(tmp_path / "ledger", session()), tmp_path / "worker-0.ledger"
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
    path, bundle = written(tmp_path / "ledger", session()), tmp_path / "episode.ledger"
    bundled(path, "s.1", bundle)

    forge(bundle, lambda body: body.replace(b'"reward":0.5', b'"reward":9.5'))

    assert [finding.what for finding in verify(bundle, public=SIGNER.public).findings] == [
        "its seal is missing",
        "nothing here is signed, and a key was given",
    ]


def test_a_bundle_by_another_key_is_found(tmp_path: Path) -> None:
    path, bundle = written(tmp_path / "ledger", session()), tmp_path / "episode.ledger"
    bundled(path, "s.1", bundle)

    assert not verify(bundle, public=Signer.of(bytes(32)).public).ok


def test_a_bundle_replaces_nothing(tmp_path: Path) -> None:
    path, bundle = written(tmp_path / "ledger", session()), tmp_path / "episode.ledger"
    bundle.write_bytes(b"mine")

    with pytest.raises(ValidationError, match="there already"):
        bundled(path, "s.1", bundle)
    with pytest.raises(ValidationError, match="no such chain"):
        bundled(path, "none", tmp_path / "other.ledger")
    with pytest.raises(ComponentError, match="cannot be used"):
        bundled(path, "s.1", tmp_path / "none" / "episode.ledger")
    assert bundle.read_bytes() == b"mine"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["episode.ledger", "ledger"]
