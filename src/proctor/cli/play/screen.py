"""From a game session to a picture that fills the terminal. A paused board is not shown."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from rich.align import Align
from rich.console import Console, ConsoleDimensions, Group, RenderableType
from rich.screen import Screen
from rich.text import Text

from proctor.cli.play.game import GAME_KEYS, GamePhase, GameResult, GameSession, KeyHelp

FOOT: Final = 2
"""Lines at the bottom for the keys."""
SHORT_KEYS: Final = "? keys   p pause   r new game   q quit"


@dataclass(frozen=True, slots=True)
class GamePainter:
    """Draws game sessions for one console; `replay` is the command that plays the game of a seed again."""

    console: Console
    replay: Callable[[int], str]

    def picture(self, session: GameSession, columns: int, rows: int) -> str:
        """Return `rows` lines of `columns` characters each, with their colours."""
        small = needs_room(session, columns, rows)
        view = _draw_too_small(columns, rows, session) if small else self._view(session, columns, rows)
        self.console.size = ConsoleDimensions(columns, rows)
        with self.console.capture() as captured:
            self.console.print(Screen(view), no_wrap=True, overflow="crop", end="")
        return captured.get()

    def _view(self, session: GameSession, columns: int, rows: int) -> RenderableType:
        status = session.player.status(session.moment)
        room = rows - len(status) - 2 - FOOT
        body = BODIES[session.phase](self, session, columns, room)
        hint = session.player.hint(session.moment) if session.phase is GamePhase.PLAYING else ""
        return Group(
            Text(_head_line(session), style="bold"),
            *(Text(line) for line in status),
            Align.center(body, vertical="middle", height=room),
            Text(hint, justify="center"),
            *(Text(line, style="dim") for line in _foot_lines(session, columns)),
        )


def needs_room(session: GameSession, columns: int, rows: int) -> bool:
    """Return whether a terminal of this size is too small for the game."""
    return any(size < least for size, least in zip((columns, rows), least_size(session), strict=True))


def least_size(session: GameSession) -> tuple[int, int]:
    """Return the columns and rows that the picture and what is beside it need."""
    columns, rows = session.player.least(session.moment)
    return columns, rows + len(session.player.status(session.moment)) + 2 + FOOT


def _draw_too_small(columns: int, rows: int, session: GameSession) -> RenderableType:
    least = least_size(session)
    words = ("the terminal is too small", f"it has {columns} x {rows}", f"needed: {least[0]} x {least[1]}", "q quits")
    return Group(*(Text(line) for line in words[: max(rows, 1)]))


def _head_line(session: GameSession) -> str:
    best = "" if session.best is None else f"   best: {session.best[1].words}"
    return f"{session.player.title}   seed {session.seed}{best}"


def _foot_lines(session: GameSession, columns: int) -> tuple[str, ...]:
    """Return the lines of the keys: those of the game too, if they are asked for."""
    lines = (_key_row(session.player.keys), _key_row(GAME_KEYS)) if session.shows_keys else ("", SHORT_KEYS)
    return tuple(line[:columns] for line in lines)


def _key_row(keys: KeyHelp) -> str:
    return "   ".join(f"{names} {meaning}" for names, meaning in keys)


def _draw_board(painter: GamePainter, session: GameSession, columns: int, rows: int) -> RenderableType:
    return session.player.picture(session.moment, columns, rows)


def _draw_pause(painter: GamePainter, session: GameSession, columns: int, rows: int) -> RenderableType:
    return Text("paused\n\np goes on", justify="center")


def _draw_result(painter: GamePainter, session: GameSession, columns: int, rows: int) -> RenderableType:
    seed, result = session.games[-1]
    best = session.best or (seed, result)
    facts = [("game over", result.ending), *result.facts, ("best", _describe_best(seed, best, len(session.games)))]
    wide = max(len(name) for name, _ in facts)
    lines = [f"{name:>{wide}}  {value}" for name, value in facts]
    lines += ["", f"{'again':>{wide}}  {painter.replay(seed)}", "", "r plays a new game, q leaves"]
    return Text("\n".join(lines), overflow="fold", no_wrap=False)


def _describe_best(seed: int, best: tuple[int, GameResult], games: int) -> str:
    if games == 1:
        return f"{best[1].words}, the first game of this sitting"
    which = "this one" if best[0] == seed else f"seed {best[0]}"
    return f"{best[1].words}, {which}, of {games} games"


BODIES: Final[Mapping[GamePhase, Callable[[GamePainter, GameSession, int, int], RenderableType]]] = {
    GamePhase.PLAYING: _draw_board,
    GamePhase.PAUSED: _draw_pause,
    GamePhase.OVER: _draw_result,
}
"""What is in the middle of the screen, by phase."""
