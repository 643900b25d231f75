"""What a batch of Column Popper shows, as loops over arrays: observations, masks and numbers. Names as in `kernels`."""

from typing import Any

import numpy as np

from proctor.envs.compiler import compiled


@compiled
def observe(cells: Any, lengths: Any, held: Any, boards: Any, selections: Any) -> None:
    """Write the boards, int32 of the cells' shape, and the selections, int32, N x 2."""
    flat, wide = cells.reshape(-1), boards.reshape(-1)
    for k in range(flat.size):
        wide[k] = flat[k]
    columns = lengths.shape[1]
    for i in range(held.size):
        holds = held[i] >= 0
        column = np.int64(held[i]) if holds else 0
        last = max(np.int64(lengths[i, column]) - 1, 0) * columns + column
        selections[i, 0] = holds
        selections[i, 1] = cells[i, last] if holds else 0


@compiled
def masks(lengths: Any, held: Any, height: Any, valid: Any) -> None:
    """Write 1 for each action that is valid, int8, N x (columns + 1); the last one, the fall, always is."""
    columns = lengths.shape[1]
    for i in range(held.size):
        holder = held[i]
        for column in range(columns):
            length = lengths[i, column]
            can_place = (length < height) | (column == holder)
            valid[i, column] = can_place if holder >= 0 else length > 0
        valid[i, columns] = 1


@compiled
def tell(clock: Any, outcome: Any, fault: Any, duration_ms: Any, counts: Any, seconds: Any) -> Any:
    """Write scores and popped cells (`counts`), time left and interval (`seconds`); return whether there is a fault."""
    elapsed, scores, interval = clock[0], clock[3], clock[4]
    faults = np.int8(0)
    for i in range(fault.size):
        faults |= fault[i]
    for i in range(fault.size):
        counts[0, i] = scores[i]
        counts[1, i] = max(outcome[i], np.int8(0))
    for i in range(fault.size):
        seconds[0, i] = max(duration_ms - elapsed[i], 0) / 1000.0
        seconds[1, i] = interval[i] / 1000.0
    return faults != 0
