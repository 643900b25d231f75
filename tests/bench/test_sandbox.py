"""The sandbox's rows: workers and whole processes are started and measured by the same code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import sandbox_processes as processes
from bench.control_servers import ours
from bench.measure import Gap
from bench.row import Better, Opener
from bench.rows import sandbox as rows
from bench.rows.sandbox import in_tier
from bench.sandbox_processes import (
    alone,
    descendants,
    enforced,
    median_of,
    process_memory,
    process_start,
    share_of,
    shares,
    worker_memory,
    worker_start,
)
from proctor.server.sandbox.tiers import Tier

INNER = """sh -c 'echo $$; read x'; :"""


@pytest.fixture
def lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "gap_of", lambda tier: f"{tier} cannot be had here")


def counting(step: float) -> Callable[[], float]:
    ticks = count()
    return lambda: step * next(ticks)


@pytest.mark.usefixtures("lacking")
@pytest.mark.parametrize("opener", [in_tier(Tier.STRICT), worker_start(Tier.STRICT), worker_memory(Tier.STRICT)])
def test_a_tier_that_this_host_does_not_enforce_is_a_named_gap(opener: Opener) -> None:
    with ExitStack() as stack, pytest.raises(Gap, match="strict cannot be had here"):
        opener(stack)


def test_a_tier_that_this_host_enforces_is_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "gap_of", lambda _tier: None)

    enforced(Tier.STRICT)


@given(step=st.floats(0.001, 10.0), seconds=st.floats(0.0, 20.0))
def test_a_median_is_of_a_few_at_least_and_of_no_more_than_there_is_time_for(step: float, seconds: float) -> None:
    taken: list[float] = []

    def once() -> float:
        taken.append(float(len(taken)))
        return taken[-1]

    found = median_of(once, seconds, clock=counting(step))

    assert found == median(taken)
    assert len(taken) == processes.FEWEST or len(taken) * step < seconds
    assert len(taken) >= processes.FEWEST


def test_the_processes_below_this_one_are_found_and_weighed() -> None:
    # A shell that waits for another one, which says its number and waits for us.
    with subprocess.Popen(["sh", "-c", INNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        grandchild = int((child.stdout or sys.stdin).readline())
        found, part, whole = set(descendants()), share_of(grandchild), shares()

    assert {child.pid, grandchild} <= found
    assert 0 < part < whole
    assert share_of(grandchild) == 0
    assert grandchild not in descendants()


def test_a_system_that_does_not_tell_of_memory_is_a_gap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(processes, "PROC", tmp_path)

    with pytest.raises(Gap, match="/proc"):
        shares()


def test_a_process_is_below_itself_only_through_its_children() -> None:
    assert os.getpid() not in descendants()


def test_a_whole_process_says_when_its_environment_is_made() -> None:
    with ExitStack() as stack:
        alone(stack, "stepped")

        assert shares() > 2**20


def test_a_whole_process_that_does_not_come_up_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "TARGET", "no.such.module:Nothing")

    with ExitStack() as stack, pytest.raises(ChildProcessError, match="did not come up"):
        alone(stack, "made")


def test_a_server_is_started_in_the_tier_that_is_asked_for() -> None:
    assert list(map(str, ours("CartPole-v1", sandbox="strict").command())).count("strict") == 1
    assert "strict" not in ours("CartPole-v1").command()


def test_every_row_says_how_it_was_isolated_and_recorded() -> None:
    assert {(row.tier, row.durability) for row in rows.ROWS} == {("strict", "none")}
    assert all((row.better is Better.LOWER) == ("steps" not in row.name) for row in rows.ROWS)


def test_the_goal_is_the_one_that_was_set() -> None:
    goals = {row.name: str(row.goal) for row in rows.ROWS if row.goal is not None}

    assert goals == {"sandbox.steps64/in-process": "ratio >= 0.5"}


@pytest.mark.system
@pytest.mark.parametrize(
    "opener", [worker_start(Tier.STRICT), worker_memory(Tier.STRICT), process_start(), process_memory()]
)
def test_every_start_and_every_memory_is_a_number(opener: Opener) -> None:
    with ExitStack() as stack:
        assert opener(stack)(0.01) > 0.0


@pytest.mark.system
@pytest.mark.parametrize("tier", [Tier.NONE, Tier.STRICT])
def test_steps_are_measured_in_every_tier(tier: Tier) -> None:
    with ExitStack() as stack:
        assert in_tier(tier, "3", "shared")(stack)(0.1) > 0.0
