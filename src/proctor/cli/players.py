"""What a person needs to play one kind of environment: what keys mean, and what is shown beside the picture.

Rule 1: a player decides from a key and a moment; it never touches the environment, the terminal or a clock.
Rule 2: everything that is shown can be told apart without colours.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from rich.console import RenderableType

Keys: TypeAlias = tuple[tuple[str, str], ...]
"""Rows of a help text: the keys, and what they do."""

SITTING_KEYS: Final[Keys] = (("p", "pause"), ("r", "new game"), ("?", "keys"), ("q", "quit"))


@dataclass(frozen=True, slots=True)
class Moment:
    """The game as it stands: its scene, the last `info`, and how many actions the person has made."""

    scene: Mapping[str, Any]
    info: Mapping[str, Any]
    moves: int = 0


@dataclass(frozen=True, slots=True)
class Result:
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
    def keys(self) -> Keys:
        """The keys of this game."""

    @property
    def tick_ms(self) -> int | None:
        """Milliseconds after which the game goes on without an action; None: it waits for the person."""

    def press(self, key: str, moment: Moment) -> int | None:
        """Return the action that the key asks for, or None."""

    def begin(self) -> None:
        """Forget the last game."""

    def status(self, moment: Moment) -> tuple[str, ...]:
        """Return the lines above the picture; always as many."""

    def hint(self, moment: Moment) -> str:
        """Return the line below the picture: what can be done now."""

    def picture(self, moment: Moment, columns: int, rows: int) -> RenderableType:
        """Return the picture on at most `columns` by `rows` characters."""

    def least(self, moment: Moment) -> tuple[int, int]:
        """Return the columns and rows that a picture needs to be of use."""

    def result(self, moment: Moment) -> Result:
        """Return how the game went that has ended."""


def bar(share: float, width: int) -> str:
    """Return a bar of `width` characters, filled by `share` of it; no more than all, no less than nothing."""
    filled = round(min(max(share, 0.0), 1.0) * width)
    return "#" * filled + "-" * (width - filled)
