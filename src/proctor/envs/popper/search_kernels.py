"""A beam search over moves, compiled: from a board to the move that the best line found begins with.

Rule 1: a column is one uint64, `bits` per cell, the open end lowest, and a height. A cell is a code from 1 on; 0 is a cell
    that is not known: what falls during the search never matches and is never picked.
Rule 2: a move is one pick and one place. All lines of a layer are equally long, so they share the clock: a scheduled
    fall comes for all of them at once, and a line without room for it is dropped.
Rule 3: two lines that lead to the same cells are one. Nothing depends on the wall clock or on chance.

Blocks of a layer, one row per line: `cells` uint64 and `heights` int64 by column, `first` int64 (the first move as
source * columns + target), `gains` float64.
"""

from typing import Any, NamedTuple

import numpy as np

from proctor.envs.compiled_chance import mix
from proctor.envs.compiler import compiled

_ONE = np.uint64(1)
DROPPED, KEPT = 0, 1


class Outlook(NamedTuple):
    """What the search knows of the game: its size, and what the open ends are worth."""

    columns: int
    height: int
    bits: int
    window: int
    """The lowest bits of a column that `numbers` looks up."""
    numbers: Any
    """The number of the pattern that these bits are."""
    values: Any
    """The value of a state: the sum of number * patterns ** column."""
    patterns: int
    weight: float
    """How much this value counts beside triples that popped."""
    lean: float
    """What each cell costs by which the longest column exceeds the mean."""


class Desk(NamedTuple):
    """Memory that one search after the other works in."""

    cells: Any
    heights: Any
    first: Any
    gains: Any
    parents: Any
    moves: Any
    child_gains: Any
    scores: Any
    seen: Any
    stamps: Any
    histogram: Any
    fate: Any


def desk_for(width: int, columns: int) -> Desk:
    """Return the memory of a search that keeps `width` lines."""
    children = width * columns * columns
    slots = 1 << (4 * children - 1).bit_length()
    return Desk(
        cells=np.zeros((2, width, columns), np.uint64),
        heights=np.zeros((2, width, columns), np.int64),
        first=np.zeros((2, width), np.int64),
        gains=np.zeros((2, width), np.float64),
        parents=np.zeros(children, np.int64),
        moves=np.zeros(children, np.int64),
        child_gains=np.zeros(children, np.float64),
        scores=np.zeros(children, np.float64),
        seen=np.zeros(slots, np.uint64),
        stamps=np.zeros(slots, np.int64),
        histogram=np.zeros(1024, np.int64),
        fate=np.zeros((2, columns * columns), np.int64),
    )


@compiled
def run_at(cells: Any, bits: Any, code: Any) -> Any:
    """Return how many cells of `code` there are at the open end."""
    mask = (_ONE << np.uint64(bits)) - _ONE
    run = 0
    while cells & mask == code and run * bits < 64:
        cells >>= np.uint64(bits)
        run += 1
    return run


@compiled
def move(cells: Any, heights: Any, source: Any, target: Any, bits: Any) -> Any:
    """Make the move in place; return how many cells popped."""
    width = np.uint64(bits)
    code = cells[source] & ((_ONE << width) - _ONE)
    cells[source] >>= width
    heights[source] -= 1
    cells[target] = (cells[target] << width) | code
    heights[target] += 1
    popped = run_at(cells[target], bits, code) // 3 * 3
    if popped > 0:
        cells[target] >>= np.uint64(popped * bits)
        heights[target] -= popped
    return popped


@compiled
def worth(outlook: Any, cells: Any, heights: Any) -> Any:
    """Return what the cells are worth, in triples."""
    mask = (_ONE << np.uint64(outlook.window)) - _ONE
    state = 0
    unit = 1
    longest = 0
    total = 0
    for column in range(outlook.columns):
        state += outlook.numbers[cells[column] & mask] * unit
        unit *= outlook.patterns
        longest = max(longest, heights[column])
        total += heights[column]
    return outlook.weight * outlook.values[state] - outlook.lean * (longest - total / outlook.columns)


@compiled
def _is_new(desk: Any, cells: Any, stamp: Any) -> Any:
    key = np.uint64(0)
    for column in range(cells.size):
        key = mix(key ^ cells[column])
    last = np.uint64(desk.seen.size - 1)
    slot = key & last
    while desk.stamps[slot] == stamp:
        if desk.seen[slot] == key:
            return False
        slot = (slot + _ONE) & last
    desk.stamps[slot] = stamp
    desk.seen[slot] = key
    return True


@compiled
def _expand(outlook: Any, desk: Any, side: Any, lines: Any, held: Any, stamp: Any, bonus: Any) -> Any:
    """Write every child of the layer that is new and legal; return how many."""
    columns = outlook.columns
    mask = (_ONE << np.uint64(outlook.bits)) - _ONE
    cells = np.empty(columns, np.uint64)
    heights = np.empty(columns, np.int64)
    children = 0
    for line in range(lines):
        for source in range(columns):
            code = desk.cells[side, line, source] & mask
            if code == 0 or (held >= 0 and source != held):
                continue
            for target in range(columns):
                if target == source:
                    if held < 0 and run_at(desk.cells[side, line, source], outlook.bits, code) < 3:
                        continue
                elif desk.heights[side, line, target] >= outlook.height:
                    continue
                for column in range(columns):
                    cells[column] = desk.cells[side, line, column]
                    heights[column] = desk.heights[side, line, column]
                popped = move(cells, heights, source, target, outlook.bits)
                if _is_new(desk, cells, stamp):
                    gains = desk.gains[side, line] + popped * bonus
                    desk.parents[children] = line
                    desk.moves[children] = source * columns + target
                    desk.child_gains[children] = gains
                    desk.scores[children] = gains + worth(outlook, cells, heights)
                    children += 1
    return children


@compiled
def _cutoff(desk: Any, children: Any, width: Any) -> Any:
    """Return (lowest, scale, bucket, room): scores in higher buckets are kept, and `room` of this one."""
    lowest = np.inf
    highest = -np.inf
    for child in range(children):
        lowest = min(lowest, desk.scores[child])
        highest = max(highest, desk.scores[child])
    last = desk.histogram.size - 1
    scale = last / (highest - lowest) if highest > lowest else 0.0
    desk.histogram[:] = 0
    for child in range(children):
        desk.histogram[int((desk.scores[child] - lowest) * scale)] += 1
    bucket = last
    room = width
    while bucket > 0 and desk.histogram[bucket] <= room:
        room -= desk.histogram[bucket]
        bucket -= 1
    return lowest, scale, bucket, room


@compiled
def _select(outlook: Any, desk: Any, side: Any, children: Any, width: Any, falls: Any, is_root: Any) -> Any:
    """Write the best children as the lines of the other side, after `falls`; return how many survive."""
    lowest, scale, cut, room = _cutoff(desk, children, width)
    other = 1 - side
    kept = 0
    desk.fate[:] = 0
    for child in range(children):
        bucket = int((desk.scores[child] - lowest) * scale)
        if bucket < cut or (bucket == cut and room == 0):
            continue
        if bucket == cut:
            room -= 1
        line = desk.parents[child]
        step = desk.moves[child]
        cells = desk.cells[other, kept]
        heights = desk.heights[other, kept]
        cells[:] = desk.cells[side, line]
        heights[:] = desk.heights[side, line]
        move(cells, heights, step // outlook.columns, step % outlook.columns, outlook.bits)
        first = step if is_root else desk.first[side, line]
        if falls > 0:
            if heights.max() + falls > outlook.height:
                desk.fate[DROPPED, first] += 1
                continue
            heights += falls
        desk.fate[KEPT, first] += 1
        desk.first[other, kept] = first
        desk.gains[other, kept] = desk.child_gains[child]
        # Kept for the choice at the end: the score of line k is never later than child k.
        desk.scores[kept] = desk.scores[child]
        kept += 1
    return kept


@compiled
def search(
    outlook: Any, desk: Any, cells: Any, heights: Any, held: Any, falls: Any, stamp: Any, fade: Any, pace: Any
) -> Any:
    """Return (the first move of the best line, its score), or (-1, -inf) if no line survives its first move.

    `falls[d]` is how many scheduled falls come with the d-th move; its size is the depth. `held` is a column or -1.
    `stamp` is a number that no search on this desk had, nor will the next ones, one for each layer.
    """
    desk.cells[0, 0] = cells
    desk.heights[0, 0] = heights
    desk.gains[0, 0] = 0.0
    lines = 1
    side = 0
    tops = np.full(desk.fate.shape[1], -np.inf)
    for depth in range(falls.size):
        bonus = (1.0 - fade * depth) / 3.0
        children = _expand(outlook, desk, side, lines, held if depth == 0 else -1, stamp + depth, bonus)
        if children == 0:
            break
        lines = _select(outlook, desk, side, children, desk.first.shape[1], falls[depth], depth == 0)
        if lines == 0:
            break
        side = 1 - side
        for first in range(tops.size):
            if desk.fate[DROPPED, first] > 0 and desk.fate[KEPT, first] == 0:
                tops[first] -= 100.0
        for line in range(lines):
            first = desk.first[side, line]
            tops[first] = max(tops[first], desk.scores[line] - pace * (depth + 1))
    best = np.argmax(tops)
    if tops[best] == -np.inf:
        best = -1
    return best, tops.max()
