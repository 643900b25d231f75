"""What a fresh process does to be measured: `python -m bench.footprint step|bytes single|vector ID COUNT`.

Rule 1: it imports what a user's script would import and nothing else, for all of it is measured.
"""

import sys

import gymnasium as gym


def make_all(kind: str, env_id: str, count: int) -> object:
    """Return `count` environments, or one vector environment of so many, each reset and stepped once."""
    if kind == "vector":
        vector = gym.make_vec(env_id, num_envs=count)
        vector.reset(seed=0)
        vector.step(vector.action_space.sample())
        return vector
    envs = [gym.make(env_id) for _ in range(count)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
        env.step(0)
    return envs


def resident() -> int:
    """Return the bytes of memory that this process has in use."""
    import resource
    from pathlib import Path

    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * resource.getpagesize()


def bytes_each(kind: str, env_id: str, count: int) -> float:
    """Return the resident bytes that each environment adds; a smaller lot first loads what all of them share."""
    import gc

    first = make_all(kind, env_id, max(count // 10, 1))
    gc.collect()
    before = resident()
    lot = make_all(kind, env_id, count)
    gc.collect()
    added = resident() - before
    del first, lot
    return added / count


def main(what: str, kind: str, env_id: str, count: str) -> None:
    """Do it and print one line."""
    if env_id.startswith("proctor/"):
        from proctor.envs.registration import register

        register()
    if what == "bytes":
        print(bytes_each(kind, env_id, int(count)))
    else:
        make_all(kind, env_id, int(count))
        print("stepped")


if __name__ == "__main__":
    main(*sys.argv[1:])
