"""The strongest policy: a beam search over moves, renewed whenever the board shows something new.

Rule 1: it sees observations and its own actions only. It draws no numbers, so the seed means nothing to it; cells that
    have not fallen yet are unknown, and what they may bring is in the values of open ends (`solve`).
Rule 2: when to let a row fall is a rule of thumb (`_wants_fall`), which move to make is the search's to find.
Rule 3: the effort is a number of lines and moves, never a time, so the same observations give the same actions.

What the open ends of the columns are worth is the solution of a smaller game without a clock, a height or an end, computed when
a policy is made. Of each column only the cells nearest the open end are known; what lies above is chance, with the rule that a
spawn keeps. A *pattern* is what is known of one column: up to `depth` cells, the open end first; number 0 is the column of which
nothing is known. The value of a state is in triples, against the state of which nothing is known: what it will bring more than
that one, both played well for ever. It is found by value iteration; nothing is learned from games.

The search itself is compiled:

Rule 4: a column is one uint64, `bits` per cell, the open end lowest, and a height. A cell is a code from 1 on; 0 is a cell
    that is not known: what falls during the search never matches and is never picked.
Rule 5: a move is one pick and one place. All lines of a layer are equally long, so they share the clock: a scheduled
    fall comes for all of them at once, and a line without room for it is dropped. A first move all of whose lines are
    dropped so comes last.
Rule 6: two lines that lead to the same cells are one.

The numbers below were chosen by playing games of seeds that no published figure uses.
"""

import itertools
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from proctor.envs.popper.game import NOBODY, TRIPLE
from proctor.envs.popper.policies import GameTracker
from proctor.envs.popper.rules import PopperRules
from proctor.envs.vector.kernels import compiled, mix

CHILDREN: Final = 900  # moves that a layer of the search may look at
NARROWEST: Final = 6  # lines that a search keeps at least
DEPTH: Final = 12  # moves that a line may have
FADE: Final = 0.01  # what a triple loses in value with every move that it comes later
PACE: Final = 0.3  # triples that a move must bring at least for a longer line to beat a shorter one
PAIR: Final = 0.4  # what a pair at an open end is worth on a board that is too wide for a table, in triples
LEAN: Final = 0.05  # what each cell costs by which the longest column exceeds the mean
# Rows are filled up from when the longest column is no longer than this share of the height, or a row fell.
LOW: Final = 7 / 12
# They are not if a scheduled fall is as near as `NEAR`, for that one is free, unless a column is as short as `SHORT`,
NEAR: Final = 6
SHORT: Final = 2
# nor if what is scheduled for the next so many actions, for every column but one, would find no room then.
BREATH: Final = 4
CELLS_PER_STEP: Final = 1.0  # no more rows are filled up than can be cleared before the end
HARM: Final = 0.05  # what a fall may cost the best line, in triples, for the cells that it shows
FAINT: Final = 0.01  # the weight of what is left on the board when time is up: it decides between equals
BITS_OF_A_COLUMN: Final = 64


class SearchPolicy:
    """Looks many moves ahead; made for the rules of a game."""

    def __init__(self, rules: PopperRules) -> None:
        self._rules = rules
        self._tracker = GameTracker(rules)
        self._model = make_search_model(rules)
        self._ending = self._model._replace(weight=FAINT)
        self._workspace = make_workspace(max(NARROWEST, CHILDREN // rules.columns**2), rules.columns)
        self._code = {value: code for code, value in enumerate(rules.number_pool, 1)}
        self._stamp = 1
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Forget the last episode."""
        self._tracker.forget()
        self._filling = True
        # The board that it was made for, the source and the target.
        self._plan: tuple[list[list[int]], int, int] | None = None

    def act(self, observation: Any) -> int:
        """Return the next action."""
        memory = self._tracker
        memory.look(observation)
        action = self._choose()
        if memory.steps_to_fall == 1:
            self._filling = True
        memory.note(action)
        return action

    def _choose(self) -> int:
        memory, columns = self._tracker, self._rules.columns
        if memory.held == NOBODY:
            self._plan = None
            if self._wants_fall():
                return columns
        if self._plan is None or self._plan[:2] != (memory.stacks, memory.held):
            move, _ = self._look_ahead((memory.steps_left + (memory.held != NOBODY)) // 2, 0)
            self._plan = None if move < 0 else (memory.stacks, move // columns, move % columns)
        if self._plan is not None:
            _, source, target = self._plan
            return source if memory.held == NOBODY else target
        # No move helps: put back, let a row fall if there is room, or take the longest.
        if memory.held != NOBODY:
            return memory.held
        lengths = [len(stack) for stack in memory.stacks]
        return columns if max(lengths) < self._rules.height else lengths.index(max(lengths))

    def _wants_fall(self) -> bool:
        """Return whether to let a row fall now, with nothing held."""
        memory, height = self._tracker, self._rules.height
        lengths = [len(stack) for stack in memory.stacks]
        longest = max(lengths)
        if longest == height:
            self._filling = False
        elif longest <= int(LOW * height):
            self._filling = True
        if self._rules.fast_forward or sum(lengths) >= CELLS_PER_STEP * memory.steps_left:
            return False
        is_time = self._filling and (memory.steps_to_fall > NEAR or min(lengths) < SHORT)
        has_room = longest + 1 + memory.falls([BREATH * (len(lengths) - 1)], after_fall=True)[0] <= height
        return is_time and has_room and (longest < int(LOW * height) or self._does_no_harm())

    def _does_no_harm(self) -> bool:
        """Return whether the best line is as good with a row more, whose cells are not known yet."""
        moves = (self._tracker.steps_left - 1) // 2
        now, then = (self._look_ahead(moves, rows)[1] for rows in (0, 1))
        return then >= now - HARM

    def _look_ahead(self, moves: int, rows: int) -> tuple[int, float]:
        """Return the first move and the score of the best line of up to `moves`, after `rows` (one at most) fell."""
        memory = self._tracker
        depth = min(DEPTH, moves)
        is_last = depth == moves
        steps = [0 if k == 0 and memory.held != NOBODY else 1 for k in range(2 * depth)]
        move, score = search(
            self._ending if is_last else self._model,
            self._workspace,
            np.array([self._pack_column(stack) for stack in memory.stacks], np.uint64),
            np.array([len(stack) + rows for stack in memory.stacks], np.int64),
            memory.held,
            np.array(memory.falls(steps, after_fall=rows > 0), np.int64).reshape(depth, 2),
            self._stamp,
            FADE * FAINT if is_last else FADE,
            0.0 if is_last else PACE,
        )
        self._stamp += depth
        return int(move), float(score)

    def _pack_column(self, stack: list[int]) -> int:
        """Return as many cells as there is room for as bits, the open end lowest."""
        bits = self._model.bits
        cells = reversed(stack[-(BITS_OF_A_COLUMN // bits) :])
        return sum(self._code.get(value, 0) << (bits * place) for place, value in enumerate(cells))


# ------------------------------------------------------------------------------------------------- values of open ends
MOST_STATES: Final = 100_000  # patterns per column to the power of columns: beyond it fewer cells are looked at
MOST_PATTERNS: Final = 2_000
DEEPEST: Final = 6
SWEEPS: Final = 60
STRENGTH: Final = 0.7  # the share of a sweep's values that is taken over: all of it would go round in circles


@dataclass(frozen=True, slots=True)
class Patterns:
    """What may be known of one column, and what becomes of it.

    `open_end` is the code of the last cell, 0 where it is not known. `drop` is the pattern without it. `push[p, v]` is
    the pattern after a block of code v was placed. `reveal[p, v]` is the pattern with one more cell known, -1 where it
    cannot be v. `by_bits` gives the number of a pattern from its cells as bits, the open end lowest.
    """

    depth: int
    bits: int
    open_end: np.ndarray[Any, Any]
    drop: np.ndarray[Any, Any]
    push: np.ndarray[Any, Any]
    pops: np.ndarray[Any, Any]
    reveal: np.ndarray[Any, Any]
    by_bits: np.ndarray[Any, Any]


def depth_for(columns: int, values: int) -> int:
    """Return how many cells of each column can be looked at."""
    counts = (pattern_count(values, depth) for depth in range(1, DEEPEST + 1))
    return sum(count <= MOST_PATTERNS and count**columns <= MOST_STATES for count in counts)


def pattern_count(values: int, depth: int) -> int:
    """Return how many patterns of up to `depth` cells there are."""
    return sum(values**length for length in range(depth + 1))


def make_patterns(values: int, depth: int) -> Patterns:
    """Return the patterns of up to `depth` cells with the codes 1 to `values`."""
    codes = range(1, values + 1)
    names = [cells for length in range(depth + 1) for cells in itertools.product(codes, repeat=length)]
    number = {cells: k for k, cells in enumerate(names)}
    bits = values.bit_length()
    push = np.zeros((len(names), values + 1), np.int64)
    pops = np.zeros((len(names), values + 1), np.bool_)
    reveal = np.full((len(names), values + 1), -1, np.int64)
    by_bits = np.zeros(1 << (bits * depth), np.int64)
    for k, cells in enumerate(names):
        by_bits[sum(code << (bits * place) for place, code in enumerate(cells))] = k
        for code in codes:
            pops[k, code] = cells[:2] == (code, code)
            push[k, code] = number[cells[2:] if pops[k, code] else (code, *cells)[:depth]]
            if len(cells) < depth and not (values > 1 and cells[-2:] == (code, code)):
                reveal[k, code] = number[(*cells, code)]
    return Patterns(
        depth,
        bits,
        open_end=np.array([cells[0] if cells else 0 for cells in names], np.int64),
        drop=np.array([number[cells[1:]] for cells in names], np.int64),
        push=push,
        pops=pops,
        reveal=reveal,
        by_bits=by_bits,
    )


def solve(patterns: Patterns, columns: int, sweeps: int = SWEEPS) -> np.ndarray[Any, Any]:
    """Return the value of every state, float32: state = sum of the column's pattern * count ** column."""
    count = patterns.drop.size
    values = np.zeros(count**columns, np.float64)
    complete = np.array([bool((patterns.reveal[k] < 0).all()) for k in range(count)])
    for _ in range(sweeps):
        _sweep(values, columns, complete, patterns.open_end, patterns.drop, patterns.push, patterns.pops)
        # A state with unknown cells is worth the mean over what the first of them may be.
        for axis in range(columns):
            by_pattern = np.moveaxis(values.reshape((count,) * columns), axis, 0)
            for pattern in range(count - 1, -1, -1):
                revealed = patterns.reveal[pattern][patterns.reveal[pattern] >= 0]
                if revealed.size:
                    by_pattern[pattern] = by_pattern[revealed].mean(axis=0)
        values -= values[0]
    return values.astype(np.float32)


@compiled
def _sweep(values: Any, columns: Any, complete: Any, open_end: Any, drop: Any, push: Any, pops: Any) -> None:
    """Write to every state whose cells are all known what its best move leads to."""
    count = drop.size
    known = np.empty(columns, np.int64)
    for state in range(values.size):
        rest, all_known = state, True
        for column in range(columns):
            known[column] = rest % count
            rest //= count
            all_known &= complete[known[column]]
        if all_known:
            best = _best_move(values, state, known, open_end, drop, push, pops)
            values[state] += STRENGTH * (best - values[state])


@compiled
def _best_move(values: Any, state: Any, known: Any, open_end: Any, drop: Any, push: Any, pops: Any) -> Any:
    best, unit_from = -np.inf, 1
    for source in range(known.size):
        code = open_end[known[source]]
        without = state + (drop[known[source]] - known[source]) * unit_from
        unit_to = 1
        for target in range(known.size):
            if target != source and code > 0:
                after = without + (push[known[target], code] - known[target]) * unit_to
                best = max(best, values[after] + pops[known[target], code])
            unit_to *= drop.size
        unit_from *= drop.size
    return best if best > -np.inf else values[state]


# -------------------------------------------------------------------------------------------------------- the search
ROOT: Final = -1  # instead of a first move: the line has none yet; instead of a column: none holds
DIES, LIVES = 0, 1
DOOM: Final = 100.0  # what an overflow costs, in triples
_ONE: Final = np.uint64(1)


class SearchModel(NamedTuple):
    """What the search knows of the game: its size, and what the open ends are worth."""

    columns: int
    height: int
    bits: int
    window: int  # the lowest bits of a column that `numbers` looks up
    numbers: Any  # the number of the pattern that these bits are
    values: Any  # the value of a state: the sum of number * patterns ** column
    patterns: int
    weight: float  # how much this value counts beside triples that popped
    pair: float  # what two equal cells at an open end add, where `values` does not see them
    lean: float  # what each cell costs by which the longest column exceeds the mean


class SearchWorkspace(NamedTuple):
    """Memory that one search after the other works in; the first four have one row per line of a layer."""

    cells: Any
    heights: Any
    first: Any  # the first move as source * columns + target
    gains: Any
    parents: Any
    moves: Any
    child_gains: Any
    scores: Any
    seen: Any
    stamps: Any
    histogram: Any
    fate: Any  # how many lines of each first move die and live in this layer


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
def worth(outlook: Any, cells: Any, heights: Any) -> Any:
    """Return what the cells are worth, in triples."""
    mask, cell = (_ONE << np.uint64(outlook.window)) - _ONE, (_ONE << np.uint64(outlook.bits)) - _ONE
    state, unit, pairs = 0, 1, 0
    for column in range(outlook.columns):
        state += outlook.numbers[cells[column] & mask] * unit
        unit *= outlook.patterns
        code = cells[column] & cell
        pairs += code > 0 and code == (cells[column] >> np.uint64(outlook.bits)) & cell
    value = outlook.values[state] + outlook.pair * pairs
    return outlook.weight * value - outlook.lean * (heights.max() - heights.sum() / outlook.columns)


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
    lowest, highest = workspace.scores[:children].min(), workspace.scores[:children].max()
    last = workspace.histogram.size - 1
    scale = last / (highest - lowest) if highest > lowest else 0.0
    workspace.histogram[:] = 0
    for child in range(children):
        workspace.histogram[int((workspace.scores[child] - lowest) * scale)] += 1
    bucket, room = last, width
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
        line, step = workspace.parents[child], workspace.moves[child]
        workspace.cells[other, kept] = workspace.cells[side, line]
        workspace.heights[other, kept] = workspace.heights[side, line] + falls.sum()
        source, target = step // outlook.columns, step % outlook.columns
        move(workspace.cells[other, kept], workspace.heights[other, kept], source, target, outlook.bits)
        workspace.first[other, kept] = _first(workspace, side, line, step)
        workspace.gains[other, kept] = workspace.child_gains[child]
        # The scores move up with their lines: line k was never before child k.
        workspace.scores[kept] = workspace.scores[child]
        kept += 1
    return kept


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
    lines, side = 1, 0
    for depth in range(falls.shape[0]):
        workspace.fate[:] = 0
        bonus = (1.0 - fade * depth) / TRIPLE
        holds = held if depth == 0 else ROOT
        children = _expand(outlook, workspace, side, lines, holds, falls[depth], stamp + depth, bonus)
        lines = _select(outlook, workspace, side, children, falls[depth]) if children > 0 else 0
        side = 1 - side
        # First moves that cannot survive are put back, the others raised to the best score of their lines.
        for first in range(tops.size):
            if workspace.fate[DIES, first] > 0 and workspace.fate[LIVES, first] == 0:
                tops[first] -= DOOM
        for line in range(lines):
            first = workspace.first[side, line]
            tops[first] = max(tops[first], workspace.scores[line] - pace * (depth + 1))
        if lines == 0:
            break
    best = np.argmax(tops)
    return (best if tops[best] > -np.inf else ROOT), tops[best]


def make_search_model(rules: PopperRules) -> SearchModel:
    """Return what the search knows of a game with these rules."""
    values = len(rules.number_pool)
    patterns = make_patterns(values, depth_for(rules.columns, values))
    return SearchModel(
        columns=rules.columns,
        height=rules.height,
        bits=patterns.bits,
        window=patterns.bits * patterns.depth,
        numbers=patterns.by_bits,
        values=solve(patterns, rules.columns),
        patterns=patterns.drop.size,
        weight=1.0,
        pair=0.0 if patterns.depth >= 2 else PAIR,
        lean=LEAN,
    )
