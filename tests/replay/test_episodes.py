"""Episodes of both environments, in every form, replay in another process without one differing digest."""

import os
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.ledger.reader import Ledger
from proctor.models.events import SessionOpened
from proctor.replay.comparison import EnvOutput
from proctor.replay.replayer import replay_rows
from tests.envs.plume.catalogue import ACTIONS, SENSORS
from tests.replay.recorded_ledgers import PLUME, POPPER, Play, Sitting, record

FIELDS: tuple[dict[str, Any], ...] = (
    {"type": "gaussian"},
    {"type": "advected", "wind": [0.6, 0.2]},
    {"type": "puffs"},
)
GAMES: tuple[dict[str, Any], ...] = (
    {},
    {"include_time_left_norm": True},
    {"strict_invalid": True},
    {"manual_fall": "fast_forward"},
    {"columns": 5, "height": 7},
    {"number_pool": [1, 2]},
    {"reward_preset": "dense"},
    {"duration_ms": 3000, "action_ms": 50},
)
MOST = 2000
QUICK = 60


def searches() -> Iterator[Sitting]:
    """Yield a session of every action model with every field and every sensor that it has a wind for."""
    for field in FIELDS:
        sensors = [each for name, each in SENSORS.items() if name != "wind" or field["type"] != "gaussian"]
        for action in ACTIONS:
            for sensor in sensors:
                parts = {"plume": field, "action": action, "observation": sensor, "grid_size": [24, 18]}
                yield Sitting(PLUME, {**parts, "max_steps": 40}, scenes=len(sensors) % 2 == 0)


def games() -> Iterator[Sitting]:
    return (Sitting(POPPER, settings) for settings in GAMES)


def sittings(kinds: Iterator[Sitting], episodes: int, least: int) -> Iterator[Sitting]:
    """Yield sessions with so many episodes in all, one of five without a seed; every kind has its turn."""
    known = list(kinds)
    each = max(least, -(-episodes // len(known)))
    for number, kind in enumerate(islice(cycle(known), -(-episodes // each))):
        seeds = [None if n % 5 == 4 else 1000 * number + n for n in range(min(each, episodes - number * each))]
        yield Sitting(kind.target, kind.settings, [Play(seed, 40) for seed in seeds], scenes=kind.scenes)


def replayed_elsewhere(folder: Path) -> list[dict[str, Any]]:
    """Return what another process, which hashes in its own way, says of every episode."""
    process = subprocess.run(
        [sys.executable, "-m", "proctor", "replay", str(folder), "--json"],
        env={**os.environ, "PYTHONHASHSEED": "random"},
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert process.stderr == b""
    found = [msgspec.json.decode(line) for line in process.stdout.splitlines()]
    assert process.returncode == (0 if all(each["identical"] for each in found) else 1)
    return found


def differing_digests(folder: Path) -> int:
    """Return how many observations have another digest than the record says."""
    differing = 0
    with Ledger.open(folder) as ledger:
        for episode in ledger.episodes():
            rows = list(ledger.rows(episode.chain))
            opened = rows[0].event
            assert isinstance(opened, SessionOpened)
            for each in replay_rows(opened, rows):
                assert isinstance(each.found, EnvOutput)
                differing += sha256(each.found.observation).hexdigest() != each.row.digest
    return differing


SLOWLY = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.mark.parametrize("episodes", [QUICK, pytest.param(MOST, marks=SLOWLY)])
def test_episodes_of_every_kind_replay_in_another_process(tmp_path: Path, episodes: int) -> None:
    half = episodes // 2
    folder = record(tmp_path / "ledger", *sittings(searches(), half, 1), *sittings(games(), half, 3))

    found = replayed_elsewhere(folder)

    assert len(found) == episodes
    assert [each for each in found if not each["identical"]] == []
    assert {each["environment"] for each in found} == {PLUME, POPPER}


@pytest.mark.parametrize(
    ("each", "observations"), [(8, "all"), pytest.param(MOST // 2, "digest", marks=SLOWLY)], ids=["few", "many"]
)
def test_not_one_digest_differs(tmp_path: Path, each: int, observations: str) -> None:
    kinds = (*sittings(searches(), each, 1), *sittings(games(), each, 1))

    assert differing_digests(record(tmp_path / "ledger", *kinds, observations=observations)) == 0
