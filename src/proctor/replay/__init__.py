"""The record driven again: compare every step, look at any of them, branch off; also each sub-episode of a batch alone.

    from proctor.replay import replay_episode

`replay_episode` compares an episode of a ledger, `replay_rows` yields its rows one by one; `state_at` and `fork_episode` look at a
step and branch off there; `sub_episodes` and `replay_sub_episodes` are for batches.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from proctor.replay.batches import replay_sub_episodes, sub_episodes
    from proctor.replay.comparison import Difference
    from proctor.replay.fork import fork_episode, state_at
    from proctor.replay.replayer import ReplayResult, replay_episode, replay_rows

__all__ = [
    "Difference",
    "ReplayResult",
    "fork_episode",
    "replay_episode",
    "replay_rows",
    "replay_sub_episodes",
    "state_at",
    "sub_episodes",
]

_HOMES: Final = {
    "Difference": "comparison",
    "ReplayResult": "replayer",
    "fork_episode": "fork",
    "replay_episode": "replayer",
    "replay_rows": "replayer",
    "replay_sub_episodes": "batches",
    "state_at": "fork",
    "sub_episodes": "batches",
}


def __getattr__(name: str) -> Any:
    """Return one of the names, imported when it is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
