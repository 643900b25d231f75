"""From a sitting to the lines of a terminal, and from one picture to the next by the lines that changed.

Rule 1: no I/O: rich renders to segments, this file makes text of them.
Rule 2: every line has the full width, so that a line that is written needs no erasing, and nothing flickers.
Rule 3: a paused board is not shown.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.align import Align
from rich.color import ColorSystem
from rich.console import COLOR_SYSTEMS, Console, Group, RenderableType
from rich.segment import Segment
from rich.text import Text

from proctor.cli.players import SITTING_KEYS, Keys, Result
from proctor.cli.sitting import Phase, Sitting

FOOT: Final = 2
"""Lines at the bottom for the keys."""
SHORT_KEYS: Final = "? keys   p pause   r new game   q quit"


@dataclass(frozen=True, slots=True)
class Painter:
    """Draws sittings for one console; `replay` is the command that plays the game of a seed again."""

    console: Console
    replay: Callable[[int], str]

    def lines(self, sitting: Sitting, columns: int, rows: int) -> list[str]:
        """Return `rows` lines of `columns` characters each, with their colours."""
        options = self.console.options.update(width=columns, height=rows, no_wrap=True, overflow="crop")
        view = _too_small(columns, rows, sitting) if needs_room(sitting, columns, rows) else None
        whole = self._view(sitting, columns, rows) if view is None else view
        return [self._text(line) for line in self.console.render_lines(whole, options, pad=True)[:rows]]

    def _view(self, sitting: Sitting, columns: int, rows: int) -> RenderableType:
        status = sitting.player.status(sitting.moment)
        room = rows - len(status) - 2 - FOOT
        body = BODIES[sitting.phase](self, sitting, columns, room)
        hint = sitting.player.hint(sitting.moment) if sitting.phase is Phase.PLAYING else ""
        return Group(
            Text(_head(sitting), style="bold"),
            *(Text(line) for line in status),
            Align.center(body, vertical="middle", height=room),
            Text(hint, justify="center"),
            *(Text(line, style="dim") for line in _foot(sitting, columns)),
        )

    def _text(self, line: Sequence[Segment]) -> str:
        colours = colours_of(self.console)
        return "".join(
            segment.text if segment.style is None else segment.style.render(segment.text, color_system=colours)
            for segment in line
        )


def colours_of(console: Console) -> ColorSystem | None:
    """Return the colours that the console has; None where it has none."""
    return None if console.color_system is None else COLOR_SYSTEMS[console.color_system]


def needs_room(sitting: Sitting, columns: int, rows: int) -> bool:
    """Return whether a terminal of this size is too small for the game."""
    return any(size < least for size, least in zip((columns, rows), least_size(sitting), strict=True))


def least_size(sitting: Sitting) -> tuple[int, int]:
    """Return the columns and rows that the picture and what is beside it need."""
    columns, rows = sitting.player.least(sitting.moment)
    return columns, rows + len(sitting.player.status(sitting.moment)) + 2 + FOOT


def _too_small(columns: int, rows: int, sitting: Sitting) -> RenderableType:
    least = least_size(sitting)
    words = ("the terminal is too small", f"it has {columns} x {rows}", f"needed: {least[0]} x {least[1]}", "q quits")
    return Group(*(Text(line) for line in words[: max(rows, 1)]))


def _head(sitting: Sitting) -> str:
    best = "" if sitting.best is None else f"   best: {sitting.best[1].words}"
    return f"{sitting.player.title}   seed {sitting.seed}{best}"


def _foot(sitting: Sitting, columns: int) -> tuple[str, ...]:
    """Return the lines of the keys: those of the game too, if they are asked for."""
    lines = (_row(sitting.player.keys), _row(SITTING_KEYS)) if sitting.shows_keys else ("", SHORT_KEYS)
    return tuple(line[:columns] for line in lines)


def _row(keys: Keys) -> str:
    return "   ".join(f"{names} {meaning}" for names, meaning in keys)


def _board(painter: Painter, sitting: Sitting, columns: int, rows: int) -> RenderableType:
    return sitting.player.picture(sitting.moment, columns, rows)


def _paused(painter: Painter, sitting: Sitting, columns: int, rows: int) -> RenderableType:
    return Text("paused\n\np goes on", justify="center")


def _result(painter: Painter, sitting: Sitting, columns: int, rows: int) -> RenderableType:
    seed, result = sitting.games[-1]
    best = sitting.best or (seed, result)
    facts = [("game over", result.ending), *result.facts, ("best", _best(seed, best, len(sitting.games)))]
    wide = max(len(name) for name, _ in facts)
    lines = [f"{name:>{wide}}  {value}" for name, value in facts]
    lines += ["", f"{'again':>{wide}}  {painter.replay(seed)}", "", "r plays a new game, q leaves"]
    return Text("\n".join(lines), overflow="fold", no_wrap=False)


def _best(seed: int, best: tuple[int, Result], games: int) -> str:
    if games == 1:
        return f"{best[1].words}, the first game of this sitting"
    which = "this one" if best[0] == seed else f"seed {best[0]}"
    return f"{best[1].words}, {which}, of {games} games"


BODIES: Final[Mapping[Phase, Callable[[Painter, Sitting, int, int], RenderableType]]] = {
    Phase.PLAYING: _board,
    Phase.PAUSED: _paused,
    Phase.OVER: _result,
}
"""What is in the middle of the screen, by phase."""


class Screen:
    """Remembers what the terminal shows."""

    def __init__(self) -> None:
        self._shown: Sequence[str] = ()

    def forget(self) -> None:
        """Take the terminal to show anything at all."""
        self._shown = ()

    def update(self, lines: Sequence[str]) -> str:
        """Return what has to be written so that the terminal shows `lines`; nothing if it does already."""
        begins = "\x1b[2J" if len(lines) != len(self._shown) else ""
        before = [""] * len(lines) if begins else self._shown
        rows = (
            f"\x1b[{row};1H{line}"
            for row, (old, line) in enumerate(zip(before, lines, strict=True), start=1)
            if line != old
        )
        self._shown = tuple(lines)
        return begins + "".join(rows)
