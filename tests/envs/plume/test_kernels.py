"""The kernels run as plain Python give the same as compiled: what is tested is what is compiled."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from proctor.contracts import chance
from proctor.envs import compiled_chance
from proctor.envs.plume import kernels, puff_kernels, sensor_kernels
from tests.envs.plume.mirror import Mirror

MODULES = (compiled_chance, kernels, puff_kernels, sensor_kernels)


def _with_attributes(argument: Any) -> Any:
    """Return a structured array so that its records have attributes, as they have in compiled code."""
    structured = isinstance(argument, np.ndarray) and argument.dtype.names is not None
    return argument.view(np.recarray) if structured else argument


def _interpreted(kernel: Any) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        with np.errstate(over="ignore"):  # integers wrap around silently in compiled code
            return kernel.py_func(*map(_with_attributes, arguments))

    return call


@contextmanager
def _without_compiler() -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    replaced: dict[int, Callable[..., Any]] = {}
    for module in MODULES:
        for name, value in vars(module).items():
            if hasattr(value, "py_func"):
                patch.setattr(module, name, replaced.setdefault(id(value), _interpreted(value)))
    try:
        yield
    finally:
        patch.undo()


CASES: list[dict[str, Any]] = [
    {"observation": "concentration"},
    {"action": "oriented_grid", "observation": "antennae", "reward": "shaped", "plume": "advected"},
    {
        "action": "eight_direction",
        "reward": "step_penalty",
        "plume": {"type": "puffs", "warm_up": 4, "lifetime": 9},
        "observation": {"type": "dict", "sensors": {"p": "poisson_hits", "b": "binary_hit", "w": "wind"}},
    },
]


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("config", CASES)
def test_interpreted_kernels_mirror_the_single_environment(config: dict[str, Any], mode: AutoresetMode) -> None:
    rng = np.random.default_rng(2)
    with _without_compiler():
        mirror = Mirror({"grid_size": (5, 6), "max_steps": 5, "config": config}, 3, mode)
        mirror.reset(seed=9)
        for _ in range(12):
            mirror.step(rng.integers(0, int(mirror.batch.single_action_space.n), 3))

    assert mirror.episodes > 3


def test_an_interpreted_kernel_finds_the_first_illegal_action() -> None:
    find = kernels.first_illegal.py_func

    assert find(np.array([0, 3, 2]), 4) == -1
    assert find(np.array([0, 4, -1]), 4) == 1
    assert find(np.array([0, 0, -1]), 4) == 2


def test_an_illegal_action_stops_an_interpreted_step() -> None:
    with _without_compiler():
        mirror = Mirror({"grid_size": (5, 6)}, 2, AutoresetMode.NEXT_STEP)
        mirror.reset(seed=1)

        with pytest.raises(ValueError, match="sub-environment 1"):
            mirror.batch.step(np.array([0, 7]))


def test_no_kernel_is_left_out_of_the_interpreted_run() -> None:
    kernels_found = {
        value.py_func.__name__ for module in MODULES for value in vars(module).values() if hasattr(value, "py_func")
    }

    assert {"step", "start", "restart", "begin", "advance", "smell_puffs", "poisson_hits", "draw"} <= kernels_found
    assert isinstance(chance, ModuleType)
