"""The rows of Column Popper."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from typing import Any, Final

from bench.gyms import BATCH_STEPS, batched, batched_resets, drawn_rows, made, made_vector, resets, single
from bench.measure import Probe, rate_of
from bench.row import Better, Opener, Row, ratio_at_least, value_below
from proctor.envs.evaluation import Policy, make_policy

POPPER: Final = "SpecKitAI/ColumnPopper-v1"
CARTPOLE: Final = "CartPole-v1"
N: Final = 1024
BATCH: Final = f"N={N}"


def batched_and_read(env_id: str, num_envs: int) -> Opener:
    """Environment steps a second of a vector environment whose action masks and reward parts are read every time."""

    def opened(stack: ExitStack) -> Probe:
        env = made_vector(stack, env_id, num_envs)
        rows = drawn_rows(int(env.single_action_space.n), BATCH_STEPS, num_envs)

        def chunk() -> int:
            for actions in rows:
                info = env.step(actions)[4]
                info["action_mask"], info["reward_parts"]["popped_cell"]
            return rows.size

        return rate_of(chunk)

    return opened


def thought(name: str) -> Opener:
    """Processor milliseconds a move of a policy, over whole games."""

    def opened(stack: ExitStack) -> Probe:
        env = made(stack, POPPER)
        policy = make_policy(name, env)
        seeds = count()

        def probe(seconds: float) -> float:
            spent, moves = 0.0, 0
            while spent < seconds:
                for moment in _moments(env, policy, next(seeds)):
                    spent += moment
                    moves += 1
            return spent / moves * 1000.0

        return probe

    return opened


def _moments(env: Any, policy: Policy, seed: int) -> Iterator[float]:
    """Yield the processor seconds of each move of one game."""
    policy.reset(seed)
    observation, _ = env.reset(seed=seed)
    ended = False
    while not ended:
        begun = time.process_time()
        action = policy.act(observation)
        yield time.process_time() - begun
        observation, _, terminated, truncated, _ = env.step(action)
        ended = terminated or truncated


ROWS: Final = (
    Row("popper.single/cartpole", single(POPPER), single(CARTPOLE), "CartPole-v1", ratio_at_least(2.0)),
    Row(
        "popper.batched/vector-cartpole",
        batched(POPPER, N),
        batched(CARTPOLE, N, "vector_entry_point"),
        "vector CartPole-v1",
        ratio_at_least(4.0),
        note=f"{BATCH}, info not read",
    ),
    Row(
        "popper.batched-read/vector-cartpole",
        batched_and_read(POPPER, N),
        batched(CARTPOLE, N, "vector_entry_point"),
        "vector CartPole-v1",
        note=f"{BATCH}, info read",
    ),
    Row(
        "popper.batched/sync",
        batched(POPPER, N),
        batched(POPPER, N, "sync"),
        "SyncVectorEnv of ours",
        ratio_at_least(60.0),
        note=BATCH,
    ),
    Row("popper.reset/cartpole", resets(POPPER), resets(CARTPOLE), "CartPole-v1", unit="resets/s"),
    Row(
        "popper.reset-batched/vector-cartpole",
        batched_resets(POPPER, N),
        batched_resets(CARTPOLE, N, "vector_entry_point"),
        "vector CartPole-v1",
        unit="resets/s",
        note=BATCH,
    ),
    Row(
        "popper.search/greedy",
        thought("search"),
        thought("greedy"),
        "greedy",
        value_below(5.0),
        unit="ms/move",
        better=Better.LOWER,
    ),
)
