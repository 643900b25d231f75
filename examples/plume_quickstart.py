"""One search by hand: make the environment, look at it, replay it."""

import gymnasium as gym

env = gym.make("proctor/PlumeSearch-v0", config={"plume": {"type": "advected", "wind": [1.0, 0.2]}})
observation, info = env.reset()
print("seed", info["seed"], "start", info["agent_xy"], "smell", observation)

trace = []
for action in [0, 1, 1, 2, 3] * 4:
    observation, reward, terminated, truncated, info = env.step(action)
    trace.append((observation.tobytes(), reward))
    if terminated or truncated:
        break

# The seed and the actions are the whole episode.
observation, info = env.reset(seed=env.unwrapped.seed)
again = [env.step(action)[:2] for action in [0, 1, 1, 2, 3] * 4][: len(trace)]
print("replayed identically:", [(seen.tobytes(), reward) for seen, reward in again] == trace)
env.close()
