"""An episode on one line of the list."""

import time
from pathlib import Path
from typing import Any

import pytest

from proctor.ledger.reader import Ledger
from proctor.models.events import Event
from proctor.viewer.catalog import EpisodeCatalog
from proctor.viewer.documents import EpisodeLine
from tests.ledger.session_events import (
    NOON,
    batch_reset,
    batch_step,
    closed,
    failure,
    left,
    opened,
    reset,
    step,
    written,
)
from tests.viewer.ledgers import governed_episode, plume_episode


def line_of(path: Path, chain: str = "s.1") -> EpisodeLine:
    shelf = EpisodeCatalog(path)
    try:
        return next(line for line in shelf.lines() if line.chain == chain)
    finally:
        shelf.close()


@pytest.mark.parametrize(
    ("rest", "state", "outcome", "reason"),
    [
        ([], "ready", None, ""),
        ([step(terminated=True)], "terminated", "terminated", ""),
        ([step(truncated=True)], "truncated", "truncated", ""),
        ([step(truncated=True, terminated=True)], "terminated", "terminated", ""),
        ([failure(epoch=1)], "ready", None, ""),
        ([failure(epoch=1, lost=True)], "lost", None, ""),
        ([closed(reason="lost")], "lost", None, "lost"),
        ([closed()], "closed", None, "closed"),
        ([step(terminated=True), closed(steps=1, reason="reset")], "terminated", "terminated", "reset"),
        ([left()], "closed", None, None),
    ],
)
def test_a_free_episode_is_where_its_environment_is(
    tmp_path: Path, rest: list[Event], state: str, outcome: str | None, reason: str | None
) -> None:
    line = line_of(written(tmp_path, [opened(), reset(), *rest]))

    assert (line.state, line.outcome, line.reason) == (state, outcome, reason)


@pytest.mark.parametrize(
    ("rest", "state", "outcome"),
    [
        ([], "S0_IDLE", "open"),
        ([step(terminated=True)], "S0_IDLE", "open"),
        ([closed(outcome="violated", state="S3_DECIDE")], "S3_DECIDE", "violated"),
    ],
)
def test_a_governed_episode_is_where_its_machine_is(
    tmp_path: Path, rest: list[Event], state: str, outcome: str
) -> None:
    line = line_of(written(tmp_path, [opened(policy={"name": "p"}), reset(), *rest]))

    assert (line.governed, line.state, line.outcome) == (True, state, outcome)


def test_a_line_says_what_the_ledgers_own_list_says(tmp_path: Path) -> None:
    chains = [plume_episode(tmp_path, 20), governed_episode(tmp_path)]
    same = ("chain", "session", "epoch", "episode_id", "environment", "agent", "steps", "total_reward", "refusals")
    more = (
        "tier",
        "opened_at",
        "closed_at",
        "reason",
        "governed",
        "num_envs",
        "seed",
        "terminated",
        "truncated",
        "rows",
    )

    for chain in chains:
        line = line_of(tmp_path, chain)
        with Ledger.open(tmp_path) as ledger:
            told = ledger.find(chain)
            rows = list(ledger.rows(chain))

        assert [getattr(line, name) for name in same + more] == [getattr(told, name) for name in same + more]
        last: Any = rows[-1]
        assert (line.last, line.last_at) == (last.number, last.event.at)


def test_a_batch_has_no_return(tmp_path: Path) -> None:
    line = line_of(written(tmp_path, [opened(num_envs=2), batch_reset(), batch_step()]))

    assert (line.num_envs, line.total_reward, line.steps, line.state) == (2, None, 1, "ready")


def test_what_no_server_writes_any_more_is_not_live(tmp_path: Path) -> None:
    path = written(tmp_path, [opened(), reset(at=time.time())])

    assert not line_of(path).live
    assert line_of(path).closed_at is None
    assert line_of(path).opened_at > NOON


def test_a_governed_episode_that_was_lost_is_lost(tmp_path: Path) -> None:
    policy = {"name": "p"}
    closed_as_lost = line_of(written(tmp_path / "one", [opened(policy=policy), reset(), closed(reason="lost")]))
    failed = line_of(written(tmp_path / "two", [opened(policy=policy), reset(), failure(epoch=1, lost=True)]))

    assert (closed_as_lost.state, failed.state) == ("lost", "lost")


@pytest.mark.parametrize(("seed", "said"), [(7, 7), (2**53, 2**53), (2**53 + 1, str(2**53 + 1)), (None, None)])
def test_a_seed_that_a_browser_would_round_is_a_text(tmp_path: Path, seed: int | None, said: int | str | None) -> None:
    line = line_of(written(tmp_path, [opened(), reset(seed=seed)]))

    assert line.seed == said
    assert type(line.seed) is type(said)
