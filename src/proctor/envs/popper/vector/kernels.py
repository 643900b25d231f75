"""The batched Column Popper as loops over arrays: one entry per sub-environment, no objects.

Rule 1: every operation is the one that `Game` and `Board` make, in their order; results are equal bit for bit.
Rule 2: what the caller may keep is written to fresh arrays. `cells`, `keys` and `seeds` never leave the batch and are
    changed in place; `tops` and `clock` are read from the last instant's arrays and written to new ones.

`cells` int8, N x (height * columns): row by row from the top. `tops` int8, (columns + 1) x N: the columns' lengths, and the
column that is held or -1. `clock` int32, 5 x N: elapsed, last fall, falls, score, fall interval. `keys` uint64, N: of the
episode's spawns. `seeds` int64, as in `compiled_episodes`.
`events` int8, 2 x N: outcome (cells popped, or why not, or `BEGAN`) and end (0, `LOST`, `DROPPED`, `LATE`). `flags` bool,
3 x N: terminated, truncated, has ended. `shapes` float64, 4 x N: pairs and crowding before and after.
`record`: one `RULES`. `pool` int8: the values, and from `PLACES` on the place of each value. `curve` int32, stretches x 2.
`worths` and `ends` float64: what a step is worth by its outcome, from `BEGAN` on, and by its end.
"""

from typing import Any, Final

import numpy as np

from proctor.contracts.chance import Stream
from proctor.envs.popper.vector.board_kernels import (
    COLUMN_FULL,
    NOBODY,
    SHARE,
    SHARE_MASK,
    SHARES,
    fall,
    find_places,
    grip,
    judge,
    length_at,
    place,
    shape,
)
from proctor.envs.popper.vector.view_kernels import BEGAN, DROPPED, LATE, LOST, observe, reward
from proctor.envs.vector.compiled_chance import derive_key, draw_from_key
from proctor.envs.vector.compiled_episodes import first_illegal, next_episode
from proctor.envs.vector.compiler import compiled


@compiled
def next_fall(curve: Any, action_ms: Any, last_fall: Any) -> Any:
    """Return the tick of the next scheduled fall, given the tick of the last one."""
    due = np.int64(0)
    for stretch in range(curve.shape[0]):
        wait = max(np.int64(curve[stretch, 1]), np.int64(curve[stretch, 0]) - last_fall)
        due = last_fall + (wait + action_ms - 1) // action_ms * action_ms
        if stretch + 1 == curve.shape[0] or due < curve[stretch + 1, 0]:
            break
    return due


@compiled
def _forward(manual: Any, elapsed: Any, last_fall: Any, rules: Any, curve: Any) -> None:
    """Take the clocks to the next scheduled fall where a fall is asked for."""
    for i in find_places(manual):
        due = next_fall(curve, np.int64(rules.action_ms), np.int64(last_fall[i]))
        elapsed[i] = min(due, np.int64(rules.last_tick))


@compiled
def tick(manual: Any, clock: Any, rules: Any, curve: Any, due: Any) -> None:
    """Move the clocks, read the intervals, and mark the boards where a row is due."""
    elapsed, last_fall, interval = clock[0], clock[1], clock[4]
    action_ms = rules.action_ms
    for i in range(elapsed.size):
        elapsed[i] += action_ms
    if rules.fast_forward:
        _forward(manual, elapsed, last_fall, rules, curve)
    for stretch in range(curve.shape[0]):
        begins, length = curve[stretch, 0], curve[stretch, 1]
        for i in range(elapsed.size):
            now, before = elapsed[i], interval[i]
            interval[i] = length if now >= begins else before
    at_once = rules.fast_forward == 0
    for i in range(elapsed.size):
        due[i] = (np.int32(elapsed[i] - last_fall[i]) >= interval[i]) | (at_once & manual[i])


RULES: Final = np.dtype(
    [
        (name, np.int32)
        for name in ("height", "action_ms", "duration_ms", "last_tick", "strict", "fast_forward", "shaped", "values")
    ]
)
"""The numbers that do not change, as one record."""

NO_END: Final = np.int8(0)
_SPAWN: Final = int(Stream.SPAWN)


@compiled
def _copy(old: Any, new: Any) -> None:
    """Write `old` to `new`; an assignment of the whole array would not become vector instructions."""
    for k in range(old.size):
        new[k] = old[k]


@compiled
def _skip_full_drops(outcome: Any, due: Any) -> None:
    """Take the mark from every board whose full-column drop ends the game: its rows stay."""
    for i in range(due.size):
        due[i] = due[i] & (outcome[i] != COLUMN_FULL)


@compiled
def _end(events: Any, lost: Any, elapsed: Any, flags: Any, strict: Any, duration_ms: Any) -> None:
    """Write ends and flags; `lost` marks the boards without room for a row that was due."""
    outcome, end = events[0], events[1]
    terminated, truncated, ended = flags[0], flags[1], flags[2]
    for i in range(lost.size):
        dropped = strict & (outcome[i] == COLUMN_FULL)
        end[i] = LOST if lost[i] else (DROPPED if dropped else NO_END)
    for i in range(lost.size):
        late = (elapsed[i] >= duration_ms) & (end[i] == NO_END)
        truncated[i] = late
        end[i] = LATE if late else end[i]
    for i in range(lost.size):
        ended[i] = end[i] != NO_END
        terminated[i] = ended[i] & (end[i] != LATE)


@compiled
def start(
    places: Any, cells: Any, tops: Any, clock: Any, keys: Any, seeds: Any, record: Any, pool: Any, curve: Any
) -> None:
    """Start the episode of `seeds[2]` in the sub-environments at `places`: an empty board, and one row falls."""
    columns, count = tops.shape[0] - 1, np.uint64(record[0].values)
    for i in places:
        keys[i] = derive_key(seeds[2, i], _SPAWN)
        for column in range(columns):
            tops[column, i] = 1
        tops[columns, i] = NOBODY
        clock[0, i] = 0
        clock[1, i] = 0
        clock[2, i] = 1
        clock[3, i] = 0
        clock[4, i] = curve[0, 1]
        for cell in range(columns, cells.shape[1]):
            cells[i, cell] = 0
    for i in places:
        bits = np.uint64(0)
        for column in range(columns):
            bits = bits >> SHARE
            if column % SHARES == 0:
                bits = draw_from_key(keys[i], 0, column // SHARES)
            cells[i, column] = pool[((bits & SHARE_MASK) * count) >> SHARE]


@compiled
def restart(
    which: Any,
    cells: Any,
    tops: Any,
    clock: Any,
    keys: Any,
    seeds: Any,
    record: Any,
    pool: Any,
    curve: Any,
    events: Any,
    flags: Any,
) -> Any:
    """Start the next episode of every marked sub-environment, its seed derived from its root; return how many."""
    places = find_places(which)
    for i in places:
        next_episode(seeds, i)
        events[0, i] = BEGAN
        events[1, i] = NO_END
        for row in range(flags.shape[0]):
            flags[row, i] = False
    start(places, cells, tops, clock, keys, seeds, record, pool, curve)
    return places.size


@compiled
def step(
    actions: Any,
    before: Any,
    old_tops: Any,
    old_clock: Any,
    cells: Any,
    tops: Any,
    clock: Any,
    keys: Any,
    seeds: Any,
    record: Any,
    pool: Any,
    curve: Any,
    worths: Any,
    ends: Any,
    events: Any,
    flags: Any,
    shapes: Any,
    total: Any,
    boards: Any,
    selections: Any,
) -> Any:
    """Advance every sub-environment by its action, but start the next episode where one had ended (`before`).

    Those are played too, which nobody sees, because that costs less than to leave them out. `total` takes the rewards but
    for shaping, `boards` and `selections` the observations.
    Returns how many episodes were started, or `-1 - i` for an illegal action at index i, having done nothing.
    """
    rules = record[0]
    columns = tops.shape[0] - 1
    illegal = first_illegal(actions, columns + 1)
    if illegal >= 0:
        return -1 - illegal
    _copy(old_tops.reshape(-1), tops.reshape(-1))
    _copy(old_clock.reshape(-1), clock.reshape(-1))
    lengths, held = tops[:columns], tops[columns]
    meant = actions.astype(np.int8)
    manual = meant == np.int8(columns)
    length, source = np.empty(actions.size, np.int8), np.empty(actions.size, np.int8)
    marks = np.empty(actions.size, np.bool_)
    if rules.shaped:
        shape(cells, lengths, rules.height, shapes[0], shapes[1])
    length_at(meant, lengths, length)
    judge(meant, held, length, np.int8(columns), np.int8(rules.height), events[0])
    grip(meant, held, events[0], np.int8(columns), source, marks)
    place(marks, meant, source, cells, lengths, clock[3], events[0])
    tick(manual, clock, rules, curve, marks)
    if rules.strict:
        _skip_full_drops(events[0], marks)
    fall(marks, cells, lengths, clock, keys, rules, pool)
    _end(events, marks, clock[0], flags, rules.strict != 0, rules.duration_ms)
    if rules.shaped:
        shape(cells, lengths, rules.height, shapes[2], shapes[3])
    begun = restart(before, cells, tops, clock, keys, seeds, record, pool, curve, events, flags)
    reward(events, worths, ends, total)
    observe(cells, tops, boards, selections)
    return begun
