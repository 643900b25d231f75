"""The distribution as users install it: the core alone, beside other people's libraries, and what it says without an extra."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest

pytestmark = pytest.mark.system
ROOT = Path(__file__).parents[2]
PATIENCE = 600
NEIGHBOURS = ("openenv==0.10.0", "verifiers==0.4.0", "ray[rllib]==2.60.0")
SERVER_PACKAGES = ("starlette", "uvicorn", "uvloop", "httptools", "mcp", "anyio", "prometheus_client", "cryptography")
EPISODE = """
import gymnasium
env = gymnasium.make("proctor/PlumeSearch-v0")
env.reset(seed=1)
env.step(1)
import proctor.client
import importlib.util
print([name for name in {packages!r} if importlib.util.find_spec(name)])
"""


def run(*command: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=PATIENCE, check=False, cwd="/"
    )
    assert not check or done.returncode == 0, done.stderr[-2000:]
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    (found,) = folder.glob("proctor_rl-*.whl")
    return found


@pytest.fixture(scope="module")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment in which nothing is installed but the core."""
    folder = tmp_path_factory.mktemp("core")
    venv.create(folder, with_pip=True)
    run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", wheel)
    return folder / "bin"


def test_the_core_makes_environments_and_clients_without_the_packages_of_the_server(core: Path) -> None:
    done = run(core / "python", "-c", EPISODE.format(packages=SERVER_PACKAGES))

    assert done.stdout.strip() == "[]"
    assert run(core / "python", "-m", "pip", "check").returncode == 0


@pytest.mark.parametrize("command", [["serve", "proctor/PlumeSearch-v0"], ["demo"]], ids=" ".join)
def test_a_command_of_the_server_names_the_extra_that_brings_it(core: Path, command: list[str]) -> None:
    done = run(core / "proctor", *command, check=False)

    assert done.returncode == 2
    assert "pip install 'proctor-rl[serve]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_commands_of_the_core_run_without_an_extra(core: Path) -> None:
    assert "proctor/PlumeSearch-v0" in run(core / "proctor", "envs").stdout
    assert run(core / "proctor", "run", "proctor/PlumeSearch-v0", "--episodes", "2").returncode == 0


@pytest.mark.parametrize("neighbour", NEIGHBOURS)
def test_the_core_installs_beside(neighbour: str, wheel: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--dry-run",
        "--ignore-installed",
        "--report",
        report,
    ]

    run(*pip, wheel, neighbour)

    chosen = {each["metadata"]["name"].lower() for each in json.loads(report.read_text("utf-8"))["install"]}
    assert {"proctor-rl", neighbour.partition("==")[0].partition("[")[0]} <= chosen
