"""Pictures of Column Popper in a terminal, drawn from its scene alone.

Rule 1: a console with colours gets coloured cells, any other gets plain ASCII; the signs are the same table's columns.
Rule 2: every number is a digit, so nothing is told by colour alone: `[2]` is held, `*` has just popped, `!` is the danger row.
Rule 3: a picture never takes more than the columns and rows it was given: the panel goes first, then rows of the board
    (the frame says how many are not shown), then columns.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final, TypeAlias

from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style

from proctor.envs.drawing.raster import GROUND, MARK, SHADE, Colour, has_colours, style
from proctor.envs.popper.drawing.picture import (
    AMBER,
    BLOCKS,
    CALM,
    DANGER_SLOT,
    FAINT,
    HURRY,
    RED,
    SLOT,
    WHITE,
    PopperScene,
    digit_colour,
    find_game_end,
    read_scene,
)

Line: TypeAlias = list[Segment]

CELL: Final = 3  # characters
PANEL: Final = 24
LABEL: Final = 7
NUMBER: Final = 6
BETWEEN: Final = 2
BAR: Final = 10
FRAME: Final = 2  # characters beside the cells, and lines above and below them
WORDY: Final = 9  # characters that leave room to say how many rows are not shown
FOOT: Final = 1  # the line of the columns' numbers


@dataclass(frozen=True, slots=True)
class Signs:
    """The characters of a picture's lines, bars and empty cells."""

    empty: str
    across: str
    down: str
    danger: str
    corners: str
    full: str
    rest: str


ASCII: Final = Signs(empty=".", across="-", down="|", danger="!", corners="++++", full="#", rest="-")
BLOCK: Final = Signs(empty="·", across="─", down="│", danger="┃", corners="┌┐└┘", full="█", rest="░")


@dataclass(frozen=True, slots=True)
class BoardView:
    """The part of a board that is shown, `rows` from `first` on and `columns` from the left, and what is around it."""

    first: int
    rows: int
    columns: int
    panel: bool
    framed: bool = True
    numbered: bool = True

    @property
    def width(self) -> int:
        """Characters across."""
        return self.columns * CELL + FRAME + self.panel * (BETWEEN + PANEL)


@dataclass(frozen=True, slots=True)
class PopperText:
    """What rich draws; see `picture`."""

    seen: PopperScene
    columns: int
    rows: int
    numbered: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        coloured = has_colours(console, options)
        width = min(self.columns, options.max_width)
        view = fit_view(self.seen, width, self.rows, self.numbered)
        for line in lines(self.seen, view, BLOCK if coloured else ASCII)[: self.rows]:
            kept = Segment.adjust_line_length(line, min(width, Segment.get_line_length(line)))
            yield from kept if coloured else Segment.strip_styles(kept)
            yield Segment.line()

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        width = min(self.columns, options.max_width)
        needed = min(width, fit_view(self.seen, width, self.rows, self.numbered).width)
        return Measurement(needed, needed)


def picture(scene: Mapping[str, Any], columns: int, rows: int, *, numbered: bool = True) -> PopperText:
    """Return something for rich to print: the scene on at most `columns` by `rows` characters, each at least 1.

    With `numbered` the columns' numbers stand below them.
    """
    return PopperText(read_scene(scene), max(columns, 1), max(rows, 1), numbered)


def as_text(scene: Mapping[str, Any]) -> str:
    """Return the whole scene as plain ASCII: the board, and beside it score, clocks, the held block and the verdict."""
    seen = read_scene(scene)
    whole = BoardView(0, seen.static.height, seen.static.columns, panel=True)
    return "\n".join("".join(part.text for part in line).rstrip() for line in lines(seen, whole, ASCII))


def fit_view(seen: PopperScene, columns: int, rows: int, numbered: bool = True) -> BoardView:
    """Return the window that shows most in the room: where rows are missing, it has the held block or the longest stack's end."""
    height, across = seen.static.height, seen.static.columns
    around = FRAME + FOOT * numbered
    framed = rows > around
    shown = min(height, rows - framed * around)
    longest = max(seen.depth(column) for column in range(across))
    deepest = height if seen.held is None else seen.held[0]
    first = min(max(longest + 1 - shown, 0), height - shown, deepest)
    left = min(across, max((columns - FRAME) // CELL, 1))
    return BoardView(first, shown, left, columns >= across * CELL + FRAME + BETWEEN + PANEL, framed, numbered)


def lines(seen: PopperScene, window: BoardView, signs: Signs) -> list[Line]:
    """Return the picture's lines, all equally wide; the panel may make them more than the board needs."""
    board = _board(seen, window, signs)
    if not window.panel:
        return board
    blank, empty = [_part(" " * PANEL)], [_part(" " * (window.columns * CELL + FRAME))]
    both = zip_longest(board, _panel(seen, signs))
    return [[*(left or empty), _part(" " * BETWEEN), *(right or blank)] for left, right in both]


def _board(seen: PopperScene, window: BoardView, signs: Signs) -> list[Line]:
    below = window.first + window.rows
    cells = [_row(seen, window, signs, row) for row in range(window.first, below)]
    if not window.framed:
        return cells
    ceiling = _edge(window, signs, signs.corners[:2], window.first, FAINT)
    floor = _edge(window, signs, signs.corners[2:], seen.static.height - below, RED)
    if not window.numbered:
        return [ceiling, *cells, floor]
    # The columns' numbers are also the actions; the held block's column is marked.
    colours = (WHITE if column == seen.frame.held else FAINT for column in range(window.columns))
    numbers = [_part(f"{column:^{CELL}}", colour) for column, colour in enumerate(colours)]
    return [ceiling, *cells, floor, [_part(" "), *numbers, _part(" ")]]


def _part(text: str, colour: Colour = MARK, behind: Colour = GROUND) -> Segment:
    return Segment(text, style(colour, behind))


def _edge(window: BoardView, signs: Signs, corners: str, hidden: int, colour: Colour) -> Line:
    """Return a line above or below the cells; it tells how many rows are not shown there."""
    room = window.columns * CELL
    told = f" {hidden} more " if room >= WORDY else str(hidden)
    return [_part(corners[0] + (told if hidden else "").center(room, signs.across) + corners[1], colour)]


def _row(seen: PopperScene, window: BoardView, signs: Signs, row: int) -> Line:
    last = row == seen.static.height - 1
    side = _part(signs.danger if last else signs.down, RED if last else FAINT)
    burst = {cell for cell, _ in seen.burst()}
    cells = [_cell(seen, signs, (row, column), burst) for column in range(window.columns)]
    hides = window.columns < seen.static.columns
    return [side, *cells, _part(">", AMBER) if hides else side]


def _cell(seen: PopperScene, signs: Signs, cell: tuple[int, int], burst: set[tuple[int, int]]) -> Segment:
    row, column = cell
    value = seen.frame.board[row][column]
    if not value:
        ended, slot = find_game_end(seen.frame), DANGER_SLOT if row == seen.static.height - 1 else SLOT
        sign, colour = ("*", AMBER) if cell in burst else (signs.empty, FAINT)
        return _part(f" {sign} ", colour if ended is None else ended.colour, slot)
    if column == seen.frame.held and cell == seen.held:
        return Segment(f"[{value}]", style(SHADE, WHITE) + Style(bold=True))
    return Segment(f" {value} ", style(digit_colour(value), BLOCKS[value]))


def _panel(seen: PopperScene, signs: Signs) -> list[Line]:
    frame, held, ended = seen.frame, seen.held, find_game_end(seen.frame)
    clock, fall = AMBER if seen.time_share <= HURRY else CALM, RED if seen.endangered else CALM
    holding = "-" if held is None else f"{frame.board[held[0]][held[1]]} from column {held[1]}"
    told = [
        _label_line("score", str(frame.score)),
        [*_label_line("time", _seconds(frame.time_left_ms), NUMBER), *_bar(seen.time_share, clock, signs)],
        [*_label_line("fall", _seconds(frame.next_fall_ms), NUMBER), *_bar(seen.fall_share, fall, signs)],
        _label_line("held", holding),
        _label_line("step", str(frame.step)),
        _label_line("return", f"{frame.total_reward:.2f}"),
    ]
    return told if ended is None else [*told, [_part(ended.words.upper().ljust(PANEL), ended.colour)]]


def _label_line(label: str, text: str, room: int = PANEL - LABEL) -> Line:
    return [_part(label.ljust(LABEL), FAINT), _part(text.ljust(room)[:room])]


def _seconds(milliseconds: int) -> str:
    """Return the seconds in fewer than `NUMBER` characters: with a decimal, without one, or as a bound."""
    seconds = milliseconds / 1000
    told = f"{seconds:.1f}" if seconds < 999.95 else f"{seconds:.0f}"
    return told if len(told) < NUMBER else ">27 h"


def _bar(share: float, colour: Colour, signs: Signs) -> Line:
    full, room = round(share * BAR), PANEL - LABEL - NUMBER - BAR
    return [_part(signs.full * full, colour), _part(signs.rest * (BAR - full), FAINT), _part(" " * room)]
