"""Train on environments that a server runs: a linear policy for CartPole, found by keeping what works."""

import json
import subprocess
import sys

import numpy as np

from proctor.client import RemoteVectorEnv

N = 64


def scores(env: RemoteVectorEnv, weights: np.ndarray, steps: int = 200) -> np.ndarray:
    """Return how long each of the N policies keeps its pole up; one message steps all N."""
    observations, _ = env.reset(seed=1)
    alive, total = np.ones(N, bool), np.zeros(N)
    for _ in range(steps):
        actions = (np.einsum("ij,ij->i", observations, weights) > 0).astype(np.int64)
        observations, rewards, terminated, truncated, _ = env.step(actions)
        total += rewards * alive
        alive &= ~(terminated | truncated)
    return total


def train(url: str, rounds: int = 5) -> None:
    """Improve by the mean of the best: the cross-entropy method."""
    rng = np.random.default_rng(0)
    mean, spread = np.zeros(4), np.ones(4)
    env = RemoteVectorEnv(N, url)
    for number in range(rounds):
        weights = rng.normal(mean, spread, (N, 4))
        found = scores(env, weights)
        best = weights[np.argsort(found)[-8:]]
        mean, spread = best.mean(axis=0), best.std(axis=0) + 0.05
        print(f"round {number}: mean {found.mean():6.1f}, best {found.max():6.1f}")
    env.close()


def main() -> None:
    """Serve CartPole on this machine, as another machine would, and train on it."""
    command = [sys.executable, "-m", "proctor", "serve", "CartPole-v1", "--port", "0", "--insecure", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603  # our own command
        try:
            ready = server.stdout.readline() if server.stdout else ""
            train(json.loads(ready)["url"])
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
