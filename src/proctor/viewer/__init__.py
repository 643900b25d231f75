"""The viewer: what pages show of a ledger's episodes, and the pages.

    from proctor.viewer import Episode

An `Episode` is one of a ledger: in a notebook it shows itself, elsewhere it is saved as a page that is one file.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proctor.viewer.single_file import Episode

__all__ = ["Episode"]


def __getattr__(name: str) -> Any:
    """Return the class, imported when it is asked for."""
    if name != "Episode":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from proctor.viewer.single_file import Episode

    return Episode
