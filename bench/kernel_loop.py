"""The batch's own kernels in a compiled loop: what a step costs without any Python between two steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proctor.envs.plume.vector import kernels
from proctor.envs.plume.vector.batched_env import BatchedPlumeSearch
from proctor.envs.vector.kernels import compiled


@compiled
def _roll(
    actions: Any,
    cells: Any,
    sums: Any,
    flags: Any,
    orientation: Any,
    seeds: Any,
    starts: Any,
    record: Any,
    along_x: Any,
    along_y: Any,
    observation: Any,
) -> None:
    """Make all steps of `actions` (T x N); blocks come in pairs, and each step writes the one that the last one read."""
    for t in range(actions.shape[0]):
        old, new = t & 1, 1 - (t & 1)
        kernels.step(
            actions[t],
            cells[old],
            sums[old],
            flags[old, 3],
            cells[new],
            sums[new],
            flags[new],
            orientation,
            seeds,
            starts,
            record,
        )
        kernels.smell_product(cells[new], along_x, along_y, observation)


def kernel_loop(batch: BatchedPlumeSearch) -> Callable[[NDArray[np.int64]], None]:
    """Return a function that makes T steps from a copy of the batch's state; T is even, so that it can be called again."""
    cells, sums = np.stack([batch._cells] * 2), np.stack([batch._sums] * 2)
    flags = np.zeros((2, 5, batch.num_envs), np.bool_)
    gaussian: Any = batch._field
    rest = (batch._orientation.copy(), batch._seeds.copy(), batch._starts, batch._record, *gaussian._rows)
    observation = np.empty(batch.num_envs, np.float32)

    def run(actions: NDArray[np.int64]) -> None:
        _roll(actions, cells, sums, flags, *rest, observation)

    return run
