"""Openers that need a process of its own for each number: imports, the first step, memory.

Rule 1: these probes measure one whole event and do not look at the seconds that they are given.
Rule 2: a fresh process runs no `.pth` file (`python -S`, with our search path). An installed Proctor has one, which
    would import it before the clock runs, and would register our ids in the anchors' processes at their cost.
Rule 3: a module that is loaded before the clock runs is an error, never a fast import.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.measure import Gap, Probe
from bench.row import Opener

ROOT: Final = Path(__file__).resolve().parent.parent
LIMIT: Final = 300.0

_IMPORT = """
import sys, time
if "{module}" in sys.modules: sys.exit("{module} was loaded before the clock ran")
begun = time.process_time()
import {module}
print(time.process_time() - begun)
"""


def import_cpu(module: str) -> Opener:
    """CPU seconds that `import module` takes in a fresh interpreter."""

    def opened(_: ExitStack) -> Probe:
        return lambda _seconds: float(printed(["-c", _IMPORT.format(module=module)]))

    return opened


def first_step(kind: str, env_id: str, count: int = 1) -> Opener:
    """Wall seconds from the start of a fresh process to the end of its first step; kinds as in `bench.footprint`."""

    def opened(_: ExitStack) -> Probe:
        def probe(_seconds: float) -> float:
            begun = time.perf_counter()
            printed(["-m", "bench.footprint", "step", kind, env_id, str(count)])
            return time.perf_counter() - begun

        return probe

    return opened


def bytes_each(kind: str, env_id: str, count: int) -> Opener:
    """Resident bytes that each of `count` environments adds to a fresh process."""

    def opened(_: ExitStack) -> Probe:
        if not Path("/proc/self/statm").exists():
            raise Gap("resident memory is read from /proc, which this system lacks")
        return lambda _seconds: float(printed(["-m", "bench.footprint", "bytes", kind, env_id, str(count)]))

    return opened


def printed(arguments: Sequence[str]) -> str:
    """Return the last line that a fresh Python prints; one that fails is an error with its last line."""
    answer = subprocess.run(
        [sys.executable, "-S", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )
    lines = (answer.stdout if answer.returncode == 0 else answer.stderr).strip().splitlines() or [""]
    if answer.returncode != 0:
        raise ChildProcessError(f"a fresh process failed: {lines[-1]}")
    return lines[-1]
