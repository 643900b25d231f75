"""The record driven again: compare every step, look at any of them, branch off; also each sub-episode of a batch alone.

    from proctor.replay import replayed

`replayed` compares an episode of a ledger, `redriven` yields its rows one by one; `state_at` and `forked` look at a step
and branch off there; `sub_episodes` and `replayed_alone` are for batches.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from proctor.replay.alone import replayed_alone
    from proctor.replay.batches import sub_episodes
    from proctor.replay.difference import Difference
    from proctor.replay.fork import forked, state_at
    from proctor.replay.redrive import redriven
    from proctor.replay.report import Replayed, replayed

__all__ = [
    "Difference",
    "Replayed",
    "forked",
    "redriven",
    "replayed",
    "replayed_alone",
    "state_at",
    "sub_episodes",
]

_HOMES: Final = {
    "Difference": "difference",
    "Replayed": "report",
    "forked": "fork",
    "redriven": "redrive",
    "replayed": "report",
    "replayed_alone": "alone",
    "state_at": "fork",
    "sub_episodes": "batches",
}


def __getattr__(name: str) -> Any:
    """Return one of the names, imported when it is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
