"""A server that is killed at random instants, under load, loses nothing that it has acknowledged and does nothing twice.

`PROCTOR_KILLS=500` kills it as often as one likes; the seed of a run that failed is in its message.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from pathlib import Path

import pytest

from tests.system.killing import Audit, Load, Mix, Victim, audited, killed, many

pytestmark = pytest.mark.system


def survived(home: Path, target: str, times: int, mix: Mix, *arguments: str) -> tuple[Load, Audit]:
    """Return what clients were told and what the ledger says, after so many kills."""
    seed = secrets.randbits(32)
    victim = Victim(home, target, *arguments)
    try:
        load = asyncio.run(killed(victim, times, mix, random.Random(seed)))
    finally:
        victim.clean_up()
    audit = audited(victim.ledger, load)
    print(f"{victim.kills} kills, seed {seed}: {audit}")
    assert audit.problems == [], f"seed {seed}"
    return load, audit


@pytest.mark.timeout(3600)
def test_nothing_acknowledged_is_lost_and_nothing_is_done_twice(tmp_path: Path) -> None:
    load, audit = survived(tmp_path, "proctor/PlumeSearch-v0", many() * 4 // 5, Mix(), "--sandbox", "none")

    assert not [episode.lost for episode in load.episodes.values() if episode.lost is not None]
    assert audit.resumed > 0
    assert sum(sum(calls.values()) for calls in load.agents.values()) > 0


@pytest.mark.timeout(3600)
def test_environments_in_a_sandbox_survive_as_well(tmp_path: Path) -> None:
    mix = Mix(singles=26, batches=4, agents=2, moves=30)
    load, audit = survived(tmp_path, "proctor/PlumeSearch-v0", max(1, many() // 12), mix, "--sandbox", "bwrap")

    assert not [episode.lost for episode in load.episodes.values() if episode.lost is not None]
    assert audit.resumed > 0


@pytest.mark.timeout(3600)
def test_what_cannot_be_done_again_is_honestly_lost(tmp_path: Path) -> None:
    mix = Mix(singles=64, batches=0, agents=0, moves=60)
    target = "tests.system.moody:Moody"
    load, audit = survived(tmp_path, target, max(2, many() // 8), mix, "--sandbox", "none")

    lost = [episode for episode in load.episodes.values() if episode.lost is not None]
    assert lost
    assert all(episode.seed % 4 == 0 for episode in lost)
    assert all("came out differently" in why or "had not begun" in why for why in audit.lost)
