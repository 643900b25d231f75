"""The packet protocol of an episode: what may be said when, judged packet by packet; pure, without I/O.

    from proctor.episode import Author, Judge, Settings

`Judge` judges a stream, `Settings` says how strictly, `Author` makes packets.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from proctor.episode.author import Author
    from proctor.episode.judge import Judge
    from proctor.episode.settings import Settings

__all__ = ["Author", "Judge", "Settings"]

_HOMES: Final = {"Author": "author", "Judge": "judge", "Settings": "settings"}


def __getattr__(name: str) -> Any:
    """Return one of the three names, imported when it is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
