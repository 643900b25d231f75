"""Games one after the other, as a function of clock readings and keys; no terminal and no clock of its own.

Rule 1: time is cut into slots of one tick, and a slot holds one step: the first action that is asked for in it, at once,
    or at its end a wait. Actions that come too soon are kept for the next slots, `AHEAD` of them.
Rule 2: a game without ticks makes every action at once and waits for ever.
Rule 3: a machine that slept does not catch up: more than `LATE` ticks behind, the slots begin anew.
Rule 4: while the game is paused or over, time stands still.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

from proctor.cli.players import Moment, Player, Result
from proctor.envs.episodes import Env

AHEAD: Final = 2
LATE: Final = 5


class Phase(StrEnum):
    """Where a sitting stands."""

    PLAYING = "playing"
    PAUSED = "paused"
    OVER = "over"
    LEFT = "left"


class Sitting:
    """One person at one environment, from the first game until they leave."""

    def __init__(self, env: Env, player: Player, *, now: float, seed: int | None = None, speed: float = 1.0) -> None:
        self._env = env
        self.player: Final = player
        self._tick = None if player.tick_ms is None else player.tick_ms / 1000.0 / speed
        self._pending: deque[int] = deque()
        self.shows_keys = False
        self.games: list[tuple[int, Result]] = []
        self._begin(now, seed)

    def _begin(self, now: float, seed: int | None = None) -> None:
        """Start a game; without a seed the environment draws one."""
        _, info = self._env.reset(seed=seed)
        self.player.begin()
        self.seed: int = info["seed"]
        self.phase = Phase.PLAYING
        self._see(info, moves=0)
        self._new_slot(now)

    def _new_slot(self, now: float) -> None:
        self._pending.clear()
        self._acted = False
        self._end = now + (self._tick or 0.0)

    @property
    def best(self) -> tuple[int, Result] | None:
        """The seed and the result of the best game so far, the first of equals; None before the first end."""
        return max(self.games, key=lambda game: game[1].rank, default=None)

    def wakes_in(self, now: float) -> float | None:
        """Return the seconds until something happens without a key; None if nothing does."""
        if self._tick is None or self.phase is not Phase.PLAYING:
            return None
        return max(self._end - now, 0.0)

    def advance(self, now: float, keys: Iterable[str] = ()) -> None:
        """Let time pass up to `now`, then do what the keys say."""
        self._pass_time(now)
        for key in keys:
            if self.phase is not Phase.LEFT:
                self._press(key, now)

    def pause(self) -> None:
        """Stop the clock, if it runs."""
        if self.phase is Phase.PLAYING:
            self.phase = Phase.PAUSED

    def _pass_time(self, now: float) -> None:
        if self._tick is None or self.phase is not Phase.PLAYING:
            return
        if now - self._end > LATE * self._tick:
            self._end = now
        while self.phase is Phase.PLAYING and now >= self._end:
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
        action = self.player.press(key, self.moment) if self.phase is Phase.PLAYING else None
        if action is not None and len(self._pending) < AHEAD:
            self._pending.append(action)
            self._act()

    def _act(self) -> None:
        """Make the next action that was asked for, unless this slot has had its own."""
        if self._pending and not self._acted and self.phase is Phase.PLAYING:
            self._acted = self._tick is not None
            self._take(self._env.step(self._pending.popleft()), moves=self.moment.moves + 1)

    def _wait(self) -> None:
        self._take(self._env.get_wrapper_attr("wait")(), moves=self.moment.moves)

    def _take(self, step: tuple[Any, Any, bool, bool, dict[str, Any]], moves: int) -> None:
        _, _, terminated, truncated, info = step
        self._see(info, moves)
        if terminated or truncated:
            self.phase = Phase.OVER
            self.games.append((self.seed, self.player.result(self.moment)))

    def _see(self, info: Mapping[str, Any], moves: int) -> None:
        self.moment = Moment(self._env.get_wrapper_attr("scene")(), info, moves)

    def _toggle_pause(self, now: float) -> None:
        if self.phase is Phase.PAUSED:
            self.phase = Phase.PLAYING
            self._new_slot(now)
        else:
            self.pause()

    def _toggle_keys(self, now: float) -> None:
        self.shows_keys = not self.shows_keys

    def _leave(self, now: float) -> None:
        self.phase = Phase.LEFT


COMMANDS: Final[Mapping[str, Callable[[Sitting, float], None]]] = {
    "p": Sitting._toggle_pause,
    "r": Sitting._begin,
    "?": Sitting._toggle_keys,
    "q": Sitting._leave,
}
"""What a key does in every game."""
