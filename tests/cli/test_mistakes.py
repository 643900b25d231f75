"""A user's mistake is one red line and the exit code 2, whatever the command, and nothing is done."""

from pathlib import Path

import pytest

from tests.cli.said import Run, assert_mistake

PLUME = "proctor/PlumeSearch-v0"
POPPER = "SpecKitAI/ColumnPopper-v1"
MISTAKES = {
    "fly": "No such command 'fly'",
    "--fly": "No such option",
    "run": "Missing argument 'ID'",
    "run CartPole-v1 --fly": "No such option",
    "run CartPole-v1 --episodes some": "--episodes",
    "run CartPole-v9": "CartPole",
    "run CartPole-v1 --policy surge_cast": "found 'surge_cast'; expected one of random",
    f"run {PLUME} --policy clever": "surge_cast",
    f"run {PLUME} --seed -1": "ENV-RESET-P2",
    f"run {PLUME} --seed 2147483647 --episodes 2": "out of range",
    f"run {PLUME} --episodes 0": "--episodes",
    f"run {PLUME} --set max_step=3": "max_steps",
    f"run {PLUME} --set max_steps": "KEY=VALUE",
    f"run {PLUME} --gif nowhere/film.gif": "no such folder",
    f"run {PLUME} --gif film.png": ".gif, .mp4",
    f"run {PLUME} --gif /proc/film.gif": "expected a file that can be written",
    f"play {POPPER}": "a person plays in a terminal",
    f"play {POPPER} --set max_episode_steps=3": "a person's game has its own end",
    f"play {POPPER} --seed -1": "ENV-RESET-P2",
    f"play {POPPER} --speed 5": "--speed",
    f"play {POPPER} --speed 0.1": "--speed",
    f"play {POPPER} --set columns": "KEY=VALUE",
    "judge": "Missing argument",
    "judge nowhere.jsonl": "nowhere.jsonl",
    "judge /dev/null nowhere.jsonl --json": "nowhere.jsonl",
    "judge .": "it is a folder",
    "judge - -": "standard input can be read once only",
    "judge - --profile severe": "'--profile': 'severe' is not one of 'strict', 'lenient'",
    "judge - --max-open 0": "'--max-open': it should be greater than or equal to 1",
    "judge - --rules nowhere.rules": "nowhere.rules",
    "judge - --rules .": "cannot read '.'",
    "judge a\0b": "null",
    "diagram --episode corr_a": "an episode is drawn from a file",
    "diagram nowhere.jsonl": "nowhere.jsonl",
    "diagram --format svg": "--format",
    "diagram --out nowhere/at/all.dot": "cannot write",
    "diagram /dev/null": "there is no episode",
    "diagram /dev/null --rules nowhere.rules": "cannot read 'nowhere.rules'",
    "demo --fast --sandbox none --seed -3": "seed",
    "demo --fast --sandbox none --keep /proc/nothing": "cannot be used",
    "mcp-config --client nobody": "nobody",
    "schema Packet": "Record, Line",
    "ledger list nowhere": "nowhere",
    "ledger fly": "fly",
    "replay nowhere": "nowhere",
    "view /no/such/ledger": "there is no /no/such/ledger",
}


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_one_line_and_code_2(
    command: str, run_command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert_mistake(run_command(*command.split(" ")), MISTAKES[command])
    assert list(tmp_path.iterdir()) == []
