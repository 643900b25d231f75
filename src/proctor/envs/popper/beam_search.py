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

The numbers below were chosen by playing games of seeds that no published figure uses.
"""

import itertools
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from proctor.envs.popper.beam_search_kernels import SearchModel, make_workspace, search
from proctor.envs.popper.board import NOBODY
from proctor.envs.popper.policies import GameTracker
from proctor.envs.popper.rules import PopperRules
from proctor.envs.vector.kernels import compiled

CHILDREN: Final = 900
"""Moves that a layer of the search may look at."""
NARROWEST: Final = 6
"""Lines that a search keeps at least."""
DEPTH: Final = 12
"""Moves that a line may have."""
FADE: Final = 0.01
"""What a triple loses in value with every move that it comes later."""
PACE: Final = 0.3
"""Triples that a move must bring at least for a longer line to beat a shorter one."""
PAIR: Final = 0.4
"""What a pair at an open end is worth on a board that is too wide for a table, in triples."""
LEAN: Final = 0.05
"""What each cell costs by which the longest column exceeds the mean."""
LOW: Final = 7 / 12
"""Rows are filled up from when the longest column is no longer than this share of the height, or a row fell."""
NEAR: Final = 6
SHORT: Final = 2
"""They are not if a scheduled fall is as near as this, for that one is free, unless a column is as short as this."""
BREATH: Final = 4
"""Nor if what is scheduled for the next so many actions, for every column but one, would find no room then."""
CELLS_PER_STEP: Final = 1.0
"""No more rows are filled up than can be cleared before the end."""
HARM: Final = 0.05
"""What a fall may cost the best line, in triples, for the cells that it shows."""
FAINT: Final = 0.01
"""The weight of what is left on the board when time is up: it decides between equals."""
BITS_OF_A_COLUMN: Final = 64

Plan: TypeAlias = tuple[list[list[int]], int, int]
"""The board that it was made for, the source and the target."""


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
        self._plan: Plan | None = None

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
        memory = self._tracker
        if memory.held == NOBODY:
            self._plan = None
            if self._wants_fall():
                return self._rules.columns
        if self._plan is None or self._plan[:2] != (memory.stacks, memory.held):
            self._plan = self._search()
        if self._plan is None:
            return self._make_do()
        _, source, target = self._plan
        return source if memory.held == NOBODY else target

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

    def _search(self) -> Plan | None:
        """Return the move to make, or None if there is none."""
        memory, columns = self._tracker, self._rules.columns
        move, _ = self._look_ahead((memory.steps_left + (memory.held != NOBODY)) // 2, 0)
        return None if move < 0 else (memory.stacks, move // columns, move % columns)

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

    def _make_do(self) -> int:
        """Return an action where no move helps: put back, let a row fall if there is room, or take the longest."""
        memory = self._tracker
        if memory.held != NOBODY:
            return memory.held
        lengths = [len(stack) for stack in memory.stacks]
        if max(lengths) < self._rules.height:
            return self._rules.columns
        return lengths.index(max(lengths))


# ------------------------------------------------------------------------------------------------- values of open ends
MOST_STATES: Final = 100_000
"""Patterns per column to the power of columns: beyond it fewer cells are looked at."""
MOST_PATTERNS: Final = 2_000
DEEPEST: Final = 6
SWEEPS: Final = 60
STRENGTH: Final = 0.7
"""The share of a sweep's values that is taken over: all of it would go round in circles."""


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
    depth = 0
    while depth < DEEPEST:
        count = pattern_count(values, depth + 1)
        if count > MOST_PATTERNS or count**columns > MOST_STATES:
            break
        depth += 1
    return depth


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
        _average(values, columns, patterns)
        values -= values[0]
    return values.astype(np.float32)


@compiled
def _sweep(values: Any, columns: Any, complete: Any, open_end: Any, drop: Any, push: Any, pops: Any) -> None:
    """Write to every state whose cells are all known what its best move leads to."""
    count = drop.size
    known = np.empty(columns, np.int64)
    for state in range(values.size):
        rest = state
        all_known = True
        for column in range(columns):
            known[column] = rest % count
            rest //= count
            all_known &= complete[known[column]]
        if all_known:
            best = _best_move(values, state, known, open_end, drop, push, pops)
            values[state] += STRENGTH * (best - values[state])


@compiled
def _best_move(values: Any, state: Any, known: Any, open_end: Any, drop: Any, push: Any, pops: Any) -> Any:
    best = -np.inf
    unit_from = 1
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


def _average(values: np.ndarray[Any, Any], columns: int, patterns: Patterns) -> None:
    """Write to every state with unknown cells the mean over what the first of them may be."""
    count = patterns.drop.size
    table = values.reshape((count,) * columns)
    for axis in range(columns):
        by_pattern = np.moveaxis(table, axis, 0)
        for pattern in range(count - 1, -1, -1):
            revealed = patterns.reveal[pattern][patterns.reveal[pattern] >= 0]
            if revealed.size:
                by_pattern[pattern] = by_pattern[revealed].mean(axis=0)


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
