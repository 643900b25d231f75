"""Games one after the other, as a function of clock readings and keys; no terminal and no clock of its own.

Rule 1: time is cut into slots of one tick, and a slot holds one step: the first action that is asked for in it, at once,
    or at its end a wait. Actions that come too soon are kept for the next slots, `AHEAD` of them.
Rule 2: a game without ticks makes every action at once and waits for ever.
Rule 3: a machine that slept does not catch up: more than `LATE` ticks behind, the slots begin anew.
Rule 4: while the game is paused or over, time stands still.
Rule 5: a `Player` decides from a key and a game state; it never touches the environment, the terminal or a clock.
Rule 6: everything that is shown can be told apart without colours.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol, TypeAlias

from rich.console import RenderableType

from proctor.envs.evaluation import Env

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
        self.phase = GamePhase.PLAYING
        self._see(info, moves=0)
        self._new_slot(now)

    def _new_slot(self, now: float) -> None:
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
                self._wait()
            self._acted = False
            self._act()

    def _press(self, key: str, now: float) -> None:
        command = COMMANDS.get(key)
        if command is not None:
            command(self, now)
            return
        action = self.player.press(key, self.moment) if self.phase is GamePhase.PLAYING else None
        if action is not None and len(self._pending) < AHEAD:
            self._pending.append(action)
            self._act()

    def _act(self) -> None:
        """Make the next action that was asked for, unless this slot has had its own."""
        if self._pending and not self._acted and self.phase is GamePhase.PLAYING:
            self._acted = self._tick is not None
            self._take(self._env.step(self._pending.popleft()), moves=self.moment.moves + 1)

    def _wait(self) -> None:
        self._take(self._env.get_wrapper_attr("wait")(), moves=self.moment.moves)

    def _take(self, step: tuple[Any, Any, bool, bool, dict[str, Any]], moves: int) -> None:
        _, _, terminated, truncated, info = step
        self._see(info, moves)
        if terminated or truncated:
            self.phase = GamePhase.OVER
            self.games.append((self.seed, self.player.result(self.moment)))

    def _see(self, info: Mapping[str, Any], moves: int) -> None:
        self.moment = GameState(self._env.get_wrapper_attr("scene")(), info, moves)

    def _toggle_pause(self, now: float) -> None:
        if self.phase is GamePhase.PAUSED:
            self.phase = GamePhase.PLAYING
            self._new_slot(now)
        else:
            self.pause()

    def _toggle_keys(self, now: float) -> None:
        self.shows_keys = not self.shows_keys

    def _leave(self, now: float) -> None:
        self.phase = GamePhase.LEFT


COMMANDS: Final[Mapping[str, Callable[[GameSession, float], None]]] = {
    "p": GameSession._toggle_pause,
    "r": GameSession._begin,
    "?": GameSession._toggle_keys,
    "q": GameSession._leave,
}
"""What a key does in every game."""
