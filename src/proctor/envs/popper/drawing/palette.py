"""The colours of Column Popper, on pictures and in terminals.

Rule 1: any two blocks differ for every common kind of colour blindness, the standard pool's three most; and each shows its number.
Rule 2: how a game ended is a row of `VERDICTS`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from proctor.envs.drawing.raster import SHADE, Colour
from proctor.envs.popper.drawing.scene import PopperFrame

BLOCKS: Final[Mapping[int, Colour]] = {
    1: (118, 209, 255),
    2: (232, 187, 39),
    3: (3, 143, 126),
    4: (237, 47, 26),
    5: (206, 255, 246),
    6: (143, 78, 250),
    7: (214, 120, 201),
    8: (250, 231, 122),
    9: (140, 62, 151),
}
WHITE: Final[Colour] = (255, 255, 255)
SLOT: Final[Colour] = (18, 20, 40)
DANGER_SLOT: Final[Colour] = (56, 18, 30)
FAINT: Final[Colour] = (104, 112, 150)
RAIL: Final[Colour] = (58, 62, 90)
AMBER: Final[Colour] = (255, 184, 32)
RED: Final[Colour] = (255, 64, 72)
CALM: Final[Colour] = (112, 226, 255)
HURRY: Final = 0.2
"""The share of the time from which on the clock is amber."""


@dataclass(frozen=True, slots=True)
class GameEnd:
    """How a game ended, in a word and a colour."""

    words: str
    colour: Colour


GAME_ENDS: Final[Mapping[tuple[str, str | None], GameEnd]] = {
    ("truncated", None): GameEnd("time up", AMBER),
    ("terminated", "overflow"): GameEnd("overflow", RED),
    ("terminated", "invalid_full_drop"): GameEnd("full column", RED),
}
OTHER_ENDS: Final[Mapping[str, GameEnd]] = {
    "truncated": GameEnd("time up", AMBER),
    "terminated": GameEnd("game over", RED),
}


def find_game_end(frame: PopperFrame) -> GameEnd | None:
    """Return how the game ended, or None while it goes on."""
    return GAME_ENDS.get((frame.state, frame.fault)) or OTHER_ENDS.get(frame.state)


def digit_colour(value: int) -> Colour:
    """Return the colour of the number on a block: dark on bright blocks, white on the others."""
    red, green, blue = ((part / 255.0) ** 2.2 for part in BLOCKS[value])
    return SHADE if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 else WHITE
