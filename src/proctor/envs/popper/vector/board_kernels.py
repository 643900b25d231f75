"""The boards of a batch of Column Popper as loops over arrays. Names as in `kernels`.

What players do cannot be predicted, so decisions are loops without branches over few arrays each, which become vector
instructions; only the boards that change are then touched one by one (`find_places`).
"""

from typing import Any, Final

import numpy as np

from proctor.envs.popper import board, game
from proctor.envs.vector.compiled_chance import draw_from_key
from proctor.envs.vector.compiler import compiled, move_bytes

PLACES: Final = 10
"""From here on, a pool of numbers tells the place of each value."""
NOTHING_THERE: Final = np.int8(board.NOTHING_THERE)
COLUMN_FULL: Final = np.int8(board.COLUMN_FULL)
NOBODY: Final = np.int8(board.NOBODY)
SHARES: Final = board.SHARES
SHARE: Final = np.uint64(board.SHARE)
SHARE_MASK: Final = np.uint64(board.SHARE_MASK)

_NO_CELL: Final = np.int8(0)
_TRIPLE: Final = board.TRIPLE
_POINTS: Final = game.POINTS
_ONE: Final = np.uint64(1)


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
            run = np.int64(_TRIPLE)
            while run <= length and cells[i, np.uint64(last - run * columns)] == value:
                run += 1
            count = run // _TRIPLE * _TRIPLE
            for k in range(count):
                cells[i, np.uint64(last - k * columns)] = _NO_CELL
            lengths[column, i] -= count
            outcome[i] = count
            score[i] += _POINTS * count


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
def _note_fall(falls: Any, elapsed: Any, last_fall: Any, count: Any) -> None:
    """Count the falls, and start the wait for the next one."""
    for i in range(falls.size):
        now, before = elapsed[i], last_fall[i]
        last_fall[i] = now if falls[i] else before
    for i in range(falls.size):
        count[i] += falls[i]


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
    _note_fall(falls, clock[0], clock[1], clock[2])


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
