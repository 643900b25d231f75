"""`proctor replay`: what it says, what it draws and how it ends."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.cli.main import main
from tests.replay.recorded_ledgers import PLUME, POPPER, Play, Sitting, record

HERE = "tests.replay.environments:"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two searches, a game, and a batch of three games."""
    batch = Sitting(POPPER, {"duration_ms": 1500}, [Play(7, 30)], 3, "same_step")
    searches = Sitting(PLUME, plays=[Play(1), Play(2)])
    return record(tmp_path_factory.mktemp("cli") / "ledger", searches, Sitting(POPPER), batch)


@pytest.fixture
def drifting(tmp_path: Path) -> Path:
    sitting = Sitting(f"{HERE}Drifting", plays=[Play(actions=[1] * 5)])
    return record(tmp_path / "drifting", sitting)


def asked(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str]:
    code = main(["replay", *map(str, arguments)])
    return code, capsys.readouterr().out


def objects(text: str) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in text.splitlines()]


def test_identical_episodes_are_a_table_and_the_code_0(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = asked(capsys, folder)

    assert code == 0
    assert out.count("identical") == 5
    assert out.endswith("4 episodes: 4 identical\n")
    assert all(name in out for name in ("boot0.1", "boot0.2", "boot1.1", "boot2.1"))


@pytest.mark.parametrize("name", ["boot0.2", "boot1"])
def test_one_episode_is_found_by_its_name_or_its_beginning(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    code, out = asked(capsys, folder, name)

    assert code == 0
    assert out.endswith("1 episodes: 1 identical\n")


def test_a_file_of_the_ledger_will_do(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file,) = folder.glob("*.ledger")

    assert asked(capsys, file)[0] == 0


def test_a_difference_is_told_with_both_values_and_the_code_1(
    drifting: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = asked(capsys, drifting, "--trust")

    assert code == 1
    assert "differs at step 3" in out
    assert "boot0.1: step 3, row 4: observation/total: recorded " in out
    assert out.endswith("1 episodes: 1 different\n")


def test_what_cannot_be_replayed_is_told_and_the_code_is_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = record(tmp_path / "ledger", Sitting("CartPole-v1", plays=[Play(seed=None, steps=3)]))

    code, out = asked(capsys, folder)

    assert code == 1
    assert "cannot be replayed: it was begun without a seed" in out


def test_digests_are_named_where_values_were_not_stored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = record(tmp_path / "ledger", Sitting(PLUME, num_envs=2), observations="digest")

    code, out = asked(capsys, folder, "--alone")

    assert code == 0
    assert "identical (by digest)" in out
    assert "observations were not stored" in out


def test_results_are_objects_for_programs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = asked(capsys, folder, "--json")

    found = objects(out)
    assert code == 0
    assert [each["chain"] for each in found] == ["boot0.1", "boot0.2", "boot1.1", "boot2.1"]
    assert all(each["identical"] and each["seconds"] > 0 for each in found)
    assert found[3]["num_envs"] == 3


def test_a_difference_is_an_object_too(drifting: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = asked(capsys, drifting, "--trust", "--json")

    (found,) = objects(out)
    assert code == 1
    assert (found["at_step"], found["first"]["what"], found["first"]["where"]) == (3, "observation", "/total")


def test_sub_episodes_are_replayed_alone_when_that_is_asked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = asked(capsys, folder, "boot2.1", "--alone", "--json")

    (found,) = objects(out)
    assert code == 0
    assert len(found["alone"]) > 3
    assert {each["sub"]["index"] for each in found["alone"]} == {0, 1, 2}


def test_the_process_itself_ends_with_the_code(drifting: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "proctor", "replay", str(drifting), "--trust"],
        env={**os.environ, "PYTHONHASHSEED": "random"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert process.returncode == 1
    assert process.stderr == ""


def test_a_step_is_shown_with_its_state_and_a_picture(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = asked(capsys, folder, "boot1.1", "--at", 3)

    assert code == 0
    assert out.startswith("after step 3\n")
    assert "clock_ms" in out
    assert "+---------+" in out


def test_a_step_is_an_object_for_programs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = asked(capsys, folder, "boot0.1", "--at", 0, "--json")

    (found,) = objects(out)
    assert code == 0
    assert found["state"]["seed"] == 1
    assert found["scene"]["environment"] == "plume"
    assert found["step"] == 0


def test_a_way_that_differs_is_said_below_the_step(drifting: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out = asked(capsys, drifting, "--trust", "--at", 4)

    assert "note: the replay differs from the record at step 3" in out


def test_the_only_episode_needs_no_name(drifting: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(capsys, drifting, "--trust", "--at", 1)[0] == 0
    assert asked(capsys, folder, "--at", 1)[0] == 2


def test_a_branch_stands_beside_the_record(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = asked(capsys, folder, "boot0.1", "--fork", 19, "--actions", "[0, 1]")

    assert code == 0
    assert "step 20\n  branch    action 0" in out
    assert "step 21\n  branch    action 1" in out
    assert "  recorded  -" in out


def test_actions_can_come_from_a_file(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "actions.json"
    file.write_text('[{"action": 2}]')

    code, out = asked(capsys, folder, "boot0.1", "--fork", 2, "--actions", file, "--json")

    (found,) = objects(out)
    assert code == 0
    assert found["rows"][0]["branch"]["action"] == {"action": 2}
    assert found["rows"][0]["step"] == 3


def test_actions_after_the_end_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = record(tmp_path / "ledger", Sitting(f"{HERE}Adding", plays=[Play(actions=[1])]))

    _, out = asked(capsys, folder, "--trust", "--fork", 1, "--actions", "[200, 1, 1]")

    assert "2 actions were not carried out" in out
    assert "terminated" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ("--fork", 1),
        ("--actions", "[1]"),
        ("--at", 1, "--fork", 1, "--actions", "[1]"),
        ("--at", -1),
        ("--at", 10**9),
        ("--fork", 1, "--actions", "[1"),
        ("--fork", 1, "--actions", "no-such-file.json"),
        ("--fork", 1, "--actions", '["up"]'),
    ],
    ids=str,
)
def test_a_wrong_question_is_the_users_mistake(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[Any, ...]
) -> None:
    assert asked(capsys, folder, "boot0.1", *arguments) == (2, "")
