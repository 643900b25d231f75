"""`python -m bench` from the outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bench import __main__ as command
from bench import gyms
from bench.fresh import bytes_each, first_step, import_cpu
from bench.measure import Gap, Probe
from bench.row import Opener, Row, ratio_at_least
from bench.rows.plume import c_loop

ROOT = Path(__file__).resolve().parents[2]


def constant(value: float) -> Opener:
    return lambda _stack: lambda _seconds: value


def missing(_: ExitStack) -> Probe:
    raise Gap("no such peer")


def broken(_: ExitStack) -> Probe:
    raise RuntimeError("it broke")


def closing(closed: list[str]) -> Opener:
    def opened(stack: ExitStack) -> Probe:
        stack.callback(closed.append, "closed")
        return lambda _seconds: 1.0

    return opened


def run_with(rows: tuple[Row, ...], file: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> tuple[int, Any]:
    monkeypatch.setattr(command, "ROWS", rows)
    monkeypatch.setattr(command, "versions", dict)
    code = command.main(["--repeats", "1", "--seconds", "0.01", "--json", str(file), *more])
    return code, json.loads(file.read_text("utf-8"))


def test_one_row_is_measured_from_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    quick = ["--rows", "plume.import", "--repeats", "1", "--seconds", "0.05", "--json", str(file)]
    answer = subprocess.run(
        [sys.executable, "-m", "bench", *quick],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert answer.returncode == 0, answer.stderr
    assert "plume.import/gymnasium" in answer.stdout
    found = json.loads(file.read_text("utf-8"))
    assert [row["row"] for row in found["rows"]] == ["plume.import/gymnasium"]
    assert found["rows"][0]["value"] > 0.0
    assert found["versions"]["gymnasium"]
    assert str(ROOT) not in file.read_text("utf-8")


def test_gaps_and_missed_goals_are_results_and_not_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = (
        Row("a/b", constant(2.0), constant(1.0), "b", ratio_at_least(4.0)),
        Row("a/c", constant(2.0), missing, "c", ratio_at_least(4.0)),
    )
    code, found = run_with(rows, tmp_path / "results.json", monkeypatch)

    assert code == 0
    assert [(row["met"], row["gap"]) for row in found["rows"]] == [(False, None), (None, "no such peer")]
    assert "gap: a/c: no such peer" in capsys.readouterr().out


def test_a_broken_row_is_told_and_the_others_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    closed: list[str] = []
    rows = (Row("a/b", closing(closed), broken, "b"), Row("a/c", constant(1.0), constant(1.0), "c"))
    code, found = run_with(rows, tmp_path / "results.json", monkeypatch)

    assert code == 1
    assert [row["gap"] for row in found["rows"]] == ["failed: RuntimeError: it broke", None]
    assert closed == ["closed"]
    assert "Traceback" in capsys.readouterr().err


def test_a_prefix_measures_its_rows_only_and_keeps_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "results.json"
    rows = (Row("a/b", constant(1.0), constant(1.0), "b"), Row("c/d", constant(1.0), constant(1.0), "d"))
    run_with(rows, file, monkeypatch)
    renewed = (Row("a/b", constant(5.0), constant(1.0), "b"), Row("c/d", broken, broken, "d"))
    code, found = run_with(renewed, file, monkeypatch, "--rows", "a/")

    assert code == 0
    assert [(row["row"], row["value"]) for row in found["rows"]] == [("a/b", 5.0), ("c/d", 1.0)]


@pytest.mark.parametrize("arguments", [["--rows", "nothing"], ["--repeats", "0"], ["--seconds", "0"]])
def test_a_bad_command_line_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        command.main(arguments)

    assert refused.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_a_profile_shows_where_the_time_goes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "ROWS", (Row("a/b", gyms.single("CartPole-v1"), broken, "b"),))

    assert command.main(["--profile", "a/b", "--seconds", "0.01"]) == 0
    assert "cartpole.py" in capsys.readouterr().out


@pytest.mark.parametrize(
    "opener",
    [
        gyms.single("proctor/PlumeSearch-v0"),
        gyms.single("CartPole-v1", unwrapped=True),
        gyms.resets("proctor/PlumeSearch-v0"),
        gyms.batched("CartPole-v1", 3, "vector_entry_point"),
        gyms.batched("proctor/PlumeSearch-v0", 3, "sync"),
        gyms.batched_resets("CartPole-v1", 3, "vector_entry_point"),
    ],
)
def test_every_way_to_drive_an_environment_gives_a_rate(opener: Opener) -> None:
    with ExitStack() as stack:
        assert opener(stack)(0.001) > 0.0


@pytest.mark.parametrize(
    "opener",
    [
        import_cpu("json"),
        first_step("single", "CartPole-v1"),
        first_step("vector", "CartPole-v1", 4),
        bytes_each("single", "CartPole-v1", 200),
    ],
)
def test_every_fresh_process_gives_a_number(opener: Opener) -> None:
    with ExitStack() as stack:
        assert opener(stack)(0.001) > 0.0


def test_a_fresh_process_that_fails_says_why() -> None:
    with ExitStack() as stack, pytest.raises(ChildProcessError, match="no_such_module"):
        import_cpu("no_such_module")(stack)(0.001)


def test_a_module_that_is_already_loaded_is_never_a_fast_import() -> None:
    with ExitStack() as stack, pytest.raises(ChildProcessError, match="loaded before the clock ran"):
        import_cpu("sys")(stack)(0.001)


def test_a_fresh_process_has_not_met_proctor_before_it_is_timed() -> None:
    with ExitStack() as stack:
        # Had a `.pth` file of ours run, this would be the error of the test above.
        assert import_cpu("proctor")(stack)(0.001) > 0.0


@pytest.mark.system
def test_the_c_loop_gives_a_rate() -> None:
    with ExitStack() as stack:
        assert c_loop(8)(stack)(0.001) > 0.0
