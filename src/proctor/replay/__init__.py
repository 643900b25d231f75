"""The record driven again: compare every step, look at any of them, branch off; also each sub-episode of a batch alone.

    from proctor.replay import replay_episode

`replay_episode` compares an episode of a ledger, `replay_rows` yields its rows one by one; `state_at` and `fork_episode` look at a
step and branch off there; `sub_episodes` and `replay_sub_episodes` are for batches.
"""

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
