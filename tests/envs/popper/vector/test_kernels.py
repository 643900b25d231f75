"""Column Popper's kernels run as plain Python give the same as compiled: what is tested is what is compiled."""

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from proctor.envs.popper.env import ColumnPopperEnv
from proctor.envs.popper.vector import kernels
from proctor.envs.popper.vector.batched_env import BatchedColumnPopper
from proctor.envs.vector import kernels as shared_kernels
from tests.envs.interpreted import without_compiler
from tests.envs.mirror import Mirror

MODULES = (shared_kernels, kernels)
CASES: list[dict[str, Any]] = [
    {"number_pool": (1, 2)},
    {"reward_preset": "dense", "strict_invalid": True, "columns": 4},
    {"manual_fall": "fast_forward", "number_pool": (5,), "include_time_left_norm": True},
]


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("case", CASES)
def test_interpreted_kernels_mirror_the_single_environment(case: dict[str, Any], mode: AutoresetMode) -> None:
    rng = np.random.default_rng(2)
    with without_compiler(MODULES):
        mirror = Mirror(
            BatchedColumnPopper,
            ColumnPopperEnv,
            {"height": 4, "duration_ms": 4_000, "fall_curve": ((0, 700), (2_000, 300)), **case},
            3,
            mode,
        )
        mirror.reset(seed=9)
        n_actions = int(mirror.batch.single_action_space.n)
        for _ in range(70):
            mirror.step(np.where(rng.random(3) < 0.05, n_actions - 1, rng.integers(0, n_actions - 1, 3)))

    assert mirror.episodes > 3


def test_an_illegal_action_stops_an_interpreted_step() -> None:
    with without_compiler(MODULES):
        mirror = Mirror(BatchedColumnPopper, ColumnPopperEnv, {}, 2, AutoresetMode.NEXT_STEP)
        mirror.reset(seed=1)

        with pytest.raises(ValueError, match="sub-environment 1"):
            mirror.batch.step(np.array([0, 4]))


@pytest.mark.parametrize("last_fall", [0, 100, 18_000, 38_500, 60_000])
def test_the_compiled_schedule_is_the_schedule(last_fall: int) -> None:
    rules = ColumnPopperEnv(action_ms=130).rules
    curve = np.array(rules.fall_curve, np.int32)

    assert kernels.next_fall(curve, 130, last_fall) == rules.next_fall(last_fall)
