"""The strongest policy: a beam search over moves, renewed whenever the board shows something new.

Rule 1: it sees observations and its own actions only. It draws no numbers, so the seed means nothing to it; cells that
    have not fallen yet are unknown, and what they may bring is in the values of `search_values`.
Rule 2: when to let a row fall is a rule of thumb (`_wants_fall`), which move to make is the search's to find.
Rule 3: the effort is a number of lines and moves, never a time, so the same observations give the same actions.

The numbers below were chosen by playing games of seeds that no published figure uses.
"""

from typing import Any, Final

import numpy as np

from proctor.envs.popper.board import NOBODY
from proctor.envs.popper.memory import Memory
from proctor.envs.popper.rules import PopperRules
from proctor.envs.popper.search_kernels import Outlook, desk_for, search
from proctor.envs.popper.search_values import depth_for, patterns_of, solve

CHILDREN: Final = 900
"""Moves that a layer of the search may look at."""
DEPTH: Final = 14
"""Moves that a line may have."""
FADE: Final = 0.01
"""What a triple loses in value with every move that it comes later."""
PACE: Final = 0.3
"""Triples that a move must bring at least for a longer line to beat a shorter one."""
LOW: Final = 7 / 12
"""Rows are filled up when the longest column is no longer than this share of the height, or when a row fell."""
SHORT: Final = 2
"""... and they are not, if a scheduled fall is near, unless a column is shorter than this."""
NEAR: Final = 4
CELLS_PER_STEP: Final = 1.0
"""No more rows than can be cleared before the end."""
BITS_OF_A_COLUMN: Final = 64


class SearchPolicy:
    """Looks many moves ahead; made for the rules of a game."""

    def __init__(self, rules: PopperRules) -> None:
        self._rules = rules
        self._memory = Memory(rules)
        self._outlook = outlook_of(rules)
        self._desk = desk_for(max(1, CHILDREN // rules.columns**2), rules.columns)
        self._code = {value: code for code, value in enumerate(rules.number_pool, 1)}
        self._stamp = 1
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Forget the last episode."""
        self._memory.forget()
        self._filling = True
        self._plan: tuple[list[list[int]], int, int] | None = None

    def act(self, observation: Any) -> int:
        """Return the next action."""
        memory = self._memory
        memory.look(observation)
        action = self._choose()
        if memory.steps_to_fall == 1:
            self._filling = True
        memory.note(action)
        return action

    def _choose(self) -> int:
        memory = self._memory
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
        memory, height = self._memory, self._rules.height
        lengths = [len(stack) for stack in memory.stacks]
        longest = max(lengths)
        if longest >= height - 1:
            self._filling = False
        elif longest <= int(LOW * height):
            self._filling = True
        if self._rules.fast_forward or sum(lengths) >= CELLS_PER_STEP * memory.steps_left:
            return False
        return self._filling and (memory.steps_to_fall > NEAR or min(lengths) < SHORT)

    def _search(self) -> tuple[list[list[int]], int, int] | None:
        """Return the board, the source and the target of the move to make, or None if there is none."""
        memory = self._memory
        left = memory.steps_left
        is_held = memory.held != NOBODY
        moves = (left + is_held) // 2
        depth = min(DEPTH, moves)
        falls = memory.falls([1 if is_held and k == 0 else 2 for k in range(depth)])
        ends = depth == moves
        move, _ = search(
            self._outlook._replace(weight=0.01) if ends else self._outlook,
            self._desk,
            np.array([self._packed(stack) for stack in memory.stacks], np.uint64),
            np.array([len(stack) for stack in memory.stacks], np.int64),
            memory.held,
            np.array(falls, np.int64),
            self._stamp,
            FADE / 10 if ends else FADE,
            0.0 if ends else PACE,
        )
        self._stamp += depth
        if move < 0:
            return None
        return memory.stacks, int(move) // self._rules.columns, int(move) % self._rules.columns

    def _packed(self, stack: list[int]) -> int:
        """Return as many cells as there is room for as bits, the open end lowest."""
        bits = self._outlook.bits
        cells = reversed(stack[-(BITS_OF_A_COLUMN // bits) :])
        return sum(self._code.get(value, 0) << (bits * place) for place, value in enumerate(cells))

    def _make_do(self) -> int:
        """Return an action where no move helps: put back, let a row fall if there is room, or take the longest."""
        memory = self._memory
        if memory.held != NOBODY:
            return memory.held
        lengths = [len(stack) for stack in memory.stacks]
        if max(lengths) < self._rules.height:
            return self._rules.columns
        return lengths.index(max(lengths))


def outlook_of(rules: PopperRules) -> Outlook:
    """Return what the search knows of a game with these rules."""
    values = len(rules.number_pool)
    patterns = patterns_of(values, depth_for(rules.columns, values))
    return Outlook(
        columns=rules.columns,
        height=rules.height,
        bits=patterns.bits,
        window=patterns.bits * patterns.depth,
        numbers=patterns.by_bits,
        values=solve(patterns, rules.columns),
        patterns=patterns.drop.size,
        weight=1.0,
        lean=0.05,
    )
