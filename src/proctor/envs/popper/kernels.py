"""The batched Column Popper as loops over arrays: one entry per sub-environment, no objects.

Rule 1: every operation is the one that `Game` and `Board` make, in their order; results are equal bit for bit.
Rule 2: the position is changed in place and never leaves the batch; what the caller may keep is written to fresh arrays.
Rule 3: moves branch and are made one sub-environment at a time; what is made of them (rewards, observations) are loops
    without branches, which become vector instructions.

The position: `cells` int8, N x (height * columns), row by row from the top. `lengths` int8, N x columns. `held` int8, N: a
column or -1. `clock` int32, 5 x N: elapsed, last fall, falls, score, fall interval. `seeds` int64, as in `compiled_episodes`.
What a step makes: `events` int8, 2 x N: outcome (cells popped, or why not), fault (0, `LOST`, `DROPPED`). `flags` bool,
4 x N: terminated, truncated, has ended, made a step (and did not begin). `parts` float64, 9 x N, in the order of
`rewards.PARTS`. `shapes` float64, 4 x N: pairs and crowding before and after.
The rules: `record`, one `RULES`; `pool` int8, the values and after them, at 10 + v, the place of each value v; `curve` int32, stretches x 2; `weights` float64, in the order of `PARTS`.
"""

from typing import Any, Final

import numpy as np

from proctor.contracts.chance import Stream
from proctor.envs.compiled_chance import draw
from proctor.envs.compiled_episodes import first_illegal, next_episode
from proctor.envs.compiler import compiled, inlined
from proctor.envs.popper import board, game

RULES: Final = np.dtype(
    [
        (name, np.int32)
        for name in (
            "height",
            "columns",
            "action_ms",
            "duration_ms",
            "last_tick",
            "strict",
            "fast_forward",
            "shaped",
            "values",
        )
    ]
)
"""The numbers that do not change, as one record."""

PLACES: Final = 10
LOST: Final = 1
DROPPED: Final = 2

_SPAWN: Final = int(Stream.SPAWN)
_NOTHING_THERE: Final = board.NOTHING_THERE
_COLUMN_FULL: Final = board.COLUMN_FULL
_POINTS: Final = game.POINTS
_TRIPLE: Final = board.TRIPLE
_SHARES: Final = board.SHARES
_SHARE: Final = np.uint64(board.SHARE)
_SHARE_MASK: Final = np.uint64(board.SHARE_MASK)
_ONE: Final = np.uint64(1)
_NOBODY: Final = np.int8(board.NOBODY)


@compiled
def _places(marks: Any) -> Any:
    """Return where `marks` is set; no branch, because nobody can predict it."""
    places = np.empty(marks.size, np.int64)
    count = 0
    for i in range(marks.size):
        places[count] = i
        count += marks[i]
    return places[:count]


@compiled
def _fall(due: Any, cells: Any, lengths: Any, clock: Any, seeds: Any, rules: Any, pool: Any) -> None:
    """Let one row fall on every board that is due and has room for it; where it has none, `due` stays marked."""
    columns, height, count = np.int64(rules.columns), np.int64(rules.height), np.uint64(rules.values)
    spare = np.empty(cells.shape[1], np.int8)
    for i in _places(due):
        longest = 0
        for column in range(columns):
            longest = max(longest, lengths[i, column])
        if longest == height:
            continue
        # By way of a second board: a copy onto itself would go byte by byte.
        for place in range(spare.size):
            spare[place] = cells[i, place]
        for place in range(spare.size - columns):
            cells[i, place + columns] = spare[place]
        bits = np.uint64(0)
        for column in range(columns):
            bits = bits >> _SHARE
            if column % _SHARES == 0:
                bits = draw(seeds[2, i], _SPAWN, clock[2, i], column // _SHARES)
            first, second = spare[column], spare[min(columns, spare.size - columns) + column]
            avoids = np.uint64((count > _ONE) & (lengths[i, column] > 1) & (first == second))
            choice = ((bits & _SHARE_MASK) * (count - avoids)) >> _SHARE
            skips = avoids & np.uint64(choice >= np.uint64(pool[PLACES + first]))
            cells[i, column] = pool[choice + skips]
            lengths[i, column] += 1
        clock[1, i] = clock[0, i]
        clock[2, i] += 1
        due[i] = False


@compiled
def _pop(i: Any, cells: Any, lengths: Any, column: Any, columns: Any) -> Any:
    """Remove the whole triples from the run at the column's open end; return how many cells that were."""
    last = lengths[i, column] - 1
    value = cells[i, last * columns + column]
    run = 1
    while run <= last and cells[i, (last - run) * columns + column] == value:
        run += 1
    count = run // _TRIPLE * _TRIPLE
    for k in range(count):
        cells[i, (last - k) * columns + column] = 0
    lengths[i, column] -= count
    return count


@inlined
def _toggle(i: Any, cells: Any, lengths: Any, held: Any, action: Any, columns: Any, height: Any) -> Any:
    """Pick or place on the board of sub-environment i; return the cells that popped, or why nothing was done.

    What random players do cannot be predicted, so all cases are computed and the right one is selected.
    """
    toggles = action < columns
    column = action if toggles else 0
    length = np.int64(lengths[i, column])
    holder = np.int64(held[i])
    holds = holder >= 0
    source = holder if holds else 0
    picks = toggles & (not holds) & (length > 0)
    full = toggles & holds & (column != source) & (length == height)
    places = toggles & holds & (not full)
    moves = places & (column != source)

    origin = max(np.int64(lengths[i, source]) - 1, 0) * columns + source
    target = min(length, height - 1) * columns + column
    value = cells[i, origin]
    cells[i, target] = value if moves else cells[i, target]
    cells[i, origin] = np.int8(0) if moves else value
    lengths[i, source] -= moves
    lengths[i, column] += moves
    held[i] = column if picks else (_NOBODY if places else holder)

    nothing_there = toggles & (not holds) & (length == 0)
    outcome = _COLUMN_FULL if full else (_NOTHING_THERE if nothing_there else 0)
    blocks = np.int64(lengths[i, column])
    last = max(blocks - 1, 0) * columns + column
    second = max(last - columns, column)
    third = max(second - columns, column)
    alike = (cells[i, last] == cells[i, second]) & (cells[i, last] == cells[i, third])
    if places & (blocks >= _TRIPLE) & alike:
        outcome = _pop(i, cells, lengths, column, columns)
    return outcome


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
def _tick(actions: Any, clock: Any, rules: Any, curve: Any, due: Any) -> None:
    """Move the clocks, read the intervals, and mark the boards where a row is due."""
    elapsed, last_fall, interval = clock[0], clock[1], clock[4]
    columns, action_ms, at_once = rules.columns, rules.action_ms, rules.fast_forward == 0
    for i in range(elapsed.size):
        elapsed[i] += action_ms
    if rules.fast_forward:
        for i in range(elapsed.size):
            if actions[i] == columns:
                elapsed[i] = min(
                    next_fall(curve, np.int64(action_ms), np.int64(last_fall[i])), np.int64(rules.last_tick)
                )
    for stretch in range(curve.shape[0]):
        begins, length = curve[stretch, 0], curve[stretch, 1]
        for i in range(elapsed.size):
            interval[i] = length if elapsed[i] >= begins else interval[i]
    for i in range(elapsed.size):
        due[i] = (np.int32(elapsed[i] - last_fall[i]) >= interval[i]) | (at_once & (actions[i] == columns))


@compiled
def _shape(cells: Any, lengths: Any, rules: Any, pairs: Any, crowding: Any) -> None:
    """Write the number of columns whose two last blocks are equal, and the longest column's share of the height."""
    columns = np.int64(rules.columns)
    for i in range(pairs.size):
        equal, longest = 0, 0
        for column in range(columns):
            length = np.int64(lengths[i, column])
            longest = max(longest, length)
            if length > 1:
                last = (length - 1) * columns + column
                equal += cells[i, last] == cells[i, last - columns]
        pairs[i] = equal
        crowding[i] = np.float64(longest) / np.float64(rules.height)


@compiled
def start(
    which: Any,
    cells: Any,
    lengths: Any,
    held: Any,
    clock: Any,
    seeds: Any,
    record: Any,
    pool: Any,
    curve: Any,
) -> None:
    """Start the episode of `seeds[2]` in every sub-environment that `which` marks."""
    for i in _places(which):
        for place in range(cells.shape[1]):
            cells[i, place] = 0
        for column in range(lengths.shape[1]):
            lengths[i, column] = 0
        held[i] = _NOBODY
        for row in range(4):
            clock[row, i] = 0
        clock[4, i] = curve[0, 1]
    _fall(which.copy(), cells, lengths, clock, seeds, record[0], pool)


@compiled
def restart(
    which: Any,
    cells: Any,
    lengths: Any,
    held: Any,
    clock: Any,
    seeds: Any,
    record: Any,
    pool: Any,
    curve: Any,
    events: Any,
    flags: Any,
) -> Any:
    """Start the next episode of every marked sub-environment, its seed derived from its root; return how many."""
    places = _places(which)
    for i in places:
        next_episode(seeds, i)
        for row in range(events.shape[0]):
            events[row, i] = 0
        for row in range(flags.shape[0]):
            flags[row, i] = False
    if places.size:
        start(which, cells, lengths, held, clock, seeds, record, pool, curve)
    return places.size


@compiled
def _play(actions: Any, cells: Any, lengths: Any, held: Any, clock: Any, rules: Any, outcome: Any) -> None:
    """Pick and place everywhere, and count the score."""
    columns, height = np.int64(rules.columns), np.int64(rules.height)
    for i in range(actions.size):
        popped = _toggle(i, cells, lengths, held, actions[i], columns, height)
        outcome[i] = popped
        clock[3, i] += _POINTS * max(popped, 0)


@compiled
def _spare_the_dropped(outcome: Any, due: Any) -> None:
    """Take the mark from every board whose full-column drop ends the game: its rows stay."""
    for i in range(due.size):
        due[i] &= outcome[i] != _COLUMN_FULL


@compiled
def _end(events: Any, due: Any, clock: Any, flags: Any, strict: Any, duration_ms: Any) -> None:
    """Write faults and flags; where `due` is still marked there was no room for the row."""
    outcome, fault = events[0], events[1]
    for i in range(due.size):
        dropped = strict & (outcome[i] == _COLUMN_FULL)
        lost = due[i] | dropped
        fault[i] = LOST * due[i] + DROPPED * dropped
        flags[0, i] = lost
        flags[1, i] = (clock[0, i] >= duration_ms) & (not lost)
        flags[2, i] = lost | flags[1, i]
        flags[3, i] = True


@compiled
def step(
    actions: Any,
    before: Any,
    cells: Any,
    lengths: Any,
    held: Any,
    clock: Any,
    seeds: Any,
    record: Any,
    pool: Any,
    curve: Any,
    events: Any,
    flags: Any,
    shapes: Any,
) -> Any:
    """Advance every sub-environment by its action, but start the next episode where one had ended (`before`).

    Those are played too, which nobody sees, because that costs less than to leave them out.
    Returns how many episodes were started, or `-1 - i` for an illegal action at index i, having done nothing.
    """
    rules = record[0]
    illegal = first_illegal(actions, rules.columns + 1)
    if illegal >= 0:
        return -1 - illegal
    due = np.empty(actions.size, np.bool_)
    if rules.shaped:
        _shape(cells, lengths, rules, shapes[0], shapes[1])
    _play(actions, cells, lengths, held, clock, rules, events[0])
    _tick(actions, clock, rules, curve, due)
    if rules.strict:
        _spare_the_dropped(events[0], due)
    _fall(due, cells, lengths, clock, seeds, rules, pool)
    _end(events, due, clock, flags, rules.strict != 0, rules.duration_ms)
    if rules.shaped:
        _shape(cells, lengths, rules, shapes[2], shapes[3])
    return restart(before, cells, lengths, held, clock, seeds, record, pool, curve, events, flags)


@inlined
def _part(weight: Any, holds: Any) -> Any:
    """Return the weight where the event holds, else 0."""
    return weight if holds else 0.0


@compiled
def reward(events: Any, flags: Any, weights: Any, parts: Any, total: Any) -> None:
    """Write what the step was worth, and its parts, where a step was made; 0 where an episode began."""
    outcome, fault, truncated, stepped = events[0], events[1], flags[1], flags[3]
    valid, popped_cell, each_step, invalid, full_drop, overflow, time_up = weights[:7]
    for i in range(total.size):
        valid_part = _part(valid, (outcome[i] >= 0) & stepped[i])
        popped_part = popped_cell * max(outcome[i], 0)
        step_part = _part(each_step, stepped[i])
        invalid_part = _part(invalid, outcome[i] == _NOTHING_THERE)
        drop_part = _part(full_drop, outcome[i] == _COLUMN_FULL)
        overflow_part = _part(overflow, fault[i] == LOST)
        time_part = _part(time_up, truncated[i])
        parts[0, i] = valid_part
        parts[1, i] = popped_part
        parts[2, i] = step_part
        parts[3, i] = invalid_part
        parts[4, i] = drop_part
        parts[5, i] = overflow_part
        parts[6, i] = time_part
        # From the first to the last, as the single environment adds them.
        total[i] = valid_part + popped_part + step_part + invalid_part + drop_part + overflow_part + time_part


@compiled
def shape_reward(flags: Any, shapes: Any, weights: Any, parts: Any, total: Any) -> None:
    """Write what the changes of pairs and crowding were worth, and add it; a game that is lost counts as empty."""
    terminated, stepped = flags[0], flags[3]
    for i in range(total.size):
        pairs = 0.0 if terminated[i] else shapes[2, i]
        crowding = 0.0 if terminated[i] else shapes[3, i]
        parts[0, i] = weights[7] * (pairs - shapes[0, i]) if stepped[i] else 0.0
        parts[1, i] = weights[8] * (crowding - shapes[1, i]) if stepped[i] else 0.0
        total[i] = total[i] + parts[0, i] + parts[1, i]
