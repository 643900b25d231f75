"""A game of Column Popper: the board, its clock, what each move is worth, and how the game ends.

Rule 1: row 0 is the top, and stacks hang from it. A column's *open end* is its bottom-most block: the only one that can be
    picked, and where a block is placed. The held block stays on the board, so it is always the open end of its column.
Rule 2: `Board.cells` is what an observation copies; `stacks` says the same as lists, top first. Only `Board` changes either.
Rule 3: falls come before the clock: a fall without room loses the game, whatever the time.
Rule 4: nothing here can fail, so a move that has begun is made in full. Whether it may begin is for the caller to judge.
"""

from collections.abc import Sequence
from copy import copy
from functools import lru_cache, reduce
from operator import add
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from proctor.contracts.chance import Stream, derive_key, draw_from_key
from proctor.envs.popper.rules import PopperRules

NOBODY: Final = -1  # no column holds
NOTHING_THERE: Final = -1
COLUMN_FULL: Final = -2
TRIPLE: Final = 3

# One draw of 64 bits serves three columns: 21 bits each, so that a choice among up to nine is even to five in a million.
SHARE: Final = 21
SHARES: Final = 3
SHARE_MASK: Final = (1 << SHARE) - 1


Pop: TypeAlias = dict[str, int]  # cells that were removed: `count` of one `value` in `column`, from `row` downwards


class Board:
    """The cells, the column whose open end is held (`held`, or `NOBODY`), and what the last move removed (`pop`)."""

    def __init__(
        self,
        cells: NDArray[np.int32],
        held: int,
        pool: tuple[int, ...],
        pop: Pop | None = None,
        stacks: list[list[int]] | None = None,
    ) -> None:
        self.cells = cells
        self.stacks = read_stacks(cells) if stacks is None else stacks
        self.held = held
        self.pop = pop
        self._pool = pool
        self._others = _others(pool)
        # The same memory, row by row: a write here costs a third of one to the array.
        self._flat = cells.data.cast("B").cast("i")
        # Bits, column 0 first: where there is a block, and where there is room for one.
        self._occupied = self._roomy = 0
        height = len(cells)
        for column, stack in enumerate(self.stacks):
            if stack:
                self._occupied |= 1 << column
            if len(stack) < height:
                self._roomy |= 1 << column

    @classmethod
    def first(cls, rules: PopperRules, key: int) -> "Board":
        """Return the board on which a game begins: one fall, its chance drawn by `key`."""
        cells = np.zeros((rules.height, rules.columns), np.int32)
        board = cls(cells, NOBODY, rules.number_pool, stacks=[[] for _ in range(rules.columns)])
        board.fall(key, 0)
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
        """Remove what pops at the column's open end; return how many cells that were."""
        stack = self.stacks[column]
        count = run_length(stack) // TRIPLE * TRIPLE
        self.pop = {"column": column, "row": len(stack) - count, "count": count, "value": stack[-1]}
        del stack[-count:]
        self.cells[len(stack) : len(stack) + count, column] = 0
        self._roomy |= 1 << column
        if not stack:
            self._occupied ^= 1 << column
        return count

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


OVERFLOW: Final = "overflow"
FULL_DROP: Final = "invalid_full_drop"
NO_ACTION: Final = -1
POINTS: Final = 3  # what a popped cell adds to the score
NO_SHAPE: Final = (0, 0.0)
QUIET: Final = -3  # stands for the outcome of no action beside those that the board gives

Worth: TypeAlias = tuple[float, dict[str, float]]
"""A reward and its parts; the parts are shared, so a caller copies them."""


class Game:
    """One game after another under the same rules; `fault` says how the present one was lost, if it was."""

    def __init__(self, rules: PopperRules) -> None:
        self.rules = rules
        self.duration = rules.duration_ms
        self._action_ms = rules.action_ms
        self._columns = rules.columns
        self._strict = rules.strict_invalid
        self._fast_forward = rules.fast_forward
        self._table = rules.rewards
        self._shaped = bool(self._table.pair or self._table.crowding)
        # By the outcome; from the end of the list come those below 0.
        outcomes = (*range(rules.height + 1), *range(QUIET, 0))
        self._usual = [self.worth(outcome, False, None) for outcome in outcomes]
        self.begin(0)

    def begin(self, episode_seed: int, board: Board | None = None) -> None:
        """Begin the game of this seed: on an empty board after one fall, or on the board given."""
        self._key = derive_key(episode_seed, Stream.SPAWN)
        self.board = Board.first(self.rules, self._key) if board is None else board
        self.elapsed = 0
        self.last_fall = 0
        self.interval, self._until = self.rules.interval_at(0)
        self.falls = 1
        self.score = 0
        self.fault: str | None = None

    def copy(self) -> "Game":
        """Return a game of its own in the same position."""
        twin = copy(self)
        twin.board = self.board.copy()
        return twin

    @property
    def time_left(self) -> int:
        """Milliseconds until time is up."""
        return max(self.duration - self.elapsed, 0)

    @property
    def next_fall(self) -> int:
        """Milliseconds until the next scheduled fall."""
        return max(self.rules.next_fall(self.last_fall) - self.elapsed, 0)

    def move(self, action: int) -> tuple[int, Worth]:
        """Make a move (or none: `NO_ACTION`) and let its time pass; return the cells that popped and what it is worth."""
        shape = self._shape() if self._shaped else NO_SHAPE
        board = self.board
        board.pop = None
        if action >= 0:
            outcome = board.toggle(action) if action < self._columns else 0
        else:
            outcome = QUIET
        due = self._tick(action == self._columns)
        if outcome == COLUMN_FULL and self._strict:
            self.fault = FULL_DROP
        elif due and not self._fall():
            self.fault = OVERFLOW
        if self.fault is None and self.elapsed < self.duration:
            worth = self._usual[outcome]
        else:
            worth = self.worth(outcome, True, self.fault)
        if self._shaped:
            worth = self._add_shaping(worth, shape)
        if outcome > 0:
            self.score += POINTS * outcome
            return outcome, worth
        return 0, worth

    def worth(self, outcome: int, late: bool, fault: str | None) -> Worth:
        """Return what a move of this outcome is worth; `late` says that time is up, unless a fault came first."""
        table = self._table
        parts = {
            "valid_action": table.valid_action if outcome >= 0 else 0.0,
            "popped_cell": table.popped_cell * outcome if outcome > 0 else 0.0,
            "step": table.step,
            "invalid_action": table.invalid_action if outcome == NOTHING_THERE else 0.0,
            "full_drop": table.full_drop if outcome == COLUMN_FULL else 0.0,
            "overflow": table.overflow if fault == OVERFLOW else 0.0,
            "time_up": table.time_up if late and fault is None else 0.0,
            "pair": 0.0,
            "crowding": 0.0,
        }
        return sum_parts(parts), parts

    def _add_shaping(self, worth: Worth, before: tuple[int, float]) -> Worth:
        """Return `worth` with what the move changed in pairs and crowding."""
        pairs, crowding = NO_SHAPE if self.fault is not None else self._shape()
        parts = worth[1].copy()
        parts["pair"] = self._table.pair * (pairs - before[0])
        parts["crowding"] = self._table.crowding * (crowding - before[1])
        return sum_parts(parts), parts

    def _tick(self, manual: bool) -> bool:
        """Move the clock; return whether a row is due."""
        if manual and self._fast_forward:
            elapsed = min(self.rules.next_fall(self.last_fall), self.rules.last_tick)
        else:
            elapsed = self.elapsed + self._action_ms
        self.elapsed = elapsed
        if elapsed >= self._until:
            self.interval, self._until = self.rules.interval_at(elapsed)
        return elapsed - self.last_fall >= self.interval or (manual and not self._fast_forward)

    def _fall(self) -> bool:
        """Let a row fall; return whether there was room for it."""
        if not self.board.fall(self._key, self.falls):
            return False
        self.falls += 1
        self.last_fall = self.elapsed
        return True

    def _shape(self) -> tuple[int, float]:
        """Return what `pair` and `crowding` measure."""
        return self.board.pairs(), self.board.longest() / self.rules.height

    def frame(self) -> dict[str, Any]:
        """Return the position as a scene's frame shows it."""
        board = self.board
        return {
            "board": board.cells.tolist(),
            "held": board.held if board.held >= 0 else None,
            "score": self.score,
            "time_left_ms": self.time_left,
            "fall_interval_ms": self.interval,
            "next_fall_ms": self.next_fall,
            "popped": board.pop and dict(board.pop),
            "fault": self.fault,
        }


def sum_parts(parts: dict[str, float]) -> float:
    """Return the sum of the parts, from the first to the last; `sum()` rounds otherwise from Python 3.12 on."""
    return reduce(add, parts.values())
