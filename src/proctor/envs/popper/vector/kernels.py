"""The batched Column Popper as loops over arrays: one entry per sub-environment, no objects.

Rule 1: every operation is the one that `Game` and `Board` make, in their order; results are equal bit for bit.
Rule 2: what the caller may keep is written to fresh arrays. `cells`, `keys` and `seeds` never leave the batch and are
    changed in place; `tops` and `clock` are read from the last instant's arrays and written to new ones.
Rule 3: what players do cannot be predicted, so decisions are loops without branches over few arrays each, which become
    vector instructions; only the boards that change are then touched one by one (`find_places`).

`cells` int8, N x (height * columns): row by row from the top. `tops` int8, (columns + 1) x N: the columns' lengths, and the
column that is held or -1. `clock` int32, 5 x N: elapsed, last fall, falls, score, fall interval. `keys` uint64, N: of the
episode's spawns. `seeds` int64, as in `next_episode`.
`events` int8, 2 x N: outcome (cells popped, or why not, or `BEGAN`) and end (0, `LOST`, `DROPPED`, `LATE`). `flags` bool,
3 x N: terminated, truncated, has ended. `shapes` float64, 4 x N: pairs and crowding before and after.
`record`: one `RULES`. `pool` int8: the values, and from `PLACES` on the place of each value. `curve` int32, stretches x 2.
`worths` and `ends` float64: what a step is worth by its outcome, from `BEGAN` on, and by its end. `weights` float64, in the
order of `rewards.PARTS`; `parts` float64, rows x N, in the same order.
"""

from typing import Any, Final

import numpy as np

from proctor.contracts.chance import Stream
from proctor.envs.popper import game
from proctor.envs.popper.game import POINTS, SHARES, TRIPLE
from proctor.envs.vector.kernels import compiled, derive_key, draw_from_key, first_illegal, move_bytes, next_episode

PLACES: Final = 10  # from here on, a pool of numbers tells the place of each value
NOTHING_THERE, COLUMN_FULL, NOBODY = (np.int8(it) for it in (game.NOTHING_THERE, game.COLUMN_FULL, game.NOBODY))
SHARE, SHARE_MASK = np.uint64(game.SHARE), np.uint64(game.SHARE_MASK)
# How a step can end an episode: not at all, no room for a row, a full-column drop, time is up.
NO_END, LOST, DROPPED, LATE = (np.int8(end) for end in range(4))
BEGAN: Final = np.int8(-3)  # stands for the outcome where an episode began instead of a step
# The numbers that do not change, as one record.
NUMBERS: Final = ("height", "action_ms", "duration_ms", "last_tick", "strict_invalid", "fast_forward")
RULES: Final = np.dtype([(name, np.int32) for name in (*NUMBERS, "shaped", "values")])

_NO_CELL: Final = np.int8(0)
_ONE: Final = np.uint64(1)
_SPAWN: Final = int(Stream.SPAWN)


# --------------------------------------------------------------------------------------------------------------- board
@compiled
def find_places(marks: Any) -> Any:
    """Return where `marks` is set."""
    places = np.empty(marks.size, np.int64)
    count = 0
    for i in range(marks.size):
        places[count] = i
        count += marks[i]
    return places[:count]


@compiled
def length_at(meant: Any, lengths: Any, length: Any) -> None:
    """Write the length of the column that is meant; 0 where none is."""
    for i in range(meant.size):
        length[i] = _NO_CELL
    for column in range(lengths.shape[0]):
        row, number = lengths[column], np.int8(column)
        for i in range(meant.size):
            own, found = row[i], length[i]
            length[i] = own if meant[i] == number else found


@compiled
def judge(meant: Any, held: Any, length: Any, columns: Any, height: Any, outcome: Any) -> None:
    """Write why a toggle does nothing: nothing to pick, or no room to place; else 0."""
    for i in range(meant.size):
        toggles, holds = meant[i] < columns, held[i] >= 0
        full = toggles & holds & (meant[i] != held[i]) & (length[i] == height)
        empty = toggles & (held[i] < 0) & (length[i] == 0)
        outcome[i] = COLUMN_FULL if full else (NOTHING_THERE if empty else _NO_CELL)


@compiled
def grip(meant: Any, held: Any, outcome: Any, columns: Any, source: Any, placed: Any) -> None:
    """Pick and let go; write where a block is placed, and whence it comes."""
    for i in range(meant.size):
        source[i] = held[i]
    for i in range(meant.size):
        placed[i] = (meant[i] < columns) & (held[i] >= 0) & (outcome[i] == _NO_CELL)
    for i in range(meant.size):
        picks = (meant[i] < columns) & (outcome[i] == _NO_CELL)
        # Whoever holds and places lets go; whoever does not hold and picks, holds.
        held[i] = (NOBODY if held[i] >= 0 else meant[i]) if picks else held[i]


@compiled
def place(placed: Any, meant: Any, source: Any, cells: Any, lengths: Any, score: Any, outcome: Any) -> None:
    """Move the blocks that are placed; where whole triples stand at the open end then, remove them and count."""
    columns = np.int64(lengths.shape[0])
    for i in find_places(placed):
        column, origin = np.uint64(meant[i]), np.uint64(source[i])
        depth, length = np.int64(lengths[origin, i]), np.int64(lengths[column, i])
        moves = column != origin
        taken = np.uint64((depth - 1) * columns + np.int64(origin))
        value = cells[i, taken]
        cells[i, taken] = np.int8(0)
        lengths[origin, i] = depth - 1
        length -= not moves
        last = length * columns + np.int64(column)
        cells[i, np.uint64(last)] = value
        lengths[column, i] = length + 1
        second = np.uint64(last - columns * (length > 0))
        third = np.uint64(last - 2 * columns * (length > 1))
        # One number, so that there is one branch: a triple is rare, a pair is not.
        unlike = (cells[i, second] ^ value) | (cells[i, third] ^ value) | np.int64(length < 2)
        if unlike == 0:
            run = np.int64(TRIPLE)
            while run <= length and cells[i, np.uint64(last - run * columns)] == value:
                run += 1
            count = run // TRIPLE * TRIPLE
            for k in range(count):
                cells[i, np.uint64(last - k * columns)] = _NO_CELL
            lengths[column, i] -= count
            outcome[i] = count
            score[i] += POINTS * count


@compiled
def _make_room(due: Any, lengths: Any, height: Any) -> Any:
    """Return where a row falls: where one is due and no column is full. There `due` is cleared and columns grow."""
    falls = due.copy()
    for column in range(lengths.shape[0]):
        row = lengths[column]
        for i in range(falls.size):
            falls[i] = falls[i] & (row[i] < height)
    for column in range(lengths.shape[0]):
        row = lengths[column]
        for i in range(falls.size):
            row[i] += falls[i]
    for i in range(falls.size):
        due[i] = due[i] ^ falls[i]
    return falls


@compiled
def fall(due: Any, cells: Any, lengths: Any, clock: Any, keys: Any, rules: Any, pool: Any) -> None:
    """Let one row fall on every board that is due and has room for it; where it has none, `due` stays marked."""
    falls = _make_room(due, lengths, np.int8(rules.height))
    fallen = find_places(falls)
    flat, size, columns = cells.reshape(-1), cells.shape[1], lengths.shape[0]
    for i in fallen:
        move_bytes(flat, i * size + columns, i * size, size - columns)
    for group in range(0, columns, SHARES):
        bits = np.empty(fallen.size, np.uint64)
        for j in range(fallen.size):
            bits[j] = draw_from_key(keys[fallen[j]], clock[2, fallen[j]], group // SHARES)
        _spawn(fallen, bits, group, cells, columns, np.uint64(rules.values), pool)
    elapsed, last_fall, count = clock[0], clock[1], clock[2]
    for i in range(falls.size):
        now, before = elapsed[i], last_fall[i]
        last_fall[i] = now if falls[i] else before
    for i in range(falls.size):
        count[i] += falls[i]


@compiled
def _spawn(fallen: Any, bits: Any, group: Any, cells: Any, columns: Any, count: Any, pool: Any) -> None:
    """Write the new top row for one group of columns; the rows below it have moved down."""
    last = cells.shape[1] - 1
    for j in range(fallen.size):
        i = fallen[j]
        for column in range(group, min(group + SHARES, columns)):
            share = (bits[j] >> (np.uint64(column - group) * SHARE)) & SHARE_MASK
            # On a board of fewer than three rows there is no pair beneath; the places then mean nothing.
            first = cells[i, np.uint64(min(columns + column, last))]
            second = cells[i, np.uint64(min(2 * columns + column, last))]
            pair = (first == second) & (first > 0) & (2 * columns + column <= last)
            avoids = np.uint64(pair & (count > _ONE))
            choice = (share * (count - avoids)) >> SHARE
            skips = avoids & np.uint64(choice >= np.uint64(pool[np.uint64(PLACES + first)]))
            cells[i, np.uint64(column)] = pool[choice + skips]


@compiled
def shape(cells: Any, lengths: Any, height: Any, pairs: Any, crowding: Any) -> None:
    """Write the number of columns whose two last blocks are equal, and the longest column's share of the height."""
    columns = lengths.shape[0]
    for i in range(pairs.size):
        equal, longest = 0, np.int64(0)
        for column in range(columns):
            length = np.int64(lengths[column, i])
            longest = max(longest, length)
            if length > 1:
                last = (length - 1) * columns + column
                equal += cells[i, last] == cells[i, last - columns]
        pairs[i] = equal
        crowding[i] = np.float64(longest) / np.float64(height)


# --------------------------------------------------------------------------------------------------------------- clock
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
def tick(manual: Any, clock: Any, rules: Any, curve: Any, due: Any) -> None:
    """Move the clocks, read the intervals, and mark the boards where a row is due."""
    elapsed, last_fall, interval = clock[0], clock[1], clock[4]
    action_ms = rules.action_ms
    for i in range(elapsed.size):
        elapsed[i] += action_ms
    if rules.fast_forward:
        for i in find_places(manual):
            scheduled = next_fall(curve, np.int64(action_ms), np.int64(last_fall[i]))
            elapsed[i] = min(scheduled, np.int64(rules.last_tick))
    for stretch in range(curve.shape[0]):
        begins, length = curve[stretch, 0], curve[stretch, 1]
        for i in range(elapsed.size):
            now, before = elapsed[i], interval[i]
            interval[i] = length if now >= begins else before
    at_once = rules.fast_forward == 0
    for i in range(elapsed.size):
        due[i] = (np.int32(elapsed[i] - last_fall[i]) >= interval[i]) | (at_once & manual[i])


# -------------------------------------------------------------------------------------------------------- what is told
@compiled
def part_rewards(events: Any, weights: Any, parts: Any) -> None:
    """Write what each event was worth where a step was made; 0 where an episode began."""
    outcome, end = events[0], events[1]
    for i in range(outcome.size):
        parts[0, i] = weights[0] if outcome[i] >= 0 else 0.0
        parts[1, i] = weights[1] * max(outcome[i], 0)
        parts[2, i] = weights[2] if outcome[i] != BEGAN else 0.0
        parts[3, i] = weights[3] if outcome[i] == NOTHING_THERE else 0.0
        parts[4, i] = weights[4] if outcome[i] == COLUMN_FULL else 0.0
        parts[5, i] = weights[5] if end[i] == LOST else 0.0
        parts[6, i] = weights[6] if end[i] == LATE else 0.0


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
        parts[0, i] = weights[7] * (pairs - shapes[0, i]) if stepped else 0.0
        parts[1, i] = weights[8] * (crowding - shapes[1, i]) if stepped else 0.0


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


# --------------------------------------------------------------------------------------------------------------- steps
@compiled
def _copy(old: Any, new: Any) -> None:
    """Write `old` to `new`; an assignment of the whole array would not become vector instructions."""
    for k in range(old.size):
        new[k] = old[k]


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
    if rules.strict_invalid:
        # A full-column drop ends the game, and its rows stay.
        for i in range(marks.size):
            marks[i] = marks[i] & (events[0, i] != COLUMN_FULL)
    fall(marks, cells, lengths, clock, keys, rules, pool)
    _end(events, marks, clock[0], flags, rules.strict_invalid != 0, rules.duration_ms)
    if rules.shaped:
        shape(cells, lengths, rules.height, shapes[2], shapes[3])
    begun = restart(before, cells, tops, clock, keys, seeds, record, pool, curve, events, flags)
    reward(events, worths, ends, total)
    observe(cells, tops, boards, selections)
    return begun
