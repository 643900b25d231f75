"""What docs/column-popper.md says of rewards is what the presets are and what examples/reward_presets.py computes."""

import importlib.util
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from proctor.envs.popper.rewards import PARTS, PRESETS

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/reward_presets.py"
PAGE = (ROOT / "docs/column-popper.md").read_text("utf-8")


@pytest.fixture(scope="module")
def example() -> Any:
    spec = importlib.util.spec_from_file_location("reward_presets", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def figures() -> list[str]:
    """Return the lines of the page between the markers."""
    found = re.search(r"<!-- reward figures -->\n(.*?)\n<!-- end -->", PAGE, re.DOTALL)
    assert found is not None
    return found[1].splitlines()


def numbers(line: str) -> list[float]:
    return [float(cell) for cell in line.strip("| ").split(" | ")[1:]]


def test_the_toggler_is_paid_by_the_contract_alone(example: Any) -> None:
    score, contract, pops, dense = numbers(example.row("toggler", 3))

    assert (score, contract) == (0.0, 296.0)
    assert pops < 0
    assert dense < 0


def test_the_page_states_the_figures_of_the_toggler_as_they_are(example: Any) -> None:
    assert example.row("toggler", 2) in figures()


@pytest.mark.slow
def test_the_page_has_the_lines_that_the_example_prints() -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLE), "--episodes", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    assert figures()[:2] == printed[:2]
    assert [line.split(" | ")[0] for line in figures()] == [line.split(" | ")[0] for line in printed]
    assert done.stderr == ""


@pytest.mark.parametrize("part", PARTS)
def test_the_page_states_the_weights_of_the_presets(part: str) -> None:
    line = re.search(rf"^\| `{part}` \| [^|]+ \| (.+) \|$", PAGE, re.MULTILINE)

    assert line is not None
    assert [float(cell) for cell in line[1].split(" | ")] == [asdict(preset)[part] for preset in PRESETS.values()]
