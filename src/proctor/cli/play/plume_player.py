"""A person in a plume search: the arrows move, and nothing happens between two keys.

Rule 1: the keys follow from the action type alone; a type that no key can express is refused.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from rich.console import RenderableType

from proctor.cli.play.game import GameResult, GameState, KeyHelp
from proctor.envs.evaluation import Env
from proctor.envs.plume.config import ComponentKind
from proctor.envs.plume.drawing.terminal import picture
from proctor.errors import ValidationError

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
        return picture(moment.scene, columns, rows)

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
