"""Games one after the other, as a function of clock readings and keys, and how a person plays each kind; no terminal and no clock of its own.

Rule 1: time is cut into slots of one tick, and a slot holds one step: the first action that is asked for in it, at once,
    or at its end a wait. Actions that come too soon are kept for the next slots, `AHEAD` of them.
Rule 2: a game without ticks makes every action at once and waits for ever.
Rule 3: a machine that slept does not catch up: more than `LATE` ticks behind, the slots begin anew.
Rule 4: while the game is paused or over, time stands still.
Rule 5: a `Player` decides from a key and a game state; it never touches the environment, the terminal or a clock.
Rule 6: everything that is shown can be told apart without colours.
Rule 7: the keys follow from the actions alone; actions that no key can express are refused, a key that means none is nothing. An
    action that is not valid now is shown as such and can be made all the same: the game has its own penalty.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol, TypeAlias

from rich.console import Group, RenderableType
from rich.text import Text

from proctor.envs.evaluation import Env
from proctor.envs.plume.config import ComponentKind
from proctor.envs.plume.drawing.terminal import picture as draw_plume
from proctor.envs.popper.drawing.terminal import CELL, FRAME
from proctor.envs.popper.drawing.terminal import picture as draw_board
from proctor.errors import ValidationError

KeyHelp: TypeAlias = tuple[tuple[str, str], ...]
"""Rows of a help text: the keys, and what they do."""

GAME_KEYS: Final[KeyHelp] = (("p", "pause"), ("r", "new game"), ("?", "keys"), ("q", "quit"))


@dataclass(frozen=True, slots=True)
class GameState:
    """The game as it stands: its scene, the last `info`, and how many actions the person has made."""

    scene: Mapping[str, Any]
    info: Mapping[str, Any]
    moves: int = 0


@dataclass(frozen=True, slots=True)
class GameResult:
    """How a game went; of two the one with the higher rank is better."""

    ending: str
    facts: tuple[tuple[str, str], ...]
    rank: tuple[float, ...]
    words: str
    """The result in a few words, to compare games by."""


class Player(Protocol):
    """How a person plays one kind of environment."""

    @property
    def title(self) -> str:
        """The name of the game."""

    @property
    def keys(self) -> KeyHelp:
        """The keys of this game."""

    @property
    def tick_ms(self) -> int | None:
        """Milliseconds after which the game goes on without an action; None: it waits for the person."""

    def press(self, key: str, moment: GameState) -> int | None:
        """Return the action that the key asks for, or None."""

    def begin(self) -> None:
        """Forget the last game."""

    def status(self, moment: GameState) -> tuple[str, ...]:
        """Return the lines above the picture; always as many."""

    def hint(self, moment: GameState) -> str:
        """Return the line below the picture: what can be done now."""

    def picture(self, moment: GameState, columns: int, rows: int) -> RenderableType:
        """Return the picture on at most `columns` by `rows` characters."""

    def least(self, moment: GameState) -> tuple[int, int]:
        """Return the columns and rows that a picture needs to be of use."""

    def result(self, moment: GameState) -> GameResult:
        """Return how the game went that has ended."""


AHEAD: Final = 2
LATE: Final = 5


class GamePhase(StrEnum):
    """Where a game session stands."""

    PLAYING = "playing"
    PAUSED = "paused"
    OVER = "over"
    LEFT = "left"


class GameSession:
    """One person at one environment, from the first game until they leave."""

    def __init__(self, env: Env, player: Player, *, now: float, seed: int | None = None, speed: float = 1.0) -> None:
        self._env = env
        self.player: Final = player
        self._tick = None if player.tick_ms is None else player.tick_ms / 1000.0 / speed
        self._pending: deque[int] = deque()
        self.shows_keys = False
        self.games: list[tuple[int, GameResult]] = []
        self._begin(now, seed)

    def _begin(self, now: float, seed: int | None = None) -> None:
        """Start a game; without a seed the environment draws one."""
        _, info = self._env.reset(seed=seed)
        self.player.begin()
        self.seed: int = info["seed"]
        self._see(info, moves=0)
        self._go_on(now)

    def _go_on(self, now: float) -> None:
        self.phase = GamePhase.PLAYING
        self._pending.clear()
        self._acted = False
        self._end = now + (self._tick or 0.0)

    @property
    def best(self) -> tuple[int, GameResult] | None:
        """The seed and the result of the best game so far, the first of equals; None before the first end."""
        return max(self.games, key=lambda game: game[1].rank, default=None)

    def wakes_in(self, now: float) -> float | None:
        """Return the seconds until something happens without a key; None if nothing does."""
        if self._tick is None or self.phase is not GamePhase.PLAYING:
            return None
        return max(self._end - now, 0.0)

    def advance(self, now: float, keys: Iterable[str] = ()) -> None:
        """Let time pass up to `now`, then do what the keys say."""
        self._pass_time(now)
        for key in keys:
            if self.phase is not GamePhase.LEFT:
                self._press(key, now)

    def pause(self) -> None:
        """Stop the clock, if it runs."""
        if self.phase is GamePhase.PLAYING:
            self.phase = GamePhase.PAUSED

    def _pass_time(self, now: float) -> None:
        if self._tick is None or self.phase is not GamePhase.PLAYING:
            return
        if now - self._end > LATE * self._tick:
            self._end = now
        while self.phase is GamePhase.PLAYING and now >= self._end:
            self._end += self._tick
            if not self._acted:
                self._take(self._env.get_wrapper_attr("wait")(), moves=self.moment.moves)
            self._acted = False
            self._act()

    def _press(self, key: str, now: float) -> None:
        match key:
            case "p" if self.phase is GamePhase.PAUSED:
                self._go_on(now)
            case "p":
                self.pause()
            case "r":
                self._begin(now)
            case "?":
                self.shows_keys = not self.shows_keys
            case "q":
                self.phase = GamePhase.LEFT
            case _:
                self._ask(key)

    def _ask(self, key: str) -> None:
        """Keep the action that a key asks for, and make it if this slot has room."""
        action = self.player.press(key, self.moment) if self.phase is GamePhase.PLAYING else None
        if action is not None and len(self._pending) < AHEAD:
            self._pending.append(action)
            self._act()

    def _act(self) -> None:
        """Make the next action that was asked for, unless this slot has had its own."""
        if self._pending and not self._acted and self.phase is GamePhase.PLAYING:
            self._acted = self._tick is not None
            self._take(self._env.step(self._pending.popleft()), moves=self.moment.moves + 1)

    def _take(self, step: tuple[Any, Any, bool, bool, dict[str, Any]], moves: int) -> None:
        _, _, terminated, truncated, info = step
        self._see(info, moves)
        if terminated or truncated:
            self.phase = GamePhase.OVER
            self.games.append((self.seed, self.player.result(self.moment)))

    def _see(self, info: Mapping[str, Any], moves: int) -> None:
        self.moment = GameState(self._env.get_wrapper_attr("scene")(), info, moves)


# ---------------------------------------------------------------------------------------------------------- plume search
COMPASS: Final = {"up": 0, "right": 1, "down": 2, "left": 3}
EIGHT: Final = {"up": 0, "u": 1, "right": 2, "n": 3, "down": 4, "b": 5, "left": 6, "y": 7, "space": 8}
TURNS: Final = {"up": 0, "left": 1, "right": 2}
QUARTERS: Final = {"left": 1, "right": -1}
TURNING_KEYS: Final[KeyHelp] = (("up", "forward"), ("left/right", "turn"))
ACTION_KEYS: Final[Mapping[str, tuple[Mapping[str, int], KeyHelp]]] = {
    "discrete_grid": (COMPASS, (("arrows", "move"),)),
    "eight_direction_stay": (EIGHT, (("arrows y u b n", "move"), ("space", "stay"))),
    "oriented_grid": (TURNS, TURNING_KEYS),
    "run_tumble": ({"up": 0}, TURNING_KEYS),
}
"""What keys mean, by the type of the actions. Where a body runs and tumbles, a turn leads to the heading beside the present one."""


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
        self._actions, self.keys = ACTION_KEYS[actions["type"]]
        self._headings = int(actions["parameters"].get("n_headings", 0)) if actions["type"] == "run_tumble" else 0

    def begin(self) -> None:
        """Forget nothing: a search is its scene."""

    def press(self, key: str, moment: GameState) -> int | None:
        """Return the move or turn that the key asks for."""
        if self._headings and key in QUARTERS:
            present: int = round(moment.scene["frame"]["agent"]["heading"] * self._headings / 360.0)
            return 1 + (present + QUARTERS[key]) % self._headings
        return self._actions.get(key)

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
        return 24, 6

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
        few = rules.columns <= len(LETTERS)
        names = "/".join(LETTERS[: rules.columns]) if few else f"1-{min(rules.columns, len(DIGITS))}"
        self.keys: KeyHelp = (
            (names, "pick or place"),
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
        # The value at the open end of its column.
        return f"holding {[row[frame['held']] for row in frame['board'] if row[frame['held']]][-1]}: place it"

    def picture(self, moment: GameState, columns: int, rows: int) -> RenderableType:
        """Return the board without its panel, whose place the status takes, and the keys of its columns below."""
        width = min(self._columns * CELL + FRAME, columns)
        return Group(draw_board(moment.scene, width, rows - 1, numbered=False), Text(self._signs(moment)[:width]))

    def _signs(self, moment: GameState) -> str:
        """Return the columns' keys, the cursor in brackets, and a dash where an action is not valid now."""
        names = (LETTERS if self._columns <= len(LETTERS) else DIGITS).ljust(self._columns, "*")
        valid = zip(names, moment.info["action_mask"], strict=False)  # the last action is the fall
        signs = [name if may else "-" for name, may in valid][: self._columns]
        signs[self.cursor] = f"[{signs[self.cursor]}]"
        return " ".ljust(FRAME // 2) + "".join(f"{sign:^{CELL}}" for sign in signs)

    def least(self, moment: GameState) -> tuple[int, int]:
        """Return room for every column and for enough rows to play by."""
        static = moment.scene["static"]
        # At least 44 characters for the status, and at most 8 rows of the board.
        return max(static["columns"] * CELL + FRAME, 44), min(static["height"], 8) + FRAME + 1

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


def draw_bar(share: float, width: int) -> str:
    """Return a bar of `width` characters, filled by `share` of it; no more than all, no less than nothing."""
    filled = round(min(max(share, 0.0), 1.0) * width)
    return "#" * filled + "-" * (width - filled)
