"""Governed episodes replay like any other, and what was judged in them is judged again in the same way."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.ledger.reader import Ledger
from proctor.models.events import PacketJudged
from tests.replay.governed_ledgers import kinds, record_governed
from tests.replay.test_episodes import replayed_elsewhere


def told(*arguments: str, given: bytes = b"") -> tuple[int, bytes]:
    """Return the exit code and the output of a command of ours."""
    process = subprocess.run(
        [sys.executable, "-m", "proctor", *arguments],
        input=given,
        env={**os.environ, "PYTHONHASHSEED": "random"},
        capture_output=True,
        timeout=300,
        check=False,
    )
    return process.returncode, process.stdout


def judged(folder: Path) -> list[PacketJudged]:
    with Ledger.open(folder) as ledger:
        events = [row.event for episode in ledger.episodes() for row in ledger.rows(episode.chain)]
    return [event for event in events if isinstance(event, PacketJudged) and event.judged]


def verdicts_again(folder: Path) -> list[dict[str, Any]]:
    """Return what `proctor judge` says of the packets that `proctor ledger export` gives it."""
    packets = folder.parent / "packets.jsonl"
    code, _ = told("ledger", "export", str(folder), "--format", "jsonl", "--packets", "--out", str(packets))
    assert code == 0
    _, out = told("judge", "-", "--json", given=packets.read_bytes())
    return [msgspec.json.decode(line) for line in out.splitlines()]


@pytest.mark.parametrize(
    "episodes", [len(list(kinds())), pytest.param(400, marks=[pytest.mark.slow, pytest.mark.timeout(400)])]
)
def test_governed_episodes_replay_and_are_judged_as_they_were(tmp_path: Path, episodes: int) -> None:
    folder = record_governed(tmp_path / "ledger", episodes)

    found = replayed_elsewhere(folder)
    lines, again = judged(folder), verdicts_again(folder)

    assert len(found) == episodes
    assert [each for each in found if not each["identical"]] == []
    assert sum(each["steps"] for each in found) > 3 * episodes
    assert [line.accepted for line in lines] == [each["verdict"] == "accepted" for each in again]
    assert [line.path for line in lines] == [each["path"] for each in again]
    assert [line.rules for line in lines] == [each["rules"] for each in again]
    assert {line.accepted for line in lines} == {True, False}
