"""A game of Column Popper: the board under its clock, what each move is worth, and how the game ends.

Rule 1: the board knows the moves, the schedule the time, the table the rewards; this file joins them, and knows no
    Gymnasium.
Rule 2: falls come before the clock: a fall without room loses the game, whatever the time.
Rule 3: nothing here can fail, so a move that has begun is made in full. Whether it may begin is for the caller to judge.
"""

from functools import reduce
from operator import add
from typing import Any, Final, TypeAlias

from proctor.contracts.chance import Stream, derive_key
from proctor.envs.popper.board import COLUMN_FULL, NOTHING_THERE, Board
from proctor.envs.popper.rewards import PARTS
from proctor.envs.popper.rules import PopperRules

OVERFLOW: Final = "overflow"
FULL_DROP: Final = "invalid_full_drop"
NO_ACTION: Final = -1
POINTS: Final = 3
"""What a popped cell adds to the score."""
NO_SHAPE: Final = (0, 0.0)
QUIET: Final = -3
"""Stands for the outcome of no action beside those that the board gives."""

Worth: TypeAlias = tuple[float, dict[str, float]]
"""A reward and its parts; the parts are shared, so a caller copies them."""


class Game:
    """One game after another under the same rules; `fault` says how the present one was lost, if it was."""

    # Slots, because every move reads most of them.
    __slots__ = (
        "_action_ms",
        "_columns",
        "_ends",
        "_fast_forward",
        "_key",
        "_shaped",
        "_strict",
        "_table",
        "_until",
        "_usual",
        "board",
        "duration",
        "elapsed",
        "falls",
        "fault",
        "interval",
        "last_fall",
        "rules",
        "score",
    )

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
        self._ends: dict[tuple[int, str | None], Worth] = {}
        self.begin(0, Board.empty(rules.height, rules.columns, rules.number_pool))

    def begin(self, episode_seed: int, board: Board | None = None) -> None:
        """Begin the game of this seed: on an empty board after one fall, or on the board given."""
        self._key = derive_key(episode_seed, Stream.SPAWN)
        self.board = first_board(self.rules, self._key) if board is None else board
        self.elapsed = 0
        self.last_fall = 0
        self.interval, self._until = self.rules.schedule.interval_at(0)
        self.falls = 1
        self.score = 0
        self.fault: str | None = None

    def copy(self) -> "Game":
        """Return a game of its own in the same position."""
        twin = Game.__new__(Game)
        for name in self.__slots__:
            setattr(twin, name, getattr(self, name))
        twin.board = self.board.copy()
        return twin

    @property
    def time_left(self) -> int:
        """Milliseconds until time is up."""
        return max(self.duration - self.elapsed, 0)

    @property
    def next_fall(self) -> int:
        """Milliseconds until the next scheduled fall."""
        return max(self.rules.schedule.next_fall(self.last_fall) - self.elapsed, 0)

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
            worth = self._worth_of_end(outcome)
        if self._shaped:
            worth = self._add_shaping(worth, shape)
        if outcome > 0:
            self.score += POINTS * outcome
            return outcome, worth
        return 0, worth

    def worth(self, outcome: int, late: bool, fault: str | None) -> Worth:
        """Return what a move of this outcome is worth; `late` says that time is up, unless a fault came first."""
        table = self._table
        parts = dict.fromkeys(PARTS, 0.0)
        parts["valid_action"] = table.valid_action if outcome >= 0 else 0.0
        parts["popped_cell"] = table.popped_cell * outcome if outcome > 0 else 0.0
        parts["step"] = table.step
        parts["invalid_action"] = table.invalid_action if outcome == NOTHING_THERE else 0.0
        parts["full_drop"] = table.full_drop if outcome == COLUMN_FULL else 0.0
        parts["overflow"] = table.overflow if fault == OVERFLOW else 0.0
        parts["time_up"] = table.time_up if late and fault is None else 0.0
        return sum_parts(parts), parts

    def _worth_of_end(self, outcome: int) -> Worth:
        """Return what the move is worth that has just ended the game."""
        event = (outcome, self.fault)
        worth = self._ends.get(event)
        if worth is None:
            worth = self._ends[event] = self.worth(outcome, True, self.fault)
        return worth

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
            schedule = self.rules.schedule
            elapsed = min(schedule.next_fall(self.last_fall), schedule.last_tick)
        else:
            elapsed = self.elapsed + self._action_ms
        self.elapsed = elapsed
        if elapsed >= self._until:
            self.interval, self._until = self.rules.schedule.interval_at(elapsed)
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
            "popped": None if board.pop is None else board.pop.as_dict(),
            "fault": self.fault,
        }


def sum_parts(parts: dict[str, float]) -> float:
    """Return the sum of the parts, from the first to the last; `sum()` rounds otherwise from Python 3.12 on."""
    return reduce(add, parts.values())


def first_board(rules: PopperRules, key: int) -> Board:
    """Return the board on which a game begins: one fall, its chance drawn by `key`."""
    board = Board.empty(rules.height, rules.columns, rules.number_pool)
    board.fall(key, 0)
    return board
