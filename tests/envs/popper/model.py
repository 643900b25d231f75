"""Column Popper told naively, beside the environment: lists of blocks, an accumulator, no shortcuts.

It never asks the environment what comes next; it only takes from it what chance decides, the row that fell.
"""

from typing import Any

import numpy as np

from proctor.envs.popper.env import ColumnPopperEnv

CONTRACT = {"valid": 1.0, "cell": 3.0, "step": -0.01, "invalid": -0.1, "drop": -1.0, "overflow": -1.0, "late": -0.5}


class Model:
    """One game; `play` says what must come of an action."""

    def __init__(self, board: Any, env: ColumnPopperEnv) -> None:
        self.rules = env.rules
        self.columns: list[list[int]] = [[int(v) for v in column if v] for column in np.asarray(board).T]
        self.holding: int | None = None
        self.elapsed = 0
        self.accumulated = 0
        self.popped_cells = 0
        self.spawned_cells = sum(map(len, self.columns))
        self.fell = False

    def interval(self) -> int:
        """Return the interval that holds now."""
        return [length for begins, length in self.rules.fall_curve if begins <= self.elapsed][-1]

    def play(self, action: int, top_row: list[int]) -> dict[str, Any]:
        """Play; `top_row` is what the environment shows in row 0 afterwards, for the case that a row fell."""
        kind, popped = self._touch(action)
        self.elapsed += self.rules.action_ms
        self.accumulated += self.rules.action_ms
        falls = action == self.rules.columns or self.accumulated >= self.interval()
        fault = None
        self.fell = False
        if kind == "drop" and self.rules.strict_invalid:
            fault = "invalid_full_drop"
        elif falls:
            if any(len(column) == self.rules.height for column in self.columns):
                fault = "overflow"
            else:
                self._fall(top_row)
        late = fault is None and self.elapsed >= self.rules.duration_ms
        self.popped_cells += popped
        reward = CONTRACT["step"] + CONTRACT.get(kind, 0.0) + CONTRACT["cell"] * popped
        reward += CONTRACT["overflow"] * (fault == "overflow") + CONTRACT["late"] * late
        return {"popped": popped, "fault": fault, "late": late, "reward": reward}

    def _fall(self, top_row: list[int]) -> None:
        for column, value in zip(self.columns, top_row, strict=True):
            assert value in self.rules.number_pool
            if len(self.rules.number_pool) > 1:
                assert column[:2] != [value, value]
            column.insert(0, value)
        self.spawned_cells += len(top_row)
        self.accumulated = 0
        self.fell = True

    def _touch(self, action: int) -> tuple[str, int]:
        if action == self.rules.columns:
            return "valid", 0
        target = self.columns[action]
        if self.holding is None:
            if not target:
                return "invalid", 0
            self.holding = action
            return "valid", 0
        if action != self.holding:
            if len(target) == self.rules.height:
                return "drop", 0
            target.append(self.columns[self.holding].pop())
        self.holding = None
        popped = 0
        while len(target) >= 3 and len(set(target[-3:])) == 1:
            del target[-3:]
            popped += 3
        return "valid", popped

    @property
    def board(self) -> list[list[int]]:
        """The board, row by row."""
        depth = range(self.rules.height)
        return [[column[row] if row < len(column) else 0 for column in self.columns] for row in depth]

    @property
    def selection(self) -> list[int]:
        """What is held, as it is observed."""
        return [0, 0] if self.holding is None else [1, self.columns[self.holding][-1]]

    @property
    def mask(self) -> list[int]:
        """Which actions are valid."""
        if self.holding is None:
            return [*(int(bool(column)) for column in self.columns), 1]
        room = (len(column) < self.rules.height or c == self.holding for c, column in enumerate(self.columns))
        return [*map(int, room), 1]
