"""The MCP conformance suite against a server that is made of the same classes as the agent plane."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.programs import node, run

pytestmark = pytest.mark.system

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FEWEST = 30
"""Scenarios that the suite's default run has; fewer would mean that it skipped some."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The server that has all that the suite asks for."""
    command = [sys.executable, "-m", "tests.system.conformance_server"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        assert address.startswith("http://"), "the server did not start"
        yield address
        server.communicate("")
    assert server.returncode == 0


def test_every_scenario_of_the_default_run_passes(address: str, tmp_path: Path) -> None:
    expected = ["--expected-failures", str(HERE / "conformance_failures.yml")]

    ended = run([*node("conformance"), "server", "--url", address, *expected], tmp_path)

    rows = re.findall(r"^(\S) ([\w-]+): (\d+) passed, (\d+) failed", ended.stdout, re.MULTILINE)
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-2000:]
    assert len(rows) >= FEWEST
    assert {name: failed for _, name, _, failed in rows if failed != "0"} == {}
    assert all(int(passed) for _, _, passed, _ in rows)


def test_each_expected_failure_has_its_reason() -> None:
    lines = (HERE / "conformance_failures.yml").read_text().splitlines()

    entries = [number for number, line in enumerate(lines) if line.lstrip().startswith("- ")]
    assert all(lines[number - 1].lstrip().startswith("#") for number in entries)
