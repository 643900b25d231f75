"""What the open ends of the columns are worth: the solution of a smaller game, computed when a policy is made.

Rule 1: the smaller game has no clock, no height and no end. Of each column only the cells nearest the open end are
    known; what lies above is chance, with the rule that a spawn keeps. A move is one pick and one place.
Rule 2: a pattern is what is known of one column: up to `depth` cells, the open end first. It has a number; number 0
    is the column of which nothing is known.
Rule 3: the value of a state is in triples, against the state of which nothing is known: what it will bring more than
    that one, both played well for ever. It is found by value iteration; nothing is learned from games.
"""

import itertools
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from proctor.envs.vector.compiler import compiled

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
