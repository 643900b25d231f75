"""A person at Column Popper: letters and digits name columns, or a cursor does, and the clock runs.

Rule 1: a key that names no column of this board means nothing.
Rule 2: an action that is not valid now is shown as such and can be made all the same: the game has its own penalty.
"""

from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from proctor.cli.play.game import GameResult, GameState, KeyHelp, draw_bar
from proctor.envs.evaluation import Env
from proctor.envs.popper.drawing.terminal import CELL, FRAME, picture

LETTERS: Final = "asd"
DIGITS: Final = "123456789"
FALLS: Final = ("f", "down")
TOGGLES: Final = ("up", "space", "enter")
STEERS: Final = {"left": -1, "right": 1}
BAR: Final = 24
NARROW: Final = 44  # characters of the status
SHORT: Final = 8  # rows of the board
ENDINGS: Final = {
    "overflow": "overflow: a row fell and a column was full",
    "invalid_full_drop": "a block was dropped on a full column",
    None: "time is up",
}


class PopperPlayer:
    """Picks and places by column; remembers where its cursor stands."""

    title = "Column Popper"

    def __init__(self, env: Env) -> None:
        rules = env.get_wrapper_attr("rules")
        self._columns: int = rules.columns
        self.tick_ms: int = rules.action_ms
        self._named = {key: column for keys in (LETTERS, DIGITS) for column, key in enumerate(keys[: rules.columns])}
        self.keys: KeyHelp = (
            (_list_keys(LETTERS[: rules.columns], rules.columns), "pick or place"),
            ("left/right", "cursor"),
            ("up or space", "there"),
            ("f or down", "fall"),
        )
        self.cursor = 0
        self.begin()

    def begin(self) -> None:
        """Put the cursor in the middle."""
        self.cursor = (self._columns - 1) // 2

    def press(self, key: str, moment: GameState) -> int | None:
        """Return the column to toggle, the fall, or None; left and right move the cursor."""
        if key in STEERS:
            self.cursor = min(max(self.cursor + STEERS[key], 0), self._columns - 1)
            return None
        if key in TOGGLES:
            return self.cursor
        if key in FALLS:
            return self._columns
        return self._named.get(key)

    def status(self, moment: GameState) -> tuple[str, ...]:
        """Return the seconds left, the score, the return, and when the next row falls."""
        frame = moment.scene["frame"]
        left, interval = frame["next_fall_ms"], frame["fall_interval_ms"]
        return (
            f"time {frame['time_left_ms'] / 1000:.1f} s   score {frame['score']}   return {frame['total_reward']:.2f}",
            f"next fall [{draw_bar(left / interval, BAR)}] {left / 1000:.1f} s",
        )

    def hint(self, moment: GameState) -> str:
        """Return what is held, and so what a column's key does."""
        frame = moment.scene["frame"]
        if frame["held"] is None:
            return "nothing held: pick a column"
        return f"holding {_find_lowest(frame['board'], frame['held'])}: place it"

    def picture(self, moment: GameState, columns: int, rows: int) -> RenderableType:
        """Return the board without its panel, whose place the status takes, and the keys of its columns below."""
        width = min(self._columns * CELL + FRAME, columns)
        return Group(picture(moment.scene, width, rows - 1, numbered=False), Text(self._signs(moment)[:width]))

    def _signs(self, moment: GameState) -> str:
        """Return the columns' keys, the cursor in brackets, and a dash where an action is not valid now."""
        valid = moment.info["action_mask"]
        signs = [self._sign(column) if valid[column] else "-" for column in range(self._columns)]
        signs[self.cursor] = f"[{signs[self.cursor]}]"
        return " ".ljust(FRAME // 2) + "".join(f"{sign:^{CELL}}" for sign in signs)

    def _sign(self, column: int) -> str:
        names = LETTERS if self._columns <= len(LETTERS) else DIGITS
        return names[column] if column < len(names) else "*"

    def least(self, moment: GameState) -> tuple[int, int]:
        """Return room for every column and for enough rows to play by."""
        static = moment.scene["static"]
        return max(static["columns"] * CELL + FRAME, NARROW), min(static["height"], SHORT) + FRAME + 1

    def result(self, moment: GameState) -> GameResult:
        """Return the score and how the game ended; a higher score is better."""
        frame = moment.scene["frame"]
        return GameResult(
            ending=ENDINGS[frame["fault"]],
            facts=(
                ("score", str(frame["score"])),
                ("return", f"{frame['total_reward']:.2f}"),
                ("actions", str(moment.moves)),
                ("time left", f"{frame['time_left_ms'] / 1000:.1f} s"),
            ),
            rank=(float(frame["score"]),),
            words=f"score {frame['score']}",
        )


def _list_keys(letters: str, columns: int) -> str:
    return "/".join(letters) if columns <= len(LETTERS) else f"1-{min(columns, len(DIGITS))}"


def _find_lowest(board: list[list[int]], column: int) -> int:
    """Return the value at the open end of a column."""
    return [row[column] for row in board if row[column]][-1]
