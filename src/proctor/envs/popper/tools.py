"""What an agent can do in Column Popper: look, pick and place, and let a row fall; and the board as text.

Rule: an agent sees the board, the block that is held, and the time where the observation has it. It learns neither the score nor
what will fall.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Final

from pydantic import Field

from proctor.contracts.tools import ToolSafety, tool
from proctor.envs.popper.models import PopperAction, PopperObservation, PopperView, TimedPopperView
from proctor.envs.popper.rules import LARGEST_VALUE, PopperRules
from proctor.models.wire import assemble_model

# An empty cell and the blocks, as they are drawn.
CELLS: Final = (" . ", *(f" {value} " for value in range(1, LARGEST_VALUE + 1)))


class LookTools:
    """What does not depend on the board's size."""

    def __init__(self, latest: Callable[[], PopperObservation]) -> None:
        self._latest = latest

    @tool(ToolSafety.READ, title="Look at the board")
    def look(self) -> PopperObservation:
        """Look at the board again. This takes no time and changes nothing.

        What comes back is the board, a row to a line with the top row first, and the numbers of the columns above it. Columns
        hang from the top without holes; `.` is an empty cell. The last block of a column, the one furthest down, is its open
        end: only that one can be picked, and a placed block comes below it. A block in brackets, such as [2], is held.
        """
        return self._latest()


@lru_cache(maxsize=16)
def make_tool_class(columns: int) -> type[LookTools]:
    """Return the tools for a board of so many columns."""

    class Playing(LookTools):
        """Looks, picks, places, and lets rows fall."""

        @tool(ToolSafety.WRITE, title="Pick or place a block")
        def toggle_column(
            self, column: Annotated[int, Field(ge=0, le=columns - 1, description="The column; 0 is the leftmost.")]
        ) -> PopperAction:
            """Pick the last block of a column, or place the held block in it.

            With nothing held, this takes hold of the column's open end, its last block; the block stays where it is meanwhile.
            With a block held, it moves that block below the last one of this column; the column that it was picked from puts it
            back. After a placement, three or more equal blocks at the open end of that column pop: they are removed in threes.
            To pick from an empty column does nothing but take time. What comes back is the board afterwards.
            """
            return _actions[column]

        @tool(ToolSafety.WRITE, title="Let a row fall")
        def fall(self) -> PopperAction:
            """Let a new row of blocks fall now, without waiting for it.

            Every column moves down by one row and gets a new block on top; nothing pops by a fall. If some column is full, there
            is no room, and the game is lost: look before you use this. What comes back is the board afterwards.
            """
            return _actions[columns]

    _actions = [assemble_model(PopperAction, {"action": place}) for place in range(columns + 1)]
    return Playing


def describe_rules(rules: PopperRules) -> str:
    """Return the facts of this game that are the same in every episode."""
    intervals = [interval for _, interval in rules.fall_curve]
    often = f"every {_seconds(intervals[0])} at first and every {_seconds(intervals[-1])} at the end"
    fall = "as long as the next row would have taken" if rules.fast_forward else "the same"
    full = "loses the game" if rules.strict_invalid else "does nothing but take time"
    return (
        f"The board has {rules.height} rows and {rules.columns} columns. A pick or a placement takes"
        f" {_seconds(rules.action_ms)} of game time, `fall` {fall}. Rows also fall by themselves, {often}. To place on a full"
        f" column {full}. A row that falls while some column is full ends the game; so does the time, after"
        f" {_seconds(rules.duration_ms)}. The aim is to pop as many blocks as you can until then."
    )


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:g} s"


def describe_board(view: PopperView, held: int | None) -> str:
    """Return the board as text; `held` is the column of the held block, if that is known."""
    rows = view.board
    depth = sum(map(any, rows))
    drawn = [[CELLS[value] for value in row] for row in rows[:depth]]
    if held is not None:
        open_end = sum(row[held] > 0 for row in rows) - 1
        drawn[open_end][held] = f"[{rows[open_end][held]}]"
    labelled = [("", [f" {column:<2}" for column in range(len(rows[0]))]), *enumerate(drawn)]
    lines = [f"{label:>2} |{''.join(cells)}".rstrip() for label, cells in labelled]
    last = len(rows) - 1
    if depth <= last:
        lines.append(f"Row {last} is empty." if depth == last else f"Rows {depth} to {last} are empty.")
    where = "" if held is None else f", the last block of column {held}"
    lines.append(f"A {view.selection[1]} is held{where}." if view.selection[0] else "Nothing is held.")
    if isinstance(view, TimedPopperView):
        lines.append(f"{view.time_left_norm[0]:.1%} of the time is left.")
    return "\n".join(lines)
