"""`proctor play`: a person plays an environment in the terminal.

Rule 1: what a user asks for is checked before the terminal is touched.
Rule 2: time enters here: the game is told what the clock says, and the terminal how long to wait.
Rule 3: a paused board is not shown.
"""

import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Annotated, Final

import typer
from rich.align import Align
from rich.console import Console, ConsoleDimensions, Group, RenderableType
from rich.screen import Screen
from rich.text import Text

from proctor.cli.play.game import GAME_KEYS, GamePhase, GameSession, KeyHelp, Player, PlumePlayer, PopperPlayer
from proctor.cli.play.terminal import HOME, Keyboard, Terminal, TerminalEvent, open_terminal
from proctor.contracts.guarded_env import parse_seed
from proctor.envs.evaluation import Env
from proctor.envs.plume.env import PlumeSearchEnv
from proctor.envs.popper.env import ColumnPopperEnv
from proctor.envs.settings import make_env, parse_settings
from proctor.errors import ValidationError

FOOT: Final = 2
"""Lines at the bottom for the keys."""


@dataclass(frozen=True, slots=True)
class GamePainter:
    """Draws game sessions for one console; `replay` is the command that plays the game of a seed again."""

    console: Console
    replay: Callable[[int], str]

    def picture(self, session: GameSession, columns: int, rows: int) -> str:
        """Return `rows` lines of `columns` characters each, with their colours."""
        least = least_size(session)
        if columns >= least[0] and rows >= least[1]:
            view = self._view(session, columns, rows)
        else:
            needed = f"needed: {least[0]} x {least[1]}"
            lines = ("the terminal is too small", f"it has {columns} x {rows}", needed, "q quits")
            view = Text("\n".join(lines[: max(rows, 1)]))
        self.console.size = ConsoleDimensions(columns, rows)
        with self.console.capture() as captured:
            self.console.print(Screen(view), no_wrap=True, overflow="crop", end="")
        return captured.get()

    def _view(self, session: GameSession, columns: int, rows: int) -> RenderableType:
        status = session.player.status(session.moment)
        room = rows - len(status) - 2 - FOOT
        best = "" if session.best is None else f"   best: {session.best[1].words}"
        hint = ""
        if session.phase is GamePhase.PLAYING:
            body, hint = session.player.picture(session.moment, columns, room), session.player.hint(session.moment)
        elif session.phase is GamePhase.PAUSED:
            body = Text("paused\n\np goes on", justify="center")
        else:
            body = self._result(session)
        foot = ("", "? keys   p pause   r new game   q quit")
        if session.shows_keys:
            foot = (_key_row(session.player.keys), _key_row(GAME_KEYS))
        return Group(
            Text(f"{session.player.title}   seed {session.seed}{best}", style="bold"),
            *(Text(line) for line in status),
            Align.center(body, vertical="middle", height=room),
            Text(hint, justify="center"),
            *(Text(line[:columns], style="dim") for line in foot),
        )

    def _result(self, session: GameSession) -> RenderableType:
        seed, result = session.games[-1]
        best, games = session.best or (seed, result), len(session.games)
        which = "this one" if best[0] == seed else f"seed {best[0]}"
        counted = f"{which}, of {games} games" if games > 1 else "the first game of this sitting"
        facts = [("game over", result.ending), *result.facts, ("best", f"{best[1].words}, {counted}")]
        wide = max(len(name) for name, _ in facts)
        lines = [f"{name:>{wide}}  {value}" for name, value in facts]
        lines += ["", f"{'again':>{wide}}  {self.replay(seed)}", "", "r plays a new game, q leaves"]
        return Text("\n".join(lines), overflow="fold", no_wrap=False)


def needs_room(session: GameSession, columns: int, rows: int) -> bool:
    """Return whether a terminal of this size is too small for the game."""
    return any(size < least for size, least in zip((columns, rows), least_size(session), strict=True))


def least_size(session: GameSession) -> tuple[int, int]:
    """Return the columns and rows that the picture and what is beside it need."""
    columns, rows = session.player.least(session.moment)
    return columns, rows + len(session.player.status(session.moment)) + 2 + FOOT


def _key_row(keys: KeyHelp) -> str:
    return "   ".join(f"{names} {meaning}" for names, meaning in keys)


PLAYERS: Final[Mapping[type[Env], Callable[[Env], Player]]] = {
    PlumeSearchEnv: PlumePlayer,
    ColumnPopperEnv: PopperPlayer,
}
LOOK: Final = 0.25
"""Seconds after which the size of the terminal is looked at, whatever happens."""


def play(
    env_id: Annotated[str, typer.Argument(metavar="ID", help="SpecKitAI/ColumnPopper-v1 or another id of ours.")],
    seed: Annotated[int | None, typer.Option(metavar="S", help="The seed of the first game.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting: duration_ms=30000, plume.type=puffs."),
    ] = None,
    speed: Annotated[
        float, typer.Option(metavar="FACTOR", min=0.25, max=4.0, help="How fast the clock of a game runs.")
    ] = 1.0,
) -> None:
    """Play an environment yourself, in this terminal.

    Everywhere: p pauses and hides the board, r starts a new game, ? shows the keys, q quits.

    Column Popper: a, s, d (or 1 to 9) pick a column's block or place it there; left and right move a cursor, up or
    space picks or places at it; f or down lets a row fall. The clock runs.

    Plume search: the arrows move, or go forward and turn; y, u, b, n are the diagonals of eight directions.
    """
    given = settings or []
    tree = parse_settings(given)
    if seed is not None:
        parse_seed(seed)
    if "max_episode_steps" in tree:
        raise ValidationError("a person's game has its own end", found="max_episode_steps", expected="other settings")
    check_terminal()
    with closing(make_env(env_id, tree)) as env:
        player = make_player(env)
        sitting = GameSession(env, player, now=time.monotonic(), seed=seed, speed=speed)
        console = make_console(os.environ.get("TERM", ""))
        painter = GamePainter(console, lambda one: command_to_repeat(env_id, one, given))
        with open_terminal(sys.stdin.fileno(), sys.stdout.fileno()) as terminal:
            run_game(terminal, sitting, painter, time.monotonic)
    if sitting.best is not None:
        best, result = sitting.best
        typer.echo(f"best of {len(sitting.games)}: {result.words}; again: {command_to_repeat(env_id, best, given)}")


def check_terminal() -> None:
    """Raise a ValidationError unless keys come from a terminal and pictures go to one."""
    for name, stream in (("standard input", sys.stdin), ("standard output", sys.stdout)):
        if stream is None or not stream.isatty():
            found = f"{name} is not a terminal"
            raise ValidationError("a person plays in a terminal", found=found, expected="a terminal")


def make_player(env: Env) -> Player:
    """Return how a person plays `env`; an environment that nobody can play by hand is a ValidationError."""
    inner = env.unwrapped
    for kind, player in PLAYERS.items():
        if isinstance(inner, kind):
            return player(env)
    raise ValidationError(
        "nobody can play this environment with keys",
        found=type(inner).__name__,
        expected=f"one of {', '.join(kind.__name__ for kind in PLAYERS)}",
    )


def make_console(term: str) -> Console:
    """Return a console that knows which colours this terminal has."""
    colourless = term.startswith(("dumb", "unknown", "vt"))
    return Console(color_system=None) if colourless else Console()


def command_to_repeat(env_id: str, seed: int, settings: Sequence[str]) -> str:
    """Return the command that begins with the same game."""
    given = [part for setting in settings for part in ("--set", setting)]
    return shlex.join(["proctor", "play", env_id, "--seed", str(seed), *given])


def run_game(terminal: Terminal, sitting: GameSession, painter: GamePainter, clock: Callable[[], float]) -> None:
    """Play until the person leaves or a signal ends it."""
    keyboard, shown = Keyboard(), ""
    while sitting.phase is not GamePhase.LEFT:
        size = terminal.size()
        if needs_room(sitting, *size):
            sitting.pause()
        picture = painter.picture(sitting, *size)
        if picture != shown:
            terminal.write(HOME + picture)
        soon = sitting.wakes_in(clock())
        event = terminal.wait(LOOK if soon is None else min(soon, LOOK))
        _handle_signals(event, terminal, sitting)
        # After a signal the terminal may show anything.
        shown = "" if event.signals else picture
        sitting.advance(clock(), keyboard.keys(event.read))


def _handle_signals(event: TerminalEvent, terminal: Terminal, sitting: GameSession) -> None:
    """Do what the signals say; those that end the process do so after the terminal is put back."""
    signals = event.signals | ({signal.SIGHUP} if event.closed else set())
    if signal.SIGINT in signals:
        raise KeyboardInterrupt
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        if number in signals:
            raise SystemExit(128 + number)
    if signal.SIGTSTP in signals:
        sitting.pause()
        terminal.suspend()
