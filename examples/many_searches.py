"""A thousand searches at once, and one of them replayed alone from its seed."""

import gymnasium as gym
import numpy as np

envs = gym.make_vec("proctor/PlumeSearch-v0", num_envs=1000, max_steps=200, config={"plume": "puffs"})
observations, infos = envs.reset(seed=7)
rng = np.random.default_rng(0)

found = ended = 0
replay_seed = None
for _ in range(400):
    observations, rewards, terminated, truncated, infos = envs.step(rng.integers(0, 4, 1000))
    found += int(terminated.sum())
    ended += int((terminated | truncated).sum())
    if replay_seed is None and "seed" in infos:
        which = int(np.flatnonzero(infos["_seed"])[0])
        replay_seed, first_smell = int(infos["seed"][which]), observations[which]
print(f"{ended} episodes ended, {found} at the source")

single = gym.make("proctor/PlumeSearch-v0", max_steps=200, config={"plume": "puffs"})
observation, _ = single.reset(seed=replay_seed)
print("the single environment starts the same:", np.array_equal(observation, first_smell))
