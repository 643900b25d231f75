"""Where other people's programs are, and how to run them: each in an environment of its own, which `make` makes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

LIMIT = 120
MADE_BY = "make test-system"


def venv_python(variable: str) -> str:
    """Return the interpreter of the virtual environment that a variable names."""
    return str(_existing(variable, Path("bin", "python")))


def node(*program: str) -> list[str]:
    """Return the beginning of a command that runs node, with a program of npm's if one is named."""
    return [str(_existing("PROCTOR_NODE", Path("node_modules", ".bin", name))) for name in ("node", *program)]


def _existing(variable: str, inside: Path) -> Path:
    folder = os.environ.get(variable)
    assert folder, f"{variable} names no folder: run this test with `{MADE_BY}`, which makes what it needs"
    path = Path(folder) / inside
    assert path.exists(), f"there is no {inside} in {folder} ({variable}): run this test with `{MADE_BY}`"
    return path


def run(command: list[str], home: Path) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; what it wants to remember it finds a folder for in `home`."""
    variables = {**os.environ, "HOME": str(home)}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT, env=variables, cwd=home)
