"""Steps in Parquet: pure rows here, and the file with the real pyarrow."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import MissingExtraError
from proctor.ledger.export import convert_steps, select_episodes, write_parquet
from proctor.ledger.reader import Ledger
from tests.cli.recordings import NOON, batch, free, played, written


def table(path: Path) -> list[dict[str, Any]]:
    """Read the file as pyarrow does."""
    rows: list[dict[str, Any]] = import_module("pyarrow.parquet").read_table(path).to_pylist()
    return rows


def test_a_reset_is_step_0_and_every_step_a_row(tmp_path: Path) -> None:
    with Ledger.open(written(tmp_path / "ledger", free())) as ledger:
        steps = list(convert_steps(ledger.rows("free.1")))

    assert [each.step for each in steps] == [0, 1, 2, 3]
    assert (steps[0].action, steps[0].reward, steps[0].observation) == (None, None, '{"observation":[0.0]}')
    assert (steps[3].action, steps[3].reward, steps[3].terminated) == ('{"action":1}', 1.0, True)
    assert steps[1].at == round((NOON + 0.25) * 1e6)


def test_whose_step_it_was_is_told(tmp_path: Path) -> None:
    with Ledger.open(written(tmp_path / "ledger", played())) as ledger:
        last = list(convert_steps(ledger.rows("played.1")))[-1]

    assert (last.principal, last.tool, last.grant) == ("agent", "move", "g1")


def test_a_step_of_a_batch_has_lists(tmp_path: Path) -> None:
    with Ledger.open(written(tmp_path / "ledger", batch())) as ledger:
        first, step = convert_steps(ledger.rows("batch.1"))

    assert first.rewards is None
    assert (step.reward, step.rewards, step.raw_rewards) == (None, [0.0, 1.0], [0.0, 1.0])
    assert step.terminations == [False, True]


def test_an_observation_that_was_not_kept_is_null(tmp_path: Path) -> None:
    with Ledger.open(written(tmp_path / "ledger", free(), observations="digest")) as ledger:
        steps = list(convert_steps(ledger.rows("free.1")))

    assert {each.observation for each in steps} == {None}
    assert all(each.digest for each in steps)


def test_without_the_extra_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with (
        Ledger.open(written(tmp_path / "ledger", free())) as ledger,
        pytest.raises(MissingExtraError, match=r"proctor-rl\[export\]"),
    ):
        write_parquet(ledger, select_episodes(ledger, []), tmp_path / "steps.parquet")

    assert not (tmp_path / "steps.parquet").exists()


def test_pyarrow_reads_the_columns_with_their_types(tmp_path: Path) -> None:
    path = tmp_path / "steps.parquet"
    with Ledger.open(written(tmp_path / "ledger", free(), played(), batch())) as ledger:
        written_rows = write_parquet(ledger, select_episodes(ledger, []), path)

    schema = import_module("pyarrow.parquet").read_schema(path)
    rows = table(path)
    assert written_rows == len(rows) == 4 + 5 + 2
    assert {
        name: str(schema.field(name).type) for name in ("chain", "step", "at", "reward", "terminated", "rewards")
    } == {
        "chain": "string",
        "step": "int64",
        "at": "timestamp[us, tz=UTC]",
        "reward": "double",
        "terminated": "bool",
        "rewards": "list<element: double>",
    }
    assert rows[3]["reward"] == 1.0
    assert rows[3]["at"].timestamp() == NOON + 0.75
    assert rows[-1]["rewards"] == [0.0, 1.0]


def test_more_rows_than_a_group_holds_are_all_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.ledger.export.ROWS_PER_GROUP", 2)
    with Ledger.open(written(tmp_path / "ledger", free())) as ledger:
        write_parquet(ledger, select_episodes(ledger, []), tmp_path / "steps.parquet")

    assert [each["step"] for each in table(tmp_path / "steps.parquet")] == [0, 1, 2, 3]
