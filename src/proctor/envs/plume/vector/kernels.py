"""The batched plume search, its puffs and its sensors as loops over arrays: one entry per sub-environment, no objects.

Rule 1: every operation is the one that the single environment makes, in its order; results are equal bit for bit.
Rule 2: what the caller may keep (cells, counters, totals, distances) is read from one block and written to another;
    only arrays that never leave the batch are changed in place.
Rule 3: the main loops have no branches and few arrays each, so that they become vector instructions; sub-environments
    that start an episode are handled afterwards, one by one.

Blocks, rows x N: `cells` int32: x, y, step count. `sums` float64: total reward, distance to the source, this step's
reward. `flags` bool: terminated, truncated, goal reached, has ended, made a step (and did not begin). `seeds` int64: root seed, episodes since that root, this
episode's seed, episodes in all. `starts` int64, 3 x (height + 1): free cells before each row, and the first and the
last + 1 of the cells that the row skips. `record`: one `RULES`, or one `WEATHER` for puffs. `before` bool: who had ended before
this step. `orientation` float64. `puffs` float64, 6 x N x capacity: x, y, own drift along x and y, variance, strength. `air` float64,
4 x N: the wind's noise along x and y, the wind along x and y.
"""

import math
from typing import Any, Final

import numpy as np

from proctor.contracts.chance import Stream
from proctor.envs.plume.fields import FAR
from proctor.envs.plume.sensors import poisson_count
from proctor.envs.vector.kernels import (
    compiled,
    draw,
    first_illegal,
    inlined,
    integer_from_bits,
    next_episode,
    normal_from_bits,
    uniform_from_bits,
)

_COUNTS: Final = ("width", "height", "source_x", "source_y", "max_steps", "n_actions", "step_size", "turns")
_PAY: Final = ("goal_radius", "reward_radius", "at_goal", "elsewhere")
RULES: Final = np.dtype(
    [
        *((name, np.int32) for name in _COUNTS),
        *((name, np.uint32) for name in ("signs_x", "signs_y")),
        *((name, np.float64) for name in _PAY),
        ("shaped", np.int64),
        ("scale", np.float64),
        ("discount", np.float64),
    ]
)
"""The numbers that do not change, as one record.

`turns` is 1 where the actions are forward, left and right; else action a moves by ((signs >> 2a) & 3) - 1 steps along an axis.
"""

_START: Final = int(Stream.START)
_ONE: Final = np.int32(1)
_TWO: Final = np.uint32(2)
_THREE: Final = np.uint32(3)
_BLOCK: Final = 64
"""Few episodes end in a step: blocks of this many are passed over at once."""


@compiled
def _shift(actions: Any, rules: Any, old_x: Any, old_y: Any, x: Any, y: Any) -> None:
    """Write the cells one compass move further, clamped to the grid."""
    signs_x, signs_y, size = rules.signs_x, rules.signs_y, rules.step_size
    last_x, last_y = np.int32(rules.width - _ONE), np.int32(rules.height - _ONE)
    for i in range(actions.size):
        # numba widens 32-bit operations to 64 bits; the casts keep them at 32, which is what can be vectorised.
        place = np.uint32(np.uint32(actions[i]) * _TWO)
        code_x = np.uint32(np.uint32(signs_x >> place) & _THREE)
        code_y = np.uint32(np.uint32(signs_y >> place) & _THREE)
        moved_x = np.int32(old_x[i] + np.int32(np.int32(np.int32(code_x) - _ONE) * size))
        moved_y = np.int32(old_y[i] + np.int32(np.int32(np.int32(code_y) - _ONE) * size))
        x[i] = min(max(moved_x, np.int32(0)), last_x)
        y[i] = min(max(moved_y, np.int32(0)), last_y)


@compiled
def _turn_or_go(actions: Any, old: Any, new: Any, orientation: Any, rules: Any) -> None:
    """Write the cells after forward (0), turn left (1) or turn right (2); orientations change in place."""
    for i in range(actions.size):
        new[0, i] = old[0, i]
        new[1, i] = old[1, i]
        if actions[i] == 0:
            angle = math.radians(orientation[i])
            x = old[0, i] + round(rules.step_size * math.cos(angle))
            y = old[1, i] + round(rules.step_size * math.sin(angle))
            new[0, i] = min(max(x, 0), rules.width - 1)
            new[1, i] = min(max(y, 0), rules.height - 1)
        else:
            turned = (orientation[i] + (90.0 if actions[i] == 1 else -90.0)) % 360.0
            orientation[i] = 0.0 if turned == 360.0 else turned


@compiled
def _distance(x: Any, y: Any, source_x: Any, source_y: Any) -> Any:
    """Return the distance of two cells; the squares are exact, so one rounding is left, as in the single one."""
    dx = np.int32(x - source_x)
    dy = np.int32(y - source_y)
    return math.sqrt(np.float64(np.int32(np.int32(dx * dx) + np.int32(dy * dy))))


@compiled
def _score(x: Any, y: Any, rules: Any, old_total: Any, total: Any, distance: Any, reward: Any) -> None:
    """Write the distances to the source, the rewards of being there or elsewhere, and the totals."""
    source_x, source_y = rules.source_x, rules.source_y
    radius, at_goal, elsewhere = rules.reward_radius, rules.at_goal, rules.elsewhere
    for i in range(distance.size):
        away = _distance(x[i], y[i], source_x, source_y)
        gain = at_goal if away <= radius else elsewhere
        distance[i] = away
        reward[i] = gain
        total[i] = old_total[i] + gain


@compiled
def _shape(old: Any, sums: Any, reached: Any, scale: Any, discount: Any) -> None:
    """Add the change of potential to the rewards, and write the totals anew."""
    distance, reward = sums[1], sums[2]
    for i in range(reward.size):
        after = 0.0 if reached[i] else -scale * distance[i]
        before = -scale * old[1, i]
        reward[i] = reward[i] + (discount * after - before)
        sums[0, i] = old[0, i] + reward[i]


@compiled
def _judge(
    old_steps: Any, steps: Any, distance: Any, flags: Any, before: Any, goal_radius: Any, max_steps: Any
) -> None:
    """Write the step counts and the flags."""
    for i in range(steps.size):
        steps[i] = np.int32(old_steps[i] + _ONE)
        flags[1, i] = steps[i] >= max_steps
    for i in range(steps.size):
        flags[0, i] = distance[i] <= goal_radius
    for i in range(steps.size):
        flags[2, i] = flags[0, i]
        flags[3, i] = flags[0, i] | flags[1, i]
        flags[4, i] = not before[i]


@inlined
def place(i: Any, x: Any, y: Any, heading: Any, cells: Any, sums: Any, orientation: Any, rules: Any) -> None:
    """Put the agent of sub-environment `i` on a cell, with its counters at zero."""
    cells[0, i] = x
    cells[1, i] = y
    cells[2, i] = 0
    orientation[i] = heading
    sums[0, i] = 0.0
    sums[1, i] = _distance(cells[0, i], cells[1, i], rules.source_x, rules.source_y)
    sums[2, i] = 0.0


@inlined
def start_cell(seed: Any, starts: Any) -> Any:
    """Return the cell (x, y) where the episode of this seed starts."""
    low, high = 0, starts.shape[1] - 1
    rank = integer_from_bits(draw(seed, _START, 0, 0), starts[0, high])
    while high - low > 1:
        middle = (low + high) // 2
        if starts[0, middle] <= rank:
            low = middle
        else:
            high = middle
    x = rank - starts[0, low]
    if x >= starts[1, low]:
        x += starts[2, low] - starts[1, low]
    return x, low


@compiled
def start(which: Any, cells: Any, sums: Any, orientation: Any, seeds: Any, starts: Any, record: Any) -> None:
    """Start the episode of `seeds[2]` in every sub-environment that `which` marks."""
    for i in range(which.size):
        if which[i]:
            x, y = start_cell(seeds[2, i], starts)
            place(i, x, y, 0.0, cells, sums, orientation, record[0])


@compiled
def restart(
    which: Any, cells: Any, sums: Any, flags: Any, orientation: Any, seeds: Any, starts: Any, record: Any
) -> Any:
    """Start the next episode of every marked sub-environment, its seed derived from its root; return how many."""
    count = 0
    for first in range(0, which.size, _BLOCK):
        last = min(first + _BLOCK, which.size)
        marked = False
        for i in range(first, last):
            marked |= which[i]
        for i in range(first, last if marked else first):
            if which[i]:
                count += 1
                next_episode(seeds, i)
                x, y = start_cell(seeds[2, i], starts)
                place(i, x, y, 0.0, cells, sums, orientation, record[0])
                for row in range(flags.shape[0]):
                    flags[row, i] = False
    return count


@compiled
def step(
    actions: Any,
    old_cells: Any,
    old_sums: Any,
    before: Any,
    cells: Any,
    sums: Any,
    flags: Any,
    orientation: Any,
    seeds: Any,
    starts: Any,
    record: Any,
) -> Any:
    """Advance every sub-environment by its action, but start the next episode where one had ended (`before`).

    Returns how many episodes were started, or `-1 - i` for an illegal action at index i, having done nothing.
    """
    rules = record[0]
    illegal = first_illegal(actions, rules.n_actions)
    if illegal >= 0:
        return -1 - illegal
    if rules.turns:
        _turn_or_go(actions, old_cells, cells, orientation, rules)
    else:
        _shift(actions, rules, old_cells[0], old_cells[1], cells[0], cells[1])
    _score(cells[0], cells[1], rules, old_sums[0], sums[0], sums[1], sums[2])
    _judge(old_cells[2], cells[2], sums[1], flags, before, rules.goal_radius, rules.max_steps)
    if rules.shaped:
        _shape(old_sums, sums, flags[0], rules.scale, rules.discount)
    return restart(before, cells, sums, flags, orientation, seeds, starts, record)


# ------------------------------------------------------------------------------------------------------------ puffs
_AIR: Final = ("source_x", "source_y", "wind_x", "wind_y", "memory", "kick", "drift", "growth", "first_variance")
_TIMES: Final = ("release_every", "capacity", "warm_up")
WEATHER: Final = np.dtype([*((name, np.float64) for name in _AIR), *((name, np.int64) for name in _TIMES)])

_WIND: Final = int(Stream.WIND)
_PUFF: Final = int(Stream.PUFF)


@compiled
def _tick(i: Any, seed: Any, tick: Any, puffs: Any, air: Any, weather: Any) -> None:
    """Move the wind and the puffs of sub-environment `i` to `tick`, and release one where it is due."""
    air[0, i] = weather.memory * air[0, i] + weather.kick * normal_from_bits(draw(seed, _WIND, tick, 0))
    air[1, i] = weather.memory * air[1, i] + weather.kick * normal_from_bits(draw(seed, _WIND, tick, 1))
    u = air[2, i] = weather.wind_x + air[0, i]
    v = air[3, i] = weather.wind_y + air[1, i]
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
def begin_puffs(which: Any, seeds: Any, puffs: Any, air: Any, record: Any) -> None:
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
def advance_puffs(but: Any, seeds: Any, steps: Any, puffs: Any, air: Any, record: Any) -> None:
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


# ---------------------------------------------------------------------------------------------------------- sensors
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


_poisson_count = compiled(poisson_count)


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
