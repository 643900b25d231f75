"""What every picture in a terminal asks of rich: are there colours, and which style shows two of them."""

from functools import lru_cache

from rich.color import Color
from rich.console import Console, ConsoleOptions
from rich.style import Style

from proctor.envs.drawing.raster import Colour


def has_colours(console: Console, options: ConsoleOptions) -> bool:
    """Return whether the console shows colours and more than ASCII; any other gets plain text."""
    return console.color_system is not None and not console.no_color and not options.ascii_only


@lru_cache(maxsize=4096)
def style(colour: Colour, behind: Colour) -> Style:
    """Return the style of characters in `colour` with `behind` behind them."""
    return Style(color=Color.from_rgb(*colour), bgcolor=Color.from_rgb(*behind))
