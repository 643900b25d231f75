"""The kernels run as plain Python give the same as compiled: what is tested is what is compiled."""

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from proctor.envs.plume.vector import kernels
from proctor.envs.vector import kernels as shared_kernels
from tests.envs.interpreted import without_compiler
from tests.envs.plume.mirror import Mirror

MODULES = (shared_kernels, kernels)


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
    with without_compiler(MODULES):
        mirror = Mirror({"grid_size": (5, 6), "max_steps": 5, "config": config}, 3, mode)
        mirror.reset(seed=9)
        for _ in range(12):
            mirror.step(rng.integers(0, int(mirror.batch.single_action_space.n), 3))

    assert mirror.episodes > 3


def test_an_illegal_action_stops_an_interpreted_step() -> None:
    with without_compiler(MODULES):
        mirror = Mirror({"grid_size": (5, 6)}, 2, AutoresetMode.NEXT_STEP)
        mirror.reset(seed=1)

        with pytest.raises(ValueError, match="sub-environment 1"):
            mirror.batch.step(np.array([0, 7]))


def test_no_kernel_is_left_out_of_the_interpreted_run() -> None:
    kernels_found = {
        value.py_func.__name__ for module in MODULES for value in vars(module).values() if hasattr(value, "py_func")
    }

    assert {"step", "start", "restart", "begin_puffs", "advance_puffs", "smell_puffs"} <= kernels_found
    assert {"poisson_hits", "draw", "next_episode"} <= kernels_found
