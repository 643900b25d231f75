"""What a scene of Column Popper says, as typed values, and its colours; every picture is drawn from these alone.

Rule 1: a scene that contradicts itself (a board of another size, a held block where there is none) is a RenderingError.
Rule 2: any two blocks differ for every common kind of colour blindness, the standard pool's three most; and each shows its number.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from proctor.envs.drawing.raster import SHADE, Colour, read_part
from proctor.errors import RenderingError

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
Value: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=9)]
Cell: TypeAlias = tuple[int, int]
"""A row, counted from the top, and a column."""


class PopperStatic(msgspec.Struct, frozen=True):
    """What stays the same during an episode."""

    height: Positive
    columns: Positive
    duration_ms: Positive


class Popped(msgspec.Struct, frozen=True):
    """The cells that a step removed: `count` of them from `row` downwards."""

    column: Count
    row: Count
    count: Positive
    value: Annotated[int, msgspec.Meta(ge=1, le=9)]


class PopperFrame(msgspec.Struct, frozen=True):
    """What changes with every step."""

    step: Count
    total_reward: float
    state: Literal["ready", "terminated", "truncated"]
    board: list[list[Value]]
    score: Count
    time_left_ms: Count
    fall_interval_ms: Positive
    next_fall_ms: Count
    held: Count | None = None
    popped: Popped | None = None
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class PopperScene:
    """A whole scene, and what pictures ask of it."""

    static: PopperStatic
    frame: PopperFrame

    @property
    def time_share(self) -> float:
        """How much of the time is left, in [0, 1]."""
        return min(self.frame.time_left_ms / self.static.duration_ms, 1.0)

    @property
    def fall_share(self) -> float:
        """How much of the wait for the next fall is left, in [0, 1]."""
        return min(self.frame.next_fall_ms / self.frame.fall_interval_ms, 1.0)

    @property
    def endangered(self) -> bool:
        """Whether a column is full, so that the next fall ends the game."""
        return any(self.frame.board[-1])

    @property
    def held(self) -> Cell | None:
        """Where the held block is: the lowest of its column."""
        column = self.frame.held
        return None if column is None else (self.depth(column) - 1, column)

    def depth(self, column: int) -> int:
        """Return how many rows the column's stack reaches down."""
        rows = range(self.static.height, 0, -1)
        return next((row for row in rows if self.frame.board[row - 1][column]), 0)

    def burst(self) -> Iterator[tuple[Cell, int]]:
        """Yield the cells that this step emptied and nothing has filled since, each with the number it had."""
        popped = self.frame.popped
        if popped is not None:
            cells = ((popped.row + below, popped.column) for below in range(popped.count))
            yield from ((cell, popped.value) for cell in cells if not self.frame.board[cell[0]][cell[1]])


def read_scene(scene: Mapping[str, Any]) -> PopperScene:
    """Return the scene's parts; anything but a scene of Column Popper is a RenderingError."""
    seen = PopperScene(
        read_part(scene, "static", PopperStatic, owner="popper's"),
        read_part(scene, "frame", PopperFrame, owner="popper's"),
    )
    for problem, expected in _find_contradictions(seen.static, seen.frame):
        raise RenderingError(f"no popper's scene: {problem}", found=scene, expected=expected)
    return seen


def _find_contradictions(static: PopperStatic, frame: PopperFrame) -> Iterator[tuple[str, str]]:
    if len(frame.board) != static.height or any(len(row) != static.columns for row in frame.board):
        yield "the board has another size", f"{static.height} rows of {static.columns} numbers"
    if frame.held is not None and not (frame.held < static.columns and any(row[frame.held] for row in frame.board)):
        yield "nothing to hold there", f"a column below {static.columns} with a block in it"
    popped = frame.popped
    if popped is not None and not (popped.column < static.columns and popped.row + popped.count <= static.height):
        yield "popped outside the board", f"cells of {static.height} rows and {static.columns} columns"


BLOCKS: Final[Mapping[int, Colour]] = {
    1: (118, 209, 255),
    2: (232, 187, 39),
    3: (3, 143, 126),
    4: (237, 47, 26),
    5: (206, 255, 246),
    6: (143, 78, 250),
    7: (214, 120, 201),
    8: (250, 231, 122),
    9: (140, 62, 151),
}
WHITE: Final[Colour] = (255, 255, 255)
SLOT: Final[Colour] = (18, 20, 40)
DANGER_SLOT: Final[Colour] = (56, 18, 30)
FAINT: Final[Colour] = (104, 112, 150)
RAIL: Final[Colour] = (58, 62, 90)
AMBER: Final[Colour] = (255, 184, 32)
RED: Final[Colour] = (255, 64, 72)
CALM: Final[Colour] = (112, 226, 255)
HURRY: Final = 0.2
"""The share of the time from which on the clock is amber."""


@dataclass(frozen=True, slots=True)
class GameEnd:
    """How a game ended, in a word and a colour."""

    words: str
    colour: Colour


FAULTS: Final = {"overflow": "overflow", "invalid_full_drop": "full column", None: "game over"}


def find_game_end(frame: PopperFrame) -> GameEnd | None:
    """Return how the game ended, or None while it goes on."""
    if frame.state == "ready":
        return None
    lost = GameEnd(FAULTS.get(frame.fault, FAULTS[None]), RED)
    return GameEnd("time up", AMBER) if frame.state == "truncated" else lost


def digit_colour(value: int) -> Colour:
    """Return the colour of the number on a block: dark on bright blocks, white on the others."""
    red, green, blue = ((part / 255.0) ** 2.2 for part in BLOCKS[value])
    return SHADE if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 else WHITE
