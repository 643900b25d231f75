"""Moving puffs for the batched plume search; the operations of `puffs`, in the same order.

Blocks: `puffs` float64, 6 x N x capacity: x, y, own drift along x and y, variance, strength. `air` float64, 4 x N: the
wind's noise along x and y, the wind along x and y. `record`: one `WEATHER`.
"""

import math
from typing import Any, Final

import numpy as np

from proctor.contracts.chance import Stream
from proctor.envs.plume.puffs import FAR
from proctor.envs.vector.compiled_chance import draw, normal_from_bits
from proctor.envs.vector.compiler import compiled

WEATHER: Final = np.dtype(
    [
        ("source_x", np.float64),
        ("source_y", np.float64),
        ("wind_x", np.float64),
        ("wind_y", np.float64),
        ("memory", np.float64),
        ("kick", np.float64),
        ("drift", np.float64),
        ("growth", np.float64),
        ("first_variance", np.float64),
        ("release_every", np.int64),
        ("capacity", np.int64),
        ("warm_up", np.int64),
    ]
)

_WIND: Final = int(Stream.WIND)
_PUFF: Final = int(Stream.PUFF)


@compiled
def _blow(i: Any, seed: Any, tick: Any, air: Any, weather: Any) -> None:
    """Move the wind of sub-environment `i` to `tick`."""
    air[0, i] = weather.memory * air[0, i] + weather.kick * normal_from_bits(draw(seed, _WIND, tick, 0))
    air[1, i] = weather.memory * air[1, i] + weather.kick * normal_from_bits(draw(seed, _WIND, tick, 1))
    air[2, i] = weather.wind_x + air[0, i]
    air[3, i] = weather.wind_y + air[1, i]


@compiled
def _tick(i: Any, seed: Any, tick: Any, puffs: Any, air: Any, weather: Any) -> None:
    """Move the puffs of sub-environment `i` to `tick`, and release one where it is due."""
    _blow(i, seed, tick, air, weather)
    u, v = air[2, i], air[3, i]
    for k in range(weather.capacity):
        puffs[0, i, k] = puffs[0, i, k] + (u + puffs[2, i, k])
        puffs[1, i, k] = puffs[1, i, k] + (v + puffs[3, i, k])
        puffs[4, i, k] = puffs[4, i, k] + weather.growth
        puffs[5, i, k] = weather.first_variance / puffs[4, i, k] if puffs[5, i, k] > 0.0 else 0.0
    if tick % weather.release_every == 0:
        slot = (tick // weather.release_every) % weather.capacity
        puffs[0, i, slot] = weather.source_x
        puffs[1, i, slot] = weather.source_y
        puffs[2, i, slot] = weather.drift * normal_from_bits(draw(seed, _PUFF, tick, 0))
        puffs[3, i, slot] = weather.drift * normal_from_bits(draw(seed, _PUFF, tick, 1))
        puffs[4, i, slot] = weather.first_variance
        puffs[5, i, slot] = 1.0


@compiled
def begin(which: Any, seeds: Any, puffs: Any, air: Any, record: Any) -> None:
    """Blow the plume of every marked sub-environment from nothing to its first step."""
    weather = record[0]
    for i in range(which.size):
        if which[i]:
            puffs[:, i, :] = 0.0
            puffs[4, i, :] = weather.first_variance
            air[:, i] = 0.0
            for tick in range(weather.warm_up + 1):
                _tick(i, seeds[i], tick, puffs, air, weather)


@compiled
def advance(but: Any, seeds: Any, steps: Any, puffs: Any, air: Any, record: Any) -> None:
    """Blow the plume of every sub-environment but the marked ones to its present step."""
    weather = record[0]
    for i in range(steps.size):
        if not but[i]:
            _tick(i, seeds[i], weather.warm_up + steps[i], puffs, air, weather)


@compiled
def smell_puffs(cells: Any, puffs: Any, out: Any) -> None:
    """Write the concentrations: near puffs added in the order of their slots, capped at 1."""
    x, y = cells[0], cells[1]
    for i in range(out.size):
        here_x, here_y = np.float64(x[i]), np.float64(y[i])
        total = 0.0
        for k in range(puffs.shape[2]):
            strength = puffs[5, i, k]
            if strength > 0.0:
                dx = puffs[0, i, k] - here_x
                dy = puffs[1, i, k] - here_y
                exponent = (dx * dx + dy * dy) / (2.0 * puffs[4, i, k])
                if exponent <= FAR:
                    total += strength * math.exp(-exponent)
        out[i] = min(total, 1.0)
