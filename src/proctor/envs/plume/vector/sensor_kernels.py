"""Fields and sensors of the batched plume search, as loops over arrays; the operations of `fields` and `sensors`.

`cells` is a block whose first two rows are x and y; `out` has one entry per sub-environment.
"""

import math
from typing import Any, Final

import numpy as np

from proctor.contracts.chance import Stream
from proctor.envs.vector.compiled_chance import draw, uniform_from_bits
from proctor.envs.vector.compiler import compiled

_SENSOR: Final = int(Stream.SENSOR)


@compiled
def smell_product(cells: Any, along_x: Any, along_y: Any, out: Any) -> None:
    """Write the concentrations of a field that is a product of two rows (the Gaussian)."""
    x, y = cells[0], cells[1]
    for i in range(out.size):
        # An unsigned index spares the check for a negative one.
        out[i] = along_y[np.uint32(y[i])] * along_x[np.uint32(x[i])]


@compiled
def smell_table(cells: Any, table: Any, out: Any) -> None:
    """Write the concentrations of a field that is an array [y, x]."""
    x, y = cells[0], cells[1]
    for i in range(out.size):
        out[i] = table[np.uint32(y[i]), np.uint32(x[i])]


@compiled
def threshold_hits(concentration: Any, threshold: Any, out: Any) -> None:
    """Write where the concentration reaches the threshold."""
    for i in range(out.size):
        out[i] = concentration[i] >= threshold


@compiled
def _poisson_count(mean: Any, uniform: Any, most: Any) -> Any:
    chance = math.exp(-mean)
    reached = chance
    count = 0
    while uniform >= reached and count < most:
        count += 1
        chance = chance * mean / count
        reached = reached + chance
    return count


@compiled
def poisson_hits(concentration: Any, seeds: Any, steps: Any, rate: Any, most: Any, channel: Any, out: Any) -> None:
    """Write Poisson counts of mean `rate * concentration`."""
    for i in range(out.size):
        uniform = uniform_from_bits(draw(seeds[i], _SENSOR, steps[i], channel))
        out[i] = _poisson_count(rate * concentration[i], uniform, most)


@compiled
def antenna_tips(cells: Any, orientation: Any, reach: Any, angle: Any, width: Any, height: Any, tips: Any) -> None:
    """Write the cells (2 x N) where the tips of the antennae at `angle` to the heading are."""
    for i in range(orientation.size):
        direction = math.radians(orientation[i] + angle)
        x = cells[0, i] + round(reach * math.cos(direction))
        y = cells[1, i] + round(reach * math.sin(direction))
        tips[0, i] = min(max(x, 0), width - 1)
        tips[1, i] = min(max(y, 0), height - 1)
