"""Where an episode may start: uniform over the cells outside the goal disc.

The free cells are counted row by row, once per (grid, source, radius), so that a draw is one search among the rows,
exact at any grid size, and the same in the batched kernels.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache

from proctor.contracts.chance import as_below
from proctor.contracts.spatial import MAX_SIDE, Coordinates, GridSize


@dataclass(frozen=True, slots=True)
class StartCells:
    """Row y has its free cells left of `skip_from[y]` and from `skip_to[y]` on; `before[y]` are free below row y."""

    before: tuple[int, ...]
    skip_from: tuple[int, ...]
    skip_to: tuple[int, ...]

    @property
    def total(self) -> int:
        """How many cells are free."""
        return self.before[-1]

    def pick(self, bits: int) -> tuple[int, int]:
        """Return the free cell (x, y) that 64 random bits fall on."""
        rank = as_below(bits, self.total)
        y = bisect_right(self.before, rank) - 1
        x = rank - self.before[y]
        return (x if x < self.skip_from[y] else x + self.skip_to[y] - self.skip_from[y]), y


def _chord(dy: int, radius: float) -> int:
    """Return the largest dx with sqrt(dx^2 + dy^2) <= radius, or -1; judged by that very comparison."""
    if abs(dy) > radius:
        return -1
    dx = int(math.sqrt(max(radius * radius - dy * dy, 0.0))) + 1
    while dx >= 0 and not math.sqrt(dx * dx + dy * dy) <= radius:
        dx -= 1
    return dx


def _excluding(grid: GridSize, source: Coordinates, radius: float) -> StartCells:
    before, skip_from, skip_to = [0], [], []
    for y in range(grid.height):
        reach = _chord(y - source.y, radius)
        low = min(max(source.x - reach, 0), grid.width) if reach >= 0 else grid.width
        high = min(source.x + reach + 1, grid.width) if reach >= 0 else grid.width
        skip_from.append(low)
        skip_to.append(high)
        before.append(before[-1] + grid.width - (high - low))
    return StartCells(tuple(before), tuple(skip_from), tuple(skip_to))


@lru_cache(maxsize=64)
def start_cells(grid: GridSize, source: Coordinates, goal_radius: float) -> StartCells:
    """Return the cells outside the goal disc; if there are none all but the source; on a 1 x 1 grid that one."""
    # No cell is farther away than this, and its square is finite.
    radius = min(goal_radius, 2.0 * MAX_SIDE)
    choices = (_excluding(grid, source, without) for without in (radius, 0.0, -1.0))
    return next(cells for cells in choices if cells.total)
