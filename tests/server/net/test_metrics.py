"""What the server counts adds up, in one process and over several."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from proctor.models.control import Code
from proctor.server.net.metrics import BUCKETS, FOLDER, Metrics

ROOT = Path(__file__).resolve().parents[3]
CODES = st.sampled_from(list(Code))


def samples(page: bytes) -> dict[str, float]:
    """Return what a page says, each by its name and labels."""
    families = text_string_to_metric_families(page.decode())
    return {
        sample.name + "".join(f"[{value}]" for value in sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


METHODS = {
    "stepped": "count_steps",
    "opened": "count_session",
    "ended": "count_session_end",
    "refused": "count_error",
    "turned_away": "count_refusal",
    "connected": "count_connection",
}
ACTS = st.one_of(
    st.tuples(st.just("stepped"), st.floats(0, 100), st.integers(1, 4096)),
    st.tuples(st.just("opened")),
    st.tuples(st.just("ended"), st.sampled_from(["closed", "idle", "shutdown"])),
    st.tuples(st.just("refused"), CODES),
    st.tuples(st.just("turned_away"), st.sampled_from([401, 403])),
    st.tuples(st.just("connected"), st.sampled_from([1, -1])),
)


@given(st.lists(ACTS, max_size=30))
def test_everything_is_counted_once(acts: list[tuple[Any, ...]]) -> None:
    metrics, expected = Metrics(), Counter[str]()

    for name, *values in acts:
        getattr(metrics, METHODS[name])(*values)
        if name == "stepped":
            expected["proctor_steps_total"] += values[1]
            expected["proctor_step_seconds_count"] += 1
        else:
            expected[f"proctor_{name}{''.join(f'[{value}]' for value in values if name != 'connected')}"] += (
                values[0] if name == "connected" else 1
            )

    found = samples(metrics.page())
    assert found["proctor_steps_total"] == expected["proctor_steps_total"]
    assert found["proctor_step_seconds_count"] == expected["proctor_step_seconds_count"]
    assert found["proctor_sessions_opened_total"] == expected["proctor_opened"]
    assert found["proctor_connections"] == expected["proctor_connected"]
    for reason in ("closed", "idle", "shutdown"):
        assert found.get(f"proctor_sessions_ended_total[{reason}]", 0) == expected[f"proctor_ended[{reason}]"]
    for code in Code:
        assert found.get(f"proctor_errors_total[{code}]", 0) == expected[f"proctor_refused[{code}]"]
    for status in (401, 403):
        assert found.get(f"proctor_refused_total[{status}]", 0) == expected[f"proctor_turned_away[{status}]"]


def test_how_full_it_is_is_the_last_that_was_noted() -> None:
    metrics = Metrics()

    metrics.note(sessions=5, waiting=4, pending=3)
    metrics.note(sessions=2, waiting=1, pending=0)

    found = samples(metrics.page())
    assert (found["proctor_sessions"], found["proctor_waiting"], found["proctor_pending_requests"]) == (2, 1, 0)


def test_a_step_falls_into_the_bucket_of_its_time() -> None:
    metrics = Metrics()

    metrics.count_steps(0.0003, 1)

    found = samples(metrics.page())
    within = {bound: found[f"proctor_step_seconds_bucket[{bound}]"] for bound in BUCKETS}
    assert [bound for bound, count in within.items() if count == 0] == [bound for bound in BUCKETS if bound < 0.0003]


def test_two_servers_in_one_process_count_apart() -> None:
    first, second = Metrics(), Metrics()

    first.count_session()

    assert samples(first.page())["proctor_sessions_opened_total"] == 1
    assert samples(second.page())["proctor_sessions_opened_total"] == 0


def test_with_several_workers_a_page_has_only_what_they_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Metrics()
    metrics.count_session()

    monkeypatch.setenv(FOLDER, str(tmp_path))

    assert samples(metrics.page()) == {}


WORKER = """
import json, sys
from proctor.server.net.metrics import Metrics
from tests.server.net.test_metrics import samples
metrics = Metrics()
metrics.count_session()
metrics.count_steps(0.001, int(sys.argv[1]))
metrics.note(sessions=1, waiting=0, pending=0)
metrics.count_error("BUSY")
print(json.dumps(samples(metrics.page())), flush=True)
sys.stdin.readline()
"""


def test_the_counts_of_several_workers_are_summed(tmp_path: Path) -> None:
    environment = {**os.environ, FOLDER: str(tmp_path)}
    command = [sys.executable, "-c", WORKER]

    def worker(steps: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*command, str(steps)], env=environment, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    with worker(3) as first:
        assert first.stdout is not None
        alone = json.loads(first.stdout.readline())
        with worker(4) as second:
            both = json.loads(second.communicate("\n", timeout=300)[0])
        first.communicate("\n", timeout=300)

    assert (alone["proctor_steps_total"], both["proctor_steps_total"]) == (3, 7)
    assert (alone["proctor_sessions"], both["proctor_sessions"]) == (1, 2)
    assert both["proctor_sessions_opened_total"] == 2
    assert both["proctor_step_seconds_count"] == 2
    assert both["proctor_errors_total[BUSY]"] == 2
