"""The board of Column Popper: stacks that hang from the top, one block that may be held. No time, no rewards.

Rule 1: row 0 is the top. A column's *open end* is its bottom-most block: the only one that can be picked, and where a block
    is placed. The held block stays on the board, so it is always the open end of its column.
Rule 2: `cells` is what an observation copies; `stacks` says the same as lists, top first. Only this class changes either.
Rule 3: a method that returns a refusal has changed nothing.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proctor.contracts.chance import draw_from_key

NOBODY: Final = -1
"""No column holds."""
NOTHING_THERE: Final = -1
COLUMN_FULL: Final = -2
TRIPLE: Final = 3

# One draw of 64 bits serves three columns: 21 bits each, so that a choice among up to nine is even to five in a million.
SHARE: Final = 21
SHARES: Final = 3
SHARE_MASK: Final = (1 << SHARE) - 1


class Pop(NamedTuple):
    """Cells that were removed: `cells` of one value, from `row` downwards."""

    column: int
    row: int
    cells: int
    value: int

    def as_dict(self) -> dict[str, int]:
        """Return this as a scene shows it."""
        return {"column": self.column, "row": self.row, "count": self.cells, "value": self.value}


class Board:
    """The cells, and the column whose open end is held (`held`, or `NOBODY`)."""

    __slots__ = ("_flat", "_occupied", "_others", "_pool", "_roomy", "cells", "held", "pop", "stacks")

    def __init__(self, cells: NDArray[np.int32], held: int, pool: tuple[int, ...], pop: Pop | None = None) -> None:
        self._set_cells(cells, read_stacks(cells), pool)
        self.held = held
        self.pop = pop
        for column in range(len(self.stacks)):
            self._update_bits(column)

    def _set_cells(self, cells: NDArray[np.int32], stacks: list[list[int]], pool: tuple[int, ...]) -> None:
        """Take the cells and what is in them."""
        self.cells = cells
        self.stacks = stacks
        self._pool = pool
        self._others = _others(pool)
        # The same memory, row by row: a write here costs a third of one to the array.
        self._flat = cells.data.cast("B").cast("i")
        # Bits, column 0 first: where there is a block, and where there is room for one.
        self._occupied = self._roomy = 0

    @classmethod
    def empty(cls, height: int, columns: int, pool: tuple[int, ...]) -> "Board":
        """Return a board without a block."""
        board = cls.__new__(cls)
        board._set_cells(np.zeros((height, columns), np.int32), [[] for _ in range(columns)], pool)
        board.held = NOBODY
        board.pop = None
        board._roomy = (1 << columns) - 1
        return board

    def __reduce__(self) -> tuple[Any, ...]:
        return (Board, (self.cells, self.held, self._pool, self.pop))

    def copy(self) -> "Board":
        """Return a board of its own in the same position."""
        return Board(self.cells.copy(), self.held, self._pool, self.pop)

    def toggle(self, column: int) -> int:
        """Pick or place at `column`; return how many cells popped, or `NOTHING_THERE` or `COLUMN_FULL`."""
        stack = self.stacks[column]
        held = self.held
        if held < 0:
            if not stack:
                return NOTHING_THERE
            self.held = column
            return 0
        if column != held:
            length, width, height = len(stack), len(self.stacks), len(self.cells)
            if length == height:
                return COLUMN_FULL
            source = self.stacks[held]
            value = source.pop()
            stack.append(value)
            self._flat[len(source) * width + held] = 0
            self._flat[length * width + column] = value
            self._roomy |= 1 << held
            self._occupied |= 1 << column
            if not source:
                self._occupied ^= 1 << held
            if length + 1 == height:
                self._roomy ^= 1 << column
        self.held = NOBODY
        if len(stack) < TRIPLE or not stack[-1] == stack[-2] == stack[-3]:
            return 0
        return self._remove(column)

    def _remove(self, column: int) -> int:
        """Remove the whole triples from the run at the column's open end; return how many cells that were."""
        stack = self.stacks[column]
        count = run_length(stack) // TRIPLE * TRIPLE
        self.pop = Pop(column, len(stack) - count, count, stack[-1])
        del stack[-count:]
        self.cells[len(stack) : len(stack) + count, column] = 0
        self._update_bits(column)
        return count

    def _update_bits(self, column: int) -> None:
        """Bring the bits of a column up to date."""
        bit, length = 1 << column, len(self.stacks[column])
        self._occupied = self._occupied | bit if length else self._occupied & ~bit
        self._roomy = self._roomy | bit if length < len(self.cells) else self._roomy & ~bit

    def fall(self, key: int, number: int) -> bool:
        """Let the fall of this number come, its chance drawn by `key`; return whether there was room for it."""
        stacks, flat, pool, others = self.stacks, self._flat, self._pool, self._others
        width, height = len(stacks), len(self.cells)
        everywhere = (1 << width) - 1
        if self._roomy != everywhere:
            return False
        flat[width:] = flat[:-width]
        bits = 0
        for column, stack in enumerate(stacks):
            bits = bits >> SHARE if column % SHARES else draw_from_key(key, number, column // SHARES)
            length = len(stack)
            choices = others[stack[0]] if length > 1 and stack[0] == stack[1] else pool
            flat[column] = value = choices[(bits & SHARE_MASK) * len(choices) >> SHARE]
            stack.insert(0, value)
            if length + 1 == height:
                self._roomy ^= 1 << column
        self._occupied = everywhere
        return True

    def valid_columns(self) -> int:
        """Return the columns where a toggle is valid now, as bits: column 0 is bit 0."""
        return self._occupied if self.held < 0 else self._roomy | 1 << self.held

    def pairs(self) -> int:
        """Return the number of columns whose two last blocks are equal."""
        return sum(len(stack) > 1 and stack[-1] == stack[-2] for stack in self.stacks)

    def longest(self) -> int:
        """Return the length of the longest column."""
        return max(map(len, self.stacks))


@lru_cache(maxsize=64)
def _others(pool: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
    """Return what may fall on two equal blocks, by their value; with a single value there is no choice."""
    return {value: tuple(other for other in pool if other != value) or pool for value in pool}


def read_stacks(cells: NDArray[np.int32]) -> list[list[int]]:
    """Return the columns as lists, the open end last."""
    return [[value for value in column if value] for column in cells.T.tolist()]


def run_length(stack: Sequence[int]) -> int:
    """Return how many equal blocks there are at the open end."""
    run = 0
    for value in reversed(stack):
        if value != stack[-1]:
            break
        run += 1
    return run
