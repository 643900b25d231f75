"""A beam search over moves, compiled: from a board to the move that the best line found begins with.

Rule 1: a column is one uint64, `bits` per cell, the open end lowest, and a height. A cell is a code from 1 on; 0 is a cell
    that is not known: what falls during the search never matches and is never picked.
Rule 2: a move is one pick and one place. All lines of a layer are equally long, so they share the clock: a scheduled
    fall comes for all of them at once, and a line without room for it is dropped. A first move all of whose lines are
    dropped so comes last.
Rule 3: two lines that lead to the same cells are one. Nothing depends on the wall clock or on chance.

Blocks of a layer, one row per line: `cells` uint64 and `heights` int64 by column, `first` int64 (the first move as
source * columns + target), `gains` float64.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from proctor.envs.popper.board import TRIPLE
from proctor.envs.vector.kernels import compiled, mix

ROOT: Final = -1
"""Instead of a first move: the line has none yet. Instead of a column: none holds."""
DIES, LIVES = 0, 1
DOOM: Final = 100.0
"""What an overflow costs, in triples."""
_ONE: Final = np.uint64(1)


class SearchModel(NamedTuple):
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
    pair: float
    """What two equal cells at an open end add, where `values` does not see them."""
    lean: float
    """What each cell costs by which the longest column exceeds the mean."""


class SearchWorkspace(NamedTuple):
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
    """How many lines of each first move die and live in this layer."""


def make_workspace(width: int, columns: int) -> SearchWorkspace:
    """Return the memory of a search that keeps `width` lines."""
    children = width * columns * columns
    slots = 1 << (4 * children - 1).bit_length()
    return SearchWorkspace(
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
    popped = run_at(cells[target], bits, code) // TRIPLE * TRIPLE
    if popped > 0:
        cells[target] >>= np.uint64(popped * bits)
        heights[target] -= popped
    return popped


@compiled
def _pairs(cells: Any, bits: Any) -> Any:
    """Return how many columns end in two equal cells."""
    mask = (_ONE << np.uint64(bits)) - _ONE
    pairs = 0
    for column in range(cells.size):
        code = cells[column] & mask
        pairs += code > 0 and code == (cells[column] >> np.uint64(bits)) & mask
    return pairs


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
    value = outlook.values[state] + (outlook.pair * _pairs(cells, outlook.bits) if outlook.pair > 0.0 else 0.0)
    return outlook.weight * value - outlook.lean * (longest - total / outlook.columns)


@compiled
def _is_new(workspace: Any, cells: Any, stamp: Any) -> Any:
    key = np.uint64(0)
    for column in range(cells.size):
        key = mix(key ^ cells[column])
    last = np.uint64(workspace.seen.size - 1)
    slot = key & last
    while workspace.stamps[slot] == stamp:
        if workspace.seen[slot] == key:
            return False
        slot = (slot + _ONE) & last
    workspace.stamps[slot] = stamp
    workspace.seen[slot] = key
    return True


@compiled
def _is_legal(outlook: Any, cells: Any, heights: Any, source: Any, target: Any, held: Any) -> Any:
    """Return whether the move can be made and can matter: a put-back does if it pops, or if the block is held."""
    code = cells[source] & ((_ONE << np.uint64(outlook.bits)) - _ONE)
    if code == 0 or (held >= 0 and source != held):
        return False
    if source != target:
        return heights[target] < outlook.height
    return held >= 0 or run_at(cells[source], outlook.bits, code) >= TRIPLE


@compiled
def _first(workspace: Any, side: Any, line: Any, step: Any) -> Any:
    """Return the move that a line began with which goes on with `step`."""
    return step if workspace.first[side, line] == ROOT else workspace.first[side, line]


@compiled
def _expand(outlook: Any, workspace: Any, side: Any, lines: Any, held: Any, falls: Any, stamp: Any, bonus: Any) -> Any:
    """Write every child of the layer that is new and has room for the falls; return how many."""
    columns = outlook.columns
    cells = np.empty(columns, np.uint64)
    heights = np.empty(columns, np.int64)
    children = 0
    for line in range(lines):
        old_cells = workspace.cells[side, line]
        old_heights = workspace.heights[side, line]
        has_room = falls[0] == 0 or old_heights.max() + falls[0] <= outlook.height
        for step in range(columns * columns):
            source, target = step // columns, step % columns
            if not _is_legal(outlook, old_cells, old_heights, source, target, held):
                continue
            for column in range(columns):
                cells[column] = old_cells[column]
                heights[column] = old_heights[column] + falls[0]
            popped = move(cells, heights, source, target, outlook.bits)
            survives = has_room and (falls[1] == 0 or heights.max() + falls[1] <= outlook.height)
            workspace.fate[LIVES if survives else DIES, _first(workspace, side, line, step)] += 1
            if survives and _is_new(workspace, cells, stamp):
                gains = workspace.gains[side, line] + popped * bonus
                workspace.parents[children] = line
                workspace.moves[children] = step
                workspace.child_gains[children] = gains
                workspace.scores[children] = gains + worth(outlook, cells, heights)
                children += 1
    return children


@compiled
def _cutoff(workspace: Any, children: Any, width: Any) -> Any:
    """Return (lowest, scale, bucket, room): scores in higher buckets are kept, and `room` of this one."""
    lowest = np.inf
    highest = -np.inf
    for child in range(children):
        lowest = min(lowest, workspace.scores[child])
        highest = max(highest, workspace.scores[child])
    last = workspace.histogram.size - 1
    scale = last / (highest - lowest) if highest > lowest else 0.0
    workspace.histogram[:] = 0
    for child in range(children):
        workspace.histogram[int((workspace.scores[child] - lowest) * scale)] += 1
    bucket = last
    room = width
    while bucket > 0 and workspace.histogram[bucket] <= room:
        room -= workspace.histogram[bucket]
        bucket -= 1
    return lowest, scale, bucket, room


@compiled
def _select(outlook: Any, workspace: Any, side: Any, children: Any, falls: Any) -> Any:
    """Write the best children as the lines of the other side; return how many."""
    lowest, scale, cut, room = _cutoff(workspace, children, workspace.first.shape[1])
    other = 1 - side
    kept = 0
    for child in range(children):
        bucket = int((workspace.scores[child] - lowest) * scale)
        if bucket < cut or (bucket == cut and room == 0):
            continue
        if bucket == cut:
            room -= 1
        line = workspace.parents[child]
        step = workspace.moves[child]
        workspace.cells[other, kept] = workspace.cells[side, line]
        workspace.heights[other, kept] = workspace.heights[side, line] + falls.sum()
        move(
            workspace.cells[other, kept],
            workspace.heights[other, kept],
            step // outlook.columns,
            step % outlook.columns,
            outlook.bits,
        )
        workspace.first[other, kept] = _first(workspace, side, line, step)
        workspace.gains[other, kept] = workspace.child_gains[child]
        # The scores move up with their lines: line k was never before child k.
        workspace.scores[kept] = workspace.scores[child]
        kept += 1
    return kept


@compiled
def _judge(workspace: Any, side: Any, lines: Any, price: Any, tops: Any) -> None:
    """Raise the first moves to the best score of their lines, less `price`; put back those that cannot survive."""
    for first in range(tops.size):
        if workspace.fate[DIES, first] > 0 and workspace.fate[LIVES, first] == 0:
            tops[first] -= DOOM
    for line in range(lines):
        first = workspace.first[side, line]
        tops[first] = max(tops[first], workspace.scores[line] - price)


@compiled
def search(
    outlook: Any, workspace: Any, cells: Any, heights: Any, held: Any, falls: Any, stamp: Any, fade: Any, pace: Any
) -> Any:
    """Return (the first move of the best line, its score), or (-1, -inf) if no line survives its first move.

    `falls[d]` is how many scheduled falls come with the pick and with the place of the d-th move; its length is the
    depth. `held` is a column or -1. `stamp` is a number that no search with this workspace had, with one more for each layer.
    A triple loses `fade` with every move that it comes later; a line pays `pace` for every move.
    """
    workspace.cells[0, 0] = cells
    workspace.heights[0, 0] = heights
    workspace.gains[0, 0] = 0.0
    workspace.first[0, 0] = ROOT
    tops = np.full(workspace.fate.shape[1], -np.inf)
    lines = 1
    side = 0
    for depth in range(falls.shape[0]):
        workspace.fate[:] = 0
        bonus = (1.0 - fade * depth) / TRIPLE
        holds = held if depth == 0 else ROOT
        children = _expand(outlook, workspace, side, lines, holds, falls[depth], stamp + depth, bonus)
        lines = _select(outlook, workspace, side, children, falls[depth]) if children > 0 else 0
        side = 1 - side
        _judge(workspace, side, lines, pace * (depth + 1), tops)
        if lines == 0:
            break
    best = np.argmax(tops)
    return (best if tops[best] > -np.inf else ROOT), tops[best]
