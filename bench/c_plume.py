"""The C loop of `anchor.c`, compiled on the spot, and its arrays: the batched plume search as a C programmer has it.

Rule 1: nothing of ours runs while it is measured; Proctor only says what the default environment is made of.
Rule 2: a machine without a compiler is a Gap with its reason.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bench.measure import Gap
from proctor.contracts.spatial import GridSize
from proctor.envs.plume.config import ComponentKind
from proctor.envs.plume.env import PlumeSearchEnv, start_cells

SOURCE: Final = Path(__file__).with_name("anchor.c")
FLAGS: Final = ("-O3", "-march=native", "-fPIC", "-shared", "-fno-math-errno")

Actions = NDArray[np.int64]

_INT32 = np.dtype(np.int32)
_INT64 = np.dtype(np.int64)
_FLOAT32 = np.dtype(np.float32)
_FLOAT64 = np.dtype(np.float64)
_UINT8 = np.dtype(np.uint8)

# The fields of `plume_t` in its order: numbers by their C type, arrays by their dtype.
NUMBERS: Final[dict[str, Any]] = {
    "n": ctypes.c_int64,
    "width": ctypes.c_int32,
    "height": ctypes.c_int32,
    "source_x": ctypes.c_int32,
    "source_y": ctypes.c_int32,
    "max_steps": ctypes.c_int32,
    "moves": ctypes.c_int32,
    "goal_radius": ctypes.c_double,
}
TABLES: Final[dict[str, np.dtype[Any]]] = {
    "move_x": _INT32,
    "move_y": _INT32,
    "along_x": _FLOAT64,
    "along_y": _FLOAT64,
    "before": _INT64,
    "skip_from": _INT64,
    "skip_to": _INT64,
}
STATE: Final[dict[str, np.dtype[Any]]] = {
    "root_seed": _INT64,
    "episode": _INT64,
    "seed": _INT64,
    "x": _INT32,
    "y": _INT32,
    "steps": _INT32,
    "total": _FLOAT64,
    "reward": _FLOAT64,
    "distance": _FLOAT64,
    "observation": _FLOAT32,
    "terminated": _UINT8,
    "truncated": _UINT8,
    "done": _UINT8,
    "ended": _INT32,
}


class _Plume(ctypes.Structure):
    """`plume_t` of anchor.c."""

    _fields_ = [*NUMBERS.items(), *((name, ctypes.c_void_p) for name in (*TABLES, *STATE))]


def compiler() -> str:
    """Return the system's C compiler (`CC`, or cc), or raise a Gap."""
    named = os.environ.get("CC") or "cc"
    found = shutil.which(named)
    if found is None:
        raise Gap(f"no C compiler: {named} is not installed")
    return found


def compiler_version() -> str | None:
    """Return the compiler's first line about itself, or None without a compiler."""
    try:
        answer = subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=True, timeout=60)
    except (Gap, OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.partition("\n")[0].strip() or None


def compiled(stack: ExitStack) -> ctypes.CDLL:
    """Return the library of anchor.c; its file goes when `stack` closes."""
    library = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "anchor.so"
    command = [compiler(), *FLAGS, str(SOURCE), "-o", str(library), "-lm"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if answer.returncode != 0:
        errors = [line.partition("error: ")[2] for line in answer.stderr.splitlines() if "error: " in line]
        raise Gap(f"the C compiler failed: {errors[0] if errors else f'code {answer.returncode}'}")
    loaded = ctypes.CDLL(str(library))
    loaded.plume_reset.argtypes = [ctypes.c_void_p]
    loaded.plume_reset.restype = None
    loaded.plume_steps.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
    loaded.plume_steps.restype = None
    return loaded


@dataclass(frozen=True, slots=True)
class Layout:
    """What the loop must know of an environment: plain numbers and tables."""

    numbers: dict[str, float]
    tables: dict[str, NDArray[Any]]

    @classmethod
    def of(cls, env: PlumeSearchEnv) -> Layout:
        """Return the layout of a single environment with a Gaussian plume and moves that ignore the heading."""
        grid: GridSize = env.grid_size
        source = env.source_location
        plume = env.components[ComponentKind.PLUME]
        moves = env.components[ComponentKind.ACTION].moves
        if len(moves) > 4 or any(not -128 <= cells <= 127 for move in moves for cells in move):
            raise ValueError(f"the C loop knows at most four moves of one byte each, not {moves}")
        cells = start_cells(grid, source, env.goal_radius)
        numbers = {
            "width": grid.width,
            "height": grid.height,
            "source_x": source.x,
            "source_y": source.y,
            "max_steps": env.max_steps,
            "moves": len(moves),
            "goal_radius": env.goal_radius,
        }
        values = {
            "move_x": [dx for dx, _ in moves],
            "move_y": [dy for _, dy in moves],
            "along_x": plume.along_x,
            "along_y": plume.along_y,
            "before": cells.before,
            "skip_from": cells.skip_from,
            "skip_to": cells.skip_to,
        }
        return cls(numbers, {name: np.array(values[name], dtype) for name, dtype in TABLES.items()})


class CPlume:
    """N environments driven by the C loop; `state` holds its arrays by name, all overwritten in place."""

    def __init__(self, library: ctypes.CDLL, layout: Layout, num_envs: int) -> None:
        self.num_envs: Final = num_envs
        self.state: Final = {name: np.zeros(num_envs, dtype) for name, dtype in STATE.items()}
        self._library: Final = library
        self._arrays: Final = {**layout.tables, **self.state}
        self._plume: Final = _Plume(
            n=num_envs, **layout.numbers, **{name: array.ctypes.data for name, array in self._arrays.items()}
        )

    def reset(self, seed: int) -> None:
        """Begin environment i with `seed + i`."""
        self.state["root_seed"][:] = np.arange(seed, seed + self.num_envs)
        self._library.plume_reset(ctypes.byref(self._plume))

    def run(self, actions: Actions) -> None:
        """Make as many steps as `actions`, int64 of shape (steps, num_envs), has rows."""
        if actions.dtype != np.int64 or not actions.flags.c_contiguous or actions.shape[1:] != (self.num_envs,):
            raise ValueError(f"actions must be a contiguous int64 array of shape (steps, {self.num_envs})")
        self._library.plume_steps(ctypes.byref(self._plume), len(actions), actions.ctypes.data)
