"""What a batch of Column Popper tells of a step, as loops over arrays: rewards, observations, masks, numbers.

Names as in `kernels`. `weights` float64, in the order of `rewards.PARTS`; `parts` float64, rows x N, in the same order.
"""

from typing import Any, Final

import numpy as np

from proctor.envs.popper.vector.board_kernels import COLUMN_FULL, NOTHING_THERE
from proctor.envs.vector.compiler import compiled, inlined

LOST, DROPPED, LATE = (np.int8(end) for end in (1, 2, 3))
"""How a step can end an episode: no room for a row, a full-column drop, time is up. Else 0."""
BEGAN: Final = np.int8(-3)
"""Stands for the outcome where an episode began instead of a step."""


@inlined
def _part(weight: Any, holds: Any) -> Any:
    """Return the weight where the event holds, else 0."""
    return weight if holds else 0.0


@compiled
def part_rewards(events: Any, weights: Any, parts: Any) -> None:
    """Write what each event was worth where a step was made; 0 where an episode began."""
    outcome, end = events[0], events[1]
    for i in range(outcome.size):
        parts[0, i] = _part(weights[0], outcome[i] >= 0)
        parts[1, i] = weights[1] * max(outcome[i], 0)
        parts[2, i] = _part(weights[2], outcome[i] != BEGAN)
        parts[3, i] = _part(weights[3], outcome[i] == NOTHING_THERE)
        parts[4, i] = _part(weights[4], outcome[i] == COLUMN_FULL)
        parts[5, i] = _part(weights[5], end[i] == LOST)
        parts[6, i] = _part(weights[6], end[i] == LATE)


@compiled
def reward(events: Any, worths: Any, ends: Any, total: Any) -> None:
    """Write what the steps were worth but for shaping: by their outcome (from `BEGAN` on) and by their end."""
    outcome, end = events[0], events[1]
    for i in range(total.size):
        total[i] = worths[np.uint64(np.int64(outcome[i]) - BEGAN)] + ends[np.uint64(end[i])]


@compiled
def shape_rewards(events: Any, shapes: Any, weights: Any, parts: Any) -> None:
    """Write what the changes of pairs and crowding were worth; a game that is lost counts as empty."""
    outcome, end = events[0], events[1]
    for i in range(outcome.size):
        stays, stepped = (end[i] == 0) | (end[i] == LATE), outcome[i] != BEGAN
        pairs = shapes[2, i] if stays else 0.0
        crowding = shapes[3, i] if stays else 0.0
        parts[0, i] = _part(weights[7] * (pairs - shapes[0, i]), stepped)
        parts[1, i] = _part(weights[8] * (crowding - shapes[1, i]), stepped)


@compiled
def observe(cells: Any, tops: Any, boards: Any, selections: Any) -> None:
    """Write the boards, int32 of the cells' shape, and the selections, int32, N x 2."""
    flat, wide = cells.reshape(-1), boards.reshape(-1)
    for k in range(flat.size):
        wide[k] = flat[k]
    columns = tops.shape[0] - 1
    held = tops[columns]
    for i in range(held.size):
        # No branch: whether a block is held cannot be predicted.
        holds = held[i] >= 0
        column = np.uint64(np.int64(held[i]) * holds)
        length = np.int64(tops[column, i])
        last = np.uint64((length - (length > 0)) * columns) + column
        selections[i, 0] = holds
        selections[i, 1] = cells[i, last] * holds


@compiled
def masks(tops: Any, height: Any, valid: Any) -> None:
    """Write 1 for each action that is valid, int8, (columns + 1) x N; the last one, the fall, always is."""
    columns = tops.shape[0] - 1
    held = tops[columns]
    for column in range(columns):
        row, length = valid[column], tops[column]
        for i in range(held.size):
            can_place = (length[i] < height) | (held[i] == column)
            row[i] = can_place if held[i] >= 0 else length[i] > 0
    valid[columns] = 1
