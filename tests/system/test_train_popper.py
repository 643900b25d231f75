"""The training example runs from start to finish, and its learner sees what an agent may know."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

pytestmark = pytest.mark.system

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/train_popper.py"


@pytest.fixture(scope="module")
def example() -> Any:
    spec = importlib.util.spec_from_file_location("train_popper", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(folder: Path, *arguments: str) -> str:
    """Return what the example prints."""
    command = [sys.executable, "-W", "error", str(EXAMPLE), "--games", "6", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows(printed: str) -> list[tuple[str, str, str]]:
    """Return name, mean and lower bound of each line of the table."""
    return re.findall(r"(trained, \w+ action|greedy|search)\W+([\d.]+)\W+([\d.]+) to", printed)


def test_a_short_run_leaves_a_model_a_curve_and_a_comparison(tmp_path: Path) -> None:
    trained = run(tmp_path, "--steps", "4096", "--envs", "32", "--out", "here")
    judged = run(tmp_path, "--evaluate", "here/model.zip")

    assert (tmp_path / "here/curve.png").read_bytes().startswith(b"\x89PNG")
    assert [name.split(",")[0] for name, _, _ in rows(trained)] == ["trained", "greedy", "search"]
    # The same model, the same seeds: the same figures.
    assert rows(judged) == rows(trained)


def test_the_learner_remembers_the_column_that_it_picked_from(example: Any) -> None:
    env = example.games(5)
    env.seed(3)
    env.reset()
    twins = [gym.make(example.GAME) for _ in range(5)]
    for i, twin in enumerate(twins):
        twin.reset(seed=3 + i)
    rng = np.random.default_rng(1)

    for _ in range(60):
        actions = rng.choice(4, 5, p=[0.3, 0.3, 0.3, 0.1])
        dones = env.step(actions)[2]
        scenes: list[Any] = []
        for twin, action in zip(twins, actions, strict=True):
            twin.step(action)
            scenes.append(twin.unwrapped.scene())  # type: ignore[attr-defined]
        held = [scene["frame"]["held"] for scene in scenes]
        assert not dones.any()
        assert env.held.tolist() == [-1 if column is None else column for column in held]


def test_boards_that_differ_in_names_alone_look_the_same(example: Any) -> None:
    env = example.games(2)
    rng = np.random.default_rng(0)
    board = np.zeros((1, 12, 3), np.int32)
    for column, length in enumerate((12, 5, 0)):
        board[0, :length, column] = rng.integers(1, 4, length)
    renamed = np.array([0, 3, 1, 2])[board]
    held = np.array([1])

    assert np.array_equal(env.features(board, held), env.features(renamed, held))
    assert not np.array_equal(env.features(board, held), env.features(board[:, :, ::-1], held))
    assert env.features(board, held).sum() == 12 + 5 + 3 + 1
