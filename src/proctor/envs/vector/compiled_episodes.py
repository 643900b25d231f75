"""What the kernels of every batch do with actions and episode seeds.

`seeds` int64, 4 x N: root seed, episodes since that root, this episode's seed, episodes in all (`BatchedEnv._seeds`).
"""

from typing import Any

from proctor.envs.vector.compiled_chance import next_seed
from proctor.envs.vector.compiler import compiled, inlined


@compiled
def first_illegal(actions: Any, n_actions: Any) -> Any:
    """Return the index of the first action outside [0, n_actions), or -1."""
    illegal = 0
    for i in range(actions.size):
        illegal |= (actions[i] < 0) | (actions[i] >= n_actions)
    if not illegal:
        return -1
    for i in range(actions.size):
        if actions[i] < 0 or actions[i] >= n_actions:
            return i
    return -1


@inlined
def next_episode(seeds: Any, i: Any) -> None:
    """Give sub-environment `i` the seed of its next episode, derived from its root, and count the episode."""
    seeds[1, i] += 1
    seeds[2, i] = next_seed(seeds[0, i], seeds[1, i])
    seeds[3, i] += 1
