"""How a person plays our environments: what keys mean, and what stands beside the picture.

Rule 1: the keys follow from the actions alone; actions that no key can express are refused, a key that means none is nothing.
Rule 2: an action that is not valid now is shown as such and can be made all the same: the game has its own penalty.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from rich.console import Group, RenderableType
from rich.text import Text

from proctor.cli.play.game import GameResult, GameState, KeyHelp
from proctor.envs.evaluation import Env
from proctor.envs.plume.config import ComponentKind
from proctor.envs.plume.drawing.terminal import picture as draw_plume
from proctor.envs.popper.drawing.terminal import CELL, FRAME
from proctor.envs.popper.drawing.terminal import picture as draw_board
from proctor.errors import ValidationError

# ---------------------------------------------------------------------------------------------------------- plume search
Parameters: TypeAlias = Mapping[str, Any]
KeyMeaning: TypeAlias = Callable[[str, GameState, Parameters], int | None]

COMPASS: Final = {"up": 0, "right": 1, "down": 2, "left": 3}
EIGHT: Final = {"up": 0, "u": 1, "right": 2, "n": 3, "down": 4, "b": 5, "left": 6, "y": 7, "space": 8}
TURNS: Final = {"up": 0, "left": 1, "right": 2}
QUARTERS: Final = {"left": 1, "right": -1}
LEAST_SIZE: Final = (24, 6)


def _run_or_turn(key: str, moment: GameState, parameters: Parameters) -> int | None:
    """Return a run, or a turn to the heading beside the present one."""
    if key == "up":
        return 0
    if key not in QUARTERS:
        return None
    headings = int(parameters["n_headings"])
    present: int = round(moment.scene["frame"]["agent"]["heading"] * headings / 360.0)
    return 1 + (present + QUARTERS[key]) % headings


def _meaning_from_table(table: Mapping[str, int]) -> KeyMeaning:
    return lambda key, moment, parameters: table.get(key)


TURNING_KEYS: Final[KeyHelp] = (("up", "forward"), ("left/right", "turn"))
ACTION_KEYS: Final[Mapping[str, tuple[KeyMeaning, KeyHelp]]] = {
    "discrete_grid": (_meaning_from_table(COMPASS), (("arrows", "move"),)),
    "eight_direction_stay": (_meaning_from_table(EIGHT), (("arrows y u b n", "move"), ("space", "stay"))),
    "oriented_grid": (_meaning_from_table(TURNS), TURNING_KEYS),
    "run_tumble": (_run_or_turn, TURNING_KEYS),
}
"""What keys mean, by the type of the actions."""


class PlumePlayer:
    """Moves by keys; the clock counts steps."""

    title = "Plume search"
    tick_ms = None

    def __init__(self, env: Env) -> None:
        actions = env.get_wrapper_attr("components")[ComponentKind.ACTION].get_metadata()
        if actions["type"] not in ACTION_KEYS:
            raise ValidationError(
                "nobody can play these actions with keys",
                found=actions["type"],
                expected=f"one of {', '.join(ACTION_KEYS)}",
            )
        self._meaning, self.keys = ACTION_KEYS[actions["type"]]
        self._parameters: Parameters = actions["parameters"]

    def begin(self) -> None:
        """Forget nothing: a search is its scene."""

    def press(self, key: str, moment: GameState) -> int | None:
        """Return the move or turn that the key asks for."""
        return self._meaning(key, moment, self._parameters)

    def status(self, moment: GameState) -> tuple[str, ...]:
        """Return the step and the limit, the return and the place."""
        frame, limit = moment.scene["frame"], moment.scene["static"]["max_steps"]
        x, y = frame["agent"]["at"]
        return (f"step {frame['step']}/{limit}   return {frame['total_reward']:.2f}   at ({x}, {y})",)

    def hint(self, moment: GameState) -> str:
        """Return the heading, and the wind where there is one."""
        frame = moment.scene["frame"]
        wind = "" if frame["wind"] is None else "   wind {:+.2f} {:+.2f}".format(*frame["wind"])
        return f"heading {frame['agent']['heading']:.0f} degrees{wind}"

    def picture(self, moment: GameState, columns: int, rows: int) -> RenderableType:
        """Return the plume, the agent and its trail."""
        return draw_plume(moment.scene, columns, rows)

    def least(self, moment: GameState) -> tuple[int, int]:
        """Return a size at which the agent can be seen to move."""
        return LEAST_SIZE

    def result(self, moment: GameState) -> GameResult:
        """Return whether the source was found, and in how many steps: fewer are better."""
        frame = moment.scene["frame"]
        found = frame["state"] == "terminated"
        return GameResult(
            ending="the source is found" if found else "out of steps",
            facts=(("steps", str(frame["step"])), ("return", f"{frame['total_reward']:.2f}")),
            rank=(float(found), -float(frame["step"])),
            words=f"found in {frame['step']} step{'s'[: frame['step'] - 1]}" if found else "not found",
        )


# --------------------------------------------------------------------------------------------------------- Column Popper
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
        return Group(draw_board(moment.scene, width, rows - 1, numbered=False), Text(self._signs(moment)[:width]))

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


def draw_bar(share: float, width: int) -> str:
    """Return a bar of `width` characters, filled by `share` of it; no more than all, no less than nothing."""
    filled = round(min(max(share, 0.0), 1.0) * width)
    return "#" * filled + "-" * (width - filled)
