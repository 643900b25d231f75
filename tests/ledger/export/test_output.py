"""What every export shares: nothing is overwritten, nothing is left half done, and a missing package is named."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import MissingExtraError, ValidationError
from proctor.ledger.export.output import (
    PROGRESS_EVERY,
    import_extra,
    new_file,
    new_folder,
    report_progress,
    select_episodes,
)
from proctor.ledger.reader import Ledger
from tests.cli.recordings import free, governed, written


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

    with pytest.raises(MissingExtraError, match=r"an export needs the package 'pyarrow'.*proctor\[export\]"):
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
