"""Column Popper as its contract tells it: what an action does to a board, and when rows fall.

Rule 1: this is what an implementation is compared with, so it is written for reading, not for speed, and shares no code
    with one.
Rule 2: pure values. What falls is chance and is not told here; the checks see it on the board.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import permutations
from typing import Any, Final, TypeAlias

Stacks: TypeAlias = tuple[tuple[int, ...], ...]
"""The columns, each from the top down."""

TRIPLE: Final = 3
BOARD: Final = (12, 3)
POOL: Final = (1, 2, 3)
ACTION_MS: Final = 100
DURATION_MS: Final = 60_000
STEPS: Final = DURATION_MS // ACTION_MS
CURVE: Final = ((0, 3_000), (20_000, 2_000), (40_000, 1_000))
_DEPTH: Final = 3
_MOST_MOVES: Final = 300


class ActionKind(StrEnum):
    """What an action is in the position in which it is taken."""

    PICK = "a pick"
    PLACE = "a placement on another column"
    PUT_BACK = "a put-back"
    NOTHING_THERE = "a pick on an empty column"
    FULL_DROP = "a placement on a full column"
    FALL = "a manual fall"


INVALID: Final = frozenset({ActionKind.NOTHING_THERE, ActionKind.FULL_DROP})


@dataclass(frozen=True, slots=True)
class BoardPosition:
    """What lies in each column, and the column whose last block is held."""

    height: int
    stacks: Stacks
    held: int | None = None

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return sum(map(len, self.stacks))

    @property
    def full(self) -> bool:
        """Whether a column has no room for a fall."""
        return any(len(stack) >= self.height for stack in self.stacks)

    @property
    def selection(self) -> list[int]:
        """The selection as it is observed."""
        return [0, 0] if self.held is None else [1, self.stacks[self.held][-1]]

    @property
    def cells(self) -> list[list[int]]:
        """The board as rows, row 0 on top."""
        return [[stack[row] if row < len(stack) else 0 for stack in self.stacks] for row in range(self.height)]

    def kind_of(self, action: int) -> ActionKind:
        """Return what `action` is here."""
        if action == len(self.stacks):
            return ActionKind.FALL
        if self.held is None:
            return ActionKind.PICK if self.stacks[action] else ActionKind.NOTHING_THERE
        if action == self.held:
            return ActionKind.PUT_BACK
        return ActionKind.FULL_DROP if len(self.stacks[action]) >= self.height else ActionKind.PLACE

    def after(self, action: int) -> "ActionEffect":
        """Return what `action` does before anything falls."""
        kind = self.kind_of(action)
        if kind is ActionKind.PICK:
            return ActionEffect(kind, BoardPosition(self.height, self.stacks, action))
        if self.held is None or kind not in (ActionKind.PLACE, ActionKind.PUT_BACK):
            return ActionEffect(kind, self)
        stacks = list(self.stacks)
        value = stacks[self.held][-1]
        stacks[self.held] = stacks[self.held][:-1]
        stack = (*stacks[action], value)
        popped = _count_popped_cells(stack)
        stacks[action] = stack[: len(stack) - popped]
        return ActionEffect(kind, BoardPosition(self.height, tuple(stacks)), popped)


@dataclass(frozen=True, slots=True)
class ActionEffect:
    """What an action was, where it leads, and how many cells it popped."""

    kind: ActionKind
    position: BoardPosition
    popped: int = 0


def _count_popped_cells(stack: Sequence[int]) -> int:
    """Return how many cells pop at the open end of `stack`: the whole triples of the run there."""
    run = next((length for length, value in enumerate(reversed(stack)) if value != stack[-1]), len(stack))
    return run // TRIPLE * TRIPLE


def read_position(board: Any, held: int | None = None) -> BoardPosition:
    """Return the position that an observed board shows."""
    stacks = tuple(tuple(value for value in column if value) for column in board.T.tolist())
    return BoardPosition(len(board), stacks, held if held is not None and stacks[held] else None)


def interval_at(elapsed: int) -> int:
    """Return the fall interval, in milliseconds, that holds at `elapsed`."""
    return [interval for begins, interval in CURVE if begins <= elapsed][-1]


def _falls() -> Iterator[int]:
    last = 0
    for elapsed in range(ACTION_MS, DURATION_MS + 1, ACTION_MS):
        if elapsed - last >= interval_at(elapsed):
            last = elapsed
            yield elapsed


FALLS: Final = tuple(_falls())
"""The milliseconds at which rows fall if nobody asks for one."""


@lru_cache(maxsize=4096)
def solution(height: int, stacks: Stacks) -> tuple[int, ...]:
    """Return picks and placements that lead to a pop soon, or else away from the longest column."""
    paths: list[tuple[tuple[int, ...], Stacks]] = [((), stacks)]
    for _ in range(_DEPTH):
        longer = []
        for actions, here in paths:
            for source, target in permutations(range(len(stacks)), 2):
                picked = BoardPosition(height, here).after(source).position
                effect = picked.after(target)
                if effect.popped:
                    return (*actions, source, target)
                if effect.kind is ActionKind.PLACE:
                    longer.append(((*actions, source, target), effect.position.stacks))
        paths = longer[:_MOST_MOVES]
    by_length = sorted(range(len(stacks)), key=lambda column: len(stacks[column]))
    return by_length[-1], by_length[0]
